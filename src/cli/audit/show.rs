//! `portcullis audit show`: all that belongs to one request, held call or trace, in the order of time.
//!
//! One pass finds the records that bear the id. A second one takes all that belongs to the same held calls and requests,
//! and how the grant they were made with came about: the login, the consent, the token.

use super::line::line;
use super::plain::plain;
use super::record::{During, Met, Record};
use crate::audit::{Directory, escaped};
use anyhow::bail;
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

/// What to show.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Show {
    /// The request's id, as in the answer's `X-Request-Id`; a held call's (`h_…`); or a trace's.
    pub(super) id: String,
    /// Print the records as they stand, one JSON object a line.
    #[arg(long)]
    pub(super) json: bool,
}

/// What belongs together.
#[derive(Default)]
struct Story {
    requests: BTreeSet<String>,
    approvals: BTreeSet<String>,
    grants: BTreeSet<String>,
    subjects: BTreeSet<String>,
}

impl Show {
    /// Prints the records.
    pub(super) fn run(&self, directory: &Directory, out: &mut dyn Write) -> anyhow::Result<()> {
        let (story, met) = Story::of(&self.id, directory)?;
        met.say();
        if story.requests.is_empty() && story.approvals.is_empty() {
            bail!("no record of `{}`", escaped(&self.id));
        }
        let (records, n_left_out) = story.records(directory)?;
        if n_left_out > 0 {
            eprintln!("note: {n_left_out} more records belong to it; `portcullis audit search --request` prints them");
        }
        for record in &records {
            if self.json { writeln!(out, "{}", record.line)? } else { print(record, out)? }
        }
        Ok(())
    }
}

// === impl Story ===

impl Story {
    fn of(id: &str, directory: &Directory) -> anyhow::Result<(Story, Met)> {
        let mut story = Story::default();
        let quoted = format!("\"{}\"", escaped(id));
        let met = During::default().each(directory, |record| {
            let bears_it = |key| record.text(key) == Some(id);
            if record.line.contains(&quoted) && (bears_it("request") || bears_it("approval") || bears_it("trace")) {
                story.take(&record);
                // A page's request, on which somebody decided, is not the story of the call; asked for by itself it is.
                let is_asked_for = bears_it("request") || bears_it("trace");
                story.requests.extend(record.text("request").filter(|_| is_asked_for).map(str::to_owned));
            }
            Ok(())
        })?;
        Ok((story, met))
    }

    /// Takes note of what else belongs to it.
    fn take(&mut self, record: &Record) {
        self.approvals.extend(record.text("approval").map(str::to_owned));
        if is_of_caller(record) {
            self.requests.extend(record.text("request").map(str::to_owned));
            self.grants.extend(record.of_principal("grant").map(str::to_owned));
            self.subjects.extend(record.of_principal("subject").map(str::to_owned));
        }
    }

    /// All that belongs to it, and how many more there were than anybody reads.
    fn records(&self, directory: &Directory) -> anyhow::Result<(Vec<Record>, u64)> {
        let mut records: Vec<Record> = Vec::new();
        let (mut origins, mut n_left_out) = (Origins::default(), 0_u64);
        During::default().each(directory, |record| {
            let is_in = |ids: &BTreeSet<String>, id: Option<&str>| id.is_some_and(|id| ids.contains(id));
            if is_in(&self.grants, record.of_principal("grant")) && is_of_grant(&record) {
                records.extend(origins.before(&record));
                records.push(record);
            } else if is_in(&self.requests, record.text("request")) || is_in(&self.approvals, record.text("approval")) {
                if records.len() < MOST { records.push(record) } else { n_left_out += 1 }
            } else if is_in(&self.subjects, record.of_principal("subject")) {
                origins.remember(record);
            }
            Ok(())
        })?;
        Ok((records, n_left_out))
    }
}

/// The newest login and consent of those whose grants are looked for: what a token came from has no name in its record.
#[derive(Default)]
struct Origins {
    logins: HashMap<String, Record>,
    consents: HashMap<[String; 3], Record>,
}

impl Origins {
    fn remember(&mut self, record: Record) {
        match record.text("event") {
            Some("login.succeeded") => drop(self.logins.insert(subject(&record), record)),
            Some("consent.given") => {
                self.consents.insert(consent(&record), record);
            }
            _ => {}
        }
    }

    /// What led to these first tokens, each once.
    fn before(&mut self, token: &Record) -> Vec<Record> {
        if token.text("event") != Some("token.issued") {
            return Vec::new();
        }
        let Some(given) = self.consents.remove(&consent(token)) else {
            return Vec::new();
        };
        // A login after the consent was for something else.
        let is_before = |login: &Record| login.text("at") <= given.text("at");
        let login = self.logins.remove(&subject(token)).filter(is_before);
        login.into_iter().chain([given]).collect()
    }
}

fn subject(record: &Record) -> String {
    record.of_principal("subject").unwrap_or_default().to_owned()
}

fn consent(record: &Record) -> [String; 3] {
    let client = record.of_principal("client").unwrap_or_default().to_owned();
    [subject(record), client, record.text("route").unwrap_or_default().to_owned()]
}

/// Whether its principal is the one who made the call, and not one who decided on it.
fn is_of_caller(record: &Record) -> bool {
    let event = record.text("event").unwrap_or_default();
    matches!(event, "decision" | "result" | "asked" | "refused" | "approval.requested" | "approval.consumed")
}

fn is_of_grant(record: &Record) -> bool {
    let event = record.text("event").unwrap_or_default();
    matches!(event, "token.issued" | "token.revoked" | "token.replayed")
}

// === For people ===

/// The record on one line, then all that it says, in the order of the file as far as that has one for people.
fn print(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", line(record))?;
    for key in KEYS {
        match record.get(key) {
            serde_json::Value::Null => {}
            // As it stands in the file, with every digit.
            value if key == "arguments" => {
                let text = record.node(key).map_or_else(|| plain(value), |node| node.text().to_owned());
                writeln!(out, "  {key:<17} {text}")?;
            }
            value => writeln!(out, "  {key:<17} {}", plain(value))?,
        }
    }
    writeln!(out)
}

/// Far more than any call has.
const MOST: usize = 10_000;

/// What is printed below the first line.
const KEYS: [&str; 31] = [
    "request",
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
