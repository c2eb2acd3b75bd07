//! Bodies and answers of every size, slow ones and compressed ones.

use super::{EVERYTHING, settled_with};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, Request, Response};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::wire;
use serde_json::json;
use std::io::{Read as _, Write as _};

const LIMIT: usize = 2 * 1024 * 1024;
const MIB: usize = 1024 * 1024;

/// A call of exactly this many bytes.
fn call(length: usize) -> Vec<u8> {
    let around = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"blob":""}}}"#;
    let fill = "A".repeat(length - around.len());
    around.replace("\"blob\":\"\"", &format!("\"blob\":\"{fill}\"")).into_bytes()
}

/// The largest resident size of the gateway's process so far, in bytes.
fn peak(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// Sends what the gateway takes of it, and reads the answer.
#[track_caller]
fn send(agent: &Agent, token: Option<&str>, body: &[u8], is_chunked: bool) -> Response {
    let mut request = Request::mcp(&agent.path, body.to_vec());
    if let Some(token) = token {
        request = request.bearer(token);
    }
    if is_chunked {
        let mut chunks = Vec::with_capacity(body.len() + body.len() / 1024);
        for chunk in body.chunks(64 * 1024).chain([&b""[..]]) {
            chunks.extend_from_slice(&wire::chunk(chunk));
        }
        request = request.header("Transfer-Encoding", "chunked").body(chunks);
    }
    let mut connection = Connection::open(agent.address);
    // One that has refused need not read the rest.
    drop(connection.try_send(&request.to_bytes(&agent.address.to_string())));
    connection.response()
}

#[track_caller]
fn assert_names_the_limit(response: &Response, what: &str) {
    assert_eq!(response.status, 413, "{what}: {response:?}");
    let error = &response.json()["error"];
    assert_eq!((&error["code"], &error["data"]["limit"]), (&json!(-32600), &json!(LIMIT)), "{what}");
    assert!(error["message"].as_str().unwrap_or_default().contains(&LIMIT.to_string()), "{what}: {error}");
}

// B69: agentgateway/agentgateway#3578, supercorp-ai/supergateway#163, github/github-mcp-server#3111,
// agentfront/frontmcp#410.
#[test]
fn body_up_to_the_limit_arrives_whole_and_a_larger_one_is_refused_with_the_limit() {
    let recorder = Recorder::start();
    let gateway = settled_with("limits: { body: 2MiB }", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let token = agent.token.as_deref();

    for is_chunked in [false, true] {
        for length in [LIMIT - 1, LIMIT] {
            let body = call(length);
            let response = send(&agent, token, &body, is_chunked);
            assert_eq!(response.status, 200, "{length}, chunked: {is_chunked}");
            assert!(recorder.last().body == body, "{length}, chunked: {is_chunked}: other bytes arrived");
        }
        let (mark, before) = (recorder.mark(), peak(&gateway));
        for length in [LIMIT + 1, 64 * MIB] {
            let what = format!("{length}, chunked: {is_chunked}");
            let body = call(length);
            assert_names_the_limit(&send(&agent, token, &body, is_chunked), &what);
            // Who may not ask at all is told that, and nothing of the body is looked at.
            assert_eq!(send(&agent, None, &body, is_chunked).status, 401, "{what}");
        }
        recorder.assert_untouched(mark);
        // The kernel counts in batches, so that a peak may seem to shrink a little.
        let grown = peak(&gateway).saturating_sub(before);
        assert!(grown < 24 * MIB, "memory grew by {grown} bytes");
    }
}

// B69: a length that is announced is believed when it is too much.
#[test]
fn announced_length_over_the_limit_is_refused_before_the_body_comes() {
    let recorder = Recorder::start();
    let gateway = settled_with("limits: { body: 2MiB }", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let request = Request::mcp(&agent.path, "{").bearer(agent.token.as_deref().unwrap_or_default());
    let mut connection = agent.open(&request.header("Content-Length", &(64 * MIB).to_string()));

    assert_names_the_limit(&connection.response(), "announced");
    recorder.assert_untouched(mark);
}

// B69: one byte now and then.
#[test]
fn slow_body_is_given_up_within_its_time() {
    let recorder = Recorder::start();
    let gateway = settled_with("timeouts: { body: 500ms }", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();
    let request = Request::mcp(&agent.path, "").bearer(agent.token.as_deref().unwrap_or_default());
    let head = request.header("Content-Length", "1000000").to_bytes(&agent.address.to_string());
    let mut stream = std::net::TcpStream::connect(agent.address).expect("it listens");
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("not zero");
    let mut sender = stream.try_clone().expect("a socket can be cloned");
    // Each byte comes well within the time one read may take.
    let dribble = std::thread::spawn(move || {
        drop(sender.write_all(&head));
        while sender.write_all(b"{").is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });

    let mut answer = String::new();
    // A reset after the answer is as good as an end.
    drop(stream.read_to_string(&mut answer));
    drop(stream.shutdown(std::net::Shutdown::Both));

    dribble.join().expect("it does not panic");
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("request.too_slow"), "{answer}");
    recorder.assert_untouched(mark);
    agent.tool("echo", json!({})).result();
}

// B69: 1 GB of zeros, packed.
#[test]
fn compressed_body_is_refused_unopened() {
    let recorder = Recorder::start();
    let gateway = settled_with("", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    for coding in ["gzip", "br", "zstd", "deflate", "identity, gzip"] {
        let (request, id) = agent.request("ping", json!({}));
        let refused = agent.send(&request.header("Content-Encoding", coding), Some(&id));
        assert_eq!((refused.status(), refused.error().0), (415, -32600), "{coding}");
    }
    for coding in ["gzip, chunked", "gzip"] {
        let (request, _) = agent.request("ping", json!({}));
        let response = request.header("Transfer-Encoding", coding).body(wire::chunk(b"")).send(gateway.agent);
        assert!(matches!(response.status, 400 | 501), "{coding}: {response:?}");
    }
    recorder.assert_untouched(mark);
    agent.call("ping", json!({})).result();
}

// B69: the other direction.
#[test]
fn large_answer_passes_up_to_the_limit_and_a_larger_one_is_an_error_that_costs_no_memory() {
    let recorder = Recorder::start();
    let gateway = settled_with("limits: { answer: 2MiB }", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
    let answer = |length: usize| format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{}"}}}}"#, "A".repeat(length));
    let streamed = |length: usize| Reply::sse_raw(vec![format!("data: {}\n\n", answer(length)).into_bytes()]);

    recorder.answer_next(Reply::json(answer(MIB)));
    assert_eq!(agent.post(call).response.text(), answer(MIB));
    recorder.answer_next(streamed(MIB));
    assert_eq!(agent.post(call).result()["text"].as_str().map(str::len), Some(MIB));

    for length in [20 * MIB, 200 * MIB] {
        for streams in [false, true] {
            recorder.answer_next(if streams { streamed(length) } else { Reply::json(answer(length)) });
            let refused = agent.post(call);
            assert_eq!((refused.status(), refused.error().0), (200, -32603), "{length}");
            assert_eq!(refused.message["error"]["data"]["code"], "upstream.too_large", "{length}");
            assert!(refused.error().1.contains(&(2 * MIB).to_string()), "{length}: the limit is named");
            agent.tool("echo", json!({ "after": length })).result();
        }
    }
    let peak = peak(&gateway);
    assert!(peak < 100 * MIB, "the gateway took {peak} bytes for an answer over the limit");
}

// B69: limits are the operator's to set.
#[test]
fn answer_of_20_mib_passes_where_the_limit_is_raised() {
    let recorder = Recorder::start();
    let gateway = settled_with("limits: { answer: 32MiB }", &recorder, EVERYTHING);
    let text = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{}"}}}}"#, "A".repeat(20 * MIB));
    recorder.answer_next(Reply::json(text.clone()));

    let response = gateway
        .agent("alice", "up")
        .post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#)
        .response;

    assert!(response.body == text.as_bytes(), "the answer arrived otherwise");
}
