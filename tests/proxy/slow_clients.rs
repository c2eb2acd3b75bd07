//! Clients that are slow, silent or many: each holds what it may hold for as long as it may, and nobody else waits for it.

use crate::support::gate::{Gate, call, eventually};
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::http::{Connection, Request};
use crate::support::http2::{Client, Deed, Upstream};
use crate::support::reply::Reply;
use crate::support::{PATIENCE, process, wait_for};
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = r#"- { name: everything, tools: ["up/*"], allow: {} }"#;

fn gate(top: &str) -> Gate {
    Gate::with(|url| format!("{top}\n{}", in_front_of(url, RULES)))
}

fn bytes_of(gate: &Gate, request: &Request) -> Vec<u8> {
    request.to_bytes(&gate.gateway.agent.to_string())
}

#[test]
fn d_01_a_head_that_trickles_is_cut_at_its_total_time() {
    let gate = gate("timeouts: { head: 1s }");
    let whole = bytes_of(&gate, &gate.post(call("echo", "{}")));
    let mark = gate.recorder.mark();
    let start = Instant::now();
    let mut connection = Connection::open(gate.gateway.agent);

    // Byte by byte, each sooner than any limit on a single read.
    let mut n_sent = 0;
    let answered = eventually(PATIENCE, || {
        let is_taken = connection.try_send(&whole[n_sent..=n_sent]).is_ok();
        n_sent += 1;
        std::thread::sleep(Duration::from_millis(20));
        (!is_taken || n_sent == whole.len() || start.elapsed() > Duration::from_secs(3)).then_some(())
    });

    assert!(answered.is_some() && n_sent < whole.len(), "it was too quick to show anything");
    if let Ok(response) = connection.try_response() {
        assert_eq!(response.status, 408, "{response:?}");
        assert_eq!(response.json()["error"]["data"]["code"], "request.too_slow");
    }
    assert!(start.elapsed() >= Duration::from_secs(1), "sooner than it may");
    gate.recorder.assert_untouched(mark);
    let counted = "portcullis_connections_refused_total{listener=\"agent\",reason=\"request.too_slow\"}";
    gate.gateway.wait_for_metric(counted, 1.0);
    gate.passes("in time", &gate.post(call("echo", "{}")));
}

#[test]
fn who_says_nothing_is_cut_and_who_waits_between_two_requests_is_not() {
    let gate = gate("timeouts: { head: 1s, keep_alive: 60s }");
    let whole = bytes_of(&gate, &gate.post(call("echo", "{}")));
    let mut silent = Connection::open(gate.gateway.agent);
    let mut waiting = Connection::open(gate.gateway.agent);
    waiting.send(&whole);
    assert_eq!(waiting.response().status, 200);

    // The silent one's end says that the time of a head is over for the other as well, if it were counted.
    assert!(silent.closes_within(PATIENCE), "not one byte is answered");
    std::thread::sleep(Duration::from_millis(200));
    waiting.send(&whole);
    assert_eq!(waiting.response().status, 200, "it may be idle for longer");

    // But once its next head has begun, that has to come to its end.
    waiting.send(&whole[..20]);
    assert_eq!(waiting.response().status, 408);
    assert!(waiting.closes_within(PATIENCE));
}

#[test]
fn who_is_idle_for_too_long_is_cut_on_either_version() {
    let gate = gate("timeouts: { keep_alive: 1s }");
    let mut waiting = Connection::open(gate.gateway.agent);
    waiting.send(&bytes_of(&gate, &gate.post(call("echo", "{}"))));
    assert_eq!(waiting.response().status, 200);
    let client = Client::open(gate.gateway.agent);
    assert_eq!(client.send(&gate.post(call("echo", "{}"))).status, 200);

    assert!(waiting.closes_within(PATIENCE));
    wait_for("no connection", || gate.gateway.metric("portcullis_connections{listener=\"agent\"}") < 0.5);
}

