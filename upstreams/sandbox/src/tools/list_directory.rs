//! `list_directory`: what is in a folder.

use super::{Effect, Failed, SEARCHING, answer, read, tool};
use crate::confine::WORKSPACE;
use crate::words::{count, grouped};
use crate::workspace::walk::{Bounds, DEEPEST, Entry as Seen, Next};
use crate::workspace::{Folder, WorkspacePath};
use jiff::Timestamp;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) const NAME: &str = "list_directory";

/// Entries of one answer.
const MOST: usize = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The folder, relative to the workspace.
    #[serde(default)]
    #[schemars(with = "String", default = "root")]
    path: WorkspacePath,
    /// Whether to list what is in its folders, too.
    #[serde(default)]
    recursive: bool,
    /// How deep, where `recursive` is true: 1 is what is in the folder itself.
    #[schemars(range(min = 1, max = 64))]
    max_depth: Option<usize>,
}

fn root() -> &'static str {
    "."
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    /// The folder, relative to the workspace.
    path: String,
    /// What is in it, sorted by name; a folder stands before what is in it.
    entries: Vec<Entry>,
    /// Whether there is more than is listed.
    truncated: bool,
    /// Folders that could not be read.
    unreadable: u64,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Entry {
    /// Relative to the workspace, as other tools take it.
    path: String,
    /// What it is.
    #[serde(rename = "type")]
    kind: Kind,
    /// What a file holds, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// When it was changed last (RFC 3339).
    modified: String,
    /// Where a symbolic link says that it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

pub(super) fn definition() -> Tool {
    let description = format!(
        "Lists a folder in {WORKSPACE}: paths, types, sizes, times of the last change, and where symbolic links lead (they \
         are not followed). {} entries at most; `truncated` says whether there are more.",
        grouped(MOST as u64)
    );
    tool::<Arguments, Answer>(NAME, "List a folder", Effect::Reads, description)
}

pub(super) fn run(folder: &Folder, arguments: JsonObject, stop: &CancellationToken) -> Result<CallToolResult, Failed> {
    let arguments: Arguments = read(arguments)?;
    let depth = match (arguments.recursive, arguments.max_depth) {
        (_, Some(depth)) if !(1..=DEEPEST).contains(&depth) => {
            return Err(Failed::Asked(format!("`max_depth` is {depth}; it can be from 1 to {DEEPEST}")));
        }
        (false, Some(_)) => return Err(Failed::Asked("`max_depth` is for `recursive: true`".to_owned())),
        (false, None) => 1,
        (true, depth) => depth.unwrap_or(DEEPEST),
    };
    let bounds = Bounds { depth, entries: MOST, deadline: Instant::now() + SEARCHING, stop };
    let mut entries = Vec::new();
    let missed = folder.walk(&arguments.path, &bounds, &mut |seen| {
        entries.push(entry(seen));
        Next::Enter
    })?;
    let answer_for_programs =
        Answer { path: arguments.path.to_string(), entries, truncated: missed.is_cut, unreadable: missed.n_closed };
    let text = ContentBlock::text(text(&answer_for_programs));
    Ok(answer(&answer_for_programs, vec![text]))
}

fn entry(seen: &Seen<'_>) -> Entry {
    let (kind, target) = match FileType::from_raw_mode(seen.stat.st_mode) {
        FileType::RegularFile => (Kind::File, None),
        FileType::Directory => (Kind::Directory, None),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(seen.parent, seen.name, Vec::new()).ok();
            (Kind::Symlink, target.map(|target| target.to_string_lossy().into_owned()))
        }
        _ => (Kind::Other, None),
    };
    let size = (kind == Kind::File).then(|| u64::try_from(seen.stat.st_size).unwrap_or(0));
    // A file's time can be set to anything, also to what no date stands for.
    let modified = Timestamp::from_second(seen.stat.st_mtime).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
    Entry { path: seen.path.to_string(), kind, size, modified, target }
}

fn text(answer: &Answer) -> String {
    let mut text = format!("{}: {}", answer.path, count(answer.entries.len() as u64, "entry", "entries"));
    if answer.truncated {
        text.push_str(", and more that are not listed; ask for a folder below, or for fewer levels");
    }
    if answer.unreadable > 0 {
        text.push_str(&format!("; {} could not be read", count(answer.unreadable, "folder", "folders")));
    }
    for entry in &answer.entries {
        // A line for each, whatever is in a name.
        let path = line(&entry.path);
        text.push_str(&match entry.kind {
            Kind::File => format!("\n{path}  {}  {}", entry.size.unwrap_or(0), entry.modified),
            Kind::Directory => format!("\n{path}/  {}", entry.modified),
            Kind::Symlink => format!("\n{path} -> {}", line(entry.target.as_deref().unwrap_or("?"))),
            Kind::Other => format!("\n{path}  (neither a file nor a folder)"),
        });
    }
    text
}

/// Control characters as escapes.
pub(super) fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}
