//! Header fields: what crosses from one hop to the other, and what each side is told in them.

use super::{EVERYTHING, settled, settled_with};
use crate::support::agent::Agent;
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::{Request, Response};
use crate::support::invariants;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::{Reply, event};
use serde_json::{Value, json};

const VERSION: &str = "MCP-Protocol-Version";

/// A stateful server of 2025-06-18 that takes nothing but its own session and its own version.
fn strict(request: &Recorded) -> Reply {
    match request.rpc_method().as_str() {
        "initialize" => {
            let result = json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "strict", "version": "1" } });
            Reply::result(request, &result).header("Mcp-Session-Id", "the-upstreams-own")
        }
        _ if request.header("mcp-session-id") != Some("the-upstreams-own") => Reply::new(400, "no session"),
        _ if request.header(VERSION).is_some_and(|version| version != "2025-06-18") => Reply::new(400, "bad version"),
        _ if request.method == "DELETE" => Reply::new(200, ""),
        _ => Reply::mcp(request),
    }
}

#[track_caller]
fn speaking(agent: &Agent, version: Option<&str>, method: &str, params: Value) -> crate::support::agent::Answer {
    let (request, id) = agent.request(method, params);
    let request = request.without(VERSION);
    let request = if let Some(version) = version { request.header(VERSION, version) } else { request };
    agent.send(&request, Some(&id))
}

// B27: agentgateway/agentgateway#2980, #2982, IBM/mcp-context-forge#5484.
#[test]
fn strict_upstream_sees_only_the_version_and_session_of_its_own_hop() {
    let recorder = Recorder::start();
    recorder.answer_with(strict);
    // The gateway's own client keeps to what was negotiated, too, or it would never come up.
    let gateway = settled(&recorder, EVERYTHING);
    let mut agent = gateway.agent("alice", "up");

    agent.initialize();
    let sealed = agent.session.clone().expect("the upstream has sessions");

    assert_ne!(sealed, "the-upstreams-own");
    for version in [Some("2025-06-18"), None] {
        let list = speaking(&agent, version, "tools/list", json!({}));
        assert_eq!(list.result()["tools"][0]["name"], "echo", "{version:?}");
        let call = speaking(&agent, version, "tools/call", json!({ "name": "echo", "arguments": { "a": 1 } }));
        assert_eq!(call.result()["structuredContent"], json!({ "a": 1 }), "{version:?}");
        assert_eq!(recorder.last().header(VERSION), version);
    }
    for seen in recorder.requests() {
        let session = seen.header("mcp-session-id");
        assert!(session.is_none_or(|id| id == "the-upstreams-own"), "{seen:?}");
    }
}

// B27: agentgateway/agentgateway#2980.
#[test]
fn unknown_protocol_version_is_answered_with_those_that_are_known() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let refused = speaking(&agent, Some("2099-01-01"), "tools/list", json!({}));

    assert_eq!((refused.status(), refused.error().0), (400, -32022));
    let data = &refused.message["error"]["data"];
    assert_eq!(data["requested"], "2099-01-01");
    for known in ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        assert!(data["supported"].as_array().expect("a list").contains(&json!(known)), "{data}");
    }
    recorder.assert_untouched(mark);
    for known in [Some("2025-06-18"), Some("2025-11-25"), None] {
        speaking(&agent, known, "tools/list", json!({})).result();
    }
}

const INSPECTOR: &str = "http://localhost:6274";
const EVIL: &str = "https://evil.test";

fn preflight(path: &str, origin: &str, method: &str, headers: &str) -> Request {
    Request::new("OPTIONS", path)
        .header("Origin", origin)
        .header("Access-Control-Request-Method", method)
        .header("Access-Control-Request-Headers", headers)
}

#[track_caller]
fn assert_readable(response: &Response, what: &str) {
    assert_eq!(response.header("access-control-allow-origin"), Some(INSPECTOR), "{what}: {response:?}");
    let exposed = response.header("access-control-expose-headers").unwrap_or_default().to_ascii_lowercase();
    for name in ["mcp-session-id", "www-authenticate"] {
        assert!(exposed.contains(name), "{what} exposes {exposed:?}");
    }
    assert!(response.header("vary").unwrap_or_default().contains("Origin"), "{what}: caches must know");
    assert_eq!(response.header("access-control-allow-credentials"), None, "{what}");
}

