//! The whole way of a client that takes nothing but what the RFCs allow (`oauth4webapi`): every document and every answer of
//! the authorization server is checked by somebody else's reading of them.

use super::desk::Desk;
use crate::support::{process, sdk};
use serde_json::{Value, json};

/// What the client got, for this way to prove who it is.
#[track_caller]
fn goes_all_the_way(method: &str) {
    let desk = Desk::open();
    let mut command = sdk::program("strict.mjs");
    command.env("URL", desk.url()).env("AUTH_METHOD", method).env("BROWSER", desk.person.browser());

    let finished = process::run(&mut command, b"").success();

    let got: Value = serde_json::from_str(finished.stdout.trim()).unwrap_or_else(|_| panic!("{finished:?}"));
    assert_eq!(got["bare"], 401, "{got:#}");
    let documents = format!("{}/.well-known/oauth-protected-resource/mcp/up", desk.tap.origin());
    let challenge = got["challenge"].as_str().unwrap_or_default();
    assert!(challenge.contains(&format!("resource_metadata=\"{documents}\"")), "{challenge}");
    // OpenID Connect Discovery adds members; none says something else.
    for (name, value) in got["server"].as_object().expect("it has metadata") {
        assert_eq!(&got["openid"][name], value, "{name}");
    }
    assert_eq!(got["client"]["token_endpoint_auth_method"], method);
    assert_eq!(got["client"]["client_secret"].is_string(), method != "none");
    check_claims(&desk, &got);
    check_introspection(&got, method);
    assert_eq!((&got["calls"][0], &got["calls"][1]), (&json!(200), &json!(200)), "{got:#}");
    let refused = &got["calls"][2];
    assert_eq!(refused["status"], 401, "{refused}");
    assert_eq!(refused["challenges"][0]["parameters"]["error"], "invalid_token", "{refused}");
    for kind in
        ["client.registered", "login.succeeded", "consent.given", "token.issued", "token.refreshed", "token.revoked"]
    {
        assert_eq!(desk.events(kind).len(), 1, "{kind}");
    }
    desk.assert_no_secret_is_written();
}

/// RFC 9068 §2.2; the rest of it, and the signature, the client has checked.
#[track_caller]
fn check_claims(desk: &Desk, got: &Value) {
    let (first, second) = (&got["claims"], &got["again"]);
    for (name, expected) in [
        ("iss", json!(desk.tap.origin())),
        ("aud", json!(desk.url())),
        ("sub", json!("user:alice")),
        ("client_id", got["client"]["client_id"].clone()),
        ("scope", json!("mcp")),
    ] {
        assert_eq!((&first[name], &second[name]), (&expected, &expected), "{name}: {got:#}");
    }
    assert_ne!(first["jti"], second["jti"], "each token has an id of its own");
}

/// RFC 7662: a client sees its own tokens, and that they are revoked.
#[track_caller]
fn check_introspection(got: &Value, method: &str) {
    if method == "none" {
        return;
    }
    let (before, after) = (&got["before"], &got["after"]);
    assert_eq!((&before["active"], &before["sub"]), (&json!(true), &json!("user:alice")), "{before}");
    assert_eq!(after, &json!({ "active": false }), "nothing more is said of a token that is over");
}

#[test]
fn a_strict_public_client_goes_all_the_way() {
    goes_all_the_way("none");
}

#[test]
fn a_strict_client_that_sends_its_secret_in_a_header_goes_all_the_way() {
    goes_all_the_way("client_secret_basic");
}

#[test]
fn a_strict_client_that_sends_its_secret_in_the_form_goes_all_the_way() {
    goes_all_the_way("client_secret_post");
}
