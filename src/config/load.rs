//! Reads `gateway.yaml`: bytes to text to tree to [`Config`].
//!
//! A derived `Deserialize` stops at the first mistake. People who edit a file want to hear of all of them, so the tree
//! is first held against the file's own JSON Schema (`form`), which knows every key, type and range; serde then only
//! builds. That costs one small validator and buys complete reports, exact places, and the proof that the schema
//! editors use is true. Trying each section against its own type was considered: it reports one mistake a section.

use super::Audit;
use super::check::{Known, check};
use super::file::{self, FileError};
use super::locate::Source;
use super::problem::{Path, Problem, Problems};
use super::{Config, form, tree};
use std::path::{Path as FilePath, PathBuf};
use std::str;
use std::sync::Arc;

/// A file that has the right form, and what is needed to talk about it.
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
    /// Of a file that was read: anyone on this machine may change it.
    is_writable_by_all: bool,
    source: Source,
}

/// Far more than anyone writes by hand; what is larger is not a configuration.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Stands for a file where there is none: what `make run` runs. Not a name that a file has by
/// accident, so that a file which is deleted is not mistaken for one that never was.
pub const BUILT_IN: &str = "the built-in gateway.yaml";
const BUILT_IN_TEXT: &str = include_str!("../../gateway.yaml");

/// The bytes of the file at `path`; `None` where it cannot be read.
pub fn bytes(path: &FilePath) -> Option<Vec<u8>> {
    if path == FilePath::new(BUILT_IN) { Some(BUILT_IN_TEXT.into()) } else { std::fs::read(path).ok() }
}

/// Reads the file at `path`.
pub fn read(path: &FilePath) -> Result<Loaded, Problems> {
    if path == FilePath::new(BUILT_IN) {
        return load(BUILT_IN_TEXT, path);
    }
    let max = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
    let contents = file::read(path, max).map_err(|error| unreadable(path, &error))?;
    match str::from_utf8(&contents.bytes) {
        Ok(text) => load(text, path)
            .map(|loaded| Loaded { is_writable_by_all: file::is_writable_by_all(&contents.metadata), ..loaded }),
        Err(error) => {
            let valid = contents.bytes.get(..error.valid_up_to()).unwrap_or_default();
            let text = str::from_utf8(valid).unwrap_or_default();
            let problem = Problem::new(Path::root(), "not UTF-8 text from here on");
            let end = text.len();
            Err(source(text, path).mark(problem, end..end).into())
        }
    }
}

/// Reads `text` as if it stood in `file`.
pub fn load(text: &str, file: impl Into<PathBuf>) -> Result<Loaded, Problems> {
    let file = file.into();
    let hash = digest(text);
    // Some editors write a byte order mark; it says nothing, and columns are counted without it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() > FILE_BYTES_MAX {
        let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX);
        return Err(unreadable(&file, &FileError::TooLarge(limit)));
    }
    let (source, root) = well_formed(source(text, &file))?;
    let config = serde_json::from_value(root).map_err(|error| {
        // Not to be expected: what the schema lets through, serde builds. Said rather than hidden.
        source.locate(Problem::new(Path::root(), error.to_string()))
    })?;
    Ok(Loaded { config, text: source.text(), file, hash, is_writable_by_all: false, source })
}

/// The source with its tree, and the tree's contents for serde.
fn well_formed(source: Source) -> Result<(Source, serde_json::Value), Problems> {
    let root = tree::parse(&source.text()).map_err(|faults| {
        let problems = faults.into_iter().map(|fault| {
            let problem = Problem::new(Path::root(), fault.message);
            let problem = problem.maybe_hint(fault.hint.map(str::to_owned));
            source.mark(problem, fault.span)
        });
        source.locate_all(problems.collect())
    })?;
    let problems = form::check(&root);
    let contents = root.to_json();
    let source = source.with_root(root);
    if problems.is_empty() {
        return Ok((source, contents));
    }
    // A section that is not there at all is missing at the end: a file that was cut short broke off there.
    let problems = problems.into_iter().map(|problem| source.locate_or_end(problem)).collect();
    Err(source.locate_all(problems))
}

impl Loaded {
    /// Everything about it that makes no sense, as far as the file alone shows it.
    pub fn check(&self, known: Known<'_>) -> Problems {
        let mut problems = check(&self.config, known);
        if self.is_writable_by_all {
            let hint = format!("run `chmod o-w {}`", self.file.display());
            problems.push(Problem::warning(Path::root(), "anyone on this machine may change this file").hint(hint));
        }
        self.locate(problems)
    }

    /// The same problems with their places, in the order of the file.
    pub fn locate(&self, problems: Vec<Problem>) -> Problems {
        self.source.locate_all(problems)
    }

    /// Where a path written in the file leads: relative to the file's directory.
    pub fn resolve(&self, path: &FilePath) -> PathBuf {
        self.directory().join(path)
    }

    /// How the audit log is kept, with its paths resolved.
    pub fn audit(&self) -> Audit {
        let mut audit = self.config.audit.clone();
        audit.checkpoints.file = audit.checkpoints.file.map(|file| self.resolve(&file));
        audit
    }

    /// The directory the file stands in.
    pub fn directory(&self) -> &FilePath {
        match self.file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => FilePath::new("."),
        }
    }
}

/// For the fuzzer: any bytes, all the way to what would be printed.
#[doc(hidden)]
pub fn fuzz_load(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    match load(text, "gateway.yaml") {
        Ok(loaded) => drop(loaded.check(Known::default()).to_string()),
        Err(problems) => drop(problems.to_string()),
    }
}

fn source(text: &str, file: &FilePath) -> Source {
    Source::new(file.display().to_string().into(), text.into())
}

fn unreadable(path: &FilePath, error: &FileError) -> Problems {
    Problem::new(Path::root(), format!("`{}` {error}", path.display())).into()
}

fn digest(text: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}
