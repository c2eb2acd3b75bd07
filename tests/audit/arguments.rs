//! Arguments in the log: only where the configuration says so, never what must not be written down, and always findable by
//! their tag.

use super::{decision, document, id, lines, wait_for_results};
use crate::support::gateway::{Gateway, in_front_of, tag};
use crate::support::recorder::Recorder;
use serde_json::{Value, json};

const RULES: &str = r#"- { name: all, tools: ["up/*"], prompts: ["up/*"], allow: {} }"#;

fn gateway(recorder: &Recorder, arguments: &str) -> Gateway {
    Gateway::start(&format!("{}\naudit: {{ arguments: {arguments} }}\n", in_front_of(&recorder.url(), RULES)))
}

#[test]
fn only_arguments_of_named_tools_are_recorded_and_all_of_them_go_on_as_they_came() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder, r#"[{ tools: ["up/a*"] }]"#);
    let agent = gateway.agent("alice", "up");
    let arguments = json!({ "n": 1.5, "text": "a\u{202e}b\u{1b}[2J", "deep": [{ "x": [true, null] }] });

    let named = agent.tool("add", arguments.clone());
    named.result();
    let other = agent.tool("echo", arguments.clone());
    other.result();
    let prompt = agent.call("prompts/get", json!({ "name": "add", "arguments": { "who": "secretless" } }));

    let recorded = decision(&gateway, &id(&named));
    assert_eq!(recorded["arguments"], arguments);
    for (answer, what) in [(&other, "another tool"), (&prompt, "a prompt")] {
        let recorded = decision(&gateway, &id(answer));
        assert_eq!(recorded["arguments"], Value::Null, "{what}");
        assert!(recorded["arguments_hash"].as_str().is_some_and(|tag| tag.starts_with("hmac:")), "{what}: {recorded}");
    }
    let seen: Vec<Value> = recorder.calls().iter().map(|call| call.json()["params"]["arguments"].clone()).collect();
    assert_eq!(seen, [arguments.clone(), arguments]);
}

#[test]
fn a_decision_says_the_groups_and_scopes_it_was_made_by() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);

    let answer = gateway.agent("alice", "up").tool("add", json!({}));

    let recorded = decision(&gateway, &id(&answer));
    assert_eq!((&recorded["groups"], &recorded["scopes"]), (&json!(["admins", "ops"]), &json!(["mcp"])));
    wait_for_results(&gateway, 1);
    let result = gateway.audit().into_iter().find(|record| record["event"] == "result").expect("it is there");
    assert_eq!((&result["groups"], &result["scopes"]), (&Value::Null, &Value::Null), "once is enough");
}

#[test]
fn what_is_masked_tagged_or_looks_like_a_secret_is_in_no_record() {
    let recorder = Recorder::start();
    let hidden =
        r#"[{ tools: ["up/*"], mask: [/body, "/people/*/name"] }, { tools: ["up/add"], tag: [/customer/id] }]"#;
    let gateway = gateway(&recorder, hidden);
    let agent = gateway.agent("alice", "up");
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ456789";
    let arguments = json!({
        "body": { "text": "attorney privilege" }, "customer": { "id": "customer-4711", "town": "Ulm" },
        "people": [{ "name": "Ada Byron", "age": 36 }, { "name": "Charles Babbage" }],
        "note": format!("use {token} please"), "password": "correct horse",
    });

    let answer = agent.tool("add", arguments.clone());
    answer.result();
    wait_for_results(&gateway, 1);

    let recorded = decision(&gateway, &id(&answer))["arguments"].clone();
    assert_eq!(
        (&recorded["body"], &recorded["people"]),
        (&json!("[masked]"), &json!([{ "name": "[masked]", "age": 36 }, { "name": "[masked]" }]))
    );
    let data = gateway.path("data");
    let expected = |value: &str| Value::from(tag(&data, value.as_bytes()));
    assert_eq!(recorded["customer"], json!({ "id": expected("customer-4711"), "town": "Ulm" }));
    assert_eq!(recorded["password"], expected("correct horse"));
    assert_eq!(recorded["note"], format!("use {} please", tag(&data, token.as_bytes())));
    let text = gateway.audit_text();
    for secret in ["attorney", "4711", "Byron", "Babbage", token, "correct horse"] {
        assert!(!text.contains(secret), "{secret}");
    }
    assert_eq!(recorder.calls()[0].json()["params"]["arguments"], arguments, "the server is given all of it");
}

