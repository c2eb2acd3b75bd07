//! Tokens: only one of ours, for exactly this route, signed, in its time, of a grant in force and of a person there is.

use crate::support::gate::{Gate, Refused, call, error, eventually};
use crate::support::http::{Connection, Request, Response};
use crate::support::recorder::Recorder;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis::clock::Clock;
use portcullis::identity::{Claims, Keys, issue};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = r#"
    - { name: everything, tools: ["*/*"], allow: {} }
"#;

/// A gate with a second upstream `other`, which has a recorder of its own.
fn gate() -> (Gate, Recorder) {
    let other = Recorder::start();
    let gate = Gate::with(|url| {
        format!(
            "upstreams:\n  up: {{ http: {{ url: \"{url}\" }} }}\n  other: {{ http: {{ url: \"{}\" }} }}\npolicy:\n  rules:{RULES}",
            other.url()
        )
    });
    gate.wait_until_asked("other");
    (gate, other)
}

fn missing() -> Refused {
    error(401, -32600, "token.missing")
}

fn invalid() -> Refused {
    error(401, -32600, "token.invalid")
}

fn echo() -> Request {
    Request::mcp("/mcp/up", call("echo", "{}"))
}

/// Checks that a client is told where a token for `/mcp/up` comes from, and what is wrong with the one it sent.
#[track_caller]
fn check_challenge(gate: &Gate, response: &Response, error: Option<&str>) {
    let challenge = response.header("www-authenticate").expect("401 comes with a challenge");
    let metadata =
        format!("resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp/up\"", gate.gateway.agent);
    assert!(challenge.starts_with("Bearer ") && challenge.contains(&metadata), "{challenge}");
    match error {
        Some(error) => assert!(challenge.contains(&format!("error=\"{error}\"")), "{challenge}"),
        // RFC 6750 §3: who brought none is told of no error.
        None => assert!(!challenge.contains("error"), "{challenge}"),
    }
}

#[test]
fn a_token_comes_in_one_authorization_header_or_not_at_all() {
    let (gate, other) = gate();
    let (token, mark) = (gate.token.clone(), other.mark());
    let with = |value: &str| echo().header("Authorization", value);
    let in_query = Request::mcp(&format!("/mcp/up?access_token={token}"), call("echo", "{}"));
    let in_body = Request::mcp(
        "/mcp/up",
        call("echo", "{}").replace(r#""id":7"#, &format!(r#""access_token":"{token}","id":7"#)),
    );
    let none = [
        ("no header", echo()),
        ("in the query", in_query),
        ("in the body", in_body),
        (
            "in a form",
            Request::post("/mcp/up")
                .header("Content-Type", "application/x-www-form-urlencoded")
                .body(format!("access_token={token}")),
        ),
        ("in a cookie", echo().header("Cookie", &format!("access_token={token}; Authorization=Bearer {token}"))),
        (
            "in a header of another name",
            echo()
                .header("X-Authorization", &format!("Bearer {token}"))
                .header("Proxy-Authorization", &format!("Bearer {token}")),
        ),
    ];
    for (case, request) in none {
        check_challenge(&gate, &gate.refuses(case, &request, &missing()), None);
    }
    let malformed = [
        ("Bearer alone", with("Bearer")),
        ("Bearer and a space", with("Bearer ")),
        ("nothing", with("")),
        ("no scheme", with(&token)),
        ("Basic", with("Basic YWxpY2U6YWxpY2Ugb3BlbnMgdGhlIGdhdGU=")),
        ("Basic with the token", with(&format!("Basic {token}"))),
        ("Token", with(&format!("Token {token}"))),
        ("DPoP", with(&format!("DPoP {token}"))),
        ("a tab between", with(&format!("Bearer\t{token}"))),
        ("a colon between", with(&format!("Bearer: {token}"))),
        ("two in one", with(&format!("Bearer {token}, Bearer {token}"))),
        ("two after each other", with(&format!("Bearer {token} {token}"))),
        ("quoted", with(&format!("Bearer \"{token}\""))),
        ("the good one twice", with(&format!("Bearer {token}")).bearer(&token)),
        ("the good one first", with(&format!("Bearer {token}")).bearer("x")),
        ("the good one last", with("Bearer x").header("authorization", &format!("Bearer {token}"))),
        ("of no ASCII", with("Bearer é")),
        ("too long", with(&format!("Bearer {}", "x".repeat(9000)))),
    ];
    for (case, request) in malformed {
        let response = gate.refuses(case, &request, &invalid());
        // Where nothing came that could be a token, nothing is said to be wrong with it (RFC 6750 §3).
        let is_one = ["two in one", "two after each other", "quoted", "too long"].contains(&case);
        check_challenge(&gate, &response, is_one.then_some("invalid_token"));
    }
    other.assert_untouched(mark);
    for scheme in ["Bearer", "bearer", "BEARER", "Bearer  "] {
        gate.passes(scheme, &with(&format!("{scheme} {token}")));
    }
}

#[test]
fn a_stranger_is_told_so_before_the_body_is_read_or_anything_else_is_judged() {
    let (gate, _other) = gate();
    let huge = Request::post("/mcp/up").header("Content-Length", "1099511627776");
    for (case, request) in [
        ("a huge body", huge),
        ("no content type, no Accept", Request::post("/mcp/up").body("no JSON")),
        ("GET", Request::get("/mcp/up")),
    ] {
        // The body that is announced never comes.
        check_challenge(&gate, &gate.refuses(case, &request, &missing()), None);
    }
    // And what comes after such an answer is no request.
    let mark = gate.recorder.mark();
    let mut connection = Connection::open(gate.gateway.agent);
    let smuggled = gate.post(call("echo", "{}")).to_bytes(&gate.gateway.agent.to_string());
    let head = Request::post("/mcp/up").header("Content-Length", &(smuggled.len() + 10).to_string()).body("0123456789");
    connection.send(&head.to_bytes(&gate.gateway.agent.to_string()));
    assert_eq!(connection.response().status, 401);
    drop(connection.try_send(&smuggled));
    assert!(connection.closes_within(Duration::from_secs(10)), "the rest of the body is no request");
    gate.recorder.assert_untouched(mark);
    gate.passes("the allowed twin", &gate.post(call("echo", "{}")));
}

/// Header and payload of a token.
fn parts(token: &str) -> (Value, Value) {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).expect("base64url"));
    let mut next = || serde_json::from_slice(&parts.next().expect("three parts")).expect("JSON");
    (next(), next())
}

