//! Unchanged SDK clients at the SSH upstream, in both eras. The SDKs hold each structured result against the tool's schema.

use super::{actions, both_modes, start};
use crate::support::gateway::Gateway;
use crate::support::sdk::Client;
use crate::support::sshd::Sshd;
use crate::support::wait_for;
use serde_json::{Value, json};

/// What must be so of an outcome.
type IsRight = fn(&Value) -> bool;

/// The steps, with what of each outcome must be so.
fn steps() -> Vec<(Value, IsRight)> {
    let call = |name: &str, arguments: Value| json!({ "call": name, "arguments": arguments });
    vec![
        (json!({ "list": "tools" }), |it| it["result"]["tools"].as_array().is_some_and(|all| all.len() == 5)),
        (call("biscuit_list", json!({})), |it| it["result"]["structuredContent"]["stdout"] == "project-a\nproject-b\n"),
        (call("biscuit_status", json!({ "project": "project-a" })), |it| {
            let result = &it["result"]["structuredContent"];
            result["stdout"] == "ü \u{fffd}\n" && result["stderr"] == "warned\n" && it["result"]["isError"] != true
        }),
        (call("biscuit_logs", json!({ "project": "project-b", "lines": 1 })), |it| {
            it["result"]["structuredContent"]["stdout"] == "project-b line 300\n"
        }),
        (call("biscuit_deploy", json!({ "project": "project-a" })), |it| {
            it["result"]["isError"] == true && it["result"]["structuredContent"]["exit_code"] == 3
        }),
        (json!({ "call": "biscuit_restart", "arguments": { "project": "project-a" }, "progress": true }), |it| {
            let told = it["progress"].as_array().map_or(0, Vec::len);
            told >= 1 && it["result"]["structuredContent"]["exit_code"] == 0
        }),
        (call("biscuit_status", json!({ "project": "project-z" })), |it| it["result"]["isError"] == true),
        (call("biscuit_status", json!({ "project": "project-a", "host": "x" })), |it| {
            it["result"]["isError"] == true || it.to_string().contains("host")
        }),
    ]
}

#[track_caller]
fn works(client: Client, gateway: &Gateway) {
    let steps = steps();
    let all: Vec<&Value> = steps.iter().map(|(step, _)| step).collect();

    let outcomes = client.run(&gateway.url("prod"), Some(&gateway.token("alice", "prod")), &json!(all));

    // The first is that of connecting.
    assert_eq!(outcomes.len(), steps.len() + 1, "{outcomes:#?}");
    for ((step, is_right), outcome) in steps.iter().zip(&outcomes[1..]) {
        assert!(is_right(outcome), "{client:?}: {step}\n{outcome:#}");
    }
}

#[test]
fn sdk_clients_of_both_eras_use_every_tool_with_either_credential() {
    for setup in both_modes() {
        let sshd = setup.start();
        sshd.hook("project-a", "status", "printf 'ü \\377\\n'; echo warned >&2");
        sshd.hook("project-a", "deploy", "echo half done; exit 3");
        sshd.hook("project-a", "restart", "echo begun; sleep 5; echo done");
        let gateway = start(&sshd.settings());

        for client in [Client::PythonLegacy, Client::TypeScriptV1, Client::PythonModern, Client::TypeScriptV2Modern] {
            works(client, &gateway);
        }
    }
}

#[test]
fn b74_a_call_that_an_sdk_client_gives_up_ends_with_all_that_it_started() {
    let sshd = Sshd::restricted().start();
    let slow = actions(&sshd, |text| text.replace("timeout: 30s", "timeout: 10m"));
    let gateway = start(&sshd.settings_with(sshd.port, &slow));
    let token = gateway.token("alice", "prod");

    for (n, client) in [Client::PythonLegacy, Client::TypeScriptV1, Client::PythonModern, Client::TypeScriptV2Modern]
        .into_iter()
        .enumerate()
    {
        let mark = format!("61171{n}");
        sshd.hook("project-a", "status", &format!("(trap '' TERM; exec sleep {mark}) & echo begun; sleep {mark}"));
        // It is given up at the first word of progress.
        let steps = json!([{ "call": "biscuit_status", "arguments": { "project": "project-a" }, "abandon": true }]);

        let outcomes = client.run(&gateway.url("prod"), Some(&token), &steps);

        assert_eq!(outcomes.len(), 2, "{client:?}: {outcomes:#?}");
        wait_for("the end of the action", || sshd.processes_with(&mark).is_empty());
    }
}
