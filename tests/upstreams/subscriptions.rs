//! `subscriptions/listen` (MCP 2026-07-28): a stream that lasts, of what was asked for and may be seen; and what happens
//! to streams that last when the world around them changes.

use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::http::Connection;
use crate::support::recorder::Recorder;
use crate::support::reply::{Feed, Reply};
use serde_json::{Value, json};

const RULES: &str = r#"[{ name: some, tools: ["up/*"], resources: ["up/file:///open/*"], allow: {} }]"#;

fn start(recorder: &Recorder) -> Gateway {
    let gateway = Gateway::in_front_of(recorder, RULES);
    gateway.wait_until_asked("up");
    gateway
}

fn listen(recorder: &Recorder, agent: &Agent, wanted: &Value) -> (Connection, Feed, Value) {
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, id) = agent.request("subscriptions/listen", json!({ "notifications": wanted }));
    (agent.open(&request), feed, id)
}

fn told(id: &Value, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": id });
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[test]
fn a_subscription_brings_what_belongs_to_it_and_may_be_seen() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let wanted = json!({ "resourceSubscriptions": ["file:///open/a"] });
    let (mut connection, feed, id) = listen(&recorder, &agent, &wanted);
    let mut stream = connection.streaming();
    assert_eq!(stream.status, 200);

    let acknowledged = told(&id, "notifications/subscriptions/acknowledged", json!({ "notifications": wanted }));
    let updated = |id: &Value, uri: &str| told(id, "notifications/resources/updated", json!({ "uri": uri }));
    feed.message(&acknowledged);
    feed.message(&updated(&json!("another"), "file:///open/a"));
    feed.message(&updated(&id, "file:///secret"));
    feed.message(&updated(&id, "file:///open/a"));

    assert_eq!(stream.message(), Some(acknowledged));
    assert_eq!(stream.message(), Some(updated(&id, "file:///open/a")));
    let end = json!({ "jsonrpc": "2.0", "id": id, "result": { "resultType": "complete" } });
    feed.message(&end);
    assert_eq!(stream.message(), Some(end));
    assert_eq!(stream.event(), None);
}

#[test]
fn a_subscription_to_what_may_not_be_read_is_refused() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let mark = recorder.mark();
    let wanted = json!({ "resourceSubscriptions": ["file:///open/a", "file:///secret"] });

    let refused = agent.call("subscriptions/listen", json!({ "notifications": wanted }));

    assert_eq!(refused.error().0, -32602);
    recorder.assert_untouched(mark);
}

#[test]
fn the_client_leaving_is_the_end_of_the_servers_stream() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let (mut connection, _feed, _) = listen(&recorder, &agent, &json!({ "toolsListChanged": true }));
    connection.streaming().event().expect("a sign of life");
    let upstream = recorder.last().connection;

    drop(connection);

    recorder.wait_until_closed(upstream);
}

/// One of each kind of stream that lasts.
fn both(recorder: &Recorder, gateway: &Gateway) -> Vec<(Connection, Feed, Value)> {
    let modern = gateway.agent("alice", "up").modern();
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let legacy = gateway.agent("alice", "up").stream(None);
    vec![(legacy, feed, Value::Null), listen(recorder, &modern, &json!({ "toolsListChanged": true }))]
}

// B41: streams end cleanly within the drain time.
#[test]
fn streams_that_last_end_cleanly_when_the_gateway_stops() {
    let recorder = Recorder::start();
    let mut gateway = start(&recorder);
    let mut streams = both(&recorder, &gateway);
    let mut open: Vec<_> = streams.iter_mut().map(|(connection, ..)| connection.streaming()).collect();
    open.iter_mut().for_each(|stream| _ = stream.event().expect("a sign of life"));

    gateway.signal("TERM");

    open.iter_mut().for_each(|stream| assert_eq!(stream.message(), None));
    assert!(gateway.stop().success());
}

#[test]
fn streams_that_last_end_when_their_grant_is_revoked() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let mut streams = both(&recorder, &gateway);
    let mut open: Vec<_> = streams.iter_mut().map(|(connection, ..)| connection.streaming()).collect();
    open.iter_mut().for_each(|stream| _ = stream.event().expect("a sign of life"));

    let password = gateway.password_file("alice");
    let list = gateway.cli(&["token", "list"]).success().stdout;
    for grant in list.split_whitespace().filter(|word| word.starts_with("g_")) {
        let file = password.to_str().expect("a path");
        gateway.cli(&["token", "revoke", grant, "--as", "alice", "--password-file", file]).success();
    }

    open.iter_mut().for_each(|stream| assert_eq!(stream.message(), None));
}

// B46: what a new configuration hides or shows is told to those whose list it changes, and to nobody else.
#[test]
fn a_change_of_the_policy_is_told_to_those_who_see_other_tools_now() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let mut streams = both(&recorder, &gateway);
    let mut open: Vec<_> = streams.iter_mut().map(|(connection, _, id)| (connection.streaming(), id.clone())).collect();
    open.iter_mut().for_each(|(stream, _)| _ = stream.event().expect("a sign of life"));
    let rules = |rules: &str| crate::support::gateway::in_front_of(&recorder.url(), rules);

    // Another rule, the same tools: nobody hears of it.
    gateway.rewrite(&rules(&RULES.replace("name: some", "name: other")));
    gateway.reload().success();
    gateway.rewrite(&rules(r#"[{ name: less, tools: ["up/echo"], allow: {} }]"#));
    gateway.reload().success();

    for (stream, id) in &mut open {
        let message = stream.message().expect("word of it");
        assert_eq!(message["method"], "notifications/tools/list_changed");
        assert_eq!(&message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    }
    // An upstream that is gone, or is another one now, has no streams any more.
    gateway.rewrite(&crate::support::gateway::in_front_of("http://127.0.0.1:9/mcp", RULES));
    gateway.reload().success();
    open.iter_mut().for_each(|(stream, _)| assert_eq!(stream.message(), None));
}
