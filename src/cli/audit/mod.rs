//! `portcullis audit`: the log for people. It reads files and asks nobody, so it also works while nothing runs.

mod hash;
mod judge;
mod line;
mod plain;
mod record;
mod replay;
mod search;
mod show;
mod stats;
mod tail;
mod verify;

pub(super) use verify::print_key;

use crate::audit::Directory;
use crate::config::Loaded;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// Read and check the audit log.
#[derive(Clone, clap::Subcommand)]
pub(super) enum AuditCommand {
    /// Print the newest records, one a line.
    Tail(tail::Tail),
    /// Print all that belongs to one request, held call or trace: who got in how, what was decided, who said what, how it ended.
    Show(show::Show),
    /// Print the records that match, the newest last.
    Search(search::Search),
    /// Count what was decided, for whom, by which rules, how it ended and how long it took.
    Stats(stats::Stats),
    /// Print the tag that stands in the log in place of a value.
    Hash(hash::Hash),
    /// Judge recorded calls under another configuration, and say what would change and what cannot be known.
    Replay(replay::Replay),
    /// Check that nothing was changed, removed, added or reordered.
    Verify(verify::Verify),
    /// Print the public key of this gateway's checkpoints, for who verifies them elsewhere.
    Key,
}

/// Runs the command on the log of this configuration.
pub(super) fn run(command: AuditCommand, loaded: &Loaded) -> anyhow::Result<ExitCode> {
    let data_dir = loaded.resolve(&loaded.config.data_dir);
    let printed = print(command, loaded, &data_dir, &mut io::stdout().lock());
    match printed {
        // `portcullis audit tail | head` has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        printed => printed,
    }
}

fn print(command: AuditCommand, loaded: &Loaded, data_dir: &Path, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let directory = &Directory::new(data_dir.join("audit"));
    let done = match command {
        AuditCommand::Tail(tail) => tail.run(directory, out),
        AuditCommand::Show(show) => show.run(directory, out),
        AuditCommand::Search(search) => search.run(directory, out),
        AuditCommand::Stats(stats) => stats.run(directory, out),
        AuditCommand::Hash(hash) => hash.run(data_dir, directory, out),
        AuditCommand::Replay(replay) => return replay.run(loaded, data_dir, directory, out),
        // These find the log by themselves.
        AuditCommand::Verify(_) | AuditCommand::Key => Ok(()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Audit, Durability, Event, Kind, Settings, Subject, Who};
    use crate::clock::Clock;
    use crate::config::{self, Sync};
    use serde_json::Value;
    use tempfile::TempDir;

    async fn log() -> TempDir {
        let data_dir = tempfile::tempdir().expect("a directory");
        let clock = Clock::manual(1_800_000_000_000);
        let settings = Settings::new(data_dir.path(), [7; 32], Sync::Relaxed, clock);
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
        data_dir
    }

    fn printed(command: AuditCommand, data_dir: &Path) -> anyhow::Result<String> {
        let loaded = config::read(Path::new(config::BUILT_IN))?;
        let mut out = Vec::new();
        print(command, &loaded, data_dir, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    fn tail_of(lines: usize, json: bool) -> AuditCommand {
        AuditCommand::Tail(tail::Tail { lines, follow: false, json })
    }

    fn show(id: &str) -> AuditCommand {
        AuditCommand::Show(show::Show { id: id.to_owned(), json: false })
    }

    #[tokio::test]
    async fn tail_prints_the_newest_lines_as_they_stand() {
        let data_dir = log().await;

        let text = printed(tail_of(2, true), data_dir.path()).expect("prints");

        let seqs: Vec<_> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["seq"].clone()).collect();
        assert_eq!(seqs, [3, 4]);
        assert_eq!(printed(tail_of(0, true), data_dir.path()).expect("prints"), "");
        assert_eq!(printed(tail_of(99, false), data_dir.path()).expect("prints").lines().count(), 4);
    }

    #[tokio::test]
    async fn show_prints_one_request_and_tells_the_terminal_nothing() {
        let data_dir = log().await;
        let text = printed(show("r_2"), data_dir.path()).expect("prints");

        assert_eq!(
            text.lines().next(),
            Some(r"2027-01-15T08:00:00.000Z  decision  user:alice via c1  \u001b[2Jdelete  policy.denied  r_2")
        );
        assert!(text.contains("subject user:alice"), "{text}");
        assert!(text.contains("  object            \\u001b[2Jdelete\n"), "{text}");
        assert!(text.contains("policy.denied") && text.is_ascii(), "{text}");
        assert_eq!(text.matches("decision").count(), 1, "one record only");
    }

    #[tokio::test]
    async fn show_of_an_unknown_request_says_so() {
        let data_dir = log().await;
        let error = printed(show("r_"), data_dir.path()).expect_err("unknown");

        assert_eq!(error.to_string(), "no record of `r_`");
    }

    #[test]
    fn a_data_directory_without_a_log_is_an_error() {
        let data_dir = tempfile::tempdir().expect("a directory");
        let error = printed(tail_of(1, false), data_dir.path()).expect_err("no log");
        assert!(error.to_string().starts_with("cannot read"), "{error}");
    }
}
