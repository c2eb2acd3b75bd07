//! `make bench`: what a call costs, side by side, in one run.
//!
//! `bench --gateway PROGRAM [--rounds 3] [--seconds 3] [--streams 9000] [--only WORD] [--write docs/performance.md]`
//! `[--http2 yes] [--keep yes]`
//!
//! `bench --gateway PROGRAM --audit CEILINGS …` is `make bench-audit`: the gateway with its audit log and without, which only a
//! program that was built for it can be.
//!
//! Peers take turns, in reverse order every other round, so that a busy minute hits them all; medians are what is shown.
//! CPU time per call is the scheduler's own count; instructions are callgrind's, and no neighbour changes them.
//! Answers are checked one by one, and a wrong one ends the run: a proxy that fails fast would look cheap.

#[path = "driver/callgrind.rs"]
mod callgrind;
#[path = "driver/loader.rs"]
mod loader;
#[path = "driver/machine.rs"]
mod machine;
#[path = "driver/memory.rs"]
mod memory;
#[path = "driver/peer.rs"]
mod peer;
#[path = "driver/process.rs"]
mod process;
#[path = "driver/profile.rs"]
mod profile;
#[path = "driver/results.rs"]
mod results;
#[path = "driver/scenario.rs"]
mod scenario;
#[path = "driver/tables.rs"]
mod tables;

use anyhow::Context as _;
use bench::arguments::Arguments;
use loader::Loader;
use peer::{Kind, Peer, Places};
use process::Running;
use results::{Results, Sample};
use scenario::{AUDITED, Pace, SCENARIOS, Scenario};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

struct Settings {
    rounds: usize,
    seconds: f64,
    streams: usize,
    /// Only scenarios whose title has this in it; `idle` for the idle streams.
    only: Option<String>,
    write: Option<PathBuf>,
    /// Also measure idle streams with HTTP/2 to the server, a thousand more.
    http2: bool,
    keep: bool,
    /// What the audit log costs, and nothing else. The file has the ceilings that were measured before.
    audit: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments::read()?;
    let gateway: PathBuf = arguments.take("gateway")?.context("--gateway is needed: the gateway's program")?;
    let settings = Settings {
        rounds: arguments.take("rounds")?.unwrap_or(3),
        seconds: arguments.take("seconds")?.unwrap_or(3.0),
        streams: arguments.take("streams")?.unwrap_or(9000),
        only: arguments.take("only")?,
        write: arguments.take("write")?,
        http2: arguments.take::<String>("http2")?.is_some(),
        keep: arguments.take::<String>("keep")?.is_some(),
        audit: arguments.take("audit")?,
    };
    arguments.end()?;
    let programs = std::env::current_exe()?.parent().context("a program stands in a folder")?.to_owned();
    let work = programs.join(format!("bench-work-{}", std::process::id()));
    std::fs::create_dir_all(&work)?;
    // A copy: whoever builds meanwhile must not change what is measured.
    let copy = work.join("gateway");
    std::fs::copy(&gateway, &copy).with_context(|| format!("{}", gateway.display()))?;
    let places = Places { gateway: copy, programs, work };
    let ran = Bench::start(&settings, &places).and_then(Bench::run);
    if settings.keep || ran.is_err() {
        eprintln!("bench: kept {}", places.work.display());
    } else {
        std::fs::remove_dir_all(&places.work)?;
    }
    ran
}

struct Bench<'a> {
    settings: &'a Settings,
    places: &'a Places,
    stub: Running,
    upstream: SocketAddr,
    results: Results,
    /// For the peer, and for loader and stub; none on a machine with one.
    cpus: [Option<usize>; 2],
}

