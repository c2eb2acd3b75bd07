//! Lists in pages, and upstreams that are not there, slow, or out of their mind.

use super::{NO_DANGER, settled, wait_until, wait_until_up};
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use serde_json::{Value, json};

fn tool(n: usize) -> Value {
    json!({ "name": format!("t{n}"), "inputSchema": { "type": "object" } })
}

/// 120 tools in pages of 50, `danger` among the first, and cursors that are its own business.
fn paging(request: &Recorded) -> Reply {
    let (method, params) = (request.rpc_method(), request.json()["params"].clone());
    let (key, entry): (_, fn(usize) -> Value) = match method.as_str() {
        "tools/list" => ("tools", |n| if n == 7 { json!({ "name": "danger" }) } else { tool(n) }),
        "resources/list" => ("resources", |n| json!({ "uri": format!("note://{n}"), "name": "n" })),
        "prompts/list" => ("prompts", |n| json!({ "name": format!("p{n}") })),
        _ => return Reply::mcp(request),
    };
    let from = match params["cursor"].as_str() {
        None => 0,
        Some("é/50=") => 50,
        Some("é/100=") => 100,
        Some(_) => return Reply::error(request, -32602, "Invalid cursor"),
    };
    let entries: Vec<Value> = (from..(from + 50).min(120)).map(entry).collect();
    let mut result = json!({ key: entries });
    if from < 100 {
        result["nextCursor"] = json!(format!("é/{}=", from + 50));
    }
    Reply::result(request, &result)
}

/// Follows the cursors, and says how many entries and pages there were.
#[track_caller]
fn follow(agent: &Agent, method: &str, key: &str) -> (Vec<Value>, usize) {
    let (mut entries, mut params) = (Vec::new(), json!({}));
    for n_pages in 1..20 {
        let result = agent.call(method, params).result();
        entries.extend(result[key].as_array().expect("a list").clone());
        match result.get("nextCursor") {
            None => return (entries, n_pages),
            Some(cursor) => params = json!({ "cursor": cursor }),
        }
    }
    panic!("{method} does not end");
}

// B43: agentgateway/agentgateway#3476, DeusData/codebase-memory-mcp#1247, github/copilot-cli#4006, vercel/ai#19240.
#[test]
fn every_page_of_a_list_comes_through_filtered_with_its_cursor() {
    let recorder = Recorder::start();
    recorder.answer_with(paging);
    let gateway = settled(&recorder, NO_DANGER);
    let agent = gateway.agent("alice", "up");

    let (tools, n_pages) = follow(&agent, "tools/list", "tools");

    assert_eq!((tools.len(), n_pages), (119, 3));
    assert!(tools.iter().all(|tool| tool["name"] != "danger"));
    assert_eq!(follow(&agent, "resources/list", "resources").0.len(), 120);
    assert_eq!(follow(&agent, "prompts/list", "prompts").0.len(), 120);
    agent.tool("t101", json!({})).result();
    assert_eq!(agent.call("tools/list", json!({ "cursor": "made up" })).error().0, -32602);
    let n_tools = gateway.metric("portcullis_upstream_tools{upstream=\"up\"}");
    assert!((n_tools - 120.0).abs() < f64::EPSILON, "the gateway's own copy has {n_tools}");
}

