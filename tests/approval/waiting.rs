//! What a caller gets while its call is held, by the universal way, which every client understands.

use super::decide::{
    self, all, approve, config, config_with, deny, id, only, say, wait_for_held, wait_for_refusal, wait_for_state,
};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::Gateway;
use crate::support::http::Response;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

fn start(recorder: &Recorder, more: &str) -> Gateway {
    let gateway = Gateway::start(&config(&recorder.url(), more));
    gateway.wait_until_asked("up");
    gateway
}

/// Calls, and does this with the held call in the meantime.
#[track_caller]
fn call_and(gateway: &Gateway, agent: &Agent, arguments: &Value, meanwhile: impl FnOnce(&Value)) -> Answer {
    let n = all(gateway).len();
    thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", arguments.clone()));
        meanwhile(&wait_for_held(gateway, n + 1));
        call.join().expect("it is answered")
    })
}

#[test]
fn a_held_call_waits_is_approved_and_runs_once() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let answer = call_and(&gateway, &agent, &json!({ "b": 1, "a": [true, "x"] }), |held| {
        recorder.assert_untouched(mark);
        approve(&gateway, held);
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
    let (text, until) = (answer.refusal(), held["expires_at"].as_str().expect("a time"));
    for said in [id(&held), "`risky`", "user `bob`", until, "exactly the same arguments"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let about = &answer.result()["_meta"]["portcullis/approval"];
    assert_eq!((about["id"].as_str(), about["state"].as_str()), (Some(id(&held)), Some("pending")));
    wait_for_refusal(&gateway, "policy.held");
    agent.tool("danger", json!({})).refusal();
    assert_eq!(only(&gateway)["id"], held["id"]);
    recorder.assert_untouched(mark);
    approve(&gateway, &held);
    assert_eq!(agent.tool("danger", json!({})).result()["content"][0]["text"], "danger");
    assert_eq!(recorder.calls().len(), 1);
    // It was for one run.
    agent.tool("danger", json!({})).refusal();
    assert_eq!((all(&gateway).len(), recorder.calls().len()), (2, 1));
}

#[test]
fn a_denied_call_says_why_and_stays_denied_until_it_is_reopened() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let first = call_and(&gateway, &agent, &json!({}), |held| deny(&gateway, held, "not on a Friday"));

    for answer in [first, agent.tool("danger", json!({}))] {
        let text = answer.refusal();
        assert!(text.contains("not on a Friday") && text.contains(id(&only(&gateway))), "{text}");
    }
    wait_for_refusal(&gateway, "approval.denied");
    recorder.assert_untouched(mark);
    let held = only(&gateway);
    say(&gateway, "bob", &["reopen", id(&held)]).success();
    approve(&gateway, &held);
    agent.tool("danger", json!({})).result();
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn what_expires_or_is_withdrawn_says_so_and_is_asked_for_anew() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 3s, expires: 4s");
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    agent.tool("danger", json!({})).refusal();
    let expired = agent.tool("danger", json!({}));
    let withdrawn = call_and(&gateway, &agent, &json!({}), |held| {
        say(&gateway, "bob", &["withdraw", id(held)]).success();
    });

    assert!(expired.refusal().contains("nobody decided in time"), "{expired:#?}");
    assert!(withdrawn.refusal().contains("withdrawn by bob"), "{withdrawn:#?}");
    wait_for_refusal(&gateway, "approval.expired");
    wait_for_refusal(&gateway, "approval.withdrawn");
    recorder.assert_untouched(mark);
    call_and(&gateway, &agent, &json!({}), |held| approve(&gateway, held)).result();
    assert_eq!((all(&gateway).len(), recorder.calls().len()), (3, 1));
}

#[test]
fn who_has_as_many_undecided_calls_as_they_may_gets_no_further_one_held() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 100ms, pending: 2");
    let alice = gateway.agent("alice", "up");
    let mark = recorder.mark();

    for n in 0..2 {
        assert!(alice.tool("danger", json!({ "n": n })).refusal().contains("is held"));
    }
    let refused = alice.tool("danger", json!({ "n": 2 }));

    assert!(refused.refusal().contains("as many calls waiting"), "{refused:#?}");
    wait_for_refusal(&gateway, "approval.too_many");
    assert_eq!(all(&gateway).len(), 2);
    // What is held already is joined, and others have their own.
    assert!(alice.tool("danger", json!({ "n": 1 })).refusal().contains("is held"));
    assert!(gateway.agent("bob", "up").tool("danger", json!({ "n": 2 })).refusal().contains("is held"));
    recorder.assert_untouched(mark);
    approve(&gateway, all(&gateway).iter().find(|one| one["requester"]["person"] == "alice").expect("one of hers"));
    assert!(alice.tool("danger", json!({ "n": 2 })).refusal().contains("is held"), "there is room again");
}

