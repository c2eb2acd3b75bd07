//! Batches: only in a session of revision 2025-03-26, and every message in one is judged as if it had come alone.

use super::{EVERYTHING, code};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use serde_json::{Value, json};

/// Answers `initialize` with the revision it was asked for, and gives sessions.
fn server() -> Recorder {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| {
        if request.rpc_method() != "initialize" {
            return Reply::mcp(request);
        }
        let version = request.json()["params"]["protocolVersion"].clone();
        let result =
            json!({ "protocolVersion": version, "capabilities": {}, "serverInfo": { "name": "s", "version": "1" } });
        Reply::result(request, &result).header("Mcp-Session-Id", "theirs")
    });
    recorder
}

fn in_session(gateway: &Gateway, revision: &'static str) -> Agent {
    let mut agent = gateway.agent("alice", "up").of_revision(revision);
    agent.initialize();
    agent
}

fn call(id: u64, tool: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": { "n": id } } })
}

/// The answers of a batch by their ids, whichever form they came in.
fn answers(agent: &Agent, batch: &Value, accept: &str) -> Vec<Value> {
    let request = agent.bare("POST").header("Content-Type", "application/json").header("Accept", accept);
    let response = request.body(batch.to_string()).send(agent.address);
    assert_eq!(response.status, 200, "{}", response.text());
    if response.is_stream() {
        return response.events().iter().filter(|event| !event.data.is_empty()).map(|event| event.json()).collect();
    }
    response.json().as_array().expect("an array answers a batch").clone()
}

#[test]
fn each_message_of_a_batch_is_judged_alone() {
    let recorder = server();
    let gateway = Gateway::in_front_of(&recorder, r#"[{ name: echo, tools: ["up/echo"], allow: {} }]"#);
    gateway.wait_until_asked("up");
    let agent = in_session(&gateway, "2025-03-26");
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {} });
    let batch = json!([call(1, "echo"), call(2, "delete"), note, call(3, "echo")]);
    let mark = recorder.mark();

    for accept in ["application/json", "application/json, text/event-stream", "text/event-stream"] {
        let answers = answers(&agent, &batch, accept);

        let ids: Vec<&Value> = answers.iter().map(|answer| &answer["id"]).collect();
        assert_eq!(ids, [1, 2, 3], "{accept}");
        assert_eq!(answers[1]["error"]["data"]["code"], "policy.unlisted");
        assert!(answers[0]["result"].is_object() && answers[2]["result"].is_object(), "{answers:?}");
    }

    let arrived = recorder.requests_since(mark);
    assert!(arrived.iter().all(|request| request.json().is_object()), "one at a time");
    let tools: Vec<Value> =
        arrived.iter().filter(|r| r.rpc_method() == "tools/call").map(|r| r.json()["params"]["name"].clone()).collect();
    assert_eq!(tools, ["echo"; 6]);
    let decisions =
        gateway.audit().into_iter().filter(|event| event["event"] == "decision" && event["method"] == "tools/call");
    let words: Vec<Value> = decisions.map(|event| event["decision"].clone()).collect();
    assert_eq!(words, ["allowed", "denied", "allowed"].repeat(3));
}

#[test]
fn a_batch_that_wants_no_answer_is_accepted() {
    let recorder = server();
    let gateway =
        Gateway::start(&format!("upstreams: {{ up: {{ http: {{ url: \"{}\" }} }} }}\n{EVERYTHING}", recorder.url()));
    gateway.wait_until_asked("up");
    let agent = in_session(&gateway, "2025-03-26");
    let mark = recorder.mark();

    let accepted = agent.post(
        json!([
            { "jsonrpc": "2.0", "method": "notifications/initialized" },
            { "jsonrpc": "2.0", "id": 4, "result": {} },
        ])
        .to_string(),
    );

    assert_eq!((accepted.status(), accepted.response.body.len()), (202, 0));
    assert_eq!(recorder.requests_since(mark).len(), 2);
}

