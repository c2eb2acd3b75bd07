//! What an attacker from outside found, each by the way it was found.

use super::decide::{RULES, all, approve, config, config_with, deny, id, only, say, wait_for_held, wait_for_state};
use super::held::logged_in;
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::{Gateway, IDENTITY};
use crate::support::oauth::{Tokens, token};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

fn start(recorder: &Recorder, more: &str) -> Gateway {
    let gateway = Gateway::start(&config(&recorder.url(), more));
    gateway.wait_until_asked("up");
    gateway
}

/// Calls, and has bob approve it in the meantime.
#[track_caller]
fn approved_call(gateway: &Gateway, agent: &Agent, arguments: &Value) -> Answer {
    let n = all(gateway).len();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", arguments.clone()));
        approve(gateway, &wait_for_held(gateway, n + 1));
        call.join().expect("it is answered")
    })
}

/// A server that redirects calls to `/mcp` so.
fn redirects(recorder: &Recorder, status: u16, location: &'static str) {
    recorder.answer_with(move |request: &Recorded| match (request.rpc_method().as_str(), request.target.as_str()) {
        ("tools/call", "/mcp") => Reply::redirect(status, location),
        _ => Reply::mcp(request),
    });
}

#[test]
fn a_redirect_ends_an_approved_call_and_sends_it_to_nobody_else() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 30s");
    let agent = gateway.agent("alice", "up");

    for (n, (status, location)) in [(307, "/mcp"), (308, "/mcp"), (307, "/other?x")].into_iter().enumerate() {
        redirects(&recorder, status, location);
        let answer = approved_call(&gateway, &agent, &json!({ "n": n }));
        assert_eq!(answer.message["error"]["data"]["code"], "upstream.redirect", "{status} {location}: {answer:#?}");
        let calls = recorder.calls();
        assert_eq!(calls.len(), n + 1, "{status} {location}: {calls:#?}");
        assert_eq!(calls[n].target, "/mcp");
        assert_eq!(all(&gateway)[0]["state"], "failed");
    }

    // What nobody had to approve follows one.
    agent.tool("echo", json!({})).result();
    let calls = recorder.calls();
    assert_eq!(calls.iter().map(|call| &*call.target).collect::<Vec<_>>()[3..], ["/mcp", "/other?x"]);
}

const SECRET: &str = "secret-of-a-machine-of-the-tests-0123456789abcdef";

/// `danger` is held for bob; the machine `ci` may call it, and this person answers for it.
fn with_machine(url: &str, owner: &str) -> String {
    let hash: String = digest(&SHA256, SECRET.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let machine = format!("{{ id: ci, secret_hash: \"sha256:{hash}\", owner: {owner}, routes: [up] }}");
    format!("{}{IDENTITY}  clients:\n    - {machine}\n", config(url, "wait: 100ms"))
}

fn machine(gateway: &Gateway) -> Agent {
    let form = [("grant_type", "client_credentials"), ("client_id", "ci"), ("client_secret", SECRET)];
    let form: Vec<(String, String)> = form.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    gateway.agent_with(&Tokens::of(&token(gateway, &form)).access, "up")
}

#[test]
fn whoever_has_become_the_owner_of_a_machine_approves_no_call_of_it() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&with_machine(&recorder.url(), "alice"));
    gateway.wait_until_asked("up");
    let machine = machine(&gateway);
    // One that waits for a decision, and one that bob approved while it was alice's machine.
    for n in [1, 2] {
        machine.tool("danger", json!({ "n": n })).refusal();
    }
    approve(&gateway, &all(&gateway)[0]);

    gateway.rewrite(&with_machine(&recorder.url(), "bob"));
    gateway.reload().success();

    for held in all(&gateway) {
        let over = wait_for_state(&gateway, id(&held), "invalidated");
        assert!(over["note"].as_str().is_some_and(|note| note.contains("another person")), "{over}");
    }
    assert!(machine.tool("danger", json!({ "n": 2 })).refusal().contains("is held"));
    let held = all(&gateway).remove(0);
    let digest = held["digest"].as_str().expect("a digest");
    let refused = say(&gateway, "bob", &["approve", id(&held), "--digest", digest]);
    assert!(refused.stderr.contains("your own call"), "{}", refused.stderr);
    assert!(machine.tool("danger", json!({ "n": 2 })).refusal().contains("is held"));
    assert!(recorder.calls().is_empty());

    gateway.rewrite(&with_machine(&recorder.url(), "alice"));
    gateway.reload().success();
    wait_for_state(&gateway, id(&held), "invalidated");
    machine.tool("danger", json!({ "n": 2 })).refusal();
    approve(&gateway, &all(&gateway)[0]);
    machine.tool("danger", json!({ "n": 2 })).result();
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn asking_and_cancelling_in_turn_comes_to_an_end() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 100ms, pending: 3");
    let extension = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let agent = gateway.agent("alice", "up").modern().with_capabilities(extension);
    for n in 0..3 {
        let task = agent.tool("danger", json!({ "n": n })).result();
        assert_eq!(task["resultType"], "task", "{task}");
        agent.call("tasks/cancel", json!({ "taskId": task["taskId"] })).result();
    }

    let refused = agent.tool("danger", json!({ "n": 3 })).refusal();

    assert!(refused.contains("as many calls"), "{refused}");
    let held = all(&gateway);
    assert_eq!(held.iter().filter(|one| one["state"] == "withdrawn").count(), 3, "{held:#?}");
    let shown = gateway.cli(&["approvals", "show", id(&held[0]), "--json"]).success().stdout;
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["is_erased"], true, "{shown}");
    // Others have their own.
    assert!(gateway.agent("bob", "up").tool("danger", json!({})).refusal().contains("is held"));
}

