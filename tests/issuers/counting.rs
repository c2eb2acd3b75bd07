//! As whom a good token of an external issuer counts, and for what.

use super::{RULES, echo, entry, gate, token};
use crate::support::gate::{Gate, call, error, result};
use crate::support::gateway::{IDENTITY, in_front_of};
use crate::support::http::Request;
use crate::support::issuer::Issuer;
use serde_json::{Value, json};

fn tool(name: &str, token: &str) -> Request {
    Request::mcp("/mcp/up", call(name, "{}")).bearer(token)
}

/// A tool that this principal may not know of.
fn unknown() -> crate::support::gate::Refused {
    error(200, -32602, "policy.unlisted").id("7")
}

#[test]
fn a_good_token_opens_what_its_mapped_groups_may_do_and_nothing_else() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let resource = gate.gateway.url("up");

    gate.passes("operators are ops", &echo(&token(&gate, &issuer)));
    let list = Request::mcp("/mcp/up", r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#);
    let list = list.bearer(&token(&gate, &issuer)).send(gate.gateway.agent);
    let names: Vec<Value> =
        list.json()["result"]["tools"].as_array().expect("tools").iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["echo", "add"]);
    for (case, groups) in [
        ("no groups", json!(null)),
        ("none that is mapped", json!(["Operators", "operators ", "visitors"])),
        ("our own name for it", json!(["ops", "admins"])),
    ] {
        gate.refuses(case, &echo(&issuer.token(&resource, &json!({ "groups": groups }))), &unknown());
    }
    for (case, sub) in [("a stranger called alice", "alice"), ("and with our prefix", "user:alice")] {
        let token = issuer.token(&resource, &json!({ "sub": sub }));
        gate.refuses(case, &tool("danger", &token), &unknown());
        gate.passes(case, &echo(&token));
    }
    gate.refuses("rules without who are for our people", &tool("local", &token(&gate, &issuer)), &unknown());
    // Our own tokens go on as before.
    gate.passes("alice herself", &tool("danger", &gate.token));
    gate.passes("alice herself, without who", &tool("local", &gate.token));
}

#[test]
fn the_log_names_issuer_subject_and_client_of_a_foreign_token() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");

    let request = Request::mcp("/mcp/up", call("echo", "{}")).bearer(&token(&gate, &issuer));
    let response = request.send(gate.gateway.agent);

    let who = &gate.decision(&response)["principal"];
    assert_eq!(*who, json!({ "issuer": issuer.name, "subject": "user:00u1", "client": "app" }));
    assert!(!gate.gateway.audit_text().contains(&token(&gate, &issuer)));
}

#[test]
fn also_makes_a_foreign_subject_the_person_it_names() {
    let (issuer, other) = (Issuer::start(), Issuer::start());
    let also = format!("groups: [admins, ops], also: [{{ issuer: \"{}\", subject: 00u1 }}],", issuer.name);
    let identity = IDENTITY.replace("groups: [admins, ops],", &also);
    let entries = entry(&issuer.name, "") + &entry(&other.name, "");
    let gate = Gate::with(|url| format!("{identity}  issuers:\n{entries}{}", in_front_of(url, RULES)));
    super::wait_for_keys(&gate, &issuer.name);
    super::wait_for_keys(&gate, &other.name);
    let resource = gate.gateway.url("up");
    let alice = issuer.token(&resource, &json!({ "groups": null }));

    gate.passes("her own groups, without any of the issuer's", &echo(&alice));
    gate.passes("her name", &tool("danger", &alice));
    let response = tool("danger", &alice).send(gate.gateway.agent);
    let who = gate.decision(&response)["principal"].clone();
    assert_eq!(who, json!({ "issuer": issuer.name, "subject": "user:00u1", "client": "app", "person": "alice" }));
    // RS-19: the same subject of another issuer is somebody else; RS-20: so is a machine of that name.
    gate.refuses("of another issuer", &tool("danger", &token(&gate, &other)), &unknown());
    let machine = issuer.token(&resource, &json!({ "client_id": "00u1" }));
    gate.refuses("a machine", &tool("danger", &machine), &unknown());
    gate.refuses("another subject", &tool("danger", &issuer.token(&resource, &json!({ "sub": "00u2" }))), &unknown());
}

