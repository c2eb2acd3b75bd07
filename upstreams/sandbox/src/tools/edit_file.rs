//! `edit_file`: exact replacement in a text.

use super::{Effect, Failed, answer, diff, read, tool};
use crate::confine::WORKSPACE;
use crate::words::{count, grouped, size};
use crate::workspace::{Folder, WorkspacePath};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read as _;
use tokio_util::sync::CancellationToken;

pub(super) const NAME: &str = "edit_file";

/// The largest file that is edited, in bytes, before and after.
const LARGEST: u64 = 1024 * 1024;
/// Edits at once.
const EDITS: usize = 100;
/// How many of the places an error names.
const PLACES: usize = 10;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    #[schemars(with = "String")]
    path: WorkspacePath,
    /// What to replace, one after the other: each sees what those before it have left.
    #[schemars(length(min = 1, max = 100))]
    edits: Vec<Edit>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Edit {
    /// The text that is there, exactly, with its spaces and line ends.
    #[schemars(length(min = 1))]
    old: String,
    /// The text to have instead.
    new: String,
    /// Whether to replace it wherever it is. Without it, `old` must be there once.
    #[serde(default)]
    replace_all: bool,
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    /// The file, relative to the workspace.
    path: String,
    /// How many places were changed.
    replaced: u64,
    /// What the file holds now, in bytes.
    size: u64,
    /// What changed, as a unified diff; cut where it is long.
    diff: String,
}

pub(super) fn definition() -> Tool {
    let description = format!(
        "Replaces exact pieces of a text file in {WORKSPACE}, all of `edits` or none. Fails where `old` is not there, or is \
         there more than once without `replace_all`. Answers with a unified diff. The file keeps its permission bits, and is \
         replaced as a whole; it may have {} at most, and must be UTF-8. Symbolic links are not followed.",
        size(LARGEST)
    );
    tool::<Arguments, Answer>(NAME, "Edit a file", Effect::Changes, description)
}

pub(super) fn run(folder: &Folder, arguments: JsonObject, _stop: &CancellationToken) -> Result<CallToolResult, Failed> {
    let arguments: Arguments = read(arguments)?;
    if arguments.edits.is_empty() || arguments.edits.len() > EDITS {
        return Err(Failed::Asked(format!("`edits` has {} entries; it is 1 to {EDITS}", arguments.edits.len())));
    }
    let path = &arguments.path;
    let (before, after, replaced) = folder.change(path, |file| {
        let before = text(path, file)?;
        let mut after = before.clone();
        let mut replaced = 0;
        for (at, edit) in arguments.edits.iter().enumerate() {
            let (changed, n) = apply(&after, edit).map_err(|why| {
                let which = if arguments.edits.len() == 1 { String::new() } else { format!("edit {}: ", at + 1) };
                Failed::Asked(format!("{which}{why}; nothing was changed in `{path}`"))
            })?;
            after = changed;
            replaced += n;
        }
        if after == before {
            return Err(Failed::Asked(format!("the edits leave `{path}` as it is")));
        }
        Ok((after.clone().into_bytes(), (before, after, replaced)))
    })?;
    let diff = diff::unified(&path.to_string(), &before, &after);
    let said = format!("replaced {} in {path}\n{diff}", count(replaced, "place", "places"));
    let structured = Answer { path: path.to_string(), replaced, size: after.len() as u64, diff };
    Ok(answer(&structured, vec![ContentBlock::text(said)]))
}

fn text(path: &WorkspacePath, file: File) -> Result<String, Failed> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failed::Asked(format!("cannot read `{path}`: {error}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(Failed::Asked(format!("`{path}` is larger than {}; edit it by a command", size(LARGEST))));
    }
    String::from_utf8(bytes).map_err(|why| {
        Failed::Asked(format!("`{path}` is not text: byte {} is not UTF-8", why.utf8_error().valid_up_to()))
    })
}

/// `text` with one edit made, and in how many places.
fn apply(text: &str, edit: &Edit) -> Result<(String, u64), String> {
    if edit.old.is_empty() {
        return Err("`old` is empty".to_owned());
    }
    let n_places = text.matches(&edit.old).count();
    match n_places {
        0 => Err(format!("`old` is not there{}", hint(text, &edit.old))),
        1 => Ok(()),
        _ if edit.replace_all => Ok(()),
        n => Err(format!(
            "`old` is there {} times ({}); write more of what is around it, or `replace_all: true`",
            grouped(n as u64),
            lines_of(text, &edit.old)
        )),
    }?;
    let grown = (edit.new.len() as u64).saturating_sub(edit.old.len() as u64).saturating_mul(n_places as u64);
    if (text.len() as u64).saturating_add(grown) > LARGEST {
        return Err(format!("the file would be larger than {}", size(LARGEST)));
    }
    Ok((text.replace(&edit.old, &edit.new), n_places as u64))
}

/// What may be meant, where it is not there.
fn hint(text: &str, old: &str) -> &'static str {
    if old.contains('\n') && !old.contains("\r\n") && text.contains(&old.replace('\n', "\r\n")) {
        return ": the file's lines end with \\r\\n";
    }
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wanted = squeezed(old);
    if !wanted.is_empty() && squeezed(text).contains(&wanted) {
        ", but something with other spaces or line ends is"
    } else {
        ""
    }
}

fn lines_of(text: &str, old: &str) -> String {
    let (mut line, mut from) = (1, 0);
    let mut lines = Vec::new();
    let mut places = text.match_indices(old).map(|(at, _)| at);
    for place in places.by_ref().take(PLACES) {
        line += text.as_bytes()[from..place].iter().filter(|byte| **byte == b'\n').count();
        from = place;
        lines.push(line.to_string());
    }
    let more = if places.next().is_some() { ", …" } else { "" };
    format!("lines {}{more}", lines.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str, replace_all: bool) -> Edit {
        Edit { old: old.to_owned(), new: new.to_owned(), replace_all }
    }

    #[test]
    fn one_place_is_replaced_and_many_only_when_that_is_said() {
        assert_eq!(apply("a b a", &edit("b", "c", false)), Ok(("a c a".to_owned(), 1)));
        assert_eq!(apply("a b a", &edit("a", "c", true)), Ok(("c b c".to_owned(), 2)));
        assert_eq!(apply("a\nb\na", &edit("b\n", "", false)), Ok(("a\na".to_owned(), 1)));
        let why = apply("a\nb\na", &edit("a", "c", false)).unwrap_err();
        assert!(why.contains("2 times (lines 1, 3)"), "{why}");
    }

    #[test]
    fn what_is_not_there_is_said_with_what_may_be_meant() {
        let why = |text, old| apply(text, &edit(old, "x", true)).unwrap_err();

        assert_eq!(why("a", "b"), "`old` is not there");
        assert!(why("a\r\nb", "a\nb").ends_with("\\r\\n"));
        assert!(why("if x {\n\t\ty", "if x {\n    y").contains("other spaces"));
        assert_eq!(why("a", ""), "`old` is empty");
    }

    #[test]
    fn many_small_edits_make_no_file_larger_than_the_limit() {
        let text = "a".repeat(1024);

        let why = apply(&text, &edit("a", &"b".repeat(1024 * 1024), true)).unwrap_err();

        assert!(why.contains("larger than 1 MiB"), "{why}");
    }
}