#[test]
fn a_number_that_might_not_be_what_runs_is_not_held() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 100ms");
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    for number in ["9007199254740993", "1e400", "0.10000000000000000555"] {
        let call = crate::support::gate::call("danger", &format!(r#"{{"n":{number}}}"#));
        let (request, _) = agent.request("tools/call", json!({}));
        let refused = agent.send(&request.body(call), Some(&json!(7))).refusal();
        assert!(refused.contains(number) && refused.contains("cannot be held"), "{refused}");
    }

    wait_for_refusal(&gateway, "approval.arguments");
    assert!(all(&gateway).is_empty());
    recorder.assert_untouched(mark);
    agent.post(crate::support::gate::call("danger", r#"{"n":9007199254740991}"#)).refusal();
    assert_eq!(all(&gateway).len(), 1);
}

#[test]
fn a_tool_that_its_server_does_not_list_is_not_held() {
    let recorder = Recorder::start();
    let rules = "- { name: all, tools: [\"up/*\"], hold: { approvers: { users: [bob] } } }";
    let gateway = Gateway::start(&config_with(&recorder.url(), rules, "wait: 100ms"));
    let agent = gateway.agent("alice", "up");

    let refused = agent.tool("unlisted", json!({}));

    assert!(refused.refusal().contains("does not list the tool"), "{refused:#?}");
    wait_for_refusal(&gateway, "approval.definition");
    assert!(all(&gateway).is_empty() && recorder.calls().is_empty());
    assert!(agent.tool("echo", json!({})).refusal().contains("is held"));
}

#[test]
fn a_stream_begins_at_once_and_progress_is_told_where_a_token_was_given() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");
    let params = json!({ "name": "danger", "arguments": {}, "_meta": { "progressToken": "7" } });
    let (request, _) = agent.request("tools/call", params);
    let mut connection = agent.open(&request);

    let mut stream = connection.streaming();
    let first = stream.event().expect("a sign of life");
    assert!(first.data.is_empty() && !first.comments.is_empty(), "{first:?}");
    let told = stream.message().expect("a notification");
    assert_eq!((&told["method"], &told["params"]["progressToken"]), (&json!("notifications/progress"), &json!("7")));
    let held = only(&gateway);
    let said = told["params"]["message"].as_str().expect("a text");
    assert!(said.contains("held for approval") && said.contains(id(&held)), "{said}");
    // The server counts for itself, and the number grows with every word.
    recorder.answer_with(|request: &Recorded| {
        if request.rpc_method() != "tools/call" {
            return Reply::mcp(request);
        }
        let progress = |n: f64| {
            let params = json!({ "progressToken": "7", "progress": n, "total": 1 });
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        };
        let answer = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": { "content": [] } });
        Reply::sse(&[progress(0.0), progress(0.5), progress(0.25), progress(1.0), answer])
    });
    approve(&gateway, &held);

    let mut messages = Vec::new();
    while let Some(message) = stream.message() {
        messages.push(message);
    }
    assert_eq!(recorder.calls()[0].json()["params"]["_meta"], json!({ "progressToken": "7" }));
    let numbers: Vec<f64> = messages.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(messages.last().expect("the answer")["result"], json!({ "content": [] }));
}

#[test]
fn a_client_that_takes_no_stream_waits_in_silence() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");
    let (request, id) = agent.request("tools/call", json!({ "name": "danger", "_meta": { "progressToken": 1 } }));
    let request = request.without("Accept").header("Accept", "application/json");

    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| agent.send(&request, Some(&id)));
        approve(&gateway, &wait_for_held(&gateway, 1));
        call.join().expect("it is answered")
    });

    assert!(!answer.response.is_stream(), "{answer:#?}");
    assert_eq!(answer.result()["content"][0]["text"], "danger");
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn a_gateway_that_stops_answers_who_waits_and_what_runs_ends_first() {
    let recorder = Recorder::start();
    let mut gateway = start(&recorder, "wait: 5m");
    let (release, answers) = std::sync::mpsc::channel::<()>();
    let answers = std::sync::Mutex::new(answers);
    recorder.answer_with(move |request| {
        if request.rpc_method() == "tools/call" {
            // Until the test has its way, or is over.
            let _ = answers.lock().expect("no recorder thread panics").recv();
        }
        Reply::mcp(request)
    });
    let agent = gateway.agent("alice", "up");

    let (waited, ran) = thread::scope(|scope| {
        let ran = scope.spawn(|| agent.tool("danger", json!({ "n": 1 })));
        approve(&gateway, &wait_for_held(&gateway, 1));
        wait_for("the call to run", || recorder.calls().len() == 1);
        let waited = scope.spawn(|| agent.tool("danger", json!({ "n": 2 })));
        wait_for_held(&gateway, 2);
        gateway.wait_for_metric("portcullis_approvals_waiting", 2.0);
        gateway.signal("TERM");
        let waited = waited.join().expect("it is answered");
        release.send(()).expect("the server waits");
        (waited, ran.join().expect("it is answered"))
    });

    assert!(waited.refusal().contains("exactly the same arguments"), "{waited:#?}");
    assert_eq!(ran.result()["structuredContent"], json!({ "n": 1 }));
    assert!(gateway.stop().success());
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn in_a_batch_a_held_call_does_not_wait_and_the_others_are_answered() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| match request.rpc_method().as_str() {
        "initialize" => {
            let version = request.json()["params"]["protocolVersion"].clone();
            let about = json!({ "name": "s", "version": "1" });
            let result = json!({ "protocolVersion": version, "capabilities": {}, "serverInfo": about });
            Reply::result(request, &result).header("Mcp-Session-Id", "theirs")
        }
        _ => Reply::mcp(request),
    });
    let gateway = start(&recorder, "wait: 5m");
    let mut agent = gateway.agent("alice", "up").of_revision("2025-03-26");
    agent.initialize();
    let call = |id: u64, tool: &str| {
        let params = json!({ "name": tool, "arguments": {} });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let batch = json!([call(1, "danger"), call(2, "echo")]).to_string();
    let send = || -> Vec<Value> {
        let request = agent.bare("POST").header("Content-Type", "application/json");
        let response: Response = request.header("Accept", "application/json").body(batch.clone()).send(agent.address);
        response.json().as_array().expect("an array").clone()
    };
    let began = Instant::now();

    let answers = send();

    assert!(began.elapsed() < Duration::from_secs(60), "nobody waited");
    assert_eq!(answers[0]["result"]["isError"], true);
    assert_eq!(answers[1]["result"]["content"][0]["text"], "echo");
    approve(&gateway, &only(&gateway));
    let answers = send();
    assert_eq!(answers[0]["result"]["content"][0]["text"], "danger");
    assert_eq!(recorder.calls().iter().filter(|call| call.json()["params"]["name"] == "danger").count(), 1);
}

#[test]
fn the_log_tells_the_story_of_a_held_call() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");

    let answer = call_and(&gateway, &agent, &json!({ "n": 1 }), |held| approve(&gateway, held));

    answer.result();
    let held = decide::only(&gateway);
    let request = answer.response.header("x-request-id").expect("every answer has one");
    let of_it = |record: &Value| record["approval"] == held["id"];
    wait_for("the result", || gateway.audit().iter().any(|one| of_it(one) && one["event"] == "result"));
    let told: Vec<Value> = gateway.audit().into_iter().filter(of_it).collect();
    for (event, key, value) in [
        ("approval.requested", "request", request),
        ("decision", "decision", "held"),
        ("approval.decided", "decision", "allowed"),
        ("approval.consumed", "request", request),
        ("approval.ended", "outcome", "completed"),
        ("result", "request", request),
    ] {
        let found: Vec<&Value> = told.iter().filter(|one| one["event"] == event).collect();
        assert_eq!(found.len(), 1, "{event}: {told:#?}");
        assert_eq!(found[0][key], value, "{event}");
        assert_eq!(found[0]["digest"], held["digest"], "{event}");
    }
    assert!(!told.iter().any(|one| one.to_string().contains("\"n\"")), "no argument of it: {told:#?}");
}
