//! Event streams: in whatever way an upstream writes one, and without delay on the way to the client.

use super::{EVERYTHING, NO_DANGER, settled, settled_with, wait_until_up};
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::{Value, json};

// B23: diegosouzapw/OmniRoute#8277, tower-rs/tower-http#420, graphql-hive/gateway#2259,
// modelcontextprotocol/modelcontextprotocol#1644, nginx/nginx#1505.
#[test]
fn each_event_is_seen_before_the_next_is_made_and_nothing_may_hold_it_back() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);

    let (request, id) = agent.request("tools/call", json!({ "name": "echo", "arguments": {} }));
    let mut connection = agent.open(&request.header("Accept-Encoding", "gzip, br, zstd"));
    // The head comes before the first event.
    let mut stream = connection.streaming();

    assert_eq!(stream.status, 200);
    assert_eq!(stream.headers.get("content-encoding"), None);
    assert_eq!(stream.headers.get("x-accel-buffering"), Some("no"));
    let cache = stream.headers.get("cache-control").unwrap_or_default();
    assert!(cache.contains("no-cache") && cache.contains("no-transform"), "{cache}");
    for n in 0..3 {
        let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": 1, "progress": n } });
        feed.message(&progress);
        assert_eq!(stream.message(), Some(progress));
    }
    feed.message(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }));
    assert_eq!(stream.message().expect("the answer")["id"], id);
    // The answer ends the stream, although the upstream has not ended its own.
    assert_eq!(stream.message(), None);
    assert_eq!(recorder.last().header("accept-encoding"), None);
}

const TEXT: &str = "zażółć 日本語 😀";

/// A stream that carries `message` (compact JSON), in every way there is to write it.
fn variants(message: &str) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let pretty: Value = serde_json::from_str(message).expect("JSON");
    let pretty = serde_json::to_string_pretty(&pretty).expect("JSON");
    let lines: String = pretty.lines().map(|line| format!("data: {line}\n")).collect();
    let one = |text: String| vec![text.into_bytes()];
    let bytes = format!("event: message\r\ndata: {message}\r\n\r\n").into_bytes();
    let emoji = bytes.windows(4).position(|w| w == "😀".as_bytes()).expect("it is in the text");
    let (cr, end) = (bytes.len() - 3, bytes.len() - 1);
    let cut = |at: &[usize]| {
        let mut pieces = Vec::new();
        let mut from = 0;
        for &at in at.iter().chain([&bytes.len()]) {
            pieces.push(bytes[from..at].to_vec());
            from = at;
        }
        pieces
    };
    let noise = "event: ping\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"tools\":[],\"content\":[]}}\n\n";
    vec![
        ("LF", one(format!("data: {message}\n\n"))),
        ("CRLF", one(format!("event: message\r\ndata: {message}\r\n\r\n"))),
        ("lone CR", one(format!("event: message\rdata: {message}\r\r"))),
        ("no space after the colon", one(format!("data:{message}\n\n"))),
        ("one data line for each line", one(format!("{lines}\n"))),
        ("one data line for each line, CRLF", one(format!("{lines}\n").replace('\n', "\r\n"))),
        ("a byte order mark first", one(format!("\u{feff}data: {message}\n\n"))),
        ("one byte a write", bytes.iter().map(|byte| vec![*byte]).collect()),
        ("cut inside a character", cut(&[emoji + 1, emoji + 2, emoji + 3])),
        ("cut between CR and LF", cut(&[cr, end])),
        ("no blank line at the end", one(format!("data: {message}\n"))),
        ("no line end at the end", one(format!("data: {message}"))),
        ("id, retry and comments", one(format!(": hi\nid: 1\nretry: 10\ndata: {message}\n\n"))),
        ("an empty priming event first", one(format!("id: 0\ndata:\n\nid: 1\ndata: {message}\n\n"))),
        ("an unknown field", one(format!("field: x\ndata: {message}\nnothing\n\n"))),
        ("another event name first", one(format!("{noise}data: {message}\n\n"))),
        ("another event name without a space first", one(format!("{}data: {message}\n\n", noise.replace(": ", ":")))),
        ("an answer to somebody else first", one(format!("{}data: {message}\n\n", noise.replace(":7", ":8")))),
    ]
}

fn without_framing(pieces: &[Vec<u8>]) -> Reply {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n".to_vec();
    Reply::raw([vec![head], pieces.to_vec()].concat())
}

