//! Traces: spans at a real collector, the trace an upstream is told, and that no call depends on any of it.

use crate::approval::decide::{RULES, approve, wait_for_held};
use crate::support::agent::Agent;
use crate::support::collector::{Collector, Seen};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::Request;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::tls::Identity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::thread;

/// `up/add` is denied for large numbers, `up/danger` held for bob, the rest allowed.
fn rules() -> String {
    format!(
        "- {{ name: small, tools: [up/add], when: {{ /a: {{ min: 9 }} }}, deny: {{ reason: too large }} }}\n{RULES}"
    )
}

fn config(recorder: &Recorder, collector: &Collector, more: &str) -> String {
    let around = in_front_of(&recorder.url(), &rules());
    format!("{around}approvals: {{ wait: 30s }}\ntraces: {{ otlp: {{ url: \"{}\" }}{more} }}\n", collector.url)
}

#[track_caller]
fn start(recorder: &Recorder, collector: &Collector) -> Gateway {
    let gateway = Gateway::start(&config(recorder, collector, ""));
    gateway.wait_until_asked("up");
    gateway
}

const SPAN: &str = "b7ad6b7169203331";

/// The `n`th trace of a client.
fn trace(n: u8) -> String {
    format!("0af7651916cd43dd8448eb211c8031{n:02x}")
}

fn parent(n: u8) -> String {
    format!("00-{}-{SPAN}-01", trace(n))
}

/// A call with this `traceparent` in its header.
fn call(agent: &Agent, tool: &str, arguments: &Value, traceparent: &str) -> (Request, Value) {
    let (request, id) = agent.request("tools/call", json!({ "name": tool, "arguments": arguments }));
    (request.header("traceparent", traceparent), id)
}

fn named<'a>(spans: &'a [Seen], name: &str) -> &'a Seen {
    let found: Vec<&Seen> = spans.iter().filter(|span| span.0.name == name && span.0.kind != 3).collect();
    assert_eq!(found.len(), 1, "{name} in {spans:#?}");
    found[0]
}

/// The span of the whole request, and the stages by name, each its child and within its time. What went to the upstream is
/// `forward`.
#[track_caller]
fn tree(spans: &[Seen]) -> (&Seen, BTreeMap<&str, &Seen>) {
    let (server, stages): (Vec<&Seen>, Vec<&Seen>) = spans.iter().partition(|span| span.0.kind == 2);
    assert_eq!(server.len(), 1, "{spans:#?}");
    let server = server[0];
    for stage in &stages {
        assert_eq!(stage.parent(), server.id(), "{stage:#?}");
        let (from, to) = (stage.0.start_time_unix_nano, stage.0.end_time_unix_nano);
        assert!(server.0.start_time_unix_nano <= from && from <= to, "{stage:#?}");
    }
    (server, stages.iter().map(|span| (name_of(span), *span)).collect())
}

fn name_of(span: &Seen) -> &'static str {
    let name = if span.0.kind == 3 { "forward" } else { span.0.name.as_str() };
    let known = ["forward", "authenticate", "receive", "decide", "record", "hold"];
    known.into_iter().find(|known| *known == name).unwrap_or_else(|| panic!("a stage called {name}"))
}

fn stages<'a>(stages: &BTreeMap<&'a str, &Seen>) -> Vec<&'a str> {
    stages.keys().copied().collect()
}

