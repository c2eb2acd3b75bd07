//! The streams of a session: opened with GET, taken up again at an event, ended with DELETE. All of it is the
//! upstream's; the gateway passes it on without mixing up whose it is.

use super::{code, config};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::http::{Event, Streaming};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::{Feed, Reply};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Gives sessions, each its own, and answers GET with the streams that were put in store.
struct Server {
    recorder: Recorder,
    streams: Arc<Mutex<Vec<Reply>>>,
}

impl Server {
    fn start() -> Server {
        let recorder = Recorder::start();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let (stored, n) = (Arc::clone(&streams), Mutex::new(0));
        recorder.answer_with(move |request: &Recorded| {
            match (request.method.as_str(), request.rpc_method().as_str()) {
                ("GET", _) => stored.lock().expect("no panics").pop().unwrap_or_else(|| Reply::new(405, "")),
                ("DELETE", _) => Reply::new(200, ""),
                (_, "initialize") => {
                    let mut n = n.lock().expect("no panics");
                    *n += 1;
                    Reply::mcp(request).header("Mcp-Session-Id", &format!("upstream-session-{n}"))
                }
                _ => Reply::mcp(request),
            }
        });
        Server { recorder, streams }
    }

    fn gateway(&self) -> Gateway {
        let upstreams = config(&[("up", format!("url: \"{}\"", self.recorder.url()))]);
        // Fixed, so that it stays the same over a restart on another port.
        let gateway = Gateway::start(&format!("public_url: http://localhost:8080\n{upstreams}"));
        gateway.wait_until_asked("up");
        gateway
    }

    /// The next GET is answered with a stream that is fed from here.
    fn offer_stream(&self) -> Feed {
        let (reply, feed) = Reply::sse_fed();
        self.streams.lock().expect("no panics").push(reply);
        feed
    }

    fn last_get(&self) -> Recorded {
        let mut gets = self.recorder.requests().into_iter().filter(|request| request.method == "GET");
        gets.next_back().expect("a GET arrived")
    }
}

fn initialized(gateway: &Gateway, user: &str) -> Agent {
    let mut agent = gateway.agent(user, "up");
    agent.initialize();
    agent
}

fn told(n: u64) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": n } })
}

/// The next event that is more than a comment.
#[track_caller]
fn next(stream: &mut Streaming<'_>) -> Event {
    loop {
        let event = stream.event().expect("the stream goes on");
        if event.id.is_some() || !event.data.is_empty() {
            return event;
        }
    }
}

#[test]
fn a_session_has_a_stream_that_brings_what_the_server_says() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    let feed = server.offer_stream();

    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();

    assert_eq!((stream.status, stream.headers.get("content-type")), (200, Some("text/event-stream")));
    feed.message(&told(1));
    assert_eq!(next(&mut stream).json(), told(1));
    let get = server.last_get();
    assert_eq!(get.header("mcp-session-id"), Some("upstream-session-2"), "the first was the gateway's own");
    assert_eq!(get.header("accept"), Some("text/event-stream"));
    assert!(get.body.is_empty() && get.header("content-length").is_none(), "{get:?}");
    drop(feed);
    assert_eq!(stream.message(), None, "the end of the server's stream is the end of the client's");
}

#[test]
fn a_server_without_streams_says_so_with_405() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");

    for status in [405, 404, 501] {
        server.streams.lock().expect("no panics").push(Reply::new(status, "no"));
        let mut agent = gateway.agent("alice", "up");
        let refused = agent.stream(None).response();
        assert_eq!((refused.status, refused.header("allow")), (405, Some("POST, DELETE")), "{status}");
        agent.session = Some("not-ours".to_owned());
        assert_eq!(agent.stream(None).response().status, 404);
    }
    server.streams.lock().expect("no panics").push(Reply::new(404, ""));
    assert_eq!(agent.stream(None).response().status, 404, "the session is what is not there");
    let modern = gateway.agent("alice", "up").modern();
    let mark = server.recorder.mark();
    for method in ["GET", "DELETE"] {
        let refused = modern.bare(method).header("Accept", "text/event-stream").send(gateway.agent);
        assert_eq!((refused.status, refused.header("allow")), (405, Some("POST")), "{method} is of older revisions");
    }
    server.recorder.assert_untouched(mark);
}

#[test]
fn a_stream_nobody_feeds_is_there_at_once_and_shows_signs_of_life() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    // Not even the head of an answer comes.
    server.streams.lock().expect("no panics").push(Reply::hang());

    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();

    assert_eq!(stream.status, 200);
    assert!(!stream.event().expect("a sign of life").comments.is_empty());
}

#[test]
fn an_event_id_is_sealed_and_takes_the_stream_up_where_it_was() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    let feed = server.offer_stream();
    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();
    feed.bytes(format!("id: theirs-1\nretry: 700\ndata: {}\n\n", told(1)));

    let event = next(&mut stream);

    let sealed = event.id.clone().expect("it has one");
    assert!(!sealed.contains("theirs"), "{sealed}");
    assert_eq!(event.json(), told(1));
    let feed = server.offer_stream();
    let mut connection = agent.stream(Some(&sealed));
    let mut stream = connection.streaming();
    feed.message(&told(2));
    assert_eq!(next(&mut stream).json(), told(2));
    assert_eq!(server.last_get().header("last-event-id"), Some("theirs-1"));
}

