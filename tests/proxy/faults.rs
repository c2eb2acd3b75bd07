//! A bug inside the gateway (here: a panic where a test wants it) costs the request it befell and nothing else. (F-33)

use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use serde_json::json;

const RULES: &str = r#"- { name: all, tools: ["up/*"], allow: {} }"#;

fn start(point: &str) -> (Recorder, Gateway) {
    let recorder = Recorder::start();
    let gateway = Launch::new(&in_front_of(&recorder.url(), RULES)).env("PORTCULLIS_FAULT", point).start();
    gateway.wait_until_asked("up");
    (recorder, gateway)
}

/// What is told of the request that broke; and of the one after it, which must not know of it.
fn told(gateway: &Gateway, recorder: &Recorder, kind: &str, n_forwarded: usize) {
    let agent = gateway.agent("alice", "up");
    let (request, _) = agent.request("tools/call", json!({ "name": "echo", "arguments": {} }));
    let answer = request.send(gateway.agent);
    assert_eq!((answer.status, &answer.json()["error"]["data"]["code"]), (500, &json!("gateway.broken")));
    assert_eq!(recorder.calls().len(), n_forwarded);

    agent.tool("echo", json!({})).result();
    assert_eq!(recorder.calls().len(), n_forwarded + 1);
    wait_for("a record", || gateway.audit().iter().any(|record| record["code"] == "gateway.broken"));
    let broken = gateway.audit().into_iter().find(|record| record["code"] == "gateway.broken").expect("there is one");
    assert_eq!((&broken["event"], &broken["outcome"]), (&json!(kind), &json!("broken")));
    assert_eq!(broken["request"].as_str(), answer.header("x-request-id"));
    wait_for("an idle gateway", || gateway.metric("portcullis_requests_in_flight") == 0.0);
    gateway.wait_for_metric(r#"portcullis_refusals_total{code="gateway.broken",route="up"}"#, 1.0);
    gateway.wait_for_log("told to, at call.");
}

#[test]
fn a_panic_before_the_decision_is_told_and_recorded_and_nothing_is_forwarded() {
    let (recorder, gateway) = start("panic:call.judging");
    told(&gateway, &recorder, "refused", 0);
}

#[test]
fn a_panic_after_the_call_was_sent_leaves_a_decision_and_a_result_that_says_so() {
    let (recorder, gateway) = start("panic:call.answering");
    told(&gateway, &recorder, "result", 1);
}