#[test]
fn arguments_that_do_not_fit_are_left_out_whole_and_the_call_goes_on() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder, r#"[{ tools: ["up/*"], mask: [/masked] }]"#);
    let agent = gateway.agent("alice", "up");
    let check = |arguments: Value, is_recorded: bool| {
        let bytes = arguments.to_string().len();
        let answer = agent.tool("add", arguments);
        answer.result();
        let recorded = decision(&gateway, &id(&answer));
        assert_eq!(recorded["arguments"].is_object(), is_recorded, "{bytes} bytes");
        let cut = recorded["cut"].as_array().cloned().unwrap_or_default();
        let expected = if is_recorded { vec![] } else { vec![json!({ "key": "arguments", "bytes": bytes })] };
        assert_eq!(cut, expected);
        assert!(recorded["arguments_hash"].is_string());
    };
    check(json!({ "x": "y".repeat(14_000) }), true);
    check(json!({ "x": "y".repeat(16_000) }), false);
    check(json!({ "x": "\u{1}".repeat(4_000) }), false);
    check(json!({ "masked": "y".repeat(100_000), "x": 1 }), true);
    check(json!({ "masked": "y".repeat(300_000) }), false);
    assert!(gateway.audit_text().lines().all(|line| line.len() <= 16 * 1024));
    gateway.cli(&["audit", "verify"]).success();
}

#[test]
fn a_number_that_would_be_rounded_is_a_tag_and_no_other_number() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder, r#"[{ tools: ["up/*"] }]"#);
    let agent = gateway.agent("alice", "up");
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":100.0000000000000001,"b":9007199254740993,"c":1e2}}}"#;

    let answer = agent.post(body);

    let recorded = decision(&gateway, &id(&answer));
    let tagged = tag(&gateway.path("data"), b"100.0000000000000001");
    assert_eq!(recorded["arguments"], json!({ "a": tagged, "b": 9_007_199_254_740_993_u64, "c": 100.0 }));
}

#[test]
fn a_value_is_found_by_its_tag_without_standing_on_a_command_line() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder, r#"[{ tools: ["up/*"], tag: [/customer] }]"#);
    let agent = gateway.agent("alice", "up");
    agent.tool("add", json!({ "customer": "c-1" })).result();
    let wanted = agent.tool("add", json!({ "customer": "c-2" }));

    let expected = tag(&gateway.path("data"), b"c-2");
    assert_eq!(gateway.cli(&["audit", "hash", "c-2"]).success().stdout.trim(), expected);
    let piped = document(&gateway, &["audit", "hash", "--json", "--find", "c-2"]);
    assert_eq!(piped["tags"], json!([expected]));
    let found: Vec<&Value> =
        piped["records"].as_array().expect("a list").iter().map(|record| &record["request"]).collect();
    assert_eq!(found, [&json!(id(&wanted))]);
    // Standard input is empty in these tests.
    let nothing = gateway.cli(&["audit", "hash", "-"]);
    assert_eq!(nothing.status.code(), Some(2), "{nothing:#?}");
    // The arguments as they were sent have a tag as well.
    let whole = document(&gateway, &["audit", "hash", "--json", "--find", r#"{"customer":"c-2"}"#]);
    assert_eq!(whole["records"][0]["request"], json!(id(&wanted)));
    let by_text = lines(&gateway, &["audit", "search", "--json", "--text", &expected]);
    assert_eq!((by_text.len(), &by_text[0]["request"]), (1, &json!(id(&wanted))));

    let asked = gateway.at_terminal(&["audit", "hash"], "c-2\n").success().stdout;
    assert!(asked.contains("Value: ") && asked.contains(&expected), "{asked}");
}

#[test]
fn what_was_tagged_under_a_key_before_is_still_found() {
    let recorder = Recorder::start();
    let gateway = gateway(&recorder, r#"[{ tools: ["up/*"], tag: [/customer] }]"#);
    let before = gateway.agent("alice", "up").tool("add", json!({ "customer": "c-1" }));
    wait_for_results(&gateway, 1);
    let keys = gateway.path("data/keys");
    let old = tag(&gateway.path("data"), b"c-1");
    std::fs::rename(keys.join("session.key"), keys.join("session.key.2026-11")).expect("the folder is ours");
    let gateway = gateway.crash_and_restart();
    let after = gateway.agent("alice", "up").tool("add", json!({ "customer": "c-1" }));

    let found = document(&gateway, &["audit", "hash", "--json", "--find", "c-1"]);

    let new = tag(&gateway.path("data"), b"c-1");
    assert_ne!(new, old);
    assert_eq!(found["tags"], json!([new, old]));
    let requests: Vec<&Value> =
        found["records"].as_array().expect("a list").iter().map(|record| &record["request"]).collect();
    assert_eq!(requests, [&json!(id(&before)), &json!(id(&after))]);
}
