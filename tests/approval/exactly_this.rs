//! An approval is for one call and no other: whatever differs is held anew and nothing of it is sent, and what does not
//! make a difference joins.

use super::decide::{RULES, all, approve, config, config_with, id, only, wait_for_state};
use crate::support::agent::{Agent, Answer};
use crate::support::gateway::{Gateway, IDENTITY};
use crate::support::oauth::{Client, token};
use crate::support::recorder::{Mark, Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::{gate, wait_for};
use serde_json::{Value, json};

const ARGUMENTS: &str = r#"{"path":"/tmp/a","n":1,"deep":{"list":[1,2],"on":true}}"#;
const WAIT: &str = "wait: 100ms";

/// A call of `danger` that was held and approved, and whose caller is gone.
struct Approved {
    recorder: Recorder,
    gateway: Gateway,
    alice: Agent,
    held: Value,
    mark: Mark,
}

fn approved() -> Approved {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder.url(), WAIT));
    gateway.wait_until_asked("up");
    let alice = gateway.agent("alice", "up");
    alice.post(gate::call("danger", ARGUMENTS)).refusal();
    let held = only(&gateway);
    approve(&gateway, &held);
    let mark = recorder.mark();
    Approved { recorder, gateway, alice, held, mark }
}

impl Approved {
    /// This answer is that of a call that is held anew.
    #[track_caller]
    fn is_held_anew(&self, case: &str, n_before: usize, answer: &Answer) {
        let text = answer.refusal();
        assert!(text.contains("is held") && !text.contains(id(&self.held)), "{case}: {text}");
        assert_eq!(all(&self.gateway).len(), n_before + 1, "{case}");
        assert!(self.recorder.calls().is_empty(), "{case}");
    }

    /// What was approved runs, once.
    #[track_caller]
    fn runs(&self) {
        self.alice.post(gate::call("danger", ARGUMENTS)).result();
        assert_eq!(self.recorder.calls().len(), 1);
        wait_for_state(&self.gateway, id(&self.held), "completed");
    }
}

