//! `/introspect` (RFC 7662): who may ask about which token, and what is said of all the others.

use super::app::{Codes, SECRET, app, gate, of};
use crate::support::gate::Gate;
use crate::support::gateway::Gateway;
use crate::support::http::{Request, Response};
use crate::support::oauth::{CALLBACK, Client, Tokens, post_form, token};
use serde_json::{Value, json};

fn introspect(gateway: &Gateway, client: &Client, token: &str) -> Response {
    post_form(gateway, "/introspect", &client.form(&[("token", token)]))
}

/// What a client that may ask is told.
#[track_caller]
fn told(gateway: &Gateway, client: &Client, token: &str) -> Value {
    let response = introspect(gateway, client, token);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("cache-control"), Some("no-store"));
    response.json()
}

fn inactive() -> Value {
    json!({ "active": false })
}

fn checker() -> Client {
    of("checker", Some(SECRET))
}

#[test]
fn as_76_a_service_is_told_about_access_tokens_for_its_own_route() {
    let Gate { gateway, .. } = gate("");
    let origin = format!("http://{}", gateway.agent);
    let tokens = Codes::of(&gateway, &origin).log_in(&gateway);

    let active = told(&gateway, &checker(), &tokens.access);

    let expected = [
        ("active", json!(true)),
        ("scope", json!("mcp")),
        ("client_id", json!("app")),
        ("username", json!("alice")),
        ("sub", json!("user:alice")),
        ("aud", json!(format!("{origin}/mcp/up"))),
        ("iss", json!(origin)),
        ("token_type", json!("Bearer")),
    ];
    for (name, value) in expected {
        assert_eq!(active[name], value, "{name}");
    }
    // The ten minutes it is said to live, and the seconds it may have been on the way.
    assert_eq!(active["exp"].as_i64().unwrap() - active["iat"].as_i64().unwrap(), 603);
    // What it may not know is not active for it: a refresh token of another client, and a token for another route.
    assert_eq!(told(&gateway, &checker(), tokens.refresh.as_deref().unwrap()), inactive());
    assert_eq!(told(&gateway, &of("stranger", Some(SECRET)), &tokens.access), inactive());
}

#[test]
fn as_76_a_client_is_told_about_its_own_tokens_and_not_when_they_are_over() {
    let Gate { gateway, .. } = gate("");
    let first = checker().log_in(&gateway, "alice", "up");
    let refresh = first.refresh.unwrap();
    assert_eq!(told(&gateway, &checker(), &refresh)["active"], json!(true));
    let second = Tokens::of(&token(&gateway, &checker().refresh(&refresh)));

    assert_eq!(told(&gateway, &checker(), &refresh), inactive(), "it was used");
    assert_eq!(told(&gateway, &checker(), &second.access)["active"], json!(true));
    assert_eq!(told(&gateway, &checker(), second.refresh.as_deref().unwrap())["active"], json!(true));

    let gone = post_form(&gateway, "/revoke", &checker().form(&[("token", &second.access)]));
    assert_eq!(gone.status, 200);
    for over in [&first.access, &second.access, second.refresh.as_ref().unwrap()] {
        assert_eq!(told(&gateway, &checker(), over), inactive());
    }
}

#[test]
fn as_76_a_client_that_registered_itself_with_a_secret_is_told_about_its_own_tokens_only() {
    let Gate { gateway, .. } = gate("");
    let about = json!({
        "redirect_uris": [CALLBACK],
        "token_endpoint_auth_method": "client_secret_post",
        "grant_types": ["authorization_code", "refresh_token"],
    });
    let client = Client::register_as(&gateway, &about);
    let own = client.log_in(&gateway, "alice", "up");
    let anothers = app().log_in(&gateway, "alice", "up");

    assert_eq!(told(&gateway, &client, &own.access)["active"], json!(true));
    assert_eq!(told(&gateway, &client, &own.refresh.unwrap())["active"], json!(true));
    assert_eq!(told(&gateway, &client, &anothers.access), inactive());
    assert_eq!(told(&gateway, &client, &anothers.refresh.unwrap()), inactive());
}

#[test]
fn as_76_what_is_no_token_of_ours_is_not_active_and_nothing_more_is_said() {
    let Gate { gateway, .. } = gate("");
    let access = Codes::of(&gateway, &format!("http://{}", gateway.agent)).log_in(&gateway).access;
    let (message, _) = access.rsplit_once('.').unwrap();
    let unsigned = format!("{message}.{}", "A".repeat(86));

    for unknown in ["x", "pcr_x", "a.b.c", message, &unsigned, "%00", "é"] {
        assert_eq!(told(&gateway, &checker(), unknown), inactive(), "{unknown}");
    }
    assert_eq!(told(&gateway, &checker(), &access)["active"], json!(true));
}

#[test]
fn as_76_nobody_else_may_ask() {
    let Gate { gateway, .. } = gate("");
    let access = Codes::of(&gateway, &format!("http://{}", gateway.agent)).log_in(&gateway).access;

    let strangers = [
        app(),
        of("nobody", None),
        of("checker", None),
        of("checker", Some("wrong")),
        of("checker", Some("")),
        Client::register(&gateway),
    ];
    for stranger in strangers {
        let refused = introspect(&gateway, &stranger, &access);
        assert_eq!((refused.status, refused.json()["error"].as_str()), (401, Some("invalid_client")), "{stranger:?}");
    }
    // A bearer token is no credential here.
    let bearer = Request::post("/introspect").header("Content-Type", "application/x-www-form-urlencoded");
    assert_eq!(bearer.bearer(&access).body(format!("token={access}")).send(gateway.agent).status / 100, 4);
    let without = post_form(&gateway, "/introspect", &checker().form(&[]));
    assert_eq!((without.status, without.json()["error"].as_str()), (400, Some("invalid_request")));

    assert_eq!(told(&gateway, &checker(), &access)["active"], json!(true));
}
