//! `search_files`: lines that match, in many files.

use super::glob::Glob;
use super::list_directory::line;
use super::{Effect, Failed, SEARCHING, answer, read, tool};
use crate::confine::WORKSPACE;
use crate::words::{count, grouped, size};
use crate::workspace::walk::{Bounds, DEEPEST, Next};
use crate::workspace::{Folder, WorkspacePath};
use regex::bytes::{Regex, RegexBuilder};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool};
use rustix::fs::FileType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(super) const NAME: &str = "search_files";

/// Matches that are answered where the caller says nothing of it, and at most.
const MATCHES: u64 = 100;
const MATCHES_MAX: u64 = 1000;
/// Entries that are looked at.
const ENTRIES: usize = 100_000;
/// The largest file that is searched, in bytes.
const LARGEST: u64 = 16 * 1024 * 1024;
/// The longest pattern, in bytes, and what it may become.
const PATTERN: usize = 4096;
const COMPILED: usize = 256 * 1024;
/// What is searched of a line, in bytes. The slowest way to match takes the size of the pattern for each byte: so it ends
/// in time, and whether there is any left is looked at from line to line.
const LINE: usize = 16 * 1024;
/// Characters of a line that are shown.
const WIDEST: usize = 500;
/// Where a file is looked at for a NUL, which no text has.
const BEGINNING: usize = 8192;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A regular expression (syntax of the Rust crate `regex`: like Perl's, without look-around and back-references);
    /// `(?i)` in front ignores case. It is matched line by line.
    #[schemars(length(min = 1, max = 4096))]
    pattern: String,
    /// The folder or file to search, relative to the workspace.
    #[serde(default)]
    #[schemars(with = "String", default = "root")]
    path: WorkspacePath,
    /// Which files: `*.rs` by name, `src/**/*.rs` by the path below the folder that is searched.
    glob: Option<String>,
    /// How many lines to answer.
    #[schemars(range(min = 1, max = 1000))]
    max_matches: Option<u64>,
}

fn root() -> &'static str {
    "."
}

#[derive(Serialize, JsonSchema)]
struct Answer {
    /// Lines that match, sorted by path.
    matches: Vec<Match>,
    /// How many files were searched.
    files: u64,
    /// How many were not: binary, larger than the limit, or not to be read.
    skipped: u64,
    /// How many lines were too long, and searched in their beginning only.
    cut_lines: u64,
    /// Whether the search ended before all was searched.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Match {
    /// The file, relative to the workspace.
    path: String,
    /// The number of the line, from 1.
    line: u64,
    /// The line, cut where it is long.
    text: String,
}

pub(super) fn definition() -> Tool {
    let description = format!(
        "Finds lines that match a regular expression in the files of {WORKSPACE}, or of a folder or file in it. Leaves out \
         binary files, files of more than {}, what is beyond {} of a line, what is in folders named `.git`, and symbolic links. {MATCHES} lines unless \
         `max_matches` says otherwise (at most {}); ends after {} s.",
        size(LARGEST),
        size(LINE as u64),
        grouped(MATCHES_MAX),
        SEARCHING.as_secs()
    );
    tool::<Arguments, Answer>(NAME, "Search in files", Effect::Reads, description)
}

pub(super) fn run(folder: &Folder, arguments: JsonObject, stop: &CancellationToken) -> Result<CallToolResult, Failed> {
    let arguments: Arguments = read(arguments)?;
    let most = arguments.max_matches.unwrap_or(MATCHES);
    if !(1..=MATCHES_MAX).contains(&most) {
        return Err(Failed::Asked(format!("`max_matches` is {most}; it can be from 1 to {MATCHES_MAX}")));
    }
    let pattern = pattern(&arguments.pattern)?;
    let glob = arguments.glob.as_deref().map(Glob::new).transpose().map_err(Failed::Asked)?;
    let bounds = Bounds { depth: DEEPEST, entries: ENTRIES, deadline: Instant::now() + SEARCHING, stop };
    let mut search = Search {
        folder,
        bounds: &bounds,
        pattern,
        most,
        found: Answer { matches: Vec::new(), files: 0, skipped: 0, cut_lines: 0, truncated: false },
    };
    match folder.walk(&arguments.path, &bounds, &mut |seen| {
        let kind = FileType::from_raw_mode(seen.stat.st_mode);
        if kind == FileType::Directory {
            return if seen.name.as_bytes() == b".git" { Next::Skip } else { Next::Enter };
        }
        let below = below(&arguments.path, &seen.path);
        if kind != FileType::RegularFile || glob.as_ref().is_some_and(|glob| !glob.matches(&below)) {
            return Next::Skip;
        }
        search.file(&seen.path)
    }) {
        Ok(missed) => {
            search.found.truncated |= missed.is_cut;
            search.found.skipped += missed.n_closed;
        }
        // It is a file: that one is searched.
        Err(crate::workspace::Error::Kind { .. }) => {
            folder.open(&arguments.path)?;
            search.file(&arguments.path);
        }
        Err(error) => return Err(error.into()),
    }
    let found = search.found;
    let text = ContentBlock::text(text(&found, most));
    Ok(answer(&found, vec![text]))
}

