//! Tokens that are wrong in one thing alone, sent to a gateway that trusts their issuer.

use super::{echo, entry, gate, invalid, token, wait_for_keys};
use crate::support::gate::Gate;
use crate::support::issuer::{Issuer, SigningKey, message, now};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

fn with(mut header: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(header.as_object_mut().expect("an object").remove(name)),
        value => header[name] = value,
    }
    header
}

/// Checks that the refusal says where to get a token and that this one is wrong, and nothing of what would be right.
#[track_caller]
fn refuses(gate: &Gate, case: &str, token: &str) {
    let response = gate.refuses(case, &echo(token), &invalid());
    let challenge = response.header("www-authenticate").expect("401 comes with a challenge");
    assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    let said = format!("{challenge} {}", response.text());
    for hint in ["kid", "typ", "alg", "client_id", "issuer"] {
        assert!(!said.contains(hint), "a stranger is told of {hint}: {said}");
    }
}

#[test]
fn a_token_with_one_wrong_claim_is_refused() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, ", clients: [app]");
    let resource = gate.gateway.url("up");
    let origin = resource.trim_end_matches("/mcp/up");
    for (case, more) in [
        ("no iss", json!({ "iss": null })),
        ("iss with a slash", json!({ "iss": format!("{}/", issuer.name) })),
        ("iss in capitals", json!({ "iss": issuer.name.to_uppercase() })),
        ("iss of nobody", json!({ "iss": "https://idp.example.com" })),
        ("iss a list", json!({ "iss": [issuer.name] })),
        ("our own iss", json!({ "iss": origin })),
        ("aud of another route", json!({ "aud": format!("{origin}/mcp/other") })),
        ("aud of the origin", json!({ "aud": origin })),
        ("aud with a slash", json!({ "aud": format!("{resource}/") })),
        ("aud with ours as prefix", json!({ "aud": format!("{resource}.evil.test") })),
        ("aud in a text with others", json!({ "aud": format!("{resource} account") })),
        ("aud of others", json!({ "aud": ["account", "x"] })),
        ("an empty aud", json!({ "aud": [] })),
        ("no aud", json!({ "aud": null })),
        ("over", json!({ "exp": now() - 5 })),
        ("no end", json!({ "exp": null })),
        ("an end in quotes", json!({ "exp": "9999999999" })),
        ("not yet", json!({ "nbf": now() + 600 })),
        ("made in the future", json!({ "iat": now() + 600 })),
        ("no subject", json!({ "sub": null })),
        ("no client", json!({ "client_id": null })),
        ("another client", json!({ "client_id": "App" })),
        ("an ID token", json!({ "nonce": "n" })),
        ("bound to a key", json!({ "cnf": { "jkt": "x" } })),
        ("longer than 8 KiB", json!({ "pad": "x".repeat(9000) })),
        (
            "deeper than any claim",
            serde_json::from_str(&format!(r#"{{"x":{}{}}}"#, "[".repeat(99), "]".repeat(99))).expect("JSON"),
        ),
        ("groups of another form", json!({ "groups": { "operators": true } })),
    ] {
        refuses(&gate, case, &issuer.token(&resource, &more));
    }
    gate.passes("one audience of several", &echo(&issuer.token(&resource, &json!({ "aud": ["x", resource] }))));
    gate.passes("the client as azp", &echo(&issuer.token(&resource, &json!({ "client_id": null, "azp": "app" }))));
    gate.passes("the allowed twin", &echo(&token(&gate, &issuer)));
}

#[test]
fn a_token_whose_header_is_wrong_is_refused_and_no_header_makes_us_fetch() {
    let (issuer, lure) = (Issuer::start(), Issuer::start());
    let gate = gate(&issuer, "");
    let resource = gate.gateway.url("up");
    let (good, claims) = (issuer.key.header(), issuer.claims(&resource, &json!({})));
    let elsewhere = format!("{}/jwks", lure.name);
    for (case, header) in [
        ("no typ", with(good.clone(), "typ", Value::Null)),
        ("typ JWT", with(good.clone(), "typ", json!("JWT"))),
        ("alg none", with(good.clone(), "alg", json!("none"))),
        ("alg of another kind of key", with(good.clone(), "alg", json!("RS256"))),
        ("alg of another curve", with(good.clone(), "alg", json!("ES384"))),
        ("alg a list", with(good.clone(), "alg", json!(["ES256"]))),
        ("no kid", with(good.clone(), "kid", Value::Null)),
        ("crit", with(good.clone(), "crit", json!(["exp"]))),
        ("b64", with(good.clone(), "b64", json!(false))),
    ] {
        refuses(&gate, case, &issuer.key.sign(&header, &claims));
    }
    // Signed by a key that the header brings along, or says where to find.
    let own = SigningKey::new("k1");
    lure.publish(&[own.jwk()]);
    for (case, header) in [
        ("a key of its own", with(good.clone(), "jwk", own.jwk())),
        ("jku", with(good.clone(), "jku", json!(elsewhere))),
        ("x5u", with(good.clone(), "x5u", json!(elsewhere))),
        ("x5c", with(good.clone(), "x5c", json!([STANDARD.encode(own.point())]))),
        ("the name of a good key", good.clone()),
    ] {
        refuses(&gate, case, &own.sign(&header, &claims));
    }
    // The same members beside a good signature do nothing.
    for name in ["jku", "x5u"] {
        gate.passes(name, &echo(&issuer.key.sign(&with(good.clone(), name, json!(elsewhere)), &claims)));
    }
    assert_eq!((lure.recorder.n_connections(), issuer.n_fetches()), (0, 1), "a header made us fetch");
}

#[test]
fn a_token_without_a_good_signature_is_refused() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, ", algorithms: [ES256, RS256]");
    let resource = gate.gateway.url("up");
    let (header, claims) = (issuer.key.header(), issuer.claims(&resource, &json!({})));
    let good = issuer.key.sign(&header, &claims);
    let (signed, signature) = good.rsplit_once('.').expect("three parts");
    let mut tokens = vec![
        ("empty".to_owned(), format!("{signed}.")),
        ("left out".to_owned(), signed.to_owned()),
        ("cut".to_owned(), good[..good.len() - 4].to_owned()),
        ("padded".to_owned(), format!("{good}==")),
        ("with a line break".to_owned(), format!("{signed}.{signature}%0a")),
        ("four parts".to_owned(), format!("{good}.{signature}")),
        ("of zeros".to_owned(), format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64]))),
        ("in DER".to_owned(), format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0x30, 6, 2, 1, 1, 2, 1, 1]))),
        ("of other claims".to_owned(), {
            let other = message(&header, &issuer.claims(&resource, &json!({ "groups": ["operators", "x"] })));
            format!("{other}.{signature}")
        }),
    ];
    // The public key as the secret of an HMAC, in every form an attacker has it in.
    let point = issuer.key.point().to_vec();
    let prefix =
        b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
    let der = [&prefix[..], &point].concat();
    let base64 = STANDARD.encode(&der);
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n{}\n-----END PUBLIC KEY-----\n", &base64[..64], &base64[64..]);
    let forms = [
        ("PEM", pem.clone().into_bytes()),
        ("PEM without its last line end", pem.trim_end().as_bytes().to_vec()),
        ("DER", der),
        ("point", point),
        ("JWK", issuer.key.jwk().to_string().into_bytes()),
        ("kid", b"k1".to_vec()),
        ("nothing", Vec::new()),
    ];
    for (form, secret) in forms {
        let forged = message(&with(header.clone(), "alg", json!("HS256")), &claims);
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret), forged.as_bytes());
        tokens.push((format!("HS256 with the {form}"), format!("{forged}.{}", URL_SAFE_NO_PAD.encode(tag))));
    }
    for (case, token) in &tokens {
        refuses(&gate, case, token);
    }
    gate.passes("the allowed twin", &echo(&good));
    assert_eq!(issuer.n_fetches(), 1, "a bad signature is no reason to fetch");
}

