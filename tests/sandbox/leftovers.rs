//! What a command leaves on the host when it has ended, however it ended: nothing.

use super::{agent, cgroups, children, config, mounts, output, processes, run, start, started, upstream_id};
use crate::support::gateway::{Gateway, Launch};
use crate::support::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

/// Folders in the place for temporary ones that are ours.
fn temporary() -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("it is there").flatten();
    entries.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().starts_with("portcullis-")).collect()
}

/// Waits until of these commands nothing is there any more but what belongs to the upstream itself.
#[track_caller]
fn wait_until_gone(gateway: &Gateway, mark: &str, n_mounts: usize) {
    wait_for("the end of all processes", || processes(mark).is_empty());
    wait_for("the end of all cgroups of commands", || {
        cgroups(gateway.id()).iter().all(|folder| {
            let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
            name.starts_with("portcullis-") || name == "server"
        })
    });
    assert_eq!(mounts(), n_mounts);
    wait_for("the end of all children", || children(upstream_id(gateway)).is_empty());
}

#[test]
fn b76_fifty_commands_at_once_leave_nothing_and_keep_each_to_its_own() {
    let gateway = start("at_once: 64, memory: 64MiB, tmp: 1MiB");
    let agent = agent(&gateway, "alice");
    let (n_mounts, mark) = (mounts(), "mark-of-fifty");

    let outputs: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..50)
            .map(|n| {
                let agent = &agent;
                let line = format!(": {mark}; echo {n} >/tmp/n; (setsid sleep 600 &) ; sleep 0.2; cat /tmp/n; ls /tmp");
                scope.spawn(move || output(agent, &line))
            })
            .collect();
        all.into_iter().map(|one| one.join().expect("it ran")).collect()
    });

    for (n, output) in outputs.iter().enumerate() {
        assert_eq!(*output, format!("{n}\nn\n"));
    }
    wait_until_gone(&gateway, mark, n_mounts);
}

#[test]
fn b76_files_stay_from_call_to_call_and_are_nobody_elses() {
    let gateway = start("");
    let (alice, bob) = (agent(&gateway, "alice"), agent(&gateway, "bob"));

    alice.tool("write_file", json!({ "path": "kept.txt", "content": "mine" })).result();

    assert_eq!(output(&alice, "cat kept.txt; echo more >>kept.txt"), "mine");
    assert!(!output(&bob, "ls -A; ls -A /workspace/.. | tr '\\n' ' '").contains("user-alice"));
    assert_eq!(output(&alice, "cat kept.txt"), "minemore\n");
}

#[test]
fn b76_a_client_that_leaves_takes_its_command_with_it() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    let (n_mounts, mark) = (mounts(), "mark-of-leaving");
    let arguments = json!({ "command": format!(": {mark}; trap '' TERM; touch begun; sleep 600") });
    let (request, _) = agent.request("tools/call", json!({ "name": "run_command", "arguments": arguments }));

    let connection = agent.open(&request);
    wait_for("the command", || gateway.path("workspace/user-alice/begun").exists());
    drop(connection);

    wait_until_gone(&gateway, mark, n_mounts);
}

#[test]
fn b76_a_stopped_gateway_leaves_nothing() {
    let mut gateway = start("");
    let id = gateway.id();
    let agent = agent(&gateway, "alice");
    run(&agent, "true");
    assert!(!cgroups(id).is_empty(), "it had cgroups");

    assert!(gateway.stop().success());

    assert_eq!(cgroups(id), Vec::<std::path::PathBuf>::new());
    assert_eq!(std::fs::read_dir(gateway.path("data/run")).expect("it is there").count(), 0);
}

#[test]
fn b76_a_killed_upstream_leaves_nothing_of_its_commands() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    let (n_mounts, mark) = (mounts(), "mark-of-a-killed-upstream");
    let line = format!(": {mark}; trap '' TERM; touch begun; (setsid sleep 600 &); sleep 600");
    let (request, _) = agent.request("tools/call", json!({ "name": "run_command", "arguments": { "command": line } }));
    let _connection = agent.open(&request);
    wait_for("the command", || gateway.path("workspace/user-alice/begun").exists());

    kill(Pid::from_raw(upstream_id(&gateway).cast_signed()), Signal::SIGKILL).expect("it runs");

    wait_for("the next start", || gateway.metric("portcullis_upstream_starts_total{upstream=\"sandbox\"}") >= 2.0);
    wait_until_gone(&gateway, mark, n_mounts);
}

#[test]
fn b76_a_killed_gateway_leaves_nothing_at_all() {
    let gateway = started(Launch::new(&config("")));
    let (id, n_mounts, n_folders, mark) = (gateway.id(), mounts(), temporary().len(), "mark-of-a-killed-gateway");
    let agent = agent(&gateway, "alice");
    let line = format!(": {mark}; trap '' TERM; touch begun; (setsid sleep 600 &); sleep 600");
    let (request, _) = agent.request("tools/call", json!({ "name": "run_command", "arguments": { "command": line } }));
    let _connection = agent.open(&request);
    wait_for("the command", || gateway.path("workspace/user-alice/begun").exists());
    let started = children(id);

    let again = gateway.crash_and_restart();

    wait_for("the end of all processes", || {
        processes(mark).is_empty() && started.iter().all(|id| !std::path::Path::new(&format!("/proc/{id}")).exists())
    });
    wait_for("the end of all cgroups", || cgroups(id).is_empty());
    assert_eq!((mounts(), temporary().len()), (n_mounts, n_folders));
    again.wait_for_log("upstream reached");
    let sockets = std::fs::read_dir(again.path("data/run")).expect("it is there").count();
    assert_eq!(sockets, 1, "the sockets of the killed one are gone");
}
