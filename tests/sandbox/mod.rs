//! The sandbox behind the gateway: a shell and files, through the real program, with the real confinement.

mod arguments;
mod clients;
mod gvisor;
mod leftovers;
mod starts;
mod supervision;
mod verify;
mod without_root;
mod work;

use crate::support::PATIENCE;
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::{Gateway, Launch};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio::time::Instant;

/// Lets everything through.
const EVERYTHING: &str = "policy: { rules: [{ name: all, tools: [\"*/*\"], allow: {} }] }";

/// The configuration of a sandbox with these settings (what stands in `sandbox: { … }`).
fn config(settings: &str) -> String {
    format!("upstreams:\n  sandbox: {{ sandbox: {{ {settings} }} }}\n{EVERYTHING}\n")
}

/// A gateway with a sandbox behind it that answers.
#[track_caller]
fn start(settings: &str) -> Gateway {
    started(Launch::new(&config(settings)))
}

/// The same, about to start.
#[track_caller]
fn started(launch: Launch) -> Gateway {
    let gateway = launch.start();
    gateway.wait_for_log("upstream reached");
    gateway
}

/// A client of the sandbox, in the newer era.
#[track_caller]
fn agent(gateway: &Gateway, user: &str) -> Agent {
    gateway.agent(user, "sandbox").modern()
}

/// What a command came to, which must have run.
#[track_caller]
fn run(agent: &Agent, command: &str) -> Value {
    done(&agent.tool("run_command", json!({ "command": command })))
}

/// The structured result of a tool, which must be there.
#[track_caller]
fn done(answer: &Answer) -> Value {
    let result = answer.result();
    let structured = result.get("structuredContent").cloned();
    structured.unwrap_or_else(|| panic!("no structured result: {result:#}"))
}

/// What a command wrote to stdout. It must have ended with 0.
#[track_caller]
fn output(agent: &Agent, command: &str) -> String {
    let result = run(agent, command);
    assert_eq!(result["exit_code"], 0, "{result:#}");
    result["stdout"].as_str().expect("an output").to_owned()
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

/// The process of the gateway's one sandbox.
#[track_caller]
fn upstream_id(gateway: &Gateway) -> u32 {
    let children = children(gateway.id());
    let is_sandbox = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"sandbox")
    };
    children.into_iter().find(is_sandbox).expect("the gateway has started its sandbox")
}

/// The children of a process, whatever thread of it has started them.
fn children(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let texts = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    texts.flat_map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The cgroups that this gateway has made, those of commands included.
fn cgroups(gateway_id: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    find_cgroups(Path::new("/sys/fs/cgroup"), &format!("portcullis-{gateway_id}-"), 0, &mut found);
    found
}

fn find_cgroups(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) || depth > 8 {
            continue;
        }
        let is_ours = entry.file_name().to_string_lossy().starts_with(prefix);
        let is_inside = folder.to_string_lossy().contains(prefix);
        if is_ours || is_inside {
            found.push(entry.path());
        }
        find_cgroups(&entry.path(), prefix, depth + 1, found);
    }
}

/// Waits for what takes its time by design.
#[track_caller]
fn wait_longer(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + 3 * PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// What is mounted on this host.
fn mounts() -> usize {
    std::fs::read_to_string("/proc/self/mountinfo").expect("there is /proc").lines().count()
}
