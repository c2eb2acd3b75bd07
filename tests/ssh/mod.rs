//! The SSH upstream: real calls through the gateway to a real OpenSSH server, and what happens when that is not itself.

mod approved;
mod configuration;
mod host;
mod reload;
mod verify;

use crate::support::agent::Answer;
use serde_json::Value;

/// A gateway with an SSH upstream `prod` of these settings, with these rules (lines under `policy.rules`), and `more`.
fn config(settings: &str, rules: &str, more: &str) -> String {
    format!("upstreams:\n  prod: {{ ssh: {{ {settings} }} }}\npolicy:\n  rules:\n{rules}{more}")
}

/// The structured result of a tool, which must be there.
#[track_caller]
fn structured(answer: &Answer) -> Value {
    let result = answer.result();
    let structured = result.get("structuredContent").cloned();
    structured.unwrap_or_else(|| panic!("no structured result: {result:#}"))
}
