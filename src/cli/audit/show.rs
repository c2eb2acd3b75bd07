//! `portcullis audit show`: all that happened to one request or held call.

use super::plain::plain;
use crate::audit::{self, Directory, escaped};
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{self, Write};

/// Prints the records of `request` in the order of time.
pub(super) fn show(directory: &Directory, request: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let lines = audit::of_request(directory, request)?;
    if lines.is_empty() {
        bail!("no record of `{}`", escaped(request));
    }
    let parse =
        |line: &String| serde_json::from_str(line).context("a record is not JSON: run `portcullis audit verify`");
    let mut records: Vec<Value> = lines.iter().map(parse).collect::<anyhow::Result<_>>()?;
    // Each process writes segments of its own: what a command did stands in another one than what it did it to.
    records.sort_by(|one, other| one["at"].as_str().cmp(&other["at"].as_str()));
    records.iter().try_for_each(|record| Ok(show_record(record, out)?))
}

/// The time and the event, then what else it says, in the order of the file as far as that has one for people.
fn show_record(record: &Value, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}  {}", plain(&record["at"]), plain(&record["event"]))?;
    for key in KEYS {
        match &record[key] {
            Value::Null => {}
            value => writeln!(out, "  {key:<17} {}", plain(value))?,
        }
    }
    Ok(())
}

/// What `show` prints below the first line.
const KEYS: [&str; 30] = [
    "trace",
    "principal",
    "groups",
    "claimed",
    "scopes",
    "peer",
    "route",
    "upstream",
    "method",
    "object",
    "decision",
    "rules",
    "code",
    "approval",
    "digest",
    "via",
    "snapshot",
    "arguments_hash",
    "body_bytes",
    "outcome",
    "status",
    "duration_us",
    "bytes_in",
    "bytes_out",
    "unrecorded",
    "detail",
    "arguments",
    "cut",
    "segment",
    "seq",
];
