//! A held call as a task (MCP Tasks extension, SEP-2663).

use super::super::decide::{all, approve, deny, id, only, say, wait_for_state};
use super::{config_with, start, takes_tasks, tasks_extension};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::{Gateway, IDENTITY, in_front_of};
use crate::support::issuer::Issuer;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};

/// The id of the task that answers a call.
#[track_caller]
fn task(answer: &Answer) -> String {
    let result = answer.result();
    assert_eq!((&result["resultType"], &result["status"]), (&json!("task"), &json!("working")), "{result}");
    result["taskId"].as_str().expect("an id").to_owned()
}

#[track_caller]
fn ask(agent: &Agent, method: &str, task: &str) -> Answer {
    agent.call(method, json!({ "taskId": task, "inputResponses": {} }))
}

#[track_caller]
fn get(agent: &Agent, task: &str) -> Value {
    let result = ask(agent, "tasks/get", task).result();
    assert_eq!((&result["resultType"], &result["taskId"]), (&json!("complete"), &json!(task)), "{result}");
    result
}

/// Asks until the task has come to an end.
#[track_caller]
fn outcome(agent: &Agent, task: &str) -> Value {
    let mut seen = Value::Null;
    wait_for("the end of the task", || {
        seen = get(agent, task);
        seen["status"] != "working"
    });
    seen
}

#[test]
fn a_held_call_is_a_task_that_runs_without_its_client_and_keeps_its_result() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let mark = recorder.mark();

    let answer = agent.tool("danger", json!({ "a": 1 }));

    let task = task(&answer);
    let held = only(&gateway);
    assert_eq!(task, id(&held));
    let created = answer.result();
    assert!(created["statusMessage"].as_str().unwrap().contains("user `bob`"), "{created}");
    assert!(created["ttlMs"].as_i64().unwrap() > 30 * 60 * 1000 && created["pollIntervalMs"].is_u64(), "{created}");
    assert_eq!(created["createdAt"], held["created_at"]);
    assert_eq!(get(&agent, &task)["status"], "working");
    recorder.assert_untouched(mark);
    approve(&gateway, &held);
    // Nobody asks meanwhile.
    wait_for_state(&gateway, &task, "completed");
    let done = get(&agent, &task);
    assert_eq!(done["status"], "completed");
    assert_eq!(done["result"]["structuredContent"], json!({ "a": 1 }));
    assert_eq!(get(&agent, &task), done, "it can be looked at again");
    assert_eq!(recorder.calls().len(), 1);
    // It was for one run.
    assert_ne!(self::task(&agent.tool("danger", json!({ "a": 1 }))), task);
    assert_eq!((recorder.calls().len(), all(&gateway).len()), (1, 2));
}

#[test]
fn what_runs_for_a_task_is_what_was_approved_in_the_form_of_its_era() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let task = task(&agent.tool("danger", json!({ "b": [1.0], "a": "é" })));

    approve(&gateway, &only(&gateway));

    outcome(&agent, &task);
    let call = recorder.calls().remove(0);
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("danger"));
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    let params = call.json()["params"].clone();
    assert_eq!((&params["name"], &params["arguments"]), (&json!("danger"), &json!({ "a": "é", "b": [1] })));
    // Nobody is there who could be asked, or could take another task.
    assert_eq!(params["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
}

#[test]
fn a_task_that_did_not_run_says_what_a_caller_would_have_been_told() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 2s, expires: 4s");
    let agent = takes_tasks(&gateway);
    let mark = recorder.mark();

    let denied = task(&agent.tool("danger", json!({ "n": 1 })));
    deny(&gateway, &only(&gateway), "not today");
    let expired = task(&agent.tool("danger", json!({ "n": 2 })));

    // `failed` is for errors of JSON-RPC alone.
    for (task, said) in [(denied, "not today"), (expired, "nobody decided in time")] {
        let ended = outcome(&agent, &task);
        assert_eq!((&ended["status"], &ended["result"]["isError"]), (&json!("completed"), &json!(true)), "{ended}");
        assert!(ended["result"]["content"][0]["text"].as_str().unwrap().contains(said), "{ended}");
    }
    recorder.assert_untouched(mark);
}