#[test]
fn a_call_that_differs_in_anything_is_held_anew() {
    let scene = approved();
    let calls = [
        ("a value", ARGUMENTS.replace("/tmp/a", "/tmp/b")),
        ("a type", ARGUMENTS.replace(r#""n":1"#, r#""n":"1""#)),
        ("another key", ARGUMENTS.replace(r#""n":1"#, r#""n":1,"m":null"#)),
        ("the case of a key", ARGUMENTS.replace(r#""n":1"#, r#""N":1"#)),
        ("one key less", ARGUMENTS.replace(r#""n":1,"#, "")),
        ("the order of a list", ARGUMENTS.replace("[1,2]", "[2,1]")),
        ("deep inside", ARGUMENTS.replace("true", "false")),
        ("a word of the agent's own", ARGUMENTS.replace(r#""n":1"#, r#""n":1,"approved":true"#)),
        (
            "the id as an argument",
            ARGUMENTS.replace(r#""n":1"#, &format!(r#""n":1,"approvalId":"{}""#, id(&scene.held))),
        ),
    ];

    for (n, (case, arguments)) in calls.iter().enumerate() {
        scene.is_held_anew(case, n + 1, &scene.alice.post(gate::call("danger", arguments)));
        // As many as one principal may have; each is taken back, so that the next one has room.
        let newest = all(&scene.gateway).remove(0);
        super::decide::say(&scene.gateway, "bob", &["withdraw", id(&newest)]).success();
    }

    scene.recorder.assert_untouched(scene.mark);
    scene.runs();
}

#[test]
fn order_of_keys_white_space_and_another_way_to_write_a_number_make_no_other_call() {
    let scene = approved();

    let same = "{ \"deep\" : {\"on\":true, \"list\": [1.0, 2e0]},\n\t\"n\":1, \"path\":\"\\/tmp\\u002fa\" }";
    scene.alice.post(gate::call("danger", same)).result();

    assert_eq!(only(&scene.gateway)["id"], scene.held["id"]);
    let sent = scene.recorder.calls();
    assert_eq!(sent.len(), 1);
    let canonical = r#""arguments":{"deep":{"list":[1,2],"on":true},"n":1,"path":"/tmp/a"}"#;
    let body = String::from_utf8(sent[0].body.clone()).expect("UTF-8");
    assert!(body.contains(canonical), "what was approved is what is sent, byte for byte: {body}");
}

#[test]
fn another_principal_or_client_has_nothing_of_an_approval() {
    let scene = approved();
    let call = gate::call("danger", ARGUMENTS);
    let client = Client::register(&scene.gateway);
    let other_client = client.log_in(&scene.gateway, "alice", "up");
    let bob = scene.gateway.agent("bob", "up");
    let app = scene.gateway.agent_with(&other_client.access, "up");

    scene.is_held_anew("another principal", 1, &bob.post(call.clone()));
    scene.is_held_anew("another client", 2, &app.post(call.clone()));

    // A token of the same client and person is as good as the one before.
    let refreshed = token(&scene.gateway, &client.refresh(other_client.refresh.as_deref().expect("one")));
    let refreshed = refreshed.json()["access_token"].as_str().expect("a token").to_owned();
    let answer = scene.gateway.agent_with(&refreshed, "up").post(call);
    assert!(answer.refusal().contains("is held"));
    assert_eq!(all(&scene.gateway).len(), 3, "it joins");
    let again = scene.gateway.agent("alice", "up");
    again.post(gate::call("danger", ARGUMENTS)).result();
    assert_eq!(scene.recorder.calls().len(), 1);
}

#[test]
fn what_a_client_says_of_its_own_approval_changes_nothing() {
    let scene = approved();
    // Nothing that was approved: it is held, whatever stands beside it.
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "danger", "arguments": {}, "approved": true, "approval": id(&scene.held),
        "_meta": { "approval": id(&scene.held), "portcullis/approval": { "id": id(&scene.held), "state": "approved" } },
    } });
    let (request, _) = scene.alice.request("tools/call", json!({ "name": "danger", "arguments": {} }));
    let request = request.body(body.to_string());
    let request = request
        .header("X-Approved", "true")
        .header("X-Approval-Id", id(&scene.held))
        .header("Portcullis-Approval", "yes");

    let answer = scene.alice.send(&request, Some(&json!(7)));

    scene.is_held_anew("words of its own", 1, &answer);
    let modern = scene.gateway.agent("alice", "up").modern();
    let forged =
        modern.call("tools/call", json!({ "name": "danger", "arguments": {}, "requestState": id(&scene.held) }));
    assert_eq!(forged.error().0, -32602);
    scene.recorder.assert_untouched(scene.mark);
    scene.runs();
}

/// After a change, the approved call does not run; called again, it is held anew, and runs with a new approval.
#[track_caller]
fn is_void(scene: &Approved, says: &str) {
    let mut answer = scene.alice.post(gate::call("danger", ARGUMENTS)).refusal();
    if answer.contains("void") {
        assert!(answer.contains(says), "{answer}");
        wait_for_state(&scene.gateway, id(&scene.held), "invalidated");
        answer = scene.alice.post(gate::call("danger", ARGUMENTS)).refusal();
    }
    assert!(answer.contains("is held") && !answer.contains(id(&scene.held)), "{answer}");
    assert!(scene.recorder.calls().is_empty());
    let held = all(&scene.gateway);
    assert_eq!(held.len(), 2, "{held:#?}");
    approve(&scene.gateway, &held[0]);
    scene.alice.post(gate::call("danger", ARGUMENTS)).result();
}

#[test]
fn a_changed_definition_of_the_tool_voids_an_approval() {
    let scene = approved();
    scene.recorder.answer_with(|request: &Recorded| {
        if request.rpc_method() != "tools/list" {
            return Reply::mcp(request);
        }
        let tool = json!({ "name": "danger", "description": "Deletes more.", "inputSchema": { "type": "object" } });
        Reply::result(request, &json!({ "tools": [tool] }))
    });

    is_void(&scene, "definition");
    assert_eq!(scene.recorder.calls().len(), 1);
}

#[test]
fn the_same_definition_in_another_order_is_the_same() {
    let scene = approved();
    scene.recorder.answer_with(|request: &Recorded| {
        if request.rpc_method() != "tools/list" {
            return Reply::mcp(request);
        }
        let tool = r#"{ "inputSchema":{"type":"object"}, "description":"The tool danger.", "name":"danger" }"#;
        let id = &request.json()["id"];
        Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tool}]}}}}"#))
    });

    scene.runs();
}

#[test]
fn another_address_of_the_server_voids_an_approval() {
    let scene = approved();
    let elsewhere = Recorder::start();
    scene.gateway.rewrite(&config(&elsewhere.url(), WAIT));
    scene.gateway.reload().success();

    is_void(&scene, "address");
    assert_eq!((scene.recorder.calls().len(), elsewhere.calls().len()), (0, 1));
}

#[test]
fn another_address_of_the_server_voids_the_approval_of_a_caller_who_waits() {
    let (recorder, elsewhere) = (Recorder::start(), Recorder::start());
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s"));
    gateway.wait_until_asked("up");
    let alice = gateway.agent("alice", "up");

    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| alice.tool("danger", json!({})));
        let held = super::decide::wait_for_held(&gateway, 1);
        gateway.rewrite(&config(&elsewhere.url(), "wait: 30s"));
        gateway.reload().success();
        approve(&gateway, &held);
        call.join().expect("it is answered")
    });

    assert!(answer.refusal().contains("address has changed"), "{answer:#?}");
    assert_eq!(only(&gateway)["state"], "invalidated");
    assert!(recorder.calls().is_empty() && elsewhere.calls().is_empty());
}

