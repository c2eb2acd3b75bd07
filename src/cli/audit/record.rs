//! One record as the commands see it, and the records that a command is asked for.

use super::super::context::usage;
use crate::audit::{Directory, Records, escaped};
use crate::clock::Clock;
use crate::config::Period;
use crate::jsonrpc::{Node, Span};
use crate::policy::Glob;
use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::Value;

/// A line that is a record.
pub(super) struct Record {
    /// As it stands in the file: printable ASCII.
    pub(super) line: String,
    value: Value,
}

/// A span of time.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct During {
    /// From when on: RFC 3339 (`2026-11-30T12:00:00Z`), a day (`2026-11-30`, UTC), or how long ago (`2h`, `7d`).
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<i64>,
    /// Until when.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<i64>,
}

/// Who made a call.
#[derive(Clone, Debug, Default, clap::Args)]
pub(in crate::cli) struct By {
    /// Of this user: a name, or a subject as it stands in the log (`user:alice`, `client:ci`).
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Of this OAuth client.
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// On this upstream.
    #[arg(long, value_name = "NAME")]
    upstream: Option<String>,
    /// On tools of this name; `*` stands for any characters, and `upstream/tool` names an upstream as well.
    #[arg(long, value_name = "PATTERN")]
    tool: Option<String>,
}

/// What a pass over the log has met.
#[derive(Debug, Default)]
pub(super) struct Met {
    /// Records within the span.
    pub(super) records: u64,
    /// Lines that are no records.
    pub(super) unreadable: u64,
}

// === impl Record ===

impl Record {
    /// `None`: the line is no record.
    pub(super) fn read(line: String) -> Option<Record> {
        let value: Value = serde_json::from_str(&line).ok().filter(Value::is_object)?;
        Some(Record { line, value })
    }

    /// The member of this name; `null` where there is none.
    pub(super) fn get(&self, key: &str) -> &Value {
        &self.value[key]
    }

    /// The text under this name.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.value[key].as_str()
    }

    /// The text under this name in `principal`.
    pub(super) fn of_principal(&self, key: &str) -> Option<&str> {
        self.value["principal"][key].as_str()
    }

    /// The texts in the list of this name.
    pub(super) fn list(&self, key: &str) -> Vec<&str> {
        self.value[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Whether this value was too long for the record.
    pub(super) fn is_cut(&self, key: &str) -> bool {
        self.value["cut"].as_array().into_iter().flatten().any(|cut| cut["key"] == key)
    }

    /// A value as it is written, with every digit of its numbers. The line was read as JSON, so it is.
    pub(super) fn node(&self, key: &str) -> Option<Node<'_>> {
        Node::of(self.line.as_bytes(), Span::whole(self.line.as_bytes())).get(key)
    }
}

// === impl During ===

impl During {
    /// Hands out each record of this span, from the oldest to the newest.
    pub(super) fn each(
        &self,
        directory: &Directory,
        mut each: impl FnMut(Record) -> anyhow::Result<()>,
    ) -> anyhow::Result<Met> {
        let mut met = Met::default();
        for line in Records::new(directory, self.since, self.until)? {
            match Record::read(line?) {
                Some(record) => {
                    met.records += 1;
                    each(record)?;
                }
                None => met.unreadable += 1,
            }
        }
        Ok(met)
    }
}

impl Met {
    /// Points out what could not be read.
    pub(super) fn say(&self) {
        if self.unreadable > 0 {
            eprintln!("note: {} lines are no records: `portcullis audit verify` says where", self.unreadable);
        }
    }
}

/// What `--tool` says, compiled.
pub(super) struct Compiled<'a> {
    by: &'a By,
    tool: Option<(Option<Glob>, Glob)>,
}

impl By {
    pub(super) fn compile(&self) -> Compiled<'_> {
        let tool = self.tool.as_deref().map(|pattern| match pattern.split_once('/') {
            Some((upstream, tool)) => (Some(Glob::parse(upstream)), Glob::parse(tool)),
            None => (None, Glob::parse(pattern)),
        });
        Compiled { by: self, tool }
    }
}

impl Compiled<'_> {
    /// Whether the record is one of those.
    pub(super) fn admits(&self, record: &Record) -> bool {
        let By { user, client, upstream, tool: _ } = self.by;
        user.as_deref().is_none_or(|user| is_of(record, user))
            && client.as_deref().is_none_or(|client| record.of_principal("client") == Some(client))
            && upstream.as_deref().is_none_or(|upstream| record.text("upstream") == Some(upstream))
            && self.tool.as_ref().is_none_or(|(upstream, tool)| {
                // Records of held calls name the tool without the method.
                record.text("method").is_none_or(|method| method == "tools/call")
                    && record.text("object").is_some_and(|object| tool.matches(object))
                    && record.text("upstream").is_some_and(|name| upstream.as_ref().is_none_or(|it| it.matches(name)))
            })
    }
}

fn is_of(record: &Record, user: &str) -> bool {
    let subject = record.of_principal("subject").unwrap_or_default();
    let is_subject = subject == user || subject.strip_prefix("user:") == Some(user);
    is_subject || record.of_principal("person") == Some(user)
}

/// Milliseconds since the Unix epoch.
fn time(text: &str) -> Result<i64, String> {
    if let Ok(ago) = text.parse::<Period>() {
        let ago = i64::try_from(ago.duration().as_millis()).unwrap_or(i64::MAX);
        return Ok(Clock::System.unix_ms().saturating_sub(ago));
    }
    let day = format!("{text}T00:00:00Z");
    let at = text.parse::<Timestamp>().or_else(|_| day.parse());
    at.map(Timestamp::as_millisecond).map_err(|_| {
        "is no time: write `2026-11-30T12:00:00Z`, `2026-11-30`, or how long ago it was (`2h`, `7d`)".to_owned()
    })
}

/// The values of a filter that must be one of ours, so that a typing error is not taken for an empty log.
pub(super) fn one_of(option: &str, value: Option<&str>, known: &[&str]) -> anyhow::Result<()> {
    match value {
        Some(value) if !known.contains(&value) => {
            Err(usage(format!("{option}: `{}` is none of {}", escaped(value), known.join(", "))))
        }
        _ => Ok(()),
    }
}

/// JSON on one line, in printable ASCII.
pub(super) fn json(value: &Value) -> anyhow::Result<String> {
    serde_json::to_string(value).map(crate::audit::ascii).context("cannot be written as JSON")
}