#[test]
fn an_event_id_is_of_use_in_its_own_session_only() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    let feed = server.offer_stream();
    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();
    feed.bytes(format!("id: theirs-1\ndata: {}\n\n", told(1)));
    let sealed = next(&mut stream).id.expect("it has one");
    let (other_session, other_user) = (initialized(&gateway, "alice"), initialized(&gateway, "bob"));
    let no_session = gateway.agent("alice", "up");

    let mark = server.recorder.mark();
    for (whose, agent) in [("session", &other_session), ("user", &other_user), ("none", &no_session)] {
        let refused = agent.stream(Some(&sealed)).response();
        assert_eq!(
            (refused.status, &refused.json()["error"]["data"]["code"]),
            (400, &json!("mcp.event_id")),
            "{whose}"
        );
    }
    for garbage in ["garbage", "theirs-1", &sealed[1..], &"A".repeat(9000)] {
        let refused = agent.stream(Some(garbage)).response();
        assert_eq!(refused.status, 400, "{garbage}");
    }
    server.recorder.assert_untouched(mark);
    let _feed = server.offer_stream();
    assert_eq!(agent.stream(Some(&sealed)).streaming().status, 200);
}

#[test]
fn the_answer_of_a_call_comes_on_the_stream_that_is_taken_up_and_no_other_does() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    let (request, id) = agent.request("tools/list", json!({}));
    // The server closes the stream without an answer (SEP-1699), and the client polls.
    server.recorder.answer_next(Reply::sse_raw(vec![b"id: place-1\nretry: 10\ndata:\n\n".to_vec()]));
    let mut connection = agent.open(&request);
    let mut stream = connection.streaming();
    let place = next(&mut stream);
    let sealed = place.id.clone().expect("it has one");
    assert!(place.data.is_empty());
    assert_eq!(stream.event(), None, "ended without an error");

    let feed = server.offer_stream();
    let mut connection = agent.stream(Some(&sealed));
    let mut stream = connection.streaming();
    let tools = json!([{ "name": "echo", "inputSchema": {} }]);
    let answer = |id: &Value| json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": tools } });
    feed.message(&answer(&json!("of somebody else")));
    feed.message(&answer(&id));

    assert_eq!(next(&mut stream).json(), answer(&id));
    assert_eq!(server.last_get().header("last-event-id"), Some("place-1"));
}

#[test]
fn a_list_on_a_stream_that_is_taken_up_is_filtered_like_any_other() {
    let server = Server::start();
    let yaml = config(&[("up", format!("url: \"{}\"", server.recorder.url()))]).replace("\"*/*\"]", "\"up/echo\"]");
    let gateway = Gateway::start(&yaml);
    gateway.wait_until_asked("up");
    let agent = initialized(&gateway, "alice");
    let (request, id) = agent.request("tools/list", json!({}));
    server.recorder.answer_next(Reply::sse_raw(vec![b"id: place-1\ndata:\n\n".to_vec()]));
    let mut connection = agent.open(&request);
    let sealed = next(&mut connection.streaming()).id.expect("it has one");

    let feed = server.offer_stream();
    let mut connection = agent.stream(Some(&sealed));
    let mut stream = connection.streaming();
    let tools = json!([{ "name": "hidden" }, { "name": "echo" }]);
    feed.message(&json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": tools } }));

    assert_eq!(next(&mut stream).json()["result"]["tools"], json!([{ "name": "echo" }]));
}

#[test]
fn a_stream_of_its_own_brings_no_answers() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    let feed = server.offer_stream();
    let mut connection = agent.stream(None);
    let mut stream = connection.streaming();

    feed.message(&json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": [{ "name": "hidden" }] } }));
    feed.message(&told(1));

    assert_eq!(next(&mut stream).json(), told(1));
    assert!(
        gateway.metric("portcullis_upstream_messages_dropped_total{reason=\"foreign_response\",upstream=\"up\"}") > 0.0
    );
}

#[test]
fn an_ended_session_is_over_for_good_also_after_a_restart() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    let sealed = agent.session.clone();
    let mut bob = initialized(&gateway, "bob");
    let mut nameless = gateway.agent("alice", "up");
    let mark = server.recorder.mark();
    bob.session.clone_from(&sealed);
    assert_eq!(bob.end_session().status(), 404, "not hers to end");
    nameless.session = None;
    assert_eq!(nameless.end_session().status(), 400);
    server.recorder.assert_untouched(mark);
    agent.tool("echo", json!({})).result();

    let ended = agent.end_session();

    assert_eq!(ended.status(), 204);
    let delete = server.recorder.last();
    assert_eq!((delete.method.as_str(), delete.header("mcp-session-id")), ("DELETE", Some("upstream-session-2")));
    assert_over(&agent, &server);
    let gateway = gateway.crash_and_restart();
    gateway.wait_until_asked("up");
    let mut agent = gateway.agent("alice", "up");
    agent.session = sealed;
    assert_over(&agent, &server);
}

#[track_caller]
fn assert_over(agent: &Agent, server: &Server) {
    let mark = server.recorder.mark();
    let refused = agent.tool("echo", json!({}));
    assert_eq!((refused.status(), code(&refused)), (404, "mcp.session"));
    assert_eq!(agent.end_session().status(), 404);
    assert_eq!(agent.stream(None).response().status, 404);
    server.recorder.assert_untouched(mark);
}

#[test]
fn a_server_that_ends_its_sessions_itself_says_so_and_they_go_on() {
    let server = Server::start();
    let gateway = server.gateway();
    let agent = initialized(&gateway, "alice");
    server.recorder.answer_next(Reply::new(405, ""));

    let refused = agent.end_session();

    assert_eq!((refused.status(), refused.response.header("allow")), (405, Some("GET, POST")));
    agent.tool("echo", json!({})).result();
}
