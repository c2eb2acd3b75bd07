//! `portcullis audit replay`: recorded calls, judged as a gateway with another configuration would judge them.

use super::judge::{By as Because, Judge, Judged};
use super::line::{id, what, who};
use super::record::{By, During, Record, json};
use crate::audit::{Directory, escaped};
use crate::config::{self, Loaded};
use crate::snapshot::{Snapshot, Surroundings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which calls, and under what.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Replay {
    /// The configuration to judge by: a whole `gateway.yaml`, of which people, clients and policy count.
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    #[command(flatten)]
    during: During,
    #[command(flatten)]
    by: By,
    /// Exit with 3 when a call would be decided otherwise.
    #[arg(long)]
    fail_on_change: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Calls with the same answer.
struct Group {
    n: u64,
    examples: Vec<Value>,
    shown: Vec<String>,
}

/// What a call was and would be, why, and by which rules.
type Change = (String, String, Because, Vec<String>, String);

#[derive(Default)]
struct Report {
    n_same: u64,
    n_other_rules: u64,
    changed: BTreeMap<Change, Group>,
    /// By the reason and the rules that depend on it.
    unknown: BTreeMap<(String, Vec<String>), Group>,
    first: Option<String>,
    last: Option<String>,
}

impl Replay {
    /// Prints what would change and what cannot be known.
    pub(super) fn run(
        &self,
        current: &Loaded,
        data_dir: &Path,
        directory: &Directory,
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode> {
        let new = compile(config::read(&self.policy)?, data_dir)?;
        // What cannot be compiled any more only says less of the past.
        let old = compile(current.clone(), data_dir).ok();
        let redactors = super::hash::redactors(&data_dir.join("keys")).unwrap_or_default();
        let judge = Judge::new(&new, current, old.as_ref(), &redactors);
        let by = self.by.compile();
        let mut report = Report::default();
        let met = self.during.each(directory, |record| {
            if record.text("event") == Some("decision") && by.admits(&record) {
                report.add(&record, judge.judge(&record));
            }
            Ok(())
        })?;
        met.say();
        if self.json {
            writeln!(out, "{}", json(&report.document(&self.policy, &new.hash))?)?;
        } else {
            report.print(&self.policy, &new.hash, out)?;
        }
        let is_failed = self.fail_on_change && !report.changed.is_empty();
        Ok(if is_failed { ExitCode::from(CHANGED) } else { ExitCode::SUCCESS })
    }
}

/// As the gateway does it. People and keys are those of this log, wherever the file stands.
fn compile(mut loaded: Loaded, data_dir: &Path) -> Result<Snapshot, config::Problems> {
    loaded.config.data_dir = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
    let listening = loaded.config.listen.parse().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)));
    Snapshot::compile(&loaded, &Surroundings { listening, admin: None, previous: None })
}

// === impl Report ===

impl Report {
    fn add(&mut self, record: &Record, judged: Judged) {
        let at = record.text("at").map(str::to_owned);
        self.first = self.first.take().or_else(|| at.clone());
        self.last = at;
        match judged {
            Judged::Same { by_other_rules } => {
                self.n_same += 1;
                self.n_other_rules += u64::from(by_other_rules);
            }
            Judged::Changed { from, to, because, rules, why } => {
                let key = (from.to_owned(), to.to_owned(), because, rules, why);
                count(
                    &mut self.changed,
                    key,
                    ("".into(), String::new(), Because::Rules, Vec::new(), OTHERS.into()),
                    record,
                );
            }
            Judged::Unknown { reason, rules } => {
                count(&mut self.unknown, (reason, rules), (OTHERS.into(), Vec::new()), record);
            }
        }
    }