// B29: IBM/mcp-context-forge#2152, twentyhq/twenty#19836, envoyproxy/ai-gateway#2307, netdata/netdata#22258.
#[test]
fn page_of_an_allowed_origin_can_ask_and_read_every_answer_and_no_other_page_can() {
    let recorder = Recorder::start();
    let gateway = settled_with(&format!("origins: [\"{INSPECTOR}\"]"), &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let asked = "authorization,content-type,mcp-protocol-version,mcp-session-id,last-event-id,mcp-method,mcp-name,mcp-param-region";
    let mark = recorder.mark();

    for method in ["POST", "DELETE", "GET"] {
        let response = preflight("/mcp/up", INSPECTOR, method, asked).send(gateway.agent);

        assert_eq!(response.status, 204, "{method}");
        assert_readable(&response, "preflight");
        let methods = response.header("access-control-allow-methods").unwrap_or_default();
        assert!(["GET", "POST", "DELETE"].iter().all(|name| methods.contains(name)), "{methods}");
        let allowed = response.header("access-control-allow-headers").unwrap_or_default().to_ascii_lowercase();
        let allowed: Vec<&str> = allowed.split(',').map(str::trim).collect();
        assert!(asked.split(',').all(|name| allowed.contains(&name)), "{allowed:?}");
    }
    recorder.assert_untouched(mark);

    let answers = [
        ("401", Request::mcp("/mcp/up", "{}"), 401),
        ("unknown route", Request::mcp("/mcp/nope", "{}"), 404),
        ("not JSON", Request::mcp("/mcp/up", "x").bearer(agent.token.as_deref().unwrap_or_default()), 400),
        ("405", Request::new("PUT", "/mcp/up").bearer(agent.token.as_deref().unwrap_or_default()), 405),
        ("no page", Request::get("/nope"), 404),
        ("200", agent.request("tools/list", json!({})).0, 200),
    ];
    for (what, request, status) in answers {
        let response = request.clone().header("Origin", INSPECTOR).send(gateway.agent);
        assert_eq!(response.status, status, "{what}");
        assert_readable(&response, what);
        invariants::check_headers(&response);

        let mark = recorder.mark();
        let response = request.header("Origin", EVIL).send(gateway.agent);
        assert_eq!(response.status, 403, "{what} of another origin");
        assert_eq!(response.header("access-control-allow-origin"), None, "{what} of another origin");
        recorder.assert_untouched(mark);
    }
    let response = preflight("/mcp/up", EVIL, "POST", asked).send(gateway.agent);
    assert_eq!((response.status, response.header("access-control-allow-origin")), (403, None));
}

// B30: BerriAI/litellm#34845, zoho/analytics-mcp-server#22, sigbit/mcp-auth-proxy#115, oceanbase/powercontext#1662.
#[test]
fn both_spellings_of_a_path_are_served_and_nothing_is_redirected() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");

    for path in ["/mcp/up", "/mcp/up/"] {
        let (request, id) = agent.request("ping", json!({}));
        let body = request.to_bytes("x");
        let body = body.split(|byte| *byte == b'\n').next_back().expect("a body").to_vec();
        let token = agent.token.as_deref().unwrap_or_default();
        assert_eq!(Request::mcp(path, body.clone()).send(gateway.agent).status, 401, "{path}");
        agent.send(&Request::mcp(path, body).bearer(token), Some(&id)).result();
    }
    for path in ["/", "/mcp", "/mcp/", "/mcp//up", "/mcp/up//", "/mcp/up/x", "//mcp/up"] {
        let response = Request::mcp(path, "{}").send(gateway.agent);
        assert!(matches!(response.status, 401 | 404), "{path}: {response:?}");
        assert_eq!(response.header("location"), None, "{path}");
    }
}

