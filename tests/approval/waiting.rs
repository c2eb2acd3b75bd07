//! What a caller gets while its call is held, by the universal way, which every client understands.

use super::decide::{self, approve, config, deny, id, only, wait_for_held, wait_for_state};
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use serde_json::{Value, json};
use std::thread;

fn start(recorder: &Recorder, more: &str) -> Gateway {
    let gateway = Gateway::start(&config(&recorder.url(), more));
    gateway.wait_until_asked("up");
    gateway
}

#[test]
fn a_held_call_waits_is_approved_and_runs_once() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", json!({ "b": 1, "a": [true, "x"] })));
        let held = wait_for_held(&gateway, 1);
        recorder.assert_untouched(mark);
        approve(&gateway, &held);
        call.join().expect("it is answered")
    });

    assert_eq!(answer.result()["structuredContent"], json!({ "a": [true, "x"], "b": 1 }));
    let calls = recorder.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].json()["params"], json!({ "name": "danger", "arguments": { "a": [true, "x"], "b": 1 } }));
    assert_eq!(wait_for_state(&gateway, id(&only(&gateway)), "completed")["note"], Value::Null);
}

#[test]
fn a_call_that_nobody_decides_on_in_time_says_so_and_joins_when_it_comes_again() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 1s");
    let agent = gateway.agent("alice", "up").modern();
    let mark = recorder.mark();

    let answer = agent.tool("danger", json!({}));

    let held = only(&gateway);
    let text = answer.refusal();
    for said in [id(&held), "`risky`", "user `bob`", held["expires_at"].as_str().unwrap(), "exactly the same arguments"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    let about = &answer.result()["_meta"]["portcullis/approval"];
    assert_eq!((about["id"].as_str(), about["state"].as_str()), (Some(id(&held)), Some("pending")));
    agent.tool("danger", json!({})).refusal();
    assert_eq!(only(&gateway)["id"], held["id"]);
    recorder.assert_untouched(mark);
    approve(&gateway, &held);
    assert_eq!(agent.tool("danger", json!({})).result()["content"][0]["text"], "danger");
    assert_eq!(recorder.calls().len(), 1);
    // It was for one run.
    agent.tool("danger", json!({})).refusal();
    assert_eq!((decide::all(&gateway).len(), recorder.calls().len()), (2, 1));
}

#[test]
fn a_denied_call_says_why_and_stays_denied() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", json!({})));
        deny(&gateway, &wait_for_held(&gateway, 1), "not on a Friday");
        call.join().expect("it is answered")
    });

    for answer in [answer, agent.tool("danger", json!({}))] {
        let text = answer.refusal();
        assert!(text.contains("not on a Friday") && text.contains(id(&only(&gateway))), "{text}");
    }
    recorder.assert_untouched(mark);
}
