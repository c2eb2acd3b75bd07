//! An approved call on its way to the server: built from what was approved, in the caller's session and era; and what comes
//! back, whatever that is, is the answer.

use super::decide::{all, approve, config, id, only, wait_for_held};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

fn start(recorder: &Recorder) -> Gateway {
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s"));
    gateway.wait_until_asked("up");
    gateway
}

/// Makes a call, and has it approved as soon as it is held.
#[track_caller]
fn call(gateway: &Gateway, agent: &Agent, params: &Value) -> Answer {
    let n = all(gateway).len();
    thread::scope(|scope| {
        let call = scope.spawn(|| agent.call("tools/call", params.clone()));
        approve(gateway, &wait_for_held(gateway, n + 1));
        call.join().expect("it is answered")
    })
}

fn danger() -> Value {
    json!({ "name": "danger", "arguments": { "n": 1 } })
}

/// `tools/call` is answered so, everything else as ever.
fn answer_calls(recorder: &Recorder, answer: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) {
    recorder.answer_with(move |request: &Recorded| match request.rpc_method().as_str() {
        "tools/call" => answer(request),
        _ => Reply::mcp(request),
    });
}

#[test]
fn what_is_sent_is_what_was_approved_and_what_the_protocol_needs() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern().with_capabilities(json!({ "roots": {} }));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let params = json!({ "name": "danger", "arguments": { "n": 1 }, "extra": "x", "inputResponses": { "q": { "b": 1 } },
                         "_meta": { "traceparent": trace, "progressToken": 7, "note": "x" } });

    let answer = call(&gateway, &agent, &params);

    answer.result();
    let sent = recorder.calls();
    assert_eq!(sent.len(), 1);
    let body = sent[0].json();
    assert_eq!(body["params"]["arguments"], json!({ "n": 1 }));
    assert_eq!(body["params"]["inputResponses"], json!({ "q": { "b": 1 } }));
    assert_eq!(body["params"].get("extra"), None, "nobody saw it");
    let meta = &body["params"]["_meta"];
    assert_eq!((&meta["progressToken"], &meta["traceparent"], meta.get("note")), (&json!(7), &json!(trace), None));
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({ "roots": {} }));
    assert_eq!(sent[0].header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!((sent[0].header("mcp-method"), sent[0].header("mcp-name")), (Some("tools/call"), Some("danger")));
    assert_eq!(sent[0].header("authorization"), None);
    assert!(body["id"].as_str().expect("an id of ours").starts_with("portcullis-"));
}

#[test]
fn headers_that_mirror_arguments_are_made_from_what_was_approved() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| {
        if request.rpc_method() != "tools/list" {
            return Reply::mcp(request);
        }
        let region = json!({ "type": "string", "x-mcp-header": "Region" });
        let schema = json!({ "type": "object", "properties": { "region": region } });
        Reply::result(request, &json!({ "tools": [{ "name": "danger", "inputSchema": schema }] }))
    });
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();
    let (request, request_id) =
        agent.request("tools/call", json!({ "name": "danger", "arguments": { "region": "eu" } }));
    let request = request.header("Mcp-Param-Region", "eu").header("Mcp-Param-Other", "unseen");

    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| agent.send(&request, Some(&request_id)));
        approve(&gateway, &wait_for_held(&gateway, 1));
        call.join().expect("it is answered")
    });

    answer.result();
    let sent = recorder.calls();
    assert_eq!((sent[0].header("mcp-param-region"), sent[0].header("mcp-param-other")), (Some("eu"), None));
}

#[test]
fn an_error_of_the_server_is_an_answer_like_any_other() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up");
    answer_calls(&recorder, |request| Reply::error(request, -32000, "out of paper"));

    let answer = call(&gateway, &agent, &danger());

    assert_eq!(answer.error(), (-32000, "out of paper".to_owned()));
    assert_eq!(only(&gateway)["state"], "completed");
    answer_calls(&recorder, |request| Reply::error(request, -32602, "no").status(400));
    assert_eq!(call(&gateway, &agent, &danger()).error(), (-32602, "no".to_owned()));
    assert_eq!(recorder.calls().len(), 2);
}

