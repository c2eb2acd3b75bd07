//! Tokens that are made to look like one of ours: signed by others or by nobody, or signed by us and saying what their
//! grant does not. The tests hold the gateway's own key, so that each token is wrong in one thing alone.

use super::tokens::{check_challenge, echo, gate, invalid};
use crate::support::gate::{Gate, call};
use crate::support::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis::clock::Clock;
use portcullis::identity::{Claims, Keys, issue};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

/// Header and payload of a token.
fn parts(token: &str) -> (Value, Value) {
    let mut parts = token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).expect("base64url"));
    let mut next = || serde_json::from_slice(&parts.next().expect("three parts")).expect("JSON");
    (next(), next())
}

fn message(header: &Value, payload: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(payload.to_string()))
}

fn signed(key: &EcdsaKeyPair, header: &Value, payload: &Value) -> String {
    let message = message(header, payload);
    let signature = key.sign(&SystemRandom::new(), message.as_bytes()).expect("it signs");
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The gateway's own signing key, as whoever can read `data_dir` has it.
fn own_key(gate: &Gate) -> EcdsaKeyPair {
    let keys = std::fs::read_dir(gate.gateway.path("data/keys")).expect("the keys are there").flatten();
    let pem = keys
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|it| it == "pem"))
        .expect("there is one");
    let text = std::fs::read_to_string(pem).expect("it is ours");
    let base64: String = text.lines().filter(|line| !line.starts_with('-')).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(base64).expect("PEM is base64");
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new()).expect("it is a P-256 key")
}

/// What an attacker could take for the secret of an HMAC: the public key in every form.
fn public_forms(gate: &Gate) -> Vec<Vec<u8>> {
    let jwks = Keys::open(&gate.gateway.path("data")).expect("the keys are there").jwks();
    let jwk = &jwks["keys"][0];
    let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str().expect("a text")).expect("base64url");
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let prefix =
        b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00";
    let der = [&prefix[..], &point].concat();
    let base64 = base64::engine::general_purpose::STANDARD.encode(&der);
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n{}\n-----END PUBLIC KEY-----\n", &base64[..64], &base64[64..]);
    let kid = jwk["kid"].as_str().expect("a text").as_bytes().to_vec();
    vec![
        pem.trim_end().as_bytes().to_vec(),
        pem.into_bytes(),
        der,
        point,
        jwk.to_string().into_bytes(),
        kid,
        Vec::new(),
    ]
}

#[test]
fn a_token_that_is_not_signed_by_us_is_refused() {
    let (gate, other) = gate();
    let mark = other.mark();
    let (header, payload) = parts(&gate.token);
    let with = |name: &str, value: Value| {
        let mut header = header.clone();
        header[name] = value;
        header
    };
    let foreign_pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).expect("it makes one");
    let foreign =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, foreign_pkcs8.as_ref(), &SystemRandom::new())
            .expect("it is one");
    let own = own_key(&gate);
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let claims = claims(&payload);
    let mut tokens = vec![
        (
            "of another gateway".to_owned(),
            issue(&Keys::open(elsewhere.path()).expect("new keys"), &claims).expect("it signs"),
        ),
        ("of a foreign key under our name".to_owned(), signed(&foreign, &header, &payload)),
    ];
    for alg in ["none", "None", "NONE", "nOnE", ""] {
        let unsigned = message(&with("alg", json!(alg)), &payload);
        tokens.push((format!("alg {alg:?} without a signature"), format!("{unsigned}.")));
        tokens.push((
            format!("alg {alg:?} with the old one"),
            format!("{unsigned}.{}", gate.token.rsplit('.').next().unwrap_or_default()),
        ));
        tokens.push((format!("alg {alg:?} in two parts"), unsigned));
    }
    for (n, secret) in public_forms(&gate).into_iter().enumerate() {
        for (alg, algorithm) in [("HS256", ring::hmac::HMAC_SHA256), ("HS512", ring::hmac::HMAC_SHA512)] {
            let message = message(&with("alg", json!(alg)), &payload);
            let tag = ring::hmac::sign(&ring::hmac::Key::new(algorithm, &secret), message.as_bytes());
            tokens.push((
                format!("{alg} with the public key, form {n}"),
                format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag)),
            ));
        }
    }
    for (case, header) in [
        ("alg ES384", with("alg", json!("ES384"))),
        ("alg RS256", with("alg", json!("RS256"))),
        ("typ JWT", with("typ", json!("JWT"))),
        ("no typ", with("typ", Value::Null)),
        ("kid of nobody", with("kid", json!("x"))),
        ("kid a path", with("kid", json!("../../etc/passwd"))),
        ("crit", with("crit", json!(["exp"]))),
        ("b64", with("b64", json!(false))),
    ] {
        // Signed by us, so that only the header is wrong.
        tokens.push((case.to_owned(), signed(&own, &header, &payload)));
    }
    let jwk = json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" });
    tokens.push(("a key of its own".to_owned(), signed(&foreign, &with("jwk", jwk), &payload)));
    tokens.push((
        "a key elsewhere".to_owned(),
        signed(&foreign, &with("jku", json!("http://127.0.0.1:9/jwks")), &payload),
    ));
    let (good, signature) = gate.token.rsplit_once('.').expect("three parts");
    let admin = {
        let mut payload = payload.clone();
        payload["sub"] = json!("user:bob");
        payload
    };
    tokens.extend([
        ("another person, the old signature".to_owned(), format!("{}.{signature}", message(&header, &admin))),
        ("no signature".to_owned(), format!("{good}.")),
        ("r and s are 0".to_owned(), format!("{good}.{}", URL_SAFE_NO_PAD.encode([0; 64]))),
        ("a signature with padding".to_owned(), format!("{good}.{signature}==")),
        ("a fourth part".to_owned(), format!("{}.x", gate.token)),
        ("cut short".to_owned(), gate.token[..gate.token.len() - 1].to_owned()),
        ("not even one".to_owned(), "opaque".to_owned()),
    ]);
    for (case, token) in &tokens {
        check_challenge(&gate, &gate.refuses(case, &echo().bearer(token), &invalid()), Some("invalid_token"));
    }
    other.assert_untouched(mark);
    gate.passes("the same, signed by us", &echo().bearer(&signed(&own, &header, &payload)));
    gate.passes(
        "the same, made by our own code",
        &echo().bearer(&issue(&Keys::open(&gate.gateway.path("data")).expect("our keys"), &claims).expect("it signs")),
    );
}

