//! The audit log of a running gateway: what is in it, that no edit of it goes unnoticed, where else it goes, and what an
//! auditor and the author of a policy get from it.

mod arguments;
mod ceiling;
mod chain;
mod commands;
mod faults;
mod kills;
mod log;
mod plant;
mod replay;
mod rotating;
mod secrets;
mod sinks;

use crate::support::agent::Answer;
use crate::support::gateway::Gateway;
use crate::support::wait_for;
use serde_json::Value;

/// The id that an answer names.
fn id(answer: &Answer) -> String {
    answer.response.header("x-request-id").expect("every answer has one").to_owned()
}

/// What a command prints, as one JSON object a line.
#[track_caller]
fn lines(gateway: &Gateway, arguments: &[&str]) -> Vec<Value> {
    let printed = gateway.cli(arguments).success().stdout;
    printed.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"))).collect()
}

/// What a command prints, as one JSON object.
#[track_caller]
fn document(gateway: &Gateway, arguments: &[&str]) -> Value {
    let mut lines = lines(gateway, arguments);
    assert_eq!(lines.len(), 1, "{arguments:?} prints one object");
    lines.remove(0)
}

/// Waits until so many records of calls that ended are there: they are written after the answer.
#[track_caller]
fn wait_for_results(gateway: &Gateway, n: usize) {
    wait_for("the results", || gateway.audit().iter().filter(|record| record["event"] == "result").count() >= n);
}

/// The decision on a request.
#[track_caller]
fn decision(gateway: &Gateway, id: &str) -> Value {
    let is_it = |record: &Value| record["event"] == "decision" && record["request"] == id;
    gateway.audit().into_iter().find(is_it).unwrap_or_else(|| panic!("no decision on {id}"))
}
