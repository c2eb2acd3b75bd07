//! HTTP/2 and the hops before and behind it: heads that go on at once, and headers that belong to one hop only.

use super::{EVERYTHING, settled, wait_until_up};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::{Connection, Request, Response};
use crate::support::http2::{Client, Deed, Upstream};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::tls::{self, Identity};
use crate::support::wire;
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use tokio::time::Instant;

fn call(gateway: &Gateway) -> Request {
    gateway.agent("alice", "up").request("tools/call", json!({ "name": "echo" })).0
}

// B66: modelcontextprotocol/go-sdk#937, robhunter/agentdeals#1100.
#[test]
fn head_and_first_bytes_of_a_slow_call_come_at_once_on_either_version() {
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let own = ca.sign(&["localhost"]);
    let plain = settled(&recorder, EVERYTHING);
    let yaml = format!(
        "public_url: https://localhost:8443\ntls: {{ cert: own.pem, key: own.key }}\n{}",
        in_front_of(&recorder.url(), EVERYTHING)
    );
    let launch = Launch::new(&yaml).file("own.pem", &own.cert).file("own.key", &own.key);
    fs::set_permissions(launch.path("own.key"), Permissions::from_mode(0o600)).expect("the file is ours");
    let over_tls = launch.start();
    wait_until_up(&over_tls, "up");
    // What a busy machine adds to the second that is promised.
    let soon = Duration::from_secs(4);
    let upstream_says_nothing = || recorder.answer_next(Reply::hang());

    upstream_says_nothing();
    let (request, start) = (call(&plain), Instant::now());
    let mut connection = Connection::open(plain.agent);
    connection.send(&request.to_bytes(&plain.agent.to_string()));
    let mut stream = connection.streaming();
    assert!(stream.event().is_some_and(|event| event.data.is_empty()) && start.elapsed() < soon);

    upstream_says_nothing();
    let (request, start) = (call(&plain), Instant::now());
    let client = Client::open(plain.agent);
    let mut stream = client.streaming(&request);
    assert_eq!((stream.status, stream.headers.get("content-type")), (200, Some("text/event-stream")));
    assert!(stream.event().is_some_and(|event| event.data.is_empty()) && start.elapsed() < soon);

    upstream_says_nothing();
    let connected = tls::connect_offering(over_tls.agent, "localhost", &ca, &[b"h2"]).expect("the certificate is good");
    let (request, start) = (call(&over_tls), Instant::now());
    let client = Client::on(connected.stream, "localhost:8443");
    let mut stream = client.streaming(&request);
    assert!(stream.event().is_some_and(|event| event.data.is_empty()) && start.elapsed() < soon);
}

/// Fields that belong to the hop they come on, and one that the client declares to be of that kind.
const OF_ONE_HOP: &[(&str, &str)] = &[
    ("Connection", "close, X-Drop"),
    ("X-Drop", "1"),
    ("Keep-Alive", "timeout=5"),
    ("TE", "trailers, gzip"),
    ("Proxy-Connection", "keep-alive"),
    ("Upgrade", "h2c"),
    ("Trailer", "X-Later"),
];

#[track_caller]
fn assert_clean(seen: &Recorded) {
    for (name, _) in OF_ONE_HOP {
        assert_eq!(seen.header(name), None, "{name} crossed: {seen:?}");
    }
    assert_eq!(seen.header("transfer-encoding"), None, "{seen:?}");
    assert_eq!(seen.header("expect"), None, "{seen:?}");
}

fn with_fields_of_one_hop(gateway: &Gateway) -> Response {
    let chunks = |body: &[u8]| [wire::chunk(body), wire::chunk(b"")].concat();
    let request = call(gateway);
    let body = chunks(request.body_bytes());
    let request = OF_ONE_HOP.iter().fold(request, |request, (name, value)| request.header(name, value));
    request.header("Transfer-Encoding", "chunked").body(body).send(gateway.agent)
}

// B68: cloudflare/pingora#713, envoyproxy/envoy#46818.
#[test]
fn fields_of_one_hop_reach_no_other_and_close_no_pooled_connection() {
    let older = Recorder::start();
    older.answer_with(|request| Reply::mcp(request).header("Connection", "X-Up").header("X-Up", "1"));
    let newer = Upstream::start(|request| Deed::Answer(Reply::mcp(request).header("x-up", "1")));
    let to_older = settled(&older, EVERYTHING);
    let to_newer = Gateway::start(&in_front_of(newer.url(), EVERYTHING).replace(" } }", ", http2: true } }"));
    wait_until_up(&to_newer, "up");

    for gateway in [&to_older, &to_newer] {
        for _ in 0..3 {
            let answer = with_fields_of_one_hop(gateway);
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(answer.header("x-up"), None);
            assert!(answer.header("connection").is_none_or(|value| value == "close"), "{answer:?}");
        }
    }
    assert_eq!((older.calls().len(), newer.calls().len()), (3, 3));
    older.calls().iter().chain(&newer.calls()).for_each(assert_clean);
    let connections = |calls: Vec<Recorded>| calls.iter().map(|call| call.connection).collect::<Vec<_>>();
    let of_newer = connections(newer.calls());
    assert!(of_newer.iter().all(|connection| *connection == of_newer[0]), "{of_newer:?}");
    let of_older = connections(older.calls());
    assert!(of_older.iter().all(|connection| *connection == of_older[0]), "{of_older:?}");
}

// B68: a conflict of lengths is refused, and a body is asked for only of those who may send it.
#[test]
fn conflicting_lengths_are_refused_and_no_body_is_asked_for_in_vain() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let mark = recorder.mark();
    let request = call(&gateway);
    let length = request.body_bytes().len().to_string();

    let conflict = request.clone().header("Content-Length", &length).header("Transfer-Encoding", "chunked");
    let mut connection = Connection::open(gateway.agent);
    connection.send(&conflict.to_bytes(&gateway.agent.to_string()));
    assert_eq!(connection.response().status, 400);
    assert!(connection.closes_within(Duration::from_secs(10)));
    let expecting = request.clone().header("Expect", "100-continue").header("Content-Length", &length).body("");
    let stranger = expecting.clone().without("authorization");
    let too_large = expecting.clone().without("content-length").header("Content-Length", "999999999");
    for (request, status) in [(stranger, 401), (too_large, 413)] {
        let mut connection = Connection::open(gateway.agent);
        connection.send(&request.to_bytes(&gateway.agent.to_string()));
        assert_eq!(connection.response().status, status);
    }
    recorder.assert_untouched(mark);

    let mut connection = Connection::open(gateway.agent);
    connection.send(&expecting.to_bytes(&gateway.agent.to_string()));
    assert_eq!(connection.response().status, 100);
    connection.send(request.body_bytes());
    assert_eq!(connection.response().status, 200);
    assert_eq!(recorder.requests_since(mark).len(), 1);
}
