//! Headers: those that say again what the body says must say the same, and of all others none that a client sends
//! reaches an upstream unless MCP needs it there.

use crate::support::gate::{Gate, META, Refused, call, error, modern_call};
use crate::support::gateway::in_front_of;
use crate::support::http::{Connection, Request};
use crate::support::wire;

const RULES: &str = r#"
- { name: everything, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
"#;

fn mismatch() -> Refused {
    error(400, -32020, "mcp.header").id("7")
}

/// Refused before the body is read: no id is known.
fn unreadable() -> Refused {
    error(400, -32020, "mcp.header")
}

#[test]
fn headers_of_the_newer_era_say_what_the_body_says() {
    let gate = Gate::with_rules(RULES);
    let echo = || gate.modern("tools/call", Some("echo"), modern_call("echo", "{}"));
    let set = |name: &str, value: &str| echo().without(name).header(name, value);
    let add = |name: &str, value: &str| echo().header(name, value);
    let cases = [
        ("another method", set("Mcp-Method", "tools/list"), mismatch()),
        ("the method in another case", set("Mcp-Method", "Tools/Call"), mismatch()),
        ("an empty method", set("Mcp-Method", ""), mismatch()),
        ("two methods in one", set("Mcp-Method", "tools/call, tools/list"), mismatch()),
        ("no method", echo().without("Mcp-Method"), mismatch()),
        ("the method twice", add("Mcp-Method", "tools/call"), unreadable()),
        ("two methods", add("mcp-method", "tools/list"), unreadable()),
        ("another name", set("Mcp-Name", "danger"), mismatch()),
        ("the name in another case", set("Mcp-Name", "Echo"), mismatch()),
        ("no name", echo().without("Mcp-Name"), mismatch()),
        ("an empty name", set("Mcp-Name", ""), mismatch()),
        ("the name twice", add("Mcp-Name", "echo"), unreadable()),
        ("two names", add("MCP-NAME", "danger"), unreadable()),
        ("another name in base64", set("Mcp-Name", "=?base64?ZGFuZ2Vy?="), mismatch()),
        ("base64 of another spelling is no base64", set("Mcp-Name", "=?BASE64?ZWNobw==?="), mismatch()),
        ("base64 that is not closed", set("Mcp-Name", "=?base64?ZWNobw=="), mismatch()),
        ("base64 of base64", set("Mcp-Name", "=?base64?PT9iYXNlNjQ/WldOb2J3PT0/PQ==?="), mismatch()),
        ("broken base64", set("Mcp-Name", "=?base64?%%%?="), unreadable()),
        ("base64 without padding", set("Mcp-Name", "=?base64?ZWNobw?="), unreadable()),
        ("base64 of no UTF-8", set("Mcp-Name", "=?base64?/w==?="), unreadable()),
        ("a name that is not ASCII", set("Mcp-Name", "é"), unreadable()),
        ("a percent-encoded name", set("Mcp-Name", "%65cho"), mismatch()),
        ("no version in the header", echo().without("MCP-Protocol-Version"), mismatch()),
        ("an older version in the header", set("MCP-Protocol-Version", "2025-11-25"), mismatch()),
        ("the version twice", add("MCP-Protocol-Version", "2026-07-28"), unreadable()),
        ("two versions", add("mcp-protocol-version", "2025-11-25"), unreadable()),
        (
            "a version nobody speaks",
            set("MCP-Protocol-Version", "2099-01-01"),
            error(400, -32022, "mcp.version").id("7"),
        ),
        (
            "a version in a list",
            set("MCP-Protocol-Version", "2026-07-28, 2025-11-25"),
            error(400, -32022, "mcp.version").id("7"),
        ),
    ];
    for (case, request, how) in cases {
        gate.refuses(case, &request, &how);
    }

    // What the upstream gets is made anew from the body.
    for name in ["echo", "=?base64?ZWNobw==?=", " echo "] {
        let arrived = gate.passes(name, &set("Mcp-Name", name));
        assert_eq!(arrived.headers.all("mcp-name"), ["echo"]);
        assert_eq!(arrived.headers.all("mcp-method"), ["tools/call"]);
        assert_eq!(arrived.headers.all("mcp-protocol-version"), ["2026-07-28"]);
    }
    let accented = gate.modern("tools/call", Some("=?base64?w6ljaG8=?="), modern_call("écho", "{}"));
    assert_eq!(gate.passes("a name in base64", &accented).headers.all("mcp-name"), ["=?base64?w6ljaG8=?="]);
}

#[test]
fn the_body_of_the_newer_era_says_what_the_headers_say() {
    let gate = Gate::with_rules(RULES);
    let request = |body: String| gate.modern("tools/call", Some("echo"), body);
    let replaced = |from: &str, to: &str| request(modern_call("echo", "{}").replace(from, to));
    let params = || error(400, -32602, "mcp.params").id("7");
    let cases = [
        ("another tool", request(modern_call("danger", "{}")), mismatch()),
        (
            "another method",
            request(format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{{{META}}}}}"#)),
            mismatch(),
        ),
        ("an older version", replaced("2026-07-28", "2025-11-25"), mismatch()),
        ("no _meta", request(call("echo", "{}")), params()),
        ("no version in _meta", replaced("io.modelcontextprotocol/protocolVersion", "other"), params()),
        ("no capabilities in _meta", replaced("io.modelcontextprotocol/clientCapabilities", "other"), params()),
        ("the version as a number", replaced(r#""2026-07-28""#, "20260728"), params()),
    ];
    for (case, request, how) in cases {
        gate.refuses(case, &request, &how);
    }
    gate.passes("the allowed twin", &request(modern_call("echo", "{}")));

    for (method, member, name, other) in
        [("prompts/get", "name", "greet", "other"), ("resources/read", "uri", "note://one", "note://two")]
    {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{"{member}":"{name}",{META}}}}}"#);
        gate.refuses(method, &gate.modern(method, Some(other), body.as_str()), &mismatch());
        gate.refuses(method, &gate.modern(method, None, body.as_str()), &mismatch());
        gate.passes(method, &gate.modern(method, Some(name), body.as_str()));
    }
}