#[test]
fn the_keys_of_one_issuer_vouch_for_none_of_another() {
    let (issuer, other) = (Issuer::start(), Issuer::start());
    let stranger = Issuer::start();
    let entries = entry(&issuer.name, "") + &entry(&other.name, "");
    let gate = Gate::with(|url| super::config(url, &entries));
    wait_for_keys(&gate, &issuer.name);
    wait_for_keys(&gate, &other.name);
    let claims = issuer.claims(&gate.gateway.url("up"), &json!({}));

    refuses(&gate, "signed by the other", &other.key.sign(&other.key.header(), &claims));
    refuses(&gate, "of an issuer that is not trusted", &token(&gate, &stranger));
    gate.passes("of the one", &echo(&token(&gate, &issuer)));
    gate.passes("of the other", &echo(&token(&gate, &other)));
    assert_eq!(stranger.recorder.n_connections(), 0, "a token made us ask its issuer");
}

#[test]
fn a_configured_audience_replaces_the_route_and_opens_every_route() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, ", audience: [\"api://gateway\"], token_types: [JWT]");
    let resource = gate.gateway.url("up");
    let sign =
        |aud: &str| issuer.key.sign(&with(issuer.key.header(), "typ", json!("JWT")), &issuer.claims(aud, &json!({})));

    gate.passes("the configured one", &echo(&sign("api://gateway")));
    refuses(&gate, "the route's own", &sign(&resource));
    refuses(&gate, "nearly the configured one", &sign("api://gateway/"));
    refuses(&gate, "another typ", &issuer.token("api://gateway", &json!({})));
}
