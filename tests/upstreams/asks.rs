//! What a server of the older era asks in mid-call: it reaches the client that made the call, and the answer finds its
//! way back to the session it was asked in; or the server hears at once that nobody will answer.

use super::config;
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use serde_json::{Value, json};

const THEIRS: &str = "upstream-session-1";

fn server() -> Recorder {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| {
        let is_opening = request.rpc_method() == "initialize";
        let is_answer = request.method == "POST" && request.rpc_method().is_empty();
        match (is_opening, is_answer) {
            (true, _) => Reply::mcp(request).header("Mcp-Session-Id", THEIRS),
            (_, true) => Reply::new(202, ""),
            _ => Reply::mcp(request),
        }
    });
    recorder
}

fn gateway(recorder: &Recorder, more: &str) -> Gateway {
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"{more}", recorder.url()))]));
    gateway.wait_until_asked("up");
    gateway
}

fn able(gateway: &Gateway, capabilities: Value) -> Agent {
    let mut agent = gateway.agent("alice", "up").with_capabilities(capabilities);
    agent.initialize();
    agent
}

fn question(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": { "message": "sure?" } })
}

/// The server asks this in the middle of a call; what it then hears in answer.
fn asked(recorder: &Recorder, agent: &Agent, method: &str) -> Value {
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    let mut stream = connection.streaming();
    let mark = recorder.mark();
    feed.message(&question(method));
    let heard = recorder.wait_for_requests(mark, 1)[0].clone();
    feed.message(&json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } }));
    assert_eq!(stream.message().expect("the call goes on")["id"], id, "the client heard of {method}");
    assert_eq!(heard.header("mcp-session-id"), agent.session.as_ref().map(|_| THEIRS));
    heard.json()
}

// B22: a question in mid-call hung for 300 s behind gateways that waited for the end of the answer.
#[test]
fn a_question_in_mid_call_reaches_the_client_and_its_answer_the_session() {
    let recorder = server();
    let gateway = gateway(&recorder, "");
    let agent = able(&gateway, json!({ "elicitation": {} }));
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    let mut stream = connection.streaming();

    feed.message(&question("elicitation/create"));
    assert_eq!(stream.message(), Some(question("elicitation/create")));
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"n":9007199254740993}}}"#;
    let mark = recorder.mark();
    let accepted = agent.post(answer);

    assert_eq!((accepted.status(), accepted.response.body.len()), (202, 0));
    let arrived = &recorder.requests_since(mark)[0];
    assert_eq!(String::from_utf8_lossy(&arrived.body), answer, "byte for byte, under the server's own id");
    assert_eq!(arrived.header("mcp-session-id"), Some(THEIRS));
    let result = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
    feed.message(&result);
    assert_eq!(stream.message(), Some(result));
    let asked = gateway.audit().into_iter().find(|event| event["event"] == "asked").expect("a record of it");
    assert_eq!((&asked["method"], &asked["decision"]), (&json!("elicitation/create"), &json!("allowed")));
}

#[test]
fn a_ping_of_the_server_needs_no_declaration() {
    let recorder = server();
    let gateway = gateway(&recorder, "");
    let agent = able(&gateway, json!({}));
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    let mut stream = connection.streaming();

    feed.message(&question("ping"));

    assert_eq!(stream.message(), Some(question("ping")));
}

#[test]
fn a_server_hears_at_once_that_nobody_will_answer() {
    let recorder = server();
    let gateway = gateway(&recorder, ", may_ask: [elicitation]");
    let agent = able(&gateway, json!({ "elicitation": {}, "sampling": {} }));

    for (method, why) in [
        ("roots/list", "does not let this server ask"),
        ("sampling/createMessage", "does not let this server ask"),
        ("tools/call", "Method not found"),
        ("made/up", "Method not found"),
    ] {
        let heard = asked(&recorder, &agent, method);
        assert_eq!((&heard["id"], &heard["error"]["code"]), (&json!(7), &json!(-32601)), "{method}");
        assert!(heard["error"]["message"].as_str().is_some_and(|text| text.contains(why)), "{heard}");
    }
    let unable = able(&gateway, json!({}));
    let heard = asked(&recorder, &unable, "elicitation/create");
    assert!(heard["error"]["message"].as_str().is_some_and(|text| text.contains("did not declare")), "{heard}");
}

#[test]
fn without_a_session_nobody_is_asked_and_nobody_answers() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder, "");
    let agent = able(&gateway, json!({ "elicitation": {} }));
    assert_eq!(agent.session, None);

    let heard = asked(&recorder, &agent, "elicitation/create");

    assert!(heard["error"]["message"].as_str().is_some_and(|text| text.contains("session")), "{heard}");
    let mark = recorder.mark();
    let forged = agent.post(r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}"#);
    assert_eq!(forged.status(), 400);
    recorder.assert_untouched(mark);
}

#[test]
fn an_answer_reaches_no_session_but_its_own() {
    let recorder = server();
    let gateway = gateway(&recorder, "");
    let agent = able(&gateway, json!({ "elicitation": {} }));
    let mut bob = gateway.agent("bob", "up");
    bob.session.clone_from(&agent.session);
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}"#;
    let mark = recorder.mark();

    assert_eq!(bob.post(answer).status(), 404);
    let mut modern = gateway.agent("alice", "up").modern();
    modern.session.clone_from(&agent.session);
    assert_eq!(modern.post(answer).status(), 400, "the newer era has no such answers");

    recorder.assert_untouched(mark);
    assert_eq!(agent.post(answer).status(), 202);
}
