//! The SDKs themselves, with the times they come with, by the clock on the wall.

use super::super::decide::{all, approve};
use super::start_before;
use crate::support::gateway::Gateway;
use crate::support::sdk::{Client, Peer};
use crate::support::wait_for;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// Unchanged clients of either SDK; the last two can show a page.
const CLIENTS: [(Client, bool); 5] = [
    (Client::TypeScriptV1, false),
    (Client::TypeScriptV2, false),
    (Client::PythonLegacy, false),
    (Client::TypeScriptV2Modern, true),
    (Client::PythonModern, true),
];
/// Enough for a program to start and end on a busy machine.
const SLACK: Duration = Duration::from_secs(60);

/// Everybody calls, `bob` approves this long after the last of them, and each calls again as often as this where it is
/// told to. Gives what each of them saw.
#[track_caller]
fn run(gateway: &Gateway, decided_after: Duration, n_calls: usize) -> Vec<(Client, Vec<Value>)> {
    let token = gateway.token("alice", "up");
    thread::scope(|scope| {
        let clients: Vec<_> = CLIENTS
            .iter()
            .map(|&(client, shows_pages)| {
                let (url, token) = (gateway.url("up"), token.as_str());
                scope.spawn(move || {
                    let call = json!({ "call": "danger", "arguments": { "client": format!("{client:?}") } });
                    let n_calls = if shows_pages { 1 } else { n_calls };
                    let steps = json!(vec![call; n_calls]);
                    let outcomes = client.run_for(decided_after + SLACK, &url, Some(token), &steps, shows_pages);
                    (client, outcomes.into_iter().skip(1).take(n_calls).collect())
                })
            })
            .collect();
        wait_for("everybody to be held", || all(gateway).len() == CLIENTS.len());
        let due = Instant::now() + decided_after;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        all(gateway).iter().for_each(|held| approve(gateway, held));
        clients.into_iter().map(|client| client.join().expect("it ends")).collect()
    })
}

/// Each has its result at last, and each call ran once.
#[track_caller]
fn each_has_its_result(server: &Peer, seen: &[(Client, Vec<Value>)]) {
    for (client, outcomes) in seen {
        let last = outcomes.last().expect("an outcome");
        assert_eq!(last["result"]["content"][0]["text"], "it is done", "{client:?}: {outcomes:#?}");
    }
    assert_eq!(server.n_dangers(), CLIENTS.len());
}

#[test]
fn the_sdks_as_they_are_wait_5_seconds_for_a_decision() {
    let server = Peer::typescript();
    let gateway = start_before(&server.url, "pending: 100");

    let seen = run(&gateway, Duration::from_secs(5), 1);

    each_has_its_result(&server, &seen);
    assert_eq!(all(&gateway).len(), CLIENTS.len());
}

/// B53 (a), (b): 45 s, and they are told to call again; 60 s, and they would have given up.
#[test]
fn b53_the_sdks_as_they_are_get_a_result_that_takes_50_seconds_to_approve() {
    let server = Peer::typescript();
    let gateway = start_before(&server.url, "pending: 100");

    let seen = run(&gateway, Duration::from_secs(50), 2);

    each_has_its_result(&server, &seen);
    for (client, outcomes) in &seen {
        if let [told, _] = outcomes.as_slice() {
            let text = told["result"]["content"][0]["text"].as_str().unwrap_or_default();
            assert!(text.contains("exactly the same arguments"), "{client:?}: {told}");
        } else {
            let asked = outcomes[0]["asked"].as_array().map_or(0, Vec::len);
            assert_eq!(asked, 1, "{client:?}: its person is shown the page once: {outcomes:#?}");
        }
    }
    assert_eq!(all(&gateway).len(), CLIENTS.len(), "who calls again joins");
}