impl<'a> Bench<'a> {
    fn start(settings: &'a Settings, places: &'a Places) -> anyhow::Result<Bench<'a>> {
        let mut results = Results::default();
        let is_pinned = machine::cpus() > 1 && process::is_installed("taskset");
        if !is_pinned {
            results.missing.push("nothing is pinned: there is one CPU only, or no `taskset`".to_owned());
        }
        let cpus = if is_pinned { [Some(0), Some(1)] } else { [None, None] };
        let (stub, upstream) = peer::start_stub(places, false, cpus[1])?;
        Ok(Bench { settings, places, stub, upstream, results, cpus })
    }

    fn run(mut self) -> anyhow::Result<()> {
        let began = format!("{}, load average {}", machine::now(), machine::load());
        if let Some(ceilings) = self.settings.audit.clone() {
            return self.audit(&began, &ceilings);
        }
        let kinds = self.kinds();
        let scenarios: Vec<&Scenario> = SCENARIOS.iter().filter(|one| self.is_wanted(one.title)).collect();
        self.rounds(&kinds, &scenarios)?;
        self.count(&kinds, &scenarios)?;
        self.idle(&kinds)?;
        for line in &self.results.missing {
            eprintln!("bench: not measured: {line}");
        }
        let settings = self.settings;
        let command = format!("make bench ROUNDS={} SECONDS={}", settings.rounds, settings.seconds);
        let text = format!(
            "`{command}`, begun {began}, ended with {}.\n{}.\n\n{}",
            machine::load(),
            machine::description(),
            tables::all(&self.results)
        );
        println!("{text}");
        if let Some(file) = &settings.write {
            write_between_markers(file, "bench", &text)?;
        }
        Ok(())
    }

    /// The gateway with its log, with a relaxed one, and with none, as it would be and with calls gathered all the same.
    fn audit(mut self, began: &str, ceilings: &Path) -> anyhow::Result<()> {
        let kinds = [Kind::Gateway, Kind::Relaxed, Kind::Unrecorded, Kind::Gathered];
        let scenarios: Vec<&Scenario> = AUDITED.iter().collect();
        self.rounds(&kinds, &scenarios)?;
        self.count(&kinds, &scenarios)?;
        let ceilings: serde_json::Value = serde_json::from_slice(&std::fs::read(ceilings)?)?;
        let settings = self.settings;
        let command = format!("make bench-audit ROUNDS={} SECONDS={}", settings.rounds, settings.seconds);
        let text = format!(
            "`{command}`, begun {began}, ended with {}.\n{}.\n\n{}",
            machine::load(),
            machine::description(),
            tables::audit(&self.results, &kinds, &ceilings)
        );
        println!("{text}");
        if let Some(file) = &settings.write {
            write_between_markers(file, "bench-audit", &text)?;
        }
        Ok(())
    }

    fn is_wanted(&self, title: &str) -> bool {
        self.settings.only.as_ref().is_none_or(|word| title.contains(word.as_str()))
    }

    fn kinds(&mut self) -> Vec<Kind> {
        let has_nginx = process::is_installed("nginx");
        if !has_nginx {
            self.results.missing.push("nginx: it is not installed (Debian: nginx-light)".to_owned());
        }
        Kind::ALL.into_iter().filter(|kind| *kind != Kind::Nginx || has_nginx).collect()
    }

    /// All peers in all scenarios, round by round.
    fn rounds(&mut self, kinds: &[Kind], scenarios: &[&Scenario]) -> anyhow::Result<()> {
        if scenarios.is_empty() {
            return Ok(());
        }
        let start = |kind: &Kind| Peer::start(*kind, self.upstream, self.places, &[], self.cpus[0]);
        let mut peers: Vec<Peer> = kinds.iter().map(start).collect::<Result<_, _>>()?;
        for scenario in scenarios {
            // A stub that polls beside the loader would be woken late; see the reference of the method.
            let at_rate = matches!(scenario.pace, Pace::Rate(_));
            if let [Some(first), Some(second)] = self.cpus {
                self.stub.pin(if at_rate { first } else { second })?;
            }
            for round in 0..self.settings.rounds {
                for peer in &peers {
                    let sample = self.sample(peer, scenario)?;
                    eprintln!(
                        "bench: {} / {} / round {}: {:.0} a second, {:.1} us CPU, p50 {:.0} us, load {}",
                        scenario.title,
                        peer.kind.name(),
                        round + 1,
                        sample.report.per_second,
                        sample.cpu_us,
                        sample.report.p50,
                        machine::load()
                    );
                    self.results.samples.entry((scenario.title, peer.kind)).or_default().push(sample);
                }
                peers.reverse();
            }
        }
        for peer in &peers {
            if let Some(process) = &peer.process {
                self.results.peaks.insert(peer.kind, process.memory()?.peak);
            }
        }
        if let Some(cpu) = self.cpus[1] {
            self.stub.pin(cpu)?;
        }
        Ok(())
    }

    fn sample(&self, peer: &Peer, scenario: &Scenario) -> anyhow::Result<Sample> {
        let arguments = loader::arguments(scenario, self.settings.seconds);
        let mut loader = Loader::ready(self.places, peer, &arguments, self.cpus[1])?;
        let usage = || peer.process.as_ref().map(Running::usage).transpose();
        let (before, stub_before) = (usage()?, self.stub.usage()?);
        let report = loader.work().with_context(|| format!("{} / {}", scenario.title, peer.kind.name()))?;
        let (after, stub_after) = (usage()?, self.stub.usage()?);
        let per_call = |before: process::Usage, after: process::Usage| {
            after.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / report.ok as f64
        };
        let cpu_us = before.zip(after).map_or(0.0, |(before, after)| per_call(before, after));
        Ok(Sample { cpu_us, stub_us: per_call(stub_before, stub_after), report })
    }

    /// Instructions, where there is callgrind.
    fn count(&mut self, kinds: &[Kind], scenarios: &[&Scenario]) -> anyhow::Result<()> {
        if !process::is_installed("valgrind") || !process::is_installed("callgrind_control") {
            self.results.missing.push("instructions: callgrind is not installed (Debian: valgrind)".to_owned());
            return Ok(());
        }
        let counted: Vec<_> = scenarios.iter().filter(|scenario| scenario.counted.is_some()).collect();
        // A short run counts fewer calls; the figure hardly depends on it.
        let share = (self.settings.seconds / 3.0).clamp(0.25, 1.0);
        for kind in kinds.iter().filter(|kind| **kind != Kind::Direct && !counted.is_empty()) {
            let mut peer = callgrind::Counted::start(*kind, self.upstream, self.places, self.cpus[0])?;
            for scenario in &counted {
                let per_call = peer.instructions(scenario, share, self.places, self.cpus[1])?;
                eprintln!(
                    "bench: {} / {}: {:.0} instructions a {} (callgrind says {:.0})",
                    scenario.title,
                    kind.name(),
                    per_call.real,
                    scenario.unit,
                    per_call.raw
                );
                self.results.instructions.insert((scenario.title, *kind), per_call);
            }
        }
        Ok(())
    }

    fn idle(&mut self, kinds: &[Kind]) -> anyhow::Result<()> {
        if !self.is_wanted("idle") {
            return Ok(());
        }
        for kind in kinds.iter().filter(|kind| **kind != Kind::Direct) {
            self.results.idle.push(memory::measure(
                *kind,
                self.upstream,
                self.settings.streams,
                self.places,
                self.cpus,
            )?);
        }
        if self.settings.http2 {
            let (_stub, upstream) = peer::start_stub(self.places, true, self.cpus[1])?;
            let streams = self.settings.streams + 1000;
            self.results.idle.push(memory::measure(Kind::Http2, upstream, streams, self.places, self.cpus)?);
        }
        for idle in &self.results.idle {
            let kib = idle.per_stream / 1024.0;
            eprintln!("bench: {} idle streams / {}: {kib:.1} KiB each", idle.streams, idle.kind.name());
        }
        Ok(())
    }
}

fn write_between_markers(file: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let (begin, end) = (format!("<!-- {name}:begin -->\n"), format!("<!-- {name}:end -->"));
    let page = std::fs::read_to_string(file)?;
    let around = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = around.with_context(|| format!("{} has no {begin}", file.display()))?;
    let text = text.trim_end();
    std::fs::write(file, format!("{before}{begin}\n{text}\n\n{end}{after}"))?;
    Ok(())
}