#[test]
fn a_real_collector_receives_the_spans_of_every_kind_of_call_in_the_clients_trace() {
    let (recorder, collector) = (Recorder::start(), Collector::rotel());
    let gateway = start(&recorder, &collector);
    let agent = gateway.agent("alice", "up");
    let send = |tool: &str, arguments: &Value, n: u8| {
        let (request, id) = call(&agent, tool, arguments, &parent(n));
        agent.send(&request, Some(&id))
    };

    // Allowed.
    send("echo", &json!({ "word": "sesame" }), 1).result();
    let spans = collector.wait_for(&trace(1), 6);
    let (server, of) = tree(&spans);
    assert_eq!(stages(&of), ["authenticate", "decide", "forward", "receive", "record"]);
    assert_eq!((server.parent().as_str(), server.0.name.as_str()), (SPAN, "tools/call echo"));
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "echo"),
        ("gen_ai.operation.name", "execute_tool"),
        ("portcullis.decision", "allowed"),
        ("portcullis.route", "up"),
        ("enduser.id", "user:alice"),
        ("http.response.status_code", "200"),
        ("client.address", "127.0.0.1"),
    ] {
        assert_eq!(server.get(key).as_deref(), Some(value), "{key} in {server:#?}");
    }
    assert!(!server.has_failed() && server.get("error.type").is_none(), "{server:#?}");
    let told = recorder.last();
    let expected = format!("00-{}-{}-01", trace(1), of["forward"].id());
    assert_eq!(told.header("traceparent"), Some(expected.as_str()), "the upstream's parent is the span of its call");
    let order = ["authenticate", "receive", "decide", "record", "forward"];
    let starts: Vec<u64> = order.iter().map(|name| of[name].0.start_time_unix_nano).collect();
    assert!(starts.is_sorted(), "{starts:?}");

    // Denied.
    send("add", &json!({ "a": 10 }), 2).refusal();
    let spans = collector.wait_for(&trace(2), 5);
    let (server, of) = tree(&spans);
    assert_eq!(stages(&of), ["authenticate", "decide", "receive", "record"]);
    assert_eq!(server.get("error.type").as_deref(), Some("policy.denied"));
    assert!(server.has_failed() && of["record"].has_failed() && !of["decide"].has_failed(), "{spans:#?}");

    // Held and approved.
    thread::scope(|scope| {
        let call = scope.spawn(|| send("danger", &json!({ "n": 1 }), 3));
        approve(&gateway, &wait_for_held(&gateway, 1));
        call.join().expect("it is answered").result();
    });
    let spans = collector.wait_for(&trace(3), 6);
    let (server, of) = tree(&spans);
    assert_eq!(stages(&of), ["authenticate", "decide", "forward", "hold", "receive"]);
    assert_eq!(server.get("portcullis.decision").as_deref(), Some("held"));
    assert!(of["hold"].0.end_time_unix_nano <= of["forward"].0.start_time_unix_nano + 1_000_000, "{spans:#?}");
    assert_eq!(of["forward"].get("portcullis.approval.id"), server.get("portcullis.approval.id"));
    assert!(of["forward"].0.links.is_empty(), "the same request asked for it");
    let expected = format!("00-{}-{}-01", trace(3), of["forward"].id());
    assert_eq!(recorder.last().header("traceparent"), Some(expected.as_str()));

    // The upstream fails, in HTTP and in JSON-RPC, and a tool does.
    let error = |request: &Recorded| Reply::error(request, -32099, "the word is sesame");
    let tool = |request: &Recorded| Reply::result(request, &json!({ "content": [], "isError": true }));
    type Answering = fn(&Recorded) -> Reply;
    let replies: [(&str, Answering); 3] =
        [("upstream.status", |_| Reply::new(500, "sesame")), ("-32099", error), ("tool_error", tool)];
    for (n, (kind, reply)) in (4..).zip(replies) {
        recorder.answer_with(move |request| match request.rpc_method().as_str() {
            "tools/call" => reply(request),
            _ => Reply::mcp(request),
        });
        send("echo", &json!({}), n);
        let spans = collector.wait_for(&trace(n), 6);
        let (server, of) = tree(&spans);
        for span in [server, of["forward"]] {
            assert_eq!(span.get("error.type").as_deref(), Some(kind), "{span:#?}");
            assert!(span.has_failed(), "{span:#?}");
        }
    }

    // The client leaves.
    let mark = recorder.mark();
    recorder.answer_with(|_| Reply::hang());
    let (request, _) = call(&agent, "echo", &json!({}), &parent(7));
    let connection = agent.open(&request);
    recorder.wait_for_requests(mark, 1);
    drop(connection);
    let spans = collector.wait_for(&trace(7), 6);
    let (server, of) = tree(&spans);
    assert_eq!(server.get("error.type").as_deref(), Some("client_gone"));
    assert!(of["forward"].has_failed(), "{spans:#?}");

    assert!(!format!("{:?}", collector.spans()).contains("sesame"), "what is called with and what is answered");
}

#[test]
fn a_call_that_another_request_lets_run_is_linked_to_the_one_that_asked_for_it() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let gateway = Gateway::start(&config(&recorder, &collector, "").replace("wait: 30s", "wait: 1s"));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let send = |n: u8| {
        let (request, id) = call(&agent, "danger", &json!({ "n": 1 }), &parent(n));
        agent.send(&request, Some(&id))
    };

    send(1).refusal();
    approve(&gateway, &wait_for_held(&gateway, 1));
    send(2).result();

    let spans = collector.wait_for(&trace(1), 5);
    let (asked, of) = tree(&spans);
    assert_eq!(stages(&of), ["authenticate", "decide", "hold", "receive"]);
    assert_eq!(asked.get("error.type").as_deref(), Some("policy.held"));
    let spans = collector.wait_for(&trace(2), 6);
    let (_, of) = tree(&spans);
    let links = &of["forward"].0.links;
    assert_eq!(links.len(), 1, "{spans:#?}");
    assert_eq!((&links[0].trace_id, &links[0].span_id), (&asked.0.trace_id, &asked.0.span_id));
}

