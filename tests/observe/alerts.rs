//! The rules for Prometheus: well written, tried, and each with a runbook.

use super::prometheus::{dashboards, promtool};
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use std::fs;
use std::path::Path;

fn shipped(name: &str) -> String {
    fs::read_to_string(dashboards().join("prometheus").join(name)).expect("it is shipped")
}

/// What stands behind each `<key>:` of a file.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let start = format!("{key}: ");
    text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(start.as_str())).collect()
}

#[test]
fn promtool_finds_nothing_to_say_about_rules_and_configuration() {
    let rules = promtool(&["check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"], b"").success();
    let found = format!("SUCCESS: {} rules found", values(&shipped("alerts.yml"), "alert").len());
    assert!(rules.stdout.contains(&found), "{}", rules.stdout);
    promtool(&["check", "config", "--lint=all", "--lint-fatal", "prometheus.yml"], b"").success();
}

#[test]
fn each_alert_fires_when_it_should_and_its_quiet_twin_does_not() {
    let (rules, tests) = (shipped("alerts.yml"), shipped("alerts.test.yml"));
    for alert in values(&rules, "alert") {
        for twin in ["fires", "is quiet"] {
            assert!(tests.contains(&format!("name: {alert} {twin}\n")), "{alert} {twin}: it is not tried");
        }
    }

    promtool(&["test", "rules", "alerts.test.yml"], b"").success();
}

#[test]
fn each_alert_says_how_bad_what_and_what_to_do() {
    let rules = shipped("alerts.yml");
    let alerts = values(&rules, "alert");
    for key in ["severity", "summary", "description", "runbook_url"] {
        assert_eq!(values(&rules, key).len(), alerts.len(), "{key}");
    }
    assert!(values(&rules, "severity").iter().all(|severity| ["critical", "warning"].contains(severity)));
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let docs = fs::read_to_string(docs).expect("it is there");
    let headings: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    for (alert, runbook) in alerts.iter().zip(values(&rules, "runbook_url")) {
        assert_eq!(runbook, format!("docs/operations.md#{}", alert.to_lowercase()));
        assert!(headings.contains(alert), "{alert} has no runbook");
    }
    let gone = headings.iter().filter(|heading| heading.starts_with("Portcullis") && !alerts.contains(heading));
    assert_eq!(gone.collect::<Vec<_>>(), Vec::<&&str>::new(), "runbooks of no alert");
}

#[test]
fn promtool_finds_nothing_to_say_about_what_is_exported() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, "- { name: all, tools: [\"*/*\"], allow: {} }");
    gateway.wait_until_asked("up");

    let said = promtool(&["check", "metrics"], gateway.observe("/metrics").text().as_bytes()).success();

    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));
}
