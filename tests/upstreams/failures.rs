//! Upstreams that fail: each failure has its code and a sentence, the call is sent once, and the next call works.

use super::{assert_failed, config};
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::json;
use std::net::TcpListener;

#[test]
fn every_answer_that_is_none_has_its_own_error() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&format!(
        "limits: {{ answer: 2KiB }}\n{}",
        config(&[("up", format!("url: \"{}\"", recorder.url()))])
    ));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let large = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":"{}"}}}}"#, "a".repeat(4096));
    let cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"json".to_vec();
    let other = r#"{"jsonrpc":"2.0","id":"other","result":{}}"#;
    let cases = [
        ("500", Reply::new(500, "stack trace"), "upstream.status", "HTTP status 500"),
        ("503", Reply::new(503, "").header("Retry-After", "1"), "upstream.status", "HTTP status 503"),
        ("429", Reply::new(429, "slow down"), "upstream.status", "HTTP status 429"),
        ("401", Reply::new(401, "").header("WWW-Authenticate", "Bearer"), "upstream.status", "HTTP status 401"),
        ("403", Reply::new(403, ""), "upstream.status", "HTTP status 403"),
        ("405", Reply::new(405, ""), "upstream.status", "HTTP status 405"),
        ("202", Reply::new(202, ""), "upstream.status", "HTTP status 202"),
        ("204", Reply::new(204, ""), "upstream.status", "HTTP status 204"),
        ("HTML", Reply::new(200, "<p>").header("Content-Type", "text/html"), "upstream.malformed", "malformed"),
        ("no type", Reply::new(200, "{}"), "upstream.malformed", "malformed"),
        ("no JSON", Reply::json("{"), "upstream.malformed", "malformed"),
        ("nothing", Reply::json(""), "upstream.malformed", "malformed"),
        ("a batch", Reply::json(format!("[{other}]")), "upstream.malformed", "malformed"),
        ("another id", Reply::json(other), "upstream.malformed", "malformed"),
        ("a request", Reply::json(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), "upstream.malformed", "malformed"),
        ("too large", Reply::json(large), "upstream.too_large", "2048 bytes"),
        ("a large event", Reply::sse_raw(vec![b"data: ".to_vec(), vec![b'a'; 4096]]), "upstream.too_large", "2048"),
        ("cut", Reply::raw(vec![cut]), "upstream.lost", "within its answer"),
        ("an empty stream", Reply::sse(&[]), "upstream.lost", "within its answer"),
        ("silence", Reply::close(), "upstream.lost", "whether the call ran is not known"),
    ];

    for (case, reply, code, says) in cases {
        let n_calls = recorder.calls().len();
        let counted = format!("portcullis_upstream_errors_total{{code=\"{code}\",upstream=\"up\"}}");
        let before = gateway.metric(&counted);
        recorder.answer_next(reply);

        let answer = agent.tool("echo", json!({ "case": case }));

        assert_failed(case, &answer, code, says);
        // Never 401: the client's own login is fine, and logging in again would not help.
        assert_eq!(answer.status(), 200, "{case}");
        assert_eq!(recorder.calls().len(), n_calls + 1, "{case}: sent once");
        gateway.wait_for_metric(&counted, before + 1.0);
        agent.tool("echo", json!({ "after": case })).result();
    }
}

#[test]
fn what_means_something_to_a_client_keeps_its_status() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", "theirs"));
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();

    recorder.answer_next(Reply::new(404, "no such session"));
    let unknown = agent.tool("echo", json!({}));
    assert_eq!((unknown.status(), super::code(&unknown)), (404, "mcp.session"));

    recorder.answer_next(Reply::new(400, "what?"));
    let bad = agent.tool("echo", json!({}));
    assert_eq!((bad.status(), super::code(&bad)), (400, "upstream.status"));

    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":"theirs","data":{{"n":9007199254740993}}}}}}"#
    );
    recorder.answer_next(Reply::json(body.as_str()).status(400));
    let passed = agent.send(&request, Some(&id));
    assert_eq!((passed.status(), passed.response.text()), (400, body));
}

#[test]
fn an_upstream_that_stalls_is_given_up() {
    let recorder = Recorder::start();
    let settings = |times: &str| format!("url: \"{}\", timeouts: {{ {times} }}", recorder.url());
    let gateway = Gateway::start(&config(&[
        ("answer", settings("answer: 1s")),
        ("idle", settings("idle: 1s")),
        ("total", settings("total: 1s")),
    ]));
    ["answer", "idle", "total"].iter().for_each(|name| gateway.wait_until_asked(name));
    let half = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{".to_vec();
    let cases = [
        ("answer", Reply::hang(), "no answer within 1s"),
        ("idle", Reply::raw(vec![half]).then_hang(), "no further data within 1s"),
        ("idle", Reply::sse_raw(vec![b": hello\n\n".to_vec()]).then_hang(), "no further data within 1s"),
        ("total", Reply::sse_raw(vec![b": hello\n\n".to_vec()]).then_hang(), "no end of its answer within 1s"),
    ];

    for (upstream, reply, says) in cases {
        let agent = gateway.agent("alice", upstream);
        recorder.answer_next(reply);

        let answer = agent.tool("echo", json!({}));

        assert_failed(upstream, &answer, "upstream.timeout", says);
        // Whoever gave up must also let go.
        recorder.wait_until_closed(recorder.last().connection);
        agent.tool("echo", json!({})).result();
    }
}

#[test]
fn an_upstream_that_is_not_there_fails_alone() {
    let recorder = Recorder::start();
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let gateway = Gateway::start(&config(&[
        ("up", format!("url: \"{}\"", recorder.url())),
        ("down", format!("url: \"http://{free}/mcp\"")),
        ("unknown", "url: \"http://no-such-host.invalid/mcp\"".to_owned()),
        ("no-socket", "url: \"http://local.test/mcp\", socket: nowhere.sock".to_owned()),
    ]));
    gateway.wait_until_asked("up");

    for upstream in ["down", "unknown", "no-socket"] {
        let answer = gateway.agent("alice", upstream).tool("echo", json!({}));

        assert_failed(upstream, &answer, "upstream.unreachable", "cannot be reached");
        gateway.agent("alice", "up").tool("echo", json!({})).result();
    }
    assert_eq!(gateway.observe("/readyz").status, 200, "the others work");
}

#[test]
fn one_name_with_several_addresses_is_tried_until_one_answers() {
    let recorder = Recorder::start();
    let url = format!("http://localhost:{}/mcp", recorder.address().port());
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{url}\""))]));

    gateway.agent("alice", "up").tool("echo", json!({})).result();

    assert_eq!(recorder.last().header("host"), Some(url[7..].trim_end_matches("/mcp")));
}
