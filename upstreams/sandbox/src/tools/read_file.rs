//! `read_file`: a part of a file, as text where it is text.

use super::list_directory::line;
use super::{Effect, Failed, answer, read, tool};
use crate::confine::WORKSPACE;
use crate::words::{count, grouped, size};
use crate::workspace::read::{Part, Range};
use crate::workspace::{Folder, WorkspacePath};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_local::output::unfinished;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ResourceContents, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub(super) const NAME: &str = "read_file";

/// What one answer holds, in bytes of the file.
const MOST: u64 = 1024 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace.
    #[schemars(with = "String")]
    path: WorkspacePath,
    /// The first line to read, from 1.
    #[schemars(range(min = 1))]
    first_line: Option<u64>,
    /// How many lines to read.
    #[schemars(range(min = 1))]
    n_lines: Option<u64>,
    /// The first byte to read, from 0. Not together with lines.
    offset: Option<u64>,
    /// How many bytes to read. Not together with lines.
    #[schemars(range(min = 1))]
    length: Option<u64>,
    /// How to answer. Without it: as text where the bytes are UTF-8, and in base64 where not. `utf-8` shows what is not
    /// UTF-8 as U+FFFD.
    #[schemars(with = "Encoding")]
    encoding: Option<Encoding>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    /// The file, relative to the workspace.
    path: String,
    /// How `content` is to be read.
    encoding: Encoding,
    /// What was read.
    content: String,
    /// Where in the file it begins, in bytes.
    offset: u64,
    /// How many bytes of the file it is.
    length: u64,
    /// What the file holds, in bytes.
    size: u64,
    /// Whether the file goes on after it: from the byte `offset + length`.
    more: bool,
    /// Whether something was not UTF-8, and stands as U+FFFD.
    replaced: bool,
    /// The line it begins with, where lines were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_line: Option<u64>,
    /// How many lines it is, the last one counted even where it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_lines: Option<u64>,
}

pub(super) fn definition() -> Tool {
    let description = format!(
        "Reads a file in {WORKSPACE}: all of it, or the lines or bytes that are asked for, at most {} at once. UTF-8 comes \
         as text, unchanged; other bytes in base64. `more` says whether the file goes on, and a note says how to read on. \
         Symbolic links are not followed; pipes, sockets and devices are not read.",
        size(MOST)
    );
    tool::<Arguments, Answer>(NAME, "Read a file", Effect::Reads, description)
}

pub(super) fn run(folder: &Folder, arguments: JsonObject, stop: &CancellationToken) -> Result<CallToolResult, Failed> {
    let arguments: Arguments = read(arguments)?;
    let range = range(&arguments)?;
    let mut part = folder.read(&arguments.path, range, MOST, stop)?;
    if part.offset > 0 && part.bytes.is_empty() && part.offset >= part.size {
        let what = match range {
            Range::Lines { first, .. } => format!("line {first}"),
            Range::Bytes { offset, .. } => format!("byte {offset}"),
        };
        return Err(Failed::Asked(format!(
            "`{}` ends before {what}; it has {} bytes",
            arguments.path,
            grouped(part.size)
        )));
    }
    let is_cut = part.offset + (part.bytes.len() as u64) < part.size;
    let encoding = arguments.encoding.unwrap_or_else(|| detect(&part.bytes, is_cut));
    if encoding == Encoding::Utf8 && is_cut {
        // A character that was cut in two comes whole with the next part.
        let whole = part.bytes.len() - unfinished(&part.bytes);
        part.bytes.truncate(if whole == 0 { part.bytes.len() } else { whole });
    }
    Ok(respond(&arguments.path, &part, encoding, range))
}

