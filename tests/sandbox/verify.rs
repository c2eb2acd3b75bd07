//! `portcullis verify sandbox`: what is claimed holds; and where nothing confines, the verifier says so.

use super::config;
use crate::support::gateway::Gateway;
use crate::support::process::{self, Finished};
use portcullis_sandbox::verify::CLAIMS;
use portcullis_sandbox::verify::claims::{Scope, Tried};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Little, so that more than that is there on any machine.
pub(super) const LIMITS: &str =
    "quota: 64MiB, reserve: 16MiB, tmp: 16MiB, memory: 192MiB, processes: 64, cpu_percent: 30";
/// A machine can be very busy; nothing is decided by this.
const LONG: Duration = Duration::from_secs(300);
/// Probes of what can be had too much of.
const LOADS: [&str; 5] = ["forks", "memory", "fill", "big-file", "burn"];

/// What every Linux has for root, or for anybody: here the control succeeds.
const CONTROLLED: [&str; 20] = [
    "host-file",
    "host-file-by-proc",
    "shadow",
    "programs",
    "core-pattern",
    "mknod-char",
    "setuid-fchmodat",
    "setuid-openat2",
    "tcp",
    "udp",
    "unix",
    "abstract",
    "signal",
    "ptrace",
    "proc-mem",
    "environment",
    "descriptor",
    "capabilities",
    "unshare-mount",
    "hostname",
];

/// What was found of these claims, by name. The exit status is what the findings say.
#[track_caller]
pub(super) fn findings(gateway: &Gateway, ids: &[&str], more: &[&str]) -> BTreeMap<String, Value> {
    let Finished { status, stdout, stderr } = verify(gateway, ids, &[&["--json"], more].concat());
    let document: Value = serde_json::from_str(&stdout).unwrap_or_else(|why| panic!("{why}: {stdout}{stderr}"));
    let list = document["findings"].as_array().expect("a list of findings");
    let found: BTreeMap<String, Value> =
        list.iter().map(|finding| (finding["id"].as_str().expect("a name").to_owned(), finding.clone())).collect();
    let has = |verdict: &str| found.values().any(|finding| finding["verdict"] == verdict);
    assert_eq!(status.code(), Some(i32::from(has("fail") || !has("pass"))), "{stdout}{stderr}");
    found
}

#[track_caller]
pub(super) fn verify(gateway: &Gateway, ids: &[&str], more: &[&str]) -> Finished {
    let file = gateway.path("gateway.yaml");
    let mut command = process::command(env!("CARGO_BIN_EXE_portcullis"));
    command.arg("--config").arg(file).args(["verify", "sandbox"]).args(more);
    ids.iter().for_each(|id| _ = command.args(["--claim", id]));
    process::run_within(LONG, &mut command, b"")
}

#[track_caller]
pub(super) fn all_hold(found: &BTreeMap<String, Value>, ids: &[&str]) {
    for id in ids {
        let finding = found.get(*id).unwrap_or_else(|| panic!("`{id}` was not looked at"));
        assert_ne!(finding["verdict"], "fail", "{finding:#}");
    }
    assert_eq!(found.len(), ids.len(), "{:?}", found.keys());
}

fn ids(is_meant: impl Fn(&Tried) -> bool) -> Vec<&'static str> {
    CLAIMS.iter().filter(|claim| claim.scope != Scope::Gvisor && is_meant(&claim.tried)).map(|claim| claim.id).collect()
}

fn is_load(tried: &Tried) -> bool {
    matches!(tried, Tried::Probe(line) if LOADS.iter().any(|load| line.starts_with(load)))
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

#[test]
fn what_a_command_must_not_reach_is_out_of_its_reach_and_in_reach_without_a_confinement() {
    let gateway = Gateway::start(&config(LIMITS));
    let ids = ids(|tried| matches!(tried, Tried::Probe(_)) && !is_load(tried));
    assert!(ids.len() > 90, "{}", ids.len());

    let confined = findings(&gateway, &ids, &[]);
    let bare = findings(&gateway, &ids, &["--without-confinement"]);

    all_hold(&confined, &ids);
    let passed = |found: &BTreeMap<String, Value>, id: &str| found[id]["verdict"] == "pass";
    assert!(!bare.keys().any(|id| passed(&bare, id)), "nothing is held: {bare:#?}");
    for id in ids.iter().filter(|id| passed(&confined, id)) {
        assert_eq!(bare[*id]["verdict"], "fail", "{id}: {:#}", bare[*id]);
    }
    for id in CONTROLLED.iter().filter(|_| is_root()) {
        assert!(passed(&confined, id), "{:#}", confined[*id]);
    }
    if is_root() {
        assert!(passed(&confined, "operator-socket"), "the gateway runs: {:#}", confined["operator-socket"]);
        assert!(passed(&confined, "upstream-socket"), "{:#}", confined["upstream-socket"]);
    }
}

#[test]
fn more_than_is_allowed_cannot_be_had() {
    let gateway = Gateway::start(&config(LIMITS));
    let ids = ids(is_load);

    let found = findings(&gateway, &ids, &[]);

    all_hold(&found, &ids);
    for id in ["fork-bomb", "memory-bomb", "tmp-flood", "workspace-flood", "big-file"] {
        assert_eq!(found[id]["verdict"], "pass", "{:#}", found[id]);
    }
}

#[test]
fn nothing_outlives_its_command_and_no_command_sees_another() {
    let gateway = Gateway::start(&config(LIMITS));
    let ids = ids(|tried| matches!(tried, Tried::Check(_)));

    let found = findings(&gateway, &ids, &[]);

    all_hold(&found, &ids);
    assert!(found.values().all(|finding| finding["verdict"] == "pass"), "{found:#?}");
}

#[test]
fn the_file_tools_are_led_nowhere() {
    let gateway = Gateway::start(&config(LIMITS));
    let ids = ids(|tried| matches!(tried, Tried::Game(_)));

    let found = findings(&gateway, &ids, &[]);

    all_hold(&found, &ids);
    assert!(found.values().all(|finding| finding["verdict"] == "pass"), "{found:#?}");
}

#[test]
fn what_cannot_be_verified_is_said() {
    let gateway = Gateway::start(&config(LIMITS));

    let unknown_claim = verify(&gateway, &["no-such-claim"], &[]);
    let unknown_upstream = verify(&gateway, &[], &["--upstream", "other"]);

    assert_eq!(unknown_claim.status.code(), Some(2));
    assert!(unknown_claim.stderr.contains("there is no claim `no-such-claim`"), "{}", unknown_claim.stderr);
    assert_eq!(unknown_upstream.status.code(), Some(2));
    assert!(unknown_upstream.stderr.contains("no sandbox `other`"), "{}", unknown_upstream.stderr);
}