#[test]
fn a_server_that_breaks_is_a_failed_run_and_says_whether_it_may_have_run() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up");
    type Case = (fn(&Recorded) -> Reply, &'static str);
    let cases: [Case; 4] = [
        (|_| Reply::close(), "upstream.lost"),
        (|_| Reply::new(503, ""), "upstream.status"),
        (|_| Reply::json("{}"), "upstream.malformed"),
        (|_| Reply::sse(&[]), "upstream.lost"),
    ];
    for (n, (reply, code)) in cases.into_iter().enumerate() {
        answer_calls(&recorder, reply);

        let answer = call(&gateway, &agent, &danger());

        assert_eq!(answer.message["error"]["data"]["code"], code);
        let (_, text) = answer.error();
        assert!(text.contains("Whether it ran is not known") && text.contains("used up"), "{text}");
        assert_eq!((&all(&gateway)[0]["state"], recorder.calls().len()), (&json!("failed"), n + 1));
    }
}

#[test]
fn a_server_in_mid_call_is_told_that_nobody_can_be_asked_and_a_ping_is_answered() {
    let recorder = Recorder::start();
    let told: Arc<Mutex<Vec<Value>>> = Arc::default();
    let heard = Arc::clone(&told);
    recorder.answer_with(move |request: &Recorded| {
        if request.rpc_method() == "tools/call" {
            let ask = json!({ "jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": {} });
            let ping = json!({ "jsonrpc": "2.0", "id": "ping", "method": "ping" });
            let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": "working" } });
            let foreign = json!({ "jsonrpc": "2.0", "id": "other", "result": { "content": ["not yours"] } });
            let answer = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": { "content": [] } });
            return Reply::sse(&[ask, ping, log, foreign, answer]);
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if message.get("method").is_none() && message.get("id").is_some() {
            heard.lock().expect("no recorder thread panics").push(message);
        }
        Reply::mcp(request)
    });
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").with_capabilities(json!({ "elicitation": {} }));

    let answer = call(&gateway, &agent, &danger());

    assert_eq!(answer.result(), json!({ "content": [] }));
    let logged = answer.notifications.iter().any(|told| told["params"]["data"] == "working");
    assert!(logged, "what it says on the way is passed on: {answer:#?}");
    wait_for("both to be answered", || told.lock().expect("no recorder thread panics").len() == 2);
    for message in told.lock().expect("no recorder thread panics").iter() {
        match message["id"].as_str() {
            Some("ping") => assert_eq!(message["result"], json!({})),
            _ => assert_eq!((&message["id"], &message["error"]["code"]), (&json!("ask"), &json!(-32601))),
        }
    }
}

#[test]
fn a_stream_that_its_server_ends_to_be_asked_again_is_taken_up_again() {
    let recorder = Recorder::start();
    let asked: Arc<Mutex<Value>> = Arc::default();
    let id = Arc::clone(&asked);
    recorder.answer_with(move |request: &Recorded| {
        if request.rpc_method() == "tools/call" {
            *id.lock().expect("no recorder thread panics") = request.json()["id"].clone();
            return Reply::sse_raw(vec![b"id: place-1\nretry: 10\ndata:\n\n".to_vec()]);
        }
        match request.header("last-event-id") {
            Some("place-1") => Reply::sse_raw(vec![b"id: place-2\ndata:\n\n".to_vec()]),
            Some("place-2") => {
                let id = id.lock().expect("no recorder thread panics").clone();
                Reply::sse(&[json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } })])
            }
            _ => Reply::mcp(request),
        }
    });
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up");

    let answer = call(&gateway, &agent, &danger());

    assert_eq!(answer.result(), json!({ "content": [] }));
    assert_eq!((recorder.calls().len(), only(&gateway)["state"].as_str()), (1, Some("completed")));
}