#[test]
fn a_tls_handshake_that_does_not_begin_is_cut() {
    let ca = crate::support::tls::Identity::authority("ours");
    let own = ca.sign(&["localhost"]);
    let yaml = format!(
        "public_url: https://localhost:8443\ntls: {{ cert: own.pem, key: own.key }}\ntimeouts: {{ head: 1s }}\n{}",
        in_front_of("http://127.0.0.1:1/mcp", RULES)
    );
    let launch = crate::support::gateway::Launch::new(&yaml).file("own.pem", &own.cert).file("own.key", &own.key);
    let private = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    std::fs::set_permissions(launch.path("own.key"), private).expect("the file is ours");
    let gateway = launch.start();

    let mut silent = Connection::open(gateway.agent);

    assert!(silent.closes_within(PATIENCE));
    gateway.wait_for_metric("portcullis_connections_refused_total{listener=\"agent\",reason=\"tls\"}", 1.0);
    crate::support::tls::connect(gateway.agent, "localhost", &ca).expect("who does begin gets through");
}

/// A gateway in front of an upstream whose calls of `endless` never end and never pause; others it echoes.
fn endless(top: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start(|request| {
        if request.rpc_method() == "tools/call" && request.json()["params"]["name"] == "endless" {
            return Deed::Endless;
        }
        Deed::Answer(Reply::mcp(request))
    });
    let yaml = format!(
        "{top}\nupstreams:\n  up: {{ http: {{ url: \"{}\", http2: true, timeouts: {{ answer: 20s, idle: 20s }} }} }}\npolicy:\n  rules:\n    {RULES}\n",
        upstream.url()
    );
    let gateway = Gateway::start(&yaml);
    gateway.wait_until_asked("up");
    (upstream, gateway)
}

