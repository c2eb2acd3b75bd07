//! One approval, one run: however many callers make the call, of however many processes, and whoever leaves meanwhile.

use super::decide::{all, approve, config, id, of_one_name, only, wait_for_held, wait_for_state};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::{Gateway, Launch};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// Calls wait at the server until they are let go, one word for each.
fn slow(recorder: &Recorder) -> Sender<()> {
    let (release, released) = channel();
    let released = Mutex::new(released);
    recorder.answer_with(move |request: &Recorded| {
        if request.rpc_method() == "tools/call" {
            // Until the test has its way, or is over.
            let _ = released.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        Reply::mcp(request)
    });
    release
}

fn callers() -> usize {
    // `make soak` has more.
    std::env::var("PORTCULLIS_TEST_CALLERS").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

#[test]
fn of_many_who_make_the_same_call_at_two_processes_one_runs_it_and_all_have_the_result() {
    let recorder = Recorder::start();
    let shared = tempfile::TempDir::new().expect("a temporary folder");
    let yaml = of_one_name(&config(&recorder.url(), "wait: 2m"));
    let yaml = format!("{yaml}data_dir: {}\n", shared.path().join("data").display());
    let (one, two) = (Launch::new(&yaml).start(), Launch::new(&yaml).start());
    one.wait_until_asked("up");
    two.wait_until_asked("up");
    let token = one.token("alice", "up");
    let agents = [one.agent_with(&token, "up"), two.agent_with(&token, "up")];
    let (n, release) = (callers(), slow(&recorder));

    let answers: Vec<Answer> = thread::scope(|scope| {
        let call = |at: usize| {
            let agent = &agents[at % 2];
            move || agent.tool("danger", json!({ "n": 1 }))
        };
        let calls: Vec<_> = (0..n).map(|at| scope.spawn(call(at))).collect();
        let held = wait_for_held(&one, 1);
        let half = f64::from(u32::try_from(n / 2).expect("a small number"));
        one.wait_for_metric("portcullis_approvals_waiting", half);
        two.wait_for_metric("portcullis_approvals_waiting", half);
        approve(&two, &held);
        wait_for("the call to run", || !recorder.calls().is_empty());
        release.send(()).expect("the server waits");
        calls.into_iter().map(|call| call.join().expect("it is answered")).collect()
    });

    assert_eq!(answers.len(), n);
    for answer in &answers {
        assert_eq!(answer.result()["structuredContent"], json!({ "n": 1 }));
        assert_eq!(answer.result()["content"], json!([{ "type": "text", "text": "danger" }]), "as it is");
    }
    assert_eq!(recorder.calls().len(), 1);
    assert_eq!(only(&one)["state"], "completed");
    one.cli(&["audit", "verify"]).success();
}

/// Calls, and leaves as soon as the call runs.
fn call_and_leave(gateway: &Gateway, agent: &Agent, recorder: &Recorder) -> Value {
    let (request, _) = agent.request("tools/call", json!({ "name": "danger", "arguments": { "n": 1 } }));
    let connection = agent.open(&request);
    let held = wait_for_held(gateway, 1);
    approve(gateway, &held);
    wait_for("the call to run", || !recorder.calls().is_empty());
    connection.reset();
    held
}

#[test]
fn who_left_while_it_ran_gets_the_kept_result_once_and_nothing_runs_again() {
    for modern in [false, true] {
        let recorder = Recorder::start();
        let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s"));
        gateway.wait_until_asked("up");
        let agent = gateway.agent("alice", "up");
        let agent = if modern { agent.modern() } else { agent };
        let release = slow(&recorder);
        let held = call_and_leave(&gateway, &agent, &recorder);
        // It goes on without its client.
        release.send(()).expect("the server waits");
        wait_for_state(&gateway, id(&held), "completed");

        let late = agent.tool("danger", json!({ "n": 1 })).result();

        let said = late["content"][0]["text"].as_str().expect("a text");
        let ran = all(&gateway)[0]["consumed_at"].as_str().expect("a time").to_owned();
        assert!(said.contains(id(&held)) && said.contains(&ran) && said.contains("did not run again"), "{said}");
        assert_eq!(late["content"][1]["text"], "danger");
        assert_eq!(late["structuredContent"], json!({ "n": 1 }));
        assert_eq!(recorder.calls().len(), 1);
        // Once: after that it is a call like any other.
        let agent = &agent;
        thread::scope(|scope| {
            let again = scope.spawn(move || agent.tool("danger", json!({ "n": 1 })));
            assert_ne!(wait_for_held(&gateway, 2)["id"], held["id"]);
            assert_eq!(recorder.calls().len(), 1);
            super::decide::deny(&gateway, &all(&gateway)[0], "enough");
            again.join().expect("it is answered").refusal();
        });
    }
}

#[test]
fn who_leaves_before_the_decision_leaves_the_call_held_and_an_approval_waits_for_them() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s"));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let (request, _) = agent.request("tools/call", json!({ "name": "danger", "arguments": { "n": 1 } }));
    let connection = agent.open(&request);
    assert_eq!(wait_for_held(&gateway, 1)["is_caller_waiting"], true);

    let left = Instant::now();
    connection.reset();

    wait_for("it to be seen that nobody waits", || only(&gateway)["is_caller_waiting"] == false);
    assert!(left.elapsed() < Duration::from_secs(10), "at once, not when nothing was heard of it for long");
    assert_eq!(only(&gateway)["state"], "pending");
    approve(&gateway, &only(&gateway));
    assert_eq!(only(&gateway)["state"], "approved");
    // Another call of theirs is no sign of this one.
    agent.tool("echo", json!({})).result();
    assert_eq!(recorder.calls().len(), 1);
    agent.tool("danger", json!({ "n": 1 })).result();
    assert_eq!((recorder.calls().len(), all(&gateway).len()), (2, 1));
}

#[test]
fn who_left_and_comes_back_while_it_runs_joins_the_run() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s"));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let release = slow(&recorder);
    call_and_leave(&gateway, &agent, &recorder);
    wait_for("it to be seen that nobody waits", || gateway.metric("portcullis_approvals_waiting") < 0.5);

    let answer = thread::scope(|scope| {
        let again = scope.spawn(|| agent.tool("danger", json!({ "n": 1 })));
        gateway.wait_for_metric("portcullis_approvals_waiting", 1.0);
        release.send(()).expect("the server waits");
        again.join().expect("it is answered")
    });

    assert_eq!(answer.result()["content"], json!([{ "type": "text", "text": "danger" }]));
    assert_eq!((recorder.calls().len(), all(&gateway).len()), (1, 1));
}