#[test]
fn the_message_and_its_header_say_the_same_to_the_upstream_and_nothing_else_changes() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let gateway = start(&recorder, &collector);
    let agent = gateway.agent("alice", "up").modern();
    let meta = json!({ "traceparent": parent(1), "tracestate": "a=1", "baggage": "k=v" });
    let params = json!({ "name": "echo", "arguments": { "traceparent": parent(9) }, "_meta": meta });
    let (request, id) = agent.request("tools/call", params);
    let sent = request.body_bytes().to_vec();

    // In the message alone, in both alike, and in both differently: then the message counts, and the other is linked.
    for other in [None, Some(parent(1)), Some(parent(2))] {
        let request = match &other {
            Some(other) => request.clone().header("traceparent", other).header("tracestate", "b=2"),
            None => request.clone(),
        };
        agent.send(&request, Some(&id)).result();

        let told = recorder.last();
        let parent_there = told.header("traceparent").expect("a header").to_owned();
        assert!(parent_there.starts_with(&format!("00-{}-", trace(1))), "{parent_there}");
        assert_eq!(told.json()["params"]["_meta"]["traceparent"], json!(parent_there));
        let expected = String::from_utf8(sent.clone()).unwrap().replace(&parent(1), &parent_there);
        assert_eq!(String::from_utf8(told.body.clone()).unwrap(), expected, "and nothing else is another");
        let state = if other == Some(parent(1)) { "b=2" } else { "a=1" };
        assert_eq!(told.header("tracestate"), Some(state), "{other:?}");
        assert_eq!(told.headers.all("traceparent").len(), 1);
    }

    let spans = collector.wait_for(&trace(1), 18);
    let linked: Vec<&Seen> = spans.iter().filter(|span| !span.0.links.is_empty()).collect();
    assert_eq!(linked.len(), 1);
    assert_eq!(linked[0].0.links[0].trace_id, collector_bytes(&trace(2)));
    assert!(spans.iter().all(|span| span.0.kind != 2 || span.parent() == SPAN));
    assert_eq!(spans[0].0.trace_state, "a=1");
}

fn collector_bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("ASCII"), 16).expect("hexadecimal"))
        .collect()
}

/// W3C Trace Context §3.2: whatever is not in form.
fn malformed() -> Vec<String> {
    let good = parent(1);
    let (trace, flags) = (trace(1), "-01");
    let with = |from: &str, to: &str| good.replace(from, to);
    vec![
        String::from("x"),
        String::from("00"),
        String::from("00-"),
        String::from("---"),
        String::from("null"),
        trace.clone(),
        with(&trace, &"0".repeat(32)),
        with(SPAN, &"0".repeat(16)),
        with(&trace, &trace.to_ascii_uppercase()),
        with(SPAN, &SPAN.to_ascii_uppercase()),
        good.to_ascii_uppercase().replace("00-0A", "00-0a"),
        with("00-0a", "ff-0a"),
        with("00-0a", "FF-0a"),
        with("00-0a", "0-0a"),
        with("00-0a", "000-0a"),
        with("00-0a", "-0a"),
        with("00-0a", "0x-0a"),
        with("00-0a", ".0-0a"),
        with("00-0a", "0a"),
        with("-", "_"),
        with("-", "--"),
        with("-", ""),
        with("-", " - "),
        with("-", ":"),
        with(&trace, &trace[1..]),
        with(&trace, &format!("{trace}0")),
        with(&trace, &format!("{}g", &trace[1..])),
        with(&trace, &format!("{} ", &trace[1..])),
        with(&trace, ""),
        with(SPAN, &SPAN[1..]),
        with(SPAN, &format!("{SPAN}0")),
        with(SPAN, &format!("{}z", &SPAN[1..])),
        with(SPAN, ""),
        with(flags, ""),
        with(flags, "-"),
        with(flags, "-1"),
        with(flags, "-001"),
        with(flags, "-0G"),
        with(flags, "-.0"),
        with(flags, "-01-"),
        with(flags, "-01-00"),
        with(flags, "-01x"),
        format!("{good},{good}"),
        format!("{good};{good}"),
        format!("\"{good}\""),
        format!("traceparent: {good}"),
        format!("{}x", with("00-0a", "cc-0a")),
        with("00-0a", "cc-0a").replace(flags, ""),
        "0".repeat(55),
        good.repeat(40),
    ]
}

