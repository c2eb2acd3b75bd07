//! What is denied stays denied, however it is written.

use super::{EVERYTHING, settled};
use crate::support::agent::Era;
use crate::support::http::Request;
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use base64::Engine as _;
use serde_json::json;

const RULES: &str = r#"
- { name: all, tools: ["up/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }
- { name: no danger, tools: ["up/danger"], prompts: ["up/secret*"], resources: ["up/file:///etc/*"], deny: {} }
- { name: only alice, tools: ["up/add"], who: { users: [bob] }, deny: {} }
"#;

/// Lets nothing through but one tool, so that no other spelling may be taken for it, nor be forwarded as itself.
const ONLY_ECHO: &str = r#"- { name: echo, tools: ["up/echo"], allow: {} }"#;

// B54: github/gh-aw-mcpg#3332, Hmbown/Codewhale#5157, rcarmo/piclaw#1295.
#[test]
fn denied_object_is_hidden_and_refused_by_name_like_one_that_does_not_exist() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, RULES);
    let (alice, bob) = (gateway.agent("alice", "up"), gateway.agent("bob", "up"));
    let mark = recorder.mark();

    let unknown = [
        ("tools/call", json!({ "name": "danger", "arguments": {} }), "Unknown tool", -32602),
        ("prompts/get", json!({ "name": "secret-prompt" }), "Unknown prompt", -32602),
        ("resources/read", json!({ "uri": "file:///etc/shadow" }), "Resource not found", -32002),
        ("resources/subscribe", json!({ "uri": "file:///etc/shadow" }), "Resource not found", -32002),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "secret-prompt" }, "argument": { "name": "a", "value": "" } }),
            "Unknown prompt",
            -32602,
        ),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/resource", "uri": "file:///etc/shadow" }, "argument": { "name": "a", "value": "" } }),
            "Resource not found",
            -32002,
        ),
    ];
    for (method, params, message, code) in &unknown {
        // Without listing first, and without a session.
        let refused = alice.call(method, params.clone());
        assert_eq!(refused.error(), (*code, (*message).to_owned()), "{method} {params}");
        let id = refused.response.header("x-request-id").expect("every answer has one").to_owned();
        let decision = |gateway: &crate::support::gateway::Gateway| {
            gateway.audit().into_iter().find(|e| e["request"] == id.as_str() && e["event"] == "decision")
        };
        super::wait_until("the record of the decision", || decision(&gateway).is_some());
        let record = decision(&gateway).expect("it is there");
        assert_eq!(record["decision"], "denied", "{record}");
        assert_eq!((record["method"].as_str(), record["upstream"].as_str()), (Some(*method), Some("up")), "{record}");
        let named = [&params["name"], &params["uri"], &params["ref"]["name"], &params["ref"]["uri"]];
        assert!(named.iter().any(|name| name.is_string() && **name == record["object"]), "{record}");
        assert!(record.to_string().contains("no danger"), "the rule is named: {record}");
    }
    assert_eq!(bob.tool("add", json!({})).error().1, "Unknown tool");
    recorder.assert_untouched(mark);

    assert_eq!(alice.tools(), ["add", "echo"]);
    assert_eq!(bob.tools(), ["echo"]);
    alice.tool("add", json!({})).result();
    alice.call("resources/read", json!({ "uri": "note://one" })).result();
    alice.call("prompts/get", json!({ "name": "greet" })).result();
}

// B54: other spellings of a name that is allowed are other names, and fall under default deny.
#[test]
fn other_spelling_of_a_name_is_another_name_and_is_denied() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, ONLY_ECHO);
    let agent = gateway.agent("alice", "up");
    let mark = recorder.mark();

    let spellings = [
        "ECHO",
        "Echo",
        "echo ",
        " echo",
        "echo\n",
        "echo\0",
        "ec%68o",
        "up/echo",
        "up__echo",
        "есho",
        "echo\u{200b}",
        "ｅｃｈｏ",
        "echo/",
        "./echo",
        "*",
        "",
        "danger",
    ];
    for name in spellings {
        assert_eq!(agent.tool(name, json!({})).error(), (-32602, "Unknown tool".to_owned()), "{name:?}");
    }
    for params in [json!({}), json!({ "name": ["echo"] }), json!({ "name": null }), json!({ "Name": "echo" })] {
        let code = agent.call("tools/call", params.clone()).error().0;
        assert!(matches!(code, -32602 | -32600), "{params}: {code}");
    }
    for path in ["/mcp/UP", "/mcp/up%2f", "/mcp/%75p", "/mcp/up;x", "/mcp/./up", "/mcp/up/echo"] {
        let (request, _) = agent.request("tools/call", json!({ "name": "echo", "arguments": {} }));
        let moved = String::from_utf8(request.to_bytes("x")).expect("ASCII").replacen("/mcp/up", path, 1);
        let mut connection = crate::support::http::Connection::open(gateway.agent);
        connection.send(moved.replace("Host: x", &format!("Host: {}", gateway.agent)).as_bytes());
        assert_eq!(connection.response().status, 404, "{path}");
    }
    recorder.assert_untouched(mark);
    // An escape is the same name.
    let escaped = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\u0065cho","arguments":{}}}"#;
    agent.post(escaped).result();
}

