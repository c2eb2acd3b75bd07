//! Clients that people use, unchanged and without a screen, against the gateway: discovery, registration, login, consent,
//! token, list, call, refresh, revocation, and the login after it. What they claim is checked at the wire and in the audit
//! log. None of them revokes by itself (RFC 7009), so their person does it at the gateway; `strict_client` does.

mod programs;

use super::desk::{Desk, Document};
use crate::support::browser;
use programs::{Codex, Inspector, McpRemote, Program, Provider};
use serde_json::json;
use std::thread;

/// From the first look at the URL to the login after a revocation.
#[track_caller]
fn lives_a_whole_life(desk: &Desk, client: &mut dyn Program) {
    client.log_in();
    let tools = client.list();
    assert!(tools.iter().any(|tool| tool == "echo"), "{tools:?}");
    assert!(!tools.iter().any(|tool| tool == "danger"), "a denied tool is listed: {tools:?}");
    desk.assert_logged_in(1);

    assert_eq!(client.call("echo", &json!({ "text": "through the gate" })).as_deref(), Ok("through the gate"));
    let refused = client.call("danger", &json!({}));
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(desk.server.n_dangers(), 0, "a denied call must not run");

    desk.wait_until_expired();
    assert_eq!(client.call("echo", &json!({ "text": "still here" })).as_deref(), Ok("still here"));
    desk.assert_refreshed();
    desk.assert_logged_in(1);

    desk.revoke();
    client.log_in_again();
    assert_eq!(client.call("echo", &json!({ "text": "back again" })).as_deref(), Ok("back again"));
    desk.assert_logged_in(2);
    desk.assert_no_secret_is_written();
}

/// Who is told no, by the person, gets no token and says so.
#[track_caller]
fn takes_no_for_an_answer(desk: &Desk, said: &str) {
    let says_why = said.contains("access_denied") || said.contains("the person said no");
    assert!(says_why, "the client does not say why: {said}");
    assert_eq!(desk.tap.granted("authorization_code").len(), 0, "a token was given");
    let seen = desk.person.seen();
    let back = seen.iter().filter_map(|page| page["location"].as_str()).find(|url| url.contains("error=access_denied"));
    let back = back.unwrap_or_else(|| panic!("no page led back with access_denied: {seen:#?}"));
    assert!(back.contains("&iss=") && back.contains("state="), "{back}");
    assert_eq!(desk.events("token.issued").len(), 0);
    desk.assert_no_secret_is_written();
}

/// Callbacks of all clients here. Each listens on a port of its own choice: only that may differ (RFC 8252 §7.3).
const CALLBACKS: &[&str] = &[
    "http://127.0.0.1/callback",
    "http://127.0.0.1/oauth/callback",
    "http://localhost/callback",
    "http://localhost/oauth/callback",
];

/// Whose id is the URL of a document about it is not registered, and gets as far.
#[track_caller]
fn is_known_by_its_document(desk: &Desk, client: &mut dyn Program) {
    let document = desk.document.as_ref().expect("it has a document");

    let tools = client.list();

    assert!(tools.iter().any(|tool| tool == "echo"), "{tools:?}");
    desk.assert_logged_in(1);
    assert_eq!(desk.tap.asked("POST", "/register").len(), 0, "it registered");
    assert!(document.n_fetches() >= 1, "nobody has read the document");
    for authorize in desk.tap.asked("GET", "/authorize") {
        assert_eq!(browser::parameter(&authorize.target, "client_id"), Some(document.url()));
    }
    desk.wait_until_expired();
    assert_eq!(client.call("echo", &json!({ "text": "still here" })).as_deref(), Ok("still here"));
    desk.assert_refreshed();
    desk.assert_no_secret_is_written();
}

/// A gateway that was killed and is back knows its clients: they renew their tokens and go on, without their person.
#[track_caller]
fn goes_on_after_a_crash(start: impl Fn(&Desk) -> Option<Box<dyn Program>>) {
    let desk = Desk::open();
    let Some(mut client) = start(&desk) else {
        return;
    };
    assert!(client.list().iter().any(|tool| tool == "echo"));
    assert_eq!(client.call("echo", &json!({ "text": "before" })).as_deref(), Ok("before"));

    let desk = desk.crash_and_restart();
    desk.wait_until_expired();

    assert_eq!(client.call("echo", &json!({ "text": "after" })).as_deref(), Ok("after"));
    desk.assert_refreshed();
    desk.assert_logged_in(1);
}

#[test]
fn a_client_on_an_sdk_goes_on_after_the_gateway_was_killed() {
    goes_on_after_a_crash(|desk| Some(Box::new(Provider::typescript_v2(desk))));
}

#[test]
fn mcp_remote_goes_on_after_the_gateway_was_killed() {
    goes_on_after_a_crash(|desk| Some(Box::new(McpRemote::new(desk)?)));
}

// === MCP Inspector ===

#[test]
fn inspectors_that_renew_the_same_token_at_once_all_stay_logged_in() {
    let desk = Desk::open();
    let Some(mut inspector) = Inspector::new(&desk) else {
        return;
    };
    inspector.list();
    desk.wait_until_expired();

    let runs: Vec<_> = thread::scope(|scope| {
        let run = || inspector.run(&["--stored-auth-only", "--method", "tools/list"]);
        let running: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        running.into_iter().map(|run| run.join().expect("it runs")).collect()
    });

    for run in runs {
        assert!(run.status.success(), "{run:?}\n{:#?}", desk.tap.exchanges());
    }
    desk.wait_until_expired();
    inspector.run(&["--stored-auth-only", "--method", "tools/list"]).success();
    desk.assert_refreshed();
    desk.assert_logged_in(1);
}