fn range(arguments: &Arguments) -> Result<Range, Failed> {
    let by_lines = arguments.first_line.is_some() || arguments.n_lines.is_some();
    let by_bytes = arguments.offset.is_some() || arguments.length.is_some();
    if by_lines && by_bytes {
        return Err(Failed::Asked(
            "lines (`first_line`, `n_lines`) or bytes (`offset`, `length`), not both".to_owned(),
        ));
    }
    for (name, value) in
        [("first_line", arguments.first_line), ("n_lines", arguments.n_lines), ("length", arguments.length)]
    {
        if value == Some(0) {
            return Err(Failed::Asked(format!("`{name}` is 0; it is 1 at least")));
        }
    }
    // Files are at most so long (loff_t), and read(2) takes no more, what is asked for included.
    if arguments.offset.is_some_and(|offset| i64::try_from(offset.saturating_add(MOST)).is_err()) {
        return Err(Failed::Asked("`offset` is beyond what a file can hold".to_owned()));
    }
    Ok(if by_lines {
        Range::Lines { first: arguments.first_line.unwrap_or(1), n: arguments.n_lines.unwrap_or(u64::MAX) }
    } else {
        Range::Bytes { offset: arguments.offset.unwrap_or(0), length: arguments.length.unwrap_or(u64::MAX) }
    })
}

/// Text is what is UTF-8 and has no NUL; a character that the end of the part cuts in two may be unfinished.
fn detect(bytes: &[u8], is_cut: bool) -> Encoding {
    let end = if is_cut { bytes.len() - unfinished(bytes) } else { bytes.len() };
    let is_text = std::str::from_utf8(&bytes[..end]).is_ok() && !bytes.contains(&0) && (end > 0 || bytes.is_empty());
    if is_text { Encoding::Utf8 } else { Encoding::Base64 }
}

fn respond(path: &WorkspacePath, part: &Part, encoding: Encoding, range: Range) -> CallToolResult {
    let length = part.bytes.len() as u64;
    let end = part.offset + length;
    let (content, replaced) = match encoding {
        Encoding::Base64 => (STANDARD.encode(&part.bytes), false),
        Encoding::Utf8 => {
            let text = String::from_utf8_lossy(&part.bytes);
            let replaced = matches!(text, std::borrow::Cow::Owned(_));
            (text.into_owned(), replaced)
        }
    };
    let first_line = match range {
        Range::Lines { first, .. } => Some(first),
        Range::Bytes { .. } => None,
    };
    let n_ends = part.bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    let has_rest = part.bytes.last().is_some_and(|byte| *byte != b'\n');
    let n_lines = n_ends + u64::from(has_rest);
    let more = end < part.size;
    let mut note = Vec::new();
    if encoding == Encoding::Base64 {
        note.push(format!("not text; {} in base64", count(length, "byte", "bytes")));
    }
    if replaced {
        note.push("not all of it is UTF-8; the rest is shown as \u{fffd}".to_owned());
    }
    if more {
        let next = match first_line {
            Some(first) if !has_rest => format!("`first_line: {}`", first + n_lines),
            _ => format!("`offset: {end}`"),
        };
        let (end, size) = (grouped(end), grouped(part.size));
        note.push(format!("up to byte {end} of {size}; {next} reads on"));
    }
    if part.size == 0 {
        note.push("the file is empty".to_owned());
    }
    let body = match encoding {
        Encoding::Utf8 => ContentBlock::text(content.clone()),
        Encoding::Base64 => ContentBlock::resource(
            ResourceContents::blob(content.clone(), uri(path)).with_mime_type("application/octet-stream"),
        ),
    };
    let mut blocks = vec![body];
    if !note.is_empty() {
        blocks.push(ContentBlock::text(format!("[{}: {}]", line(&path.to_string()), note.join("; "))));
    }
    let n_lines = first_line.map(|_| n_lines);
    let path = path.to_string();
    let (offset, size) = (part.offset, part.size);
    let structured = Answer { path, encoding, content, offset, length, size, more, replaced, first_line, n_lines };
    answer(&structured, blocks)
}

/// The file's place as commands see it, as a URI (RFC 8089).
fn uri(path: &WorkspacePath) -> String {
    let mut uri = format!("file://{WORKSPACE}");
    for name in path.components() {
        uri.push('/');
        for byte in name.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                uri.push(char::from(byte));
            } else {
                uri.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    uri
}
