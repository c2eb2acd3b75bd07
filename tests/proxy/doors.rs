//! The way in, before there is a message: whose name a request is for, from which page it comes, which path it takes, and
//! how its body is wrapped.

use crate::support::gate::{Gate, Refused, call, error};
use crate::support::gateway::in_front_of;
use crate::support::http::Request;
use crate::support::invariants;

const RULES: &str = r#"- { name: everything, tools: ["up/*"], allow: {} }"#;

#[test]
fn a_body_that_is_not_said_to_be_plain_json_is_refused() {
    let gate = Gate::with_rules(RULES);
    let body = call("echo", "{}");
    let typed = |kinds: &[&str]| {
        kinds.iter().fold(gate.post(body.as_str()).without("Content-Type"), |request, kind| {
            request.header("Content-Type", kind)
        })
    };
    let refused = error(415, -32600, "request.content_type");
    let cases: [&[&str]; 22] = [
        &[],
        &[""],
        &["text/plain"],
        &["text/plain; charset=utf-8"],
        &["text/json"],
        &["application/x-www-form-urlencoded"],
        &["application/octet-stream"],
        &["application/json-seq"],
        &["application/jsonl"],
        &["application/x-ndjson"],
        &["application/json+x"],
        &["application/vnd.api+json"],
        &["application/*"],
        &["*/*"],
        &["application/json, text/plain"],
        &["text/plain, application/json"],
        &["application/json; charset=utf-16"],
        &["application/json; charset=latin1"],
        &["application/json; charset=utf-8; charset=utf-16"],
        &["application/json; charset=\"utf-7\""],
        &["application/json", "application/json"],
        &["application/json", "text/plain"],
    ];
    for kinds in cases {
        gate.refuses(&format!("{kinds:?}"), &typed(kinds), &refused);
    }
    let part = format!("--b\r\nContent-Type: application/json\r\n\r\n{body}\r\n--b--\r\n");
    gate.refuses("JSON in a part", &typed(&["multipart/form-data; boundary=b"]).body(part), &refused);

    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
        "application/json ; x=y",
    ] {
        gate.passes(kind, &typed(&[kind]));
    }
}

#[test]
fn a_body_that_is_said_to_be_compressed_is_refused() {
    let gate = Gate::with_rules(RULES);
    let body = call("echo", "{}");
    for coding in ["gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "identity", "gzip, gzip", "", "unknown"] {
        let request = gate.post(body.as_str()).header("Content-Encoding", coding);
        gate.refuses(coding, &request, &error(415, -32600, "request.content_encoding"));
    }
    let twice = gate.post(body.as_str()).header("Content-Encoding", "identity").header("Content-Encoding", "gzip");
    gate.refuses("two", &twice, &error(415, -32600, "request.content_encoding"));
    for accept in ["text/html", "application/json;q=0", "image/*", ""] {
        let request = gate.post(body.as_str()).without("Accept").header("Accept", accept);
        gate.refuses(accept, &request, &error(406, -32600, "request.accept"));
    }
    gate.passes("the allowed twin", &gate.post(body));
}

