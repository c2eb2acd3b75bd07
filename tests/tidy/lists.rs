//! Lists that stand in two places say the same: refusals, promises, clients, dependencies, the files of this test
//! binary.

use super::code::code;
use super::{Source, complains, none, program, sources};
use std::collections::{BTreeMap, BTreeSet};

// === Refusals: src/listener/head.rs, src/proxy/refuse.rs, src/upstream/error.rs, docs/refusals.md ===

/// Code → HTTP status and JSON-RPC code, as often as it is written with other numbers.
type Refusals = BTreeMap<String, BTreeSet<(String, String)>>;

/// The rows `=> ("policy.denied", 200, 31403)` of the table in code.
fn refusals_in_code(refuse: &str, upstream: &str) -> Refusals {
    let mut found = Refusals::new();
    for line in refuse.lines() {
        let Some((_, row)) = line.split_once("=> (\"") else {
            continue;
        };
        let cells: Vec<&str> = row.split([',', '"', ')']).map(str::trim).filter(|cell| !cell.is_empty()).collect();
        if let [code, status, number] = cells.as_slice() {
            found.entry((*code).to_owned()).or_default().insert(((*status).to_owned(), (*number).to_owned()));
        }
    }
    // `Upstream(name) => (name, 200, -32603)`: one row for all codes of an upstream's failures.
    let of_upstreams = upstream.lines().filter_map(|line| line.trim().strip_suffix("\",")?.split_once("=> \""));
    for (_, code) in of_upstreams.filter(|(_, code)| code.starts_with("upstream.")) {
        found.entry(code.to_owned()).or_default().insert(("200".to_owned(), "-32603".to_owned()));
    }
    found
}

/// The rows `| `policy.denied` | 200 | 31403 | … |` of the table in the docs.
fn refusals_in_docs(markdown: &str) -> Refusals {
    let mut found = Refusals::new();
    for cells in rows(markdown) {
        if let [code, status, number, ..] = cells.as_slice()
            && let Some(code) = code.strip_prefix('`').and_then(|code| code.strip_suffix('`'))
        {
            let numbers = number.split(", ").map(|number| (status.clone(), number.replace('−', "-")));
            found.entry(code.to_owned()).or_default().extend(numbers);
        }
    }
    found
}

/// The cells of each row of each table.
fn rows(markdown: &str) -> impl Iterator<Item = Vec<String>> {
    let inside = markdown.lines().filter_map(|line| line.trim().strip_prefix('|')?.strip_suffix('|'));
    inside.map(|row| row.split('|').map(|cell| cell.trim().to_owned()).collect())
}

fn differing_refusals(code: &Refusals, docs: &Refusals) -> Vec<String> {
    let names: BTreeSet<&String> = code.keys().chain(docs.keys()).collect();
    let differs = |name: &&&String| code.get(**name) != docs.get(**name);
    let complaint = |name: &String| {
        format!("refusal `{name}`: the code has {:?}, docs/refusals.md has {:?}", code.get(name), docs.get(name))
    };
    names.iter().filter(differs).map(|name| complaint(name)).collect()
}

// === Promises: docs/promises.md ===

/// The names behind `#[test]` and `#[tokio::test]`.
fn test_names(source: &Source) -> Vec<String> {
    let code = code(&source.text);
    let marks = ["#[test]", "#[tokio::test"];
    let behind = marks.iter().flat_map(|mark| code.split(mark).skip(1)).filter_map(|rest| rest.split_once("fn "));
    let is_word = |c: &char| c.is_alphanumeric() || *c == '_';
    behind.map(|(_, rest)| rest.chars().take_while(is_word).collect()).collect()
}

/// Promises whose second cell names no test, or one that is not there.
fn promises_without_a_test(markdown: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for cells in rows(markdown) {
        let [promise, shown_by] = cells.as_slice() else {
            continue;
        };
        if promise == "Promise" || promise.starts_with("---") {
            continue;
        }
        let named: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            complaints.push(format!("docs/promises.md: no test shows: {promise}"));
        }
        let gone = named.iter().filter(|name| !tests.contains(**name));
        complaints
            .extend(gone.map(|name| format!("docs/promises.md: `{name}` is no test, but should show: {promise}")));
    }
    complaints
}

// === Clients: docs/clients/README.md, tests/sdk ===