// B43: lists without an end, or with an odd one.
#[test]
fn own_fetch_ends_where_a_cursor_repeats_or_is_null_or_a_page_fails() {
    type Page = fn(&Recorded) -> Reply;
    let kinds: [(&str, usize, Page); 4] = [
        ("same", 8, |request| {
            let tools: Vec<Value> = (0..8).map(tool).collect();
            Reply::result(request, &json!({ "tools": tools, "nextCursor": "same" }))
        }),
        ("null", 8, |request| {
            let tools: Vec<Value> = (0..8).map(tool).collect();
            Reply::result(request, &json!({ "tools": tools, "nextCursor": null }))
        }),
        ("circle", 2, |request| {
            let at = request.json()["params"]["cursor"] == "a";
            let next = if at { "b" } else { "a" };
            Reply::result(request, &json!({ "tools": [tool(usize::from(at))], "nextCursor": next }))
        }),
        ("broken", 1, |request| match request.json()["params"].get("cursor") {
            None => Reply::result(request, &json!({ "tools": [tool(0)], "nextCursor": "2" })),
            Some(_) => Reply::error(request, -32603, "no second page"),
        }),
    ];
    let recorder = Recorder::start();
    recorder.answer_with(move |request| match request.rpc_method().as_str() {
        "tools/list" => {
            let name = request.target.trim_start_matches('/');
            kinds.iter().find(|(kind, ..)| *kind == name).map(|(.., page)| page(request)).expect("one of them")
        }
        _ => Reply::mcp(request),
    });
    let names = kinds.map(|(name, ..)| name);
    let line = |name: &&str| format!("  {name}: {{ http: {{ url: \"http://{}/{name}\" }} }}\n", recorder.address());
    let gateway = Gateway::start(&format!(
        "upstreams:\n{}policy:\n  rules:\n    - {{ name: all, tools: [\"same/*\"], allow: {{}} }}\n",
        names.iter().map(line).collect::<String>()
    ));
    for (name, n_tools, _) in kinds {
        wait_until_up(&gateway, name);
        let known = gateway.metric(&format!("portcullis_upstream_tools{{upstream=\"{name}\"}}"));
        assert!((known - n_tools as f64).abs() < f64::EPSILON, "{name}: {known} tools");
    }
    let asked = |name: &str| {
        let target = format!("/{name}");
        recorder.requests().iter().filter(|r| r.target == target && r.rpc_method() == "tools/list").count()
    };
    assert_eq!((asked("same"), asked("null"), asked("circle")), (2, 1, 3));
    for warning in ["upstream=same", "upstream=circle", "upstream=broken"] {
        let log = gateway.log();
        assert!(log.lines().any(|line| line.contains("WARN") && line.contains(warning)), "{warning} in:\n{log}");
    }
}

// B44: agentgateway/agentgateway#1266, agentgateway#138, avelino/mcp#41, github/gh-aw-mcpg#3718.
#[test]
fn upstream_that_is_dead_silent_or_mad_hurts_neither_the_start_nor_the_others() {
    let (healthy, silent, mad) = (Recorder::start(), Recorder::start(), Recorder::start());
    silent.answer_with(|_| Reply::hang());
    mad.answer_with(|_| Reply::json("{ not JSON"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let dead = free.local_addr().expect("it is bound");
    drop(free);
    let yaml = format!(
        "upstreams:\n  dead: {{ http: {{ url: \"http://{dead}/mcp\" }} }}\n  healthy: {{ http: {{ url: \"{}\" }} }}\n  mad: {{ http: {{ url: \"{}\" }} }}\n  silent: {{ http: {{ url: \"{}\" }} }}\npolicy:\n  rules:\n    - {{ name: all, tools: [\"healthy/*\", \"dead/*\"], allow: {{}} }}\n",
        healthy.url(),
        mad.url(),
        silent.url()
    );

    // It is ready although one of them will not answer for as long as the test runs.
    let gateway = Gateway::start(&yaml);
    let mut agent = gateway.agent("alice", "healthy");
    agent.initialize();
    assert_eq!(agent.tools(), ["add", "danger", "echo"]);
    agent.tool("echo", json!({})).result();
    assert_eq!(gateway.observe("/readyz").status, 200);
    wait_until_up(&gateway, "healthy");
    silent.wait_for_requests(silent.mark(), 0);
    for failed in ["dead", "mad"] {
        let sample = format!("portcullis_upstream_up{{upstream=\"{failed}\"}} 0");
        wait_until(&format!("{failed} to show"), || gateway.observe("/metrics").text().contains(&sample));
        gateway.wait_for_log(&format!("upstream={failed}"));
    }

    // One comes up, and is seen, while another one still has not answered.
    let late = Recorder::start_on(dead);
    wait_until_up(&gateway, "dead");
    assert_eq!((silent.n_connections(), silent.is_open(0)), (1, true), "it waited for the silent one");
    gateway.agent("alice", "dead").tool("echo", json!({})).result();
    assert_eq!(late.calls().len(), 1);
}
