//! Connections that break in the middle: what was missed comes when the client comes back, and nothing else does; and
//! servers that forget.

use crate::support::agent::Agent;
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::{Event, Streaming};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::sdk::Peer;
use crate::support::wait_for;
use serde_json::{Value, json};

fn in_front(url: &str) -> Gateway {
    let gateway = Gateway::start(&in_front_of(url, super::EVERYTHING));
    super::wait_until_up(&gateway, "up");
    gateway
}

fn initialized(gateway: &Gateway, user: &str) -> Agent {
    let mut agent = gateway.agent(user, "up");
    agent.initialize();
    agent
}

/// The next event with an id or a message.
#[track_caller]
fn next(stream: &mut Streaming<'_>) -> Event {
    loop {
        let event = stream.event().expect("the stream goes on");
        if event.id.is_some() || !event.data.is_empty() {
            return event;
        }
    }
}

fn with_progress(agent: &Agent) -> (crate::support::http::Request, Value) {
    let meta = json!({ "progressToken": "p" });
    agent.request("tools/call", json!({ "name": "test_tool_with_progress", "arguments": {}, "_meta": meta }))
}

/// What comes on a stream that is taken up after this event, to the answer; all but its marks without a message.
#[track_caller]
fn taken_up(agent: &Agent, after: &str, id: &Value) -> Vec<Value> {
    let mut messages = None;
    // Until the server has noticed that its stream was cut, it says 409. Clients come back a little later.
    wait_for("the server to notice", || {
        let mut connection = agent.stream(Some(after));
        let mut stream = connection.streaming();
        if stream.status != 409 {
            messages = Some(to_the_answer(&mut stream, id));
        }
        messages.is_some()
    });
    messages.expect("it has noticed")
}

#[track_caller]
fn to_the_answer(stream: &mut Streaming<'_>, id: &Value) -> Vec<Value> {
    assert_eq!(stream.status, 200);
    let mut messages = Vec::new();
    loop {
        let message = stream.message().expect("the answer comes");
        let is_last = message["id"] == *id;
        messages.push(message);
        if is_last {
            return messages;
        }
    }
}

// B25: cloudflare/agents#1607, modelcontextprotocol/modelcontextprotocol#1939, modelcontextprotocol/inspector#723.
// Against a server on the official SDK, which keeps its events; how long it keeps them is its own business.
#[test]
fn what_a_cut_connection_missed_comes_once_and_in_order_to_who_comes_back() {
    let peer = Peer::fixture();
    let gateway = in_front(&peer.url);
    let agent = initialized(&gateway, "alice");
    let (request, id) = with_progress(&agent);
    let mut connection = agent.open(&request);
    let mut stream = connection.streaming();
    let second = loop {
        let event = next(&mut stream);
        if !event.data.is_empty() && event.json()["params"]["progress"] == 50 {
            break event.id.expect("it has a place");
        }
    };

    drop(connection);

    let messages = taken_up(&agent, &second, &id);
    let text = json!({ "content": [{ "type": "text", "text": "progressed" }] });
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!((&messages[0]["params"]["progress"], &messages[1]["result"]), (&json!(100), &text));
    // The same place again: the same events, not the next ones.
    assert_eq!(taken_up(&agent, &second, &id), messages);

    // Nobody else comes by it, nor does its own client in another session; and nothing hangs.
    let (other, bob) = (initialized(&gateway, "alice"), initialized(&gateway, "bob"));
    for (case, agent, place) in [
        ("garbage", &agent, "garbage"),
        ("another session", &other, second.as_str()),
        ("another user", &bob, second.as_str()),
    ] {
        let refused = agent.stream(Some(place)).response();
        assert_eq!(
            (refused.status, refused.json()["error"]["data"]["code"].as_str()),
            (400, Some("mcp.event_id")),
            "{case}"
        );
    }
}

// B25: an id of another stream of the same session brings that stream's events and no others.
#[test]
fn streams_of_one_session_are_taken_up_each_on_its_own() {
    let peer = Peer::fixture();
    let gateway = in_front(&peer.url);
    let agent = initialized(&gateway, "alice");
    let places: Vec<(String, Value)> = (0..2)
        .map(|_| {
            let (request, id) = with_progress(&agent);
            let mut connection = agent.open(&request);
            (next(&mut connection.streaming()).id.expect("a server that keeps its events marks the beginning"), id)
        })
        .collect();

    for (place, id) in &places {
        let messages = taken_up(&agent, place, id);

        let ids: Vec<&Value> = messages.iter().filter_map(|message| message.get("id")).collect();
        assert_eq!((ids, messages.len()), (vec![id], 4), "{messages:?}");
    }
}

/// A session of one server, then another process of that server in its place, which does not know it: a restart.
#[track_caller]
fn restarted(before: &Peer, after: &Peer) -> (Gateway, Agent) {
    let gateway = in_front(&before.url);
    let agent = initialized(&gateway, "alice");
    assert!(agent.session.is_some() && !agent.tools().is_empty());
    gateway.rewrite(&in_front_of(&after.url, super::EVERYTHING));
    gateway.reload().success();
    (gateway, agent)
}

// B18: agentgateway/agentgateway#3622, cloudflare/agents#1923, samanhappy/mcphub#196. One upstream stands behind each
// route here, so that no session has several of them: that the others go on is a matter of other routes.
#[test]
fn a_session_that_its_server_has_forgotten_is_unknown_and_a_new_one_works() {
    // The first says 404, the second 400 ("No valid session ID provided"), as the samples of its SDK do.
    for start in [Peer::fixture, Peer::everything] {
        let (before, after) = (start(), start());
        let (gateway, mut agent) = restarted(&before, &after);

        for _ in 0..2 {
            let lost = agent.call("tools/list", json!({}));
            assert_eq!(lost.status(), 404, "{lost:?}");
        }

        // What clients do on 404, and the specification asks of them.
        agent.session = None;
        agent.initialize();
        assert!(!agent.tools().is_empty());
        let bob = initialized(&gateway, "bob");
        assert!(!bob.tools().is_empty());
    }
}

// B18: other complaints with 400 stay what they are.
#[test]
fn a_bad_request_in_a_session_that_goes_on_is_no_lost_session() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| match request.rpc_method().as_str() {
        "initialize" => Reply::mcp(request).header("Mcp-Session-Id", "theirs"),
        "tools/call" => Reply::error(request, -32600, "Bad Request: nonsense").status(400),
        _ => Reply::mcp(request),
    });
    let gateway = in_front(&recorder.url());
    let agent = initialized(&gateway, "alice");

    let refused = agent.tool("echo", json!({}));

    assert_eq!((refused.status(), refused.error()), (400, (-32600, "Bad Request: nonsense".to_owned())));
    agent.call("tools/list", json!({})).result();
}
