//! The tables, in Markdown.

use crate::peer::Kind;
use crate::profile;
use crate::results::{Results, Sample};
use crate::scenario::{AUDITED, Pace, RATE_TITLE, SCENARIOS, Scenario};
use std::fmt::Write as _;

/// What a figure has to stay below, against the bare proxy where it is a ratio.
struct Target {
    what: &'static str,
    title: &'static str,
    limit: f64,
    of: Of,
}

#[derive(Clone, Copy, PartialEq)]
enum Of {
    Instructions,
    Cpu,
    KibPerStream,
}

const TARGETS: [Target; 5] = [
    Target {
        what: "1 KiB: instructions, against the bare proxy",
        title: SCENARIOS[0].title,
        limit: 1.3,
        of: Of::Instructions,
    },
    Target {
        what: "64 KiB, one string: instructions, against the bare proxy",
        title: SCENARIOS[2].title,
        limit: 1.4,
        of: Of::Instructions,
    },
    Target {
        what: "burst of 1,000 events: CPU time, against the bare proxy",
        title: SCENARIOS[5].title,
        limit: 0.35,
        of: Of::Cpu,
    },
    Target {
        what: "paced events: CPU time, against the bare proxy",
        title: SCENARIOS[6].title,
        limit: 1.5,
        of: Of::Cpu,
    },
    Target { what: "idle stream: KiB of memory", title: "", limit: 80.0, of: Of::KibPerStream },
];

/// All of them.
pub(crate) fn all(results: &Results) -> String {
    let mut out = String::new();
    targets(results, &mut out);
    instructions(results, &mut out);
    profiles(results, &mut out);
    cpu(results, &mut out);
    throughput(results, &mut out);
    latency(results, &mut out);
    memory(results, &mut out);
    for line in &results.missing {
        let _ = writeln!(out, "Not measured: {line}\n");
    }
    out
}

/// What the audit log costs: each against none, and how much it can take.
pub(crate) fn audit(results: &Results, kinds: &[Kind], ceilings: &serde_json::Value) -> String {
    let mut out = String::new();
    for Scenario { title, .. } in &AUDITED {
        let _ = writeln!(
            out,
            "| {title} | Calls a second | CPU time a call, us | against none (at most 1.15) | against gathered | Instructions a call | against none |\n\
             |---|---|---|---|---|---|---|",
        );
        for kind in kinds {
            let (none, gathered) = (Kind::Unrecorded, Kind::Gathered);
            let rate = results.median(title, *kind, |sample: &Sample| sample.report.per_second);
            let (cpu, counted) = (results.cpu(title, *kind), results.counted(title, *kind));
            let ratio = |one: Option<f64>, of: Option<f64>| shown(one.zip(of).map(|(one, of)| one / of), 2);
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} | {} |",
                kind.name(),
                shown(rate, 0),
                shown(cpu, 1),
                ratio(cpu, results.cpu(title, none)),
                ratio(cpu, results.cpu(title, gathered)),
                shown(counted, 0),
                ratio(counted, results.counted(title, none))
            );
        }
        out.push('\n');
    }
    out.push_str("| The log alone, 256 callers | Records a second |\n|---|---|\n");
    for name in ["strict", "relaxed"] {
        let _ = writeln!(out, "| `sync: {name}` | {} |", shown(ceilings[name].as_f64(), 0));
    }
    out
}

fn shown(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "not measured".to_owned(), |figure| format!("{figure:.digits$}"))
}

fn targets(results: &Results, out: &mut String) {
    let mut rows = Vec::new();
    for target in &TARGETS {
        let ratio = |of: &dyn Fn(Kind) -> Option<f64>, kind| Some(of(kind)? / of(Kind::Bare)?);
        let measured = |kind| match target.of {
            Of::Instructions => ratio(&|kind| results.counted(target.title, kind), kind),
            Of::Cpu => ratio(&|kind| results.cpu(target.title, kind), kind),
            Of::KibPerStream => results.idle(kind).map(|bytes| bytes / 1024.0),
        };
        let digits = if target.of == Of::KibPerStream { 0 } else { 2 };
        let verdict = |kind| match measured(kind) {
            None => "not measured".to_owned(),
            Some(value) if value <= target.limit => format!("{value:.digits$}"),
            Some(value) => format!("{value:.digits$} (missed)"),
        };
        let limit =
            if target.of == Of::KibPerStream { format!("{:.0}", target.limit) } else { target.limit.to_string() };
        rows.push(vec![target.what.to_owned(), limit, verdict(Kind::Gateway), verdict(Kind::Relaxed)]);
    }
    section(out, "Targets", "", &["What", "At most", "portcullis", "with `sync: relaxed`"], &rows);
}