#[test]
fn a_session_of_one_issuer_is_of_no_use_to_the_same_subject_of_another() {
    let (issuer, other) = (Issuer::start(), Issuer::start());
    let entries = entry(&issuer.name, "") + &entry(&other.name, "");
    let gate = Gate::with(|url| super::config(url, &entries));
    super::wait_for_keys(&gate, &issuer.name);
    super::wait_for_keys(&gate, &other.name);
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "r", "version": "1" } } });
    gate.recorder.answer_next(crate::support::reply::Reply::json(answer.to_string()).header("Mcp-Session-Id", "s-1"));
    let begun = Request::mcp("/mcp/up", initialize.to_string()).bearer(&token(&gate, &issuer)).send(gate.gateway.agent);
    let session = begun.header("mcp-session-id").unwrap_or_else(|| panic!("{}", begun.text())).to_owned();
    let within =
        |token: &str| echo(token).header("Mcp-Session-Id", &session).header("MCP-Protocol-Version", "2025-11-25");

    gate.passes("its own", &within(&token(&gate, &issuer)));
    gate.refuses("another's", &within(&token(&gate, &other)), &error(404, -32600, "mcp.session").id("7"));
}

#[test]
fn a_scope_counts_under_the_name_it_is_mapped_to_and_is_asked_for_under_theirs() {
    let issuer = Issuer::start();
    let rules = r#"
- { name: write, tools: ["up/echo"], who: { groups: [ops], scopes: [write] }, allow: {} }
"#;
    let more =
        ", scopes: { mcp.write: write, mcp.use: mcp }, scopes_supported: [\"api://x/mcp.use\", \"api://x/mcp.write\"]";
    let gate = Gate::with(|url| {
        let server = format!("  authorization_server: \"{}\"\n", issuer.name);
        format!("{IDENTITY}{server}  issuers:\n{}{}", entry(&issuer.name, more), in_front_of(url, rules))
    });
    super::wait_for_keys(&gate, &issuer.name);
    let resource = gate.gateway.url("up");

    gate.passes("mapped", &echo(&issuer.token(&resource, &json!({ "scope": "mcp.write" }))));
    gate.passes("as scp", &echo(&issuer.token(&resource, &json!({ "scope": null, "scp": ["mcp.write"] }))));
    let mark = gate.recorder.mark();
    let lacking = echo(&issuer.token(&resource, &json!({ "scope": "mcp.use mcp.writer write" })));
    let lacking = lacking.send(gate.gateway.agent);
    let challenge = lacking.header("www-authenticate").unwrap_or_default();
    assert_eq!(lacking.status, 403, "{}", lacking.text());
    assert!(challenge.contains(r#"scope="api://x/mcp.use api://x/mcp.write""#), "{challenge}");
    gate.recorder.assert_untouched(mark);

    // And a stranger learns where to get a token, and what to ask for.
    let stranger = Request::mcp("/mcp/up", call("echo", "{}")).send(gate.gateway.agent);
    let challenge = stranger.header("www-authenticate").unwrap_or_default();
    assert!(challenge.contains(r#"scope="api://x/mcp.use api://x/mcp.write""#), "{challenge}");
    let document = Request::get("/.well-known/oauth-protected-resource/mcp/up").send(gate.gateway.agent).json();
    assert_eq!(document["authorization_servers"], json!([issuer.name]));
    assert_eq!(document["scopes_supported"], json!(["api://x/mcp.use", "api://x/mcp.write"]));
    assert_eq!(document["resource"], json!(resource));
}

#[test]
fn a_call_of_a_foreign_principal_that_policy_refuses_says_why() {
    let issuer = Issuer::start();
    let rules = r#"
- { name: ops, tools: ["up/echo"], who: { groups: [ops] }, allow: {} }
- { name: not this, tools: ["up/echo"], when: { /x: { equals: 1 } }, deny: { reason: "not with x" } }
"#;
    let gate =
        Gate::with(|url| format!("{IDENTITY}  issuers:\n{}{}", entry(&issuer.name, ""), in_front_of(url, rules)));
    super::wait_for_keys(&gate, &issuer.name);
    let request = |arguments: &str| Request::mcp("/mcp/up", call("echo", arguments)).bearer(&token(&gate, &issuer));

    gate.refuses("a deny without who is for everybody", &request(r#"{"x":1}"#), &result("not with x"));
    gate.passes("other arguments", &request(r#"{"x":2}"#));
}
