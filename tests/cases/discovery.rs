//! How a client finds out where a token comes from, and which tokens are good.

use super::{EVERYTHING, settled, settled_with};
use crate::support::agent::Agent;
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::{Request, Response};
use crate::support::invariants;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The URL that a 401 says the metadata are at.
#[track_caller]
fn metadata_url(response: &Response) -> String {
    assert_eq!(response.status, 401, "{response:?}");
    let challenge = response.header("www-authenticate").expect("a challenge");
    let url = challenge.split("resource_metadata=\"").nth(1).and_then(|rest| rest.split('"').next());
    url.unwrap_or_else(|| panic!("no resource_metadata in {challenge}")).to_owned()
}

/// Fetches the document at a URL of the gateway, whatever host the URL names.
#[track_caller]
fn document(gateway: &Gateway, url: &str) -> Value {
    let path = format!("/{}", url.splitn(4, '/').nth(3).expect("a URL with a path"));
    let response = Request::get(&path).send(gateway.agent);
    assert_eq!((response.status, response.header("content-type")), (200, Some("application/json")), "{path}");
    invariants::check_headers(&response);
    response.json()
}

// B01: agentgateway/agentgateway#545, mesh/mesh-mcp#20, andrea-magni/MARS#203, pomerium/pomerium#6698.
#[test]
fn urls_are_those_of_public_url_whatever_a_request_says_of_itself() {
    let recorder = Recorder::start();
    let gateway = settled_with("public_url: https://gw.example.test", &recorder, EVERYTHING);
    let listening = gateway.agent.to_string();
    let paths = [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp/up",
        "/.well-known/oauth-authorization-server",
    ];
    for host in ["gw.example.test", listening.as_str()] {
        for (name, value) in
            [("X-Forwarded-Proto", "http"), ("X-Forwarded-Host", "evil.test"), ("Forwarded", "host=evil.test")]
        {
            let ask = |request: Request| request.header("Host", host).header(name, value).send(gateway.agent);

            let url = metadata_url(&ask(Request::mcp("/mcp/up", "{}")));
            assert_eq!(url, "https://gw.example.test/.well-known/oauth-protected-resource/mcp/up");
            for path in paths {
                let response = ask(Request::get(path));
                let text = format!("{:?} {}", response.headers, response.text());
                assert!(!text.contains("evil.test") && !text.contains(&listening), "{path}: {text}");
                if path.contains("authorization-server") {
                    assert_eq!(response.json()["issuer"], "https://gw.example.test");
                } else if response.status == 200 {
                    let document = response.json();
                    assert_eq!(document["resource"], "https://gw.example.test/mcp/up", "{path}");
                    assert_eq!(document["authorization_servers"], json!(["https://gw.example.test"]), "{path}");
                }
            }
        }
    }
    for path in paths.iter().chain(&["/mcp/up"]) {
        let response =
            Request::get(path).header("Host", "evil.test").header("X-Forwarded-Host", "evil.test").send(gateway.agent);
        assert_eq!(response.status, 403, "{path}");
        let text = format!("{:?} {}", response.headers, response.text());
        assert!(!text.contains("evil.test"), "{path}: {text}");
    }
}

// B02: agentgateway/agentgateway#234, instantdb/instant#1499.
#[test]
fn each_route_has_its_own_document_and_the_upstreams_own_is_never_shown() {
    let (one, two) = (Recorder::start(), Recorder::start());
    one.answer_with(|request| match request.method.as_str() {
        "GET" => Reply::json(r#"{"resource":"https://up1.example"}"#),
        _ => Reply::mcp(request).header("WWW-Authenticate", "Bearer resource_metadata=\"https://up1.example\""),
    });
    let gateway = Gateway::start(&format!(
        "upstreams:\n  github: {{ http: {{ url: \"{}\" }} }}\n  db: {{ http: {{ url: \"{}\" }} }}\npolicy:\n  rules:\n    - {{ name: all, tools: [\"github/*\", \"db/*\"], allow: {{}} }}\n",
        one.url(),
        two.url()
    ));
    for route in ["github", "db"] {
        let refused = Request::mcp(&format!("/mcp/{route}"), "{}").send(gateway.agent);
        let url = metadata_url(&refused);
        assert_eq!(url, format!("http://{}/.well-known/oauth-protected-resource/mcp/{route}", gateway.agent));
        let document = document(&gateway, &url);
        assert_eq!(document["resource"], gateway.url(route));
        assert!(!document.to_string().contains("up1.example"));
    }
    // The bare document could only be that of one of them.
    assert_eq!(Request::get("/.well-known/oauth-protected-resource").send(gateway.agent).status, 404);
    assert!(one.requests().iter().all(|request| request.method == "POST"), "the upstream was asked for its document");
    // An upstream's own challenge is not passed on either; `Agent` checks the header fields.
    gateway.agent("alice", "github").tool("echo", json!({})).result();
}

fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).expect("a JWT");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).expect("base64url")).expect("JSON")
}