#[test]
fn every_other_session_and_every_broken_batch_is_refused_whole() {
    let recorder = server();
    let gateway =
        Gateway::start(&format!("upstreams: {{ up: {{ http: {{ url: \"{}\" }} }} }}\n{EVERYTHING}", recorder.url()));
    gateway.wait_until_asked("up");
    let old = in_session(&gateway, "2025-03-26");
    let (june, november) = (in_session(&gateway, "2025-06-18"), in_session(&gateway, "2025-11-25"));
    let (mut none, modern) = (in_session(&gateway, "2025-03-26"), gateway.agent("alice", "up").modern());
    none.session = None;
    let good = json!([call(1, "echo")]).to_string();
    let mark = recorder.mark();

    for (whose, agent) in [("june", &june), ("november", &november), ("none", &none), ("modern", &modern)] {
        let refused = agent.post(good.clone());
        assert_eq!((refused.status(), code(&refused)), (400, "jsonrpc.batch"), "{whose}");
    }
    let many: Vec<Value> = (0..65).map(|n| call(n, "echo")).collect();
    for broken in [
        "[]".to_owned(),
        "[1]".to_owned(),
        format!("[{},1]", call(1, "echo")),
        format!("[{0},{0}", call(1, "echo")),
        json!([[call(1, "echo")]]).to_string(),
        json!([{ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {} }]).to_string(),
        json!(many).to_string(),
    ] {
        let refused = old.post(broken.clone());
        assert_eq!(refused.status(), 400, "{broken}");
    }
    recorder.assert_untouched(mark);
    assert_eq!(answers(&old, &json!([call(1, "echo")]), "application/json")[0]["id"], 1);
}

#[test]
fn a_failure_in_a_batch_is_one_of_its_events_for_who_takes_only_those() {
    let recorder = server();
    let gateway =
        Gateway::start(&format!("upstreams: {{ up: {{ http: {{ url: \"{}\" }} }} }}\n{EVERYTHING}", recorder.url()));
    gateway.wait_until_asked("up");
    let agent = in_session(&gateway, "2025-03-26");
    recorder.answer_next(Reply::new(400, ""));

    let answers = answers(&agent, &json!([call(1, "echo"), call(2, "echo")]), "text/event-stream");

    assert_eq!(answers[0]["error"]["data"]["code"], "upstream.status");
    assert_eq!((&answers[1]["id"], answers.len()), (&json!(2), 2));
}

#[test]
fn the_answers_of_a_batch_take_no_more_memory_than_one_may() {
    let recorder = server();
    let gateway = Gateway::start(&format!(
        "limits: {{ answer: 64KiB }}\nupstreams: {{ up: {{ http: {{ url: \"{}\" }} }} }}\n{EVERYTHING}",
        recorder.url()
    ));
    gateway.wait_until_asked("up");
    let agent = in_session(&gateway, "2025-03-26");
    let result = json!({ "content": [{ "type": "text", "text": "x".repeat(40_000) }] });
    recorder.answer_with(move |request| Reply::result(request, &result));
    let batch = json!((0..5).map(|n| call(n, "echo")).collect::<Vec<Value>>());
    let mark = recorder.mark();

    let whole = answers(&agent, &batch, "application/json");

    let codes: Vec<&Value> = whole.iter().map(|answer| &answer["error"]["data"]["code"]).collect();
    let refused = json!("jsonrpc.batch");
    assert_eq!(codes, [&Value::Null, &Value::Null, &refused, &refused, &refused]);
    assert_eq!(recorder.requests_since(mark).len(), 2, "what has no room for its answer is not sent");
    // Events go out one by one, and need no room.
    let events = answers(&agent, &batch, "application/json, text/event-stream");
    assert!(events.iter().all(|answer| answer["result"].is_object()), "{events:?}");
    assert_eq!(events.len(), 5);
}

#[test]
fn a_request_of_another_revision_makes_no_batch_by_naming_an_old_session() {
    let recorder = server();
    let gateway =
        Gateway::start(&format!("upstreams: {{ up: {{ http: {{ url: \"{}\" }} }} }}\n{EVERYTHING}", recorder.url()));
    gateway.wait_until_asked("up");
    let old = in_session(&gateway, "2025-03-26");
    let batch = json!([call(1, "echo")]).to_string();
    let mark = recorder.mark();

    for revision in ["2026-07-28", "2025-11-25", "2025-06-18"] {
        let request = old.bare("POST").header("Content-Type", "application/json").body(batch.clone());
        let refused = old.send(&request.header("MCP-Protocol-Version", revision), None);
        assert_eq!((refused.status(), code(&refused)), (400, "jsonrpc.batch"), "{revision}");
    }
    recorder.assert_untouched(mark);
    let request = old.bare("POST").header("Content-Type", "application/json").body(batch);
    let good = request.header("MCP-Protocol-Version", "2025-03-26").send(old.address);
    assert_eq!(good.status, 200);
}
