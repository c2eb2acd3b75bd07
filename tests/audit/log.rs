//! The audit log of a running gateway: written before the upstream sees a call, whole after any end, and no call goes
//! on without it.

use crate::support::gateway::{Gateway, Launch, in_front_of, tag};
use crate::support::http::Request;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

const RULES: &str = r#"
- { name: writes, tools: ["up/*"], allow: {} }
- { name: reads, tools: ["up/echo"], allow: { reads: true } }
- { name: never, tools: ["up/danger"], deny: { reason: "not here" } }
"#;

/// The records in `data/audit`, as they stand on the disk right now.
fn records(data: &Path) -> Vec<Value> {
    let mut files: Vec<_> = fs::read_dir(data.join("audit"))
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).expect("the log is ASCII")).collect();
    // A line that is just being written is not there yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"))).collect()
}

/// The tag of the arguments of a call, as they were sent.
fn arguments_hash(data: &Path, request: &Recorded) -> String {
    let body = String::from_utf8(request.body.clone()).expect("the test sends text");
    let start = body.find(r#""arguments":"#).expect("it has arguments") + r#""arguments":"#.len();
    let end = start + body[start..].find('}').expect("flat arguments") + 1;
    tag(data, &body.as_bytes()[start..end])
}

fn decided(records: &[Value]) -> BTreeSet<String> {
    let decisions = records.iter().filter(|record| record["event"] == "decision");
    decisions.filter_map(|record| record["arguments_hash"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_decision_is_on_the_disk_before_the_upstream_sees_the_call() {
    let recorder = Recorder::start();
    let launch = Launch::new(&in_front_of(&recorder.url(), RULES));
    let (data, found) = (launch.path("data"), Arc::new(Mutex::new(Vec::new())));
    let findings = Arc::clone(&found);
    recorder.answer_with(move |request| {
        if request.rpc_method() == "tools/call" {
            let records = records(&data);
            let mine =
                records.iter().find(|record| record["arguments_hash"] == arguments_hash(&data, request).as_str());
            let n_results = records.iter().filter(|record| record["event"] == "result").count();
            findings.lock().expect("nobody panics").push((mine.cloned(), n_results));
        }
        Reply::mcp(request)
    });
    let gateway = launch.start();
    let agent = gateway.agent("alice", "up");

    let mut ids = Vec::new();
    for n in 0..10 {
        let answer = agent.tool("add", json!({ "n": n }));
        answer.result();
        ids.push(answer.response.header("x-request-id").expect("every answer has one").to_owned());
        wait_for("the result", || gateway.audit().iter().filter(|record| record["event"] == "result").count() == n + 1);
    }

    let found = found.lock().expect("nobody panics").clone();
    for (n, (decision, n_results)) in found.iter().enumerate() {
        let decision = decision.as_ref().unwrap_or_else(|| panic!("call {n} arrived before its decision was written"));
        assert_eq!(decision["request"], ids[n].as_str(), "{decision}");
        assert_eq!((&decision["event"], &decision["decision"]), (&json!("decision"), &json!("allowed")));
        assert_eq!((&decision["object"], &decision["rules"]), (&json!("add"), &json!(["writes"])));
        assert_eq!(decision["principal"]["subject"], "user:alice");
        assert_eq!(*n_results, n, "the result of call {n} came before its answer");
    }
    assert_eq!(found.len(), 10);
    for (id, result) in ids.iter().zip(gateway.audit().iter().filter(|record| record["event"] == "result")) {
        assert_eq!(
            (&result["request"], &result["outcome"], &result["status"]),
            (&json!(id), &json!("completed"), &json!(200))
        );
    }
}

#[test]
fn every_ending_has_its_record_and_the_answer_names_it() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let failing = || recorder.answer_next(Reply::new(500, ""));
    let answers = [
        (agent.tool("add", json!({})), "result", Value::Null, "allowed"),
        (agent.tool("danger", json!({})), "result", json!("policy.unlisted"), "denied"),
        (
            {
                failing();
                agent.tool("add", json!({ "a": 1 }))
            },
            "result",
            json!("upstream.status"),
            "allowed",
        ),
        (agent.call("no/such", json!({})), "refused", json!("mcp.method"), ""),
        (agent.post("{"), "refused", json!("jsonrpc.syntax"), ""),
    ];
    let stranger = Request::mcp("/mcp/up", "{}").send(gateway.agent);
    let stranger = (
        stranger.header("x-request-id").expect("every answer has one").to_owned(),
        "refused",
        json!("token.missing"),
        "",
    );

    let id = |answer: &crate::support::agent::Answer| answer.response.header("x-request-id").expect("one").to_owned();
    let cases = answers.into_iter().map(|(answer, event, code, decision)| (id(&answer), event, code, decision));
    for (id, event, code, decision) in cases.chain([stranger]) {
        let of_request = || -> Vec<Value> {
            gateway.audit().into_iter().filter(|record| record["request"] == id.as_str()).collect()
        };
        let n_expected = if decision.is_empty() { 1 } else { 2 };
        wait_for("its records", || of_request().len() >= n_expected);
        let records = of_request();
        assert_eq!(records.len(), n_expected, "{records:#?}");
        let last = records.last().expect("it is there");
        assert_eq!((&last["event"], &last["code"]), (&json!(event), &code), "{records:#?}");
        if !decision.is_empty() {
            assert_eq!(
                (&records[0]["event"], &records[0]["decision"]),
                (&json!("decision"), &json!(decision)),
                "{records:#?}"
            );
        }
        let shown = gateway.cli(&["audit", "show", &id]).success().stdout;
        assert!(shown.contains(event), "{shown}");
    }
}

#[test]
fn the_chain_holds_after_a_run_and_an_edit_shows() {
    let recorder = Recorder::start();
    let mut gateway = Gateway::in_front_of(&recorder, RULES);
    let agent = gateway.agent("alice", "up");
    (0..5).for_each(|n| drop(agent.tool("add", json!({ "n": n })).result()));
    assert!(gateway.stop().success());

    let verified = gateway.cli(&["audit", "verify"]).success().stdout;
    let n_records = gateway.audit().len();
    assert!(verified.starts_with(&format!("verified {n_records} records in 2 segments\nend: ")), "{verified}");
    assert_eq!(gateway.audit().last().expect("records")["event"], "stop");

    let entry = fs::read_dir(gateway.path("data/audit")).expect("it is there").flatten().map(|entry| entry.path());
    let file = entry.into_iter().find(|path| path.extension().is_some_and(|e| e == "jsonl")).expect("a segment");
    let text = fs::read_to_string(&file).expect("ASCII");
    fs::write(&file, text.replacen("user:alice", "user:mallo", 1)).expect("the file is ours");
    let refused = gateway.cli(&["audit", "verify"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("does not have the hash"), "{refused:#?}");
}

#[test]
fn no_call_that_changes_something_goes_on_without_the_log() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    agent.tool("add", json!({ "n": 1 })).result();
    let (log, away) = (gateway.path("data/audit"), gateway.path("away"));

    fs::rename(&log, &away).expect("the folder is ours");
    fs::write(&log, "").expect("the folder is ours");
    let mark = recorder.mark();
    let refused = agent.tool("add", json!({ "n": 2 }));
    assert!(refused.refusal().contains("audit log cannot be written"), "{refused:#?}");
    // Counted when the answer is out.
    let refusals = "portcullis_refusals_total{code=\"audit.unavailable\",route=\"up\"}";
    crate::support::wait_for(refusals, || gateway.metric(refusals) > 0.5);
    recorder.assert_untouched(mark);
    // What only reads goes on, and what is refused anyway is refused as ever.
    assert_eq!(agent.tool("echo", json!({ "n": 3 })).result()["structuredContent"], json!({ "n": 3 }));
    agent.tool("danger", json!({})).error();
    assert_eq!(agent.tools(), ["add", "echo"]);

    fs::remove_file(&log).expect("the folder is ours");
    fs::rename(&away, &log).expect("the folder is ours");
    wait_for("the log to recover", || gateway.metric("portcullis_audit_available") == 1.0);
    agent.tool("add", json!({ "n": 4 })).result();

    wait_for("the records", || gateway.audit().iter().any(|record| record["event"] == "recovered"));
    let decided = decided(&gateway.audit());
    for (arguments, is_recorded) in [(r#"{"n":1}"#, true), (r#"{"n":3}"#, true), (r#"{"n":4}"#, true)] {
        assert_eq!(decided.contains(&tag(&gateway.path("data"), arguments.as_bytes())), is_recorded, "{arguments}");
    }
    gateway.cli(&["audit", "verify"]).success();
}

#[test]
fn hostile_names_stay_one_line_of_plain_ascii() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let agent = gateway.agent("alice", "up");
    let names = [
        "a\nb",
        "a\r\nb",
        "\u{1b}[2J\u{1b}]0;owned\u{7}",
        "\"},{\"seq\":1",
        "\\\" \\u0000",
        "\u{2028}\u{2029}\u{85}",
        "\u{202e}gnissim",
        "\u{feff}echo",
        "日本語\u{1f600}",
        "\u{0}",
    ];
    let long = "x".repeat(100_000);

    let mut ids = Vec::new();
    for name in names.iter().copied().chain([long.as_str()]) {
        let answer = agent.tool(name, json!({}));
        ids.push(answer.response.header("x-request-id").expect("every answer has one").to_owned());
    }
    agent.tool("echo", json!({})).result();
    wait_for("the last result", || gateway.audit().iter().any(|r| r["event"] == "result" && r["object"] == "echo"));

    let text = gateway.audit_text();
    assert!(text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "not plain ASCII");
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        assert!(line.len() <= 16 * 1024 && record["seq"].is_u64(), "{line}");
    }
    for id in ids {
        let shown = gateway.cli(&["audit", "show", &id]).success().stdout;
        assert!(shown.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{shown:?}");
    }
    gateway.cli(&["audit", "verify"]).success();
}

#[test]
fn every_message_leaves_a_decision_and_how_it_ended_whatever_way_it_came() {
    let recorder = Recorder::start();
    recorder.answer_with(|request: &Recorded| match (request.method.as_str(), request.rpc_method().as_str()) {
        ("GET", _) => Reply::sse(&[]),
        ("DELETE", _) => Reply::new(200, ""),
        (_, "initialize") => Reply::mcp(request).header("Mcp-Session-Id", "theirs"),
        (_, "") => Reply::new(202, ""),
        _ => Reply::mcp(request),
    });
    let gateway = Gateway::in_front_of(&recorder, RULES);
    gateway.wait_until_asked("up");
    let mut agent = gateway.agent("alice", "up").of_revision("2025-03-26");
    agent.initialize();
    let call = |id: u64, tool: &str| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": {} } });
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    let answered = json!({ "jsonrpc": "2.0", "id": 7, "result": {} });

    let batch = json!([call(1, "echo"), call(2, "danger"), told, answered]).to_string();
    let batch = agent.bare("POST").header("Content-Type", "application/json").body(batch).send(agent.address);
    assert_eq!(batch.json().as_array().map(Vec::len), Some(2), "{}", batch.text());
    agent.post(call(3, "danger").to_string());
    agent.post(answered.to_string());
    assert_eq!(agent.stream(None).response().status, 200);
    assert_eq!(agent.end_session().status(), 204);

    let seen = |event: &str| {
        let all = gateway.audit().into_iter().filter(|record| record["event"] == event);
        all.map(|record| format!("{} {} {}", record["request"], record["method"], record["object"])).collect::<Vec<_>>()
    };
    let n_messages = 2 + 4 + 4;
    wait_for("all the results", || seen("result").len() >= n_messages);
    let (mut decisions, mut results) = (seen("decision"), seen("result"));
    decisions.sort();
    results.sort();
    assert_eq!(decisions, results);
    assert_eq!(decisions.len(), n_messages, "{decisions:#?}");
    for method in ["(stream)", "(end of session)", "(answer)", "notifications/roots/list_changed", "tools/call"] {
        assert!(decisions.iter().any(|line| line.contains(method)), "{method} in {decisions:#?}");
    }
}