// B03: SparkDevNetwork/Rock#6974, expo/expo#49054, vercel/ai#20236, modelcontextprotocol/python-sdk#1919.
#[test]
fn issuer_is_the_same_bytes_in_the_document_and_in_the_token() {
    let recorder = Recorder::start();
    for url in
        [None, Some("https://gw.example.test"), Some("https://gw.example.test/"), Some("https://gw.example.test:443/")]
    {
        let top = url.map_or(String::new(), |url| format!("public_url: {url}"));
        let yaml = format!("{top}\n{}", in_front_of(&recorder.url(), EVERYTHING));
        // A spelling that is not taken is refused with a hint, never half understood.
        let gateway = match Launch::new(&yaml).try_start() {
            Ok(gateway) => gateway,
            Err(said) => {
                assert!(url != Some("https://gw.example.test") && said.contains("public_url"), "{url:?}: {said}");
                continue;
            }
        };
        let agent = gateway.agent("alice", "up");
        let refused = Request::mcp("/mcp/up", "{}").send(gateway.agent);
        let document = document(&gateway, &metadata_url(&refused));
        let claims = claims(agent.token.as_deref().expect("it has one"));

        let issuer = document["authorization_servers"][0].as_str().expect("one server");
        assert_eq!(claims["iss"], issuer, "{url:?}");
        assert_eq!(claims["aud"], document["resource"], "{url:?}");
        assert!(!issuer.ends_with('/') && document["resource"] == format!("{issuer}/mcp/up"), "{url:?}: {document}");
        agent.tool("echo", json!({})).result();
    }
    let said =
        Launch::new(&format!("public_url: https://gw.example.test/auth\n{}", in_front_of(&recorder.url(), EVERYTHING)));
    assert!(said.try_start().err().is_some_and(|said| said.contains("public_url")), "a path has no place in it");
}

// B04: earthobservations/wetterdienst#1772, skyhook-io/radar#829, outline/outline#11572,
// modelcontextprotocol/typescript-sdk#2785.
#[test]
fn well_known_paths_are_documents_or_404_and_never_html_or_a_challenge() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let mark = recorder.mark();
    let served = [
        "oauth-protected-resource",
        "oauth-protected-resource/mcp/up",
        "oauth-authorization-server",
        "openid-configuration",
    ];
    let not_served = [
        "oauth-protected-resource/mcp",
        "oauth-protected-resource/nope",
        "oauth-protected-resource/mcp/nope",
        "oauth-protected-resource/mcp/up/x",
        "oauth-authorization-server/mcp/up",
        "openid-configuration/mcp/up",
        "nope",
        "",
    ];
    for path in served.iter().chain(&not_served) {
        let is_served = served.contains(path);
        let target = format!("/.well-known/{path}");
        for method in ["GET", "HEAD", "OPTIONS"] {
            let mut connection = crate::support::http::Connection::open(gateway.agent);
            let request = Request::new(method, &target).header("Connection", "close");
            connection.send(&request.to_bytes(&gateway.agent.to_string()));
            let head = connection.streaming();
            let status = head.status;
            let kind = head.headers.get("content-type").unwrap_or_default().to_owned();
            let expected: &[u16] = match (is_served, method) {
                (true, "OPTIONS") => &[204, 405],
                (true, _) => &[200],
                (false, "OPTIONS") => &[404, 405],
                (false, _) => &[404],
            };
            assert!(expected.contains(&status), "{method} {target}: {status}");
            assert!(kind.is_empty() || kind == "application/json", "{method} {target}: {kind}");
            assert_eq!(head.headers.get("www-authenticate"), None, "{method} {target}");
            assert_eq!(head.headers.get("location"), None, "{method} {target}");
            if method == "HEAD" {
                assert!(connection.closes_within(crate::support::PATIENCE), "a body came for HEAD {target}");
            }
        }
    }
    for path in ["/", "/mcp", "/favicon.ico", "/sse", "/mcp/nope", "/messages", "/.well-known"] {
        let response = Request::get(path).send(gateway.agent);
        assert_eq!((response.status, response.header("content-type")), (404, Some("application/json")), "{path}");
        assert_eq!(response.header("www-authenticate"), None, "{path}");
    }
    recorder.assert_untouched(mark);
}