#[test]
fn what_is_no_traceparent_begins_a_new_trace_wherever_it_stands() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let gateway = start(&recorder, &collector);
    let agent = gateway.agent("alice", "up");
    let is_new = |told: &Recorded, why: &str| {
        let parent = told.header("traceparent").unwrap_or_else(|| panic!("{why}: none")).to_owned();
        assert_eq!(parent.len(), 55, "{why}: {parent}");
        assert!(parent.starts_with("00-") && parent.ends_with("-01"), "{why}: {parent}");
        assert!(!parent.contains(&trace(1)) && !parent.contains(SPAN), "{why}: {parent}");
        assert_eq!(told.headers.all("traceparent").len(), 1);
        assert_eq!(told.header("tracestate"), None, "{why}: a state without its parent means nothing");
    };
    let malformed = malformed();
    assert!(malformed.len() >= 48);

    for text in &malformed {
        let (request, id) = call(&agent, "echo", &json!({}), text);
        agent.send(&request.header("tracestate", "a=1"), Some(&id)).result();
        is_new(&recorder.last(), text);
        let params = json!({ "name": "echo", "_meta": { "traceparent": text } });
        agent.call("tools/call", params).result();
        let told = recorder.last();
        is_new(&told, text);
        assert_eq!(told.json()["params"]["_meta"]["traceparent"], json!(told.header("traceparent")), "{text}");
    }
    // Twice.
    let (request, id) = call(&agent, "echo", &json!({}), &parent(1));
    agent.send(&request.header("traceparent", &parent(1)), Some(&id)).result();
    is_new(&recorder.last(), "twice");
    // In the message it is no text: the message is the client's, and the header is ours.
    let params = json!({ "name": "echo", "_meta": { "traceparent": 7 } });
    agent.call("tools/call", params).result();
    is_new(&recorder.last(), "a number");
    assert_eq!(recorder.last().json()["params"]["_meta"]["traceparent"], json!(7));
    // One that is not in form in the message takes nothing from the one in the header.
    let (request, id) = agent.request("tools/call", json!({ "name": "echo", "_meta": { "traceparent": "x" } }));
    agent.send(&request.header("traceparent", &parent(1)), Some(&id)).result();
    assert!(recorder.last().header("traceparent").is_some_and(|parent| parent.contains(&trace(1))));
}

#[test]
fn a_client_decides_on_its_own_trace_and_the_configuration_on_all_others() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let gateway = Gateway::start(&config(&recorder, &collector, ", sample: 0"));
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");

    agent.tool("echo", json!({})).result();
    let of_ours = recorder.last().header("traceparent").expect("it is told that it is not recorded").to_owned();
    let (request, id) = call(&agent, "echo", &json!({}), &parent(1).replace("-01", "-00"));
    agent.send(&request, Some(&id)).result();
    let of_theirs = recorder.last().header("traceparent").expect("a header").to_owned();
    let (request, id) = call(&agent, "echo", &json!({}), &parent(2));
    agent.send(&request, Some(&id)).result();

    assert!(of_ours.ends_with("-00"), "{of_ours}");
    assert!(of_theirs.starts_with(&format!("00-{}-", trace(1))) && of_theirs.ends_with("-00"), "{of_theirs}");
    collector.wait_for(&trace(2), 6);
    let foreign: Vec<_> = collector.spans().into_iter().filter(|span| span.trace() != trace(2)).collect();
    assert!(foreign.is_empty(), "{foreign:#?}");
    // What is not recorded as spans can still be found in the audit log.
    let trace_of_ours = of_ours.split('-').nth(1).expect("a trace");
    let shown = gateway.cli(&["audit", "show", trace_of_ours]).success().stdout;
    assert!(shown.contains("echo"), "{shown}");
}

