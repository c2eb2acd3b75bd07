//! `portcullis audit`: the log for people. It reads files and asks nobody, so it also works while nothing runs.

use crate::audit::{self, Directory, Follow, escaped};
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::Duration;

/// Read and check the audit log.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum AuditCommand {
    /// Print the newest records, one JSON object a line.
    Tail {
        /// How many.
        #[arg(short = 'n', long = "lines", default_value_t = 20)]
        lines: usize,
        /// Go on printing what is recorded, until interrupted.
        #[arg(short, long)]
        follow: bool,
    },
    /// Print all records of one request or one held call, for people.
    Show {
        /// The request's id, as in the answer's `X-Request-Id`, or the held call's (`h_…`).
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
pub(super) fn run(command: AuditCommand, data_dir: &Path) -> anyhow::Result<()> {
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

fn tail(directory: &Directory, n: usize, is_followed: bool, out: &mut dyn Write) -> anyhow::Result<()> {
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
        lines = follow.new_lines()?;
    }
}

fn show(directory: &Directory, request: &str, out: &mut dyn Write) -> anyhow::Result<()> {
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
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

const FOLLOW_PAUSE: Duration = Duration::from_millis(200);

/// What `show` prints below the first line.
const KEYS: [&str; 25] = [
    "principal",
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
    "arguments_sha256",
    "body_bytes",
    "outcome",
    "status",
    "duration_us",
    "bytes_in",
    "bytes_out",
    "unrecorded",
    "detail",
    "cut",
    "segment",
    "seq",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Audit, Durability, Event, Kind, Settings, Subject, Who};
    use crate::clock::Clock;
    use crate::config::Sync;
    use std::fs;
    use tempfile::TempDir;

    async fn log() -> (TempDir, Directory) {
        let data_dir = tempfile::tempdir().expect("a directory");
        let clock = Clock::manual(1_800_000_000_000);
        let settings = Settings::new(data_dir.path(), [7; 32], Sync::Relaxed, clock);
        let directory = Directory::new(&settings.directory);
        let audit = Audit::open(settings).expect("opens");
        for request in ["r_1", "r_2", "r_3"] {
            let event = Event {
                request: Some(request),
                principal: Some(Who {
                    issuer: "http://gw",
                    subject: Subject::User("alice"),
                    client: "c1",
                    grant: Some("g1"),
                    person: None,
                }),
                object: Some("\u{1b}[2Jdelete"),
                code: Some("policy.denied"),
                ..Event::new(Kind::Decision)
            };
            audit.record(event, Durability::Synced).await.expect("written");
        }
        (data_dir, directory)
    }

    fn printed(command: AuditCommand, directory: &Directory) -> anyhow::Result<String> {
        let mut out = Vec::new();
        print(command, directory, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    fn tail_of(lines: usize) -> AuditCommand {
        let follow = false;
        AuditCommand::Tail { lines, follow }
    }

    #[tokio::test]
    async fn tail_prints_the_newest_lines_as_they_stand() {
        let (_data_dir, directory) = log().await;

        let text = printed(tail_of(2), &directory).expect("prints");

        let seqs: Vec<_> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["seq"].clone()).collect();
        assert_eq!(seqs, [3, 4]);
        assert_eq!(printed(tail_of(0), &directory).expect("prints"), "");
        assert_eq!(printed(tail_of(99), &directory).expect("prints").lines().count(), 4);
    }

    #[tokio::test]
    async fn show_prints_one_request_and_tells_the_terminal_nothing() {
        let (_data_dir, directory) = log().await;
        let request = "r_2".to_owned();

        let text = printed(AuditCommand::Show { request }, &directory).expect("prints");

        assert_eq!(text.lines().next(), Some("2027-01-15T08:00:00.000Z  decision"));
        assert!(text.contains("subject user:alice"), "{text}");
        assert!(text.contains("  object            \\u001b[2Jdelete\n"), "{text}");
        assert!(text.contains("policy.denied") && text.is_ascii(), "{text}");
        assert_eq!(text.matches("decision").count(), 1, "one record only");
    }

    #[tokio::test]
    async fn show_of_an_unknown_request_says_so() {
        let (_data_dir, directory) = log().await;
        let request = "r_".to_owned();

        let error = printed(AuditCommand::Show { request }, &directory).expect_err("unknown");

        assert_eq!(error.to_string(), "no record of `r_`");
    }

    #[tokio::test]
    async fn verify_counts_what_is_sound_and_names_what_is_not() {
        let (data_dir, directory) = log().await;
        let verify = AuditCommand::Verify { from: None };

        let text = printed(verify.clone(), &directory).expect("sound");
        assert!(text.starts_with("verified 4 records in 1 segments\nend: audit-"), "{text}");

        let entries = fs::read_dir(data_dir.path().join("audit")).expect("readable");
        let segment = entries
            .map(|entry| entry.expect("an entry").path())
            .find(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
            .expect("a segment");
        let changed = fs::read_to_string(&segment).expect("ASCII").replacen("alice", "bob00", 1);
        fs::write(&segment, changed).expect("written");
        let error = printed(verify, &directory).expect_err("changed");
        assert!(error.to_string().contains(".jsonl:2: does not have the hash"), "{error}");
    }

    #[test]
    fn a_data_directory_without_a_log_is_an_error() {
        let data_dir = tempfile::tempdir().expect("a directory");
        let error = run(tail_of(1), data_dir.path()).expect_err("no log");
        assert!(error.to_string().starts_with("cannot read"), "{error}");
    }
}
