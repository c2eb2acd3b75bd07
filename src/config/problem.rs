//! What is wrong with a configuration, where, and what to do about it.
//!
//! Every check of a configuration, in this module or above it, names a [`Path`] and says a sentence. Where that path
//! stands in the file is found later (`Loaded::locate`), so that a check needs only the values it judges.

use crate::redact::Redactor;
use std::fmt;
use std::sync::Arc;

/// One thing that is wrong, or (as a warning) looks forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the configuration can be used all the same.
    pub severity: Severity,
    /// What it is about.
    pub path: Path,
    /// Whether the key or its value is to blame.
    pub part: Part,
    /// What is wrong: lower case, no full stop, with the value it is about.
    pub message: String,
    /// What to do: lower case, no full stop; printed after `hint: `.
    pub hint: Option<String>,
    /// Where it stands in the file, once that is known.
    pub location: Option<Location>,
    /// The line it stands on, with a mark below the place. Values of secrets are blotted out.
    pub snippet: Option<String>,
}

/// Whether a problem keeps the configuration from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It cannot be used.
    Error,
    /// It can be used, but probably says something its author did not mean.
    Warning,
}

/// Which half of `key: value` a problem points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

/// A place in a file. Both numbers begin at 1; a column is a character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file, as it was named to us.
    pub file: Arc<str>,
    /// The line.
    pub line: usize,
    /// The column; 0 where only the line, or only the file, is known.
    pub column: usize,
}

/// Names one value of a configuration: `policy.rules[3].tools[0]`.
///
/// Built step by step rather than from a text, because keys may hold dots and slashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(Vec<Segment>);

/// One step of a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Segment {
    /// Into a mapping.
    Key(String),
    /// Into a list.
    Index(usize),
}

/// A text that has not the form it should have, and how it would be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// What is wrong with it: lower case, no full stop.
    pub message: String,
    /// How to write it.
    pub hint: String,
}

/// All that is wrong with one file, in the order of the file; of very many, the first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    listed: Vec<Problem>,
    n_unlisted: usize,
}

/// Nobody reads on after this many.
const LISTED_MAX: usize = 100;

// === impl Problem ===

impl Problem {
    /// An error about the value at `path`.
    pub fn new(path: impl Into<Path>, message: impl Into<String>) -> Self {
        Problem {
            severity: Severity::Error,
            path: path.into(),
            part: Part::Value,
            message: message.into(),
            hint: None,
            location: None,
            snippet: None,
        }
    }

    /// A warning about the value at `path`.
    pub fn warning(path: impl Into<Path>, message: impl Into<String>) -> Self {
        Problem { severity: Severity::Warning, ..Problem::new(path, message) }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Problem { hint: Some(hint.into()), ..self }
    }

    /// With what to do about it, where there is something to say.
    #[must_use]
    pub fn maybe_hint(self, hint: Option<String>) -> Self {
        Problem { hint: hint.or(self.hint), ..self }
    }

    /// About the key rather than its value.
    #[must_use]
    pub fn at_key(self) -> Self {
        Problem { part: Part::Key, ..self }
    }

    /// Whether it keeps the configuration from being used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl Malformed {
    pub(super) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Malformed { message: message.into(), hint: hint.into() }
    }

    /// The same as a problem of the value at `path`.
    pub fn at(self, path: impl Into<Path>) -> Problem {
        Problem::new(path, self.message).hint(self.hint)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut text = format!("{word}: {}", self.message);
        match &self.location {
            Some(location) => text.push_str(&format!(" ({location})")),
            None if !self.path.is_root() => text.push_str(&format!(" ({})", self.path)),
            None => {}
        }
        for (before, part) in [("\n", &self.snippet), ("\nhint: ", &self.hint)] {
            part.iter().for_each(|part| text.extend([before, part.as_str()]));
        }
        // What is mistyped may be a secret in the wrong place: a token where a key belongs.
        f.write_str(&Redactor::of_process().text(&text))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}

// === impl Path ===

impl Path {
    /// The whole file.
    pub fn root() -> Self {
        Path::default()
    }

    /// The value under `key`.
    #[must_use]
    pub fn key(&self, key: impl Into<String>) -> Self {
        self.step(Segment::Key(key.into()))
    }

    /// The element at `index`, counted from 0.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.step(Segment::Index(index))
    }

    /// Whether it names the whole file.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Its steps, from the root.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    fn step(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Path(segments)
    }
}

impl From<&Path> for Path {
    fn from(path: &Path) -> Self {
        path.clone()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    if at > 0 {
                        f.write_str(".")?;
                    }
                    if is_plain(key) {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{key:?}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-/@*".contains(&b))
}

// === impl Problems ===

impl Problems {
    /// Finds the place of each with `locate`, and sorts them by it; what has no place comes first.
    pub(super) fn located(mut problems: Vec<Problem>, locate: impl Fn(Problem) -> Problem) -> Self {
        // No error may be left out for a warning.
        problems.sort_by_key(|problem| problem.severity);
        let n_unlisted = problems.len().saturating_sub(LISTED_MAX);
        problems.truncate(LISTED_MAX);
        let mut listed: Vec<Problem> = problems.into_iter().map(locate).collect();
        listed.sort_by_key(|problem| {
            let place = problem.location.as_ref();
            place.map(|location| (location.line, location.column))
        });
        Problems { listed, n_unlisted }
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Whether one of them keeps the configuration from being used.
    pub fn has_errors(&self) -> bool {
        self.listed.iter().any(Problem::is_error)
    }

    /// One by one, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.listed.iter()
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.listed.into_iter()
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Problems { listed: vec![problem], n_unlisted: 0 }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.listed.iter().enumerate() {
            if at > 0 {
                f.write_str("\n\n")?;
            }
            problem.fmt(f)?;
        }
        if self.n_unlisted > 0 {
            write!(f, "\n\nand {} more", self.n_unlisted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_it_is_written_in_the_docs() {
        let rule = Path::root().key("policy").key("rules").index(3);

        assert_eq!(rule.key("tools").index(0).to_string(), "policy.rules[3].tools[0]");
        assert_eq!(
            rule.key("when").key("/command").key("matches").to_string(),
            "policy.rules[3].when./command.matches"
        );
        assert_eq!(rule.key("when").key("/a.b").to_string(), r#"policy.rules[3].when."/a.b""#);
    }

    #[test]
    fn a_problem_without_a_place_names_its_path() {
        let path = Path::root().key("listen");
        let problem = Problem::new(path, "no such address `x`").hint("write it as `127.0.0.1:8080`");

        assert_eq!(problem.to_string(), "error: no such address `x` (listen)\nhint: write it as `127.0.0.1:8080`");
    }
}