/// Signs a token with the gateway's own key, as a replica would, or a service that shares it by mistake.
fn signed(gateway: &Gateway, header: &Value, claims: &Value) -> String {
    let keys = std::fs::read_dir(gateway.path("data/keys")).expect("it has keys");
    let key = keys.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "pem"));
    let pem = std::fs::read(key.expect("one key")).expect("readable");
    let key = jsonwebtoken::EncodingKey::from_ec_pem(&pem).expect("a P-256 key");
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature =
        jsonwebtoken::crypto::sign(message.as_bytes(), &key, jsonwebtoken::Algorithm::ES256).expect("it signs");
    format!("{message}.{signature}")
}

// B07: cloudflare/workers-oauth-provider#108, agentic-community/mcp-gateway-registry#1533, IBM/mcp-context-forge#4171,
// openai/codex#24890.
#[test]
fn token_opens_exactly_the_route_it_was_made_for() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&format!(
        "upstreams:\n  up: {{ http: {{ url: \"{0}\" }} }}\n  other: {{ http: {{ url: \"{0}\" }} }}\npolicy:\n  rules:\n    {1}\n",
        recorder.url(),
        EVERYTHING.replace("tools: [\"up/*\"]", "tools: [\"up/*\", \"other/*\"]")
    ));
    super::wait_until_up(&gateway, "up");
    super::wait_until_up(&gateway, "other");
    let agent = gateway.agent("alice", "up");
    let token = agent.token.clone().expect("it has one");
    let header: Value = {
        let first = token.split('.').next().expect("a JWT");
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(first).expect("base64url")).expect("JSON")
    };
    let good = claims(&token);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        let members = claims.as_object_mut().expect("an object");
        if value.is_null() {
            members.remove(name)
        } else {
            members.insert(name.to_owned(), value)
        };
        claims
    };
    let origin = format!("http://{}", gateway.agent);
    let now = good["iat"].as_i64().expect("a time");
    let bad = [
        ("an audience of everybody's", with("aud", json!("account"))),
        ("another route", with("aud", json!(format!("{origin}/mcp/other")))),
        ("the bare origin", with("aud", json!(origin))),
        ("a slash more", with("aud", json!(format!("{origin}/mcp/up/")))),
        ("several audiences", with("aud", json!([format!("{origin}/mcp/up"), "x"]))),
        ("no audience", with("aud", Value::Null)),
        ("another issuer", with("iss", json!("https://idp.example"))),
        ("a slash at the issuer", with("iss", json!(format!("{origin}/")))),
        ("expired five seconds ago", with("exp", json!(now - 5))),
        ("no expiry", with("exp", Value::Null)),
        ("another subject than its grant's", with("sub", json!("user:bob"))),
        ("no such grant", with("grant", json!("g_nope"))),
    ];
    let mark = recorder.mark();
    for (what, claims) in &bad {
        let with_these = Agent::new(gateway.agent, "up", signed(&gateway, &header, claims));
        let refused = with_these.call("tools/list", json!({}));
        assert_eq!(refused.status(), 401, "{what}");
        let challenge = refused.response.header("www-authenticate").expect("a challenge").to_owned();
        assert!(challenge.contains("error=\"invalid_token\""), "{what}: {challenge}");
        let said = format!("{challenge} {}", refused.response.text());
        for secret in ["account", "/mcp/other", "idp.example", "g_nope", "bob"] {
            assert!(!said.contains(secret), "{what}: {said}");
        }
    }
    recorder.assert_untouched(mark);
    // Signed in the same way with nothing changed, it is good: it was the claims that were refused.
    agent.with_token(Some(&signed(&gateway, &header, &good))).call("tools/list", json!({})).result();
    let other = gateway.agent("alice", "other").with_token(Some(&token));
    assert_eq!(other.call("tools/list", json!({})).status(), 401);
}
