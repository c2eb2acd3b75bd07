//! No credential reaches a log, a record, a metric, an error or a file, at whatever level and in whatever spelling.

use super::{wait_until, wait_until_up};
use crate::support::agent::Agent;
use crate::support::canary::{Canary, texts};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::{Connection, Request, Response};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};

const BASIC: &str = "CANARY-basic-user:CANARY-basic-password";

/// Requests with a credential in every place one can stand, good and bad.
fn requests(agent: &Agent, session: &str) -> Vec<(&'static str, Request)> {
    let token = agent.token.clone().unwrap_or_default();
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "echo", "arguments": { "password": "CANARY-argument-4" } } }).to_string();
    let refused = call.replace("echo", "danger");
    let broken = format!("{call}]");
    let all = |request: Request| request.header("Cookie", "sid=CANARY-cookie-5").header("X-Api-Key", "CANARY-header-6");
    let post = |path: &str, body: &str| all(Request::mcp(path, body.to_owned()));
    let basic = STANDARD_NO_PAD.encode(BASIC);
    let query = "?api_key=CANARY-query-2&access_token=CANARY-query-3";
    vec![
        ("a good call", post("/mcp/up", &call).bearer(&token).header("Mcp-Session-Id", session)),
        ("a good call with a query", post(&format!("/mcp/up{query}"), &call).bearer(&token)),
        ("a denied call", post("/mcp/up", &refused).bearer(&token)),
        ("a call refused for its arguments", post("/mcp/up", &call.replace("echo", "add")).bearer(&token)),
        ("a broken body", post("/mcp/up", &broken).bearer(&token)),
        (
            "a key twice",
            post("/mcp/up", &call.replace("\"password\":", "\"password\":\"CANARY-argument-4\",\"password\":"))
                .bearer(&token),
        ),
        ("an unknown session", post("/mcp/up", &call).bearer(&token).header("Mcp-Session-Id", "CANARY-session-9")),
        (
            "two versions",
            post("/mcp/up", &call)
                .bearer(&token)
                .header("MCP-Protocol-Version", "2025-11-25")
                .header("MCP-Protocol-Version", "x"),
        ),
        ("a failing upstream", post("/mcp/up", &call.replace("echo", "fail")).bearer(&token)),
        ("an upstream that sends no HTTP", post("/mcp/up", &call.replace("echo", "nothttp")).bearer(&token)),
        ("an upstream that redirects", post("/mcp/up", &call.replace("echo", "redirect")).bearer(&token)),
        ("an upstream that sends no JSON", post("/mcp/up", &call.replace("echo", "nojson")).bearer(&token)),
        ("a token of nobody's", post("/mcp/up", &call).bearer("CANARY-bearer-1")),
        ("a token cut short", post("/mcp/up", &call).bearer(&token[..token.len() - 2])),
        ("a malformed header", post("/mcp/up", &call).header("Authorization", "Bearer CANARY-bearer-8 x")),
        ("Basic", post("/mcp/up", &call).header("Authorization", &format!("Basic {basic}"))),
        ("two headers", post("/mcp/up", &call).bearer(&token).header("Authorization", "Bearer CANARY-bearer-1")),
        ("a token in the query", post(&format!("/mcp/up{query}"), &call)),
        ("an unknown path", post(&format!("/nope{query}"), &call).bearer(&token)),
        (
            "a document",
            all(Request::get(&format!("/.well-known/oauth-protected-resource/mcp/up{query}"))).bearer(&token),
        ),
        ("another method", all(Request::new("DELETE", &format!("/mcp/up{query}"))).bearer(&token)),
        ("another host", post("/mcp/up", &call).bearer(&token).header("Host", "evil.test")),
    ]
}

/// The tool that a request calls, if it calls one.
fn called(request: &Recorded) -> Option<String> {
    let message: Value = serde_json::from_slice(&request.body).ok()?;
    message["params"]["name"].as_str().map(str::to_owned)
}

fn answers(recorder: &Recorder) {
    recorder.answer_with(|request| match called(request).as_deref() {
        Some("fail") => Reply::new(500, "CANARY-upstream-body").header("Set-Cookie", "CANARY-upstream-cookie"),
        Some("nothttp") => {
            Reply::raw(vec![b"HTTP/1.1 200 OK\r\nSet-Cookie: CANARY-upstream-cookie\r\nno header\r\n\r\n".to_vec()])
        }
        Some("redirect") => Reply::redirect(307, "https://evil.test/?api_key=CANARY-upstream-query"),
        Some("nojson") => Reply::json("CANARY-upstream-body"),
        _ => Reply::mcp(request)
            .header("Mcp-Session-Id", "CANARY-upstreams-own-session")
            .header("Set-Cookie", "CANARY-upstream-cookie"),
    });
}

const RULES: &str = r#"
- { name: all, tools: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], deny: {} }
- { name: no password, tools: ["up/add"], when: { /password: { present: true } }, deny: { reason: "no passwords here" } }
"#;