#[test]
fn an_error_of_the_server_is_a_task_that_failed_and_an_error_of_the_tool_is_its_result() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| match request.json()["params"]["arguments"]["how"].as_str() {
        Some("error") => Reply::error(request, -32011, "out of order"),
        Some("tool") => Reply::result(request, &json!({ "resultType": "complete", "content": [], "isError": true })),
        Some("task") => Reply::result(request, &json!({ "resultType": "task", "taskId": "x", "status": "working" })),
        Some("gone") => Reply::close(),
        _ => Reply::mcp(request),
    });
    let gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let run = |how: &str| {
        let task = task(&agent.tool("danger", json!({ "how": how })));
        let held = all(&gateway).into_iter().find(|held| id(held) == task).expect("it is held");
        approve(&gateway, &held);
        outcome(&agent, &task)
    };

    let error = run("error");
    assert_eq!((&error["status"], &error["error"]["code"]), (&json!("failed"), &json!(-32011)), "{error}");
    assert!(error.get("result").is_none() && error["statusMessage"].is_string(), "{error}");
    let tool = run("tool");
    assert_eq!((&tool["status"], &tool["result"]["isError"]), (&json!("completed"), &json!(true)), "{tool}");
    let gone = run("gone");
    assert_eq!((&gone["status"], &gone["error"]["code"]), (&json!("failed"), &json!(-32603)), "{gone}");
    // A client that asks for the result of one task is not given another, which it could not ask about here.
    let other = run("task");
    assert_eq!((&other["status"], &other["result"]["isError"]), (&json!("completed"), &json!(true)), "{other}");
}

#[test]
fn a_task_that_is_cancelled_in_time_never_runs() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let mark = recorder.mark();
    let task = task(&agent.tool("danger", json!({})));

    assert_eq!(ask(&agent, "tasks/cancel", &task).result(), json!({ "resultType": "complete" }));

    assert_eq!(get(&agent, &task)["status"], "cancelled");
    let held = only(&gateway);
    assert_eq!(held["state"], "withdrawn");
    let refused = say(&gateway, "bob", &["approve", &task, "--digest", held["digest"].as_str().unwrap()]);
    assert!(!refused.status.success(), "{refused:?}");
    recorder.assert_untouched(mark);
    // Once more is acknowledged, and changes nothing.
    ask(&agent, "tasks/cancel", &task).result();
    ask(&agent, "tasks/update", &task).result();
    assert_eq!(get(&agent, &task)["status"], "cancelled");
}

#[test]
fn cancelling_what_runs_is_acknowledged_and_its_result_kept() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let task = task(&agent.tool("danger", json!({})));
    let (reply, feed) = Reply::sse_fed();
    // The tools are looked at once more before it runs.
    let reply = std::sync::Mutex::new(Some(reply));
    recorder.answer_with(move |request| match request.rpc_method() == "tools/call" {
        true => reply.lock().unwrap().take().expect("it runs once"),
        false => Reply::mcp(request),
    });
    approve(&gateway, &only(&gateway));
    wait_for("the call", || recorder.calls().len() == 1);

    ask(&agent, "tasks/cancel", &task).result();

    assert_eq!(get(&agent, &task)["status"], "working");
    let answer =
        json!({ "jsonrpc": "2.0", "id": recorder.calls()[0].json()["id"], "result": { "content": [], "n": 7 } });
    feed.message(&answer);
    drop(feed);
    assert_eq!(outcome(&agent, &task)["result"]["n"], 7);
}

