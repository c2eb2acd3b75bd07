//! `portcullis audit stats`: counts over the log, in one pass and with bounded memory.

use super::line::duration;
use super::record::{By, During, Record, json};
use crate::audit::{Directory, escaped};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Which records.
#[derive(Clone, Debug, clap::Args)]
pub(in crate::cli) struct Stats {
    #[command(flatten)]
    during: During,
    #[command(flatten)]
    by: By,
    /// How many of each kind are printed.
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// How often each of these was met.
#[derive(Default)]
struct Counts(HashMap<String, u64>);

/// Durations by size: an eighth of a power of two each, so that what is printed is at most 6 % off.
#[derive(Clone)]
struct Durations {
    n: u64,
    buckets: Vec<u64>,
    longest: u64,
}

#[derive(Default)]
struct Totals {
    first: Option<String>,
    last: Option<String>,
    counts: BTreeMap<&'static str, Counts>,
    all: Durations,
    by_upstream: BTreeMap<String, Durations>,
    minutes: Minutes,
}

/// The minutes with most decisions.
#[derive(Default)]
struct Minutes {
    now: String,
    n: u64,
    busiest: Vec<(u64, String)>,
}

impl Stats {
    /// Prints the counts.
    pub(super) fn run(&self, directory: &Directory, out: &mut dyn Write) -> anyhow::Result<()> {
        let by = self.by.compile();
        let (mut totals, mut n_records) = (Totals::default(), 0_u64);
        let met = self.during.each(directory, |record| {
            if by.admits(&record) {
                n_records += 1;
                totals.add(&record);
            }
            Ok(())
        })?;
        met.say();
        totals.minutes.close();
        if self.json {
            writeln!(out, "{}", json(&totals.document(n_records))?)?;
        } else {
            totals.print(n_records, self.top, out)?;
        }
        Ok(())
    }
}

// === impl Totals ===

impl Totals {
    fn add(&mut self, record: &Record) {
        let at = record.text("at").unwrap_or_default();
        self.first.get_or_insert_with(|| at.to_owned());
        self.last = Some(at.to_owned());
        let event = record.text("event");
        self.count("events", event);
        match event {
            Some("decision") => self.decision(record, at),
            Some("result") => self.result(record),
            _ => {}
        }
        // What the decision was, the result of a call says once more as its code.
        self.count("codes", record.text("code"));
    }

    fn decision(&mut self, record: &Record, at: &str) {
        self.count("decisions", record.text("decision"));
        self.count("upstreams", record.text("upstream"));
        self.count("users", record.of_principal("subject"));
        self.count("clients", record.of_principal("client"));
        record.list("rules").into_iter().for_each(|rule| self.count("rules", Some(rule)));
        if record.text("method") == Some("tools/call") {
            let tool = (record.text("upstream").unwrap_or_default(), record.text("object").unwrap_or_default());
            self.count("tools", Some(&format!("{}/{}", tool.0, tool.1)));
        } else {
            self.count("other methods", record.text("method"));
        }
        self.minutes.add(at.get(..16).unwrap_or_default());
    }

    fn result(&mut self, record: &Record) {
        self.count("outcomes", record.text("outcome"));
        let Some(us) = record.get("duration_us").as_u64() else { return };
        self.all.add(us);
        let upstream = record.text("upstream").unwrap_or_default();
        if let Some(durations) = self.by_upstream.get_mut(upstream) {
            durations.add(us);
        } else if self.by_upstream.len() < UPSTREAMS_MAX {
            self.by_upstream.entry(upstream.to_owned()).or_default().add(us);
        }
    }

    fn count(&mut self, what: &'static str, value: Option<&str>) {
        if let Some(value) = value {
            self.counts.entry(what).or_default().add(value);
        }
    }

    fn document(&self, n_records: u64) -> Value {
        let mut document = Map::new();
        document.insert("records".into(), n_records.into());
        document.insert("first".into(), self.first.clone().into());
        document.insert("last".into(), self.last.clone().into());
        for what in KINDS {
            let counts = self.counts.get(what).map(Counts::sorted).unwrap_or_default();
            let counts: Map<String, Value> = counts.into_iter().map(|(name, n)| (name.to_owned(), n.into())).collect();
            document.insert(what.replace(' ', "_"), counts.into());
        }
        let by_upstream: Map<String, Value> =
            self.by_upstream.iter().map(|(name, durations)| (name.clone(), durations.document())).collect();
        document.insert("durations_us".into(), self.all.document());
        document.insert("durations_us_by_upstream".into(), by_upstream.into());
        let busiest = self.minutes.busiest.iter().map(|(n, at)| serde_json::json!({ "minute": at, "decisions": n }));
        document.insert("busiest".into(), busiest.collect());
        document.into()
    }

    fn print(&self, n_records: u64, top: usize, out: &mut dyn Write) -> io::Result<()> {
        let (first, last) = (self.first.as_deref().unwrap_or("-"), self.last.as_deref().unwrap_or("-"));
        writeln!(out, "{n_records} records, {} to {}", escaped(first), escaped(last))?;
        for what in KINDS {
            let Some(counts) = self.counts.get(what) else { continue };
            writeln!(out, "\n{what}")?;
            let sorted = counts.sorted();
            for (name, n) in sorted.iter().take(top) {
                writeln!(out, "  {n:>9}  {}", super::line::short(name, 90))?;
            }
            let rest: u64 = sorted.iter().skip(top).map(|(_, n)| n).sum();
            if rest > 0 {
                writeln!(out, "  {rest:>9}  ({} others)", sorted.len() - top)?;
            }
        }
        if self.all.n > 0 {
            writeln!(out, "\ndurations              p50         p90         p99     longest")?;
            self.all.print("all", out)?;
            for (name, durations) in self.by_upstream.iter().take(top) {
                durations.print(name, out)?;
            }
        }
        if !self.minutes.busiest.is_empty() {
            writeln!(out, "\nbusiest minutes")?;
            for (n, at) in self.minutes.busiest.iter().take(top) {
                writeln!(out, "  {n:>9}  {}Z", escaped(at))?;
            }
        }
        Ok(())
    }
}

// === impl Counts ===

impl Counts {
    fn add(&mut self, name: &str) {
        if let Some(n) = self.0.get_mut(name) {
            *n += 1;
        } else if self.0.len() < NAMES_MAX {
            self.0.insert(name.to_owned(), 1);
        } else {
            *self.0.entry(OTHERS.to_owned()).or_default() += 1;
        }
    }