#[test]
fn a_host_that_is_not_ours_is_refused() {
    let gate = Gate::with_rules(RULES);
    let port = gate.gateway.agent.port();
    let request = gate.post(call("echo", "{}"));
    let hosts = [
        "evil.test".to_owned(),
        format!("evil.test:{port}"),
        format!("127.0.0.1.evil.test:{port}"),
        format!("localhost.evil.test:{port}"),
        format!("evil-localhost:{port}"),
        "localhost:9".to_owned(),
        "localhost".to_owned(),
        "[::1]".to_owned(),
        "127.0.0.1".to_owned(),
        format!("127.0.0.2:{port}"),
        format!("127.1:{port}"),
        format!("2130706433:{port}"),
        format!("0.0.0.0:{port}"),
        format!("[::]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("localhost.:{port}"),
        format!("127.0.0.1:0{port}"),
        "*".to_owned(),
        String::new(),
    ];
    for host in &hosts {
        gate.refuses(host, &request.clone().header("Host", host), &error(403, -32600, "request.host"));
    }
    let bytes = |request: &Request| request.to_bytes("unused");
    // Not even a name: where HTTP itself is broken, it is refused before it is ours to judge.
    for tail in ["", "@evil.test", "/mcp/up", ", evil.test", "#", "?", "\\", " x", "\t"] {
        for host in [format!("127.0.0.1:{port}{tail}"), format!("good@127.0.0.1:{port}{tail}")] {
            if !tail.trim().is_empty() || host.contains('@') {
                let request = request.clone().header("Host", &host);
                gate.refuses_with(&host, &bytes(&request), &[400, 403]);
            }
        }
    }
    let ours = format!("127.0.0.1:{port}");
    let two = request.clone().header("Host", &ours).header("Host", "evil.test");
    gate.refuses_with("two hosts", &bytes(&two), &[400, 403]);
    let same = request.clone().header("Host", &ours).header("Host", &ours);
    gate.refuses_with("the same host twice", &bytes(&same), &[400, 403]);
    let none = String::from_utf8(request.to_bytes("x")).expect("it is text").replace("Host: x\r\n", "");
    gate.refuses_with("no host", none.as_bytes(), &[400, 403]);
    let elsewhere = String::from_utf8(request.to_bytes(&ours))
        .expect("it is text")
        .replace("POST /mcp", "POST http://evil.test/mcp");
    gate.refuses_with("another host in the target", elsewhere.as_bytes(), &[400, 403]);

    for host in [ours, format!("localhost:{port}"), format!("LocalHost:{port}"), format!("[::1]:{port}")] {
        gate.passes(&host, &request.clone().header("Host", &host));
    }
}

#[test]
fn a_page_of_another_origin_is_refused_and_gets_no_permission_to_ask() {
    let gate = Gate::with(|url| {
        format!("public_url: https://gw.example\norigins: [https://app.example]\n{}", in_front_of(url, RULES))
    });
    let refused = error(403, -32600, "request.origin");
    let post = |origin: &str| gate.post(call("echo", "{}")).header("Origin", origin);
    let port = gate.gateway.agent.port();
    let here = format!("http://127.0.0.1:{port}");
    let origins = [
        "https://evil.test",
        "null",
        "https://gw.example.evil.test",
        "https://gw.example:444",
        "http://gw.example",
        "https://GW.example",
        "https://gw.example/",
        "https://evil.test#gw.example",
        "https://user@gw.example",
        "https://xgw.example",
        "https://sub.gw.example",
        "file://",
        "chrome-extension://abc",
        "https://gw.example https://evil.test",
        "",
        "https://app.example.",
        "*",
        here.as_str(),
    ];
    let preflight = |origin: &str| {
        Request::new("OPTIONS", "/mcp/up")
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", "authorization, content-type")
    };
    for origin in origins {
        for (what, request) in [("a POST", post(origin)), ("a preflight", preflight(origin))] {
            let response = gate.refuses(&format!("{what} of {origin:?}"), &request, &refused);
            assert!(
                response.headers.0.iter().all(|(name, _)| !name.to_ascii_lowercase().starts_with("access-control")),
                "{response:?}"
            );
        }
    }
    let two = post("https://app.example").header("Origin", "https://evil.test");
    gate.refuses("two origins", &two, &refused);

    for origin in ["https://gw.example", "https://app.example"] {
        gate.passes(origin, &post(origin));
        let mark = gate.recorder.mark();
        let response = preflight(origin).send(gate.gateway.agent);
        invariants::check_headers(&response);
        assert_eq!(
            (response.status, response.header("access-control-allow-origin")),
            (204, Some(origin)),
            "{response:?}"
        );
        assert_eq!(response.header("access-control-allow-credentials"), None);
        assert_eq!(response.header("vary"), Some("Origin"));
        let allowed =
            |name: &str, what: &str| response.header(name).unwrap_or_default().split(", ").any(|it| it == what);
        assert!(
            allowed("access-control-allow-methods", "POST") && allowed("access-control-allow-headers", "authorization"),
            "{response:?}"
        );
        gate.recorder.assert_untouched(mark);
        // Refused or not, the page may read the answer: it has to see the challenge.
        let stranger = post(origin).without("Authorization").send(gate.gateway.agent);
        assert_eq!((stranger.status, stranger.header("access-control-allow-origin")), (401, Some(origin)));
    }
    gate.passes("no page at all", &gate.post(call("echo", "{}")));
    let without_origin = Request::new("OPTIONS", "/mcp/up").header("Access-Control-Request-Method", "POST");
    gate.refuses("a preflight of nobody", &without_origin, &error(401, -32600, "token.missing"));
}

#[test]
fn a_route_has_one_spelling_and_with_a_slash_at_its_end_another() {
    let gate = Gate::with_rules(RULES);
    let host = gate.gateway.agent.to_string();
    let at = |target: &str| Request::mcp(target, call("echo", "{}")).bearer(&gate.token).to_bytes(&host);
    let paths = [
        "//mcp/up",
        "/mcp//up",
        "/mcp/up//",
        "/mcp/up/.",
        "/mcp/./up",
        "/mcp/../mcp/up",
        "/mcp/x/../up",
        "/x/../mcp/up",
        "/mcp/up/..",
        "/mcp%2fup",
        "/mcp%2Fup",
        "/%6dcp/up",
        "/mcp/%75p",
        "/mcp/up%2f",
        "/mcp/up%00",
        "/mcp/up%20",
        "/mcp/up%0a",
        "/mcp/%2e%2e/mcp/up",
        "/mcp/%c0%afup",
        "/MCP/up",
        "/mcp/UP",
        "/mcp/Up",
        "/mcp;x/up",
        "/mcp/up;x",
        "/mcp/up;",
        "/mcp/up:",
        "/mcp/up,",
        "/mcp/up.json",
        "/mcp/up/x",
        "/mcp/up/mcp/up",
        "/mcp/other",
        "/mcp/upp",
        "/mcp/u",
        "/mcp/*",
        "/mcp/",
        "/mcp",
        "/",
        "/up",
        "/x/mcp/up",
    ];
    for path in paths {
        let response = gate.refuses_with(path, &at(path), &[404]);
        invariants::check_headers(&response);
    }
    for raw in ["/mcp\\up", "/mcp/up\\", "mcp/up", "/mcp/\u{ff55}p", "/mcp/up\u{0}", "*"] {
        gate.refuses_with(raw, &at(raw), &[400, 404]);
    }
    for spelling in ["/mcp/up", "/mcp/up/", "/mcp/up?x=1", "/mcp/up/?name=danger", "/mcp/up?", "/mcp/up#x"] {
        let request = Request::mcp(spelling, call("echo", "{}")).bearer(&gate.token);
        assert_eq!(gate.passes(spelling, &request).target, "/mcp", "the upstream's path is the configured one");
    }
    let unknown: Refused = error(404, -32600, "request.route");
    let stranger = Request::mcp("/mcp/other", call("echo", "{}"));
    gate.refuses("an unknown upstream, without a token", &stranger, &unknown);
    gate.refuses("an unknown upstream, with one", &stranger.bearer(&gate.token), &unknown);
}

#[test]
fn other_methods_than_those_of_mcp_reach_nothing() {
    let gate = Gate::with_rules(RULES);
    for method in ["PUT", "PATCH", "OPTIONS", "TRACE", "PURGE", "post", "Post"] {
        let request = Request::new(method, "/mcp/up")
            .bearer(&gate.token)
            .header("Content-Type", "application/json")
            .body(call("echo", "{}"));
        let response = gate.refuses(method, &request, &error(405, -32600, "request.http_method"));
        assert_eq!(response.header("allow"), Some("GET, POST, DELETE"));
        gate.refuses(method, &request.without("Authorization"), &error(401, -32600, "token.missing"));
    }
    for method in ["GET", "DELETE"] {
        let request = Request::new(method, "/mcp/up").bearer(&gate.token).header("Accept", "text/event-stream");
        let with_body = request.clone().body(call("echo", "{}"));
        gate.refuses(&format!("{method} with a body"), &with_body, &error(400, -32600, "jsonrpc.invalid"));
        let modern = request.header("MCP-Protocol-Version", "2026-07-28");
        gate.refuses(&format!("{method} in the newer era"), &modern, &error(405, -32600, "request.http_method"));
    }
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", gate.gateway.agent);
    gate.refuses_with("CONNECT", connect.as_bytes(), &[400, 401, 404, 405]);
    gate.passes("the allowed twin", &gate.post(call("echo", "{}")));
}
