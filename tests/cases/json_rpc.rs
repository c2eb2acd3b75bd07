//! The envelope: ids, numbers, and what becomes of an upstream's failures.

use super::{EVERYTHING, settled, wait_until_up};
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use serde_json::{Value, json};

// B34: modelcontextprotocol/rust-sdk#1017, DeusData/codebase-memory-mcp#253, justadityaraj/shim-mcp#10.
#[test]
fn ids_come_back_with_their_type_and_their_bytes() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    // The upstream gives the id back as it was written, as servers that do not parse it do.
    recorder.answer_with(|request| {
        let text = String::from_utf8_lossy(&request.body).into_owned();
        let id = text.split("\"id\":").nth(1).and_then(|rest| rest.split(",\"method\"").next()).unwrap_or("null");
        Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
    });
    let good = [
        "0",
        "1",
        "\"1\"",
        "\"init-1\"",
        "\"\"",
        "-5",
        "9007199254740993",
        "\"é\"",
        "\"\\u00e9\"",
        "123456789012345678901234567890",
    ];
    for id in good {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let response = agent.post(body.clone()).response;
        assert_eq!(response.text(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#), "{id}");
        assert_eq!(recorder.last().body, body.as_bytes(), "{id}");
        // Also where the gateway itself answers.
        let refused = agent.post(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"no/such"}}"#)).response;
        assert!(refused.text().contains(&format!("\"id\":{id},")), "{id}: {}", refused.text());
    }
    let mark = recorder.mark();
    for id in ["null", "1.5", "{}", "[]", "true", "1e3", "-0"] {
        let refused = agent.post(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        assert_eq!((refused.status(), refused.error().0), (400, -32600), "{id}");
        assert_eq!(refused.message["id"], Value::Null, "{id}");
    }
    recorder.assert_untouched(mark);
    recorder.answer_with(Reply::mcp);
    let noted = agent.notify("notifications/initialized", json!({}));
    assert_eq!((noted.status(), noted.response.body.len()), (202, 0));
}

// B34: the same, at the same time.
#[test]
fn one_and_the_string_one_do_not_mix_in_one_session() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");

    std::thread::scope(|scope| {
        for id in ["1", "\"1\""] {
            let agent = &agent;
            scope.spawn(move || {
                for n in 0..10 {
                    let arguments = json!({ "n": n, "id": id });
                    let call = format!(
                        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
                    );
                    let answer = agent.post(call);
                    assert_eq!(answer.result()["structuredContent"], arguments);
                    assert_eq!(answer.message["id"].to_string(), id);
                }
            });
        }
    });
}

/// What went wrong, the code a client is told, and how the upstream does it.
type Failure = (&'static str, &'static str, fn(&Recorded) -> Reply);

