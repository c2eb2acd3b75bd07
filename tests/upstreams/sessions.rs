//! Session ids of upstreams: sealed before a client sees them, and of use to nobody but that client there.

use super::{code, config};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use serde_json::json;

const THEIRS: &str = "upstream-session-1";

/// Gives a session at `initialize` and knows no other.
fn with_sessions(request: &Recorded) -> Reply {
    match (request.rpc_method().as_str(), request.header("mcp-session-id")) {
        ("initialize", None) => Reply::mcp(request).header("Mcp-Session-Id", THEIRS),
        ("server/discover", _) | (_, Some(THEIRS)) => Reply::mcp(request),
        _ => Reply::new(404, ""),
    }
}

/// `public_url` is fixed, so that it stays the same over a restart on another port.
fn start(recorder: &Recorder) -> Gateway {
    recorder.answer_with(with_sessions);
    let url = recorder.url();
    let upstreams = config(&[("up", format!("url: \"{url}\"")), ("twin", format!("url: \"{url}\""))]);
    let gateway = Gateway::start(&format!("public_url: http://localhost:8080\n{upstreams}"));
    ["up", "twin"].iter().for_each(|name| gateway.wait_until_asked(name));
    gateway
}

fn initialized(gateway: &Gateway, user: &str) -> Agent {
    let mut agent = gateway.agent(user, "up");
    agent.initialize();
    agent
}

#[track_caller]
fn assert_unknown(case: &str, agent: &Agent, recorder: &Recorder) {
    let mark = recorder.mark();
    let refused = agent.tool("echo", json!({}));
    assert_eq!((refused.status(), code(&refused)), (404, "mcp.session"), "{case}: {refused:#?}");
    recorder.assert_untouched(mark);
}

#[test]
fn a_client_gets_a_sealed_session_that_works() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);

    let alice = initialized(&gateway, "alice");
    let sealed = alice.session.clone().expect("a session");

    assert!(!sealed.contains(THEIRS) && sealed.len() < 256, "{sealed}");
    alice.tool("echo", json!({})).result();
    assert_eq!(recorder.last().headers.all("mcp-session-id"), [THEIRS]);
    let second = initialized(&gateway, "alice").session;
    assert_ne!(second.as_deref(), Some(sealed.as_str()), "a seal says nothing of what is in it");
}

#[test]
fn a_session_is_of_use_to_nobody_else_and_nowhere_else() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let mut alice = initialized(&gateway, "alice");
    let sealed = alice.session.clone().expect("a session");
    alice.tool("echo", json!({})).result();

    let mut bob = gateway.agent("bob", "up");
    bob.session = Some(sealed.clone());
    assert_unknown("another user", &bob, &recorder);
    let mut twin = gateway.agent("alice", "twin");
    twin.session = Some(sealed.clone());
    assert_unknown("another route", &twin, &recorder);
    let token = gateway.issue("alice", "up", &["--client", "other"]).success().stdout;
    let mut client = Agent::new(gateway.agent, "up", token.trim().to_owned());
    client.session = Some(sealed.clone());
    assert_unknown("another client", &client, &recorder);

    let mut tampered: Vec<(String, String)> = (0..sealed.len())
        .step_by(7)
        .map(|at| {
            let other = if &sealed[at..=at] == "A" { "B" } else { "A" };
            (format!("byte {at}"), format!("{}{other}{}", &sealed[..at], &sealed[at + 1..]))
        })
        .collect();
    tampered.extend([
        ("cut".to_owned(), sealed[..sealed.len() - 4].to_owned()),
        ("longer".to_owned(), format!("{sealed}AAAA")),
        ("the upstream's own".to_owned(), THEIRS.to_owned()),
        ("none".to_owned(), "x".to_owned()),
        ("huge".to_owned(), "A".repeat(5000)),
    ]);
    for (case, session) in tampered {
        alice.session = Some(session);
        assert_unknown(&case, &alice, &recorder);
    }
    alice.session = Some(sealed);
    alice.tool("echo", json!({})).result();
}

#[test]
fn a_session_outlives_the_gateway_and_a_new_token() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let session = initialized(&gateway, "alice").session;

    let gateway = gateway.crash_and_restart();

    let mut alice = gateway.agent("alice", "up");
    alice.session = session;
    alice.tool("echo", json!({})).result();
    assert_eq!(recorder.last().header("mcp-session-id"), Some(THEIRS));
}

#[test]
fn a_session_the_upstream_has_forgotten_is_unknown_to_the_client_too() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    let alice = initialized(&gateway, "alice");

    recorder.answer_next(Reply::new(404, ""));
    let forgotten = alice.tool("echo", json!({}));

    assert_eq!((forgotten.status(), code(&forgotten)), (404, "mcp.session"));
}

#[test]
fn the_newer_era_has_no_sessions() {
    let recorder = Recorder::start();
    let gateway = start(&recorder);
    recorder.answer_with(|request| Reply::mcp(request).header("Mcp-Session-Id", THEIRS));
    let mut agent = gateway.agent("alice", "up").modern();
    agent.session = Some("anything".to_owned());

    let answer = agent.tool("echo", json!({}));

    answer.result();
    assert_eq!(answer.response.header("mcp-session-id"), None);
    assert_eq!(recorder.last().header("mcp-session-id"), None);
}
