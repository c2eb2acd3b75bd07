//! Calls that take several rounds (MCP 2026-07-28): the server's state passes through its client's hands sealed, and the
//! server gets back what it handed out.

use super::{code, config};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use serde_json::{Value, json};

const STATE: &str = "their \"state\" \u{e9}";

/// Asks for input in the first round, and answers in the second.
fn start(recorder: &Recorder) -> Gateway {
    recorder.answer_with(|request: &Recorded| {
        let params = request.json()["params"].clone();
        if request.rpc_method() != "tools/call" || params.get("inputResponses").is_some() {
            return Reply::mcp(request);
        }
        let ask = json!({ "q": { "method": "elicitation/create", "params": { "mode": "form", "message": "?" } } });
        let round = json!({ "resultType": "input_required", "inputRequests": ask, "requestState": STATE });
        Reply::result(request, &round)
    });
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    gateway
}

fn again(agent: &Agent, tool: &str, state: &Value) -> crate::support::agent::Answer {
    let responses = json!({ "q": { "action": "accept" } });
    let params = json!({ "name": tool, "arguments": {}, "inputResponses": responses, "requestState": state });
    agent.call("tools/call", params)
}

#[test]
fn a_state_goes_to_the_client_sealed_and_comes_back_to_the_server_as_it_was() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();

    let round = agent.tool("echo", json!({})).result();

    let sealed = round["requestState"].as_str().expect("a state").to_owned();
    assert!(!sealed.contains("their"), "{sealed}");
    assert_eq!(round["inputRequests"]["q"]["params"]["message"], "?");
    let mark = recorder.mark();
    again(&agent, "echo", &json!(sealed)).result();
    assert_eq!(recorder.requests_since(mark)[0].json()["params"]["requestState"], STATE);
}

#[test]
fn a_state_that_was_changed_or_belongs_elsewhere_is_refused() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let sealed = agent.tool("echo", json!({})).result()["requestState"].clone();
    let text = sealed.as_str().expect("a state");
    let bob = gateway.agent("bob", "up").modern();
    let mark = recorder.mark();

    for (case, refused) in [
        ("another principal", again(&bob, "echo", &sealed)),
        ("another tool", again(&agent, "delete", &sealed)),
        (
            "tampered",
            again(&agent, "echo", &json!(format!("{}{}", if text.starts_with('A') { "B" } else { "A" }, &text[1..]))),
        ),
        ("the server's own", again(&agent, "echo", &json!(STATE))),
        ("empty", again(&agent, "echo", &json!(""))),
    ] {
        assert_eq!((refused.status(), refused.error().0, code(&refused)), (200, -32602, "mcp.state"), "{case}");
    }
    assert_eq!(again(&agent, "echo", &json!(7)).error().0, -32602);
    recorder.assert_untouched(mark);
    again(&agent, "echo", &sealed).result();
}

#[test]
fn a_state_without_a_round_is_only_a_word_of_the_answer() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let result = json!({ "resultType": "complete", "requestState": "input_required", "content": [] });
    let same = result.clone();
    recorder.answer_with(move |request| Reply::result(request, &same));

    assert_eq!(agent.tool("echo", json!({})).result(), result);
}
