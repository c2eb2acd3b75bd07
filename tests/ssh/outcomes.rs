//! How an action ended is told as it was: the status decides, the streams are kept apart, and what is not known is said.

use super::{actions, alice, both_modes, start, status, structured};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::sshd::Sshd;
use crate::support::wait_for;
use serde_json::{Value, json};

/// A host, a gateway in front of it, and a client.
struct Scene {
    sshd: Sshd,
    gateway: Gateway,
    agent: Agent,
}

impl Scene {
    #[track_caller]
    fn new(sshd: Sshd) -> Scene {
        Scene::with_timeout(sshd, "10m")
    }

    /// With this time for actions that only look.
    #[track_caller]
    fn with_timeout(sshd: Sshd, timeout: &str) -> Scene {
        let actions = actions(&sshd, |text| text.replace("timeout: 30s", &format!("timeout: {timeout}")));
        let gateway = start(&sshd.settings_with(sshd.port, &actions));
        let agent = alice(&gateway);
        Scene { sshd, gateway, agent }
    }

    /// What the status of `project-a` comes to when this is its hook: its structured result, and whether that is an error.
    #[track_caller]
    fn run(&self, hook: &str) -> (Value, bool) {
        self.sshd.hook("project-a", "status", hook);
        let answer = status(&self.agent, "project-a");
        (structured(&answer), answer.result()["isError"] == true)
    }

    /// Waits until something runs there that has this mark.
    #[track_caller]
    fn wait_until_runs(&self, mark: &str) {
        wait_for("the action", || !self.sshd.processes_with(mark).is_empty());
    }

    #[track_caller]
    fn wait_until_gone(&self, mark: &str) {
        wait_for("the end of all of it", || self.sshd.processes_with(mark).is_empty());
    }
}

#[test]
fn b74_the_exit_status_decides_and_each_stream_is_its_own() {
    for setup in both_modes() {
        let scene = Scene::new(setup.start());

        let (warned, is_error) = scene.run("echo out; echo warn >&2");
        assert!(!is_error, "{warned:#}");
        assert_eq!((&warned["stdout"], &warned["stderr"]), (&json!("out\n"), &json!("warn\n")));
        assert_eq!((&warned["ended"], &warned["exit_code"]), (&json!("exited"), &json!(0)));

        let (silent, is_error) = scene.run("exit 3");
        assert!(is_error, "{silent:#}");
        assert_eq!((&silent["exit_code"], &silent["stdout"], &silent["stderr"]), (&json!(3), &json!(""), &json!("")));

        let (killed, is_error) = scene.run("echo so far; kill -9 $$");
        assert!(is_error, "{killed:#}");
        // A shell runs it there, which says it so.
        assert_eq!((&killed["exit_code"], &killed["stdout"]), (&json!(137), &json!("so far\n")));
        assert_eq!(killed["stderr"], "");

        // What `ssh` says of itself, and what the script's own refusals begin with, are an action's to use.
        let (own, is_error) = scene.run("echo 'portcullis-gate: denied: not me' >&2; echo out; exit 77");
        assert!(is_error, "{own:#}");
        assert_eq!((&own["ended"], &own["exit_code"], &own["stdout"]), (&json!("exited"), &json!(77), &json!("out\n")));
        let (own, is_error) = scene.run("exit 255");
        assert!(is_error && own["ended"] == "exited" && own["exit_code"] == 255, "{own:#}");
    }
}

