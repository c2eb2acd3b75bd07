//! Answers that come in pieces: each event goes on at once, waiting clients see signs of life, and what answers nobody
//! is dropped.

use super::config;
use crate::support::agent::Answer;
use crate::support::gateway::Gateway;
use crate::support::http::Request;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::{Reply, event};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::mpsc::{self, Sender};

fn in_front_of(recorder: &Recorder) -> Gateway {
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    gateway
}

fn progress(n: u64) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": n } })
}

/// From now on calls wait, each for one word through the returned end, which says how they are answered.
fn hold_calls(recorder: &Recorder) -> Sender<fn(&Recorded) -> Reply> {
    let (sender, receiver) = mpsc::channel::<fn(&Recorded) -> Reply>();
    let receiver = Mutex::new(receiver);
    recorder.answer_with(move |request| {
        if request.rpc_method() != "tools/call" {
            return Reply::mcp(request);
        }
        let next = receiver.lock().expect("no recorder thread panics").recv();
        next.unwrap_or(Reply::mcp)(request)
    });
    sender
}

#[test]
fn each_event_arrives_before_the_next_is_sent() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let agent = gateway.agent("alice", "up");
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);

    let mut stream = connection.streaming();
    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers.get("content-type"), Some("text/event-stream"));
    assert_eq!(stream.headers.get("x-accel-buffering"), Some("no"));
    assert_eq!(stream.headers.get("cache-control"), Some("no-cache, no-transform"));
    let first = stream.event().expect("a comment comes first");
    assert!(first.data.is_empty() && !first.comments.is_empty(), "{first:?}");
    for n in 0..20 {
        feed.message(&progress(n));
        assert_eq!(stream.message(), Some(progress(n)));
    }
    // Cut wherever the network likes.
    let text = event(&progress(20));
    let (head, tail) = text.split_at(text.len() / 2);
    feed.bytes(head);
    feed.bytes(tail);
    assert_eq!(stream.message(), Some(progress(20)));
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
    feed.message(&answer);
    assert_eq!(stream.message(), Some(answer));

    // The answer ends the stream, though the upstream has not ended its own.
    assert_eq!(stream.event(), None);
    drop(feed);
}

#[test]
fn an_event_goes_on_as_nothing_but_its_message() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let agent = gateway.agent("alice", "up");
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":9007199254740993,"z":1,"a":"\u00e9"}}}}"#);
    let pieces = [
        ": theirs\r\n\r\nretry: 1\r\nid: 7\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"notifications/message\",\"params\":{}}\r\n\r\n",
        "event: endpoint\ndata: /elsewhere\n\n",
        "data:\n\n",
        &format!("id: 8\nevent: message\nx: y\ndata: {answer}\n\n"),
    ];
    recorder.answer_next(Reply::sse_raw(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect()));

    let got = agent.send(&request, Some(&id));

    let events = got.response.events();
    let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).filter(|data| !data.is_empty()).collect();
    assert_eq!(data.len(), 2, "{events:#?}");
    assert_eq!(data[1], answer, "byte for byte");
    let text = got.response.text();
    for theirs in ["id: 7", "id: 8", "theirs", "elsewhere", "x: y"] {
        assert!(!text.contains(theirs), "{theirs} went on: {text}");
    }
}

#[test]
fn messages_that_answer_nobody_are_dropped_and_counted() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let agent = gateway.agent("alice", "up");
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
    let foreign = [
        json!({ "jsonrpc": "2.0", "id": 999, "result": {} }),
        json!({ "jsonrpc": "2.0", "id": id.to_string(), "result": {} }),
        json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32600, "message": "whose?" } }),
    ];
    let asked = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {} }),
        json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" }),
    ];
    let garbage = [
        "not JSON",
        "{",
        "[]",
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}",
    ];
    let mut stream: Vec<Vec<u8>> = foreign.iter().chain(&asked).map(|message| event(message).into_bytes()).collect();
    stream.extend(garbage.iter().map(|data| format!("data: {data}\n\n").into_bytes()));
    stream.extend([event(&progress(1)).into_bytes(), event(&answer).into_bytes(), event(&answer).into_bytes()]);
    recorder.answer_next(Reply::sse_raw(stream));

    let got = agent.send(&request, Some(&id));

    assert_eq!((got.notifications, got.message), (vec![progress(1)], answer));
    let dropped = |reason: &str| {
        gateway.metric(&format!("portcullis_upstream_messages_dropped_total{{reason=\"{reason}\",upstream=\"up\"}}"))
    };
    assert_eq!(dropped("foreign_response"), 3.0);
    assert_eq!(dropped("server_request"), 2.0);
    assert_eq!(dropped("malformed"), 5.0);
}