fn instructions(results: &Results, out: &mut String) {
    let kinds = [Kind::Nginx, Kind::Bare, Kind::Gateway, Kind::Relaxed];
    let counted = || SCENARIOS.iter().filter(|scenario| scenario.counted.is_some());
    let mut rows = rows_of(
        counted(),
        &kinds,
        |title, kind| results.counted(title, kind),
        |value| format!("{:.1} k", value / 1000.0),
    );
    for (row, scenario) in rows.iter_mut().zip(counted()) {
        let raw = results.instructions.get(&(scenario.title, Kind::Gateway));
        row.push(raw.map_or_else(none, |counted| format!("{:.1} k", counted.raw / 1000.0)));
    }
    let note = "User-space instructions of the proxy's process per call, counted by callgrind with 8 connections; \
                the paced stream has 100 events here. In brackets, against the bare proxy. Callgrind's CPU has no SHA \
                instructions; SHA-256 is counted as this machine runs it, and the last column is what callgrind says.";
    let columns = ["Payload", "nginx", "bare pingora", "portcullis", "relaxed", "portcullis, slow SHA-256"];
    section(out, "Instructions", note, &columns, &rows);
}

/// Of the scenarios that have a target in instructions, and of the burst.
fn profiles(results: &Results, out: &mut String) {
    let scenarios = [&SCENARIOS[0], &SCENARIOS[2], &SCENARIOS[3], &SCENARIOS[5]];
    let mut rows = Vec::new();
    for part in profile::kinds() {
        let mut row = vec![part.to_owned()];
        for scenario in scenarios {
            let of = |kind| {
                let counted = results.instructions.get(&(scenario.title, kind));
                counted.map_or_else(none, |counted| {
                    format!("{:.1}", counted.profile.get(part).copied().unwrap_or_default() / 1000.0)
                })
            };
            row.push(format!("{} / {}", of(Kind::Gateway), of(Kind::Bare)));
        }
        rows.push(row);
    }
    let note =
        "Thousands of instructions per call or stream by the functions that took them: portcullis / bare pingora.";
    let columns: Vec<&str> = std::iter::once("Work").chain(scenarios.map(|scenario| scenario.title)).collect();
    section(out, "Where they go", note, &columns, &rows);
}

fn cpu(results: &Results, out: &mut String) {
    let kinds = [Kind::Nginx, Kind::Bare, Kind::Gateway, Kind::Relaxed];
    let scenarios = SCENARIOS.iter();
    let mut rows = rows_of(scenarios, &kinds, |title, kind| results.cpu(title, kind), |value| format!("{value:.1}"));
    for (row, scenario) in rows.iter_mut().zip(&SCENARIOS) {
        let stub = results.median(scenario.title, Kind::Direct, |sample| sample.stub_us);
        row.insert(1, stub.map_or_else(none, |value| format!("{value:.1}")));
    }
    let note = "Microseconds of the proxy's process per call or stream, kernel included (`schedstat`), median of the rounds. \
                Direct, it is the stub's: what the server itself costs. In brackets, against the bare proxy.";
    let columns = ["Payload", "direct", "nginx", "bare pingora", "portcullis", "relaxed"];
    section(out, "CPU time", note, &columns, &rows);
}

fn throughput(results: &Results, out: &mut String) {
    let mut rows = Vec::new();
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.pace == Pace::Closed) {
        let of = |kind| results.median(scenario.title, kind, |sample| sample.report.per_second);
        let mut row = vec![scenario.title.to_owned()];
        row.extend(Kind::ALL.map(|kind| with_ratio(of(kind), of(Kind::Nginx), |value| format!("{value:.0}"))));
        rows.push(row);
    }
    let note = "Calls or streams a second in a closed loop: 64 connections, 8 for streams. The proxy has CPU 0 to itself; \
                stub and loader share CPU 1. In brackets, against nginx.";
    section(out, "Throughput", note, &["Payload", "direct", "nginx", "bare pingora", "portcullis", "relaxed"], &rows);
}