///
#[test]
fn to_everybody_else_a_task_is_unknown_and_only_who_declares_tasks_may_ask() {
    let recorder = Recorder::start();
    let rules = "- { name: risky, tools: [up/danger], hold: { approvers: { users: [bob] } } }\n\
                 - { name: rest, tools: [\"*/*\"], allow: {} }";
    let yaml = in_front_of(&recorder.url(), rules);
    let second = format!("upstreams:\n  open: {{ http: {{ url: \"{}\" }} }}\n", recorder.url());
    let gateway = Gateway::start(&yaml.replacen("upstreams:\n", &second, 1));
    gateway.wait_until_asked("up");
    gateway.wait_until_asked("open");
    let alice = takes_tasks(&gateway);
    let task = task(&alice.tool("danger", json!({})));
    let other = gateway.issue("alice", "up", &["--client", "other"]).success().stdout;
    let mark = recorder.mark();

    let bob = gateway.agent("bob", "up").modern().with_capabilities(tasks_extension());
    let other = gateway.agent_with(other.trim(), "up").modern().with_capabilities(tasks_extension());
    let elsewhere = gateway.agent("alice", "open").modern().with_capabilities(tasks_extension());
    let plain = gateway.agent("alice", "up").modern();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let unknown = ask(&alice, method, "h_5nOqRk3s0cVvIwYQe7cH3g");
        assert_eq!((unknown.status(), unknown.error()), (200, (-32602, "Unknown task".to_owned())), "{method}");
        for foreign in [ask(&bob, method, &task), ask(&other, method, &task)] {
            assert_eq!((foreign.status(), foreign.error()), (200, unknown.error()), "{method}");
        }
        // Where nothing can be held, there are no tasks.
        let none = ask(&elsewhere, method, &task);
        assert_eq!((none.status(), none.error().0), (404, -32601), "{method}");
        for id in [task.as_str(), "x"] {
            let undeclared = ask(&plain, method, id);
            assert_eq!((undeclared.status(), undeclared.error().0), (400, -32021), "{method}");
            let needed = &undeclared.message["error"]["data"]["requiredCapabilities"];
            assert_eq!(*needed, tasks_extension(), "{method}");
        }
    }
    assert_eq!(alice.call("tasks/get", json!({})).error().0, -32602);
    let listen = json!({ "notifications": { "taskIds": [task] } });
    assert_eq!(plain.call("subscriptions/listen", listen).error().0, -32021);
    // Revisions before have tasks of another kind, which are not offered.
    let mut legacy = gateway.agent("alice", "up");
    legacy.initialize();
    assert_eq!(ask(&legacy, "tasks/get", &task).error().0, -32601);
    assert_eq!(get(&alice, &task)["status"], "working");
    assert_eq!(all(&gateway).iter().filter(|held| held["state"] == "pending").count(), 1);
    assert!(recorder.requests_since(mark).iter().all(|request| !request.rpc_method().starts_with("tasks/")));
}

#[test]
fn the_header_must_name_the_task_that_the_body_asks_about() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let task = task(&agent.tool("danger", json!({})));
    let (request, request_id) = agent.request("tasks/get", json!({ "taskId": task }));

    let refused = agent.send(&request.clone().without("Mcp-Name").header("Mcp-Name", "h_other"), Some(&request_id));

    assert_eq!((refused.status(), refused.error().0), (400, -32020));
    agent.send(&request, Some(&request_id)).result();
}

#[test]
fn tasks_are_offered_where_calls_may_be_held_and_nowhere_else() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| match request.rpc_method().as_str() {
        "server/discover" => {
            Reply::result(request, &json!({ "resultType": "complete", "capabilities": { "tools": {} } }))
        }
        _ => Reply::mcp(request),
    });
    let held = start(&recorder, "");
    let offered = |gateway: &Gateway| {
        let result = gateway.agent("alice", "up").modern().call("server/discover", json!({})).result();
        result["capabilities"].clone()
    };
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "tools": {} });
    assert_eq!(offered(&held), tasks);

    held.rewrite(&config_with(&recorder.url(), "- { name: all, tools: [\"up/*\"], allow: {} }", ""));
    held.reload().success();

    assert_eq!(offered(&held), json!({ "tools": {} }));
}

