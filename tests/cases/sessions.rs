//! Session ids are names, not keys; and the HTTP methods that sessions bring with them.

use super::{EVERYTHING, settled};
use crate::support::http::Request;
use crate::support::invariants;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::json;

// B20: stacklok/toolhive#5306, agentic-community/mcp-gateway-registry#1357, chandshy/mailpouch#264,
// Umbrella-IT-Group/metamcp#134.
#[test]
fn session_outlives_its_token_and_opens_to_nobody_else() {
    let recorder = Recorder::start();
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", "upstreams-id"));
    let gateway = settled(&recorder, EVERYTHING);
    let mut alice = gateway.agent("alice", "up");
    alice.initialize();
    let session = alice.session.clone();
    let old = alice.token.clone().expect("it has one");

    // Another token of the same person and client.
    let renewed = gateway.token("alice", "up");
    assert_ne!(old, renewed);
    let mut alice = alice.with_token(Some(&renewed));
    alice.call("tools/list", json!({})).result();
    assert_eq!(recorder.last().header("mcp-session-id"), Some("upstreams-id"));

    let mark = recorder.mark();
    let mut bob = gateway.agent("bob", "up");
    bob.session.clone_from(&session);
    let refused = bob.tool("echo", json!({}));
    assert_eq!((refused.status(), refused.error().0), (404, -32600));
    let id = refused.response.header("x-request-id").expect("every answer has one").to_owned();
    super::wait_until("the record of it", || {
        gateway.audit().iter().any(|e| e["request"] == id.as_str() && e["code"] == "mcp.session")
    });
    let token = bob.token.clone().expect("it has one");
    for method in ["GET", "DELETE"] {
        let request = Request::new(method, "/mcp/up").bearer(&token).header("Accept", "text/event-stream");
        let response = request.header("Mcp-Session-Id", session.as_deref().unwrap_or_default()).send(gateway.agent);
        assert!(matches!(response.status, 404 | 405), "{method}: {response:?}");
    }
    for id in ["upstreams-id", "", "AAAA", &session.clone().unwrap_or_default().to_lowercase()] {
        bob.session = Some(id.to_owned());
        assert_eq!(bob.tool("echo", json!({})).status(), 404, "{id:?}");
    }
    // Nor is it worth anything without a token, or with one that ended.
    let mut nobody = gateway.agent("alice", "up").with_token(None);
    nobody.session.clone_from(&session);
    assert_eq!(nobody.tool("echo", json!({})).status(), 401);
    assert_eq!(nobody.with_token(Some("no-token-of-ours")).tool("echo", json!({})).status(), 401);
    recorder.assert_untouched(mark);

    alice.session = session;
    alice.tool("echo", json!({})).result();
}

// B20: two sessions at once, two routes.
#[test]
fn session_of_one_route_is_unknown_on_another() {
    let (one, two) = (Recorder::start(), Recorder::start());
    one.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", "s"));
    let gateway = crate::support::gateway::Gateway::start(&format!(
        "upstreams:\n  one: {{ http: {{ url: \"{}\" }} }}\n  two: {{ http: {{ url: \"{}\" }} }}\npolicy:\n  rules:\n    - {{ name: all, tools: [\"one/*\", \"two/*\"], allow: {{}} }}\n",
        one.url(),
        two.url()
    ));
    super::wait_until_up(&gateway, "two");
    let mut agent = gateway.agent("alice", "one");
    agent.initialize();
    let mut other = gateway.agent("alice", "two");
    other.session.clone_from(&agent.session);
    let mark = two.mark();

    assert_eq!(other.tool("echo", json!({})).status(), 404);

    two.assert_untouched(mark);
    other.session = None;
    other.tool("echo", json!({})).result();
}

// B21: agentgateway/agentgateway#1582, higress-group/wasm-go#46, OpenLiberty/open-liberty#33213, envoyproxy/envoy#43499.
#[test]
fn methods_that_are_not_offered_are_405_and_say_what_is() {
    let recorder = Recorder::start();
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", "s"));
    let gateway = settled(&recorder, EVERYTHING);
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();
    let token = agent.token.clone().expect("it has one");
    let mark = recorder.mark();

    for method in ["PUT", "PATCH", "HEAD", "OPTIONS"] {
        for session in [None, agent.session.as_deref()] {
            let request = Request::new(method, "/mcp/up").header("Accept", "text/event-stream");
            let request = if let Some(id) = session { request.header("Mcp-Session-Id", id) } else { request };
            if method == "HEAD" {
                assert_head_has_no_body(&gateway, &request.bearer(&token));
                continue;
            }
            // Without a token the answer is where to get one, on every method: that is how clients find out.
            let response = request.clone().send(gateway.agent);
            assert_eq!(response.status, 401, "{method}");
            invariants::check(&response, None);
            let response = request.bearer(&token).send(gateway.agent);
            assert_eq!((response.status, response.header("allow")), (405, Some("GET, POST, DELETE")), "{method}");
            invariants::check(&response, None);
        }
    }
    recorder.assert_untouched(mark);
    // The session is as it was.
    agent.tool("echo", json!({})).result();
}

/// RFC 9110 §9.3.2; a body would be taken for the next answer.
#[track_caller]
fn assert_head_has_no_body(gateway: &crate::support::gateway::Gateway, request: &Request) {
    let mut connection = crate::support::http::Connection::open(gateway.agent);
    let bytes = request.clone().header("Connection", "close").to_bytes(&gateway.agent.to_string());
    connection.send(&bytes);
    let response = connection.streaming();
    assert_eq!(response.status, 405);
    assert!(connection.closes_within(crate::support::PATIENCE), "a body came with the answer to HEAD");
}
