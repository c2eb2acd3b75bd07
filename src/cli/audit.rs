//! `portcullis audit`: the log for people. It reads files and asks nobody, so it also works while nothing runs.

use crate::audit::{self, Directory, Follow, escaped};
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

/// Read and check the audit log.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum AuditCommand {
    /// Print the newest records, one JSON object a line.
    Tail {
        /// How many.
        #[arg(short = 'n', long = "lines", default_value_t = 20)]
        lines: usize,
        /// Go on printing what is recorded, until interrupted.
        #[arg(short, long)]
        follow: bool,
    },
    /// Print all records of one request, for people.
    Show {
        /// Its id, as in the answer's `X-Request-Id`.
        request: String,
    },
    /// Check that nothing was changed, removed, added or reordered.
    Verify {
        /// The first segment that is kept, when older ones were archived on purpose.
        #[arg(long, value_name = "FILE")]
        from: Option<String>,
    },
}

/// Runs the command on the log in `data_dir`.
pub fn run(command: AuditCommand, data_dir: &Path) -> anyhow::Result<()> {
    let directory = Directory::new(data_dir.join("audit"));
    let printed = print(command, &directory, &mut io::stdout().lock());
    match printed {
        // `portcullis audit tail | head` has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        printed => printed,
    }
}

fn print(command: AuditCommand, directory: &Directory, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        AuditCommand::Tail { lines, follow } => tail(directory, lines, follow, out),
        AuditCommand::Show { request } => show(directory, &request, out),
        AuditCommand::Verify { from } => verify(directory, from.as_deref(), out),
    }
}

fn tail(
    directory: &Directory,
    n: usize,
    is_followed: bool,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let (mut lines, mut follow) = Follow::tail(directory, n)?;
    loop {
        for line in &lines {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        if !is_followed {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_PAUSE);
        lines = follow.next()?;
    }
}

fn show(directory: &Directory, request: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let lines = audit::of_request(directory, request)?;
    if lines.is_empty() {
        bail!("no record of request `{}`", escaped(request));
    }
    for line in lines {
        let record: Value = serde_json::from_str(&line)
            .context("a record is not JSON: run `portcullis audit verify`")?;
        show_record(&record, out)?;
    }
    Ok(())
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

/// A value without quotes, safe for a terminal.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => escaped(text),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| format!("{} {}", escaped(key), plain(value)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn verify(directory: &Directory, from: Option<&str>, out: &mut dyn Write) -> anyhow::Result<()> {
    let report = audit::verify(directory, from)?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    if let Some(fault) = report.fault {
        bail!("{fault}");
    }
    let (records, segments) = (report.records, report.segments);
    writeln!(out, "verified {records} records in {segments} segments")?;
    if let Some(end) = report.end {
        writeln!(out, "end: {end}")?;
    }
    Ok(())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

const FOLLOW_PAUSE: Duration = Duration::from_millis(200);

/// What `show` prints below the first line.
const KEYS: [&str; 21] = [
    "principal",
    "peer",
    "route",
    "upstream",
    "method",
    "object",
    "decision",
    "rules",
    "code",
    "snapshot",
    "arguments_sha256",
    "body_bytes",
    "outcome",
    "status",
    "duration_us",
    "bytes_in",
    "bytes_out",
    "detail",
    "cut",
    "segment",
    "seq",
];
