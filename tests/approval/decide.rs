//! The people of these tests, at the command line: what is held, and their word on it.

use crate::support::gateway::Gateway;
use crate::support::process::Finished;
use crate::support::{gateway, wait_for};
use serde_json::Value;

/// Every held call there is, latest first.
#[track_caller]
pub(crate) fn all(gateway: &Gateway) -> Vec<Value> {
    let listed = gateway.cli(&["approvals", "list", "--all", "--json"]).success().stdout;
    serde_json::from_str(&listed).expect("a list")
}

/// The one held call there is.
#[track_caller]
pub(crate) fn only(gateway: &Gateway) -> Value {
    let mut all = all(gateway);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// Waits for the `n`th held call, and gives the latest.
#[track_caller]
pub(crate) fn wait_for_held(gateway: &Gateway, n: usize) -> Value {
    let mut latest = Value::Null;
    wait_for(&format!("held call {n}"), || {
        let all = all(gateway);
        latest = all.first().cloned().unwrap_or_default();
        all.len() >= n
    });
    latest
}

/// Waits until this held call stands so.
#[track_caller]
pub(crate) fn wait_for_state(gateway: &Gateway, id: &str, state: &str) -> Value {
    let mut seen = Value::Null;
    wait_for(&format!("{id} to be {state}"), || {
        seen = all(gateway).into_iter().find(|one| one["id"] == id).unwrap_or_default();
        seen["state"] == state
    });
    seen
}

/// `bob` approves.
#[track_caller]
pub(crate) fn approve(gateway: &Gateway, held: &Value) {
    let digest = held["digest"].as_str().expect("a digest");
    say(gateway, "bob", &["approve", id(held), "--digest", digest]).success();
}

/// `bob` denies, for this reason.
#[track_caller]
pub(crate) fn deny(gateway: &Gateway, held: &Value, reason: &str) {
    say(gateway, "bob", &["deny", id(held), "--reason", reason]).success();
}

/// Any word of anybody.
#[track_caller]
pub(crate) fn say(gateway: &Gateway, who: &str, words: &[&str]) -> Finished {
    let file = gateway.password_file(who);
    let file = file.to_str().expect("temporary paths are UTF-8");
    let (first, rest) = words.split_first().expect("a word");
    gateway.cli(&[&["approvals", first], rest, &["--as", who, "--password-file", file]].concat())
}

/// The id of a held call.
#[track_caller]
pub(crate) fn id(held: &Value) -> &str {
    held["id"].as_str().expect("an id")
}

/// `up/danger` is held for `bob`, everything else of `up` is let through.
pub(crate) const RULES: &str = "- { name: risky, tools: [up/danger], hold: { approvers: { users: [bob] } } }\n\
                                - { name: rest, tools: [\"up/*\"], allow: {} }";

/// A gateway in front of this URL, with [`RULES`], and with `more` in `approvals`.
pub(crate) fn config(url: &str, more: &str) -> String {
    config_with(url, RULES, more)
}

/// The same with other rules.
pub(crate) fn config_with(url: &str, rules: &str, more: &str) -> String {
    format!("{}approvals: {{ {more} }}\n", gateway::in_front_of(url, rules))
}

/// The same gateway under a name that does not change with its port: a call is the same call after a restart, and at
/// another process.
pub(crate) fn of_one_name(yaml: &str) -> String {
    format!("public_url: http://localhost:8080\n{yaml}")
}

/// The code that answers of this gateway are counted under, as soon as one is.
#[track_caller]
pub(crate) fn wait_for_refusal(gateway: &Gateway, code: &str) {
    gateway.wait_for_metric(&format!("portcullis_refusals_total{{code=\"{code}\",route=\"up\"}}"), 1.0);
}
