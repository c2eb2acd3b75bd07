//! What a call costs while it waits for a person.

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::recorder::Recorder;
use serde_json::json;

/// Calls that wait at the same time; enough that what the process needs by itself does not count.
const CALLS: usize = 400;
/// In bytes: a call, its row, its connection.
const MOST_PER_CALL: usize = 80 * 1024;

fn memory(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux shows it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[test]
fn a_call_that_waits_for_a_person_takes_little_memory() {
    let recorder = Recorder::start();
    let rules = r#"- { name: held, tools: ["up/*"], hold: { approvers: { groups: [admins] } } }"#;
    let settings = "approvals: { pending: 1000, wait: 20m }\n";
    let gateway = Gateway::start(&format!("{settings}{}", in_front_of(&recorder.url(), rules)));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("bob", "up");
    let mark = recorder.mark();
    let hold = |n: usize| {
        let (request, _) = agent.request("tools/call", json!({ "name": "echo", "arguments": { "n": n } }));
        let mut connection = agent.open(&request);
        // The head of the stream: it is held.
        assert_eq!(connection.streaming().status, 200);
        connection
    };
    let mut held: Vec<_> = (0..50).map(hold).collect();
    let before = memory(&gateway);

    held.extend((50..50 + CALLS).map(hold));

    let each = memory(&gateway).saturating_sub(before) / CALLS;
    println!("{each} bytes a held call");
    assert!(each <= MOST_PER_CALL, "{each} bytes a held call");
    let calls = gateway.cli(&["approvals", "list", "--json"]).success().stdout;
    assert_eq!(calls.matches("\"id\"").count(), 50 + CALLS);
    recorder.assert_untouched(mark);
}