fn message(header: &Value, payload: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(payload.to_string()))
}

fn signed(key: &EcdsaKeyPair, header: &Value, payload: &Value) -> String {
    let message = message(header, payload);
    let signature = key.sign(&SystemRandom::new(), message.as_bytes()).expect("it signs");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The gateway's own signing key, as whoever can read `data_dir` has it.
fn own_key(gate: &Gate) -> EcdsaKeyPair {
    let keys = std::fs::read_dir(gate.gateway.path("data/keys")).expect("the keys are there").flatten();
    let pem = keys
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|it| it == "pem"))
        .expect("there is one");
    let text = std::fs::read_to_string(pem).expect("it is ours");
    let base64: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(base64).expect("PEM is base64");
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new()).expect("it is a P-256 key")
}

/// What an attacker could take for the secret of an HMAC: the public key in every form.
fn public_forms(gate: &Gate) -> Vec<Vec<u8>> {
    let jwks = Keys::open(&gate.gateway.path("data")).expect("the keys are there").jwks();
    let jwk = &jwks["keys"][0];
    let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().expect("a text")).expect("base64url");
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let prefix =
        b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
    let der = [&prefix[..], &point].concat();
    let base64 = base64::engine::general_purpose::STANDARD.encode(&der);
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n{}\n-----END PUBLIC KEY-----\n", &base64[..64], &base64[64..]);
    let kid = jwk["kid"].as_str().expect("a text").as_bytes().to_vec();
    vec![
        pem.trim_end().as_bytes().to_vec(),
        pem.into_bytes(),
        der,
        point,
        jwk.to_string().into_bytes(),
        kid,
        Vec::new(),
    ]
}