#[test]
fn a_task_that_was_approved_while_the_gateway_was_down_runs_when_it_is_back() {
    let recorder = Recorder::start();
    let mut gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let (task, token) = (task(&agent.tool("danger", json!({}))), agent.token.clone().unwrap());
    gateway.stop();
    approve(&gateway, &only(&gateway));
    assert!(recorder.calls().is_empty());

    let gateway = gateway.restart_after_death();

    wait_for_state(&gateway, &task, "completed");
    let agent = gateway.agent_with(&token, "up").modern().with_capabilities(tasks_extension());
    assert_eq!(get(&agent, &task)["result"]["content"][0]["text"], "danger");
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn nothing_runs_for_whose_access_was_taken_back() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s, valid_for: 3s");
    let agent = takes_tasks(&gateway);
    let mark = recorder.mark();
    let task = task(&agent.tool("danger", json!({})));
    let file = gateway.password_file("alice");
    let token = agent.token.clone().unwrap();
    let revoke = ["token", "revoke", &token, "--as", "alice", "--password-file", file.to_str().unwrap()];
    gateway.cli(&revoke).success();

    approve(&gateway, &only(&gateway));

    wait_for_state(&gateway, &task, "expired");
    assert!(recorder.requests_since(mark).iter().all(|request| request.rpc_method() != "tools/call"));
}

#[test]
fn a_rule_that_has_changed_since_voids_the_approval_of_a_task() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = takes_tasks(&gateway);
    let task = task(&agent.tool("danger", json!({})));
    let denied = super::config(&recorder.url(), "")
        .replace("rules:\n", "rules:\n    - { name: never, tools: [up/danger], deny: {} }\n");
    gateway.rewrite(&denied);
    gateway.reload().success();

    approve(&gateway, &only(&gateway));

    wait_for_state(&gateway, &task, "invalidated");
    assert_eq!(outcome(&agent, &task)["result"]["isError"], true);
    assert!(recorder.calls().is_empty());
}

#[test]
fn a_task_of_an_external_issuers_token_runs_when_its_owner_asks_with_a_good_one() {
    let (recorder, issuer) = (Recorder::start(), Issuer::start());
    let rules = "- { name: risky, tools: [up/danger], who: { groups: [ops] }, hold: { approvers: { users: [bob] } } }";
    let entry = format!("    - {{ issuer: \"{}\", groups: {{ operators: ops }} }}\n", issuer.name);
    let yaml = in_front_of(&recorder.url(), rules);
    let gateway = Gateway::start(&format!("{IDENTITY}  issuers:\n{entry}approvals: {{ wait: 2s }}\n{yaml}"));
    gateway.wait_until_asked("up");
    gateway
        .wait_for_metric(&format!("portcullis_issuer_fetches_total{{issuer=\"{}\",result=\"ok\"}}", issuer.name), 1.0);
    let agent = |more: &Value| {
        let token = issuer.token(&gateway.url("up"), more);
        gateway.agent_with(&token, "up").modern().with_capabilities(tasks_extension())
    };
    let task = task(&agent(&json!({})).tool("danger", json!({})));

    approve(&gateway, &only(&gateway));

    // Nothing is kept of the token, so nobody can tell whether it would still be good.
    let stranger = ask(&agent(&json!({ "sub": "somebody-else" })), "tasks/get", &task);
    assert_eq!(stranger.error().0, -32602);
    assert_eq!((only(&gateway)["state"].clone(), recorder.calls().len()), (json!("approved"), 0));
    assert_eq!(outcome(&agent(&json!({})), &task)["result"]["content"][0]["text"], "danger");
    assert_eq!(recorder.calls().len(), 1);
}
