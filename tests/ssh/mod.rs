//! The SSH upstream: real calls through the gateway to a real OpenSSH server, and what happens when that is not itself.

mod another_host;
mod approved;
mod configuration;
mod gate;
mod host;
mod install;
mod reload;
mod speed;
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

/// The processes whose command lines hold `mark`.
fn processes(mark: &str) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    };
    ids.filter(|id| *id != std::process::id() && holds(id)).collect()
}
