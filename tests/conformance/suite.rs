//! Runs the official conformance suite and reads what it found. Knows nothing of what should be found.

use crate::support::process;
use crate::support::sdk::conformance_suite;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection {
    /// Every scenario that this revision requires, and those that the suite runs beside them.
    Requirements(&'static str),
    /// One scenario, as it is for this revision.
    Scenario(&'static str, &'static str),
}

/// What a server was found to do.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Whether the suite says that it conforms: all that is scored passed.
    pub(crate) conforms: bool,
    /// Scenario → its checks.
    pub(crate) scenarios: BTreeMap<String, Checks>,
}

/// Check (its id and name) → how it went, as often as it was made.
pub(crate) type Checks = BTreeMap<String, Vec<Outcome>>;

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Outcome {
    /// `SUCCESS`, `FAILURE`, `WARNING`, `SKIPPED` or `INFO`.
    pub(crate) status: String,
    /// What the suite complains of.
    pub(crate) complaint: String,
}

/// A scenario that hangs is ended after this long: many times what any takes, and less than a test may.
const SCENARIO_MS: &str = "10000";

/// Runs it against this URL, with a token where one is needed.
#[track_caller]
pub(crate) fn run(url: &str, token: Option<&str>, selection: Selection) -> Findings {
    let dir = TempDir::new().expect("a temporary folder");
    let origin: String = url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let mut command = conformance_suite(&origin, token);
    command.args(["server", "--url", url, "--timeout", SCENARIO_MS, "--output-dir"]).arg(dir.path());
    match selection {
        Selection::Requirements(revision) => command.args(["--requirements", revision]),
        Selection::Scenario(scenario, revision) => command.args(["--scenario", scenario, "--spec-version", revision]),
    };
    let finished = process::run_within(Duration::from_secs(120), &mut command, b"");
    let scenarios = read(dir.path(), "server-");
    assert!(!scenarios.is_empty(), "the suite did not run: {finished:#?}");
    Findings { conforms: finished.status.success(), scenarios }
}

/// `<folder>/<prefix><scenario>-<time>/checks.json`, one for each scenario.
pub(crate) fn read(folder: &Path, prefix: &str) -> BTreeMap<String, Checks> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the folder is ours").flatten() {
        let name = entry.file_name().into_string().expect("the suite's names are UTF-8");
        let scenario = name.strip_prefix(prefix).unwrap_or(&name);
        // The time is `2026-11-30T05-29-24-450Z`.
        let scenario =
            scenario.len().checked_sub("-2026-11-30T05-29-24-450Z".len()).map_or(scenario, |end| &scenario[..end]);
        let text = std::fs::read(entry.path().join("checks.json")).expect("the suite writes it for every scenario");
        found.insert(scenario.to_owned(), checks(&serde_json::from_slice(&text).expect("it is JSON")));
    }
    found
}

fn checks(list: &serde_json::Value) -> Checks {
    let mut found = Checks::new();
    for check in list.as_array().expect("a list of checks") {
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let outcome = Outcome { status: text("status"), complaint: text("errorMessage") };
        found.entry(format!("{} ({})", text("id"), text("name"))).or_default().push(outcome);
    }
    for outcomes in found.values_mut() {
        outcomes.sort();
    }
    found
}