#[test]
fn a_token_that_is_not_signed_by_us_is_refused() {
    let (gate, other) = gate();
    let mark = other.mark();
    let (header, payload) = parts(&gate.token);
    let with = |name: &str, value: Value| {
        let mut header = header.clone();
        header[name] = value;
        header
    };
    let foreign_pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).expect("it makes one");
    let foreign =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, foreign_pkcs8.as_ref(), &SystemRandom::new())
            .expect("it is one");
    let own = own_key(&gate);
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let claims = claims(&payload);
    let mut tokens = vec![
        (
            "of another gateway".to_owned(),
            issue(&Keys::open(elsewhere.path()).expect("new keys"), &claims).expect("it signs"),
        ),
        ("of a foreign key under our name".to_owned(), signed(&foreign, &header, &payload)),
    ];
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let unsigned = message(&with("alg", json!(alg)), &payload);
        tokens.push((format!("alg {alg:?} without a signature"), format!("{unsigned}.")));
        tokens.push((
            format!("alg {alg:?} with the old one"),
            format!("{unsigned}.{}", gate.token.rsplit('.').next().unwrap_or_default()),
        ));
        tokens.push((format!("alg {alg:?} in two parts"), unsigned));
    }
    for (n, secret) in public_forms(&gate).into_iter().enumerate() {
        for (alg, algorithm) in [("HS256", ring::hmac::HMAC_SHA256), ("HS512", ring::hmac::HMAC_SHA512)] {
            let message = message(&with("alg", json!(alg)), &payload);
            let tag = ring::hmac::sign(&ring::hmac::Key::new(algorithm, &secret), message.as_bytes());
            tokens.push((
                format!("{alg} with the public key, form {n}"),
                format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag)),
            ));
        }
    }
    for (case, header) in [
        ("alg ES384", with("alg", json!("ES384"))),
        ("alg RS256", with("alg", json!("RS256"))),
        ("typ JWT", with("typ", json!("JWT"))),
        ("no typ", with("typ", Value::Null)),
        ("kid of nobody", with("kid", json!("x"))),
        ("kid a path", with("kid", json!("../../etc/passwd"))),
        ("crit", with("crit", json!(["exp"]))),
        ("b64", with("b64", json!(false))),
    ] {
        // Signed by us, so that only the header is wrong.
        tokens.push((case.to_owned(), signed(&own, &header, &payload)));
    }
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" });
    tokens.push(("a key of its own".to_owned(), signed(&foreign, &with("jwk", jwk), &payload)));
    tokens.push((
        "a key elsewhere".to_owned(),
        signed(&foreign, &with("jku", json!("http://127.0.0.1:9/jwks")), &payload),
    ));
    let (good, signature) = gate.token.rsplit_once('.').expect("three parts");
    let admin = {
        let mut payload = payload.clone();
        payload["sub"] = json!("user:bob");
        payload
    };
    tokens.extend([
        ("another person, the old signature".to_owned(), format!("{}.{signature}", message(&header, &admin))),
        ("no signature".to_owned(), format!("{good}.")),
        ("r and s are 0".to_owned(), format!("{good}.{}", URL_SAFE_NO_PAD.encode([0; 64]))),
        ("a signature with padding".to_owned(), format!("{good}.{signature}==")),
        ("a fourth part".to_owned(), format!("{}.x", gate.token)),
        ("cut short".to_owned(), gate.token[..gate.token.len() - 1].to_owned()),
        ("not even one".to_owned(), "opaque".to_owned()),
    ]);
    for (case, token) in &tokens {
        check_challenge(&gate, &gate.refuses(case, &echo().bearer(token), &invalid()), Some("invalid_token"));
    }
    other.assert_untouched(mark);
    gate.passes("the same, signed by us", &echo().bearer(&signed(&own, &header, &payload)));
    gate.passes(
        "the same, made by our own code",
        &echo().bearer(&issue(&Keys::open(&gate.gateway.path("data")).expect("our keys"), &claims).expect("it signs")),
    );
}

/// What a token says, to be said again otherwise.
fn claims(payload: &Value) -> Claims {
    let text = |name: &str| payload[name].as_str().expect("a text").to_owned();
    Claims {
        issuer: text("iss").into(),
        subject: text("sub").parse().expect("a subject"),
        resource: text("aud").into(),
        client: text("client_id").into(),
        scopes: text("scope").split(' ').map(str::to_owned).collect(),
        issued_at: payload["iat"].as_i64().expect("a number"),
        expires_at: payload["exp"].as_i64().expect("a number"),
        grant: text("grant").into(),
    }
}