#[test]
fn headers_of_the_newer_era_are_held_to_the_body_also_when_an_older_client_sends_them() {
    let gate = Gate::with_rules(RULES);
    for version in [None, Some("2025-03-26"), Some("2025-11-25")] {
        let echo = || {
            let request = gate.post(call("echo", "{}"));
            match version {
                Some(version) => request.header("MCP-Protocol-Version", version),
                None => request,
            }
        };
        let cases = [
            ("another method", echo().header("Mcp-Method", "tools/list"), mismatch()),
            (
                "the method twice",
                echo().header("Mcp-Method", "tools/call").header("Mcp-Method", "tools/call"),
                unreadable(),
            ),
            ("another name", echo().header("Mcp-Name", "danger"), mismatch()),
            ("another name in base64", echo().header("Mcp-Name", "=?base64?ZGFuZ2Vy?="), mismatch()),
            ("the name twice", echo().header("Mcp-Name", "echo").header("Mcp-Name", "echo"), unreadable()),
            ("_meta of the newer era", echo().body(modern_call("echo", "{}")), mismatch()),
        ];
        for (case, request, how) in cases {
            gate.refuses(&format!("{case}, {version:?}"), &request, &how);
        }
        gate.passes("without them", &echo());
        let arrived =
            gate.passes("with the right ones", &echo().header("Mcp-Method", "tools/call").header("Mcp-Name", "echo"));
        assert_eq!(
            (arrived.header("mcp-method"), arrived.header("mcp-name")),
            (None, None),
            "they are of no use to an older server"
        );
    }
    gate.refuses(
        "the version twice",
        &gate
            .post(call("echo", "{}"))
            .header("MCP-Protocol-Version", "2025-11-25")
            .header("MCP-Protocol-Version", "2025-11-25"),
        &unreadable(),
    );
}

/// Everything a request to the upstream may carry.
const FORWARDED: &[&str] = &[
    "host",
    "user-agent",
    "content-type",
    "accept",
    "content-length",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-param-region",
    "traceparent",
    "tracestate",
    "baggage",
    "x-upstream-key",
    "authorization",
];

/// What clients send that is none of an upstream's business, or pretends to come from us.
fn with_everything(request: Request) -> Request {
    [
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Forwarded-Host", "evil.test"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=10.0.0.1"),
        ("X-Real-IP", "10.0.0.1"),
        ("Via", "1.1 evil"),
        ("Portcullis-Upstream-Secret", "guessed"),
        ("X-Portcullis-User", "admin"),
        ("X-Upstream-Key", "the client's"),
        ("X-Original-URL", "/admin"),
        ("X-Rewrite-Url", "/admin"),
        ("X-HTTP-Method-Override", "DELETE"),
        ("Cookie", "session=s3cret"),
        ("Proxy-Authorization", "Basic YTpi"),
        ("X-Api-Key", "k"),
        ("Mcp-Gw-User", "admin"),
        ("mcp-init-host", "evil.test"),
        ("router-key", "x"),
        ("Last-Event-ID", "5"),
        ("Referer", "http://evil.test/"),
        ("User-Agent", "evil/1.0"),
        ("Accept-Encoding", "gzip"),
        ("X-Request-Id", "mine"),
        ("Connection", "keep-alive, x-upstream-key, mcp-name"),
        ("Keep-Alive", "timeout=5"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ("Range", "bytes=0-1"),
        ("If-None-Match", "*"),
        ("Mcp-Param-Region", "eu"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "a=1"),
        ("baggage", "b=2"),
    ]
    .into_iter()
    .fold(request, |request, (name, value)| request.header(name, value))
}