// B55: stacklok/toolhive#5745, permission-protocol/deploy-gate#59, NVIDIA/OpenShell#2082, luckyPipewrench/pipelock#329.
#[test]
fn body_that_is_not_one_object_reaches_nobody() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, RULES);
    let agent = gateway.agent("alice", "up");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let danger = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"danger","arguments":{}}}"#;
    let bodies: Vec<(&str, String, i64)> = vec![
        ("a denied call", format!("[{danger}]"), -32600),
        ("a denied call after a ping", format!("[{ping},{danger}]"), -32600),
        ("an allowed one", format!("[{ping}]"), -32600),
        ("nothing", "[]".to_owned(), -32600),
        ("spaces before", format!(" \r\n\t[{danger}]"), -32600),
        ("a byte order mark before", format!("\u{feff}[{danger}]"), -32700),
        ("a byte order mark before one call", format!("\u{feff}{ping}"), -32700),
        ("two objects", format!("{ping}{danger}"), -32700),
        ("one a line", format!("{ping}\n{danger}\n"), -32700),
        ("a separator between", format!("{ping}\u{1e}{danger}"), -32700),
        ("a batch after", format!("{ping}[{danger}]"), -32700),
        ("a batch in a batch", format!("[[{danger}]]"), -32600),
        ("a string", format!("{danger:?}"), -32600),
        ("half of one", danger[..danger.len() - 1].to_owned(), -32700),
        ("empty", String::new(), -32700),
    ];
    let mark = recorder.mark();
    for version in [None, Some("2025-03-26"), Some("2025-11-25"), Some("2026-07-28")] {
        for (what, body, code) in &bodies {
            let request = Request::mcp("/mcp/up", body.clone()).bearer(agent.token.as_deref().unwrap_or_default());
            let request =
                if let Some(version) = version { request.header("MCP-Protocol-Version", version) } else { request };
            let response = request.send(gateway.agent);
            let (status, error) = (response.status, response.json());
            assert_eq!((status, &error["error"]["code"]), (400, &json!(code)), "{what}, {version:?}: {error}");
            // Of a batch nothing is the request; of what follows a whole request, that one is.
            let is_batch = *code == -32600;
            assert!(error["id"].is_null() || (!is_batch && error["id"].is_u64()), "{what}: {error}");
        }
    }
    recorder.assert_untouched(mark);
    agent.post(format!(" \r\n\t{ping}\r\n")).result();
}

fn modern(method: &str, name: &str, params: &str) -> (Vec<(String, String)>, String) {
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method), ("Mcp-Name", name)];
    let headers = headers.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    (headers, format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{params},{meta}}}}}"#))
}