#[test]
fn a_token_that_says_what_its_grant_does_not_or_is_out_of_its_time_is_refused() {
    let (gate, other) = gate();
    let mark = other.mark();
    let keys = Keys::open(&gate.gateway.path("data")).expect("our keys");
    let now = Clock::System.unix_seconds();
    let good = || claims(&parts(&gate.token).1);
    let cases = [
        ("expired an hour ago", Claims { issued_at: now - 7200, expires_at: now - 3600, ..good() }),
        ("expired this second", Claims { issued_at: now - 60, expires_at: now, ..good() }),
        ("expired at the beginning of time", Claims { issued_at: 0, expires_at: 0, ..good() }),
        ("expired before that", Claims { issued_at: i64::MIN, expires_at: i64::MIN, ..good() }),
        ("not valid for a minute yet", Claims { issued_at: now + 60, expires_at: now + 600, ..good() }),
        ("of another issuer", Claims { issuer: "https://evil.test".into(), ..good() }),
        ("of our issuer with a slash", Claims { issuer: format!("{}/", good().issuer).into(), ..good() }),
        ("for another person", Claims { subject: "user:bob".parse().expect("a subject"), ..good() }),
        ("for a client of that name", Claims { subject: "client:alice".parse().expect("a subject"), ..good() }),
        ("for another client", Claims { client: "other".into(), ..good() }),
        ("with a scope more", Claims { scopes: vec!["mcp".to_owned(), "admin".to_owned()].into(), ..good() }),
        ("of a grant there is not", Claims { grant: "g_none".into(), ..good() }),
        ("for another route", Claims { resource: format!("http://{}/mcp/other", gate.gateway.agent).into(), ..good() }),
        ("for all routes", Claims { resource: format!("http://{}/mcp", gate.gateway.agent).into(), ..good() }),
        ("for the gateway", Claims { resource: format!("http://{}", gate.gateway.agent).into(), ..good() }),
        ("for the route with a slash", Claims { resource: format!("{}/", good().resource).into(), ..good() }),
        ("for the upstream itself", Claims { resource: gate.recorder.url().into(), ..good() }),
    ];
    for (case, claims) in &cases {
        let token = issue(&keys, claims).expect("it signs");
        let response = gate.refuses(case, &echo().bearer(&token), &invalid());
        check_challenge(&gate, &response, Some("invalid_token"));
        let has_expired =
            response.header("www-authenticate").is_some_and(|challenge| challenge.contains("has expired"));
        assert_eq!(
            has_expired,
            case.starts_with("expired"),
            "{case}: an honest client is told that its token has expired, and no more"
        );
        gate.refuses(case, &Request::mcp("/mcp/up/", call("echo", "{}")).bearer(&token), &invalid());
    }
    other.assert_untouched(mark);
    for (case, claims) in [
        ("as issued", good()),
        ("for a minute", Claims { issued_at: now, expires_at: now + 60, ..good() }),
        ("of a clock a little ahead", Claims { issued_at: now + 2, ..good() }),
    ] {
        gate.passes(case, &echo().bearer(&issue(&keys, &claims).expect("it signs")));
    }
}

#[test]
fn a_token_opens_its_own_route_in_both_spellings_and_no_other() {
    let (gate, other) = gate();
    let theirs = gate.gateway.token("alice", "other");
    let mark = other.mark();
    for path in ["/mcp/up", "/mcp/up/"] {
        let request = Request::mcp(path, call("echo", "{}"));
        check_challenge(
            &gate,
            &gate.refuses(path, &request.clone().bearer(&theirs), &invalid()),
            Some("invalid_token"),
        );
        gate.passes(path, &request.bearer(&gate.token));
    }
    for path in ["/mcp/other", "/mcp/other/"] {
        gate.refuses(path, &Request::mcp(path, call("echo", "{}")).bearer(&gate.token), &invalid());
    }
    other.assert_untouched(mark);
    let response = Request::mcp("/mcp/other/", call("echo", "{}")).bearer(&theirs).send(gate.gateway.agent);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(other.requests_since(mark).len(), 1);
}

#[test]
fn a_revoked_token_is_refused_within_a_second() {
    let (gate, _other) = gate();
    let second = gate.gateway.token("alice", "up");
    let request = echo().bearer(&second);
    gate.passes("before", &request);
    let password = gate.gateway.password_file("alice");

    let password = password.to_str().expect("temporary paths are UTF-8");
    gate.gateway.cli(&["token", "revoke", &second, "--as", "alice", "--password-file", password]).success();
    let revoked = Instant::now();
    let refused = eventually(Duration::from_secs(5), || {
        let response = request.send(gate.gateway.agent);
        (response.status == 401).then_some(response)
    });

    let took = revoked.elapsed();
    eprintln!("refused {took:?} after the command had ended");
    check_challenge(&gate, &refused.expect("it is refused at last"), Some("invalid_token"));
    assert!(took < Duration::from_secs(1), "refused only after {took:?}");
    gate.refuses("from then on", &request, &invalid());
    gate.passes("the other token of the same person", &gate.post(call("echo", "{}")));
}

#[test]
fn a_person_who_was_taken_out_of_the_configuration_is_refused() {
    let (gate, _other) = gate();
    let bob = echo().bearer(&gate.gateway.token("bob", "up"));
    gate.passes("before", &bob);
    let file = gate.gateway.path("gateway.yaml");
    let with_bob = std::fs::read_to_string(&file).expect("it is ours");
    let without: String =
        with_bob.lines().filter(|line| !line.contains("name: bob")).map(|line| format!("{line}\n")).collect();

    gate.gateway.rewrite_raw(without);
    gate.gateway.reload().success();

    check_challenge(&gate, &gate.refuses("bob", &bob, &invalid()), Some("invalid_token"));
    gate.passes("alice", &gate.post(call("echo", "{}")));
    gate.gateway.rewrite_raw(with_bob);
    gate.gateway.reload().success();
    gate.passes("bob, once he is back", &bob);
}
