//! How long files and functions may be, how a file opens, and what may not stand in one.

use super::code::{code, functions, line_of};
use super::{Source, complains, none, program, sources};

/// A file is one subject; what is longer holds two.
const FILE_LINES: usize = 600;
/// A function fits on a screen.
const FUNCTION_LINES: usize = 70;
/// On the data path every function is read in one look.
const DATA_PATH_LINES: usize = 50;

/// Marks of unfinished or silenced work, each with what to do instead.
const NOWHERE: &[(&str, &str)] = &[
    ("#[allow(", "write #[expect(lint, reason = \"…\")]"),
    ("#![allow(", "write #![expect(lint, reason = \"…\")]"),
    ("todo!", "do it, or leave it out"),
    ("unimplemented!", "do it, or leave it out"),
    ("dbg!", "take it out"),
    ("#[ignore", "a test that may not run proves nothing; fix or delete it"),
];

/// Standard output and error belong to the command line; everything else logs.
const ONLY_IN_CLI: &[&str] = &["println!", "eprintln!", "print!", "eprint!"];

/// A file that does not say first what it is for, or is too long to be for one thing.
fn misshapen_file(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    if !source.text.starts_with("//! ") {
        complaints
            .push(format!("{}:1: opens without `//!`: what it owns, what it leaves to others, and why", source.path));
    }
    let n_lines = source.text.lines().count();
    if n_lines > FILE_LINES {
        complaints
            .push(format!("{}: {n_lines} lines, more than {FILE_LINES}: find the second subject in it", source.path));
    }
    complaints
}

/// Functions that are more than one thought.
fn long_functions(source: &Source) -> Vec<String> {
    let limit = if source.path.starts_with("src/proxy/") { DATA_PATH_LINES } else { FUNCTION_LINES };
    let long = functions(&code(&source.text)).into_iter().filter(|function| function.n_lines > limit);
    let complaint = |f: super::code::Function| {
        format!("{}:{}: `{}` has {} lines, more than {limit}", source.path, f.line, f.name, f.n_lines)
    };
    long.map(complaint).collect()
}

/// Programs and tests of an upstream's crate that nobody installs.
fn is_of_tests(path: &str) -> bool {
    path.contains("/tests/") || path.contains("/bin/")
}

/// Words that have no place in a file.
fn banned_words(source: &Source) -> Vec<String> {
    let code = code(&source.text);
    let is_of_the_program = source.path.starts_with("src/") || source.path.starts_with("upstreams/");
    let may_print = source.path.starts_with("src/cli/") || source.path == "src/main.rs" || is_of_tests(&source.path);
    let printing = ONLY_IN_CLI.iter().filter(|_| is_of_the_program && !may_print);
    let printing = printing.map(|word| (*word, "log it; only the command line prints"));
    let mut complaints = Vec::new();
    for (word, instead) in NOWHERE.iter().copied().chain(printing) {
        for (at, _) in code.match_indices(word) {
            let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if is_whole {
                complaints.push(format!("{}:{}: `{word}`: {instead}", source.path, line_of(&code, at)));
            }
        }
    }
    complaints
}

#[test]
fn every_file_says_what_it_owns_and_is_one_subject() {
    none(program().iter().chain(&sources("tests", ".rs")).flat_map(misshapen_file));
}

#[test]
fn every_function_fits_on_a_screen() {
    none(program().iter().flat_map(long_functions));
}

#[test]
fn nothing_is_silenced_unfinished_or_printed_in_passing() {
    none(program().iter().chain(&sources("tests", ".rs")).flat_map(banned_words));
}

#[test]
fn a_file_without_module_docs_or_too_long_is_seen() {
    complains(&misshapen_file(&Source::sample("src/a.rs", "// A comment.\n")), "src/a.rs:1: opens without");
    let long = "//! Long.\n".to_owned() + &"\n".repeat(FILE_LINES);
    complains(&misshapen_file(&Source::sample("src/a.rs", &long)), "601 lines");
    none(misshapen_file(&Source::sample("src/a.rs", "//! Reads.\n")));
}

#[test]
fn a_long_function_is_seen_and_sooner_on_the_data_path() {
    let of = |n_lines: usize| format!("fn long() {{\n{}}}\n", "    step();\n".repeat(n_lines - 2));
    let seen = |path: &str, n_lines| long_functions(&Source::sample(path, &of(n_lines)));

    complains(&seen("src/policy/rule.rs", 71), "src/policy/rule.rs:1: `long` has 71 lines");
    complains(&seen("src/proxy/reply.rs", 51), "more than 50");
    none(seen("src/policy/rule.rs", 70));
    none(seen("src/proxy/reply.rs", 50));
}

#[test]
fn a_banned_word_is_seen_and_its_mention_is_not() {
    let seen = |path: &str, text: &str| banned_words(&Source::sample(path, text));

    for (word, _) in NOWHERE {
        complains(&seen("tests/a.rs", &format!("\n{word}")), "tests/a.rs:2");
    }
    for word in ONLY_IN_CLI {
        complains(&seen("src/server.rs", &format!("{word}(\"x\")")), "src/server.rs:1");
        none(seen("src/cli/serve.rs", &format!("{word}(\"x\")")));
        none(seen("tests/a.rs", &format!("{word}(\"x\")")));
    }
    none(seen("src/a.rs", "// todo! in a comment\nlet text = \"dbg!\"; fn not_todo!() {}"));
}
