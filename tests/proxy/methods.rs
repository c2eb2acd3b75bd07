//! Methods: whatever names an object is judged by it, and a method that is not in the table, or not of this era, is not
//! known here, whatever an upstream would make of it.

use crate::support::gate::{Gate, META, Refused, error};
use crate::support::http::Request;

const RULES: &str = r#"
- { name: one of each, tools: ["up/echo"], prompts: ["up/greet"], resources: ["up/note://one", "up/note://{name}"], allow: {} }
- { name: no secrets, tools: ["up/danger"], prompts: ["up/secret"], resources: ["up/note://secret"], deny: {} }
- { name: short greetings, prompts: ["up/greet"], when: { /who: { max_length: 3 , or_absent: false } }, deny: { reason: a longer name } }
"#;

/// A request of the older era.
fn legacy(gate: &Gate, method: &str, params: &str) -> Request {
    gate.post(format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}}}}}"#))
}

/// The same of the newer one; `name` is what `Mcp-Name` says.
fn modern(gate: &Gate, method: &str, name: Option<&str>, params: &str) -> Request {
    let comma = if params.is_empty() { "" } else { "," };
    gate.modern(
        method,
        name,
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}{comma}{META}}}}}"#),
    )
}

/// 2025-11-25 has a code of its own for a resource that is not there; 2026-07-28 took it away.
fn no_resource(number: i64) -> Refused {
    error(200, number, "policy.unlisted").id("7")
}

