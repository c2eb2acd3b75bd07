//! Ids are the clients' own choice. Whatever they choose, no two calls are mistaken for each other.

use super::config;
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::sdk::Peer;
use serde_json::{Value, json};

fn start(recorder: &Recorder, sessions: bool) -> Gateway {
    recorder.answer_with(move |request: &Recorded| match request.rpc_method().as_str() {
        "initialize" if sessions => Reply::mcp(request).header("Mcp-Session-Id", "theirs"),
        _ => Reply::mcp(request),
    });
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    gateway
}

fn call(id: &Value, n: u64) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "echo", "arguments": { "n": n } } })
        .to_string()
}

fn initialized(gateway: &Gateway) -> Agent {
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();
    agent
}

#[test]
fn an_id_that_is_in_flight_is_told_apart_at_the_server_and_comes_back_as_it_was() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, true);
    let agent = initialized(&gateway);
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let first = agent.bare("POST").header("Content-Type", "application/json").body(call(&json!("x"), 1));
    let mut connection = agent.open(&first);
    let mut stream = connection.streaming();
    let mark = recorder.mark();

    let second = agent.post(call(&json!("x"), 2));

    let arrived = recorder.requests_since(mark)[0].json();
    assert_ne!(arrived["id"], "x", "the server has a call of this id");
    assert_eq!(second.message["id"], "x");
    assert_eq!(second.result()["structuredContent"]["n"], 2, "{second:?}");
    // A cancel names the call the server knows by the client's id.
    let mark = recorder.mark();
    agent.notify("notifications/cancelled", json!({ "requestId": "x" }));
    assert_eq!(recorder.requests_since(mark)[0].json()["params"]["requestId"], "x");
    feed.message(&json!({ "jsonrpc": "2.0", "id": "x", "result": {} }));
    assert_eq!(stream.message().expect("an answer")["id"], "x");
}

#[test]
fn a_cancel_names_the_call_as_the_server_knows_it() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, true);
    let agent = initialized(&gateway);
    let open = |n| {
        let (reply, feed) = Reply::sse_fed();
        recorder.answer_next(reply);
        let mark = recorder.mark();
        let request = agent.bare("POST").header("Content-Type", "application/json").body(call(&json!(5), n));
        let connection = agent.open(&request);
        let arrived = recorder.wait_for_requests(mark, 1)[0].json()["id"].clone();
        (connection, feed, arrived)
    };
    let (mut first, feed, id) = open(1);
    assert_eq!(id, 5);
    let (mut second, _feed, ours) = open(2);
    assert_ne!(ours, 5);
    feed.message(&json!({ "jsonrpc": "2.0", "id": 5, "result": {} }));
    assert_eq!(first.streaming().message().expect("an answer")["id"], 5);
    second.streaming().event();
    let mark = recorder.mark();

    agent.notify("notifications/cancelled", json!({ "requestId": 5, "reason": "late" }));

    let arrived = recorder.wait_for_requests(mark, 1)[0].json();
    assert_eq!(arrived["params"], json!({ "requestId": ours, "reason": "late" }));
}

#[test]
fn without_sessions_a_cancel_could_hit_anybody_and_hits_nobody() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, false);
    let agent = initialized(&gateway);
    let mark = recorder.mark();

    assert_eq!(agent.notify("notifications/cancelled", json!({ "requestId": 1 })).status(), 202);
    recorder.assert_untouched(mark);

    assert_eq!(agent.notify("notifications/roots/list_changed", json!({})).status(), 202);
    assert_eq!(recorder.requests_since(mark).len(), 1);
}

/// At a server on the official SDK, which keeps the streams of a session apart by the ids of its requests: 500 calls that
/// take a while, twenty at a time, ten of them in one session. Each brings word of its own progress only.
#[test]
fn equal_ids_at_once_never_cross_at_a_real_server() {
    let peer = Peer::fixture();
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", peer.url))]));
    gateway.wait_until_asked("up");
    let agents = [initialized(&gateway), initialized(&gateway)];
    assert!(agents.iter().all(|agent| agent.session.is_some()), "this server has sessions");
    let (threads, rounds) = (20, 25);

    std::thread::scope(|scope| {
        for worker in 0..threads {
            let agent = &agents[worker % 2];
            scope.spawn(move || {
                for round in 0..rounds {
                    let token = worker * rounds + round;
                    let params = json!({ "name": "test_tool_with_progress", "arguments": {}, "_meta": { "progressToken": token } });
                    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });

                    let answer = agent.post(body.to_string());

                    assert_eq!((&answer.message["id"], answer.notifications.len()), (&json!(1), 3), "{answer:?}");
                    assert!(answer.notifications.iter().all(|told| told["params"]["progressToken"] == token), "crossed");
                    answer.result();
                }
            });
        }
    });
}
