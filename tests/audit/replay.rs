//! `replay`: what another policy would have said, and never anything that a gateway with it would not say.

use super::{document, id, wait_for_results};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::recorder::Recorder;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

const RECORDED: &str = "audit: { arguments: [{ tools: [\"up/*\"] }] }\n";

fn config(recorder: &Recorder, rules: &str, more: &str) -> String {
    format!("public_url: http://localhost:8080\n{}\n{more}", in_front_of(&recorder.url(), rules))
}

/// The file under test, beside the one in force. What the harness adds to that is added to this as well.
fn beside(gateway: &Gateway, yaml: &str) -> String {
    let path = gateway.path("new.yaml");
    let identity = if yaml.contains("identity:") { "" } else { crate::support::gateway::IDENTITY };
    fs::write(&path, format!("{yaml}\n{identity}")).expect("the folder is ours");
    path.to_str().expect("temporary paths are UTF-8").to_owned()
}

fn replay(gateway: &Gateway, yaml: &str) -> Value {
    document(gateway, &["audit", "replay", "--json", "--policy", &beside(gateway, yaml)])
}

/// `from -> to by rules: count`, sorted.
fn changes(report: &Value) -> Vec<String> {
    let of = |change: &Value| {
        let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        let rules: Vec<&str> = change["rules"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        format!("{} -> {} by [{}] {}: {}", text("from"), text("to"), rules.join(", "), text("because"), change["count"])
    };
    report["changes"].as_array().into_iter().flatten().map(of).collect()
}

#[test]
fn what_would_be_decided_otherwise_is_said_with_its_rule_and_its_requests() {
    let recorder = Recorder::start();
    let old = "- { name: all, tools: [\"up/*\"], allow: {} }\n- { name: none, tools: [\"up/echo\"], deny: {} }";
    let gateway = Gateway::start(&config(&recorder, old, RECORDED));
    let agent = gateway.agent("bob", "up");
    let small = id(&agent.tool("add", json!({ "n": 1 })));
    let large = id(&agent.tool("add", json!({ "n": 100 })));
    let echo = id(&agent.tool("echo", json!({})));
    let danger = id(&agent.tool("danger", json!({ "path": "/srv" })));
    agent.tools();
    wait_for_results(&gateway, 5);
    let new = r#"
- { name: all, tools: ["up/*"], allow: {} }
- { name: not too many, tools: ["up/add"], when: { /n: { min: 10 } }, deny: {} }
- { name: looked at, tools: ["up/danger"], hold: { approvers: { groups: [admins] } } }"#;

    let report = replay(&gateway, &config(&recorder, new, ""));

    assert_eq!(
        changes(&report),
        [
            "allowed -> denied by [not too many] rules: 1",
            "allowed -> held by [looked at] rules: 1",
            "denied -> allowed by [all] rules: 1"
        ]
    );
    let example = |at: usize| report["changes"][at]["examples"][0]["request"].as_str().expect("an id").to_owned();
    assert_eq!([example(0), example(1), example(2)], [large, danger, echo]);
    assert_eq!((&report["same"], &report["not_known"], &report["decisions"]), (&json!(2), &json!(0), &json!(5)));
    assert!(!report.to_string().contains(&small));
    recorder.assert_untouched(recorder.mark());

    let file = beside(&gateway, &config(&recorder, new, ""));
    let shown = gateway.cli(&["audit", "replay", "--policy", &file, "--fail-on-change"]);
    assert_eq!(shown.status.code(), Some(3), "{shown:#?}");
    assert!(shown.stdout.contains("\nchanged: 3\n  allowed -> denied by `not too many`: 1\n    r_"), "{shown:#?}");
    assert!(shown.stdout.ends_with("\nnot known: 0\n\nthe same: 2\n"), "{shown:#?}");
    let alices = gateway.cli(&["audit", "replay", "--policy", &file, "--fail-on-change", "--user", "alice"]);
    assert_eq!((alices.status.code(), alices.stdout.contains("changed: 0")), (Some(0), true), "{alices:#?}");
    let broken = gateway.cli(&["audit", "replay", "--policy", &beside(&gateway, "policy: { rules: nonsense }")]);
    assert_eq!(broken.status.code(), Some(2), "{broken:#?}");
}

#[test]
fn what_is_not_recorded_is_not_guessed_and_what_the_old_policy_tells_is_used() {
    let recorder = Recorder::start();
    let limit = r#"- { name: limit, tools: ["up/add"], when: { /n: { min: 10 } }, deny: {} }"#;
    let old = format!("- {{ name: all, tools: [\"up/*\"], allow: {{}} }}\n{limit}");
    let masked = "audit: { arguments: [{ tools: [\"up/echo\"], mask: [/secret] }] }\n";
    let gateway = Gateway::start(&config(&recorder, &old, masked));
    let agent = gateway.agent("bob", "up");
    agent.tool("add", json!({ "n": 1 }));
    agent.tool("add", json!({ "n": 100 }));
    agent.tool("add", json!({}));
    agent.tool("echo", json!({ "secret": "x", "n": 1 }));
    wait_for_results(&gateway, 4);
    let also = |rule: &str| config(&recorder, &format!("{old}\n{rule}"), masked);

    // The limit stands in both: what it said of each call is known, though the arguments are not.
    let report = replay(&gateway, &also(r#"- { name: other, tools: ["up/danger"], deny: {} }"#));
    assert_eq!((changes(&report), &report["not_known"], &report["same"]), (vec![], &json!(0), &json!(4)), "{report:#}");

    // Another limit asks for what is not recorded, except of the call that was denied and that had none to speak of.
    let report = replay(&gateway, &also(r#"- { name: lower, tools: ["up/add"], when: { /n: { min: 1 } }, deny: {} }"#));
    assert_eq!(changes(&report), Vec::<String>::new());
    assert_eq!((&report["not_known"], &report["same"]), (&json!(1), &json!(3)), "{report:#}");
    let unknown = &report["unknowns"][0];
    assert_eq!((&unknown["reason"], &unknown["rules"]), (&json!("the arguments are not recorded"), &json!(["lower"])));

    // Nor is what is masked; what stands beside it is.
    let report =
        replay(&gateway, &also(r#"- { name: s, tools: ["up/echo"], when: { /secret: { equals: y } }, deny: {} }"#));
    assert_eq!(report["unknowns"][0]["reason"], "some arguments are recorded masked or as tags", "{report:#}");
    let report = replay(&gateway, &also(r#"- { name: s, tools: ["up/echo"], when: { /n: { equals: 1 } }, deny: {} }"#));
    assert_eq!(changes(&report), ["allowed -> denied by [s] rules: 1"]);
    let file = beside(&gateway, &also(r#"- { name: lower, tools: ["up/add"], when: { /n: { min: 1 } }, deny: {} }"#));
    let shown = gateway.cli(&["audit", "replay", "--policy", &file, "--fail-on-change"]).success().stdout;
    assert!(
        shown.contains("\nnot known: 1\n  the arguments are not recorded, and it depends on them: by `lower`: 1\n"),
        "{shown}"
    );
}

#[test]
fn people_who_changed_are_told_apart_from_rules_that_did() {
    let recorder = Recorder::start();
    let rules = r#"- { name: ops, tools: ["up/*"], who: { groups: [ops] }, allow: {} }"#;
    let gateway = Gateway::start(&config(&recorder, rules, ""));
    let (alice, bob) = (gateway.agent("alice", "up"), gateway.agent("bob", "up"));
    alice.tool("add", json!({})).result();
    bob.tool("add", json!({})).result();
    wait_for_results(&gateway, 2);
    let people = |of: &str| {
        let kept: Vec<&str> = crate::support::gateway::IDENTITY.split_inclusive('\n').collect();
        let kept: String = kept.iter().filter(|line| of != "gone" || !line.contains("bob")).copied().collect();
        if of == "moved" { kept.replace("bob, groups: [ops]", "bob, groups: []") } else { kept }
    };

    let moved = replay(&gateway, &config(&recorder, rules, &people("moved")));
    assert_eq!(changes(&moved), ["allowed -> denied by [] people: 1"], "{moved:#}");
    assert_eq!(moved["changes"][0]["examples"][0]["principal"]["subject"], "user:bob");

    let gone = replay(&gateway, &config(&recorder, rules, &people("gone")));
    assert_eq!(changes(&gone), ["allowed -> refused by [] people: 1"]);
    assert_eq!(gone["changes"][0]["why"], "the user `bob` is not configured");

    let elsewhere = config(&recorder, &rules.replace("up/", "*/"), "").replace("\n  up:", "\n  away:");
    let unrouted = replay(&gateway, &elsewhere);
    assert_eq!(unrouted["changes"][0]["why"], "the upstream `up` is not configured");
    assert_eq!(unrouted["changed"], 2);
}

/// Rules that get into one another's way, by number.
fn rules(n: u64) -> String {
    const CONDITIONS: [&str; 6] = [
        "",
        "when: { /n: { min: 2 } }, ",
        "when: { /n: { equals: 1 } }, ",
        "when: { /s: { matches: \"a.*\" } }, ",
        "when: { /s: { present: true } }, ",
        "when: { /deep/0: { in: [1, x] } }, ",
    ];
    let mut seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |of: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 33).expect("31 bits") % of
    };
    let mut text = String::new();
    for at in 0..5 {
        let tools = ["up/*", "up/add", "up/echo", "*/danger"][draw(4)];
        let who = ["", "", "who: { groups: [admins] }, ", "who: { users: [bob] }, "][draw(4)];
        let condition = CONDITIONS[draw(CONDITIONS.len())];
        let effect =
            ["allow: {}", "allow: {}", "deny: {}", "hold: { approvers: { groups: [admins] }, self: true }"][draw(4)];
        text.push_str(&format!("- {{ name: r{at} of {n}, tools: [\"{tools}\"], {who}{condition}{effect} }}\n"));
    }
    // One rule that has something to say in any case.
    text.push_str(&format!("- {{ name: last of {n}, tools: [\"up/echo\"], allow: {{}} }}\n"));
    text
}

fn calls(agents: &[(&'static str, Agent)]) -> Vec<((&'static str, &'static str, String), Answer)> {
    let arguments = [
        json!({}),
        json!({ "n": 1 }),
        json!({ "n": 5, "s": "abc" }),
        json!({ "n": "1" }),
        json!({ "deep": ["x"], "s": 3 }),
    ];
    let mut made = Vec::new();
    for (user, agent) in agents {
        for tool in ["add", "echo", "danger"] {
            for arguments in &arguments {
                made.push(((*user, tool, arguments.to_string()), agent.tool(tool, arguments.clone())));
            }
        }
    }
    made
}

/// What the gateway decided on each of them.
fn decided(
    gateway: &Gateway,
    agents: &[(&'static str, Agent)],
) -> BTreeMap<(&'static str, &'static str, String), (String, String)> {
    let made = calls(agents);
    let records = gateway.audit();
    let decision = |id: &str| {
        let mut of_it = records.iter().filter(|record| record["event"] == "decision" && record["request"] == id);
        of_it.next().unwrap_or_else(|| panic!("no decision on {id}"))["decision"].as_str().expect("a word").to_owned()
    };
    made.into_iter().map(|(call, answer)| (call, (id(&answer), decision(&id(&answer))))).collect()
}

/// Both ways through the real program: what `replay` says of a file, and what the gateway then does with that file.
#[test]
fn replay_says_of_every_call_what_a_gateway_with_the_new_file_answers() {
    let recorder = Recorder::start();
    let approvals = "approvals: { wait: 1ms, expires: 1h, pending: 1000 }\n";
    let with = |n: u64, recorded: &str| config(&recorder, &rules(n), &format!("{approvals}{recorded}"));
    for (recorded, may_be_unknown) in [(RECORDED, false), ("", true)] {
        let mut n_changed = 0;
        let gateway = Gateway::start(&with(1, recorded));
        gateway.wait_until_asked("up");
        let agents = [("alice", gateway.agent("alice", "up")), ("bob", gateway.agent("bob", "up"))];
        let mut before = decided(&gateway, &agents);
        for n in 2..8 {
            // The very same file changes nothing, and leaves nothing open.
            let same = document(
                &gateway,
                &["audit", "replay", "--json", "--policy", gateway.path("gateway.yaml").to_str().expect("UTF-8")],
            );
            let of_this = |report: &Value| report["changes"].clone();
            if n == 2 {
                assert_eq!(
                    (of_this(&same), &same["not_known"], &same["same_by_other_rules"]),
                    (json!([]), &json!(0), &json!(0)),
                    "{same:#}"
                );
            }
            let since = gateway
                .audit()
                .iter()
                .rev()
                .find(|record| record["event"] == "reload")
                .map(|record| record["at"].as_str().expect("a time").to_owned());
            let file = beside(&gateway, &with(n, recorded));
            let mut command = vec!["audit", "replay", "--json", "--policy", file.as_str()];
            if let Some(since) = &since {
                command.extend(["--since", since]);
            }
            let report = document(&gateway, &command);

            gateway.rewrite(&with(n, recorded));
            gateway.reload().success();
            let after = decided(&gateway, &agents);

            let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
            for (call, (_, was)) in &before {
                let (_, is) = &after[call];
                if was != is {
                    *expected.entry((was.clone(), is.clone())).or_default() += 1;
                }
            }
            let mut said: BTreeMap<(String, String), u64> = BTreeMap::new();
            for change in report["changes"].as_array().expect("a list") {
                let key = (
                    change["from"].as_str().expect("a word").to_owned(),
                    change["to"].as_str().expect("a word").to_owned(),
                );
                *said.entry(key).or_default() += change["count"].as_u64().expect("a number");
            }
            n_changed += said.values().sum::<u64>();
            let n_unknown = report["not_known"].as_u64().expect("a number");
            if may_be_unknown {
                // Whatever it does say is so; the rest it does not know.
                let n_more: u64 =
                    expected.iter().map(|(change, n)| n - said.get(change).copied().unwrap_or_default().min(*n)).sum();
                assert!(
                    said.iter().all(|(change, n)| expected.get(change).is_some_and(|all| n <= all)),
                    "{n}: {said:?}, but {expected:?}"
                );
                assert!(n_more <= n_unknown, "{n}: {said:?} and {n_unknown} unknown, but {expected:?}");
            } else {
                assert_eq!((&said, n_unknown), (&expected, 0), "rules {n}: {report:#}");
            }
            let by_request: BTreeMap<&str, &str> = before
                .values()
                .zip(before.keys())
                .map(|((id, _), call)| (id.as_str(), after[call].1.as_str()))
                .collect();
            for change in report["changes"].as_array().expect("a list") {
                for example in change["examples"].as_array().expect("a list") {
                    let request = example["request"].as_str().expect("an id");
                    assert_eq!(by_request[request], change["to"], "{request} under rules {n}");
                }
            }
            before = after;
        }
        assert!(n_changed > 20, "only {n_changed} changes in all: these rules try nothing");
    }
}