// B30: the same, from the upstream's side.
#[test]
fn redirect_to_the_upstream_itself_is_followed_and_every_other_ends_in_an_error() {
    let (recorder, elsewhere) = (Recorder::start(), Recorder::start());
    let yaml = in_front_of(&recorder.url(), EVERYTHING);
    let yaml = yaml.replacen("\" } }\n", "\", headers: { X-Key: { env: UPSTREAM_KEY } } } }\n", 1);
    let launch = crate::support::gateway::Launch::new(&yaml).env("UPSTREAM_KEY", "the upstream's credential");
    let gateway = launch.start();
    super::wait_until_up(&gateway, "up");
    let agent = gateway.agent("alice", "up");
    let own = format!("http://{}/other", recorder.address());

    for (status, location) in [(307, "/other"), (308, "/other"), (307, own.as_str())] {
        let place = location.to_owned();
        recorder.answer_with(move |request| match request.target.as_str() {
            "/other" => Reply::mcp(request),
            _ => Reply::redirect(status, &place),
        });
        let mark = recorder.mark();
        agent.tool("echo", json!({ "a": 1 })).result();
        let seen = recorder.requests_since(mark);
        assert_eq!(seen.len(), 2, "{status} {location}");
        assert_eq!((&seen[0].method, &seen[0].body), (&seen[1].method, &seen[1].body), "{status} {location}");
        assert_eq!(seen[1].header("x-key"), Some("the upstream's credential"));
    }
    let foreign = format!("http://{}/mcp", elsewhere.address());
    let with_secret = format!("{foreign}?api_key=CANARY");
    for (status, location) in [
        (307, foreign.as_str()),
        (308, with_secret.as_str()),
        (307, "//evil.test/mcp"),
        (307, "https://127.0.0.1/mcp"),
        (308, "/mcp"),
        (301, "/other"),
        (302, "/other"),
        (303, "/other"),
    ] {
        let place = location.to_owned();
        recorder.answer_with(move |_| Reply::redirect(status, &place));
        let refused = agent.tool("echo", json!({}));
        let text = refused.response.text();
        assert_eq!((refused.status(), refused.error().0), (200, -32603), "{status} {location}: {text}");
        assert!(!text.contains("evil") && !text.contains(&elsewhere.address().to_string()), "{text}");
        assert_eq!(refused.response.header("location"), None);
    }
    assert_eq!(elsewhere.n_connections(), 0);
    gateway.wait_for_log("a redirect to");
    assert!(!gateway.log().contains("CANARY"), "a redirect may carry a credential:\n{}", gateway.log());
}

