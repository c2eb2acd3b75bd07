//! What goes to an upstream, and on which connection: headers, secrets, UNIX sockets, the pool, redirects.

use super::{assert_failed, config};
use crate::support::gateway::{Gateway, Launch};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn an_upstream_on_a_unix_socket_is_called_like_any_other() {
    let launch = Launch::new(&config(&[("up", "url: \"http://local.test/mcp?x=1\", socket: up.sock".to_owned())]));
    let recorder = Recorder::start_unix(&launch.path("up.sock"));
    let gateway = launch.start();

    let answer = gateway.agent("alice", "up").tool("echo", json!({ "a": 1 }));

    assert_eq!(answer.result()["structuredContent"], json!({ "a": 1 }));
    let request = recorder.last();
    assert_eq!((request.target.as_str(), request.header("host")), ("/mcp?x=1", Some("local.test")));
}

#[test]
fn an_upstream_gets_its_own_headers_and_none_of_the_clients_credentials() {
    let recorder = Recorder::start();
    let headers = "headers: { X-Static: plain text, Authorization: { env: UP_TOKEN }, X-Key: { file: secrets/key } }";
    let launch = Launch::new(&config(&[("up", format!("url: \"{}\", {headers}", recorder.url()))]))
        .env("UP_TOKEN", "Bearer of the gateway")
        .file("secrets/key", "s3cret\n");
    fs::set_permissions(launch.path("secrets/key"), Permissions::from_mode(0o600)).expect("the file is ours");
    let gateway = launch.start();
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let token = agent.token.clone().expect("the agent has one");

    let (request, id) = agent.request("tools/call", json!({ "name": "echo", "arguments": {} }));
    let request =
        request.header("Cookie", "session=1").header("X-Static", "the client's").header("X-Forwarded-For", "1.2.3.4");
    agent.send(&request, Some(&id)).result();

    for request in recorder.requests() {
        assert_eq!(request.headers.all("authorization"), ["Bearer of the gateway"], "{request:#?}");
        assert_eq!(request.headers.all("x-static"), ["plain text"], "{request:#?}");
        assert_eq!(request.headers.all("x-key"), ["s3cret"], "{request:#?}");
        assert_eq!(request.headers.all("host"), [recorder.address().to_string()], "{request:#?}");
        assert_eq!((request.header("cookie"), request.header("x-forwarded-for")), (None, None), "{request:#?}");
        assert!(!format!("{request:?}").contains(&token), "{request:#?}");
    }
    let said = format!("{}{}", gateway.log(), gateway.audit_text());
    for secret in ["s3cret", "Bearer of the gateway", &token] {
        assert!(!said.contains(secret), "{secret} was written down");
    }
}

#[test]
fn a_secret_that_is_not_there_or_not_secret_refuses_the_start() {
    let recorder = Recorder::start();
    let launch = |header: &str| {
        Launch::new(&config(&[("up", format!("url: \"{}\", headers: {{ X-Key: {header} }}", recorder.url()))]))
    };
    let cases = [
        ("{ env: NOT_SET }", "environment variable `NOT_SET` is not set"),
        ("{ env: SET_EMPTY }", "environment variable `SET_EMPTY` is empty"),
        ("{ file: nowhere }", "nowhere` cannot be read"),
        ("{ file: key }", "key` can be opened by others than its owner"),
        ("{ env: TWO_LINES }", "the value holds characters that a header cannot carry"),
    ];
    for (header, says) in cases {
        let launch = launch(header).file("key", "s3cret").env("SET_EMPTY", "").env("TWO_LINES", "a\r\nX-Evil: 1");

        let said = launch.try_start().err().unwrap_or_else(|| panic!("{header}: the gateway started"));

        assert!(said.contains("exit status: 2"), "{header}: {said}");
        assert!(said.contains("gateway.yaml:2:") && said.contains(says), "{header}: {said}");
        assert!(!said.contains("s3cret"), "{header}: {said}");
    }
    assert_eq!(recorder.n_connections(), 0, "nothing was sent");

    let good = launch("{ file: key }").file("key", "s3cret");
    fs::set_permissions(good.path("key"), Permissions::from_mode(0o600)).expect("the file is ours");
    good.start().agent("alice", "up").tool("echo", json!({})).result();
    assert_eq!(recorder.last().header("x-key"), Some("s3cret"));
}

#[test]
fn calls_one_after_the_other_share_a_connection() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let reused = "portcullis_upstream_connections_total{reused=\"true\",upstream=\"up\"}";
    let (before, n_connections) = (gateway.metric(reused), recorder.n_connections());

    for n in 0..20 {
        // Streams give their connection back as well.
        if n % 2 == 1 {
            let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
            recorder.answer_next(Reply::sse(&[json!({ "jsonrpc": "2.0", "id": id, "result": {} })]));
            agent.send(&request, Some(&id)).result();
        } else {
            agent.tool("echo", json!({ "n": n })).result();
        }
    }

    assert_eq!(gateway.metric(reused) - before, 20.0);
    assert_eq!(recorder.n_connections(), n_connections, "no further connection was opened");
}