#[test]
fn b74_large_and_binary_outputs_are_cut_and_replaced_and_that_is_said() {
    let scene = Scene::new(Sshd::restricted().start());

    let (large, is_error) =
        scene.run("echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last; echo warned >&2");
    assert!(!is_error, "{large:#}");
    assert_eq!((&large["stdout_bytes"], &large["stdout_truncated"]), (&json!(5_000_012), &json!(true)));
    let stdout = large["stdout"].as_str().expect("an output");
    assert!(stdout.len() < 300 * 1024, "{}", stdout.len());
    assert!(stdout.starts_with("first\nxxx") && stdout.ends_with("xxx\nlast\n") && stdout.contains("left out"));
    assert_eq!((&large["stderr"], &large["stderr_truncated"]), (&json!("warned\n"), &json!(false)));

    let (binary, is_error) = scene.run("printf 'a\\377\\000b'; printf '\\033[2J' >&2");
    assert!(!is_error, "{binary:#}");
    assert_eq!(binary["stdout"], "a\u{fffd}\u{0}b");
    assert_eq!((&binary["stdout_bytes"], &binary["stdout_replaced"]), (&json!(4), &json!(true)));
    assert_eq!((&binary["stderr"], &binary["stderr_replaced"]), (&json!("\u{1b}[2J"), &json!(false)));
}

#[test]
fn b74_an_action_whose_time_is_over_ends_on_the_host_with_all_that_it_started() {
    for setup in both_modes() {
        let scene = Scene::with_timeout(setup.start(), "2s");
        let mark = "611720";

        let (late, is_error) = scene
            .run(&format!("echo so far; (trap '' TERM; exec sleep {mark}) & trap '' TERM; sleep {mark}; sleep {mark}"));

        assert!(is_error, "{late:#}");
        assert_eq!((&late["ended"], &late["stdout"]), (&json!("timed_out"), &json!("so far\n")), "{late:#}");
        scene.wait_until_gone(mark);
        // The twin: as long, within its time.
        let (in_time, is_error) = scene.run("echo so far; sleep 1; echo done");
        assert!(!is_error && in_time["stdout"] == "so far\ndone\n", "{in_time:#}");
    }
}

#[test]
fn the_hosts_own_limit_is_told_as_one() {
    let sshd = Sshd::restricted().start();
    sshd.host().limits(1, 600);
    let scene = Scene::new(sshd);

    let (late, is_error) = scene.run("echo so far; sleep 611721");

    assert!(is_error, "{late:#}");
    assert_eq!(
        (&late["ended"], &late["exit_code"], &late["stdout"]),
        (&json!("timed_out"), &json!(124), &json!("so far\n"))
    );
    let (own, _) = scene.run("exit 124");
    assert_eq!((&own["ended"], &own["exit_code"]), (&json!("exited"), &json!(124)));
}

#[test]
fn b74_an_action_whose_connection_breaks_is_not_known_and_not_sent_again() {
    for setup in both_modes() {
        let scene = Scene::new(setup.start());
        let mark = "611722";
        scene.sshd.hook("project-a", "status", &format!("echo once >>/home/deploy/runs; echo begun; sleep {mark}"));

        let answer = std::thread::scope(|scope| {
            let call = scope.spawn(|| status(&scene.agent, "project-a"));
            scene.wait_until_runs(mark);
            scene.sshd.kill_connections();
            call.join().expect("the call is answered")
        });

        let result = structured(&answer);
        assert!(answer.refusal().contains("not known"), "{}", answer.refusal());
        assert_eq!((&result["ended"], &result["exit_code"]), (&json!("lost"), &Value::Null), "{result:#}");
        let runs = std::fs::read_to_string(scene.sshd.home().join("runs")).expect("it has begun");
        assert_eq!(runs, "once\n", "an action is not sent twice");
        // The script sees that its client is gone, though nobody tells it.
        scene.wait_until_gone(mark);
        let (next, is_error) = scene.run("echo next");
        assert!(!is_error && next["stdout"] == "next\n", "{next:#}");
    }
}

#[test]
fn b74_what_a_host_prints_before_an_action_spoils_no_answer() {
    let banner = "\u{1b}[2J\u{1b}]0;owned\u{7}{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n".repeat(50);
    for setup in both_modes() {
        let sshd = setup.line("Banner /etc/banner").shell("/bin/bash").start();
        sshd.host().write("etc/banner", &banner);
        // What a login shell says is an action's output as well as any; nobody can tell them apart.
        sshd.host().write("home/.bashrc", "echo 'message of the day'; echo '{\"jsonrpc\":\"2.0\"}' >&2\n");
        let scene = Scene::new(sshd);

        let (result, is_error) = scene.run("echo out");

        assert!(!is_error, "{result:#}");
        assert_eq!(result["stdout"], "message of the day\nout\n");
        assert_eq!(result["stderr"], "{\"jsonrpc\":\"2.0\"}\n");
        assert!(!result.to_string().contains("owned"), "{result:#}");
        assert!(!scene.gateway.log().contains('\u{1b}'), "{}", scene.gateway.log());
    }
}