fn pattern(pattern: &str) -> Result<Regex, Failed> {
    if pattern.is_empty() || pattern.len() > PATTERN {
        return Err(Failed::Asked(format!("`pattern` has {} bytes; it is 1 to {PATTERN}", pattern.len())));
    }
    let built = RegexBuilder::new(pattern).size_limit(COMPILED).dfa_size_limit(COMPILED).nest_limit(100).build();
    built.map_err(|why| Failed::Asked(format!("`pattern` cannot be used: {why}")))
}

/// `path` as seen from the folder that is searched.
fn below(searched: &WorkspacePath, path: &WorkspacePath) -> String {
    path.components().skip(searched.components().count()).collect::<Vec<_>>().join("/")
}

struct Search<'a> {
    folder: &'a Folder,
    bounds: &'a Bounds<'a>,
    pattern: Regex,
    most: u64,
    found: Answer,
}

impl Search<'_> {
    /// Searches one file.
    fn file(&mut self, path: &WorkspacePath) -> Next {
        let Some(bytes) = self.folder.open(path).ok().and_then(|(file, _)| text_of(file)) else {
            self.found.skipped += 1;
            return Next::Skip;
        };
        self.found.files += 1;
        if bytes.is_empty() {
            return Next::Skip;
        }
        // What comes after the last line end is no line.
        let lines = bytes.strip_suffix(b"\n").unwrap_or(&bytes).split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        for (at, text) in lines.enumerate() {
            if self.bounds.is_over() {
                self.found.truncated = true;
                return Next::End;
            }
            self.found.cut_lines += u64::from(text.len() > LINE);
            if !self.pattern.is_match(&text[..text.len().min(LINE)]) {
                continue;
            }
            if self.found.matches.len() as u64 == self.most {
                self.found.truncated = true;
                return Next::End;
            }
            let text = String::from_utf8_lossy(text);
            let shown: String = text.chars().take(WIDEST).collect();
            let text = if shown.len() < text.len() { format!("{shown}…") } else { shown };
            self.found.matches.push(Match { path: path.to_string(), line: at as u64 + 1, text });
        }
        Next::Skip
    }
}

/// What is in a file, if it is text of no more than the limit.
fn text_of(file: File) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = file.take(LARGEST + 1);
    // Most binary files show it in the beginning; the rest of them need not be read.
    (&mut file).take(BEGINNING as u64).read_to_end(&mut bytes).ok()?;
    if bytes.contains(&0) {
        return None;
    }
    file.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= LARGEST).then_some(bytes)
}

fn text(found: &Answer, most: u64) -> String {
    let n = count(found.matches.len() as u64, "match", "matches");
    let mut text = format!("{n} in {}", count(found.files, "file", "files"));
    if found.skipped > 0 {
        text.push_str(&format!(", {} not searched", grouped(found.skipped)));
    }
    if found.cut_lines > 0 {
        let lines = count(found.cut_lines, "line", "lines");
        text.push_str(&format!(", {lines} searched in the first {} only", size(LINE as u64)));
    }
    if found.truncated {
        let is_most = found.matches.len() as u64 == most;
        let why = if is_most { "there are more" } else { "not all was searched; ask for a folder, or with a `glob`" };
        text.push_str(&format!("; {why}"));
    }
    for found in &found.matches {
        text.push_str(&format!("\n{}:{}: {}", line(&found.path), found.line, found.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Limits, Workspace};
    use portcullis_local::Principal;
    use serde_json::json;

    /// The walk looks at this between two entries; in a file nobody else does.
    #[test]
    fn a_search_in_one_file_ends_when_nobody_waits_for_it() {
        let outside = tempfile::tempdir().unwrap();
        let root = File::open(outside.path()).unwrap().into();
        let workspace = Workspace::new(root, Limits { quota: 1 << 20, reserve: 0, commands: 1 }).unwrap();
        let alice = Principal { issuer: String::new(), subject: "user:alice".to_owned() };
        let folder = workspace.folder(&alice).unwrap();
        std::fs::write(outside.path().join("user-alice/f"), "x\n".repeat(3)).unwrap();
        let stop = CancellationToken::new();
        let search = || {
            let arguments = json!({"pattern": "x", "path": "f"}).as_object().unwrap().clone();
            let found = run(&folder, arguments, &stop).unwrap().structured_content.unwrap();
            (found["matches"].as_array().unwrap().len(), found["truncated"].clone())
        };
        assert_eq!(search(), (3, json!(false)));

        stop.cancel();

        assert_eq!(search(), (0, json!(true)));
    }
}