#[test]
fn what_can_run_twice_is_sent_again_on_a_fresh_connection_and_a_call_is_not() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");

    // The pooled connection dies under the request, before a byte of an answer.
    let mark = recorder.mark();
    recorder.answer_next(Reply::close());
    assert_eq!(agent.tools(), ["add", "danger", "echo"]);
    let sent = recorder.requests_since(mark);
    assert_eq!(sent.len(), 2, "it was sent once more");
    assert_ne!(sent[0].connection, sent[1].connection);
    assert_eq!(sent[0].body, sent[1].body);

    let mark = recorder.mark();
    recorder.answer_next(Reply::close());
    let answer = agent.tool("echo", json!({ "a": 1 }));
    assert_failed("a call", &answer, "upstream.lost", "whether the call ran is not known");
    assert_eq!(recorder.requests_since(mark).len(), 1, "a call may have run: it is not sent again");
    agent.tool("echo", json!({ "a": 2 })).result();

    // On a fresh connection nothing is sent again: it is the server that fails.
    for n in [1, 2, 3, 4] {
        recorder.answer_next(Reply::close());
        if n == 1 {
            assert_eq!(super::code(&agent.tool("echo", json!({}))), "upstream.lost", "empties the pool");
        }
    }
    let mark = recorder.mark();
    let answer = agent.call("tools/list", json!({}));
    assert_failed("a dead server", &answer, "upstream.lost", "closed the connection");
    assert_eq!(recorder.requests_since(mark).len(), 1, "a server that is dead is not asked three times");
}

#[test]
fn a_redirect_to_the_upstream_itself_is_followed_with_everything() {
    let recorder = Recorder::start();
    let headers = "headers: { Authorization: { env: UP_TOKEN } }";
    let launch = Launch::new(&config(&[("up", format!("url: \"{}\", {headers}", recorder.url()))]));
    let gateway = launch.env("UP_TOKEN", "Bearer of the gateway").start();
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let whole = format!("http://{}/mcp/?a=b", recorder.address());

    for (status, location) in [(307, "/mcp/?a=b"), (308, "/mcp/?a=b"), (307, &whole), (308, &whole)] {
        let mark = recorder.mark();
        recorder.answer_next(Reply::redirect(status, location));

        let answer = agent.tool("echo", json!({ "a": status }));

        assert_eq!(answer.result()["structuredContent"], json!({ "a": status }), "{status} {location}");
        let [first, second] = &recorder.requests_since(mark)[..] else {
            panic!("{status} {location}: not two requests");
        };
        assert_eq!((second.method.as_str(), second.target.as_str()), ("POST", "/mcp/?a=b"), "{status} {location}");
        assert_eq!(first.body, second.body, "{status} {location}");
        assert_eq!(second.header("authorization"), Some("Bearer of the gateway"), "{status} {location}");
    }
}

#[test]
fn a_redirect_elsewhere_is_not_followed() {
    let (recorder, elsewhere) = (Recorder::start(), Recorder::start());
    let gateway = Gateway::start(&config(&[("up", format!("url: \"{}\"", recorder.url()))]));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let (own, other) = (recorder.address(), elsewhere.address());
    let redirects = [
        format!("http://{other}/mcp"),
        format!("https://{own}/mcp"),
        format!("//{other}/mcp"),
        format!("http://localhost:{}/mcp", own.port()),
        format!("http://{own}@{other}/mcp"),
        format!("http://{own}.evil.test/mcp"),
        "mcp/".to_owned(),
        "ftp://127.0.0.1/".to_owned(),
    ];
    for location in &redirects {
        let mark = recorder.mark();
        recorder.answer_next(Reply::redirect(307, location));

        let answer = agent.tool("echo", json!({}));

        assert_failed(location, &answer, "upstream.redirect", "redirects elsewhere");
        assert_eq!(recorder.requests_since(mark).len(), 1, "{location}");
    }
    // Others would turn a POST into a GET.
    for status in [301, 302, 303] {
        let mark = recorder.mark();
        recorder.answer_next(Reply::redirect(status, "/mcp/"));

        assert_failed("turned", &agent.tool("echo", json!({})), "upstream.status", &status.to_string());
        assert_eq!(recorder.requests_since(mark).len(), 1, "{status}");
    }
    let mark = recorder.mark();
    (0..3).for_each(|_| recorder.answer_next(Reply::redirect(307, "/mcp")));
    assert_failed("endless", &agent.tool("echo", json!({})), "upstream.redirect", "redirects");
    assert_eq!(recorder.requests_since(mark).len(), 3);
    assert_eq!(elsewhere.n_connections(), 0);
    agent.tool("echo", json!({})).result();
}
