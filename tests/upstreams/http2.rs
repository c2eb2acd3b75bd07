//! Upstreams that speak HTTP/2: when it is spoken, what crosses, what is sent again, and how streams share a connection.

use super::{assert_failed, config};
use crate::support::gateway::{Gateway, Launch};
use crate::support::http2::{Deed, Doorkeeper, Upstream};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::tls::Identity;
use crate::support::wait_for;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

fn mcp(request: &Recorded) -> Deed {
    Deed::Answer(Reply::mcp(request))
}

/// A gateway in front of this upstream, in plain.
fn in_front_of(upstream: &Upstream) -> Gateway {
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\", http2: true", upstream.url()))]));
    gateway.wait_until_asked("up");
    gateway
}

/// An upstream that treats the calls of tools, one after the other, in this way, and the rest as the last.
fn calls(deeds: impl Fn(usize) -> Option<Deed> + Send + Sync + 'static) -> Upstream {
    let n_calls = AtomicUsize::new(0);
    Upstream::start(move |request| {
        let is_call = request.rpc_method() == "tools/call";
        let deed = if is_call { deeds(n_calls.fetch_add(1, Ordering::SeqCst)) } else { None };
        deed.unwrap_or_else(|| mcp(request))
    })
}

#[test]
fn over_tls_the_server_chooses_and_http_2_can_be_forbidden() {
    let ours = Identity::authority("ours");
    let identity = ours.sign(&["127.0.0.1"]);
    let (newer, older) = (Upstream::start_tls(&identity, mcp), Recorder::start_tls(&identity, None));
    let settings = |url: &str, more: &str| format!("url: \"{url}\", tls: {{ ca: ca.pem }}{more}");
    let yaml = config(&[
        ("newer", settings(newer.url(), "")),
        ("wanted", settings(newer.url(), ", http2: true")),
        ("forbidden", settings(newer.url(), ", http2: false")),
        ("older", settings(&older.url(), "")),
    ]);
    let gateway = Launch::new(&yaml).file("ca.pem", &ours.cert).start();

    for (n, name) in ["newer", "wanted", "older"].into_iter().enumerate() {
        let answer = gateway.agent("alice", name).tool("echo", json!({ "n": n }));
        assert_eq!(answer.result()["structuredContent"], json!({ "n": n }), "{name}");
    }
    assert_eq!(newer.calls().len(), 2);
    assert_eq!(newer.calls()[0].target, newer.url());
    assert_eq!(older.calls().len(), 1);
    // It offers nothing else.
    let refused = gateway.agent("alice", "forbidden").tool("echo", json!({}));
    assert_failed("forbidden", &refused, "upstream.tls", "TLS");
    assert_eq!(newer.calls().len(), 2);
}

#[test]
fn in_plain_http_2_is_spoken_only_where_it_is_said() {
    let (newer, older) = (Upstream::start(mcp), Recorder::start());
    let yaml = config(&[
        ("newer", format!("url: \"{}\", http2: true", newer.url())),
        ("unsaid", format!("url: \"{}\"", newer.url())),
        ("older", format!("url: \"{}\"", older.url())),
    ]);
    let gateway = Gateway::start(&yaml);

    gateway.agent("alice", "newer").tool("echo", json!({ "a": 1 })).result();
    gateway.agent("alice", "older").tool("echo", json!({ "a": 1 })).result();
    assert!(gateway.agent("alice", "unsaid").tool("echo", json!({})).message["error"].is_object());

    assert_eq!(newer.calls().len(), 1);
    let head = &newer.calls()[0];
    assert_eq!((head.method.as_str(), head.target.as_str()), ("POST", newer.url()), "scheme and authority are named");
}

#[test]
fn what_the_server_says_it_has_not_looked_at_is_sent_again() {
    let upstream = calls(|n| (n == 0).then_some(Deed::Refuse));
    let gateway = in_front_of(&upstream);
    let answer = gateway.agent("alice", "up").tool("echo", json!({ "a": 1 }));
    assert_eq!(answer.result()["structuredContent"], json!({ "a": 1 }));
    assert_eq!(upstream.calls().len(), 2, "refused once");

    let upstream = Upstream::start(mcp);
    let door = Doorkeeper::before(&upstream);
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\", http2: true", door.url()))]));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    agent.tool("echo", json!({ "n": 1 })).result();
    door.close();
    assert_eq!(agent.tool("echo", json!({ "n": 2 })).result()["structuredContent"], json!({ "n": 2 }));
    assert_eq!(upstream.calls().len(), 2, "what was turned away at the door came in by another");
    assert!(upstream.n_connections() >= 2);

    // Not for ever.
    let upstream = calls(|_| Some(Deed::Refuse));
    let gateway = in_front_of(&upstream);
    let refused = gateway.agent("alice", "up").tool("echo", json!({}));
    assert_failed("always", &refused, "upstream.unreachable", "cannot be reached");
    assert_eq!(upstream.calls().len(), 3);
}

#[test]
fn a_call_that_may_have_run_is_not_sent_again() {
    let upstream = calls(|n| (n == 0).then_some(Deed::Reset));
    let gateway = in_front_of(&upstream);
    let agent = gateway.agent("alice", "up");

    let lost = agent.tool("echo", json!({ "n": 0 }));

    assert_failed("reset", &lost, "upstream.lost", "not known");
    assert_eq!(upstream.calls().len(), 1);
    // The stream is lost, the connection is not.
    agent.tool("echo", json!({ "n": 1 })).result();
    assert_eq!(upstream.n_connections(), 1);
}

#[test]
fn idle_streams_share_connections_and_leave_room_for_more() {
    let upstream = calls(|n| (n < 150).then_some(Deed::Silent));
    let gateway = in_front_of(&upstream);
    let agent = gateway.agent("alice", "up");
    let mut held = Vec::new();
    for n in 1..=150 {
        let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
        held.push(agent.open(&request));
        wait_for("the call to arrive", || upstream.calls().len() >= n);
    }

    agent.tool("echo", json!({})).result();

    // A hundred on each; a connection that is just being asked for a stream is passed by, so it may be one more.
    assert!((2..=3).contains(&upstream.n_connections()), "{} connections", upstream.n_connections());
    drop(held);
    wait_for("no request in flight", || gateway.metric("portcullis_requests_in_flight") < 0.5);
    agent.tool("echo", json!({})).result();
}

#[test]
fn a_client_that_leaves_ends_its_stream_and_not_the_connection() {
    let upstream = calls(|n| (n == 0).then_some(Deed::Endless));
    let gateway = in_front_of(&upstream);
    let agent = gateway.agent("alice", "up");
    let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut connection = agent.open(&request);
    assert_eq!(connection.streaming().status, 200);

    drop(connection);

    wait_for("no request in flight", || gateway.metric("portcullis_requests_in_flight") < 0.5);
    let n_sent = upstream.n_sent();
    agent.tool("echo", json!({})).result();
    assert_eq!(upstream.n_connections(), 1);
    // What was under way may still have been counted; an endless stream that goes on sends more than that at once.
    assert!(upstream.n_sent() - n_sent < 1024 * 1024);
}