#[test]
fn without_traces_not_a_byte_is_another_and_nobody_is_connected_to() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let gateway = start(&recorder, &collector);
    let agent = gateway.agent("alice", "up").modern();
    let meta = json!({ "traceparent": parent(1), "tracestate": "a=1" });
    let (request, id) = agent.request("tools/call", json!({ "name": "echo", "_meta": meta }));
    let request = request.header("traceparent", &parent(2)).header("tracestate", "b=2").header("baggage", "k=v");
    agent.send(&request, Some(&id)).result();
    assert_ne!(recorder.last().body, request.body_bytes(), "on, the span is another");
    collector.wait_for(&trace(1), 6);

    gateway.rewrite(&format!("{}approvals: {{ wait: 30s }}\n", in_front_of(&recorder.url(), &rules())));
    gateway.reload().success();
    let mark = collector.recorder.mark();
    agent.send(&request, Some(&id)).result();

    let told = recorder.last();
    assert_eq!(told.body, request.body_bytes());
    for (name, value) in [("traceparent", parent(2)), ("tracestate", "b=2".into()), ("baggage", "k=v".into())] {
        assert_eq!(told.headers.all(name), [value.as_str()], "{name}");
    }
    let (bare, id) = agent.request("tools/call", json!({ "name": "echo" }));
    agent.send(&bare, Some(&id)).result();
    assert_eq!(recorder.last().header("traceparent"), None);
    let records = gateway.audit();
    assert_eq!(records.last().and_then(|record| record.get("trace")), None, "{records:#?}");
    collector.recorder.assert_untouched(mark);
}

#[test]
fn calls_go_on_while_the_collector_is_away_and_what_waits_arrives_when_it_is_back() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let address = collector.recorder.address();
    // A port that is known, and where nobody is.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let config = config(&recorder, &collector, "").replace(&address.to_string(), &nobody.to_string());
    let gateway = Gateway::start(&config);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");

    for n in 1..=20 {
        let (request, id) = call(&agent, "echo", &json!({}), &parent(n));
        agent.send(&request, Some(&id)).result();
    }
    gateway.wait_for_metric("portcullis_trace_export_failures_total", 1.0);
    agent.tool("echo", json!({})).result();
    gateway.wait_for_log("spans cannot be sent");

    let back = Collector::start_on(nobody);
    back.wait_for(&trace(20), 6);
    gateway.wait_for_metric("portcullis_trace_spans_exported_total", 120.0);
    assert_eq!(gateway.metric("portcullis_trace_spans_dropped_total{reason=\"full\"}"), 0.0);

    // One that does not want them is not asked again.
    back.recorder.answer_with(|_| Reply::new(401, ""));
    let (request, id) = call(&agent, "echo", &json!({}), &parent(21));
    agent.send(&request, Some(&id)).result();
    gateway.wait_for_metric("portcullis_trace_spans_dropped_total{reason=\"refused\"}", 6.0);
}

#[test]
fn what_is_left_at_the_stop_is_sent_and_a_collector_that_hangs_does_not_keep_the_gateway() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let mut gateway = start(&recorder, &collector);
    let agent = gateway.agent("alice", "up");
    let (request, id) = call(&agent, "echo", &json!({}), &parent(1));
    agent.send(&request, Some(&id)).result();
    assert!(gateway.stop().success());
    collector.wait_for(&trace(1), 6);

    let mut gateway = start(&recorder, &collector);
    let agent = gateway.agent("alice", "up");
    collector.recorder.answer_with(|_| Reply::hang());
    let (request, id) = call(&agent, "echo", &json!({}), &parent(2));
    agent.send(&request, Some(&id)).result();
    assert!(gateway.stop().success(), "within the patience of a test");
}

#[test]
fn a_collector_over_tls_is_trusted_by_the_authority_that_is_named_and_gets_its_secret_header() {
    let authority = Identity::authority("the collector's");
    let (recorder, collector) = (Recorder::start(), Collector::start_tls(&authority.sign(&["127.0.0.1"])));
    let more = "\", ca: ca.pem, headers: { X-Api-Key: { env: COLLECTOR_KEY } }";
    let trusting = config(&recorder, &collector, "").replace("/v1/traces\"", &format!("/v1/traces{more}"));
    let gateway = Launch::new(&trusting).file("ca.pem", &authority.cert).env("COLLECTOR_KEY", "open-sesame").start();
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let (request, id) = call(&agent, "echo", &json!({}), &parent(1));
    agent.send(&request, Some(&id)).result();

    collector.wait_for(&trace(1), 6);
    assert_eq!(collector.recorder.last().header("x-api-key"), Some("open-sesame"));
    assert!(!gateway.log().contains("open-sesame"));

    // Without that authority it is nobody.
    let mark = collector.recorder.mark();
    let wary = trusting.replace(", ca: ca.pem", "");
    gateway.rewrite(&wary);
    gateway.reload().success();
    let (request, id) = call(&agent, "echo", &json!({}), &parent(2));
    agent.send(&request, Some(&id)).result();
    gateway.wait_for_metric("portcullis_trace_export_failures_total", 1.0);
    collector.recorder.assert_untouched(mark);
}

