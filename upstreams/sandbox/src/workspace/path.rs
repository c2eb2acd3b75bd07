//! How a file is named in arguments: relative to the workspace, `src/main.c`, or with its place in front,
//! `/workspace/src/main.c`. Nothing else.
//!
//! The gateway's policy looks at the argument as it was sent. Were `a/../b`, `a//b` or `./b` also names of `b`, a rule
//! about `b` would miss them: so a file has these two names, and what would be a third one is refused.

use crate::confine::WORKSPACE;
use serde::Deserialize;
use std::fmt;
use thiserror::Error;

/// A place in a principal's folder: its components, without `.`, `..` and links between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct WorkspacePath(String);

/// Why a text is not a [`WorkspacePath`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the path `{shown}` {why}")]
pub struct BadPath {
    shown: String,
    why: String,
}

/// The longest path, in bytes (PATH_MAX of Linux, with its NUL).
const LONGEST: usize = 4095;
/// The longest component, in bytes (NAME_MAX of Linux).
const LONGEST_NAME: usize = 255;
/// The most components. Folders that are deeper than what [`super::usage`] counts make a workspace full: no file tool
/// may make one.
const DEEPEST: usize = 100;
/// How much of a bad path an error repeats, in characters.
const SHOWN: usize = 200;

impl WorkspacePath {
    /// The folder itself.
    pub fn root() -> WorkspacePath {
        WorkspacePath(String::new())
    }

    /// Reads an argument.
    ///
    /// # Errors
    /// [`BadPath`] says what is wrong, and what to write instead.
    pub fn parse(text: &str) -> Result<WorkspacePath, BadPath> {
        let bad = |why: &str| BadPath { shown: text.chars().take(SHOWN).collect(), why: why.to_owned() };
        if text == "." || text == WORKSPACE {
            return Ok(WorkspacePath::root());
        }
        let relative = match text.strip_prefix(WORKSPACE) {
            Some(below) if below.starts_with('/') => &below[1..],
            _ if text.starts_with('/') => {
                return Err(bad(&format!("is outside of {WORKSPACE}; write it relative to that, as in `src/main.c`")));
            }
            _ => text,
        };
        if relative.is_empty() {
            return Err(bad("is empty; `.` is the workspace itself"));
        }
        if relative.len() > LONGEST {
            return Err(bad(&format!("has {} bytes, and {LONGEST} are the most", relative.len())));
        }
        if relative.contains('\0') {
            return Err(bad("has a NUL character in it"));
        }
        if relative.split('/').count() > DEEPEST {
            return Err(bad(&format!("has more than {DEEPEST} parts")));
        }
        for name in relative.split('/') {
            match name {
                "" => return Err(bad("has an empty part; write single slashes, and none at the end")),
                "." => return Err(bad("has a `.` in it; leave that part out")),
                ".." => return Err(bad("has a `..` in it; write the path without it")),
                _ if name.len() > LONGEST_NAME => {
                    return Err(bad(&format!("has a part of more than {LONGEST_NAME} bytes")));
                }
                _ => {}
            }
        }
        Ok(WorkspacePath(relative.to_owned()))
    }

    /// Relative to the folder, as openat2(2) takes it.
    pub fn relative(&self) -> &str {
        if self.0.is_empty() { "." } else { &self.0 }
    }

    /// Relative to the folder; empty for the folder itself.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// The folder it is in, and its name there; `None` for the workspace itself.
    pub fn split(&self) -> Option<(WorkspacePath, &str)> {
        let (parent, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (!name.is_empty()).then(|| (WorkspacePath(parent.to_owned()), name))
    }

    /// What is called `name` in it. The name comes from the file system.
    pub fn join(&self, name: &str) -> WorkspacePath {
        WorkspacePath(if self.0.is_empty() { name.to_owned() } else { format!("{}/{name}", self.0) })
    }

    /// Where a link at this place that says `target` leads to, where that is in the workspace: by its letters alone.
    pub fn follow(&self, target: &str) -> Option<WorkspacePath> {
        let mut names: Vec<&str> = match target.strip_prefix(WORKSPACE) {
            Some(below) if below.is_empty() || below.starts_with('/') => Vec::new(),
            _ if target.starts_with('/') => return None,
            _ => self.0.rsplit_once('/').map_or(Vec::new(), |(parent, _)| parent.split('/').collect()),
        };
        for name in target.strip_prefix(WORKSPACE).unwrap_or(target).split('/') {
            match name {
                "" | "." => {}
                ".." => drop(names.pop()?),
                _ => names.push(name),
            }
        }
        Some(WorkspacePath(names.join("/")))
    }
}

impl TryFrom<String> for WorkspacePath {
    type Error = BadPath;

    fn try_from(text: String) -> Result<Self, BadPath> {
        WorkspacePath::parse(&text)
    }
}

impl Default for WorkspacePath {
    fn default() -> Self {
        WorkspacePath::root()
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.relative())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_two_names_and_the_workspace_has_two() {
        for (text, relative) in [
            ("src/main.c", "src/main.c"),
            ("/workspace/src/main.c", "src/main.c"),
            (".", "."),
            ("/workspace", "."),
            ("a b/ü/日本", "a b/ü/日本"),
            ("...", "..."),
            ("workspace", "workspace"),
            ("-rf", "-rf"),
            (&vec!["d"; 100].join("/"), &vec!["d"; 100].join("/")),
        ] {
            assert_eq!(WorkspacePath::parse(text).map(|path| path.relative().to_owned()), Ok(relative.to_owned()));
        }
    }

    #[test]
    fn whatever_would_be_a_third_name_or_lead_out_is_refused_with_the_reason() {
        let long_name = "n".repeat(256);
        let long_path = vec!["d".repeat(255); 17].join("/");
        let deep_path = vec!["d"; 101].join("/");
        for (text, why) in [
            ("", "is empty"),
            ("/workspace/", "is empty"),
            ("/", "is outside of /workspace"),
            ("/etc/passwd", "is outside of /workspace"),
            ("/workspace2/x", "is outside of /workspace"),
            ("/proc/self/root/etc/passwd", "is outside of /workspace"),
            ("..", "has a `..`"),
            ("../x", "has a `..`"),
            ("a/../../x", "has a `..`"),
            ("/workspace/../etc/passwd", "has a `..`"),
            ("./a", "has a `.` in it"),
            ("a/./b", "has a `.` in it"),
            ("a//b", "has an empty part"),
            ("a/", "has an empty part"),
            ("//workspace/a", "is outside of /workspace"),
            ("a\0b", "has a NUL"),
            (&long_name, "has a part of more than 255 bytes"),
            (&long_path, "has 4351 bytes"),
            (&deep_path, "has more than 100 parts"),
        ] {
            let refused = WorkspacePath::parse(text).expect_err(text).to_string();

            assert!(refused.contains(why), "{text}: {refused}");
            assert!(refused.len() < 500, "{refused}");
        }
    }

    #[test]
    fn where_a_link_leads_is_known_by_its_letters_as_long_as_it_stays_inside() {
        let link = WorkspacePath::parse("lib/a/link").unwrap();
        for (target, leads_to) in [
            ("b", Some("lib/a/b")),
            ("../b", Some("lib/b")),
            ("../../b/./c", Some("b/c")),
            ("../..", Some(".")),
            ("/workspace/x", Some("x")),
            ("/workspace", Some(".")),
            ("../../../b", None),
            ("/etc/passwd", None),
            ("/workspace-2", None),
        ] {
            assert_eq!(link.follow(target).map(|path| path.to_string()), leads_to.map(str::to_owned), "{target}");
        }
    }
}