/// What upstreams do wrong, and the code a client is told.
fn failures() -> Vec<Failure> {
    const INTERNALS: &str = "panicked at /srv/INTERNALS.rs:7";
    vec![
        ("500 text", "upstream.status", |_| Reply::new(500, INTERNALS)),
        ("502 HTML", "upstream.status", |_| Reply::new(502, format!("<html>{INTERNALS}</html>"))),
        ("409 JSON", "upstream.status", |_| Reply::json(r#"{"error":"INTERNALS"}"#).status(409)),
        ("429", "upstream.status", |_| Reply::new(429, INTERNALS).header("Retry-After", "7")),
        ("401", "upstream.status", |_| Reply::new(401, INTERNALS).header("WWW-Authenticate", "Basic realm=INTERNALS")),
        ("403", "upstream.status", |_| Reply::new(403, INTERNALS)),
        ("404 for a call without a session", "upstream.status", |_| Reply::new(404, INTERNALS)),
        ("202 without an answer", "upstream.status", |_| Reply::new(202, "")),
        ("500 with a valid JSON-RPC error", "upstream.status", |r| Reply::error(r, -32603, "INTERNALS").status(500)),
        ("gRPC text", "upstream.malformed", |_| Reply::json("rpc error: code = Unavailable desc = INTERNALS")),
        ("HTML with 200", "upstream.malformed", |_| Reply::new(200, INTERNALS).header("Content-Type", "text/html")),
        ("no content type", "upstream.malformed", |_| Reply::new(200, "{}")),
        ("an empty body", "upstream.malformed", |_| Reply::json("")),
        ("another id", "upstream.malformed", |_| Reply::json(r#"{"jsonrpc":"2.0","id":"INTERNALS","result":{}}"#)),
        ("a request", "upstream.malformed", |r| Reply::json(r.body.clone())),
        ("a key twice", "upstream.malformed", |r| {
            Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{0},"result":{{}},"id":{0}}}"#, r.json()["id"]))
        }),
        ("no HTTP", "upstream.malformed", |_| Reply::raw(vec![b"HTTP/1.1 200 OK\r\nINTERNALS bad\r\n\r\n".to_vec()])),
        ("closed", "upstream.lost", |_| Reply::close()),
        ("cut in its body", "upstream.lost", |_| {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{\"jsonrpc\"";
            Reply::raw(vec![head.as_bytes().to_vec()])
        }),
        ("a stream cut", "upstream.lost", |_| {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nda";
            Reply::raw(vec![head.as_bytes().to_vec()])
        }),
        ("a stream without an answer", "upstream.lost", |_| Reply::sse(&[])),
        ("no answer", "upstream.timeout", |_| Reply::hang()),
        ("a stream that stalls", "upstream.timeout", |_| Reply::sse_raw(vec![b": hi\n\n".to_vec()]).then_hang()),
        ("too large", "upstream.too_large", |_| Reply::json(vec![b' '; 70 * 1024])),
        ("an event too large", "upstream.too_large", |_| Reply::sse_raw(vec![vec![b'd'; 70 * 1024]])),
        ("a redirect", "upstream.redirect", |_| Reply::redirect(307, "https://INTERNALS.test/")),
        ("compressed", "upstream.malformed", |_| {
            Reply::new(200, [0x1f, 0x8b, 8, 0])
                .header("Content-Type", "application/json")
                .header("Content-Encoding", "gzip")
        }),
        ("status 999", "upstream.status", |_| Reply::new(999, INTERNALS)),
    ]
}

// B36: agentgateway/agentgateway#2082, modelcontextprotocol/python-sdk#1321.
#[test]
fn failing_upstream_call_is_an_answer_to_that_call_and_the_session_goes_on() {
    let recorder = Recorder::start();
    let yaml = format!(
        "limits: {{ answer: 64KiB }}\nupstreams:\n  up: {{ http: {{ url: \"{}\", timeouts: {{ answer: 300ms, idle: 300ms }} }} }}\npolicy:\n  rules:\n    {EVERYTHING}\n",
        recorder.url()
    );
    let gateway = Gateway::start(&yaml);
    wait_until_up(&gateway, "up");
    let agent = gateway.agent("alice", "up");

    for (what, code, fails) in failures() {
        recorder.answer_with(move |request| match request.json()["params"]["name"].as_str() {
            Some("add") => fails(request),
            _ => Reply::mcp(request),
        });
        let mark = recorder.mark();

        let failed = agent.tool("add", json!({}));

        let text = failed.response.text();
        assert_eq!((failed.status(), failed.error().0), (200, -32603), "{what}: {text}");
        assert_eq!(failed.message["error"]["data"]["code"], code, "{what}");
        assert!(failed.error().1.contains("upstream `up`"), "{what}: {text}");
        let port = recorder.address().port().to_string();
        assert!(!text.contains("INTERNALS") && !text.contains(&port), "{what} tells internals: {text}");
        assert_eq!(recorder.requests_since(mark).len(), 1, "{what}: a tool call is sent once");
        agent.tool("echo", json!({ "after": what })).result();
    }
}

// B36: nobody there at all.
#[test]
fn call_to_an_upstream_that_is_not_there_is_answered_at_once() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound").port();
    let rules = EVERYTHING.replace("up/", "*/");
    let yaml = format!(
        "upstreams:\n  refused: {{ http: {{ url: \"http://127.0.0.1:{port}/mcp\" }} }}\n  nowhere: {{ http: {{ url: \"http://no-such-host.invalid/mcp\" }} }}\npolicy:\n  rules:\n    {rules}\n"
    );
    let gateway = Gateway::start(&yaml.replace("*/*", "refused/*\", \"nowhere/*"));

    for name in ["refused", "nowhere"] {
        let failed = gateway.agent("alice", name).tool("echo", json!({}));
        assert_eq!((failed.status(), failed.error().0), (200, -32603), "{name}");
        assert_eq!(failed.error().1, format!("upstream `{name}` cannot be reached"));
        assert_eq!(failed.message["error"]["data"]["code"], "upstream.unreachable");
    }
}

const ARGUMENTS: &str = r#"{ "id":8112963841460666371,"big":123456789012345678901234567890,"f":1.0,"e":1e400,"n":-0.0,"s":"\u2028\ud83d\ude00","z":1,"a":{"é":"\/"} }"#;

// B37: mark3labs/mcp-go#913, anthropics/claude-code#78762, higress-group/higress#3760, modelcontextprotocol/go-sdk#1236.
#[test]
fn numbers_escapes_and_key_order_survive_both_ways() {
    let recorder = Recorder::start();
    // With rules that look into the arguments.
    let rules = r#"
- { name: all, tools: ["up/*"], allow: {} }
- { name: not that order, tools: ["up/*"], when: { /id: { equals: 8112963841460666370 } }, deny: {} }
- { name: not so big, tools: ["up/*"], when: { /big: { min: 1e60 } }, deny: {} }
"#;
    let gateway = settled(&recorder, rules);
    let agent = gateway.agent("alice", "up");
    let result = format!(r#"{{"content":[],"structuredContent":{ARGUMENTS}}}"#);
    let reply = format!(r#"{{"result":{result},"jsonrpc":"2.0" , "id":7}}"#);

    for streams in [false, true] {
        let body = format!(
            r#"{{"id":7,"jsonrpc":"2.0","method":"tools/call","params":{{"x-unknown":1.50,"arguments":{ARGUMENTS},"name":"echo"}}}}"#
        );
        recorder.answer_next(if streams {
            Reply::sse_raw(vec![format!("data: {reply}\n\n").into_bytes()])
        } else {
            Reply::json(reply.clone())
        });

        // Not checked by `Agent`, which reads numbers as 64 bits.
        let response = agent.request("ping", json!({})).0.body(body.clone()).send(gateway.agent);

        assert_eq!(String::from_utf8_lossy(&recorder.last().body), body);
        let text = if streams { response.events().pop().expect("an event").data } else { response.text() };
        assert_eq!(text, reply, "stream: {streams}");
    }
    let mark = recorder.mark();
    for (what, arguments) in [
        ("a key twice", r#"{"id":1,"id":2}"#),
        ("a key twice, once escaped", r#"{"id":1,"\u0069d":2}"#),
        ("a key twice, deeper", r#"{"a":[{"b":1,"b":1}]}"#),
        ("a lone surrogate", r#"{"s":"\ud83d"}"#),
    ] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
        );
        let mut request = agent.request("ping", json!({})).0;
        request = request.body(body);
        let refused = request.send(gateway.agent);
        assert_eq!(refused.status, 400, "{what}: {}", refused.text());
    }
    recorder.assert_untouched(mark);
    // One off in its nineteenth digit is another number to policy, too.
    let refused = agent.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"id":8112963841460666370}}}"#);
    assert!(refused.refusal().contains("policy"));
    recorder.assert_untouched(mark);
}
