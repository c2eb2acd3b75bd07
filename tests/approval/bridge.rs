//! The worked example of a chat bridge, with the npm library of Standard Webhooks, against a real gateway: it verifies what
//! it is told, and what it signs is taken.

use super::decide;
use super::hooks::{OTHER, SECRET, config, hook, with_secret};
use crate::support::gateway::{Gateway, Launch};
use crate::support::process::Server;
use crate::support::recorder::Recorder;
use crate::support::sdk;
use serde_json::{Value, json};

/// The bridge, with what decides for it.
#[track_caller]
fn bridge(environment: &[(&str, &str)]) -> (Server, String) {
    let mut command = sdk::program("chat_bridge.mjs");
    let mut bridge = Server::spawn_listening("the bridge", command.envs(environment.iter().copied()));
    let url = bridge.line("bridge ").expect("it listens");
    (bridge, url)
}

fn gateway(upstream: &Recorder, hook: String) -> Gateway {
    let yaml = config(&upstream.url(), &[hook]).replace("wait: 1s", "wait: 20s");
    let gateway = with_secret(Launch::new(&yaml)).start();
    gateway.wait_until_asked("up");
    gateway
}

#[track_caller]
fn message(bridge: &mut Server) -> Value {
    serde_json::from_str(&bridge.line("message ").expect("it is told")).expect("JSON")
}

#[test]
fn a_bridge_that_answers_with_a_decision_lets_the_waiting_call_run() {
    let upstream = Recorder::start();
    let (mut bridge, url) = bridge(&[("BRIDGE_SECRET", SECRET), ("ANSWER", "approve"), ("PERSON", "alice")]);
    let gateway = gateway(&upstream, hook("chat", &url, ", arguments: true, decides_as: { groups: [admins] }"));

    let answer = gateway.agent("bob", "up").tool("danger", json!({ "path": "/tmp/a", "pin": "1234" })).result();

    assert_eq!(answer["structuredContent"], json!({ "path": "/tmp/a", "pin": "1234" }), "{answer}");
    assert_eq!(upstream.calls().len(), 1);
    let told = message(&mut bridge);
    assert_eq!(told["text"], "user:bob asks to call up/danger, which needs an approval (risky)");
    assert_eq!(told["arguments"]["path"], "/tmp/a");
    assert!(told["arguments"]["pin"].as_str().is_some_and(|pin| pin.starts_with("[masked, 4 bytes")), "{told}");
    let held = decide::only(&gateway);
    let shown = gateway.cli(&["approvals", "show", decide::id(&held)]).success().stdout;
    assert!(
        shown.contains("approved by alice (webhook chat)") && shown.contains("chat: delivered after 1 attempt"),
        "{shown}"
    );
}

#[test]
fn a_bridge_that_answers_no_ends_the_call_and_one_that_may_not_decide_decides_nothing() {
    let upstream = Recorder::start();
    let (_bridge, url) =
        bridge(&[("BRIDGE_SECRET", SECRET), ("ANSWER", "deny"), ("PERSON", "alice"), ("REASON", "not at night")]);
    let denying = gateway(&upstream, hook("chat", &url, ", decides_as: { groups: [admins] }"));

    let answer = denying.agent("bob", "up").tool("danger", json!({ "path": "/tmp/a" })).result();

    assert!(answer["isError"] == true && answer.to_string().contains("not at night"), "{answer}");
    assert_eq!(upstream.calls().len(), 0);

    // Told without a nonce, it has nothing to decide with.
    let told = gateway(&upstream, hook("chat", &url, ", timeout: 5s"));
    let agent = told.agent("bob", "up");
    std::thread::scope(|scope| {
        scope.spawn(|| agent.tool("danger", json!({ "path": "/tmp/a" })));
        told.wait_for_metric("portcullis_webhook_deliveries_total{hook=\"chat\",result=\"delivered\"}", 1.0);
        let held = decide::wait_for_held(&told, 1);
        assert_eq!(held["state"], "pending");
        decide::say(&told, "alice", &["deny", decide::id(&held)]).success();
    });
}

#[test]
fn a_bridge_with_another_secret_takes_nothing_for_ours() {
    let upstream = Recorder::start();
    let (mut bridge, url) = bridge(&[("BRIDGE_SECRET", OTHER), ("ANSWER", "approve"), ("PERSON", "alice")]);
    let gateway = gateway(&upstream, hook("chat", &url, ", decides_as: { groups: [admins] }"));

    let agent = gateway.agent("bob", "up");
    std::thread::scope(|scope| {
        scope.spawn(|| agent.tool("danger", json!({ "path": "/tmp/a" })));
        bridge.line("refused ").expect("it says so");
        gateway.wait_for_metric("portcullis_webhook_deliveries_total{hook=\"chat\",result=\"failed\"}", 1.0);
        let held = decide::wait_for_held(&gateway, 1);
        assert_eq!(held["state"], "pending");
        decide::say(&gateway, "alice", &["deny", decide::id(&held)]).success();
    });
    assert_eq!(upstream.calls().len(), 0);
}

#[test]
fn a_person_at_the_bridge_decides_later_by_a_signed_message() {
    let upstream = Recorder::start();
    let (mut bridge, url) = bridge(&[("BRIDGE_SECRET", SECRET)]);
    let gateway = gateway(&upstream, hook("chat", &url, ", decides_as: { groups: [admins] }"));

    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| gateway.agent("bob", "up").tool("danger", json!({ "path": "/tmp/a" })).result());
        let told = message(&mut bridge);
        let id = told["id"].as_str().expect("an id");
        // Bob is in no group that the bridge speaks for.
        bridge.say(&format!("approve {id} bob\n"));
        assert!(bridge.line("decided ").is_ok_and(|said| said.starts_with("403 ")));
        assert_eq!(upstream.calls().len(), 0);
        bridge.say(&format!("approve {id} alice\n"));
        let said = bridge.line("decided ").expect("it is answered");
        assert!(said.starts_with("200 ") && said.contains("\"approved\""), "{said}");
        call.join().expect("it is answered")
    });

    assert_eq!(answer["structuredContent"]["path"], "/tmp/a", "{answer}");
    assert_eq!(upstream.calls().len(), 1);
}

/// B53: the receiver is not there when the call is held, and the decision is not lost on it.
#[test]
fn b53_a_bridge_that_comes_up_late_is_told_and_the_call_runs_when_it_comes_again() {
    let upstream = Recorder::start();
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound").port();
    let yaml = config(
        &upstream.url(),
        &[hook("chat", &format!("http://127.0.0.1:{port}/"), ", decides_as: { groups: [admins] }")],
    );
    let gateway = with_secret(Launch::new(&yaml)).start();
    gateway.wait_until_asked("up");
    let agent = gateway.agent("bob", "up");
    let call = || agent.tool("danger", json!({ "path": "/tmp/a" })).result();

    assert_eq!(call()["isError"], true);
    gateway.wait_for_metric("portcullis_webhook_deliveries_total{hook=\"chat\",result=\"failed\"}", 1.0);
    assert_eq!(call()["isError"], true, "it joins the one that is held");
    let (_bridge, _) =
        bridge(&[("BRIDGE_SECRET", SECRET), ("PORT", &port.to_string()), ("ANSWER", "approve"), ("PERSON", "alice")]);
    let held = decide::only(&gateway);
    decide::wait_for_state(&gateway, decide::id(&held), "approved");

    assert_eq!(call()["structuredContent"]["path"], "/tmp/a");
    assert_eq!(upstream.calls().len(), 1);
    assert_eq!(decide::all(&gateway).len(), 1);
}
