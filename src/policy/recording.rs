//! Of which tools the arguments are written down, and what of them is hidden. No rule, but named by the same patterns.

use super::compile::compile_patterns;
use super::pattern::Pattern;
use crate::config::{self, Path, Problem};
use std::borrow::Cow;

/// The compiled `audit.arguments`.
#[derive(Debug, Default)]
pub struct Recording(Box<[Entry]>);

#[derive(Debug)]
struct Entry {
    tools: Box<[Pattern]>,
    mask: Vec<String>,
    tag: Vec<String>,
}

/// What of a tool's arguments is not written down as it is, by JSON Pointers with `*` for any name or index.
#[derive(Debug, PartialEq, Eq)]
pub struct Hidden<'a> {
    /// Values that are left out.
    pub mask: Cow<'a, [String]>,
    /// Values that are replaced by a tag.
    pub tag: Cow<'a, [String]>,
}

impl Recording {
    /// Compiles what was written.
    ///
    /// # Errors
    /// Every pattern that is none.
    pub fn compile(written: &[config::RecordedArguments]) -> Result<Recording, Vec<Problem>> {
        let path = Path::root().key("audit").key("arguments");
        let mut problems = Vec::new();
        let mut entry = |(at, entry): (usize, &config::RecordedArguments)| Entry {
            tools: compile_patterns(&entry.tools, &path.index(at).key("tools"), &mut problems),
            mask: entry.mask.clone(),
            tag: entry.tag.clone(),
        };
        let entries = written.iter().enumerate().map(&mut entry).collect();
        if problems.is_empty() { Ok(Recording(entries)) } else { Err(problems) }
    }

    /// What is hidden of this tool's arguments; `None` where they are not written down at all.
    pub fn of_tool(&self, upstream: &str, tool: &str) -> Option<Hidden<'_>> {
        let names_it = |entry: &&Entry| entry.tools.iter().any(|pattern| pattern.matches(upstream, tool));
        let mut entries = self.0.iter().filter(names_it);
        let first = entries.next()?;
        let mut hidden = Hidden { mask: Cow::Borrowed(&first.mask), tag: Cow::Borrowed(&first.tag) };
        for entry in entries {
            hidden.mask.to_mut().extend(entry.mask.iter().cloned());
            hidden.tag.to_mut().extend(entry.tag.iter().cloned());
        }
        Some(hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tools: &[&str], mask: &[&str], tag: &[&str]) -> config::RecordedArguments {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        config::RecordedArguments { tools: owned(tools), mask: owned(mask), tag: owned(tag) }
    }

    #[test]
    fn a_tool_that_several_entries_name_hides_what_any_of_them_hides() {
        let written = [entry(&["u/*"], &["/a"], &["/b"]), entry(&["v/t", "u/t"], &["/c"], &[])];
        let recording = Recording::compile(&written).expect("patterns");

        let hidden = recording.of_tool("u", "t").expect("recorded");
        assert_eq!((&*hidden.mask, &*hidden.tag), (&["/a".to_owned(), "/c".to_owned()][..], &["/b".to_owned()][..]));
        let hidden = recording.of_tool("u", "other").expect("recorded");
        assert_eq!(&*hidden.mask, &["/a".to_owned()][..]);
        assert_eq!(recording.of_tool("w", "t"), None);
        assert_eq!(Recording::default().of_tool("u", "t"), None);
    }

    #[test]
    fn half_a_pattern_is_refused_where_it_stands() {
        let problems =
            Recording::compile(&[entry(&["u/*"], &[], &[]), entry(&["tool"], &[], &[])]).expect_err("no pattern");
        let found: Vec<String> = problems.iter().map(|problem| problem.path.to_string()).collect();
        assert_eq!(found, ["audit.arguments[1].tools[0]"]);
    }
}