// B70: envoyproxy/ai-gateway#1398, FellouAI/eko#287, zhu1090093659/deepseek-pp#471, praxis-proxy/praxis#739.
#[test]
fn answer_arrives_unchanged_in_whatever_way_the_stream_was_written() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let result = json!({ "content": [{ "type": "text", "text": TEXT }], "structuredContent": { "text": TEXT } });
    let message = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{result}}}"#);
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{}"}}}}"#, TEXT.repeat(1024 * 1024 / TEXT.len()));
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
    let mut cases: Vec<_> = variants(&message).into_iter().map(|(what, pieces)| (what, pieces, &message)).collect();
    cases.push(("one line of 1 MiB", vec![format!("data: {large}\n\n").into_bytes()], &large));
    let in_pieces = format!("data: {large}\r\n\r\n").into_bytes().chunks(1021).map(<[u8]>::to_vec).collect();
    cases.push(("one line of 1 MiB in odd pieces", in_pieces, &large));

    for (what, pieces, message) in cases {
        let expected: Value = serde_json::from_str(message).expect("JSON");
        for until_close in [false, true] {
            let reply = if until_close { without_framing(&pieces) } else { Reply::sse_raw(pieces.clone()) };
            recorder.answer_next(reply);

            let answer = agent.post(call);

            assert_eq!(answer.message, expected, "{what} (until close: {until_close})");
            let events = answer.response.events();
            let data = events.iter().find(|event| !event.data.is_empty()).expect("an event");
            if !what.starts_with("one data line") {
                assert_eq!(&data.data, message, "{what}: the bytes");
            }
            assert!(!data.data.contains('\u{fffd}'), "{what}");
            let id = data.id.as_deref().unwrap_or_default();
            assert!(id.is_empty() || id.len() > 40, "{what}: an upstream's event id leaves sealed, not as {id:?}");
        }
    }
}

// B70: the same where the answer is a list and is filtered on its way.
#[test]
fn list_is_filtered_in_whatever_way_the_stream_was_written() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, NO_DANGER);
    let agent = gateway.agent("alice", "up");
    let tool = |name: &str| json!({ "name": name, "description": TEXT, "inputSchema": { "type": "object" } });
    let message = |tools: &[Value]| json!({ "jsonrpc": "2.0", "id": 7, "result": { "tools": tools } });
    let full = message(&[tool("echo"), tool("danger"), tool("add")]).to_string();
    let expected = message(&[tool("echo"), tool("add")]);

    for (what, pieces) in variants(&full) {
        for accept in ["application/json, text/event-stream", "application/json"] {
            recorder.answer_next(Reply::sse_raw(pieces.clone()));
            let request = agent.request("tools/list", json!({})).0.without("accept").header("Accept", accept);
            let request = request.body(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#);
            let answer = agent.send(&request, Some(&json!(7)));
            assert_eq!(answer.message, expected, "{what}, {accept}");
        }
    }
}

// B70: an unfinished last event counts when the stream ended as a stream ends, and only then.
#[test]
fn event_of_a_stream_that_broke_off_is_not_taken_for_an_answer() {
    let recorder = Recorder::start();
    let gateway = settled_with("limits: { answer: 64KiB }", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    feed.bytes("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n");
    feed.cut();

    let lost = agent.post(call);
    assert_eq!(lost.message["error"]["data"]["code"], "upstream.lost", "{lost:?}");

    // And no event grows without end.
    for pieces in [vec![b'x'; 100_000], b"data: x\n".repeat(40_000)] {
        recorder.answer_next(Reply::sse_raw(vec![pieces]));
        let large = agent.post(call);
        assert_eq!(large.message["error"]["data"]["code"], "upstream.too_large", "{large:?}");
    }
    agent.tool("echo", json!({})).result();
}

// B70: the gateway's own client reads the same streams.
#[test]
fn tool_definitions_are_fetched_from_streams_in_whatever_way_they_were_written() {
    let tools = json!({ "tools": [{ "name": TEXT, "inputSchema": { "type": "object" } }, { "name": "two", "inputSchema": {} }] });
    let n_variants = variants(&json!({ "text": TEXT }).to_string()).len();
    let mut upstreams = Vec::new();
    let mut names = Vec::new();
    for n in 0..n_variants {
        let recorder = Recorder::start();
        let tools = tools.clone();
        recorder.answer_with(move |request| {
            if request.rpc_method() != "tools/list" {
                return Reply::mcp(request);
            }
            // `variants` speaks of id 7; the noise in it must carry the id in question.
            let id = request.json()["id"].to_string();
            let message = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": tools }).to_string();
            let (_, pieces) = variants(&message).swap_remove(n);
            let renumber = |piece: Vec<u8>| {
                let text = String::from_utf8(piece);
                text.map_or_else(std::string::FromUtf8Error::into_bytes, |text| {
                    text.replace("\"id\":7", &format!("\"id\":{id}")).into_bytes()
                })
            };
            Reply::sse_raw(pieces.into_iter().map(renumber).collect())
        });
        names.push(variants(&json!({ "text": TEXT }).to_string()).swap_remove(n).0);
        upstreams.push(recorder);
    }
    let yaml: String = upstreams
        .iter()
        .enumerate()
        .map(|(n, recorder)| format!("  u{n}: {{ http: {{ url: \"{}\" }} }}\n", recorder.url()))
        .collect();
    let gateway = Gateway::start(&format!(
        "upstreams:\n{yaml}policy:\n  rules:\n    - {{ name: one, tools: [\"u0/*\"], allow: {{}} }}\n"
    ));

    for (n, what) in names.iter().enumerate() {
        wait_until_up(&gateway, &format!("u{n}"));
        let n_tools = gateway.metric(&format!("portcullis_upstream_tools{{upstream=\"u{n}\"}}"));
        assert!((n_tools - 2.0).abs() < f64::EPSILON, "{what}: {n_tools} tools");
    }
}
