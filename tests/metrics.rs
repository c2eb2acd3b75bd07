//! The listener for machines that watch: health, readiness, and every metric there is.

use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::Request;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::wait_for;
use portcullis::metrics::Metric;
use serde_json::json;
use std::fs;

const RULES: &str = r#"
- { name: reads, tools: ["up/echo"], allow: {} }
- { name: small, tools: ["up/add"], when: { /a: { max: 9 } }, allow: {} }
"#;

#[test]
fn every_metric_shows_after_a_mixed_run() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");

    agent.tool("echo", json!({})).result();
    agent.tool("echo", json!({})).result();
    agent.tool("add", json!({ "a": 10 })).refusal();
    agent.tool("danger", json!({})).error();
    recorder.answer_next(Reply::new(500, ""));
    agent.tool("echo", json!({})).error();
    let (request, id) = agent.request("tools/call", json!({ "name": "echo" }));
    let foreign = json!({ "jsonrpc": "2.0", "id": "x", "result": {} });
    recorder.answer_next(Reply::sse(&[foreign, json!({ "jsonrpc": "2.0", "id": id, "result": {} })]));
    agent.send(&request, Some(&id)).result();
    Request::mcp("/mcp/up", "{}").send(gateway.agent);
    Request::mcp("/mcp/invented", "{}").send(gateway.agent);
    Request::mcp("/mcp/up", "{}").header("Transfer-Encoding", "gzip").send(gateway.agent);
    agent.call("invented/method", json!({})).error();
    gateway.reload().success();

    let text = gateway.observe("/metrics").text();
    // Those need an issuer, a webhook, a further sink of the audit log.
    let elsewhere = ["issuer_", "webhook_deliveries", "audit_sink"];
    let is_here = |name: &&str| !elsewhere.iter().any(|start| name.starts_with(&format!("portcullis_{start}")));
    for name in Metric::ALL.iter().map(|metric| metric.about().name).filter(is_here) {
        let is_there = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ', '_']));
        assert!(text.lines().any(is_there), "{name} has no sample:\n{text}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help");
    }
    let foreign =
        text.lines().find(|line| !["#", "portcullis_", "process_"].iter().any(|start| line.starts_with(start)));
    assert_eq!(foreign, None, "a metric without the prefix");
    assert!(!text.contains("invented"), "what a client invents is no label: {text}");
    let expected = [
        ("requests_total{method=\"tools/call\",route=\"up\",status=\"200\"}", 6.0),
        ("requests_total{method=\"none\",route=\"up\",status=\"401\"}", 1.0),
        ("requests_total{method=\"none\",route=\"none\",status=\"404\"}", 1.0),
        ("refusals_total{code=\"policy.denied\",route=\"up\"}", 1.0),
        ("refusals_total{code=\"policy.unlisted\",route=\"up\"}", 1.0),
        ("refusals_total{code=\"token.missing\",route=\"up\"}", 1.0),
        ("decisions_total{decision=\"allowed\",method=\"tools/call\",upstream=\"up\"}", 4.0),
        ("decisions_total{decision=\"denied\",method=\"tools/call\",upstream=\"up\"}", 2.0),
        ("upstream_errors_total{code=\"upstream.status\",upstream=\"up\"}", 1.0),
        ("upstream_messages_dropped_total{reason=\"foreign_response\",upstream=\"up\"}", 1.0),
        ("upstream_up{upstream=\"up\"}", 1.0),
        ("upstream_tools{upstream=\"up\"}", 3.0),
        ("requests_in_flight", 0.0),
        ("tokens_cached", 1.0),
        ("audit_available", 1.0),
        ("revocations_current", 1.0),
        ("config_reload_failed", 0.0),
        ("config_reloads_total{result=\"ok\"}", 2.0),
    ];
    for (sample, value) in expected {
        gateway.wait_for_metric(&format!("portcullis_{sample}"), value);
        assert_eq!(gateway.metric(&format!("portcullis_{sample}")), value, "{sample}\n{text}");
    }
}

