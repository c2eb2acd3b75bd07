//! A held call in rounds (MCP 2026-07-28): a page to show, a state to bring back, and nothing gained by either.

use super::super::decide::{all, approve, deny, id, only, wait_for_held, wait_for_state};
use super::{PUBLIC_URL, config_with, shows_pages, start};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

const QUESTION: &str = "portcullis-approval";

/// The state of an answer that asks its client to come back.
#[track_caller]
fn state(answer: &Answer) -> Value {
    let result = answer.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    assert!(result["requestState"].is_string(), "{result}");
    result["requestState"].clone()
}

/// Comes back with a state, and with the action of its person where there was a question.
#[track_caller]
fn come_back(agent: &Agent, arguments: &Value, state: &Value, action: Option<&str>) -> Answer {
    let mut params = json!({ "name": "danger", "arguments": arguments, "requestState": state });
    if let Some(action) = action {
        params["inputResponses"] = json!({ QUESTION: { "action": action } });
    }
    agent.call("tools/call", params)
}

#[test]
fn a_client_that_can_show_a_page_shows_it_comes_back_and_has_the_result() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = shows_pages(&gateway);
    let mark = recorder.mark();

    let first = agent.tool("danger", json!({ "a": 1 }));

    let held = only(&gateway);
    let question = first.result()["inputRequests"][QUESTION].clone();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["mode"], "url");
    assert_eq!(question["params"]["url"], format!("{PUBLIC_URL}/holds/{}", id(&held)));
    assert!(question["params"]["message"].as_str().unwrap().contains("`danger`"), "{question}");
    recorder.assert_untouched(mark);
    let answer = thread::scope(|scope| {
        let again = scope.spawn(|| come_back(&agent, &json!({ "a": 1 }), &state(&first), Some("accept")));
        approve(&gateway, &held);
        again.join().expect("it is answered")
    });
    // As it came, without a line about its being late.
    assert_eq!(answer.result()["content"], json!([{ "type": "text", "text": "danger" }]));
    let calls = recorder.calls();
    assert_eq!(calls.len(), 1);
    let params = calls[0].json()["params"].clone();
    assert_eq!(
        (&params["arguments"], &params["requestState"], &params["inputResponses"]),
        (&json!({ "a": 1 }), &Value::Null, &Value::Null)
    );
    assert_eq!(all(&gateway).len(), 1);
}

#[test]
fn each_round_lasts_as_long_as_a_caller_waits_and_asks_nothing_more() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 2s");
    let agent = shows_pages(&gateway);
    let mark = recorder.mark();
    let first = agent.tool("danger", json!({}));
    let begun = Instant::now();

    let second = come_back(&agent, &json!({}), &state(&first), Some("accept"));

    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(second.result()["inputRequests"], Value::Null, "the person is asked once");
    assert_ne!(state(&second), state(&first));
    let third = come_back(&agent, &json!({}), &state(&second), None);
    state(&third);
    // Nobody has approved anything by opening a page.
    assert_eq!(only(&gateway)["state"], "pending");
    recorder.assert_untouched(mark);
}

#[test]
fn before_clients_give_up_a_call_in_rounds_is_answered_in_words() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 1s");
    let agent = shows_pages(&gateway);
    let mut answer = agent.tool("danger", json!({}));
    let mut n_asked = 0;

    while answer.result()["resultType"] == "input_required" {
        n_asked += 1;
        answer = come_back(&agent, &json!({}), &state(&answer), None);
    }

    // The SDKs come back ten times.
    assert_eq!(n_asked, 9);
    let text = answer.refusal();
    assert!(text.contains("exactly the same arguments") && text.contains(id(&only(&gateway))), "{text}");
}

#[test]
fn a_person_who_does_not_want_to_see_the_page_takes_nothing_back() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = shows_pages(&gateway);
    let first = agent.tool("danger", json!({}));

    for action in ["decline", "cancel"] {
        let text = come_back(&agent, &json!({}), &state(&first), Some(action)).refusal();
        assert!(text.contains("takes nothing back") && text.contains("exactly the same arguments"), "{text}");
    }

    let held = only(&gateway);
    assert_eq!(held["state"], "pending");
    approve(&gateway, &held);
    assert_eq!(agent.tool("danger", json!({})).result()["content"][0]["text"], "danger");
}

#[test]
fn a_denial_is_the_answer_of_the_round() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = shows_pages(&gateway);
    let mark = recorder.mark();
    let first = agent.tool("danger", json!({}));

    let answer = thread::scope(|scope| {
        let again = scope.spawn(|| come_back(&agent, &json!({}), &state(&first), Some("accept")));
        deny(&gateway, &only(&gateway), "not that one");
        again.join().expect("it is answered")
    });

    assert!(answer.refusal().contains("not that one"));
    assert!(come_back(&agent, &json!({}), &state(&first), None).refusal().contains("not that one"));
    recorder.assert_untouched(mark);
}

