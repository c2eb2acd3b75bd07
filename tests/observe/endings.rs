//! Every gauge is true again after every way in which what it counts can end.

use crate::approval::decide::{say, wait_for_held};
use crate::support::agent::Agent;
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::Connection;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::wait_for;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;

/// `danger` is held for bob; all else goes through.
const RULES: &str = "- { name: risky, tools: [\"*/danger\"], hold: { approvers: { users: [bob] }, wait: 20s, expires: EXPIRES } }\n\
                     - { name: rest, tools: [\"*/*\"], allow: {} }";

/// Everything that is 0 while nobody does anything.
const STILL: [&str; 3] = ["requests_in_flight", "approvals_waiting", "connections{listener=\"agent\"}"];

fn config(recorder: &Recorder, more: &str) -> String {
    format!("{}{more}", in_front_of(&recorder.url(), &RULES.replace("EXPIRES", "10m")))
}

#[track_caller]
fn wait_for_value(gateway: &Gateway, gauge: &str, value: f64) {
    let sample = format!("portcullis_{gauge}");
    wait_for(&format!("{sample} {value}"), || (gateway.metric(&sample) - value).abs() < f64::EPSILON);
}

#[track_caller]
fn wait_for_stillness(gateway: &Gateway) {
    STILL.iter().for_each(|gauge| wait_for_value(gateway, gauge, 0.0));
}

/// A call that is under way, on a connection of its own.
#[track_caller]
fn under_way(gateway: &Gateway, agent: &Agent, tool: &str) -> Connection {
    let (request, _) = agent.request("tools/call", json!({ "name": tool, "arguments": {} }));
    let mut connection = Connection::open(gateway.agent);
    connection.send(&request.to_bytes(&gateway.agent.to_string()));
    wait_for_value(gateway, "requests_in_flight", 1.0);
    connection
}

#[test]
fn after_its_client_has_gone_nothing_is_in_flight_whether_it_was_forwarded_or_held() {
    for (tool, is_reset) in [("echo", false), ("echo", true), ("danger", false), ("danger", true)] {
        let recorder = Recorder::start();
        let gateway = Gateway::start(&config(&recorder, ""));
        gateway.wait_until_asked("up");
        let agent = gateway.agent("alice", "up");
        recorder.answer_with(|_| Reply::hang());

        let connection = under_way(&gateway, &agent, tool);
        wait_for_value(&gateway, "connections{listener=\"agent\"}", 1.0);
        if tool == "danger" {
            wait_for_value(&gateway, "approvals_waiting", 1.0);
            wait_for_value(&gateway, "approvals_pending", 1.0);
        }
        if is_reset {
            connection.reset();
        } else {
            drop(connection);
        }

        wait_for_stillness(&gateway);
        // The hold stays for who comes again.
        wait_for_value(&gateway, "approvals_pending", f64::from(u8::from(tool == "danger")));
    }
}

#[test]
fn after_a_panic_nothing_is_in_flight() {
    for point in ["panic:call.judging", "panic:call.answering"] {
        let recorder = Recorder::start();
        let gateway = Launch::new(&config(&recorder, "")).env("PORTCULLIS_FAULT", point).start();
        gateway.wait_until_asked("up");
        let (request, _) = gateway.agent("alice", "up").request("tools/call", json!({ "name": "echo" }));

        assert_eq!(request.send(gateway.agent).status, 500);

        wait_for_stillness(&gateway);
    }
}

#[test]
fn after_a_time_out_of_the_upstream_nothing_is_in_flight() {
    let recorder = Recorder::start();
    let yaml = config(&recorder, "").replace("/mcp\" }", "/mcp\", timeouts: { answer: 300ms } }");
    assert!(yaml.contains("300ms"), "{yaml}");
    let gateway = Gateway::start(&yaml);
    gateway.wait_until_asked("up");
    recorder.answer_with(|_| Reply::hang());

    gateway.agent("alice", "up").tool("echo", json!({})).error();

    wait_for_stillness(&gateway);
    wait_for_value(&gateway, "upstream_errors_total{code=\"upstream.timeout\",upstream=\"up\"}", 1.0);
}

#[test]
fn a_held_call_is_pending_until_it_is_decided_expired_or_withdrawn() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder, ""));
    let agent = gateway.agent("alice", "up");
    for word in ["approve", "deny", "withdraw"] {
        thread::scope(|scope| {
            let call = scope.spawn(|| agent.tool("danger", json!({ "for": word })));
            wait_for_value(&gateway, "approvals_pending", 1.0);
            wait_for_value(&gateway, "approvals_waiting", 1.0);
            assert!(gateway.metric("portcullis_approvals_oldest_pending_timestamp_seconds") > 1e9);
            let held = wait_for_held(&gateway, 1);
            let id = held["id"].as_str().expect("an id");
            let digest = held["digest"].as_str().expect("a digest");
            match word {
                "approve" => say(&gateway, "bob", &["approve", id, "--digest", digest]),
                "deny" => say(&gateway, "bob", &["deny", id, "--reason", "no"]),
                _ => say(&gateway, "alice", &["withdraw", id]),
            }
            .success();
            drop(call.join());
        });
        wait_for_value(&gateway, "approvals_pending", 0.0);
        wait_for_value(&gateway, "approvals_oldest_pending_timestamp_seconds", 0.0);
        wait_for_stillness(&gateway);
    }

    let expiring = in_front_of(&recorder.url(), &RULES.replace("EXPIRES", "2s").replace("wait: 20s", "wait: 1s"));
    gateway.rewrite(&expiring);
    gateway.reload().success();
    let answer = agent.tool("danger", json!({ "for": "nobody" }));
    assert_eq!(answer.result()["isError"], true);
    wait_for_value(&gateway, "approvals_pending", 0.0);
    wait_for_stillness(&gateway);
}