#[test]
fn a_result_is_kept_for_its_time_only() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s, keep_result: 1ms"));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let release = slow(&recorder);
    let held = call_and_leave(&gateway, &agent, &recorder);
    release.send(()).expect("the server waits");
    wait_for_state(&gateway, id(&held), "completed");

    thread::scope(|scope| {
        let again = scope.spawn(|| agent.tool("danger", json!({ "n": 1 })));
        let anew = wait_for_held(&gateway, 2);
        assert_ne!(anew["id"], held["id"]);
        super::decide::deny(&gateway, &anew, "enough");
        again.join().expect("it is answered").refusal();
    });
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn a_call_that_ran_longer_than_its_server_may_take_ends_as_failed_and_is_not_run_again() {
    let recorder = Recorder::start();
    let yaml = config(&recorder.url(), "wait: 30s");
    let url = format!("url: \"{}\"", recorder.url());
    let yaml = yaml.replace(&url, &format!("{url}, timeouts: {{ answer: 1s, total: 1s }}"));
    let gateway = Gateway::start(&yaml);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let _release = slow(&recorder);

    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", json!({})));
        approve(&gateway, &wait_for_held(&gateway, 1));
        call.join().expect("it is answered")
    });

    let (number, text) = answer.error();
    assert_eq!(number, -32603);
    assert_eq!(answer.message["error"]["data"]["code"], "upstream.timeout");
    assert!(text.contains("Whether it ran is not known") && text.contains(id(&only(&gateway))), "{text}");
    assert_eq!(only(&gateway)["state"], "failed");
    assert_eq!(recorder.calls().len(), 1);
}
