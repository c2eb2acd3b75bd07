//! The official conformance suite for authorization servers, unchanged, with a person where it asks for one.

use super::desk::Desk;
use crate::conformance::suite;
use crate::support::http::Request;
use crate::support::process::Server;
use crate::support::sdk::conformance_suite;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::process::ExitStatus;
use tempfile::TempDir;

/// Registers as clients do. The port is the suite's to choose, as it is every native app's (RFC 8252 §7.3).
#[track_caller]
fn register(desk: &Desk) -> Value {
    let metadata = json!({ "redirect_uris": ["http://127.0.0.1/callback"], "token_endpoint_auth_method": "none" });
    let request = Request::post("/register").header("Content-Type", "application/json").body(metadata.to_string());
    let registered = request.send(desk.tap.address());
    assert_eq!(registered.status, 201, "{}", registered.text());
    registered.json()
}

/// A port that nothing listens at, for a program that wants to be told one.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// The suite's run for this client, with the person sent where it says.
#[track_caller]
fn run(desk: &Desk, client: &Value, into: &TempDir) -> (Server, ExitStatus) {
    let mut command = conformance_suite(&desk.tap.origin(), None);
    command.args(["authorization", "--url", &desk.tap.origin(), "--resource", &desk.url()]);
    command.args(["--client-id", client["client_id"].as_str().expect("it is registered")]);
    command.args(["--port", &free_port().to_string(), "--output-dir"]).arg(into.path());
    let mut run = Server::spawn("the conformance suite", &mut command);
    let prefix = format!("{}/authorize?", desk.tap.origin());
    let query = run.line(&prefix).unwrap_or_else(|said| panic!("it does not ask for a person: {said}"));
    desk.person.visit(&format!("{prefix}{query}")).success();
    let status = run.wait();
    (run, status)
}

#[track_caller]
fn every_scenario_passes(desk: &Desk, client: &Value) {
    let dir = TempDir::new().expect("a temporary folder");

    let (run, status) = run(desk, client, &dir);

    let scenarios = suite::read(dir.path(), "authorization-server-");
    let names: Vec<&str> = scenarios.keys().map(String::as_str).collect();
    assert_eq!(names, ["authorization-code-grant", "authorization-server-metadata-endpoint"], "{}", run.log());
    for (check, outcomes) in scenarios.values().flatten() {
        let is_good = outcomes.iter().all(|outcome| outcome.status == "SUCCESS");
        assert!(is_good, "{check}: {outcomes:#?}\n{:#?}\n{}", desk.tap.exchanges(), run.log());
    }
    assert!(status.success(), "{}", run.log());
    desk.assert_no_secret_is_written();
}

// Given a secret, the suite leaves it out where the server knows public clients, too; `strict_client` sends one.
#[test]
fn what_the_suite_asks_of_authorization_servers_holds() {
    let desk = Desk::open();
    every_scenario_passes(&desk, &register(&desk));
}

// The suite can fail.
#[test]
fn the_suite_does_not_pass_where_the_person_says_no() {
    let desk = Desk::open();
    let client = register(&desk);
    desk.person.decides("deny");

    let (run, status) = run(&desk, &client, &TempDir::new().expect("a temporary folder"));

    assert!(!status.success(), "{}", run.log());
}
