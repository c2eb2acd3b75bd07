//! `portcullis audit`: the log for people. It reads files and asks nobody, so it also works while nothing runs.

mod plain;
mod show;
mod tail;
mod verify;

pub(super) use verify::print_key;

use crate::audit::Directory;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

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
    Verify(verify::Verify),
    /// Print the public key of this gateway's checkpoints, for who verifies them elsewhere.
    Key,
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
        AuditCommand::Tail { lines, follow } => tail::tail(directory, lines, follow, out),
        AuditCommand::Show { request } => show::show(directory, &request, out),
        // These find the log by themselves.
        AuditCommand::Verify(_) | AuditCommand::Key => Ok(()),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Audit, Durability, Event, Kind, Settings, Subject, Who};
    use crate::clock::Clock;
    use crate::config::Sync;
    use serde_json::Value;
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

    #[test]
    fn a_data_directory_without_a_log_is_an_error() {
        let data_dir = tempfile::tempdir().expect("a directory");
        let error = run(tail_of(1), data_dir.path()).expect_err("no log");
        assert!(error.to_string().starts_with("cannot read"), "{error}");
    }
}
