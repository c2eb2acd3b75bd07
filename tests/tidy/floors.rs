//! The floors of the house (ARCHITECTURE.md): a module uses lower ones only, never a neighbour, never one above.
//!
//! 19 of 25 good Rust codebases that were measured have an import cycle over most of their lines: good will does not
//! hold layers, a test does.

use super::code::{code, line_of};
use super::{Source, complains, none, sources};

/// From the ground up. What stands on one floor may use everything below it, and nothing beside it.
const FLOORS: &[&[&str]] = &[
    &["clock", "fault", "glance", "secret", "id"],
    &["web", "fetch", "jsonrpc", "pages", "redact", "redirect_uri"],
    &["mcp", "otlp"],
    &["config"],
    &["store", "metrics", "trace"],
    &["identity", "audit"],
    &["policy"],
    &["approval", "credential"],
    &["upstream"],
    &["snapshot"],
    &["browser"],
    &["oauth", "admin", "proxy", "reload", "listener"],
    &["server"],
    &["cli"],
];

/// Crates that run, listen, store or count: `config` describes them and may not know them.
const RUNTIME_CRATES: &[&str] = &["tokio", "pingora", "axum", "rusqlite", "prometheus", "arc_swap", "dashmap"];

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// Uses that lead up or sideways.
fn wrong_uses(source: &Source) -> Vec<String> {
    let path = &source.path;
    let Some(module) = top_module(path) else {
        return Vec::new();
    };
    let Some(own) = floor_of(module) else {
        return vec![format!("{path}: module `{module}` stands on no floor; add it to FLOORS")];
    };
    let uses = uses(source);
    let is_wrong = |used: &str| used != module && floor_of(used).is_none_or(|floor| floor >= own);
    let complaint = |(used, line): (String, usize)| {
        format!("{path}:{line}: `{module}` uses `{used}`, which does not stand below it")
    };
    uses.into_iter().filter(|(used, _)| is_wrong(used)).map(complaint).collect()
}

/// `src/proxy/route.rs` and `src/proxy.rs` are `proxy`; the crate's roots stand above all.
fn top_module(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    let module = inside.split_once('/').map_or_else(|| inside.strip_suffix(".rs"), |(folder, _)| Some(folder))?;
    (!["lib", "main"].contains(&module)).then_some(module)
}

/// The modules of this crate that a file names, with the line.
fn uses(source: &Source) -> Vec<(String, usize)> {
    let code = code(&source.text);
    let depth = source.path.trim_end_matches("/mod.rs").matches('/').count();
    // The same module is reached by `crate::x`, and by as many `super::` as the file is deep, or one more in a `mod tests`.
    let roots = ["crate::".to_owned(), "super::".repeat(depth), "super::".repeat(depth + 1)];
    let mut found = Vec::new();
    for root in &roots {
        for (at, _) in code.match_indices(root.as_str()) {
            let is_longer = code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
            let names = if is_longer { Vec::new() } else { names(&code[at + root.len()..]) };
            let of_ours = |name: &String| root == "crate::" || floor_of(name).is_some();
            found.extend(names.into_iter().filter(of_ours).map(|name| (name, line_of(&code, at))));
        }
    }
    found
}

/// The first name of a path, or every first name of `{a, b::{c, d}}`; `*` is one, too.
fn names(path: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || "_*".contains(*c)).collect::<String>();
    let Some(group) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let mut depth = 0;
    let mut names = vec![String::new()];
    for c in group.chars() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(String::new()),
            _ => names.last_mut().expect("never empty").push(c),
        }
    }
    let names = names.iter().map(|name| word(name.trim()));
    names.filter(|name| !name.is_empty() && name != "self").collect()
}

