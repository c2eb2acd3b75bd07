//! The gateway is killed at each step from a held call to its result. Whatever the step: nothing runs twice, no decision is
//! lost, and of what nobody knows a person has to say what became of it.
//!
//! The real binary kills itself at the named point, as by SIGKILL (`src/fault.rs`).

use super::decide::{all, approve, config, id, of_one_name, only, say, wait_for_held, wait_for_state};
use crate::support::gateway::{Gateway, Launch};
use crate::support::process;
use crate::support::recorder::Recorder;
use serde_json::{Value, json};
use std::thread;

const FAULT: &str = "PORTCULLIS_FAULT";

fn rounds() -> usize {
    // `make soak` has more.
    std::env::var("PORTCULLIS_TEST_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// A recorder and a gateway that is killed at `point`, with a token.
fn start(point: &str) -> (Recorder, Gateway, String) {
    let recorder = Recorder::start();
    let gateway = Launch::new(&of_one_name(&config(&recorder.url(), "wait: 10s"))).env(FAULT, point).start();
    gateway.wait_until_asked("up");
    let token = gateway.token("alice", "up");
    (recorder, gateway, token)
}

fn arguments() -> Value {
    json!({ "n": 1 })
}

/// Makes the call until it is answered or the gateway is dead; does this meanwhile.
fn call_while(gateway: &Gateway, token: &str, meanwhile: impl FnOnce()) {
    let agent = gateway.agent_with(token, "up");
    let (request, _) = agent.request("tools/call", json!({ "name": "danger", "arguments": arguments() }));
    thread::scope(|scope| {
        scope.spawn(|| request.is_answered_by(agent.address));
        meanwhile();
    });
}

/// Makes the call, has it approved, and gives its result.
#[track_caller]
fn runs_now(gateway: &Gateway, token: &str, n_held: usize) -> Value {
    let agent = gateway.agent_with(token, "up");
    thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", arguments()));
        let held = wait_for_held(gateway, n_held);
        if held["state"] == "pending" {
            approve(gateway, &held);
        }
        call.join().expect("it is answered").result()
    })
}

/// Killed before anybody was asked for a decision, or right after.
fn before_the_decision(point: &str, n_kept: usize) {
    for _ in 0..rounds() {
        let (recorder, gateway, token) = start(point);
        call_while(&gateway, &token, || {});

        let gateway = gateway.restart_after_death();
        assert_eq!(all(&gateway).len(), n_kept);
        if n_kept > 0 {
            assert_eq!(only(&gateway)["state"], "pending");
        }
        assert!(recorder.calls().is_empty());
        assert_eq!(runs_now(&gateway, &token, 1)["structuredContent"], arguments());
        assert_eq!((all(&gateway).len(), recorder.calls().len()), (1, 1));
    }
}

/// Killed after the decision was acknowledged and before the approval was used up: it is as good as before.
fn before_the_use(point: &str) {
    for _ in 0..rounds() {
        let (recorder, gateway, token) = start(point);
        call_while(&gateway, &token, || approve(&gateway, &wait_for_held(&gateway, 1)));

        let gateway = gateway.restart_after_death();
        assert_eq!(only(&gateway)["state"], "approved", "no decision is lost");
        assert!(recorder.calls().is_empty());
        assert_eq!(
            gateway.agent_with(&token, "up").tool("danger", arguments()).result()["structuredContent"],
            arguments()
        );
        assert_eq!((all(&gateway).len(), recorder.calls().len()), (1, 1));
    }
}

/// Killed after the approval was used up and before the end was written down: nobody knows.
fn in_between(point: &str, n_sent: usize) {
    for _ in 0..rounds() {
        let (recorder, gateway, token) = start(point);
        call_while(&gateway, &token, || approve(&gateway, &wait_for_held(&gateway, 1)));

        let gateway = gateway.restart_after_death();
        let held = only(&gateway);
        wait_for_state(&gateway, id(&held), "indeterminate");
        assert_eq!(recorder.calls().len(), n_sent, "{point}");
        let agent = gateway.agent_with(&token, "up");
        for _ in 0..2 {
            let refused = agent.tool("danger", arguments()).refusal();
            assert!(refused.contains("Nobody knows whether this call ran") && refused.contains(id(&held)), "{refused}");
        }
        assert_eq!((all(&gateway).len(), recorder.calls().len()), (1, n_sent));
        // Another call is nobody's concern.
        agent.tool("echo", json!({})).result();

        let what = if n_sent == 0 { "--did-not-run" } else { "--ran" };
        say(&gateway, "bob", &["resolve", id(&held), what]).success();
        let before = recorder.calls().len();
        assert_eq!(runs_now(&gateway, &token, 2)["structuredContent"], arguments());
        assert_eq!((all(&gateway).len(), recorder.calls().len()), (2, before + 1), "with an approval of its own");
    }
}