#[test]
fn another_deciding_rule_voids_an_approval_and_a_deny_wins() {
    let scene = approved();
    let stricter = RULES.replace("users: [bob]", "users: [bob], groups: [admins]");
    scene.gateway.rewrite(&config_with(&scene.recorder.url(), &stricter, WAIT));
    scene.gateway.reload().success();

    is_void(&scene, "rules");
    assert_eq!(scene.recorder.calls().len(), 1);

    // Once more, and this time it is denied between yes and use.
    scene.alice.post(gate::call("danger", ARGUMENTS)).refusal();
    approve(&scene.gateway, &all(&scene.gateway)[0]);
    let denied = format!("{stricter}\n- {{ name: never, tools: [up/danger], deny: {{ reason: no more }} }}");
    scene.gateway.rewrite(&config_with(&scene.recorder.url(), &denied, WAIT));
    scene.gateway.reload().success();
    scene.alice.post(gate::call("danger", ARGUMENTS)).error();
    assert_eq!(scene.recorder.calls().len(), 1);
}

#[test]
fn a_deny_that_comes_while_its_caller_waits_wins_over_the_approval() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s"));
    gateway.wait_until_asked("up");
    let alice = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| alice.tool("danger", json!({})));
        let held = super::decide::wait_for_held(&gateway, 1);
        let denied = format!("{RULES}\n- {{ name: never, tools: [up/danger], deny: {{ reason: no more }} }}");
        gateway.rewrite(&config_with(&recorder.url(), &denied, "wait: 30s"));
        gateway.reload().success();
        approve(&gateway, &held);
        call.join().expect("it is answered")
    });

    assert!(answer.message.get("error").is_some(), "{answer:#?}");
    wait_for_state(&gateway, id(&only(&gateway)), "invalidated");
    let calls: Vec<Recorded> = recorder.requests_since(mark);
    assert!(calls.iter().all(|request| request.rpc_method() != "tools/call"), "{calls:#?}");
}