/// `config` says what is written, not what runs.
fn runtime_types_in_config(source: &Source) -> Vec<String> {
    if top_module(&source.path) != Some("config") {
        return Vec::new();
    }
    let code = code(&source.text);
    let named = RUNTIME_CRATES.iter().flat_map(|name| {
        let is_a_path = |at: &usize| {
            let is_whole = !code[..*at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
            is_whole && code[at + name.len()..].starts_with("::")
        };
        let first = code.match_indices(name).map(|(at, _)| at).find(is_a_path);
        first.map(|at| format!("{}:{}: `config` names the runtime type `{name}::…`", source.path, line_of(&code, at)))
    });
    named.collect()
}

/// Modules that `lib.rs` declares and no floor knows.
fn without_a_floor(lib: &str) -> Vec<String> {
    let code = code(lib);
    let declared = code.lines().filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';'));
    let unknown = declared.filter(|module| floor_of(module).is_none());
    unknown.map(|module| format!("src/lib.rs: module `{module}` stands on no floor; add it to FLOORS")).collect()
}

#[test]
fn a_module_uses_lower_floors_only() {
    none(sources("src", ".rs").iter().flat_map(wrong_uses));
}

#[test]
fn every_module_stands_on_a_floor() {
    none(without_a_floor(&Source::read("src/lib.rs").text));
}

#[test]
fn the_configuration_names_no_runtime_type() {
    none(sources("src", ".rs").iter().flat_map(runtime_types_in_config));
}

#[test]
fn the_program_enters_through_the_command_line_only() {
    let main = code(&Source::read("src/main.rs").text);
    let entries: Vec<_> = main.match_indices("portcullis::").map(|(at, name)| &main[at + name.len()..]).collect();
    assert!(matches!(entries.as_slice(), [one] if one.starts_with("cli::")), "{main}");
}

#[test]
fn a_use_that_leads_up_or_sideways_is_seen() {
    let seen = |path: &str, text: &str| wrong_uses(&Source::sample(path, text));

    complains(&seen("src/policy/who.rs", "use crate::proxy::Gateway;"), "src/policy/who.rs:1: `policy` uses `proxy`");
    complains(&seen("src/proxy/route.rs", "\nuse crate::oauth;"), "src/proxy/route.rs:2: `proxy` uses `oauth`");
    complains(&seen("src/proxy/mod.rs", "fn f() { crate::admin::health() }"), "`proxy` uses `admin`");
    complains(&seen("src/store/mod.rs", "use crate::{clock::Clock, cli::{self, main}};"), "`store` uses `cli`");
    complains(&seen("src/mcp/call.rs", "use super::super::config::Config;"), "`mcp` uses `config`");
    complains(&seen("src/metrics.rs", "mod tests { use super::super::store::Store; }"), "`metrics` uses `store`");
    complains(&seen("src/id.rs", "use crate::*;"), "`id` uses `*`");
    complains(&seen("src/novel/mod.rs", ""), "module `novel` stands on no floor");
    for (path, text) in [
        ("src/proxy/mod.rs", "use crate::{policy::Policy, proxy::x};\nuse super::route;\n// use crate::cli;"),
        ("src/policy/mod.rs", "const TEXT: &str = \"crate::cli\"; use crate::identity::Principal;"),
        ("src/cli/audit.rs", "use super::Usage; use super::audit;"),
        ("src/main.rs", "portcullis::cli::main()"),
    ] {
        none(seen(path, text));
    }
}

#[test]
fn a_module_without_a_floor_is_seen() {
    complains(&without_a_floor("pub mod proxy;\npub mod novel;\n// pub mod other;\n"), "`novel`");
}

#[test]
fn a_runtime_type_in_the_configuration_is_seen() {
    let seen = |path: &str, text: &str| runtime_types_in_config(&Source::sample(path, text));

    complains(&seen("src/config/mod.rs", "pub x: tokio::time::Duration"), "src/config/mod.rs:1");
    none(seen("src/config/mod.rs", "// tokio::time\nuse crate::mytokio::x;"));
    none(seen("src/server.rs", "use tokio::sync::watch;"));
}
