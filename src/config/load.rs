//! Reads `gateway.yaml`: bytes to text to tree to [`Config`].
//!
//! A derived `Deserialize` stops at the first mistake. People who edit a file want to hear of all of them, so the tree
//! is first held against the file's own JSON Schema (`form`), which knows every key, type and range; serde then only
//! builds. That costs one small validator and buys complete reports, exact places, and the proof that the schema
//! editors use is true.

use super::Config;
use super::form;
use super::locate::Source;
use super::problem::{Path, Problem, Problems};
use super::tree;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that could be read, and what is needed to talk about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// Its text.
    pub text: Arc<str>,
    /// Where it stands; paths in it are relative to its directory.
    pub file: PathBuf,
    /// SHA-256 of its text: two files with the same hash say the same.
    pub hash: [u8; 32],
    source: Source,
}

/// Reads the file at `path`.
pub fn read(path: &std::path::Path) -> Result<Loaded, Problems> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Problem::new(Path::root(), format!("cannot be read: {error}")))?;
    load(&text, path)
}

/// Reads `text` as if it stood in `file`.
pub fn load(text: &str, file: impl Into<PathBuf>) -> Result<Loaded, Problems> {
    let file = file.into();
    let text: Arc<str> = text.into();
    let name = file.file_name().map_or_else(
        || file.to_string_lossy().into_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let source = Source::new(name.into(), Arc::clone(&text));
    let root = tree::parse(&text).map_err(|faults| {
        let problems = faults.into_iter().map(|fault| {
            let problem = Problem::new(Path::root(), fault.message);
            source.mark(
                problem.maybe_hint(fault.hint.map(str::to_owned)),
                fault.span,
            )
        });
        Problems::new(problems.collect())
    })?;
    let source = source.with_root(root.clone());
    let problems = form::check(&root);
    if !problems.is_empty() {
        let located = problems.into_iter().map(|problem| source.locate(problem));
        return Err(Problems::new(located.collect()));
    }
    let config = serde_json::from_value(root.into_json())
        .map_err(|error| source.locate(Problem::new(Path::root(), error.to_string())))?;
    Ok(Loaded {
        config,
        hash: digest(&text),
        text,
        file,
        source,
    })
}

impl Loaded {
    /// The same problems with their places, in the order of the file.
    pub fn locate(&self, problems: Vec<Problem>) -> Problems {
        let located = problems
            .into_iter()
            .map(|problem| self.source.locate(problem));
        Problems::new(located.collect())
    }

    /// Where a path written in the file leads: relative to the file's directory.
    pub fn resolve(&self, path: &std::path::Path) -> PathBuf {
        self.directory().join(path)
    }

    /// The directory the file stands in.
    pub fn directory(&self) -> &std::path::Path {
        match self.file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => std::path::Path::new("."),
        }
    }
}

fn digest(text: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}
