//! The sandbox on gVisor: it holds, real work is done in it, and nothing of it is left.

use super::verify::{LIMITS, all_hold, findings, verify};
use super::{agent, cgroups, config, done, output};
use crate::support::gateway::{Gateway, Launch};
use crate::support::{sdk, wait_for};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;

/// A gateway whose sandbox runs on gVisor, or nothing where there is none.
#[track_caller]
fn on_gvisor(settings: &str) -> Option<Gateway> {
    let runsc = std::fs::read(sdk::runsc()?).expect("it was found");
    let gateway = with_runsc(&format!("backend: gvisor, program: runsc, {settings}"), &runsc);
    gateway.wait_for_log("upstream reached");
    Some(gateway)
}

/// A gateway with this program as `runsc` beside its configuration, where the sandbox's own user can reach it.
#[track_caller]
fn with_runsc(settings: &str, program: &[u8]) -> Gateway {
    let launch = Launch::new(&config(settings)).file("runsc", program);
    for path in ["", "runsc"] {
        let all_may = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(launch.path(path), all_may).expect("the folder is ours");
    }
    launch.start()
}

#[test]
fn it_is_held_on_gvisor_too_by_a_kernel_of_its_own() {
    let Some(runsc) = sdk::runsc() else { return };
    let runsc = std::fs::read(runsc).expect("it was found");
    let gateway = with_runsc(&format!("backend: gvisor, program: runsc, {LIMITS}"), &runsc);
    let ids = [
        "kernel",
        "host-file",
        "setuid-fchmodat",
        "setuid-openat",
        "setuid-mknodat",
        "tcp",
        "unix",
        "abstract",
        "signal",
        "environment",
        "descriptor",
        "memory-bomb",
        "leftovers",
        "link-absolute",
    ];

    let found = findings(&gateway, &ids, &[]);

    all_hold(&found, &ids);
    for id in ["kernel", "host-file", "setuid-fchmodat", "tcp", "signal", "environment", "leftovers", "link-absolute"] {
        assert_eq!(found[id]["verdict"], "pass", "{:#}", found[id]);
    }
}

#[test]
fn a_gvisor_that_cannot_confine_is_no_upstream() {
    let missing = Gateway::start(&config("backend: gvisor, program: /nonexistent/runsc"));
    // As the one of 2022: it knows no -pass-fd.
    let old = with_runsc("backend: gvisor, program: runsc", b"#!/bin/sh\necho run [flags] container-id\n");
    let call = |gateway: &Gateway| {
        super::agent(gateway, "alice").tool("run_command", serde_json::json!({ "command": "echo ran" })).error().1
    };

    let of_missing = verify(&missing, &["kernel"], &[]);
    let of_old = verify(&old, &["kernel"], &[]);

    assert_eq!(of_missing.status.code(), Some(1));
    assert!(of_missing.stderr.contains("/nonexistent/runsc cannot be used"), "{}", of_missing.stderr);
    assert_eq!(of_old.status.code(), Some(1));
    assert!(of_old.stderr.contains("is too old") && of_old.stderr.contains("backports"), "{}", of_old.stderr);
    for gateway in [&missing, &old] {
        assert!(call(gateway).contains("does not run right now"), "{}", call(gateway));
    }
}

#[test]
fn real_work_is_done_on_gvisor() {
    let Some(gateway) = on_gvisor("memory: 512MiB, cpu_percent: 200") else { return };
    let agent = agent(&gateway, "alice");
    let program = "#include <stdio.h>\nint main(void) { puts(\"made here\"); return 0; }\n";
    done(&agent.tool("write_file", json!({ "path": "made.c", "content": program })));

    let built = output(&agent, "cc -Wall -o made made.c && ./made && uname -r");
    let tested = output(
        &agent,
        "python3 -c 'import multiprocessing as m, sqlite3, tempfile; \
         print(m.Pool(2).map(abs, [-1, -2]), sqlite3.connect(\"kept.db\").execute(\"select 3\").fetchone())'",
    );
    let kept = output(&agent, "ls && ./made");

    assert!(built.starts_with("made here\n4.4.0"), "on another kernel than the host's: {built}");
    assert_eq!(tested, "[1, 2] (3,)\n");
    assert!(kept.ends_with("made here\n"), "what was built is there for the next call: {kept}");
    let file = gateway.path("workspace/user-alice/made");
    assert!(file.exists(), "and it is an ordinary file outside");
}

#[test]
fn a_killed_gateway_leaves_nothing_of_gvisor() {
    let Some(gateway) = on_gvisor(LIMITS) else { return };
    let id = gateway.id();
    let agent = agent(&gateway, "alice");
    let line = "trap '' TERM; touch begun; (setsid sleep 600 &); sleep 600";
    let (request, _) = agent.request("tools/call", json!({ "name": "run_command", "arguments": { "command": line } }));
    let _connection = agent.open(&request);
    wait_for("the command", || gateway.path("workspace/user-alice/begun").exists());
    assert!(!cgroups(id).is_empty());

    let again = gateway.crash_and_restart();

    // One with a process in it cannot be removed.
    wait_for("the end of all cgroups", || cgroups(id).is_empty());
    again.wait_for_log("upstream reached");
}