#[test]
fn a_resource_is_read_and_followed_only_by_its_exact_uri() {
    let gate = Gate::with_rules(RULES);
    let uris = [
        "note://secret",
        "note://nobody",
        "NOTE://one",
        "note://One",
        "note://one/",
        "note://one#x",
        "note://one?x",
        "note://%6fne",
        "note://one%00",
        "note://one\\n",
        "note://one ",
        "note:///one",
        "note://x/../one",
        "note:one",
        "file:///etc/passwd",
        "note://{NAME}",
        "",
    ];
    for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
        let mut answers = Vec::new();
        for uri in uris {
            let params = format!(r#""uri":"{uri}""#);
            answers.push(
                gate.refuses(&format!("{method} {uri}"), &legacy(&gate, method, &params), &no_resource(-32002)).text(),
            );
            if method == "resources/read" && !uri.contains(['\\', ' ']) {
                gate.refuses(uri, &modern(&gate, method, Some(uri), &params), &no_resource(-32602));
            }
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{method}: it does not show which of them there are: {answers:#?}");
        gate.passes(method, &legacy(&gate, method, r#""uri":"note://one""#));
        gate.passes(method, &legacy(&gate, method, r#""uri":"note:\/\/\u006fne""#));
    }
    gate.passes("in the newer era", &modern(&gate, "resources/read", Some("note://one"), r#""uri":"note://one""#));
}

#[test]
fn a_prompt_is_given_only_by_its_exact_name_and_allowed_arguments() {
    let gate = Gate::with_rules(RULES);
    let unlisted = error(200, -32602, "policy.unlisted").id("7");
    for name in ["secret", "nobody", "Greet", "greet ", "greet\\u200b", "\\u0073ecret", "up/greet", "echo"] {
        gate.refuses(name, &legacy(&gate, "prompts/get", &format!(r#""name":"{name}""#)), &unlisted);
    }
    gate.refuses("in the newer era", &modern(&gate, "prompts/get", Some("secret"), r#""name":"secret""#), &unlisted);
    let denied = error(200, 31403, "policy.denied").id("7");
    for who in [r#""Bob""#, "null", "7", r#"["a long list"]"#] {
        let response = gate.refuses(
            who,
            &legacy(&gate, "prompts/get", &format!(r#""name":"greet","arguments":{{"who":{who}}}"#)),
            &denied,
        );
        assert!(response.text().contains("a longer name"), "{}", response.text());
    }
    gate.passes("a longer one", &legacy(&gate, "prompts/get", r#""name":"greet","arguments":{"who":"Alice"}"#));
    gate.passes("none", &legacy(&gate, "prompts/get", r#""name":"\u0067reet""#));
}

#[test]
fn a_completion_follows_the_object_it_completes() {
    let gate = Gate::with_rules(RULES);
    let params = |reference: &str| format!(r#""ref":{reference},"argument":{{"name":"x","value":"y"}}"#);
    let wrong = error(200, -32602, "mcp.params").id("7");
    let cases = [
        ("a denied prompt", r#"{"type":"ref/prompt","name":"secret"}"#, error(200, -32602, "policy.unlisted").id("7")),
        ("an unknown prompt", r#"{"type":"ref/prompt","name":"Greet"}"#, error(200, -32602, "policy.unlisted").id("7")),
        (
            "a denied prompt beside an allowed uri",
            r#"{"type":"ref/prompt","name":"secret","uri":"note://one"}"#,
            error(200, -32602, "policy.unlisted").id("7"),
        ),
        ("a denied resource", r#"{"type":"ref/resource","uri":"note://secret"}"#, no_resource(-32002)),
        (
            "a denied resource beside an allowed name",
            r#"{"type":"ref/resource","uri":"note://secret","name":"greet"}"#,
            no_resource(-32002),
        ),
        ("another template", r#"{"type":"ref/resource","uri":"note://{other}"}"#, no_resource(-32002)),
        ("a tool", r#"{"type":"ref/tool","name":"echo"}"#, wrong.clone()),
        ("no type", r#"{"name":"greet"}"#, wrong.clone()),
        ("another case of the type", r#"{"type":"ref/Prompt","name":"greet"}"#, wrong.clone()),
        ("a prompt without a name", r#"{"type":"ref/prompt","uri":"note://one"}"#, wrong),
    ];
    for (case, reference, how) in cases {
        gate.refuses(case, &legacy(&gate, "completion/complete", &params(reference)), &how);
    }
    for reference in [
        r#"{"type":"ref/prompt","name":"greet"}"#,
        r#"{"type":"ref/resource","uri":"note://{name}"}"#,
        r#"{"type":"ref/resource","uri":"note://one"}"#,
    ] {
        gate.passes(reference, &legacy(&gate, "completion/complete", &params(reference)));
        gate.passes(reference, &modern(&gate, "completion/complete", None, &params(reference)));
    }
}

#[test]
fn a_subscription_is_refused_for_any_resource_in_it_that_is_denied() {
    let gate = Gate::with_rules(RULES);
    let listen = |named: &str| {
        modern(
            &gate,
            "subscriptions/listen",
            None,
            &format!(r#""notifications":{{"toolsListChanged":true,"resourceSubscriptions":{named}}}"#),
        )
    };
    for named in [
        r#"["note://secret"]"#,
        r#"["note://one","note://secret"]"#,
        r#"["note://secret","note://one"]"#,
        r#"["note://one","note://One"]"#,
        r#"[""]"#,
    ] {
        gate.refuses(named, &listen(named), &no_resource(-32602));
    }
    let many = format!("[{}]", vec![r#""note://one""#; 257].join(","));
    for named in
        ["null", r#""note://one""#, r#"{"0":"note://one"}"#, r#"["note://one",7]"#, r#"[["note://one"]]"#, &many]
    {
        gate.refuses(named, &listen(named), &error(200, -32602, "mcp.params").id("7"));
    }
    for named in ["[]", r#"["note://one"]"#, r#"["note://one","note:\/\/one"]"#] {
        gate.passes(named, &listen(named));
    }
}

#[test]
fn a_method_that_is_not_in_the_table_is_not_known() {
    let gate =
        Gate::with_rules(r#"- { name: everything, tools: ["*/*"], prompts: ["*/*"], resources: ["*/*"], allow: {} }"#);
    let methods = [
        "Tools/Call",
        "TOOLS/CALL",
        "tools/Call",
        "tools/call ",
        " tools/call",
        "tools/call\\n",
        "tools/call\\u0000",
        "tools\\u2215call",
        "tools/call/",
        "tools//call",
        "/tools/call",
        "tools.call",
        "tools",
        "tools/",
        "call",
        "tools/call\\u200b",
        "tools%2fcall",
        "tasks/list",
        "tasks/result",
        "sampling/createMessage",
        "elicitation/create",
        "roots/list",
        "rpc.discover",
        "system.listMethods",
        "initialize ",
        "Initialize",
        "ping\\u0000",
        "resources/write",
        "tools/delete",
        "server/Discover",
        "logging/set_level",
        "__proto__",
    ];
    for method in methods {
        let params = r#""name":"echo","arguments":{},"uri":"note://one","taskId":"1""#;
        gate.refuses(method, &legacy(&gate, method, params), &error(200, -32601, "mcp.method").id("7"));
        if !method.contains('\\') {
            gate.refuses(
                method,
                &modern(&gate, method, Some("echo"), params),
                &error(404, -32601, "mcp.method").id("7"),
            );
        }
        let quiet = gate.post(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{{params}}}}}"#));
        gate.refuses(&format!("{method} as a notification"), &quiet, &error(200, -32601, "mcp.method"));
    }
    for method in [
        "notifications/Initialized",
        "notifications/message",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
        "notifications/",
    ] {
        let quiet = gate.post(format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#));
        gate.refuses(method, &quiet, &error(200, -32601, "mcp.method"));
    }
    let params = r#""name":"echo","arguments":{}"#;
    gate.passes("the exact one", &legacy(&gate, "tools/call", params));
    gate.passes("the exact one, escaped", &legacy(&gate, r"tools\/c\u0061ll", params));
    gate.passes("the exact one of the newer era", &modern(&gate, "tools/call", Some("echo"), params));
    for method in ["notifications/initialized", "notifications/roots/list_changed"] {
        gate.passes(method, &gate.post(format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{}}}}"#)));
    }
}

#[test]
fn a_method_of_the_other_era_is_not_known() {
    let gate = Gate::with_rules(RULES);
    let removed = [
        (
            "initialize",
            r#""protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}"#,
            None,
        ),
        ("ping", "", None),
        ("logging/setLevel", r#""level":"debug""#, None),
        ("resources/subscribe", r#""uri":"note://one""#, None),
        ("resources/unsubscribe", r#""uri":"note://one""#, None),
    ];
    for (method, params, name) in removed {
        gate.refuses(method, &modern(&gate, method, name, params), &error(404, -32601, "mcp.method").id("7"));
        gate.passes(method, &legacy(&gate, method, params));
    }
    let added = [("server/discover", ""), ("subscriptions/listen", r#""notifications":{}"#)];
    for (method, params) in added {
        gate.refuses(method, &legacy(&gate, method, params), &error(200, -32601, "mcp.method").id("7"));
        gate.refuses(
            method,
            &legacy(&gate, method, params).header("MCP-Protocol-Version", "2025-11-25"),
            &error(200, -32601, "mcp.method").id("7"),
        );
        gate.passes(method, &modern(&gate, method, None, params));
    }
}