/// a state is good for what it was made for, and gives nothing but the way back.
#[test]
fn a_state_that_was_changed_or_belongs_elsewhere_brings_nothing_back() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 2s");
    let agent = shows_pages(&gateway);
    let first = state(&agent.tool("danger", json!({ "a": 1 })));
    let text = first.as_str().expect("a state");
    let flipped = json!(format!("{}{}", if text.starts_with('A') { "B" } else { "A" }, &text[1..]));
    let page = json!({ "elicitation": { "url": {} } });
    let bob = gateway.agent("bob", "up").modern().with_capabilities(page.clone());
    let other = gateway.issue("alice", "up", &["--client", "other"]).success().stdout;
    let other = gateway.agent_with(other.trim(), "up").modern().with_capabilities(page);
    let a1 = json!({ "a": 1 });
    let mark = recorder.mark();

    for (case, refused) in [
        ("tampered", come_back(&agent, &a1, &flipped, None)),
        ("cut", come_back(&agent, &a1, &json!(text[..text.len() - 2]), None)),
        ("another principal", come_back(&bob, &a1, &first, None)),
        ("another client", come_back(&other, &a1, &first, None)),
        ("other arguments", come_back(&agent, &json!({ "a": 2 }), &first, None)),
        ("no arguments", come_back(&agent, &json!({}), &first, None)),
        ("another tool", agent.call("tools/call", json!({ "name": "echo", "arguments": a1, "requestState": first }))),
    ] {
        let error = refused.message["error"]["data"]["code"].clone();
        assert_eq!((refused.status(), refused.error().0, error), (200, -32602, json!("mcp.state")), "{case}");
    }
    recorder.assert_untouched(mark);
    assert_eq!(all(&gateway).len(), 1, "nothing new was held");

    // Order and white space make no other call.
    approve(&gateway, &only(&gateway));
    let body = agent.request("tools/call", json!({ "name": "danger", "arguments": a1, "requestState": first })).0;
    assert_eq!(agent.post(body.body_bytes().to_vec()).result()["content"][0]["text"], "danger");
    // Used up, it gives no second run and no second result.
    // (That it was given is written down after it was.)
    let is_used = || come_back(&agent, &a1, &first, None).message["error"]["data"]["code"] == "mcp.state";
    wait_for("the state to be used up", is_used);
    assert_eq!((recorder.calls().len(), all(&gateway).len()), (1, 1));
}

#[test]
fn a_state_of_ours_never_reaches_a_server_whatever_the_rules_have_become() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 1s");
    let agent = shows_pages(&gateway);
    let first = agent.tool("danger", json!({}));
    let rules = "- { name: all, tools: [\"up/*\"], allow: {} }";
    gateway.rewrite(&config_with(&recorder.url(), rules, ""));
    gateway.reload().success();

    let allowed = come_back(&agent, &json!({}), &state(&first), Some("accept"));

    allowed.result();
    let params = recorder.calls()[0].json()["params"].clone();
    assert_eq!((&params["requestState"], &params["inputResponses"]), (&Value::Null, &Value::Null));
}

/// asks for input in the first round, and answers in the second.
#[test]
fn the_rounds_of_a_server_and_ours_are_kept_apart_and_its_second_is_a_call_of_its_own() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| {
        if request.rpc_method() != "tools/call" || request.json()["params"].get("inputResponses").is_some() {
            return Reply::mcp(request);
        }
        let ask = json!({ "q": { "method": "elicitation/create", "params": { "mode": "form", "message": "where?" } } });
        Reply::result(
            request,
            &json!({ "resultType": "input_required", "inputRequests": ask, "requestState": "theirs" }),
        )
    });
    let gateway = start(&recorder, "wait: 30s");
    let agent = shows_pages(&gateway);
    let run = |gateway: &Gateway, n: usize, first: &Answer, arguments: &Value| {
        thread::scope(|scope| {
            let again = scope.spawn(|| come_back(&agent, arguments, &state(first), Some("accept")));
            approve(gateway, &wait_for_held(gateway, n));
            again.join().expect("it is answered")
        })
    };
    let asked = run(&gateway, 1, &agent.tool("danger", json!({})), &json!({}));
    let theirs = state(&asked);
    assert_eq!(asked.result()["inputRequests"]["q"]["params"]["message"], "where?");
    assert_ne!(theirs, "theirs", "it passes sealed");

    // The client answers the server, and that is held anew: what it answers was approved by nobody.
    let mut params = json!({ "name": "danger", "arguments": {}, "requestState": theirs });
    params["inputResponses"] = json!({ "q": { "action": "accept", "content": { "where": "prod" } } });
    let held_again = agent.call("tools/call", params);
    assert_eq!(recorder.calls().len(), 1);
    assert_eq!(held_again.result()["inputRequests"][QUESTION]["params"]["mode"], "url");
    // As SDKs do, it comes back with what it began with: what it had answered is in our state.
    let answer = run(&gateway, 2, &held_again, &json!({}));

    answer.result();
    let calls = recorder.calls();
    assert_eq!(calls.len(), 2);
    let params = calls[1].json()["params"].clone();
    assert_eq!(params["requestState"], "theirs");
    assert_eq!(params["inputResponses"], json!({ "q": { "action": "accept", "content": { "where": "prod" } } }));
}

#[test]
fn what_one_request_declared_says_nothing_about_the_next() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 1s");
    let form_only = gateway.agent("alice", "up").modern().with_capabilities(json!({ "elicitation": { "form": {} } }));
    state(&shows_pages(&gateway).tool("danger", json!({})));

    let text = form_only.tool("danger", json!({})).refusal();

    assert!(text.contains("exactly the same arguments"), "{text}");
    let mut legacy = gateway.agent("alice", "up").with_capabilities(json!({ "elicitation": { "url": {} } }));
    legacy.initialize();
    legacy.tool("danger", json!({})).refusal();
    wait_for_state(&gateway, id(&only(&gateway)), "pending");
}