/// What a token says, to be said again otherwise.
fn claims(payload: &Value) -> Claims {
    let text = |name: &str| payload[name].as_str().expect("a text").to_owned();
    Claims {
        issuer: text("iss").into(),
        subject: text("sub").parse().expect("a subject"),
        resource: text("aud").into(),
        client: text("client_id").into(),
        scopes: text("scope").split(' ').map(str::to_owned).collect(),
        issued_at: payload["iat"].as_i64().expect("a number"),
        expires_at: payload["exp"].as_i64().expect("a number"),
        grant: text("grant").into(),
    }
}

#[test]
fn a_token_that_says_what_its_grant_does_not_or_is_out_of_its_time_is_refused() {
    let (gate, other) = gate();
    let mark = other.mark();
    let keys = Keys::open(&gate.gateway.path("data")).expect("our keys");
    let now = Clock::System.unix_seconds();
    let good = || claims(&parts(&gate.token).1);
    let cases = [
        ("expired an hour ago", Claims { issued_at: now - 7200, expires_at: now - 3600, ..good() }),
        ("expired this second", Claims { issued_at: now - 60, expires_at: now, ..good() }),
        ("expired at the beginning of time", Claims { issued_at: 0, expires_at: 0, ..good() }),
        ("expired before that", Claims { issued_at: i64::MIN, expires_at: i64::MIN, ..good() }),
        ("not valid for a minute yet", Claims { issued_at: now + 60, expires_at: now + 600, ..good() }),
        ("of another issuer", Claims { issuer: "https://evil.test".into(), ..good() }),
        ("of our issuer with a slash", Claims { issuer: format!("{}/", good().issuer).into(), ..good() }),
        ("for another person", Claims { subject: "user:bob".parse().expect("a subject"), ..good() }),
        ("for a client of that name", Claims { subject: "client:alice".parse().expect("a subject"), ..good() }),
        ("for another client", Claims { client: "other".into(), ..good() }),
        ("with a scope more", Claims { scopes: vec!["mcp".to_owned(), "admin".to_owned()].into(), ..good() }),
        ("of a grant there is not", Claims { grant: "g_none".into(), ..good() }),
        ("for another route", Claims { resource: format!("http://{}/mcp/other", gate.gateway.agent).into(), ..good() }),
        ("for all routes", Claims { resource: format!("http://{}/mcp", gate.gateway.agent).into(), ..good() }),
        ("for the gateway", Claims { resource: format!("http://{}", gate.gateway.agent).into(), ..good() }),
        ("for the route with a slash", Claims { resource: format!("{}/", good().resource).into(), ..good() }),
        ("for the upstream itself", Claims { resource: gate.recorder.url().into(), ..good() }),
    ];
    for (case, claims) in &cases {
        let token = issue(&keys, claims).expect("it signs");
        let response = gate.refuses(case, &echo().bearer(&token), &invalid());
        check_challenge(&gate, &response, Some("invalid_token"));
        let has_expired =
            response.header("www-authenticate").is_some_and(|challenge| challenge.contains("has expired"));
        assert_eq!(
            has_expired,
            case.starts_with("expired"),
            "{case}: an honest client is told that its token has expired, and no more"
        );
        gate.refuses(case, &Request::mcp("/mcp/up/", call("echo", "{}")).bearer(&token), &invalid());
    }
    other.assert_untouched(mark);
    for (case, claims) in [
        ("as issued", good()),
        ("for a minute", Claims { issued_at: now, expires_at: now + 60, ..good() }),
        ("of a clock a little ahead", Claims { issued_at: now + 2, ..good() }),
    ] {
        gate.passes(case, &echo().bearer(&issue(&keys, &claims).expect("it signs")));
    }
}