#[test]
fn health_and_readiness_need_no_token_and_metrics_asks_for_the_one_configured() {
    let recorder = Recorder::start();
    let yaml = in_front_of(&recorder.url(), RULES);
    let gateway = Launch::new(&format!("metrics: {{ listen: \"127.0.0.1:0\", token: {{ env: SCRAPE }} }}\n{yaml}"))
        .env("SCRAPE", "scrape-token")
        .start();
    let metrics = gateway.metrics.expect("it is configured");

    assert_eq!(gateway.observe("/healthz").text(), "ok\n");
    let ready = gateway.observe("/readyz");
    assert_eq!((ready.status, &ready.json()["ready"]), (200, &json!(true)));
    for wrong in [None, Some("wrong"), Some("scrape-toke"), Some("scrape-token ")] {
        let request = Request::get("/metrics");
        let answer = wrong.map_or(request.clone(), |token| request.bearer(&format!("{token}x"))).send(metrics);
        assert_eq!((answer.status, answer.body.len()), (401, 0), "{wrong:?}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let answer = Request::get("/metrics").bearer("scrape-token").send(metrics);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; version=0.0.4")));

    // Neither listener answers for the other.
    assert_eq!(Request::mcp("/mcp/up", "{}").send(metrics).status, 404);
    for path in ["/metrics", "/healthz", "/readyz", "/reload", "/status"] {
        assert_eq!(Request::get(path).send(gateway.agent).status, 404, "{path}");
    }
}

#[test]
fn a_gateway_whose_log_cannot_be_written_is_not_ready_and_recovers() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, RULES);
    let agent = gateway.agent("alice", "up");
    assert_eq!(gateway.observe("/readyz").status, 200);

    let (log, away) = (gateway.path("data/audit"), gateway.path("away"));
    fs::rename(&log, &away).expect("the folder is ours");
    fs::write(&log, "").expect("the folder is ours");
    agent.tool("echo", json!({})).refusal();

    let ready = gateway.observe("/readyz");
    assert_eq!(ready.status, 503);
    assert_eq!(
        ready.json(),
        json!({ "ready": false, "checks": { "audit": false, "revocations": true, "running": true } })
    );
    assert_eq!(gateway.metric("portcullis_audit_available"), 0.0);
    assert_eq!(gateway.observe("/healthz").status, 200, "it is alive, and must not be restarted");

    fs::remove_file(&log).expect("the folder is ours");
    fs::rename(&away, &log).expect("the folder is ours");
    wait_for("readiness", || gateway.observe("/readyz").status == 200);
    assert_eq!(gateway.metric("portcullis_audit_available"), 1.0);
}

#[test]
fn an_upstream_that_is_down_leaves_the_gateway_ready() {
    let gateway = Gateway::start(&in_front_of("http://127.0.0.1:1/mcp", RULES));
    gateway.wait_until_asked("up");

    assert_eq!(gateway.metric("portcullis_upstream_up{upstream=\"up\"}"), 0.0);
    assert_eq!(gateway.observe("/readyz").status, 200);
}

#[test]
fn a_refused_reload_is_on_the_dashboard_until_the_file_is_good_again() {
    let recorder = Recorder::start();
    let yaml = in_front_of(&recorder.url(), RULES);
    let gateway = Gateway::start(&yaml);
    let hash = gateway.snapshot();
    assert_eq!(gateway.metric(&format!("portcullis_config_info{{hash=\"{hash}\"}}")), 1.0);

    gateway.rewrite_raw("nonsense");
    gateway.operate("POST", "/reload");
    assert_eq!(gateway.metric("portcullis_config_reload_failed"), 1.0);
    assert!(gateway.metric("portcullis_config_reloads_total{result=\"refused\"}") >= 1.0);
    assert_eq!(gateway.metric(&format!("portcullis_config_info{{hash=\"{hash}\"}}")), 1.0);

    gateway.rewrite(&yaml);
    gateway.operate("POST", "/reload");
    assert_eq!(gateway.metric("portcullis_config_reload_failed"), 0.0);
}