// B56: IBM/mcp-context-forge#6637, meshery-extensions/meshery-mcp-server#52, zentinelproxy/zentinel#443,
// punkpeye/mcp-remote#309, agentgateway/agentgateway#3439.
#[test]
fn headers_and_body_that_disagree_are_refused_and_only_the_body_is_believed() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, RULES);
    let agent = gateway.agent("alice", "up").modern();
    let send = |headers: &[(String, String)], body: &str| {
        let base = Request::mcp("/mcp/up", body).bearer(agent.token.as_deref().unwrap_or_default());
        let request = headers.iter().fold(base, |request, (name, value)| request.header(name, value));
        agent.send(&request, Some(&json!(7)))
    };
    let without = |headers: &[(String, String)], name: &str| -> Vec<_> {
        headers.iter().filter(|(key, _)| key != name).cloned().collect()
    };
    let (good, echo) = modern("tools/call", "echo", r#""name":"echo","arguments":{}"#);
    let (_, danger) = modern("tools/call", "echo", r#""name":"danger","arguments":{}"#);
    let twice = |value: &str| [good.clone(), vec![("Mcp-Name".to_owned(), value.to_owned())]].concat();
    let mark = recorder.mark();

    let mismatches = [
        ("another method", modern("tools/list", "echo", "\"x\":1").0, &echo),
        ("another tool, denied", good.clone(), &danger),
        ("another tool, allowed", modern("tools/call", "add", "\"x\":1").0, &echo),
        ("Mcp-Method is missing", without(&good, "Mcp-Method"), &echo),
        ("Mcp-Name is missing", without(&good, "Mcp-Name"), &echo),
        ("the version is missing", without(&good, "MCP-Protocol-Version"), &echo),
        ("two names", twice("danger"), &echo),
        ("the same name twice", twice("echo"), &echo),
        ("another case", modern("tools/call", "Echo", "\"x\":1").0, &echo),
        ("broken Base64", modern("tools/call", "=?base64?%?=", "\"x\":1").0, &echo),
    ];
    for (what, headers, body) in &mismatches {
        let refused = send(headers, body);
        assert_eq!((refused.status(), refused.error().0), (400, -32020), "{what}: {refused:?}");
    }
    let older =
        [without(&good, "MCP-Protocol-Version"), vec![("MCP-Protocol-Version".into(), "2025-11-25".into())]].concat();
    let refused = send(&older, &echo);
    assert_eq!((refused.status(), refused.error().0), (400, -32020), "version differs from _meta: {refused:?}");
    for params in [
        r#""name":"echo","name":"danger""#,
        r#""name":"danger","name":"echo""#,
        r#""name":"echo","n\u0061me":"danger""#,
    ] {
        let (headers, body) = modern("tools/call", "echo", params);
        assert_eq!(send(&headers, &body).status(), 400, "{params}");
    }
    recorder.assert_untouched(mark);

    send(&good, &echo).result();
    let coded = format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode("zażółć"));
    let (headers, body) = modern("tools/call", &coded, r#""name":"zażółć","arguments":{}"#);
    assert_eq!(send(&headers, &body).result()["content"][0]["text"], "zażółć");
    assert_eq!(recorder.last().header("mcp-name"), Some(coded.as_str()));
    // A client of an older revision sends none of these, and one that does is held to them.
    let legacy = gateway.agent("alice", "up");
    assert_eq!(legacy.era, Era::Legacy);
    legacy.tool("echo", json!({})).result();
    let (request, id) = legacy.request("tools/call", json!({ "name": "add", "arguments": {} }));
    assert_eq!(legacy.send(&request.header("Mcp-Name", "echo"), Some(&id)).status(), 400);
    // What is counted and written down is the body's tool.
    assert!(!gateway.audit_text().contains("\"object\":\"Echo\""));
}

// B56: (i) a server that does not know the newer era.
#[test]
fn upstream_without_discovery_says_so_and_goes_on_working() {
    let recorder = Recorder::start();
    let gateway = settled(&recorder, EVERYTHING);
    let agent = gateway.agent("alice", "up").modern();

    for status in [200, 404] {
        recorder.answer_next(Reply::error(&recorder_request(7), -32601, "Method not found").status(status));
        let (headers, _) = modern("server/discover", "", "\"x\":1");
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": { "_meta": meta } });
        let base = Request::mcp("/mcp/up", body.to_string()).bearer(agent.token.as_deref().unwrap_or_default());
        let request = headers.iter().filter(|(name, _)| name != "Mcp-Name").fold(base, |r, (n, v)| r.header(n, v));

        let answer = agent.send(&request, Some(&json!(7)));

        assert_eq!((answer.status(), answer.error().0), (status, -32601));
        agent.tool("echo", json!({})).result();
    }
}

/// A request with this id, for replies that are made before it comes.
fn recorder_request(id: i64) -> crate::support::recorder::Recorded {
    crate::support::recorder::Recorded {
        connection: 0,
        method: "POST".to_owned(),
        target: "/mcp".to_owned(),
        headers: crate::support::wire::Headers::default(),
        body: json!({ "id": id }).to_string().into_bytes(),
    }
}