#[test]
fn b74_a_client_that_leaves_or_cancels_takes_its_action_with_it_but_not_a_deploy() {
    for setup in both_modes() {
        let scene = Scene::new(setup.start());
        let (look, deploy) = ("611723", "deployed");
        scene.sshd.hook(
            "project-a",
            "status",
            &format!("(trap '' TERM; exec sleep {look}) & echo begun; sleep {look}"),
        );
        let until = "echo begun >/home/deploy/began; until [ -e /home/deploy/go ]; do sleep 0.05; done";
        scene.sshd.hook(
            "project-a",
            "deploy",
            &format!("{until}; for n in $(seq 99); do echo $n || exit 1; done; touch /home/deploy/{deploy}"),
        );
        let call = |tool: &str| {
            let params = json!({ "name": tool, "arguments": { "project": "project-a" } });
            scene.agent.open(&scene.agent.request("tools/call", params).0)
        };

        // It closes its connection, which is how a client of the newer era cancels.
        let connection = call("biscuit_status");
        scene.wait_until_runs(look);
        drop(connection);
        scene.wait_until_gone(look);

        let connection = call("biscuit_deploy");
        wait_for("the deploy", || scene.sshd.home().join("began").exists());
        drop(connection);
        scene.sshd.host().write("home/go", "");
        wait_for("its end", || scene.sshd.home().join(deploy).exists());
        let (next, is_error) = scene.run("echo next");
        assert!(!is_error, "{next:#}");
    }
}

#[test]
fn b74_a_client_of_the_older_era_cancels_by_a_message() {
    let scene = Scene::new(Sshd::restricted().start());
    let mark = "611724";
    scene.sshd.hook("project-a", "status", &format!("echo begun; sleep {mark}"));
    let mut legacy = scene.gateway.agent("alice", "prod");
    legacy.initialize();
    let params = json!({ "name": "biscuit_status", "arguments": { "project": "project-a" } });
    let (request, id) = legacy.request("tools/call", params);

    let _connection = legacy.open(&request);
    scene.wait_until_runs(mark);
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    assert_eq!(legacy.post(cancel.to_string()).status(), 202);

    scene.wait_until_gone(mark);
}

#[test]
fn an_upstream_or_a_gateway_that_is_killed_leaves_no_action_that_only_looks() {
    let mut scene = Scene::new(Sshd::certificates().start());
    let mark = "611725";
    scene.sshd.hook("project-a", "status", &format!("echo begun; sleep {mark}"));
    let call = |agent: &Agent| {
        let params = json!({ "name": "biscuit_status", "arguments": { "project": "project-a" } });
        agent.open(&agent.request("tools/call", params).0)
    };

    let connection = call(&scene.agent);
    scene.wait_until_runs(mark);
    let upstream = nix::unistd::Pid::from_raw(super::upstream_id(&scene.gateway).cast_signed());
    nix::sys::signal::kill(upstream, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    scene.wait_until_gone(mark);
    drop(connection);
    wait_for("the next start", || scene.gateway.metric("portcullis_upstream_starts_total{upstream=\"prod\"}") >= 2.0);

    let connection = {
        wait_for("the upstream", || {
            let list = scene.agent.tool("biscuit_list", json!({}));
            list.message["result"]["structuredContent"]["exit_code"] == 0
        });
        call(&scene.agent)
    };
    scene.wait_until_runs(mark);
    scene.gateway = scene.gateway.crash_and_restart();
    scene.wait_until_gone(mark);
    drop(connection);
}
