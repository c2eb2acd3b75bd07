//! Tokens: where one may stand, which route it opens, and when it stops to. What is made to look like one of ours is in
//! `forgeries`.

use crate::support::gate::{Gate, Refused, call, error, eventually};
use crate::support::http::{Connection, Request, Response};
use crate::support::recorder::Recorder;
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = r#"
    - { name: everything, tools: ["*/*"], allow: {} }
"#;

/// A gate with a second upstream `other`, which has a recorder of its own.
pub(super) fn gate() -> (Gate, Recorder) {
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

pub(super) fn invalid() -> Refused {
    error(401, -32600, "token.invalid")
}

pub(super) fn echo() -> Request {
    Request::mcp("/mcp/up", call("echo", "{}"))
}

/// Checks that a client is told where a token for `/mcp/up` comes from, and what is wrong with the one it sent.
#[track_caller]
pub(super) fn check_challenge(gate: &Gate, response: &Response, error: Option<&str>) {
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