#[test]
fn of_what_a_client_sends_only_what_mcp_needs_reaches_the_upstream() {
    let headers = r#"headers: { X-Upstream-Key: { env: KEY }, Authorization: { env: AUTH } }"#;
    let gate = Gate::with_env(
        |url| in_front_of(url, RULES).replace("\" } }", &format!("\", {headers} }} }}")),
        &[("KEY", "ours"), ("AUTH", "Bearer of-the-upstream")],
    );
    let before = gate.recorder.mark();
    let legacy = gate.post(call("echo", "{}")).header("MCP-Protocol-Version", "2025-11-25");
    let modern = gate.modern("tools/call", Some("echo"), modern_call("echo", "{}"));

    for request in [with_everything(legacy), with_everything(modern)] {
        let arrived = gate.passes("a call with everything", &request);
        for (name, value) in &arrived.headers.0 {
            assert!(FORWARDED.contains(&name.to_ascii_lowercase().as_str()), "{name}: {value} was forwarded");
            assert_eq!(arrived.headers.all(name).len(), 1, "{name} stands there twice");
        }
        let seen = [
            "authorization",
            "x-upstream-key",
            "accept",
            "content-type",
            "host",
            "traceparent",
            "tracestate",
            "baggage",
        ]
        .map(|name| arrived.header(name).unwrap_or_default());
        let host = gate.recorder.address().to_string();
        assert_eq!(
            seen,
            [
                "Bearer of-the-upstream",
                "ours",
                "application/json, text/event-stream",
                "application/json",
                &host,
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "a=1",
                "b=2"
            ]
        );
        assert!(arrived.header("user-agent").is_some_and(|agent| agent.starts_with("portcullis/")));
        assert_eq!((arrived.method.as_str(), arrived.target.as_str()), ("POST", "/mcp"));
    }

    let secrets = [gate.token.as_str(), "s3cret", "guessed", "the client's", "evil", "10.0.0.1"];
    for connection in 0..gate.recorder.n_connections() {
        let bytes = String::from_utf8_lossy(&gate.recorder.bytes(connection)).into_owned();
        for secret in secrets {
            assert!(!bytes.contains(secret), "{secret:?} reached the upstream");
        }
    }
    assert_eq!(gate.recorder.requests_since(before).len(), 2);
}

#[test]
fn the_token_of_a_client_reaches_no_upstream_by_any_way_of_ours() {
    let gate = Gate::with_rules(RULES);
    let token = gate.token.clone();
    let target = format!("/mcp/up?access_token={token}&token={token}");
    let request = Request::mcp(&target, call("echo", "{}"))
        .bearer(&token)
        .header("Cookie", &format!("token={token}"))
        .header("X-Token", &token);

    let arrived = gate.passes("a call with the token everywhere", &request);

    assert_eq!(arrived.target, "/mcp");
    for connection in 0..gate.recorder.n_connections() {
        let bytes = String::from_utf8_lossy(&gate.recorder.bytes(connection)).into_owned();
        assert!(!bytes.contains(&token) && !bytes.contains("Bearer"), "{bytes}");
    }
}

#[test]
fn trailers_are_dropped_and_count_for_nothing() {
    let gate = Gate::with_rules(RULES);
    let host = gate.gateway.agent.to_string();
    let framed = |body: &str, trailers: &str| {
        let mut bytes = wire::chunk(body.as_bytes());
        bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
        bytes
    };
    let trailers = "Mcp-Name: danger\r\nAuthorization: Bearer x\r\nX-Trailer: 1\r\n";
    let chunked = |request: Request, body: &str, trailers: &str| {
        request.header("Transfer-Encoding", "chunked").body(framed(body, trailers)).to_bytes(&host)
    };

    // Whatever the answer to a request with trailers is, nothing of them arrives.
    let mut connection = Connection::open(gate.gateway.agent);
    let mark = gate.recorder.mark();
    connection.send(&chunked(gate.post(""), &call("echo", "{}"), trailers));
    let response = connection.response();
    assert!(response.status == 200 || response.status == 400, "{response:?}");
    for arrived in gate.recorder.requests_since(mark) {
        assert_eq!(arrived.body, call("echo", "{}").as_bytes());
        assert_eq!(
            (arrived.header("mcp-name"), arrived.header("x-trailer"), arrived.header("authorization")),
            (None, None, None)
        );
    }
    // A token that comes after the body comes too late.
    let late = format!("Authorization: Bearer {}\r\n", gate.token);
    gate.refuses_with(
        "the token in a trailer",
        &chunked(Request::mcp("/mcp/up", ""), &call("echo", "{}"), &late),
        &[401],
    );
    let passed = {
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(&chunked(gate.post(""), &call("echo", "{}"), ""));
        connection.response()
    };
    assert_eq!(passed.status, 200, "the same without trailers");
}
