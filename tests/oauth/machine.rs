//! Client credentials: only machines of the configuration, on their own account, for their own routes.

use super::app::{SECRET, app, configuration, gate, of, with_rules};
use crate::support::gate::{Gate, call};
use crate::support::gateway::Gateway;
use crate::support::http::{Request, Response};
use crate::support::oauth::{Client, Tokens, status_with, token};
use serde_json::{Value, json};

fn ask(gateway: &Gateway, client: &Client, more: &[(&str, &str)]) -> Response {
    token(gateway, &client.form(&[&[("grant_type", "client_credentials")], more].concat()))
}

fn machine() -> Client {
    of("checker", Some(SECRET))
}

#[track_caller]
fn is_error(response: &Response, status: u16, code: &str) {
    assert_eq!((response.status, response.json()["error"].as_str()), (status, Some(code)), "{}", response.text());
}

#[test]
fn a_machine_gets_a_token_for_its_route_and_no_refresh_token() {
    let Gate { gateway, .. } = gate("");
    let resource = gateway.url("up");

    for more in [&[][..], &[("resource", &*resource)], &[("scope", "mcp offline_access"), ("resource", &resource)]] {
        let tokens = Tokens::of(&ask(&gateway, &machine(), more));
        assert_eq!((tokens.refresh, &tokens.answer["scope"]), (None, &json!("mcp")));
        // A second may have begun between the token and the answer.
        let expires_in = tokens.answer["expires_in"].as_i64().expect("a number");
        assert!((599..=600).contains(&expires_in), "{expires_in}");
        assert_eq!(status_with(&gateway, &tokens.access), 200);
    }
    let issued = gateway.audit().into_iter().find(|record| record["event"] == "token.issued").expect("a record");
    assert_eq!(issued["principal"]["subject"], json!("client:checker"));
}

#[test]
fn as_55_whoever_is_no_machine_gets_nothing() {
    let Gate { gateway, .. } = gate("");
    let registered = Client::register(&gateway);

    is_error(&ask(&gateway, &app(), &[]), 400, "unauthorized_client");
    is_error(&ask(&gateway, &registered, &[]), 400, "unauthorized_client");
    is_error(&ask(&gateway, &of("checker", None), &[]), 401, "invalid_client");
    is_error(&ask(&gateway, &of("checker", Some("wrong")), &[]), 401, "invalid_client");
    for resource in [gateway.url("two"), gateway.url("nothing"), "https://evil.test/".to_owned()] {
        is_error(&ask(&gateway, &machine(), &[("resource", &resource)]), 400, "invalid_target");
    }
    is_error(&ask(&gateway, &machine(), &[("scope", "\"")]), 400, "invalid_scope");

    assert_eq!(ask(&gateway, &machine(), &[]).status, 200);
}

/// A machine that is called like a person of the gateway.
const BOB: &str = "id: bob";

#[test]
fn rs_20_o_23_a_machine_is_never_the_person_of_its_name_nor_its_owner() {
    let rules = r#"
- { name: people, tools: ["up/echo"], who: { users: [bob, alice] }, allow: {} }
- { name: groups, tools: ["up/echo"], who: { groups: [ops, admins] }, allow: {} }
- { name: machine, tools: ["up/add"], who: { groups: [ci] }, allow: {} }"#;
    let gate = Gate::with(|url| with_rules(url, "", rules).replace("id: checker", BOB));
    let gateway = &gate.gateway;
    let access = Tokens::of(&ask(gateway, &of("bob", Some(SECRET)), &[])).access;
    let result = |tool: &str, access: &str| -> Value {
        Request::mcp("/mcp/up", call(tool, "{}")).bearer(access).send(gateway.agent).json()
    };

    assert!(result("echo", &access)["error"].is_object(), "there is no such tool for it");
    assert!(result("add", &access)["result"].is_object());
    // The person of that name may.
    assert!(result("echo", &gateway.token("bob", "up"))["result"].is_object());
}

#[test]
fn a_machine_that_is_taken_out_or_whose_owner_leaves_is_out_at_once() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let access = Tokens::of(&ask(gateway, &machine(), &[])).access;
    assert_eq!(status_with(gateway, &access), 200);

    gateway.rewrite(&configuration(&gate.recorder.url(), "").replace("owner: alice", "owner: nobody-any-more"));
    gateway.reload().success();

    assert_eq!(status_with(gateway, &access), 401);
    is_error(&ask(gateway, &machine(), &[]), 400, "unauthorized_client");
}