#[test]
fn a_question_of_the_server_completes_an_approval_and_the_next_round_is_held_anew() {
    const STATE: &str = "their own state";
    let recorder = Recorder::start();
    answer_calls(&recorder, |request| {
        if request.json()["params"].get("inputResponses").is_some() {
            return Reply::mcp(request);
        }
        let ask = json!({ "q": { "method": "elicitation/create", "params": { "mode": "form", "message": "which?" } } });
        let round = json!({ "resultType": "input_required", "inputRequests": ask, "requestState": STATE });
        Reply::result(request, &round)
    });
    let gateway = start(&recorder);
    let agent = gateway.agent("alice", "up").modern();

    let round = call(&gateway, &agent, &danger()).result();

    let sealed = round["requestState"].as_str().expect("a state").to_owned();
    assert!(!sealed.contains("their"), "{sealed}");
    assert_eq!(only(&gateway)["state"], "completed");
    let responses = json!({ "q": { "action": "accept", "content": { "which": "prod" } } });
    let next =
        json!({ "name": "danger", "arguments": { "n": 1 }, "inputResponses": responses, "requestState": sealed });
    call(&gateway, &agent, &next).result();
    let sent = recorder.calls();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].json()["params"]["requestState"], STATE, "it has back what it gave out");
    let approved = gateway.cli(&["approvals", "show", id(&all(&gateway)[0]), "--json"]).success().stdout;
    assert!(approved.contains("prod") && approved.contains(STATE), "{approved}");
    assert_eq!(all(&gateway).len(), 2);
}

/// A server with sessions, which forgets all of them at a word.
fn with_sessions(recorder: &Recorder) -> Arc<AtomicBool> {
    let has_forgotten = Arc::new(AtomicBool::new(false));
    let forgotten = Arc::clone(&has_forgotten);
    recorder.answer_with(move |request: &Recorded| {
        let is_known =
            request.header("mcp-session-id") == Some(if forgotten.load(Ordering::SeqCst) { "new" } else { "old" });
        match request.rpc_method().as_str() {
            "initialize" => {
                let session = if forgotten.load(Ordering::SeqCst) { "new" } else { "old" };
                Reply::mcp(request).header("Mcp-Session-Id", session)
            }
            "server/discover" => Reply::mcp(request),
            _ if is_known => Reply::mcp(request),
            _ => Reply::new(404, ""),
        }
    });
    has_forgotten
}

#[test]
fn a_call_runs_in_its_callers_session() {
    let recorder = Recorder::start();
    with_sessions(&recorder);
    let gateway = start(&recorder);
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();

    call(&gateway, &agent, &danger()).result();

    let sent = recorder.calls();
    assert_eq!((sent.len(), sent[0].header("mcp-session-id")), (1, Some("old")));
    assert_eq!(sent[0].header("mcp-protocol-version"), Some("2025-11-25"));
}

#[test]
fn an_approval_is_not_spent_in_a_session_that_the_server_has_forgotten() {
    let recorder = Recorder::start();
    let has_forgotten = with_sessions(&recorder);
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 100ms"));
    gateway.wait_until_asked("up");
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();
    agent.call("tools/call", danger()).refusal();
    approve(&gateway, &only(&gateway));
    has_forgotten.store(true, Ordering::SeqCst);

    let refused = agent.call("tools/call", danger());

    assert_eq!(refused.status(), 404, "the client is to begin a new one: {refused:#?}");
    assert!(recorder.calls().is_empty());
    assert_eq!(only(&gateway)["state"], "approved");
    let mut again = gateway.agent("alice", "up");
    again.initialize();
    again.call("tools/call", danger()).result();
    assert_eq!((recorder.calls().len(), all(&gateway).len()), (1, 1));
}