    /// The most frequent first.
    fn sorted(&self) -> Vec<(&str, u64)> {
        let mut sorted: Vec<(&str, u64)> = self.0.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        sorted.sort_by(|(a, n), (b, m)| m.cmp(n).then_with(|| a.cmp(b)));
        sorted
    }
}

// === impl Durations ===

impl Default for Durations {
    fn default() -> Self {
        Durations { n: 0, buckets: vec![0; BUCKETS], longest: 0 }
    }
}

impl Durations {
    fn add(&mut self, us: u64) {
        self.n += 1;
        self.longest = self.longest.max(us);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(us)) {
            *bucket += 1;
        }
    }

    /// The middle of the bucket that so many of a hundred fall into or below.
    fn percentile(&self, percent: u64) -> u64 {
        let wanted = (self.n * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (at, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return middle_of(at).min(self.longest);
            }
        }
        self.longest
    }

    fn document(&self) -> Value {
        let at = |percent| self.percentile(percent);
        serde_json::json!({ "n": self.n, "p50": at(50), "p90": at(90), "p99": at(99), "longest": self.longest })
    }

    fn print(&self, name: &str, out: &mut dyn Write) -> io::Result<()> {
        let [p50, p90, p99] = [50, 90, 99].map(|percent| duration(self.percentile(percent)));
        let (name, longest) = (super::line::short(name, 16), duration(self.longest));
        writeln!(out, "  {name:<16} {p50:>10}  {p90:>10}  {p99:>10}  {longest:>10}")
    }
}

/// Below 16 each number has its own.
fn bucket_of(us: u64) -> usize {
    if us < 16 {
        return us as usize;
    }
    let exponent = us.ilog2() as usize;
    let eighth = (us >> (exponent - 3)) as usize & 7;
    16 + (exponent - 4) * 8 + eighth
}

fn middle_of(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let (exponent, eighth) = ((bucket - 16) / 8 + 4, (bucket - 16) % 8);
    let width = 1_u64 << (exponent - 3);
    (8 + eighth as u64) * width + width / 2
}

// === impl Minutes ===

impl Minutes {
    /// Records come in the order of time, so that only one minute is counted at once.
    fn add(&mut self, minute: &str) {
        if self.now != minute {
            self.close();
            self.now = minute.to_owned();
        }
        self.n += 1;
    }

    fn close(&mut self) {
        let n = std::mem::take(&mut self.n);
        if n > 0 {
            self.busiest.push((n, std::mem::take(&mut self.now)));
            self.busiest.sort_by(|(n, a), (m, b)| m.cmp(n).then_with(|| a.cmp(b)));
            self.busiest.truncate(MINUTES_MAX);
        }
    }
}

const KINDS: [&str; 10] =
    ["events", "decisions", "upstreams", "tools", "other methods", "users", "clients", "rules", "codes", "outcomes"];
/// Different names counted of each kind; the names of tools are a stranger's to choose.
const NAMES_MAX: usize = 10_000;
const OTHERS: &str = "(others)";
const UPSTREAMS_MAX: usize = 1_000;
const MINUTES_MAX: usize = 10;
const BUCKETS: usize = 16 + 60 * 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_near_what_they_stand_for() {
        let mut durations = Durations::default();
        (1..=10_000).for_each(|us| durations.add(us));
        for (percent, expected) in [(50, 5_000.0), (90, 9_000.0), (99, 9_900.0)] {
            let found = durations.percentile(percent) as f64;
            assert!((found / expected - 1.0).abs() < 0.07, "p{percent} is {found}");
        }
        assert_eq!((durations.percentile(100), Durations::default().percentile(99)), (10_000, 0));
        for us in [0, 15, 16, 17, 1_000, 123_456_789, u64::MAX] {
            let middle = middle_of(bucket_of(us)) as f64;
            assert!((middle / (us.max(1) as f64) - 1.0).abs() < 0.07 || us < 16, "{us} is counted as {middle}");
        }
    }

    #[test]
    fn names_that_never_end_are_counted_together() {
        let mut counts = Counts::default();
        (0..NAMES_MAX + 500).for_each(|n| counts.add(&format!("tool {n}")));
        counts.add("tool 1");
        assert_eq!(counts.0.len(), NAMES_MAX + 1);
        assert_eq!(&counts.sorted()[..2], [(OTHERS, 500), ("tool 1", 2)]);
    }

    #[test]
    fn the_busiest_minutes_are_kept() {
        let mut minutes = Minutes::default();
        for minute in 0..30 {
            (0..=minute % 20).for_each(|_| minutes.add(&format!("{minute:02}")));
        }
        minutes.close();
        assert_eq!((minutes.busiest.len(), &minutes.busiest[0]), (MINUTES_MAX, &(20, "19".to_owned())));
    }
}