#[test]
fn mcp_inspector_logs_in_calls_refreshes_and_logs_in_again_after_a_revocation() {
    let desk = Desk::open();
    if let Some(mut inspector) = Inspector::new(&desk) {
        lives_a_whole_life(&desk, &mut inspector);
    }
}

#[test]
fn mcp_inspector_whose_person_says_no_gets_no_token() {
    let desk = Desk::open();
    if let Some(inspector) = Inspector::new(&desk) {
        desk.person.decides("deny");

        let finished = inspector.run(&["--method", "tools/list"]);

        assert!(!finished.status.success(), "{finished:?}");
        takes_no_for_an_answer(&desk, &finished.stderr);
    }
}

#[test]
fn mcp_inspector_is_known_by_its_document() {
    let desk = Desk::open_for(Document::publish(CALLBACKS));
    if let Some(mut inspector) = Inspector::new(&desk) {
        is_known_by_its_document(&desk, &mut inspector);
    }
}

// === mcp-remote ===

#[test]
fn mcp_remote_logs_in_calls_refreshes_and_logs_in_again_after_a_revocation() {
    let desk = Desk::open();
    if let Some(mut remote) = McpRemote::new(&desk) {
        lives_a_whole_life(&desk, &mut remote);
    }
}

#[test]
fn mcp_remote_is_known_by_its_document() {
    let desk = Desk::open_for(Document::publish(CALLBACKS));
    if let Some(mut remote) = McpRemote::new(&desk) {
        is_known_by_its_document(&desk, &mut remote);
    }
}

#[test]
fn the_client_that_mcp_remote_brings_logs_in_and_lists() {
    let desk = Desk::open();
    if let Some(mut client) = programs::mcp_remote_client(&desk) {
        client.wait_for_log("\"echo\"");

        desk.assert_logged_in(1);
        desk.assert_no_secret_is_written();
        drop(client);
    }
}

// === Codex ===

#[test]
fn codex_logs_in_calls_refreshes_and_logs_in_again_after_a_revocation() {
    let desk = Desk::open();
    if let Some(mut codex) = Codex::new(&desk) {
        lives_a_whole_life(&desk, &mut codex);
    }
}

// As docs/clients/README.md has it for gateways that reach no other host.
#[test]
fn codex_registers_by_itself_where_there_are_no_documents() {
    let desk = Desk::open_without_documents();
    if let Some(mut codex) = Codex::left_alone(&desk) {
        codex.log_in();

        assert!(codex.list().iter().any(|tool| tool == "echo"));
        desk.assert_logged_in(1);
        assert_eq!(desk.events("client.registered").len(), 1);
    }
}

#[test]
fn codex_whose_person_says_no_gets_no_token() {
    let desk = Desk::open();
    if let Some(codex) = Codex::new(&desk) {
        desk.person.decides("deny");

        let finished = codex.run(&["mcp", "add", "gate", "--url", &desk.url()]);

        takes_no_for_an_answer(&desk, &format!("{}{}", finished.stdout, finished.stderr));
    }
}

// === Providers of the SDKs ===

#[test]
fn the_python_sdk_logs_in_calls_refreshes_and_logs_in_again_after_a_revocation() {
    let desk = Desk::open();
    lives_a_whole_life(&desk, &mut Provider::python(&desk));
}

#[test]
fn the_typescript_sdk_v1_logs_in_calls_refreshes_and_logs_in_again_after_a_revocation() {
    let desk = Desk::open();
    lives_a_whole_life(&desk, &mut Provider::typescript_v1(&desk));
}

#[test]
fn the_typescript_sdk_v2_logs_in_calls_refreshes_and_logs_in_again_after_a_revocation() {
    let desk = Desk::open();
    lives_a_whole_life(&desk, &mut Provider::typescript_v2(&desk));
}

#[test]
fn fastmcp_logs_in_calls_refreshes_and_logs_in_again_after_a_revocation() {
    let desk = Desk::open();
    lives_a_whole_life(&desk, &mut Provider::fastmcp(&desk));
}

#[test]
fn sdk_clients_whose_person_says_no_get_no_token() {
    for provider in [Provider::python, Provider::typescript_v1, Provider::typescript_v2] {
        let desk = Desk::open();
        desk.person.decides("deny");

        let outcome = provider(&desk).step(&json!({ "connect": true }));

        takes_no_for_an_answer(&desk, &outcome["error"].to_string());
    }
}

#[test]
fn the_python_sdk_is_known_by_its_document() {
    let desk = Desk::open_for(Document::publish(CALLBACKS));
    is_known_by_its_document(&desk, &mut Provider::python(&desk));
}

#[test]
fn the_typescript_sdk_v1_is_known_by_its_document() {
    let desk = Desk::open_for(Document::publish(CALLBACKS));
    is_known_by_its_document(&desk, &mut Provider::typescript_v1(&desk));
}

#[test]
fn the_typescript_sdk_v2_is_known_by_its_document() {
    let desk = Desk::open_for(Document::publish(CALLBACKS));
    is_known_by_its_document(&desk, &mut Provider::typescript_v2(&desk));
}

#[test]
fn fastmcp_is_known_by_its_document() {
    let desk = Desk::open_for(Document::publish(CALLBACKS));
    is_known_by_its_document(&desk, &mut Provider::fastmcp(&desk));
}
