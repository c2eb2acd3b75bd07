//! What a server says of its own accord: that lists changed.

use super::{EVERYTHING, settled, wait_until};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::{Reply, event};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn changed(n: usize) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "_meta": { "n": n } } })
}

// B46: metatool-ai/metamcp#314, maximhq/bifrost#6885, aaif-goose/goose#10433, anthropics/claude-code#79826.
// (2) and (3), changes of our own configuration, stand in `upstreams::subscriptions`. Whether a change of the server's
// is one that this client can see is not found out: it is told, and the next list says.
#[test]
fn a_tool_that_its_server_adds_is_told_and_seen_and_a_hundred_changes_make_two_words() {
    let recorder = Recorder::start();
    let n_tools = Arc::new(AtomicUsize::new(1));
    let now = Arc::clone(&n_tools);
    recorder.answer_with(move |request: &Recorded| match request.rpc_method().as_str() {
        "initialize" => Reply::result(
            request,
            &json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": { "listChanged": true } },
                "serverInfo": { "name": "changing", "version": "1" },
            }),
        )
        .header("Mcp-Session-Id", "theirs"),
        "tools/list" => {
            let tool = |n| json!({ "name": format!("t{n}"), "inputSchema": { "type": "object" } });
            Reply::result(request, &json!({ "tools": (0..now.load(Ordering::SeqCst)).map(tool).collect::<Vec<_>>() }))
        }
        _ => Reply::mcp(request),
    });
    let gateway = settled(&recorder, EVERYTHING);
    let mut agent = gateway.agent("alice", "up");
    assert_eq!(agent.initialize()["capabilities"]["tools"]["listChanged"], true);
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();

    n_tools.store(2, Ordering::SeqCst);
    feed.message(&changed(0));

    assert_eq!(stream.message(), Some(changed(0)));
    assert_eq!(agent.tools(), ["t0", "t1"]);
    let known = "portcullis_upstream_tools{upstream=\"up\"}";
    wait_until("the gateway's own copy", || (gateway.metric(known) - 2.0).abs() < f64::EPSILON);

    feed.bytes((1..=100).map(|n| event(&changed(n))).collect::<String>());
    let mut told = vec![stream.message().expect("word of the changes")];
    while told.last() != Some(&changed(100)) {
        told.push(stream.message().expect("the last is told"));
    }
    assert!(told.len() <= 2, "{told:?}");
    // And that was all.
    let other =
        json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    feed.message(&other);
    assert_eq!(stream.message(), Some(other));
}