#[test]
fn strangers_are_traced_up_to_their_refusal_and_the_records_name_the_trace() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let gateway = start(&recorder, &collector);

    Request::mcp("/mcp/up", "{}").header("traceparent", &parent(1)).send(gateway.agent);
    let spans = collector.wait_for(&trace(1), 2);
    assert_eq!(named(&spans, "POST /mcp/up").get("error.type").as_deref(), Some("token.missing"));
    assert!(named(&spans, "authenticate").has_failed());

    let agent = gateway.agent("alice", "up");
    agent.tool("no-such-tool-sesame", json!({})).result();
    let (request, id) = call(&agent, "invented", &json!({}), &parent(2));
    agent.send(&request, Some(&id)).result();
    let shown = gateway.cli(&["audit", "show", &trace(2)]).success().stdout;
    assert!(shown.contains("invented"), "{shown}");
}

#[test]
fn a_secret_in_a_name_or_an_id_does_not_reach_the_collector() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    let gateway = start(&recorder, &collector);
    let agent = gateway.agent("alice", "up");
    let secrets = ["ghp_x7Kq2mWz9Rt4Yv8Bn3Lc6Hd1Jf5Gs0Pa2Qe4", "AKIAQ7RX2M9ZKW4TB8LV"];

    for (n, secret) in (1..).zip(secrets) {
        let message = json!({ "jsonrpc": "2.0", "id": secret, "method": "tools/call", "params": { "name": secret } });
        let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
        let request = request.body(message.to_string()).header("traceparent", &parent(n));
        let request = request.header("tracestate", &format!("a={secret}"));
        agent.send(&request, Some(&json!(secret))).result();
        let spans = collector.wait_for(&trace(n), 6);
        let (server, _) = tree(&spans);
        assert!(server.get("gen_ai.tool.name").is_some_and(|name| name.starts_with("hmac:")), "{server:#?}");
        let told = recorder.last();
        assert_eq!(told.json()["params"]["name"], secret, "the call itself is the client's own matter");
        assert!(told.header("tracestate").is_some_and(|state| state.contains(secret)));
    }

    let bytes: Vec<u8> = collector.recorder.requests().into_iter().flat_map(|request| request.body).collect();
    for secret in secrets {
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{secret}");
    }
}

#[test]
fn each_message_of_a_batch_is_a_span_of_its_own_within_that_of_the_request() {
    let (recorder, collector) = (Recorder::start(), Collector::start());
    recorder.answer_with(|request| match request.rpc_method().as_str() {
        "initialize" => Reply::result(
            request,
            &json!({ "protocolVersion": "2025-03-26", "capabilities": {},
            "serverInfo": { "name": "s", "version": "1" } }),
        )
        .header("Mcp-Session-Id", "s1"),
        _ => Reply::mcp(request),
    });
    let gateway = start(&recorder, &collector);
    let mut agent = gateway.agent("alice", "up").of_revision("2025-03-26");
    agent.initialize();
    let message = |id: u8, meta: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "echo", "_meta": meta } });
    let body = json!([message(1, json!({})), message(2, json!({ "traceparent": parent(2) }))]).to_string();
    let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
    let request = request.body(body).header("traceparent", &parent(1));

    let response = request.send(gateway.agent);

    assert_eq!(response.status, 200, "{response:?}");
    let spans = collector.wait_for(&trace(1), 7);
    let requests: Vec<&Seen> = spans.iter().filter(|span| span.0.kind == 2).collect();
    assert_eq!(requests.len(), 2, "{spans:#?}");
    let whole = requests.iter().find(|span| span.parent() == SPAN).expect("that of the request");
    let one = requests.iter().find(|span| span.parent() == whole.id()).expect("that of the message");
    assert_eq!(one.get("jsonrpc.request.id").as_deref(), Some("1"));
    // The other message says itself where it belongs.
    let spans = collector.wait_for(&trace(2), 4);
    let (server, _) = tree(&spans);
    assert_eq!((server.parent().as_str(), server.0.links.len()), (SPAN, 0));
}
