//! HTTP/2 from clients: everything that holds on HTTP/1.1 holds here, and streams share a connection without harm to
//! each other.

use crate::support::agent::Agent;
use crate::support::gate::{Gate, call, error};
use crate::support::gateway::in_front_of;
use crate::support::http::Request;
use crate::support::http2::{
    CONTINUATION, Client, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, fields,
};
use crate::support::invariants;
use crate::support::reply::Reply;
use crate::support::wait_for;
use async_trait::async_trait;
use bytes::Bytes;
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const RULES: &str = r#"
- { name: everything, tools: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
"#;

fn gate() -> Gate {
    Gate::with_rules(RULES)
}

#[test]
fn a_client_of_http_2_gets_what_a_client_of_http_1_gets() {
    let gate = gate();
    let client = Client::open(gate.gateway.agent);

    for n in 0..3 {
        let answer = client.send(&gate.post(call("echo", &format!(r#"{{"n":{n}}}"#))));
        invariants::check(&answer, Some(&json!(7)));
        assert_eq!(answer.json()["result"]["structuredContent"], json!({ "n": n }));
        for name in ["connection", "transfer-encoding", "keep-alive", "upgrade"] {
            assert_eq!(answer.header(name), None, "{name}");
        }
    }
    let mark = gate.recorder.mark();
    let denied = client.send(&gate.post(call("danger", "{}")));
    assert_eq!((denied.status, &denied.json()["error"]["message"]), (200, &json!("Unknown tool")));
    let stranger = client.send(&gate.post(call("echo", "{}")).without("authorization"));
    assert_eq!(stranger.status, 401);
    invariants::check(&stranger, None);
    let foreign = client.send(&gate.post("{}").header("origin", "https://evil.test"));
    assert_eq!(foreign.status, 403);
    let unknown = client.send(&Request::mcp("/mcp/nowhere", "{}"));
    assert_eq!(unknown.status, 404);
    let document = client.send(&Request::get("/.well-known/oauth-protected-resource/mcp/up"));
    assert_eq!(document.status, 200);
    gate.recorder.assert_untouched(mark);

    // One connection for all of it, and calls side by side.
    assert_eq!(gate.gateway.metric("portcullis_connections{listener=\"agent\"}"), 1.0);
    let bodies: Vec<String> = (0..20).map(|n| call("echo", &format!(r#"{{"n":{n}}}"#))).collect();
    let begun: Vec<_> = bodies
        .iter()
        .map(|body| {
            let mut sending = client.begin_request(&gate.post(""), false).expect("a stream is free");
            sending.body.send_data(Bytes::from(body.clone()), true).expect("it is open");
            sending
        })
        .collect();
    for (n, sending) in begun.into_iter().enumerate() {
        let answer = client.answer(sending).expect("it is answered").rest();
        assert_eq!(answer.json()["result"]["structuredContent"], json!({ "n": n }));
    }
}

#[test]
fn bodies_over_every_window_arrive_whole_both_ways() {
    let gate = gate();
    let client = Client::open(gate.gateway.agent);
    let large = call("echo", &format!(r#"{{"pad":"{}"}}"#, "x".repeat(1_000_000)));
    let mut sending = client.begin_request(&gate.post(""), false).expect("a stream is free");
    // The library waits for window updates by itself.
    sending.body.send_data(Bytes::from(large.clone()), true).expect("it is open");

    let answer = client.answer(sending).expect("it is answered").rest();

    assert_eq!(answer.json()["result"]["structuredContent"]["pad"].as_str().map(str::len), Some(1_000_000));
    assert!(gate.recorder.last().body == large.as_bytes());
}

#[test]
fn a_client_that_resets_its_stream_or_leaves_is_noticed() {
    let gate = gate();
    let client = Client::open(gate.gateway.agent);
    for leaves in [false, true] {
        let mark = gate.recorder.mark();
        gate.recorder.answer_next(Reply::hang());
        let mut sending = client.begin_request(&gate.post(""), false).expect("a stream is free");
        sending.body.send_data(Bytes::from(call("echo", "{}")), true).expect("it is open");
        let connection = gate.recorder.wait_for_requests(mark, 1)[0].connection;

        if leaves {
            drop(client);
            gate.recorder.wait_until_closed(connection);
            break;
        }
        sending.body.send_reset(h2::Reason::CANCEL);
        gate.recorder.wait_until_closed(connection);
        // The connection goes on.
        assert_eq!(client.send(&gate.post(call("echo", "{}"))).status, 200);
    }
    wait_for("no request in flight", || gate.gateway.metric("portcullis_requests_in_flight") < 0.5);
}

#[test]
fn trailers_are_dropped_and_no_100_is_waited_for() {
    let gate = gate();
    let client = Client::open(gate.gateway.agent);
    let mark = gate.recorder.mark();
    let mut sending = client.begin_request(&gate.post("").header("expect", "100-continue"), false).expect("it is free");
    sending.body.send_data(Bytes::from(call("echo", "{}")), false).expect("it is open");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("mcp-name", "danger".parse().expect("a value"));
    trailers.insert("authorization", "Bearer x".parse().expect("a value"));
    sending.body.send_trailers(trailers).expect("it is open");

    assert_eq!(client.answer(sending).expect("it is answered").rest().status, 200);
    let arrived = gate.recorder.requests_since(mark);
    assert_eq!(arrived.len(), 1);
    assert_eq!((arrived[0].header("mcp-name"), arrived[0].header("authorization")), (None, None));
}

#[test]
fn a_stop_lets_open_streams_come_to_their_end() {
    let mut gate = gate();
    let client = Client::open(gate.gateway.agent);
    let (reply, feed) = Reply::sse_fed();
    gate.recorder.answer_next(reply);
    let mut stream = client.streaming(&gate.post(call("echo", "{}")));
    stream.event().expect("a comment comes first");

    gate.gateway.signal("TERM");
    gate.gateway.wait_for_log("stopping");
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progress": 1 } });
    feed.message(&progress);
    assert_eq!(stream.event().expect("the stream goes on").json(), progress);
    // GOAWAY has told the client to open no further ones.
    assert!(client.try_streaming(&gate.post(call("echo", "{}"))).is_err());
    feed.message(&json!({ "jsonrpc": "2.0", "id": 7, "result": {} }));
    assert_eq!(stream.event().expect("the answer").json()["result"], json!({}));

    assert_eq!(stream.event(), None);
    assert!(gate.gateway.stop().success());
}

/// An application that leaves the body of `/idle` unread until the client is gone, and answers others with the length
/// of theirs.
struct Lazy;

#[async_trait]
impl HttpServerApp for Lazy {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        session.read_request().await.ok().filter(|is_there| *is_there)?;
        if session.req_header().uri.path() == "/idle" {
            drop(session.read_body_or_idle(true).await);
            return None;
        }
        let mut n = 0;
        while let Some(piece) = session.read_request_body().await.ok()? {
            n += piece.len();
        }
        let mut head = ResponseHeader::build(200, None).ok()?;
        head.insert_header("length", n).ok()?;
        session.write_response_header(Box::new(head)).await.ok()?;
        session.finish_body().await.ok()?;
        None
    }
}

/// The windows are those of the real listener; only what stands behind it does not read.
#[test]
fn idle_streams_with_unread_data_starve_no_post() {
    const STREAMS: usize = 50;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("gateway.yaml");
    let yaml = format!("limits: {{ streams: {STREAMS} }}\n{}", in_front_of("http://127.0.0.1:1/mcp", RULES));
    std::fs::write(&file, yaml).expect("the folder is ours");
    let (_, snapshot) = portcullis::snapshot::compile_file(&file).expect("a good configuration");
    let listener = portcullis::listener::Listener {
        name: "agent",
        app: Arc::new(Lazy),
        certificate: None,
        max_connections: 10,
        makes_room: false,
        snapshots: Arc::new(arc_swap::ArcSwap::from_pointee(snapshot)),
        metrics: Arc::new(portcullis::metrics::Metrics::new()),
        clock: portcullis::clock::Clock::System,
    };
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (stop, stopping) = tokio::sync::watch::channel(false);
    runtime.spawn(async move {
        let socket = portcullis::listener::Socket::tcp(socket).expect("it listens");
        listener.run(socket, stopping).await;
    });

    let client = Client::open(address);
    let mut idle = Vec::new();
    for _ in 1..STREAMS {
        let mut sending = client.begin_request(&Request::post("/idle"), false).expect("a stream is free");
        // More than its window: the library sends what flow control lets go, and keeps the rest.
        sending.body.send_data(Bytes::from(vec![0; 100_000]), false).expect("it is open");
        idle.push(sending);
    }
    let body = Bytes::from(vec![1; 200_000]);
    let mut post = client.begin_request(&Request::post("/post"), false).expect("a stream is free");
    post.body.send_data(body.clone(), true).expect("it is open");
    let answer = client.answer(post).expect("it is answered");

    assert_eq!(answer.headers.get("length"), Some(body.len().to_string().as_str()));
    drop((idle, stop));
}

/// The pseudo-header fields of a good request, and what the token needs.
fn good(gate: &Gate) -> Vec<(String, String)> {
    let text =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>();
    let authority = gate.gateway.agent.to_string();
    let bearer = format!("Bearer {}", gate.token);
    text(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcp/up"),
        (":authority", &authority),
        ("authorization", &bearer),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ])
}

fn block(list: &[(String, String)]) -> Vec<u8> {
    fields(&list.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>())
}

/// Sends this head and, unless it ends the stream, this body; gives the first frame that comes back.
fn ask(gate: &Gate, list: &[(String, String)], body: &[&[u8]]) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut frames = Frames::open(gate.gateway.agent);
    frames.send(HEADERS, END_HEADERS, 1, &block(list));
    for (n, piece) in body.iter().enumerate() {
        frames.send(DATA, if n + 1 == body.len() { END_STREAM } else { 0 }, 1, piece);
    }
    frames.next()
}

/// `:status` 200 and 400 as they stand in the static table (RFC 7541, appendix A), the first byte of a head.
const STATUS_200: u8 = 0x88;
const STATUS_400: u8 = 0x8c;

#[test]
fn t_14_a_head_that_is_not_well_formed_ends_its_stream() {
    let gate = gate();
    let body = call("echo", "{}");
    let whole: &[&[u8]] = &[body.as_bytes()];
    let with = |name: &str, value: &str| {
        let mut list = good(&gate);
        list.push((name.to_owned(), value.to_owned()));
        list
    };
    let instead = |name: &str, value: &str| {
        let mut list = good(&gate);
        list.iter_mut().filter(|(key, _)| key == name).for_each(|field| value.clone_into(&mut field.1));
        list
    };
    let mut late = good(&gate);
    late.rotate_left(1);
    for (case, list) in [
        ("CR LF in a value", with("x", "a\r\nb: c")),
        ("LF in a value", with("x", "a\nb")),
        ("NUL in a value", with("x", "a\0b")),
        ("space in the path", instead(":path", "/mcp/up HTTP/1.1\r\nX: y")),
        ("LF in the path", instead(":path", "/mcp/up\nx")),
        ("a pseudo-header field behind others", late),
        ("a pseudo-header field twice", with(":path", "/mcp/up")),
        ("an unknown pseudo-header field", with(":x", "y")),
        ("a response's field", with(":status", "200")),
        ("transfer-encoding", with("transfer-encoding", "chunked")),
        ("connection", with("connection", "close")),
        ("keep-alive", with("keep-alive", "1")),
        ("upgrade", with("upgrade", "h2c")),
        ("te", with("te", "gzip")),
        ("upper case", with("X-Upper", "y")),
        ("no name", with("", "y")),
        ("space in a name", with("x y", "z")),
        ("two lengths", {
            let mut list = with("content-length", "5");
            list.push(("content-length".into(), "6".into()));
            list
        }),
        ("no number", with("content-length", "+5")),
        ("Host and :authority differ", with("host", "other.test")),
        ("user in :authority", instead(":authority", &format!("good@{}", gate.gateway.agent))),
        ("absolute form", instead(":path", &format!("http://{}/mcp/up", gate.gateway.agent))),
    ] {
        let mark = gate.recorder.mark();
        let frame = ask(&gate, &list, whole);
        let is_refused = match &frame {
            Some((RST_STREAM | GOAWAY, ..)) | None => true,
            Some((HEADERS, _, _, head)) => head.first() == Some(&STATUS_400),
            Some(_) => false,
        };
        assert!(is_refused, "{case}: {frame:?}");
        gate.recorder.assert_untouched(mark);
    }
    let same = with("host", &gate.gateway.agent.to_string());
    for (case, list) in [("good", good(&gate)), ("Host and :authority agree", same)] {
        let frame = ask(&gate, &list, whole);
        assert!(
            matches!(&frame, Some((HEADERS, _, 1, head)) if head.first() == Some(&STATUS_200)),
            "{case}: {frame:?}"
        );
    }
}

#[test]
fn t_15_a_body_that_is_not_as_long_as_it_says_reaches_nobody() {
    let gate = gate();
    let body = call("echo", "{}");
    let announced = |n: usize| {
        let mut list = good(&gate);
        list.push(("content-length".to_owned(), n.to_string()));
        list
    };
    for (case, n) in [("longer", body.len() - 5), ("shorter", body.len() + 5), ("none at all", 0)] {
        let mark = gate.recorder.mark();
        let (front, back) = body.as_bytes().split_at(10);
        let frame = ask(&gate, &announced(n), &[front, back]);
        let is_refused = !matches!(&frame, Some((HEADERS, _, _, head)) if head.first() == Some(&STATUS_200));
        assert!(is_refused, "{case}: {frame:?}");
        gate.recorder.assert_untouched(mark);
    }
    let frame = ask(&gate, &announced(body.len()), &[body.as_bytes()]);
    assert!(matches!(&frame, Some((HEADERS, _, 1, head)) if head.first() == Some(&STATUS_200)), "{frame:?}");
}

/// Resident memory of the gateway, in bytes.
fn memory(gate: &Gate) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gate.gateway.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux shows it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// Sends until the gateway has had enough, and says whether it ended the connection.
fn is_cut(frames: &mut Frames, mut send: impl FnMut(&mut Frames, u32) -> std::io::Result<()>, n: u32) -> bool {
    for turn in 0..n {
        if send(frames, turn).is_err() {
            return true;
        }
    }
    frames.patience(Duration::from_secs(10));
    loop {
        match frames.next() {
            Some((GOAWAY, ..)) | None => return true,
            Some(_) => {}
        }
    }
}

#[test]
fn t_16_floods_of_frames_end_their_connection_and_cost_no_memory() {
    let gate = gate();
    let head = block(&good(&gate));
    Client::open(gate.gateway.agent).send(&gate.post(call("echo", "{}")));
    let before = memory(&gate);
    let flood = |case: &str, send: &mut dyn FnMut(&mut Frames, u32) -> std::io::Result<()>| {
        let mut frames = Frames::open(gate.gateway.agent);
        let cut = is_cut(&mut frames, send, 20_000);
        assert!(cut, "{case}");
        // Meanwhile and afterwards others are served.
        let answer = Client::open(gate.gateway.agent).send(&gate.post(call("echo", "{}")));
        assert_eq!(answer.status, 200, "{case}");
    };

    flood("rapid reset", &mut |frames, n| {
        frames.try_send(HEADERS, END_HEADERS, 2 * n + 1, &head)?;
        frames.try_send(RST_STREAM, 0, 2 * n + 1, &8_u32.to_be_bytes())
    });
    flood("made to reset", &mut |frames, n| {
        frames.try_send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &head)?;
        frames.try_send(DATA, 0, 2 * n + 1, b"too late")
    });
    flood("a head without an end", &mut |frames, n| {
        let field = fields(&[(&format!("x-{n}"), &"y".repeat(1000))]);
        if n == 0 { frames.try_send(HEADERS, 0, 1, &head) } else { frames.try_send(CONTINUATION, 0, 1, &field) }
    });
    flood("empty pieces of a body", &mut |frames, n| {
        if n == 0 { frames.try_send(HEADERS, END_HEADERS, 1, &head) } else { frames.try_send(DATA, 0, 1, b"") }
    });
    flood("malformed heads", &mut |frames, n| {
        frames.try_send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &fields(&[(":method", "GET"), (":path", "/")]))
    });

    let grown = memory(&gate).saturating_sub(before);
    assert!(grown < 50 * 1024 * 1024, "it grew by {grown} bytes");
    gate.gateway.agent("alice", "up").tool("echo", json!({})).result();
}

#[test]
fn t_16_settings_and_pings_without_end_cost_no_memory() {
    let gate = gate();
    Client::open(gate.gateway.agent).send(&gate.post(call("echo", "{}")));
    let before = memory(&gate);
    for (case, kind, payload) in [("settings", SETTINGS, &[][..]), ("pings", PING, &[0; 8][..])] {
        let mut frames = Frames::open(gate.gateway.agent);
        for _ in 0..20_000 {
            // Nothing is read: the answers fill the socket, and then nothing more is taken.
            frames.patience(Duration::from_millis(1));
            if frames.try_send(kind, 0, 0, payload).is_err() {
                break;
            }
        }
        gate.gateway.agent("alice", "up").tool("echo", json!({ "case": case })).result();
    }
    let grown = memory(&gate).saturating_sub(before);
    assert!(grown < 50 * 1024 * 1024, "it grew by {grown} bytes");
}

#[test]
fn t_16_a_head_over_the_limit_and_one_stream_too_many_are_refused() {
    let gate = Gate::with(|url| format!("limits: {{ head: 4KiB, streams: 3 }}\n{}", in_front_of(url, RULES)));
    let client = Client::open(gate.gateway.agent);
    let too_large = gate.post(call("echo", "{}")).header("x", &"y".repeat(5000));
    let refused = client.try_streaming(&too_large).map(|answer| answer.status);
    assert!(matches!(refused, Ok(431) | Err(_)), "{refused:?}");
    assert_eq!(client.send(&gate.post(call("echo", "{}")).header("x", &"y".repeat(2000))).status, 200);

    // Small references to one large field, again and again: what they stand for is what counts.
    let mut frames = Frames::open(gate.gateway.agent);
    let mut bomb = block(&good(&gate));
    // Literal with indexing (RFC 7541 §6.2.1), then its index.
    bomb.extend([&[0x40, 1, b'a', 127, 0xa1, 0x0f][..], &[b'y'; 2080]].concat());
    bomb.extend(vec![0xbe; 10_000]);
    frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &bomb);
    let frame = frames.next();
    let is_served = matches!(&frame, Some((HEADERS, _, _, head)) if head.first() == Some(&STATUS_200));
    assert!(!is_served, "{frame:?}");

    let mut frames = Frames::open(gate.gateway.agent);
    for n in 0..4 {
        frames.send(HEADERS, END_HEADERS, 2 * n + 1, &block(&good(&gate)));
    }
    let frame = frames.next();
    // REFUSED_STREAM for the fourth (RFC 9113 §5.1.2).
    assert!(matches!(&frame, Some((RST_STREAM, _, 7, reason)) if reason == &7_u32.to_be_bytes()), "{frame:?}");
}

#[test]
fn a_body_that_does_not_come_in_time_is_refused() {
    let gate = Gate::with(|url| format!("timeouts: {{ body: 500ms }}\n{}", in_front_of(url, RULES)));
    let client = Client::open(gate.gateway.agent);
    let mark = gate.recorder.mark();
    let mut sending = client.begin_request(&gate.post(""), false).expect("a stream is free");
    sending.body.send_data(Bytes::from_static(b"{"), false).expect("it is open");

    let answer = client.answer(sending).expect("it is answered").rest();

    assert_eq!((answer.status, &answer.json()["error"]["data"]["code"]), (408, &json!("request.too_slow")));
    gate.recorder.assert_untouched(mark);
    gate.refuses("another way", &gate.post("[]"), &error(400, -32600, "jsonrpc.batch"));
    assert_eq!(client.send(&gate.post(call("echo", "{}"))).status, 200);
    let _: Agent = gate.gateway.agent("alice", "up");
}