#[test]
fn a_deny_that_comes_and_goes_while_nobody_calls_voids_what_was_approved() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 100ms");
    let alice = gateway.agent("alice", "up");
    alice.tool("danger", json!({})).refusal();
    let held = only(&gateway);
    approve(&gateway, &held);
    let denied = format!("{RULES}\n- {{ name: never, tools: [up/danger], deny: {{ reason: no more }} }}");

    gateway.rewrite(&config_with(&recorder.url(), &denied, "wait: 100ms"));
    gateway.reload().success();
    wait_for_state(&gateway, id(&held), "invalidated");
    gateway.rewrite(&config(&recorder.url(), "wait: 100ms"));
    gateway.reload().success();

    assert!(alice.tool("danger", json!({})).refusal().contains("is held"));
    assert!(recorder.calls().is_empty());
    // A reload that changes nothing of it takes nothing away.
    let held = all(&gateway).remove(0);
    approve(&gateway, &held);
    gateway.rewrite(&format!("{}timeouts: {{ body: 11s }}\n", config(&recorder.url(), "wait: 100ms")));
    gateway.reload().success();
    alice.tool("danger", json!({})).result();
    assert_eq!(recorder.calls().len(), 1);
    wait_for_state(&gateway, id(&held), "completed");
}

#[test]
fn a_reason_reaches_the_agent_with_everything_unseen_written_out() {
    let recorder = Recorder::start();
    let rules = RULES.replace("name: risky", r#"name: "risky\u202E""#);
    let gateway = Gateway::start(&config_with(&recorder.url(), &rules, "wait: 100ms"));
    gateway.wait_until_asked("up");
    let alice = gateway.agent("alice", "up");
    let held = alice.tool("danger", json!({})).refusal();
    deny(&gateway, &only(&gateway), "no\u{1b}[31m \u{202e}\u{200b}\u{e0041}, use the trash");

    let told = alice.tool("danger", json!({})).refusal();

    assert!(held.contains("⟦U+202E⟧"), "{held}");
    assert!(told.contains("no⟦U+001B⟧[31m ⟦U+202E⟧⟦U+200B⟧⟦U+E0041⟧, use the trash"), "{told}");
    for text in [&held, &told] {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\u{e0041}']), "{text:?}");
    }
}

#[test]
fn the_same_call_after_one_of_which_nobody_knows_is_shown_with_a_warning() {
    let recorder = Recorder::start();
    let yaml = format!("{}admin: {{ listen: 127.0.0.1:0 }}\n", config(&recorder.url(), "wait: 2s"));
    let gateway = Gateway::start(&yaml);
    gateway.wait_until_asked("up");
    let alice = gateway.agent("alice", "up");
    recorder.answer_with(|request: &Recorded| match request.rpc_method().as_str() {
        "tools/call" => Reply::close(),
        _ => Reply::mcp(request),
    });

    let (_, said) = approved_call(&gateway, &alice, &json!({})).error();
    recorder.answer_with(Reply::mcp);
    alice.tool("danger", json!({})).refusal();

    assert!(said.contains("Whether it ran is not known") && !said.contains("whether the call ran"), "{said}");
    let [again, first] = &all(&gateway)[..] else { panic!("two were held") };
    assert_eq!((&first["state"], &again["state"]), (&json!("failed"), &json!("pending")));
    let shown = |held: &Value| gateway.cli(&["approvals", "show", id(held)]).success().stdout;
    assert!(shown(again).contains("warning") && shown(again).contains(id(first)), "{}", shown(again));
    assert!(!shown(first).contains("warning"), "{}", shown(first));
    let for_programs = gateway.cli(&["approvals", "show", id(again), "--json"]).success().stdout;
    let for_programs: Value = serde_json::from_str(&for_programs).expect("JSON");
    assert!(for_programs["warning"].as_str().is_some_and(|text| text.contains(id(first))), "{for_programs}");
    let page = logged_in(&gateway, "bob").get(&format!("/approvals/{}", id(again))).text();
    let warns = |page: &str| page.contains("whether it ran is not known") && page.contains(id(first));
    assert!(warns(&page), "{page}");
    // Where it is known, nobody is warned.
    approve(&gateway, again);
    alice.tool("danger", json!({})).result();
    alice.tool("danger", json!({})).refusal();
    assert!(!shown(&all(&gateway)[0]).contains("warning"));
}