// B31: modelcontextprotocol/python-sdk#1641, honojs/middleware#1799, vectorize-io/hindsight#571, punkpeye/mcp-remote#243.
#[test]
fn every_reasonable_accept_is_served_in_a_form_it_names_and_the_upstream_always_gets_both() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let cases: [(&[&str], bool, bool); 9] = [
        (&[], true, true),
        (&["*/*"], true, true),
        (&["application/json"], true, false),
        (&["text/event-stream"], false, true),
        (&["application/json;q=0.9, text/event-stream;q=0.1"], true, true),
        (&["Application/JSON, text/event-stream"], true, true),
        (&["application/json", "text/event-stream"], true, true),
        (&["text/*;q=0.5, application/json;q=0"], false, true),
        (&["application/*, text/plain"], true, false),
    ];
    for streams in [false, true] {
        recorder.answer_with(move |request| {
            let reply = Reply::mcp(request);
            if !streams || request.rpc_method() != "ping" {
                return reply;
            }
            Reply::sse(&[json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": {} })])
        });
        for (accept, takes_json, takes_stream) in cases {
            let (request, id) = agent.request("ping", json!({}));
            let request =
                accept.iter().fold(request.without("accept"), |request, value| request.header("Accept", value));
            let answer = agent.send(&request, Some(&id));
            answer.result();
            let is_stream = answer.response.is_stream();
            assert!(if is_stream { takes_stream } else { takes_json }, "{accept:?}: {:?}", answer.response);
            assert_eq!(recorder.last().headers.all("accept"), ["application/json, text/event-stream"], "{accept:?}");
        }
    }
    let mark = recorder.mark();
    for accept in ["text/plain", "application/json;q=0", "text/html, image/*"] {
        let (request, id) = agent.request("ping", json!({}));
        let refused = agent.send(&request.without("accept").header("Accept", accept), Some(&id));
        assert_eq!((refused.status(), refused.error().0), (406, -32600), "{accept}");
    }
    recorder.assert_untouched(mark);
    for kind in ["application/json; charset=utf-8", "application/json;charset=\"UTF-8\"", "Application/Json"] {
        let (request, id) = agent.request("ping", json!({}));
        agent.send(&request.without("content-type").header("Content-Type", kind), Some(&id)).result();
    }
}

// B32: PrefectHQ/fastmcp#4468, smart-mcp-proxy/mcpproxy-go#898, modelcontextprotocol/python-sdk#1798,
// RekklesNA/ProxmoxMCP-Plus#92.
#[test]
fn host_guard_knows_the_configured_names_and_says_which_setting_is_missing() {
    let recorder = Recorder::start();
    let gateway = settled_with("hosts: [gw.example.test]", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let (address, port) = (gateway.agent.to_string(), gateway.agent.port());
    let own = recorder.address().to_string();
    // A guard like that of the Python SDK.
    recorder.answer_with(move |request| match request.headers.all("host")[..] {
        [host] if host == own => Reply::mcp(request),
        _ => Reply::new(421, "Invalid Host header"),
    });

    for host in ["gw.example.test", "GW.example.test", address.as_str(), &format!("localhost:{port}")] {
        let (request, id) = agent.request("ping", json!({}));
        agent.send(&request.clone().header("Host", host), Some(&id)).result();
        assert_eq!(request.without("authorization").header("Host", host).send(gateway.agent).status, 401, "{host}");
    }
    let mark = recorder.mark();
    for host in ["evil.test", "gw.example.test.evil.test", "gw.example.test:1", "127.0.0.1", ""] {
        let (request, id) = agent.request("ping", json!({}));
        let refused = agent.send(&request.header("Host", host), Some(&id));
        assert_eq!((refused.status(), refused.error().0), (403, -32600), "{host}");
    }
    let (request, id) = agent.request("ping", json!({}));
    assert_eq!(agent.send(&request.header("Origin", "http://evil.test"), Some(&id)).status(), 403);
    recorder.assert_untouched(mark);

    gateway.wait_for_log("name it in `public_url` or `hosts`");
    // A probe that stays green is no proof that clients get in; this is where it shows.
    let sample = "portcullis_refusals_total{code=\"request.host\",route=\"none\"}";
    super::wait_until("the refusals to be counted", || gateway.metric(sample) >= 5.0);
}

// B32: by default, on loopback.
#[test]
fn gateway_on_loopback_answers_to_loopback_names_only() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, EVERYTHING);
    let port = gateway.agent.port();

    let status = |host: &str| Request::mcp("/mcp/up", "{}").header("Host", host).send(gateway.agent).status;

    assert_eq!(status(&format!("127.0.0.1:{port}")), 401);
    for host in ["rebound.evil.test", &format!("rebound.evil.test:{port}"), &format!("0.0.0.0:{port}")] {
        assert_eq!(status(host), 403, "{host}");
    }
}

// B33: stainless-api/mcp-front#52.
#[test]
fn session_id_comes_back_sealed_with_json_and_with_a_stream() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let mut agent = gateway.agent("alice", "up");

    for (streams, id) in [(true, Some("s-1")), (false, Some("s-2")), (true, None), (false, None)] {
        recorder.answer_with(move |request| {
            let reply = Reply::mcp(request);
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "x", "version": "1" } });
            let reply = match request.rpc_method().as_str() {
                "initialize" if streams => {
                    let message = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "result": result });
                    Reply::sse_raw(vec![event(&message).into_bytes()])
                }
                _ => reply,
            };
            let reply = reply.header("Set-Cookie", "u=1").header("Server", "x").header("X-Powered-By", "y");
            let reply = reply.header("Connection", "X-Up").header("X-Up", "z").header("Keep-Alive", "timeout=7");
            let is_start = request.rpc_method() == "initialize";
            if let Some(id) = id.filter(|_| is_start) { reply.header("Mcp-Session-Id", id) } else { reply }
        });
        agent.session = None;
        let mark = recorder.mark();

        // `Agent` checks that nothing else of the upstream's header comes through.
        agent.initialize();
        agent.call("tools/list", json!({})).result();

        assert_eq!(agent.session.is_some(), id.is_some(), "stream: {streams}");
        assert_ne!(agent.session.as_deref(), id.or(Some("")));
        let seen = recorder.requests_since(mark);
        let sessions: Vec<_> = seen.iter().map(|request| request.header("mcp-session-id")).collect();
        assert_eq!(sessions, [None, id, id], "stream: {streams}");
    }
}