#[test]
fn an_approver_who_may_not_any_more_has_approved_for_nothing() {
    let by_group = RULES.replace("users: [bob]", "groups: [deciders]");
    let people = |group: &str| IDENTITY.replace("name: bob, groups: [ops]", &format!("name: bob, groups: [{group}]"));
    let yaml = |url: &str, group: &str| format!("{}{}", config_with(url, &by_group, WAIT), people(group));
    let recorder = Recorder::start();
    // Somebody is left who could approve, or the file would be refused.
    let with_other = |yaml: String| yaml.replace("groups: [admins, ops]", "groups: [admins, ops, deciders]");
    let gateway = Gateway::start(&with_other(yaml(&recorder.url(), "ops, deciders")));
    gateway.wait_until_asked("up");
    let carol = gateway.agent("alice", "up");
    carol.tool("danger", json!({})).refusal();
    approve(&gateway, &only(&gateway));
    gateway.rewrite(&with_other(yaml(&recorder.url(), "ops")));
    gateway.reload().success();

    let refused = carol.tool("danger", json!({})).refusal();

    assert!(refused.contains("void") && refused.contains("who approved it"), "{refused}");
    assert_eq!(only(&gateway)["state"], "invalidated");
    assert!(recorder.calls().is_empty());
    gateway.rewrite(&with_other(yaml(&recorder.url(), "ops, deciders")));
    gateway.reload().success();
    carol.tool("danger", json!({})).refusal();
    approve(&gateway, &all(&gateway)[0]);
    carol.tool("danger", json!({})).result();
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn without_the_audit_log_nothing_is_held_and_nothing_approved_runs() {
    let scene = approved();
    let (log, away) = (scene.gateway.path("data/audit"), scene.gateway.path("away"));
    std::fs::rename(&log, &away).expect("the folder is ours");
    std::fs::write(&log, "").expect("the folder is ours");

    for arguments in [ARGUMENTS, "{}"] {
        let refused = scene.alice.post(gate::call("danger", arguments)).refusal();
        assert!(refused.contains("audit log cannot be written"), "{refused}");
    }

    assert!(scene.recorder.calls().is_empty());
    std::fs::remove_file(&log).expect("the folder is ours");
    std::fs::rename(&away, &log).expect("the folder is ours");
    wait_for("the log to recover", || scene.gateway.metric("portcullis_audit_available") > 0.5);
    assert_eq!(all(&scene.gateway).iter().filter(|one| one["state"] == "pending").count(), 0);
}

#[test]
fn a_reload_that_changes_something_else_leaves_an_approval_alone() {
    let scene = approved();
    let more = format!("{RULES}\n- {{ name: more, tools: [up/other], deny: {{}} }}");
    let url = scene.recorder.url();
    scene.gateway.rewrite(&format!("{}timeouts: {{ body: 11s }}\n", config_with(&url, &more, WAIT)));
    scene.gateway.reload().success();

    scene.runs();
}

#[test]
fn who_was_revoked_meanwhile_runs_nothing() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder.url(), "wait: 30s"));
    gateway.wait_until_asked("up");
    let alice = gateway.agent("alice", "up");

    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| alice.tool("danger", json!({})));
        let held = super::decide::wait_for_held(&gateway, 1);
        let password = gateway.password_file("alice");
        let password = password.to_str().expect("temporary paths are UTF-8");
        let token = alice.token.as_deref().expect("she has one");
        gateway.cli(&["token", "revoke", token, "--as", "alice", "--password-file", password]).success();
        wait_for("the revocation to be known", || {
            crate::support::oauth::status_with(&gateway, alice.token.as_deref().unwrap_or_default()) == 401
        });
        approve(&gateway, &held);
        call.join().expect("it is answered")
    });

    assert!(answer.error().1.contains("access it was made with is over"), "{answer:#?}");
    assert!(recorder.calls().is_empty());
    // With a new token the same person runs it, as long as the approval is good.
    gateway.agent("alice", "up").tool("danger", json!({})).result();
    assert_eq!(recorder.calls().len(), 1);
}

#[test]
fn a_server_that_cannot_be_asked_leaves_an_approval_as_it_is() {
    let scene = approved();
    scene.recorder.answer_with(|request: &Recorded| match request.rpc_method().as_str() {
        "tools/call" => Reply::mcp(request),
        _ => Reply::close(),
    });

    let (_, said) = scene.alice.post(gate::call("danger", ARGUMENTS)).error();

    assert!(said.contains("approved and did not run"), "{said}");
    assert!(scene.recorder.calls().is_empty());
    assert_eq!(only(&scene.gateway)["state"], "approved");
    scene.recorder.answer_with(Reply::mcp);
    scene.runs();
}
