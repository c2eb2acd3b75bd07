//! Drives the loader, and reads what a peer's process used meanwhile.

use crate::peer::{Peer, Places};
use crate::process::Running;
use crate::scenario::{Pace, Scenario};
use anyhow::Context as _;
use bench::report::Report;
use std::io::Write as _;

/// A loader that has connected and warmed up.
pub(crate) struct Loader(Running);

impl Loader {
    /// Starts one with these arguments and waits until it is ready.
    pub(crate) fn ready(places: &Places, peer: &Peer, more: &[String], cpu: Option<usize>) -> anyhow::Result<Loader> {
        let program = places.programs.join("bench-load").to_string_lossy().into_owned();
        let mut command = vec![program];
        let mut add = |name: &str, value: &str| command.extend([format!("--{name}"), value.to_owned()]);
        add("target", &peer.address.to_string());
        add("path", peer.path);
        if let Some(token) = &peer.token {
            add("token", token);
        }
        command.extend_from_slice(more);
        let log = places.work.join("load.log");
        let mut running = Running::start("the loader", command, cpu, &log)?;
        let said = || format!("{}: {}", peer.kind.name(), std::fs::read_to_string(&log).unwrap_or_default());
        let line = running.line().with_context(said)?;
        anyhow::ensure!(line == "ready", "the loader said {line}");
        Ok(Loader(running))
    }

    /// Lets it go on, and gives its next line.
    pub(crate) fn go(&mut self) -> anyhow::Result<String> {
        let stdin = self.0.stdin.as_mut().context("stdin is piped")?;
        stdin.write_all(b"go\n")?;
        stdin.flush()?;
        self.0.line()
    }

    /// Lets it do its work. An answer that is not what it should be makes the whole measurement worthless.
    pub(crate) fn work(&mut self) -> anyhow::Result<Report> {
        let report: Report = serde_json::from_str(&self.go()?)?;
        anyhow::ensure!(report.faults() == 0 && report.ok > 0, "calls failed: {report:?}");
        Ok(report)
    }
}

/// The loader's arguments for a scenario.
pub(crate) fn arguments(scenario: &Scenario, seconds: f64) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut add = |name: &str, value: String| arguments.extend([format!("--{name}"), value]);
    add("payload", scenario.payload.to_owned());
    add("connections", scenario.connections.to_string());
    if scenario.is_legacy {
        add("era", "legacy".to_owned());
    }
    match scenario.pace {
        Pace::Closed => add("seconds", seconds.to_string()),
        Pace::Rate(rate) => {
            add("seconds", seconds.to_string());
            add("rate", rate.to_string());
        }
        Pace::Once => add("requests", scenario.connections.to_string()),
    }
    let warm_up = match scenario.pace {
        Pace::Once => 0,
        _ => scenario.connections * 8,
    };
    add("warm-up", warm_up.to_string());
    arguments
}
