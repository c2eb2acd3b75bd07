//! Metrics: their number is the configuration's, not the clients'; and what is scraped can be parsed.

use super::{EVERYTHING, settled_with};
use crate::support::gateway::Gateway;
use crate::support::http::{Connection, Request};
use crate::support::recorder::Recorder;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Reads the text format strictly and returns its samples; a small `promtool check metrics`.
#[track_caller]
fn parse(text: &str) -> BTreeMap<String, f64> {
    let (mut samples, mut kinds, mut current) = (BTreeMap::new(), BTreeMap::new(), String::new());
    let mut finished = BTreeSet::new();
    assert!(text.ends_with('\n'), "the last line ends");
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next(), words.next().expect("a name"), words.next().expect("a text"));
            match what {
                Some("HELP") => {
                    assert!(finished.insert(name.to_owned()), "{name} stands there twice");
                    current = name.to_owned();
                }
                Some("TYPE") => {
                    assert!(name == current && ["counter", "gauge", "histogram"].contains(&rest), "{line}");
                    kinds.insert(name.to_owned(), rest.to_owned());
                }
                _ => panic!("a comment that means nothing: {line}"),
            }
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        let name = sample.split('{').next().expect("a name");
        assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':'), "{line}");
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end).filter(|f| *f == current));
        assert!(name == current || family.is_some(), "{line} stands under {current}");
        let kind = kinds.get(&current).map(String::as_str);
        assert_eq!(kind == Some("histogram"), name != current, "{line}");
        assert_eq!(kind == Some("counter"), name.ends_with("_total"), "{line}");
        check_labels(sample, line);
        assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
    }
    samples
}

#[track_caller]
fn check_labels(sample: &str, line: &str) {
    let Some((_, labels)) = sample.split_once('{') else {
        return;
    };
    let mut rest = labels.strip_suffix('}').unwrap_or_else(|| panic!("no end: {line}"));
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "label {name}: {line}");
        let end = after.find('"').unwrap_or_else(|| panic!("no end of a value: {line}"));
        let value = &after[..end];
        assert!(value.bytes().all(|b| b.is_ascii_graphic() && b != b'\\'), "value {value:?}: {line}");
        rest = after[end + 1..].strip_prefix(',').unwrap_or(&after[end + 1..]);
    }
}

#[track_caller]
fn series(gateway: &Gateway) -> BTreeMap<String, f64> {
    let response = gateway.observe("/metrics");
    assert_eq!(response.status, 200);
    parse(std::str::from_utf8(&response.body).expect("the format is UTF-8"))
}

fn resident(gateway: &Gateway) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// What a client can invent, the n-th of each kind. Not all of it is valid, and that is the point.
fn inventions(n: usize, token: Option<&str>) -> Vec<Vec<u8>> {
    let odd = ["x", "\\\"", "\\n", "\\\\", "é", "{le=\\\"1\\\"}"][n % 6];
    let bodies = [
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"CANARY{n}{odd}","arguments":{{}}}}}}"#
        ),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"CANARY/{n}{odd}"}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{}},"clientInfo":{{"name":"CANARY{n}{odd}","version":"{n}"}}}}}}"#
        ),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{"uri":"CANARY://{n}{odd}"}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/CANARY{n}"}}"#),
    ];
    let base = |path: &str| {
        let request = Request::post(path).header("Content-Type", "application/json");
        if let Some(token) = token { request.bearer(token) } else { request }
    };
    let mut requests: Vec<Request> = bodies.into_iter().map(|body| base("/mcp/up").body(body)).collect();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    requests.push(base(&format!("/CANARY/{n}?q={n}")).body(ping));
    requests.push(base(&format!("/mcp/canary{n}")).body(ping));
    requests.push(base("/mcp/up").header("Mcp-Session-Id", &format!("CANARY{n}")).body(ping));
    requests.push(base("/mcp/up").header("MCP-Protocol-Version", &format!("2099-CANARY-{n}")).body(ping));
    requests.push(Request::new(&format!("CANARY{n}"), "/mcp/up"));
    requests.into_iter().map(|request| request.to_bytes("HOST")).collect()
}

// B61: agentic-community/mcp-gateway-registry#1534, hrygo/hotplex#86, apache/shenyu#6671, telekom/k8s-breakglass#463.
#[test]
fn what_clients_invent_makes_no_series_and_no_memory() {
    const ROUNDS: usize = 120;
    let recorder = Recorder::start();
    let gateway = settled_with("audit: { sync: relaxed }", &recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up");
    let mut connection = Connection::open(gateway.agent);
    let mut round = |n: usize| {
        for token in [None, agent.token.as_deref()] {
            for bytes in inventions(n, token) {
                let text =
                    String::from_utf8(bytes).expect("text").replace("Host: HOST", &format!("Host: {}", gateway.agent));
                // A refusal may close the connection.
                let is_answered = connection.try_send(text.as_bytes()).is_ok()
                    && connection.try_response().is_ok_and(|r| r.status > 0);
                if !is_answered || text.starts_with("CANARY") {
                    connection = Connection::open(gateway.agent);
                }
            }
        }
    };
    // Every kind once, with every odd character: from then on nothing new may come.
    (0..12).for_each(&mut round);
    let (before, memory) = (series(&gateway), resident(&gateway));

    (12..ROUNDS).for_each(&mut round);
    let mut connection = Connection::open(gateway.agent);
    for n in 0..5000 {
        let (request, _) = agent.request("tools/call", json!({ "name": format!("CANARY-tool-{n}") }));
        connection.send(&request.to_bytes(&gateway.agent.to_string()));
        assert_eq!(connection.response().status, 200, "the {n}th");
    }
    for raw in [
        &b"GET /mcp/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"POST /mcp/up HTTP/1.1\r\nHost: \xff\r\n\r\n",
        b"\xff\xff\r\n\r\n",
    ] {
        let mut connection = Connection::open(gateway.agent);
        connection.send(raw);
        drop(connection.try_response());
    }

    let after = series(&gateway);
    let known: BTreeSet<_> = before.keys().collect();
    let new: Vec<_> = after.keys().filter(|key| !known.contains(key)).collect();
    assert!(new.len() <= 20 && new.iter().all(|key| !key.contains("CANARY")), "new series: {new:#?}");
    let text = gateway.observe("/metrics").text();
    let said = crate::observe::prometheus::promtool(&["check", "metrics"], text.as_bytes()).success();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));
    for secret in ["CANARY", "canary", "alice", "Bearer", agent.token.as_deref().unwrap_or_default(), "/mcp/"] {
        assert!(!text.contains(secret), "{secret} in:\n{text}");
    }
    let grown = resident(&gateway).saturating_sub(memory);
    assert!(grown < 32 * 1024, "memory grew by {grown} KiB");
    agent.tool("echo", json!({})).result();
    let sample = "portcullis_decisions_total{decision=\"allowed\",method=\"tools/call\",upstream=\"up\"}";
    assert!(series(&gateway).get(sample).is_some_and(|n| *n >= ROUNDS as f64), "the calls themselves are counted");
}