/// `portcullis approvals` is a process of its own, which nobody scrapes.
#[test]
fn a_word_at_the_terminal_is_counted_once_also_when_the_call_then_runs() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&config(&recorder, ""));
    let agent = gateway.agent("alice", "up");
    for (word, more) in [("deny", ["--reason", "no"]), ("approve", ["--digest", ""])] {
        thread::scope(|scope| {
            let call = scope.spawn(|| agent.tool("danger", json!({ "for": word })));
            wait_for_value(&gateway, "approvals_pending", 1.0);
            let held = wait_for_held(&gateway, 1);
            let id = held["id"].as_str().expect("an id");
            let said = if more[1].is_empty() { held["digest"].as_str().expect("a digest") } else { more[1] };
            say(&gateway, "bob", &[word, id, more[0], said]).success();
            drop(call.join());
        });
    }

    let ended = "approvals_total{state=\"completed\",upstream=\"up\"}";
    wait_for_value(&gateway, ended, 1.0);
    for state in ["approved", "denied"] {
        wait_for_value(&gateway, &format!("approvals_total{{state=\"{state}\",upstream=\"up\"}}"), 1.0);
    }
    wait_for_value(&gateway, "approval_decision_seconds_count", 2.0);
    // By now the changes that came after were looked at as well, and they were not counted.
    let connection = under_way(&gateway, &agent, "danger");
    wait_for_value(&gateway, "approvals_pending", 1.0);
    assert_eq!(gateway.metric("portcullis_approval_decision_seconds_count"), 2.0);
    drop(connection);
}

#[test]
fn a_restart_after_a_kill_begins_with_what_is_true_then() {
    let (recorder, hook) = (Recorder::start(), Recorder::start());
    hook.answer_with(|_| Reply::new(410, ""));
    let url = format!("http://{}/hook", hook.address());
    let more = format!(
        "public_url: http://localhost:8080\nadmin: {{ listen: 127.0.0.1:0 }}\napprovals:\n  webhooks:\n    \
         - {{ name: lost, url: \"{url}\", secret: {{ file: hook-secret }} }}\n"
    );
    let launch =
        Launch::new(&config(&recorder, &more)).file("hook-secret", "whsec_c2VjcmV0IG9mIGEgd2ViaG9vayBpbiB0ZXN0cw==");
    fs::set_permissions(launch.path("hook-secret"), fs::Permissions::from_mode(0o600)).expect("the file is ours");
    let gateway = launch.start();
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    recorder.answer_with(|_| Reply::hang());
    let _held = under_way(&gateway, &agent, "danger");
    wait_for_value(&gateway, "approvals_waiting", 1.0);
    wait_for_value(&gateway, "webhook_dead", 1.0);
    let before = gateway.metric("process_start_time_seconds");

    let gateway = gateway.crash_and_restart();

    wait_for_stillness(&gateway);
    // What is in the store is still so; what was in the process is not.
    for (gauge, value) in [("approvals_pending", 1.0), ("webhook_dead", 1.0), ("webhook_waiting", 0.0)] {
        wait_for_value(&gateway, gauge, value);
    }
    assert!(gateway.metric("portcullis_approvals_oldest_pending_timestamp_seconds") > 1e9);
    assert!(gateway.metric("process_start_time_seconds") >= before);
    assert_eq!(gateway.metric("portcullis_config_reload_failed"), 0.0);
    let info = format!("portcullis_config_info{{hash=\"{}\"}}", gateway.snapshot());
    assert_eq!(gateway.metric(&info), 1.0);
}

#[test]
fn what_a_reload_takes_out_has_no_series_any_more_and_what_it_brings_in_has() {
    let (recorder, other) = (Recorder::start(), Recorder::start());
    let two = |first: &str, second: &str| {
        let more = format!("upstreams:\n  {second}: {{ http: {{ url: \"{}\" }} }}\n", other.url());
        config(&recorder, "").replace("upstreams:\n  up:", &format!("{more}  {first}:"))
    };
    let gateway = Gateway::start(&two("up", "leaving"));
    ["up", "leaving"].iter().for_each(|upstream| gateway.wait_until_asked(upstream));
    let agent = gateway.agent("alice", "leaving");
    agent.tool("echo", json!({})).result();
    gateway.wait_for_metric("portcullis_upstream_tools{upstream=\"leaving\"}", 3.0);
    let old = gateway.snapshot();
    // Only the call hangs: what the reload brings in stands at the same address, and is asked what it has.
    other.answer_with(|request| match request.rpc_method().as_str() {
        "tools/call" => Reply::hang(),
        _ => Reply::mcp(request),
    });
    let connection = under_way(&gateway, &agent, "echo");

    gateway.rewrite(&two("up", "coming"));
    gateway.reload().success();

    let none_of = |name: &str| {
        let text = gateway.observe("/metrics").text();
        let found = text.lines().find(|line| line.contains(&format!("\"{name}\""))).map(str::to_owned);
        assert_eq!(found, None, "{name} is not in the configuration");
    };
    none_of("leaving");
    none_of(&old);
    // A call that was under way ends after that, and is counted for nobody.
    drop(connection);
    wait_for_stillness(&gateway);
    none_of("leaving");
    gateway.wait_for_metric("portcullis_upstream_errors_total{code=\"upstream.down\",upstream=\"coming\"}", 0.0);
    gateway.wait_until_asked("coming");
    gateway.wait_until_asked("up");
}