fn latency(results: &Results, out: &mut String) {
    let mut rows = Vec::new();
    type Figure = fn(&Sample) -> f64;
    let figures: [(&str, &'static str, Figure); 5] = [
        ("1 KiB at 1,000 calls a second, median", RATE_TITLE, |sample| sample.report.p50),
        ("the same, 99th percentile", RATE_TITLE, |sample| sample.report.p99),
        ("the same, 99.9th percentile", RATE_TITLE, |sample| sample.report.p999),
        ("burst, time to its first event, median", SCENARIOS[5].title, |sample| first(sample.report.first_event_p50)),
        ("burst, 99th percentile", SCENARIOS[5].title, |sample| first(sample.report.first_event_p99)),
    ];
    for (name, title, figure) in figures {
        let of = |kind| results.median(title, kind, figure);
        let mut row = vec![name.to_owned()];
        row.extend(Kind::ALL.map(|kind| with_ratio(of(kind), of(Kind::Nginx), |value| format!("{value:.0}"))));
        rows.push(row);
    }
    let note = "Microseconds, from when a call was due (an open loop: a slow answer does not put off the calls after it). \
                At the fixed rate, stub and proxy share CPU 0 and the loader has CPU 1. In brackets, against nginx.";
    section(out, "Latency", note, &["What", "direct", "nginx", "bare pingora", "portcullis", "relaxed"], &rows);
}

fn memory(results: &Results, out: &mut String) {
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0 / 1024.0);
    let kinds = [Kind::Nginx, Kind::Bare, Kind::Gateway, Kind::Relaxed, Kind::Http2];
    let is_known = |kind: &Kind| results.peaks.contains_key(kind) || results.idle(*kind).is_some();
    let mut rows = Vec::new();
    for kind in kinds.into_iter().filter(is_known) {
        let idle = results.idle.iter().find(|idle| idle.kind == kind);
        rows.push(vec![
            kind.name().to_owned(),
            idle.map_or_else(none, |idle| mib(idle.resident_before)),
            results.peaks.get(&kind).map_or_else(none, |peak| mib(*peak)),
            idle.map_or_else(none, |idle| format!("{:.1} ({} streams)", idle.per_stream / 1024.0, idle.streams)),
        ]);
    }
    let note = "Resident memory of the proxy's process.";
    section(
        out,
        "Memory",
        note,
        &["Peer", "at the start, MiB", "most in all scenarios, MiB", "per idle stream, KiB"],
        &rows,
    );
}

fn rows_of<'a>(
    scenarios: impl Iterator<Item = &'a Scenario>,
    kinds: &[Kind],
    value: impl Fn(&'static str, Kind) -> Option<f64>,
    show: impl Fn(f64) -> String,
) -> Vec<Vec<String>> {
    let row = |scenario: &Scenario| {
        let bare = value(scenario.title, Kind::Bare);
        let cells = kinds.iter().map(|kind| with_ratio(value(scenario.title, *kind), bare, &show));
        std::iter::once(scenario.title.to_owned()).chain(cells).collect()
    };
    scenarios.map(row).collect()
}

fn with_ratio(value: Option<f64>, base: Option<f64>, show: impl Fn(f64) -> String) -> String {
    match (value.filter(|value| *value > 0.0), base) {
        (None, _) => none(),
        (Some(value), None) => show(value),
        (Some(value), Some(base)) => format!("{} ({:.2})", show(value), value / base),
    }
}

fn first(time: Option<f64>) -> f64 {
    time.unwrap_or_default()
}

fn none() -> String {
    "-".to_owned()
}

fn section(out: &mut String, title: &str, note: &str, columns: &[&str], rows: &[Vec<String>]) {
    let _ = writeln!(out, "### {title}\n");
    if !note.is_empty() {
        let _ = writeln!(out, "{note}\n");
    }
    let _ = writeln!(out, "| {} |", columns.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(columns.len()));
    for row in rows {
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out.push('\n');
}