    fn document(&self, file: &Path, hash: &str) -> Value {
        let (n_changed, n_unknown) = (total(&self.changed), total(&self.unknown));
        let changed = self.changed.iter().map(|((from, to, because, rules, why), group)| {
            serde_json::json!({
                "from": from, "to": to, "because": because.as_str(), "rules": rules, "why": why,
                "count": group.n, "examples": group.examples,
            })
        });
        let unknown = self.unknown.iter().map(|((reason, rules), group)| {
            serde_json::json!({ "reason": reason, "rules": rules, "count": group.n, "examples": group.examples })
        });
        serde_json::json!({
            "policy": file.display().to_string(), "snapshot": hash, "first": self.first, "last": self.last,
            "decisions": self.n_same + n_changed + n_unknown,
            "same": self.n_same, "same_by_other_rules": self.n_other_rules,
            "changed": n_changed, "not_known": n_unknown,
            "changes": changed.collect::<Vec<_>>(), "unknowns": unknown.collect::<Vec<_>>(),
        })
    }

    fn print(&self, file: &Path, hash: &str, out: &mut dyn Write) -> io::Result<()> {
        let (n_changed, n_unknown) = (total(&self.changed), total(&self.unknown));
        let n = self.n_same + n_changed + n_unknown;
        let file = escaped(&file.display().to_string());
        writeln!(out, "{n} decisions under {file} (configuration {hash})")?;
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            writeln!(out, "recorded from {} to {}", escaped(first), escaped(last))?;
        }
        writeln!(out, "\nchanged: {n_changed}")?;
        for ((from, to, because, rules, why), group) in &self.changed {
            let by = match because {
                Because::Rules => "",
                Because::People => ", for what this file says of who asked",
            };
            writeln!(out, "  {from} -> {to}{}{}{by}: {}", named(rules), bracketed(why), group.n)?;
            group.shown.iter().try_for_each(|shown| writeln!(out, "    {shown}"))?;
        }
        writeln!(out, "\nnot known: {n_unknown}")?;
        for ((reason, rules), group) in &self.unknown {
            let on =
                if rules.is_empty() { String::new() } else { format!(", and it depends on them:{}", named(rules)) };
            writeln!(out, "  {reason}{on}: {}", group.n)?;
            group.shown.iter().try_for_each(|shown| writeln!(out, "    {shown}"))?;
        }
        let others =
            if self.n_other_rules > 0 { format!(" ({} by other rules)", self.n_other_rules) } else { String::new() };
        writeln!(out, "\nthe same: {}{others}", self.n_same)
    }
}

fn count<K: Ord>(groups: &mut BTreeMap<K, Group>, key: K, others: K, record: &Record) {
    let key = if groups.len() < GROUPS_MAX || groups.contains_key(&key) { key } else { others };
    let group = groups.entry(key).or_insert_with(|| Group { n: 0, examples: Vec::new(), shown: Vec::new() });
    group.n += 1;
    if group.examples.len() < EXAMPLES {
        let mut example = serde_json::Map::new();
        for key in ["request", "at", "principal", "upstream", "method", "object"] {
            example.insert(key.to_owned(), record.get(key).clone());
        }
        group.examples.push(example.into());
        let at = escaped(record.text("at").unwrap_or_default());
        group.shown.push(format!("{}  {at}  {}  {}", escaped(id(record)), who(record), what(record)));
    }
}

fn total<K>(groups: &BTreeMap<K, Group>) -> u64 {
    groups.values().map(|group| group.n).sum()
}

fn named(rules: &[String]) -> String {
    let names: Vec<String> = rules.iter().map(|rule| format!("`{}`", super::line::short(rule, 60))).collect();
    match names.len() {
        0 => String::new(),
        1..=5 => format!(" by {}", names.join(", ")),
        n => format!(" by {} and {} more rules", names[..5].join(", "), n - 5),
    }
}

fn bracketed(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(" ({})", escaped(why)) }
}

/// What `--fail-on-change` exits with.
const CHANGED: u8 = 3;
/// Of each group.
const EXAMPLES: usize = 3;
const GROUPS_MAX: usize = 1_000;
const OTHERS: &str = "(others)";
