//! Servers that say odd things in their streams and heads, out of carelessness or malice: no client waits in silence for
//! them, nothing grows, and nothing of theirs becomes a field of ours.

use super::{code, config};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::http::Streaming;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::{Feed, Reply, event};
use serde_json::{Value, json};

const THEIRS: &str = "theirs";

fn server() -> Recorder {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| match request.rpc_method().as_str() {
        "initialize" => Reply::mcp(request).header("Mcp-Session-Id", THEIRS),
        "" if request.method == "POST" => Reply::new(202, ""),
        _ => Reply::mcp(request),
    });
    recorder
}

fn in_front_of(recorder: &Recorder) -> Gateway {
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    gateway
}

fn initialized(gateway: &Gateway) -> Agent {
    let mut agent = gateway.agent("alice", "up").with_capabilities(json!({ "roots": {} }));
    agent.initialize();
    agent
}

fn changed() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" })
}

/// The next GET is answered with a stream that is fed from here.
fn get_stream(recorder: &Recorder) -> Feed {
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    feed
}

#[track_caller]
fn next(stream: &mut Streaming<'_>) -> crate::support::http::Event {
    loop {
        let event = stream.event().expect("the stream goes on");
        if event.id.is_some() || !event.data.is_empty() {
            return event;
        }
    }
}

#[test]
fn a_client_that_leaves_is_noticed_however_much_its_server_says_that_is_not_passed_on() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let piece = ": nothing\n".repeat(100_000);
    for kind in ["call", "stream"] {
        let mark = recorder.mark();
        recorder.answer_next(Reply::sse_endless(piece.clone()));
        let mut connection = match kind {
            "call" => agent.open(&agent.request("tools/call", json!({ "name": "echo" })).0),
            _ => agent.stream(None),
        };
        connection.streaming().event().expect("a sign of life");
        let upstream = recorder.wait_for_requests(mark, 1)[0].connection;

        drop(connection);

        recorder.wait_until_closed(upstream);
    }
}

#[test]
fn ten_thousand_messages_that_are_not_passed_on_are_counted_and_fill_no_log() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
    let asks: String = (0..10_000)
        .map(|n| event(&json!({ "jsonrpc": "2.0", "id": n, "method": "sampling/createMessage", "params": {} })))
        .collect();
    let garbage = "data: {}\n\n".repeat(10_000);
    recorder.answer_next(Reply::sse_raw(vec![asks.into_bytes(), garbage.into_bytes(), event(&answer).into_bytes()]));

    let got = agent.send(&request, Some(&id));

    assert_eq!(got.message, answer);
    let dropped = |reason: &str| {
        gateway.metric(&format!("portcullis_upstream_messages_dropped_total{{reason=\"{reason}\",upstream=\"up\"}}"))
    };
    assert_eq!(dropped("server_request") + dropped("server_request_flood"), 10_000.0);
    assert!(dropped("server_request") <= 150.0, "each is a record and a request of ours");
    assert_eq!(dropped("malformed"), 10_000.0);
    let n_lines = gateway.log().lines().filter(|line| line.contains("not passed on")).count();
    assert!((1..10).contains(&n_lines), "{n_lines} lines");
    agent.tool("echo", json!({})).result();
}

#[test]
fn the_last_of_many_changes_is_told_before_the_answer_that_ends_the_stream() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
    recorder.answer_next(Reply::sse(&[changed(), changed(), changed(), answer.clone()]));

    let got = agent.send(&request, Some(&id));

    assert_eq!((got.notifications, got.message), (vec![changed(), changed()], answer));
}

#[test]
fn the_last_of_many_changes_is_told_before_a_stream_that_lasts_is_ended() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let feed = get_stream(&recorder);
    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();
    feed.bytes([event(&changed()), event(&changed())].concat());
    assert_eq!(stream.message(), Some(changed()));

    gateway.signal("TERM");

    assert_eq!((stream.message(), stream.message()), (Some(changed()), None));
}

#[test]
fn a_session_id_that_no_client_could_send_back_is_not_handed_out() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    for (case, id) in [("long", "x".repeat(8192)), ("not ASCII", "s\u{e9}".to_owned()), ("a space", "a b".to_owned())] {
        let theirs = id.clone();
        recorder.answer_with(move |request| Reply::mcp(request).header("Mcp-Session-Id", &theirs));
        let agent = gateway.agent("alice", "up");

        let refused = agent.call("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));

        assert_eq!(code(&refused), "upstream.malformed", "{case}: {refused:?}");
        assert_eq!(refused.response.header("mcp-session-id"), None, "{case}");
    }
    // An empty one is none.
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", ""));
    let agent = initialized(&gateway);
    assert_eq!(agent.session, None);
    agent.tool("echo", json!({})).result();
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", &"x".repeat(1024)));
    let agent = initialized(&gateway);
    agent.tool("echo", json!({})).result();
    assert_eq!(recorder.last().header("mcp-session-id").map(str::len), Some(1024));
}