/// Package → version, of everything that is pinned for the tests.
fn pinned(npm: &str, pip: &str) -> BTreeMap<String, String> {
    let manifest: serde_json::Value = serde_json::from_str(npm).expect("package.json is JSON");
    let lists = ["dependencies", "optionalDependencies"].map(|list| manifest[list].as_object());
    let npm = lists.into_iter().flatten().flatten();
    let npm = npm.map(|(name, version)| (name.clone(), version.as_str().unwrap_or_default().to_owned()));
    let pip = pip.lines().filter_map(|line| line.split_once("=="));
    npm.chain(pip.map(|(name, version)| (name.to_owned(), version.to_owned()))).collect()
}

/// Rows that begin with a client, `` `package` 1.2.3 ``, which is not the one that is tried.
fn untried_clients(markdown: &str, pinned: &BTreeMap<String, String>) -> Vec<String> {
    let first = rows(markdown).filter_map(|cells| cells.into_iter().next());
    let named = first.filter_map(|cell| {
        let (_, rest) = cell.split_once('`')?;
        let (name, version) = rest.split_once('`')?;
        Some((name.to_owned(), version.trim().to_owned()))
    });
    let untried = named.filter(|(name, version)| pinned.get(name) != Some(version));
    let complaint = |(name, version)| {
        format!("docs/clients/README.md: `{name}` {version}, but tests/sdk has {:?}", pinned.get(&name))
    };
    untried.map(complaint).collect()
}

// === Dependencies: Cargo.toml ===

/// Dependencies without a sentence above them. One sentence may stand for two that belong together.
fn unexplained_dependencies(path: &str, cargo: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_inside = false;
    let mut n_explained = 0;
    for (at, line) in cargo.lines().enumerate() {
        if line.starts_with('[') {
            is_inside = line.ends_with("dependencies]");
            n_explained = 0;
        } else if line.starts_with('#') {
            n_explained = 2;
        } else if line.trim().is_empty() {
            n_explained = 0;
        } else if is_inside && n_explained == 0 {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            complaints
                .push(format!("{path}:{}: `{name}` has no sentence above it: why it is here, what it costs", at + 1));
        } else {
            n_explained -= usize::from(n_explained > 0);
        }
    }
    complaints
}

// === The files of this binary: tests/all.rs ===

/// Test files that no `mod` leads to: they would never run, and never be missed.
fn forgotten_files(files: &[Source]) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec!["tests/all.rs".to_owned()];
    while let Some(path) = open.pop() {
        if let Some(source) = files.iter().find(|source| source.path == path)
            && reached.insert(path.clone())
        {
            open.extend(
                declared(source).into_iter().flat_map(|module| [format!("{module}.rs"), format!("{module}/mod.rs")]),
            );
        }
    }
    let forgotten = files.iter().filter(|source| !reached.contains(&source.path));
    forgotten.map(|source| format!("{}: no `mod` leads here from tests/all.rs", source.path)).collect()
}

/// Where the `mod name;` of a file lead, without ending.
fn declared(source: &Source) -> Vec<String> {
    let folder = match source.path.strip_suffix("/mod.rs").or_else(|| source.path.strip_suffix("/all.rs")) {
        Some(folder) => folder,
        None => source.path.trim_end_matches(".rs"),
    };
    let code = code(&source.text);
    let code = ["{", "}", ";"].iter().fold(code, |code, mark| code.replace(mark, &format!(" {mark} ")));
    let words: Vec<&str> = code.split_whitespace().collect();
    // What is open: an inline module with its name, or any other brace.
    let mut around: Vec<Option<&str>> = Vec::new();
    let mut found = Vec::new();
    for window in words.windows(3) {
        match window {
            ["mod", name, ";"] => {
                let inner = around.iter().flatten().chain([name]).copied().collect::<Vec<_>>().join("/");
                found.push(format!("{folder}/{inner}"));
            }
            [before, name, "{"] => around.push((*before == "mod").then_some(*name)),
            [_, _, "}"] => _ = around.pop(),
            _ => {}
        }
    }
    found
}

#[test]
fn every_refusal_is_in_the_docs_with_its_numbers() {
    let tables = ["src/listener/head.rs", "src/proxy/refuse.rs"].map(|path| Source::read(path).text).concat();
    let code = refusals_in_code(&tables, &Source::read("src/upstream/error.rs").text);
    assert!(code.len() > 30, "the tables in code are read: {code:?}");
    none(differing_refusals(&code, &refusals_in_docs(&Source::read("docs/refusals.md").text)));
}

#[test]
fn every_promise_is_shown_by_a_test() {
    let tests = program().iter().chain(&sources("tests", ".rs")).flat_map(test_names).collect();
    none(promises_without_a_test(&Source::read("docs/promises.md").text, &tests));
}

