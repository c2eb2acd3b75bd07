//! What a refusal looks like, what it leaves behind, and what it gives away; and that a client's leaving is noticed.
//! The ways to get past the gate that are tried one by one stand beside this file: `messages`, `headers`, `doors`,
//! `tokens`, `forgeries`, `arguments`, `methods`.

use crate::support::gate::{Gate, call, error, eventually, modern_call, result};
use crate::support::gateway::in_front_of;
use crate::support::http::Connection;
use crate::support::recorder::Recorded;
use crate::support::reply::Reply;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = r#"
- { name: echo for all, tools: ["up/echo"], allow: {} }
- { name: admins add, tools: ["up/add"], who: { groups: [admins] }, allow: {} }
- { name: deploying, tools: ["up/deploy"], hold: { approvers: { users: [bob] } } }
- { name: no danger, tools: ["up/danger"], deny: { reason: it is dangerous } }
- { name: danger for some, tools: ["up/danger"], allow: {} }
- { name: small, tools: ["up/echo"], when: { /n: { min: 10 } }, deny: { reason: ten is too much } }
- { name: scoped, tools: ["up/scoped"], who: { scopes: ["up:write"] }, allow: {} }
"#;

#[test]
fn a_tool_that_nothing_could_open_is_answered_like_one_that_does_not_exist() {
    let gate = Gate::with_rules(RULES);
    let unlisted = error(200, -32602, "policy.unlisted").id("7");
    let answer = |tool: &str, arguments: &str| {
        let legacy = gate.refuses(tool, &gate.post(call(tool, arguments)), &unlisted).text();
        let modern = gate.modern("tools/call", Some(tool), modern_call(tool, arguments));
        assert_eq!(gate.refuses(tool, &modern, &unlisted).text(), legacy, "{tool} in the newer era");
        legacy
    };
    let nobody = answer("no-such-tool", "{}");

    for tool in ["danger", "Echo", "echo2", "up", "*", "../echo", "tools/call"] {
        assert_eq!(answer(tool, "{}"), nobody, "{tool}");
        assert_eq!(answer(tool, r#"{"n":10,"x":[1]}"#), nobody, "{tool}, with arguments");
    }
    assert!(!nobody.contains("danger") && nobody.contains("Unknown tool"), "{nobody}");
    // To bob, who is no admin, `add` is one of them.
    let bob = gate.gateway.token("bob", "up");
    let as_bob = gate.post(call("add", "{}")).without("Authorization").bearer(&bob);
    assert_eq!(gate.refuses("add for bob", &as_bob, &unlisted).text(), nobody);
    gate.passes("add for alice", &gate.post(call("add", "{}")));
}

#[test]
fn every_refused_call_leaves_one_decision_in_the_audit_log_that_names_its_rule() {
    let gate = Gate::with(|url| format!("{}approvals: {{ wait: 100ms }}\n", in_front_of(url, RULES)));
    // A tool that its server does not list is not held. Asked for once, it is known.
    gate.recorder.answer_with(|request: &Recorded| {
        if request.rpc_method() != "tools/list" {
            return Reply::mcp(request);
        }
        let tools = ["deploy", "echo"].map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
        Reply::result(request, &json!({ "tools": tools }))
    });
    gate.post(call("deploy", r#"{"to":"test"}"#)).send(gate.gateway.agent);
    let unlisted = error(200, -32602, "policy.unlisted").id("7");
    let cases = [
        ("no-such-tool", "{}", unlisted.clone(), "denied", json!(null)),
        ("danger", "{}", unlisted, "denied", json!(["no danger"])),
        ("echo", r#"{"n":10}"#, result("ten is too much"), "denied", json!(["small"])),
        (
            "deploy",
            r#"{"to":"prod"}"#,
            result("it needs a person's approval and has not run"),
            "held",
            json!(["deploying"]),
        ),
        ("scoped", "{}", error(403, -32600, "token.scope").id("7"), "denied", json!(["scoped"])),
    ];

    for (tool, arguments, how, decision, rules) in cases {
        let mark = gate.recorder.mark();
        let response = if tool == "scoped" {
            gate.post(call(tool, arguments)).send(gate.gateway.agent)
        } else {
            let request = gate.post(call(tool, arguments)).without("Accept").header("Accept", "application/json");
            gate.refuses(tool, &request, &how)
        };
        gate.recorder.assert_untouched(mark);

        let record = gate.decision(&response);
        assert_eq!(
            (&record["decision"], record.get("rules").unwrap_or(&Value::Null)),
            (&json!(decision), &rules),
            "{tool}: {record}"
        );
        assert_eq!(
            (&record["method"], &record["object"], &record["upstream"]),
            (&json!("tools/call"), &json!(tool), &json!("up")),
            "{record}"
        );
        assert_eq!(record["principal"]["subject"], "user:alice", "{record}");
        assert!(record["arguments_hash"].as_str().is_some_and(|tag| tag.starts_with("hmac:")), "{record}");
        if tool == "scoped" {
            let challenge = response.header("www-authenticate").unwrap_or_default();
            assert_eq!(
                (response.status, challenge.contains(r#"error="insufficient_scope""#)),
                (403, true),
                "{response:?}"
            );
            assert!(challenge.contains(r#"scope="mcp up:write""#), "{challenge}");
        }
    }
    let response = gate.post(call("echo", r#"{"n":9}"#)).send(gate.gateway.agent);
    assert_eq!(
        (gate.decision(&response)["decision"].as_str(), &gate.decision(&response)["rules"]),
        (Some("allowed"), &json!(["echo for all"]))
    );
    assert_eq!(gate.recorder.calls().len(), 1, "only the allowed one arrived");
    assert!(!gate.gateway.audit_text().contains("prod"), "arguments are not in the log");
    assert!(!gate.gateway.audit_text().contains(&gate.token), "tokens are not in the log");
}

#[test]
fn what_never_reached_the_policy_leaves_a_refusal_and_no_decision() {
    let gate = Gate::with_rules(RULES);
    let good = call("echo", "{}");
    let cases = [
        ("a batch", gate.post(format!("[{good}]")), error(400, -32600, "jsonrpc.batch"), "jsonrpc.batch"),
        (
            "a content type",
            gate.post(good.as_str()).without("Content-Type"),
            error(415, -32600, "request.content_type"),
            "request.content_type",
        ),
        (
            "no token",
            gate.post(good.as_str()).without("Authorization"),
            error(401, -32600, "token.missing"),
            "token.missing",
        ),
    ];
    for (case, request, how, code) in cases {
        let response = gate.refuses(case, &request, &how);

        let id = response.header("x-request-id").expect("every answer has one").to_owned();
        // Written after the answer.
        let records = eventually(Duration::from_secs(10), || {
            let records: Vec<Value> =
                gate.gateway.audit().into_iter().filter(|record| record["request"] == id.as_str()).collect();
            (!records.is_empty()).then_some(records)
        });
        let records = records.unwrap_or_default();
        assert_eq!(records.len(), 1, "{case}: {records:#?}");
        assert_eq!((&records[0]["event"], &records[0]["code"]), (&json!("refused"), &json!(code)), "{case}");
    }
    gate.passes("the allowed twin", &gate.post(good));
}

#[test]
fn a_client_that_leaves_while_the_upstream_is_silent_is_noticed() {
    let gate = Gate::with_rules(RULES);
    type Leave = fn(Connection);
    let leave: [(&str, Leave); 2] = [
        ("closed", drop),
        ("closed after its sending half", |mut connection| {
            connection.finish_sending();
            drop(connection);
        }),
    ];
    for (how, leave) in leave {
        let mark = gate.recorder.mark();
        gate.recorder.answer_next(Reply::hang());
        let mut connection = Connection::open(gate.gateway.agent);
        connection.send(&gate.post(call("echo", "{}")).to_bytes(&gate.gateway.agent.to_string()));
        let arrived = gate.recorder.wait_for_requests(mark, 1);

        let left = Instant::now();
        leave(connection);
        gate.recorder.wait_until_closed(arrived[0].connection);

        let took = left.elapsed();
        eprintln!("{how}: noticed after {took:?}");
        assert!(took < Duration::from_secs(1), "{how}: noticed after {took:?}");
        let is_recorded = eventually(Duration::from_secs(10), || {
            let audit = gate.gateway.audit();
            audit.iter().any(|record| record["event"] == "result" && record["outcome"] == "client_gone").then_some(())
        });
        assert!(is_recorded.is_some(), "{how}: its end is recorded");
    }
    // One that stays gets its answer.
    gate.passes("the twin that stays", &gate.post(call("echo", "{}")));
}
