//! The official conformance suite, unchanged, against a server that passes it: through the gateway it finds what it finds
//! directly, scenario by scenario and check by check.

pub(crate) mod suite;

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::sdk::Peer;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::thread;
use suite::{Checks, Findings, Outcome, Selection};

const EVERYTHING: &str =
    r#"- { name: everything, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }"#;

/// Runs the same against a server directly, and against another of the same kind through a gateway. Two servers, because a
/// change in one is told to everybody who listens.
fn directly_and_through(start: fn() -> Peer, selection: Selection) -> (Findings, Findings) {
    thread::scope(|scope| {
        let direct = scope.spawn(move || suite::run(&start().url, None, selection));
        let server = start();
        let gateway = Gateway::start(&in_front_of(&server.url, EVERYTHING));
        let through = suite::run(&gateway.url("up"), Some(&gateway.token("alice", "up")), selection);
        (direct.join().expect("the suite runs"), through)
    })
}

/// One line for each check that does not end through the gateway as it ends directly.
fn differences(direct: &Findings, through: &Findings) -> String {
    let mut table = String::new();
    let scenarios: BTreeSet<&String> = direct.scenarios.keys().chain(through.scenarios.keys()).collect();
    for scenario in scenarios {
        let none = Checks::new();
        let of = |findings: &'_ Findings| findings.scenarios.get(scenario).unwrap_or(&none).clone();
        let (direct, through) = (of(direct), of(through));
        for check in direct.keys().chain(through.keys()).collect::<BTreeSet<_>>() {
            let (direct, through) = (direct.get(check), through.get(check));
            if statuses(direct) != statuses(through) {
                let complaints: Vec<&str> = through.into_iter().flatten().map(|outcome| &*outcome.complaint).collect();
                let (direct, through) = (statuses(direct), statuses(through));
                writeln!(table, "{scenario} | {check} | {direct:?} | {through:?} | {}", complaints.join(" "))
                    .expect("a string takes everything");
            }
        }
    }
    table
}

fn statuses(outcomes: Option<&Vec<Outcome>>) -> Vec<&str> {
    outcomes.into_iter().flatten().map(|outcome| &*outcome.status).collect()
}

#[track_caller]
fn pass_through_as_directly(revision: &'static str, n_scenarios: usize, also: &[&str]) {
    let (direct, through) = directly_and_through(Peer::fixture, Selection::Requirements(revision));

    assert!(direct.conforms, "the server itself does not conform: {:#?}", complaints(&direct));
    assert_eq!(direct.scenarios.len(), n_scenarios, "the suite ran others: {:?}", direct.scenarios.keys());
    for scenario in also {
        let outcomes: Vec<&Outcome> = direct.scenarios[*scenario].values().flatten().collect();
        assert!(outcomes.iter().any(|outcome| outcome.status == "SUCCESS"), "{scenario}: {outcomes:#?}");
        let is_good = |outcome: &&Outcome| matches!(&*outcome.status, "SUCCESS" | "INFO");
        assert!(outcomes.iter().all(is_good), "{scenario}, directly: {outcomes:#?}");
    }
    let differences = differences(&direct, &through);
    assert!(differences.is_empty(), "scenario | check | directly | through | complaints\n{differences}");
    assert!(through.conforms, "{:#?}", complaints(&through));
}

fn complaints(findings: &Findings) -> Vec<String> {
    let all = findings.scenarios.iter().flat_map(|(scenario, checks)| {
        checks.iter().flat_map(move |(check, outcomes)| outcomes.iter().map(move |outcome| (scenario, check, outcome)))
    });
    all.filter(|(.., outcome)| outcome.status == "FAILURE")
        .map(|(scenario, check, outcome)| format!("{scenario}: {check}: {}", outcome.complaint))
        .collect()
}

#[test]
fn what_2025_11_25_requires_passes_through_the_gateway_as_directly() {
    let also = ["server-session-lifecycle", "server-sse-polling", "json-schema-2020-12"];
    pass_through_as_directly("2025-11-25", 30 + 3, &also);
}

#[test]
fn what_2026_07_28_requires_passes_through_the_gateway_as_directly() {
    let also = ["http-header-validation", "http-custom-header-server-validation", "json-schema-2020-12"];
    // Beside these the suite runs ten scenarios of the Tasks extension, which the server does not have.
    pass_through_as_directly("2026-07-28", 37 + 3 + 10, &also);
}

#[test]
fn a_server_that_believes_any_host_is_protected_from_dns_rebinding() {
    for revision in ["2025-11-25", "2026-07-28"] {
        let selection = Selection::Scenario("dns-rebinding-protection", revision);
        let (direct, through) = directly_and_through(Peer::trusting_fixture, selection);

        assert!(!direct.conforms, "the server does check: {direct:#?}");
        assert!(through.conforms, "{through:#?}");
    }
}

#[test]
fn server_everything_loses_nothing_and_gains_protection_from_dns_rebinding() {
    let (direct, through) = directly_and_through(Peer::everything, Selection::Requirements("2025-11-25"));

    let passes = |findings: &Findings, scenario: &str, check: &str| {
        let outcomes = findings.scenarios.get(scenario).and_then(|checks| checks.get(check));
        outcomes.is_some_and(|outcomes| outcomes.iter().all(|outcome| outcome.status == "SUCCESS"))
    };
    let checks =
        direct.scenarios.iter().flat_map(|(scenario, checks)| checks.keys().map(move |check| (scenario, check)));
    let passed: Vec<_> = checks.filter(|(scenario, check)| passes(&direct, scenario, check)).collect();
    assert!(passed.len() > 40, "directly passes: {passed:?}");
    let lost: Vec<_> = passed.iter().filter(|(scenario, check)| !passes(&through, scenario, check)).collect();
    assert!(lost.is_empty(), "lost: {lost:#?}\nthrough the gateway: {:#?}", complaints(&through));
    let foreign = "localhost-host-rebinding-rejected (DNSRebindingRejected)";
    assert!(!passes(&direct, "dns-rebinding-protection", foreign), "the server does check");
    assert!(passes(&through, "dns-rebinding-protection", foreign), "{:#?}", complaints(&through));
}

#[test]
fn without_its_token_the_suite_finds_nothing() {
    let server = Peer::fixture();
    let gateway = Gateway::start(&in_front_of(&server.url, EVERYTHING));

    let findings = suite::run(&gateway.url("up"), None, Selection::Scenario("ping", "2025-11-25"));

    assert!(!findings.conforms, "{findings:#?}");
}