/// Killed after the end was written down: its result is there for who calls next.
fn after_the_end(point: &str) {
    for _ in 0..rounds() {
        let (recorder, gateway, token) = start(point);
        call_while(&gateway, &token, || approve(&gateway, &wait_for_held(&gateway, 1)));

        let gateway = gateway.restart_after_death();
        assert_eq!(only(&gateway)["state"], "completed");
        assert_eq!(recorder.calls().len(), 1);
        let late = gateway.agent_with(&token, "up").tool("danger", arguments()).result();
        assert!(late["content"][0]["text"].as_str().expect("a text").contains("did not run again"), "{late}");
        assert_eq!(late["structuredContent"], arguments());
        assert_eq!((all(&gateway).len(), recorder.calls().len()), (1, 1));
    }
}

#[test]
fn killed_before_a_call_is_held() {
    before_the_decision("approval.asking", 0);
}

#[test]
fn killed_when_a_call_is_held_and_not_yet_in_the_log() {
    before_the_decision("approval.held", 1);
}

#[test]
fn killed_when_a_call_is_held_and_in_the_log() {
    before_the_decision("approval.requested", 1);
}

#[test]
fn killed_when_a_caller_sees_the_approval() {
    before_the_use("approval.releasing");
}

#[test]
fn killed_when_the_approval_is_about_to_be_used() {
    before_the_use("approval.consuming");
}

#[test]
fn killed_when_the_approval_is_used_and_not_yet_in_the_log() {
    in_between("approval.consumed", 0);
}

#[test]
fn killed_when_the_call_is_about_to_be_sent() {
    in_between("approval.sending", 0);
}

#[test]
fn killed_when_the_server_has_begun_to_answer() {
    in_between("approval.sent", 1);
}

#[test]
fn killed_when_the_server_has_answered() {
    in_between("approval.answered", 1);
}

#[test]
fn killed_when_the_answer_is_kept_and_about_to_be_given() {
    after_the_end("approval.delivering");
}

#[test]
fn killed_when_the_answer_is_given_and_that_is_not_yet_noted() {
    after_the_end("approval.delivered");
}

/// Who decides can be killed, too: before the word counts nothing has happened, and once it does it stays.
#[test]
fn killed_while_somebody_decides() {
    for (point, state) in [("approval.deciding", "pending"), ("approval.decided", "approved")] {
        for _ in 0..rounds() {
            let recorder = Recorder::start();
            let gateway = Gateway::start(&config(&recorder.url(), "wait: 100ms"));
            gateway.wait_until_asked("up");
            let token = gateway.token("alice", "up");
            gateway.agent_with(&token, "up").tool("danger", arguments()).refusal();
            let held = only(&gateway);
            let mut bob = process::command(env!("CARGO_BIN_EXE_portcullis"));
            bob.arg("--config").arg(gateway.path("gateway.yaml")).args([
                "approvals",
                "approve",
                id(&held),
                "--as",
                "bob",
            ]);
            bob.arg("--digest").arg(held["digest"].as_str().expect("a digest"));
            bob.arg("--password-file").arg(gateway.password_file("bob")).env(FAULT, point);

            let died = process::run(&mut bob, b"");

            assert_eq!(died.status.code(), None, "killed: {died:#?}");
            assert_eq!(only(&gateway)["state"], state, "{point}");
            assert!(recorder.calls().is_empty());
            if state == "pending" {
                approve(&gateway, &held);
            }
            assert_eq!(runs_now(&gateway, &token, 1)["structuredContent"], arguments());
            assert_eq!((all(&gateway).len(), recorder.calls().len()), (1, 1));
        }
    }
}