#[test]
fn an_event_id_that_no_client_could_send_back_is_left_out() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let feed = get_stream(&recorder);
    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();

    for id in ["a\u{1}b", "\u{7f}", &"x".repeat(10_000)] {
        feed.bytes(format!("id: {id}\ndata: {}\n\n", changed_n(1)));
        let event = next(&mut stream);
        assert_eq!((event.id.as_deref(), event.json()), (None, changed_n(1)), "{id:?}");
    }
    for id in ["plain", "\u{e9}", "a: b\tc", &"x".repeat(1024)] {
        feed.bytes(format!("id: {id}\ndata: {}\n\n", changed_n(2)));
        let sealed = next(&mut stream).id.expect("an id");
        let mark = recorder.mark();
        let again = get_stream(&recorder);
        let mut connection = agent.stream(Some(&sealed));
        connection.streaming();
        assert_eq!(recorder.wait_for_requests(mark, 1)[0].header("last-event-id"), Some(id));
        drop(again);
    }
    // An empty one makes the client forget the last (WHATWG HTML, "Server-sent events").
    feed.bytes(format!("id:\ndata: {}\n\n", changed_n(3)));
    assert_eq!(next(&mut stream).id.as_deref(), Some(""));
}

fn changed_n(n: u64) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": n } })
}

#[test]
fn a_stream_cannot_be_taken_up_by_an_id_that_its_client_never_saw() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    recorder.answer_next(Reply::sse_raw(vec![b"id: 1\ndata: {}\n\n".to_vec()]));

    let got = agent.send(&request, Some(&id));

    assert_eq!(code(&got), "upstream.lost", "no answer, and nothing to come back for: {got:?}");
}

#[test]
fn a_client_is_not_told_to_wait_for_ever_before_it_comes_back() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let answer = event(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
    for (theirs, ours) in [("700", Some("700")), ("18446744073709551615", Some("3600000")), ("+5", None), ("-1", None)]
    {
        recorder.answer_next(Reply::sse_raw(vec![format!("retry: {theirs}\nid: 1\n\n{answer}").into_bytes()]));

        let text = agent.send(&request, Some(&id)).response.text();

        let said = text.lines().find_map(|line| line.strip_prefix("retry: "));
        assert_eq!(said, ours, "{theirs}: {text}");
    }
}

//= MCP 2025-11-25, Streamable HTTP, "Listening for Messages from the Server"
//# The server MUST NOT send a JSON-RPC response on the stream unless resuming
#[test]
fn a_failure_on_a_stream_of_its_own_ends_it_without_an_answer_to_nothing() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    // The head of the answer is broken, and comes when the client has its stream already.
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = std::sync::Mutex::new(receiver);
    recorder.answer_with(move |request| {
        if request.method == "GET" {
            // Dropping its other end is the word it waits for.
            let _ = receiver.lock().expect("no panics").recv();
            return Reply::new(500, "");
        }
        Reply::mcp(request)
    });
    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();
    assert!(!stream.event().expect("a sign of life").comments.is_empty());

    drop(sender);

    assert_eq!(stream.message(), None);
}

#[test]
fn a_second_initialize_agrees_on_its_own_terms() {
    let recorder = Recorder::start();
    let n = std::sync::atomic::AtomicUsize::new(0);
    recorder.answer_with(move |request| {
        let n = n.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match request.rpc_method().as_str() {
            "initialize" => Reply::mcp(request).header("Mcp-Session-Id", &format!("s{n}")),
            _ => Reply::mcp(request),
        }
    });
    let gateway = in_front_of(&recorder);
    let mut agent = gateway.agent("alice", "up").of_revision("2025-03-26");
    agent.initialize();
    agent.revision = "2025-11-25";

    agent.initialize();

    let batch = agent.post(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#);
    assert_eq!((batch.status(), code(&batch)), (400, "jsonrpc.batch"), "this revision has none");
}

#[test]
fn in_the_newer_era_nobody_cancels_the_calls_of_others() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let mark = recorder.mark();

    // There, closing the stream of the answer is the cancel: ids of other requests mean nothing.
    assert_eq!(agent.notify("notifications/cancelled", json!({ "requestId": 1 })).status(), 202);
    assert_eq!(agent.notify("notifications/progress", json!({ "progressToken": 1, "progress": 1 })).status(), 202);
    recorder.assert_untouched(mark);

    agent.tool("echo", json!({})).result();
}

#[test]
fn a_subscription_is_not_begun_for_who_takes_no_stream() {
    let recorder = Recorder::start();
    let gateway = in_front_of(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let (request, id) = agent.request("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    let mark = recorder.mark();

    let refused = agent.send(&request.clone().without("Accept").header("Accept", "application/json"), Some(&id));

    assert_eq!((refused.status(), code(&refused)), (406, "request.accept"));
    recorder.assert_untouched(mark);
    let _feed = get_stream(&recorder);
    assert_eq!(agent.open(&request).streaming().status, 200);
}

#[test]
fn a_notification_is_acknowledged_also_by_a_server_that_answers_with_a_stream_without_end() {
    let recorder = server();
    let gateway = in_front_of(&recorder);
    let agent = initialized(&gateway);
    let mark = recorder.mark();
    recorder.answer_next(Reply::sse_raw(vec![b": hello\n\n".to_vec()]).then_hang());

    let accepted = agent.notify("notifications/roots/list_changed", json!({}));

    assert_eq!((accepted.status(), accepted.response.body.len()), (202, 0));
    recorder.wait_until_closed(recorder.requests_since(mark)[0].connection);
    recorder.answer_next(Reply::sse_raw(vec![b": hello\n\n".to_vec()]).then_hang());
    assert_eq!(agent.end_session().status(), 204);
}