fn launch(recorder: &Recorder) -> Gateway {
    let yaml = in_front_of(&recorder.url(), RULES).replacen(
        "\" } }\n",
        "\", headers: { X-Upstream-Key: { env: UPSTREAM_KEY }, Authorization: { file: key } } } }\n",
        1,
    );
    let launch =
        Launch::new(&yaml).file("key", "Bearer CANARY-upstream-key-7").env("UPSTREAM_KEY", "CANARY-upstream-key-6");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(launch.path("key"), private).expect("the file is ours");
    launch.env("RUST_LOG", "trace").start()
}

// B72: github/gh-aw#50930, cohere-ai/north-mcp-python-sdk#58, open-mercato/open-mercato#2660, zereight/gitlab-mcp#645,
// IBM/mcp-context-forge#1580.
#[test]
fn no_credential_is_found_in_any_sink_at_the_finest_log_level() {
    let recorder = Recorder::start();
    answers(&recorder);
    let gateway = launch(&recorder);
    wait_until_up(&gateway, "up");
    let mut agent = gateway.agent("alice", "up");
    agent.initialize();
    let session = agent.session.clone().expect("the upstream has sessions");
    let token = agent.token.clone().expect("it has one");
    // Of a token its signature is the secret part; the rest is claims, of which some are in the records by right.
    let signature = token.rsplit('.').next().expect("a JWT").to_owned();
    let mut canaries = vec![
        Canary::new("the bearer token", token),
        Canary::new("the bearer token's signature", signature),
        Canary::new("the sealed session id", session.clone()),
        Canary::new("a bearer token", "CANARY-bearer-"),
        Canary::new("a query parameter", "CANARY-query-"),
        Canary::new("a Basic credential", "CANARY-basic-"),
        Canary::new("a cookie", "CANARY-cookie-"),
        Canary::new("a header", "CANARY-header-"),
        Canary::new("a tool's argument", "CANARY-argument-"),
        Canary::new("a session id", "CANARY-session-"),
        Canary::new("an upstream's key", "CANARY-upstream-key-"),
        Canary::new("an upstream's session id", "CANARY-upstreams-own-session"),
        Canary::new("an upstream's cookie", "CANARY-upstream-cookie"),
        Canary::new("an upstream's query", "CANARY-upstream-query"),
        Canary::new("an upstream's text", "CANARY-upstream-body"),
    ];
    let mut answers: Vec<(&str, Response)> = Vec::new();

    for (what, request) in requests(&agent, &session) {
        let response = request.send(gateway.agent);
        if !matches!(what, "a good call" | "a good call with a query") {
            assert!(!response.text().contains("structuredContent"), "{what} went through: {}", response.text());
            answers.push((what, response));
        }
    }
    let mut connection = Connection::open(gateway.agent);
    connection.send(b"POST /mcp/up HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer CANARY-bearer-1\r\nno header\r\n\r\n");
    answers.extend(connection.try_response().map(|response| ("no HTTP", response)));
    answers.push(("metrics", gateway.observe("/metrics?api_key=CANARY-query-2")));
    // A bad configuration with a credential written out is shown without it.
    gateway.rewrite(&in_front_of(&recorder.url(), RULES).replacen(
        "\" } }\n",
        "\", headers: { X-Api-Key: CANARY-upstream-key-1 }, typo: 1 } }\n",
        1,
    ));
    assert!(!gateway.reload().status.success());
    wait_until("all records", || gateway.audit_text().matches("\"event\":\"refused\"").count() >= 8);

    let arrived: Vec<_> = recorder.calls();
    assert!(arrived.iter().any(|call| call.header("x-upstream-key") == Some("CANARY-upstream-key-6")));
    for call in &arrived {
        let text = format!("{:?} {}", call.headers, call.target);
        for leaked in ["CANARY-cookie", "CANARY-header", "CANARY-query", "CANARY-bearer"] {
            assert!(!text.contains(leaked), "the upstream got {leaked}: {text}");
        }
    }
    let mut places: Vec<(String, String)> = answers
        .iter()
        .map(|(what, response)| {
            (format!("the answer to {what}"), format!("{:?} {}", response.headers, response.text()))
        })
        .collect();
    places.push(("the log".to_owned(), gateway.log()));
    places.push(("the metrics".to_owned(), gateway.observe("/metrics").text()));
    texts(&gateway.path("data"), &mut places);
    assert!(gateway.log().contains("DEBUG portcullis::access"), "the finest level is on:\n{}", gateway.log());
    assert!(places.iter().any(|(name, _)| name.ends_with(".jsonl")));
    canaries.retain(|canary| !canary.value.is_empty());
    for canary in &canaries {
        for (place, text) in &places {
            canary.assert_absent(place, text);
        }
    }
    // What can be told apart without them: every refusal has its request id, in the answer and in the record.
    let id = answers[0].1.header("x-request-id").expect("every answer has one");
    assert!(gateway.audit_text().contains(id));
}

// B72: nor on a command line, which every user of the machine can read.
#[test]
fn command_lines_and_the_environment_of_nobody_hold_a_secret() {
    let recorder = Recorder::start();
    let gateway = launch(&recorder);

    let line = std::fs::read(format!("/proc/{}/cmdline", gateway.id())).expect("it runs");

    assert!(!String::from_utf8_lossy(&line).contains("CANARY"));
    let shown = gateway.cli(&["check"]);
    assert!(!format!("{}{}", shown.stdout, shown.stderr).contains("CANARY"));
}
