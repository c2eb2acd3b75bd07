//! The whole way of a client that takes nothing but what the RFCs allow (`oauth4webapi`): every document and every answer of
//! the authorization server is checked by somebody else's reading of them.

use super::desk::Desk;
use crate::support::gateway::Launch;
use crate::support::{process, sdk};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::KeyPair;
use serde_json::{Value, json};

/// Runs it with this way to prove who it is, and checks what it got. `written` is what the configuration knows of it.
#[track_caller]
fn goes_all_the_way(desk: &Desk, method: &str, written: Option<&Value>) {
    let mut command = sdk::program("strict.mjs");
    command.env("URL", desk.url()).env("AUTH_METHOD", method).env("BROWSER", desk.person.browser());
    if let Some(written) = written {
        command.env("CLIENT", written.to_string());
    }

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
    assert_eq!(got["client"]["client_secret"].is_string(), method.starts_with("client_secret"));
    check_claims(desk, &got);
    check_introspection(&got, method != "none");
    assert_eq!((&got["calls"][0], &got["calls"][1]), (&json!(200), &json!(200)), "{got:#}");
    let refused = &got["calls"][2];
    assert_eq!(refused["status"], 401, "{refused}");
    assert_eq!(refused["challenges"][0]["parameters"]["error"], "invalid_token", "{refused}");
    for kind in ["login.succeeded", "consent.given", "token.issued", "token.refreshed", "token.revoked"] {
        assert_eq!(desk.events(kind).len(), 1, "{kind}");
    }
    assert_eq!(desk.events("client.registered").len(), usize::from(written.is_none()));
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

/// RFC 7662: a client that shows who it is sees its token, and that it is revoked; any other sees nothing.
#[track_caller]
fn check_introspection(got: &Value, shows_who_it_is: bool) {
    let (before, after) = (&got["before"], &got["after"]);
    if shows_who_it_is {
        assert_eq!((&before["active"], &before["sub"]), (&json!(true), &json!("user:alice")), "{before}");
        assert_eq!(after, &json!({ "active": false }), "nothing more is said of a token that is over");
    } else {
        assert_eq!((&before["error"], &after["error"]), (&json!("invalid_client"), &json!("invalid_client")));
    }
}

#[test]
fn a_strict_public_client_goes_all_the_way() {
    goes_all_the_way(&Desk::open(), "none", None);
}

#[test]
fn a_strict_client_that_sends_its_secret_in_a_header_goes_all_the_way() {
    goes_all_the_way(&Desk::open(), "client_secret_basic", None);
}

#[test]
fn a_strict_client_that_sends_its_secret_in_the_form_goes_all_the_way() {
    goes_all_the_way(&Desk::open(), "client_secret_post", None);
}

/// Its entry in `identity.clients`, but for what it shows.
const ENTRY: &str = "    - { id: strict, name: A strict client, redirect_uris: [ \"http://127.0.0.1/callback\" ]";

#[test]
fn a_strict_client_of_the_configuration_with_a_secret_goes_all_the_way() {
    let printed = Launch::new("").cli(&["clients", "secret"]).success().stdout;
    let word = |starts: &str| {
        let found = printed.split([' ', '\n', '"']).find(|word| word.starts_with(starts));
        found.unwrap_or_else(|| panic!("no {starts} in {printed}")).to_owned()
    };
    let entry = format!("{ENTRY}, secret_hash: \"{}\" }}\n", word("sha256:"));

    let client = json!({ "client_id": "strict", "client_secret": word("cs_") });
    goes_all_the_way(&Desk::open_with_clients(&entry, &[]), "client_secret_basic", Some(&client));
}

#[test]
fn a_strict_client_of_the_configuration_that_signs_goes_all_the_way() {
    let pair = KeyPair::generate().expect("the operating system has randomness");
    // An uncompressed point: 4, x, y.
    let (x, y) = pair.public_key_raw()[1..].split_at(32);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    let jwk = json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k1", "x": x, "y": y });
    let entry = format!("{ENTRY}, jwks: strict.jwks }}\n");
    let desk = Desk::open_with_clients(&entry, &[("strict.jwks", &json!({ "keys": [jwk] }).to_string())]);

    let client = json!({ "client_id": "strict", "kid": "k1", "key": pair.serialize_pem() });
    goes_all_the_way(&desk, "private_key_jwt", Some(&client));
}
