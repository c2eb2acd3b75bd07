//! What no compiler checks, held by tests: who may use whom, how long things may be, which words have no place here,
//! that lists in the docs are the lists in the code, and that every example works.
//!
//! Each rule is a function from text to complaints, so that beside it stands a bad sample it was seen to complain of.
//! A rule that hurts is changed here, with its reason; it is not worked around.

/// Rust source, with comments and strings out of the way.
mod code;
/// Examples, links, and whatever else a reader of the docs relies on.
mod docs;
/// Who may use whom.
mod floors;
/// `gateway.schema.json` and the docs that are written from code.
mod generated;
/// Lists in the docs against lists in the code.
mod lists;
/// How long things may be, and what may not stand in them.
mod shape;

use std::path::{Path, PathBuf};

/// One file of this repository.
struct Source {
    /// Relative to the root, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// A file for a sample that a rule must complain of.
    fn sample(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    /// The file at `path`, which must be there.
    #[track_caller]
    fn read(path: &str) -> Source {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Source { path: path.to_owned(), text }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder` (`""`: the whole repository) whose name ends with `ending`, in the order of their paths.
fn sources(folder: &str, ending: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    collect(&root().join(folder), ending, &mut paths);
    paths.sort();
    let relative = |path: PathBuf| {
        let path = path.strip_prefix(root()).expect("it stands in the repository");
        path.to_str().expect("our file names are UTF-8").to_owned()
    };
    paths.into_iter().map(|path| Source::read(&relative(path))).collect()
}

/// Every Rust file of the programs: the gateway's, and those of the upstreams it brings.
fn program() -> Vec<Source> {
    let mut all = sources("src", ".rs");
    all.extend(sources("upstreams", ".rs"));
    all
}

fn collect(folder: &Path, ending: &str, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Not ours: what builds and runs leave behind, and what git keeps.
        let is_foreign = name.starts_with('.') || ["target", "data", "node_modules"].contains(&&*name);
        if path.is_dir() && !is_foreign {
            collect(&path, ending, into);
        } else if path.is_file() && name.ends_with(ending) {
            into.push(path);
        }
    }
}

/// Fails with every complaint there is.
#[track_caller]
fn none(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<String> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Fails unless there is exactly one complaint, and it says `part`: how a rule is seen failing.
#[track_caller]
fn complains(complaints: &[String], part: &str) {
    assert!(
        matches!(complaints, [one] if one.contains(part)),
        "expected one complaint with `{part}`, got {complaints:#?}"
    );
}
