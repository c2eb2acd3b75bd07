//! Silence: streams that wait for news, calls that take long, and whoever cuts what is silent.

use super::{EVERYTHING, settled};
use crate::support::agent::Agent;
use crate::support::http::Streaming;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::{Feed, Reply};
use serde_json::{Value, json};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// Proxies on the way cut what is silent for 60 s, some for 30.
const SILENCE: Duration = Duration::from_secs(30);

/// Servers that say something that goes no further: at least as often as this.
fn chatter(feeds: Vec<Feed>) -> mpsc::Sender<()> {
    let (stop, stopped) = mpsc::channel();
    thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_secs(4)) == Err(mpsc::RecvTimeoutError::Timeout) {
            feeds.iter().for_each(|feed| feed.bytes(": their own sign of life\n\n"));
        }
    });
    stop
}

#[track_caller]
fn two_signs_of_life(case: &str, stream: &mut Streaming<'_>, since: Instant) {
    let first = stream.event().expect("a sign of life").at;
    assert!(first.duration_since(since) < Duration::from_secs(5), "{case}: the first came late");
    let second = stream.event().unwrap_or_else(|| panic!("{case}: ended")).at;
    assert!(second.duration_since(first) < SILENCE, "{case}: silence");
}

fn fed(
    recorder: &Recorder,
    agent: &Agent,
    method: &str,
    params: Value,
) -> (crate::support::http::Connection, Feed, Value) {
    let (reply, feed) = Reply::sse_fed();
    let mark = recorder.mark();
    recorder.answer_next(reply);
    let (request, id) = agent.request(method, params);
    let connection = agent.open(&request);
    recorder.wait_for_requests(mark, 1);
    (connection, feed, id)
}

// B41: robhunter/agentdeals#1100, Vexa-ai/vexa#795, punkpeye/fastmcp#317, langfuse/langfuse#15100, and
// https://forum.cursor.com/t/http-mcp-server-becomes-unresponsive-after-repeated-sse-stream-disconnects/152243.
// Seven things that are open at once, so that the wait is one: streams and calls, of both eras, of servers that say
// nothing at all and of servers that talk without a pause about nothing. (c), the endpoint of 2024, is not offered.
#[test]
fn every_open_stream_shows_signs_of_life_whatever_its_server_says() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| match request.rpc_method().as_str() {
        "initialize" => Reply::mcp(request).header("Mcp-Session-Id", "theirs"),
        _ => Reply::mcp(request),
    });
    let gateway = settled(&recorder, EVERYTHING);
    let mut legacy = gateway.agent("alice", "up");
    legacy.initialize();
    let modern = gateway.agent("alice", "up").modern();
    let listening = json!({ "notifications": { "toolsListChanged": true } });
    let calling = json!({ "name": "echo" });
    let start = Instant::now();
    let mut open = Vec::new();
    let mut talking = Vec::new();
    for is_talking in [false, true] {
        let (reply, feed) = Reply::sse_fed();
        let mark = recorder.mark();
        recorder.answer_next(reply);
        let stream = (legacy.stream(None), feed, Value::Null);
        recorder.wait_for_requests(mark, 1);
        let call = fed(&recorder, &legacy, "tools/call", calling.clone());
        let subscription = fed(&recorder, &modern, "subscriptions/listen", listening.clone());
        for (case, (connection, feed, id)) in [("stream", stream), ("call", call), ("subscription", subscription)] {
            let feed = if is_talking {
                talking.push(feed);
                None
            } else {
                Some(feed)
            };
            open.push((format!("{case}, talking: {is_talking}"), connection, feed, id));
        }
    }
    recorder.answer_next(Reply::hang());
    open.push(("a server that never answers".to_owned(), legacy.stream(None), None, Value::Null));
    let stop = chatter(talking);

    thread::scope(|scope| {
        for (case, mut connection, feed, id) in open {
            scope.spawn(move || {
                let mut stream = connection.streaming();
                two_signs_of_life(&case, &mut stream, start);
                // The long call has its answer in the end.
                if let Some(feed) = feed.filter(|_| case.starts_with("call")) {
                    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
                    feed.message(&answer);
                    assert_eq!(stream.message(), Some(answer));
                }
            });
        }
    });
    drop(stop);
}

// B41: (b) with a limit for calls that is shorter than the silence: it ends calls, and no stream that waits for news.
#[test]
fn the_time_a_call_may_take_ends_no_stream_that_waits_for_news() {
    let recorder = Recorder::start();
    let yaml = crate::support::gateway::in_front_of(&recorder.url(), EVERYTHING)
        .replace("\" } }", "\", timeouts: { answer: 1s, idle: 1s, total: 2s } } }");
    let gateway = crate::support::gateway::Gateway::start(&yaml);
    super::wait_until_up(&gateway, "up");
    let agent = gateway.agent("alice", "up");
    let (reply, feed) = Reply::sse_fed();
    let mark = recorder.mark();
    recorder.answer_next(reply);
    let mut waiting = agent.stream(None);
    recorder.wait_for_requests(mark, 1);
    let (mut connection, _feed, id) = fed(&recorder, &agent, "tools/call", json!({ "name": "echo" }));

    let ended = connection.streaming().message().expect("an answer in the end");

    assert_eq!((&ended["id"], &ended["error"]["data"]["code"]), (&id, &json!("upstream.timeout")));
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    feed.message(&told);
    assert_eq!(waiting.streaming().message(), Some(told));
}