#[test]
fn a_client_gets_the_form_it_takes_whatever_the_upstream_speaks() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let agent = gateway.agent("alice", "up");
    let both = "application/json, text/event-stream";
    let cases = [
        ("application/json", false, "application/json"),
        ("application/json", true, "application/json"),
        ("text/event-stream", false, "text/event-stream"),
        ("text/event-stream", true, "text/event-stream"),
        (both, false, "application/json"),
        (both, true, "text/event-stream"),
        ("*/*", true, "text/event-stream"),
    ];

    for (accept, speaks_sse, expected) in cases {
        let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
        let reply = match speaks_sse {
            true => Reply::sse(&[progress(1), answer.clone()]),
            false => Reply::json(answer.to_string()),
        };
        recorder.answer_next(reply);

        let got = agent.send(&request.without("Accept").header("Accept", accept), Some(&id));

        let case = format!("accept {accept}, upstream speaks SSE: {speaks_sse}");
        assert_eq!(got.response.header("content-type"), Some(expected), "{case}");
        assert_eq!(got.message, answer, "{case}");
        // Where there is no stream, there is no place for what came before the answer.
        assert_eq!(got.notifications.len(), usize::from(speaks_sse && expected == "text/event-stream"), "{case}");
        assert_eq!(recorder.last().header("accept"), Some(both), "{case}: the upstream may choose");
    }
}

#[test]
fn a_client_that_takes_streams_is_not_left_waiting_in_silence() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let answers = hold_calls(&recorder);
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();
    let (request, id) = agent.request("tools/call", json!({ "name": "echo", "arguments": { "a": 1 } }));
    let mut connection = agent.open(&request);
    recorder.wait_for_requests(mark, 1);

    // Nothing has been answered yet.
    let mut stream = connection.streaming();
    assert_eq!((stream.status, stream.headers.get("content-type")), (200, Some("text/event-stream")));
    assert!(!stream.event().expect("a sign of life").comments.is_empty());
    let started = stream.at;
    let alive = stream.event().expect("another one, before anybody gives up");
    assert!(!alive.comments.is_empty() && alive.at.duration_since(started).as_secs() < 30);
    answers.send(Reply::mcp).expect("the call waits");
    let message = stream.message().expect("the answer");
    assert_eq!((&message["id"], &message["result"]["structuredContent"]), (&id, &json!({ "a": 1 })));
    assert_eq!(stream.event(), None);
}

#[test]
fn an_early_stream_also_carries_a_failure() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let answers = hold_calls(&recorder);
    let agent = gateway.agent("alice", "up");
    let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    let mut stream = connection.streaming();
    assert!(!stream.event().expect("a sign of life").comments.is_empty());

    answers.send(|_| Reply::new(500, "")).expect("the call waits");

    let error = stream.message().expect("the failure");
    assert_eq!(error["error"]["data"]["code"], "upstream.status", "{error}");
    assert_eq!(stream.event(), None);
}

#[test]
fn a_client_that_takes_only_json_waits_for_json() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let answers = hold_calls(&recorder);
    let agent = gateway.agent("alice", "up");
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let patient: Request = request.without("Accept").header("Accept", "application/json");
    let streaming = agent.request("tools/call", json!({ "name": "echo" })).0;
    let (mut waiting, mut other) = (agent.open(&patient), agent.open(&streaming));

    // By the time another client has been given a sign of life, this one would have got its own.
    other.streaming().event().expect("a sign of life");
    answers.send(Reply::mcp).expect("a call waits");
    answers.send(Reply::mcp).expect("a call waits");

    let answer = Answer::of(waiting.response());
    assert_eq!(answer.response.header("content-type"), Some("application/json"));
    assert_eq!(answer.message["id"], id);
}

#[test]
fn a_stream_that_breaks_off_ends_with_an_error() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let agent = gateway.agent("alice", "up");
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    let mut stream = connection.streaming();
    feed.message(&progress(1));
    assert_eq!(stream.message(), Some(progress(1)));

    feed.cut();

    let error = stream.message().expect("the failure");
    assert_eq!((&error["id"], &error["error"]["data"]["code"]), (&id, &json!("upstream.lost")));
    assert_eq!(stream.event(), None);
    agent.tool("echo", json!({})).result();
}