#[test]
fn clients_in_the_docs_are_those_that_are_tried() {
    let npm = Source::read("tests/sdk/package.json").text;
    let pinned = pinned(&npm, &Source::read("tests/sdk/requirements.txt").text);
    assert!(pinned.len() > 30, "the pinned packages are read: {pinned:?}");
    none(untried_clients(&Source::read("docs/clients/README.md").text, &pinned));
}

#[test]
fn every_dependency_says_why_it_is_here() {
    let crates =
        ["Cargo.toml", "upstreams/local/Cargo.toml", "upstreams/sandbox/Cargo.toml", "upstreams/ssh/Cargo.toml"];
    none(crates.iter().flat_map(|path| unexplained_dependencies(path, &Source::read(path).text)));
}

#[test]
fn no_test_file_is_forgotten() {
    none(forgotten_files(&sources("tests", ".rs")));
}

#[test]
fn a_refusal_that_differs_is_seen() {
    let code = refusals_in_code(
        "            Code::Denied => (\"policy.denied\", 200, 31403),\n            Code::Upstream(name) => (name, 200, -32603),\n",
        "            Error::Tls(_) => \"upstream.tls\",\n",
    );
    let seen = |docs: &str| differing_refusals(&code, &refusals_in_docs(docs));
    let tls = "| `upstream.tls` | 200 | -32603 | x | y |\n";

    complains(&seen(tls), "`policy.denied`");
    complains(&seen(&format!("{tls}| `policy.denied` | 403 | 31403 | x | y |\n")), "`policy.denied`");
    complains(
        &seen(&format!("{tls}| `policy.denied` | 200 | 31403 | x | y |\n| `gone` | 400 | 1 | x | y |\n")),
        "`gone`",
    );
    none(seen(&format!("| Code | HTTP |\n|---|---|\n{tls}| `policy.denied` | 200 | 31403 | x | y |\n")));
}

#[test]
fn a_client_that_is_not_tried_is_seen() {
    let pinned = pinned(r#"{ "dependencies": { "@a/b": "1.0.0" } }"#, "c==2.0.0\n");
    let seen = |cell: &str| untried_clients(&format!("| Client | x |\n|---|---|\n| {cell} | yes |\n"), &pinned);

    complains(&seen("B, `@a/b` 1.0.1"), "`@a/b` 1.0.1");
    complains(&seen("D, `d` 1.0.0"), "`d` 1.0.0");
    none(seen("B, `@a/b` 1.0.0"));
    none(seen("C, `c` 2.0.0"));
}

#[test]
fn a_dependency_without_a_sentence_is_seen() {
    complains(
        &unexplained_dependencies("Cargo.toml", "[dependencies]\n# Why.\na = \"1\"\n\nb = \"1\"\n"),
        "Cargo.toml:5: `b`",
    );
    complains(
        &unexplained_dependencies(
            "Cargo.toml",
            "[dev-dependencies]\n# Why.\na = \"1\"\nb = \"1\"\nc.workspace = true\n",
        ),
        "`c`",
    );
    none(unexplained_dependencies(
        "Cargo.toml",
        "[package]\nname = \"x\"\n[dependencies]\n# Why.\na = \"1\"\n[profile.dev]\ndebug = false\n",
    ));
}

#[test]
fn a_forgotten_test_file_is_seen() {
    let files = [
        Source::sample("tests/all.rs", "mod tidy;\nmod proxy {\n    mod bytes;\n}\nmod support;\n// mod lost;\n"),
        Source::sample("tests/tidy.rs", "mod code;\nfn f() { if x {} }\nmod after;"),
        Source::sample("tests/tidy/code.rs", ""),
        Source::sample("tests/tidy/after.rs", ""),
        Source::sample("tests/proxy/bytes.rs", ""),
        Source::sample("tests/support/mod.rs", "pub(crate) mod agent;"),
        Source::sample("tests/support/agent.rs", ""),
        Source::sample("tests/lost.rs", ""),
    ];

    complains(&forgotten_files(&files), "tests/lost.rs");
}

#[test]
fn a_promise_without_a_test_is_seen() {
    let file = Source::sample(
        "src/a.rs",
        "#[test]\nfn one() {}\n#[tokio::test(start_paused = true)]\nasync fn two() {}\nfn three() {}",
    );
    let tests: BTreeSet<String> = test_names(&file).into_iter().collect();
    let seen = |row: &str| promises_without_a_test(&format!("| Promise | Shown by |\n|---|---|\n{row}\n"), &tests);

    complains(&seen("| It is good. | `three` |"), "`three` is no test");
    complains(&seen("| It is good. | soon |"), "no test shows");
    none(seen("| It is good. | `one`, `two` |"));
}