/// Resident memory of the gateway, in bytes.
fn memory(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux shows it");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// Waits until the upstream may send no further byte, and says how many it has sent.
fn stalled(upstream: &Upstream) -> usize {
    let mut last = (0, Instant::now());
    wait_for("the upstream to be held back", || {
        let n = upstream.n_sent();
        if n != last.0 || n == 0 {
            last = (n, Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(500)
    });
    upstream.n_sent()
}

/// What a kernel keeps for a client that does not read, on both ends of a connection, with room to spare.
const KERNEL: usize = 24 * 1024 * 1024;

#[test]
fn f_26_a_client_that_takes_nothing_holds_its_upstream_back_and_is_cut() {
    let (upstream, gateway) = endless("timeouts: { write: 3s }");
    let agent = gateway.agent("alice", "up");
    agent.tool("echo", serde_json::json!({})).result();
    let before = memory(&gateway);
    let (request, _) = agent.request("tools/call", serde_json::json!({ "name": "endless" }));

    // Nothing of the answer is read.
    let mut connection = agent.open(&request);
    let n_sent = stalled(&upstream);

    assert!(n_sent < KERNEL, "{n_sent} bytes were taken from the upstream");
    let grown = memory(&gateway).saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "it grew by {grown} bytes");
    // F-27: others on the same connection to the upstream go on.
    agent.tool("echo", serde_json::json!({ "meanwhile": true })).result();
    assert_eq!(upstream.n_connections(), 1);

    wait_for("the call to be cut", || gateway.metric("portcullis_requests_in_flight") < 0.5);
    // What the kernel kept still comes, and then the end, in the middle of the answer.
    assert!(connection.try_response().is_err());
    agent.tool("echo", serde_json::json!({ "afterwards": true })).result();
    assert_eq!(upstream.n_connections(), 1, "the connection to the upstream outlives the stream");
}

#[test]
fn f_26_a_stream_of_http_2_that_is_not_taken_is_cut_and_its_connection_goes_on() {
    let (upstream, gateway) = endless("timeouts: { write: 3s }");
    let token = gateway.token("alice", "up");
    let client = Client::open(gateway.agent);
    let post = |tool: &str| Request::mcp("/mcp/up", call(tool, "{}")).bearer(&token);
    assert_eq!(client.send(&post("echo")).status, 200);
    let before = memory(&gateway);
    let mut sending = client.begin_request(&post(""), false).expect("a stream is free");
    sending.body.send_data(call("endless", "{}").into(), true).expect("it is open");

    let n_sent = stalled(&upstream);

    // The client's window, ours to the upstream, and a buffer between.
    assert!(n_sent < 1024 * 1024, "{n_sent} bytes were taken from the upstream");
    let grown = memory(&gateway).saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "it grew by {grown} bytes");
    wait_for("the call to be cut", || gateway.metric("portcullis_requests_in_flight") < 0.5);
    let mut stream = client.answer(sending).expect("it had begun");
    let ending = loop {
        match stream.try_piece() {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert!(ending.is_err(), "the stream is reset, which is no proper end");
    assert_eq!(client.send(&post("echo")).status, 200, "the connection goes on");
}

#[test]
fn f_27_slow_readers_of_one_upstream_connection_do_not_starve_the_others() {
    let (upstream, gateway) = endless("timeouts: { write: 10m }");
    let token = gateway.token("alice", "up");
    let client = Client::open(gateway.agent);
    let post = |tool: &str| Request::mcp("/mcp/up", call(tool, "{}")).bearer(&token);
    let mut held = Vec::new();
    for n in 1..=40 {
        let mut sending = client.begin_request(&post(""), false).expect("a stream is free");
        sending.body.send_data(call("endless", "{}").into(), true).expect("it is open");
        held.push(sending);
        wait_for("the call to arrive", || upstream.calls().len() >= n);
    }
    stalled(&upstream);

    // Another client, since this one takes nothing: its own window is used up.
    let other = Client::open(gateway.agent);
    for _ in 0..20 {
        let answer = other.send(&post("echo"));
        assert!(answer.text().contains("structuredContent"), "{}", answer.text());
    }
    assert!(upstream.n_connections() <= 2, "they share: {}", upstream.n_connections());
    drop(held);
}

#[test]
fn connections_over_the_limit_wait_for_their_turn() {
    let gate = gate("limits: { connections: 2 }\ntimeouts: { head: 60s }");
    let whole = bytes_of(&gate, &gate.post(call("echo", "{}")));
    let (first, second) = (Connection::open(gate.gateway.agent), Connection::open(gate.gateway.agent));
    wait_for("both", || gate.gateway.metric("portcullis_connections{listener=\"agent\"}") > 1.5);
    let mut third = Connection::open(gate.gateway.agent);
    third.send(&whole);
    assert!(!third.closes_within(Duration::from_millis(300)), "it is neither served nor refused");

    drop(first);

    assert_eq!(third.response().status, 200);
    drop(second);
}

#[test]
fn one_address_holds_its_share_of_connections_only() {
    let gate = gate("limits: { connections_per_address: 2 }\ntimeouts: { head: 60s }");
    let (first, second) = (Connection::open(gate.gateway.agent), Connection::open(gate.gateway.agent));
    wait_for("both", || gate.gateway.metric("portcullis_connections{listener=\"agent\"}") > 1.5);

    assert!(Connection::open(gate.gateway.agent).closes_within(PATIENCE));

    assert!(
        gate.gateway.metric("portcullis_connections_refused_total{listener=\"agent\",reason=\"address_limit\"}") > 0.5
    );
    drop(first);
    wait_for("a free place", || gate.gateway.metric("portcullis_connections{listener=\"agent\"}") < 1.5);
    gate.passes("again", &gate.post(call("echo", "{}")));
    drop(second);
}

/// Processor time the gateway has used so far, in clock ticks (a hundredth of a second on Linux).
fn ticks(gateway: &Gateway) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", gateway.id())).expect("it runs");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let number = |at: usize| fields[at].parse::<u64>().expect("a number");
    number(11) + number(12)
}

#[test]
fn f_29_without_descriptors_nothing_spins_and_all_recovers() {
    let gate = gate("timeouts: { head: 60s }");
    let n_open = std::fs::read_dir(format!("/proc/{}/fd", gate.gateway.id())).expect("it runs").count();
    let limit = format!("--nofile={}:", n_open + 6);
    let id = gate.gateway.id().to_string();
    process::run(process::command("prlimit").args(["--pid", &id, &limit]), b"").success();
    let crowd: Vec<Connection> = (0..60).map(|_| Connection::open(gate.gateway.agent)).collect();
    gate.gateway.wait_for_log("no connection can be accepted");
    let (start, used) = (Instant::now(), ticks(&gate.gateway));
    std::thread::sleep(Duration::from_secs(2));

    let share = (ticks(&gate.gateway) - used) as f64 / 100.0 / start.elapsed().as_secs_f64();

    assert!(share < 0.3, "it uses {share} of a processor while it can accept nobody");
    drop(crowd);
    process::run(process::command("prlimit").args(["--pid", &id, "--nofile=1024:"]), b"").success();
    let served =
        eventually(PATIENCE, || gate.post(call("echo", "{}")).is_answered_by(gate.gateway.agent).then_some(()));
    assert!(served.is_some(), "it does not recover");
    gate.gateway.agent("alice", "up").tool("echo", serde_json::json!({})).result();
}
