//! Unchanged SDK clients at the sandbox, in both eras. The SDKs hold each structured result against the tool's schema.

use super::{processes, start};
use crate::support::gateway::Gateway;
use crate::support::sdk::Client;
use crate::support::wait_for;
use serde_json::{Value, json};

/// What must be so of an outcome.
type IsRight = fn(&Value) -> bool;

/// The steps, with what of each outcome must be so.
fn steps() -> Vec<(Value, IsRight)> {
    vec![
        (json!({ "list": "tools" }), |it| it["result"]["tools"].as_array().is_some_and(|all| all.len() == 6)),
        (
            json!({ "call": "write_file", "arguments": { "path": "src/a.c", "content": "int main(void){return 7;}\n", "create_parents": true } }),
            |it| it["result"]["isError"] != true,
        ),
        (json!({ "call": "run_command", "arguments": { "command": "gcc a.c && ./a.out", "cwd": "src" } }), |it| {
            it["result"]["structuredContent"]["exit_code"] == 7
        }),
        (
            json!({ "call": "edit_file", "arguments": { "path": "src/a.c", "edits": [{ "old": "7", "new": "0" }] } }),
            |it| it["result"]["isError"] != true,
        ),
        (json!({ "call": "read_file", "arguments": { "path": "src/a.c" } }), |it| {
            it["result"].to_string().contains("return 0;")
        }),
        (json!({ "call": "list_directory", "arguments": { "recursive": true } }), |it| {
            it["result"].to_string().contains("a.c")
        }),
        (json!({ "call": "search_files", "arguments": { "pattern": "return \\d" } }), |it| {
            it["result"].to_string().contains("src/a.c")
        }),
        (
            json!({ "call": "run_command", "arguments": { "command": "echo ü; printf '\\377'; echo e >&2; cat", "stdin": "in", "env": { "A": "b" } } }),
            |it| {
                let result = &it["result"]["structuredContent"];
                result["stdout"].as_str().is_some_and(|text| text.starts_with("ü\n\u{fffd}in"))
                    && result["stderr"] == "e\n"
            },
        ),
        (json!({ "call": "run_command", "arguments": { "command": "sleep 5; exit 3" }, "progress": true }), |it| {
            let told = it["progress"].as_array().map_or(0, Vec::len);
            told >= 1 && it["result"]["structuredContent"]["exit_code"] == 3
        }),
        (json!({ "call": "run_command", "arguments": { "command": "x", "comand": "y" } }), |it| {
            it.to_string().contains("comand")
        }),
        (json!({ "call": "read_file", "arguments": { "path": "../../etc/passwd" } }), |it| {
            it["result"]["isError"] == true
        }),
    ]
}

#[track_caller]
fn works(client: Client, gateway: &Gateway) {
    let steps = steps();
    let all: Vec<&Value> = steps.iter().map(|(step, _)| step).collect();

    let outcomes = client.run(&gateway.url("sandbox"), Some(&gateway.token("alice", "sandbox")), &json!(all));

    // The first is that of connecting.
    assert_eq!(outcomes.len(), steps.len() + 1, "{outcomes:#?}");
    for ((step, is_right), outcome) in steps.iter().zip(&outcomes[1..]) {
        assert!(is_right(outcome), "{client:?}: {step}\n{outcome:#}");
    }
}

#[test]
fn sdk_clients_of_the_older_era_use_every_tool() {
    let gateway = start("");

    for client in [Client::PythonLegacy, Client::TypeScriptV1, Client::TypeScriptV2, Client::FastMcpLegacy] {
        works(client, &gateway);
    }
}

#[test]
fn sdk_clients_of_the_newer_era_use_every_tool() {
    let gateway = start("");

    for client in [Client::PythonModern, Client::TypeScriptV2Modern, Client::FastMcpModern] {
        works(client, &gateway);
    }
}

#[test]
fn a_call_that_an_sdk_client_gives_up_ends_with_all_that_it_started() {
    let gateway = start("");
    let token = gateway.token("alice", "sandbox");

    for (client, mark) in [
        (Client::PythonLegacy, "mark-of-python-legacy"),
        (Client::TypeScriptV1, "mark-of-typescript-v1"),
        (Client::PythonModern, "mark-of-python-modern"),
        (Client::TypeScriptV2Modern, "mark-of-typescript-modern"),
    ] {
        let line = format!(": {mark}; trap '' TERM; (setsid sleep 600 &); echo begun; sleep 600");
        // It is given up at the first word of progress.
        let steps = json!([{ "call": "run_command", "arguments": { "command": line }, "abandon": true }]);

        let outcomes = client.run(&gateway.url("sandbox"), Some(&token), &steps);

        assert_eq!(outcomes.len(), 2, "{client:?}: {outcomes:#?}");
        wait_for("the end of the command", || processes(mark).is_empty());
    }
}
