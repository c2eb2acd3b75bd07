//! The SSH upstream: real calls through the gateway to a real OpenSSH server, and what happens when that is not itself.

mod another_host;
mod approved;
mod clients;
mod configuration;
mod gate;
mod host;
mod house;
mod install;
mod links;
mod outcomes;
mod reload;
mod speed;
mod tools;
mod verify;
mod verify_loose;
mod verify_narrow;

use crate::support::agent::{Agent, Answer};
use crate::support::gateway::{Gateway, Launch};
use crate::support::sshd::{Setup, Sshd};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Lets everything through.
const EVERYTHING: &str = "    - { name: all, tools: [\"*/*\"], allow: {} }\n";

/// The two kinds of credential, and a host for each.
fn both_modes() -> [Setup; 2] {
    [Sshd::restricted(), Sshd::certificates()]
}

/// A gateway with an SSH upstream `prod` of these settings that answers.
#[track_caller]
fn start(settings: &str) -> Gateway {
    started(Launch::new(&config(settings, EVERYTHING, "")))
}

/// The same, about to start.
#[track_caller]
fn started(launch: Launch) -> Gateway {
    let gateway = launch.start();
    gateway.wait_for_log("upstream reached");
    gateway
}

/// A client of `prod`, in the newer era.
#[track_caller]
fn alice(gateway: &Gateway) -> Agent {
    gateway.agent("alice", "prod").modern()
}

/// The status of a project, as a tool.
#[track_caller]
fn status(agent: &Agent, project: &str) -> Answer {
    agent.tool("biscuit_status", json!({ "project": project }))
}

/// The example's actions, changed, in a file beside the host's keys.
#[track_caller]
fn actions(sshd: &Sshd, change: impl FnOnce(String) -> String) -> PathBuf {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/ssh/actions.example.yaml");
    let text = std::fs::read_to_string(example).expect("it is shipped");
    let path = sshd.key().with_file_name("actions.yaml");
    std::fs::write(&path, change(text)).expect("the folder is the test's");
    path
}

/// The process of the gateway's SSH upstream.
#[track_caller]
fn upstream_id(gateway: &Gateway) -> u32 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.id())).expect("it runs").flatten();
    let texts = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<u32> =
        texts.flat_map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect();
    let is_ssh = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"ssh")
    };
    children.into_iter().find(is_ssh).expect("the gateway has started it")
}

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
