//! When the keys of an issuer are fetched: never more often than tokens of strangers could be worth.

use super::{echo, gate, invalid, token, unavailable, wait_for_keys};
use crate::support::PATIENCE;
use crate::support::gate::{Gate, eventually};
use crate::support::issuer::{Issuer, SigningKey};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::json;
use std::net::TcpListener;
use std::thread;

/// B07 (i), RS-15.
#[test]
fn a_new_key_is_picked_up_by_the_first_token_that_names_it() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let old = token(&gate, &issuer);
    gate.passes("the old key", &echo(&old));
    assert_eq!(issuer.n_fetches(), 1);

    let new = SigningKey::new("k2");
    issuer.publish(&[new.jwk(), issuer.key.jwk()]);
    let claims = issuer.claims(&gate.gateway.url("up"), &json!({}));

    gate.passes("the new key", &echo(&new.sign(&new.header(), &claims)));
    gate.passes("the old key still", &echo(&old));
    assert_eq!(issuer.n_fetches(), 2, "one fetch for one new key");
}

#[test]
fn a_key_that_is_gone_takes_the_tokens_it_signed_with_it() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let old = token(&gate, &issuer);
    gate.passes("while it is published", &echo(&old));

    let new = SigningKey::new("k2");
    issuer.publish(&[new.jwk()]);
    let claims = issuer.claims(&gate.gateway.url("up"), &json!({}));
    gate.passes("a new one brings the news", &echo(&new.sign(&new.header(), &claims)));

    gate.refuses("remembered, but its key is gone", &echo(&old), &invalid());
}

/// RS-17, the flood of `kid`s.
#[test]
fn any_number_of_unknown_keys_costs_one_fetch() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let resource = gate.gateway.url("up");
    let forged = |kid: &str| {
        let key = SigningKey::new(kid);
        echo(&key.sign(&key.header(), &issuer.claims(&resource, &json!({}))))
    };
    let good = echo(&token(&gate, &issuer));
    let mark = gate.recorder.mark();
    thread::scope(|scope| {
        for n in 0..16 {
            let (forged, agent) = (&forged, gate.gateway.agent);
            scope.spawn(move || {
                for m in 0..20 {
                    assert_eq!(forged(&format!("{n}-{m}")).send(agent).status, 401);
                }
            });
        }
    });
    gate.recorder.assert_untouched(mark);
    assert_eq!(issuer.n_fetches(), 2, "the first one, and one for 320 unknown keys");
    for kid in ["../../../etc/passwd", "' OR 1=1 --", "https://evil.test/k", &"k".repeat(5000)] {
        gate.refuses(kid, &forged(kid), &invalid());
    }
    assert_eq!(issuer.n_fetches(), 2);
    gate.passes("the allowed twin", &good);
    assert!(
        (gate.gateway.metric(&format!("portcullis_issuer_fetches_total{{issuer=\"{}\",result=\"ok\"}}", issuer.name))
            - 2.0)
            .abs()
            < 0.1
    );
}

/// RS-16.
#[test]
fn an_issuer_that_is_down_at_the_start_keeps_nothing_else_from_working_and_is_found_later() {
    let address = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    let name = format!("http://{address}");
    let gate = Gate::with(|url| super::config(url, &super::entry(&name, "")));
    let failed = format!("portcullis_issuer_fetches_total{{issuer=\"{name}\",result=\"failed\"}}");
    crate::support::wait_for(&failed, || gate.gateway.metric(&failed) > 0.5);
    let key = SigningKey::new("k1");
    let elsewhere = Issuer::start();
    let claims = elsewhere.claims(&gate.gateway.url("up"), &json!({ "iss": name }));

    gate.refuses("while it is down", &echo(&key.sign(&key.header(), &claims)), &unavailable());
    assert_eq!(gate.gateway.observe("/readyz").status, 200);
    gate.passes("our own tokens", &echo(&gate.token));

    let issuer = Issuer::start_on(address);
    assert_eq!(issuer.name, name);
    wait_for_keys(&gate, &name);
    gate.passes("once it is up", &echo(&token(&gate, &issuer)));
}

/// F-41.
#[test]
fn while_an_issuer_is_out_its_known_keys_are_trusted_and_unknown_ones_are_not() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let resource = gate.gateway.url("up");
    gate.passes("before", &echo(&token(&gate, &issuer)));

    issuer.recorder.answer_with(|_| Reply::new(500, "out of order"));

    let new = SigningKey::new("k2");
    let of_new = echo(&new.sign(&new.header(), &issuer.claims(&resource, &json!({}))));
    gate.refuses("an unknown key", &of_new, &invalid());
    let failed = format!("portcullis_issuer_fetches_total{{issuer=\"{}\",result=\"failed\"}}", issuer.name);
    assert!(gate.gateway.metric(&failed) > 0.5, "it was asked, in vain");
    gate.passes("a new token with a known key", &echo(&issuer.token(&resource, &json!({ "jti": "t2" }))));
    assert_eq!(gate.gateway.observe("/readyz").status, 200);

    issuer.publish(&[new.jwk(), issuer.key.jwk()]);
    issuer.answer_well();
    // After a failure it is asked again by itself, without a token that brings it about.
    let agent = gate.gateway.agent;
    let recovered = eventually(PATIENCE, || (of_new.send(agent).status == 200).then_some(()));
    assert!(recovered.is_some(), "the new key was not found\n{}", gate.gateway.log());
}

/// RS-15: what is wrong with one key is no matter of the others.
#[test]
fn a_key_set_with_unusable_keys_serves_with_the_others() {
    let issuer = Issuer::start();
    let mut encryption = SigningKey::new("enc").jwk();
    encryption["use"] = json!("enc");
    let secret = json!({ "kty": "oct", "kid": "oct", "k": "c2VjcmV0" });
    let same_name = SigningKey::new("k1");
    issuer.publish(&[json!("no key"), encryption, secret, same_name.jwk(), issuer.key.jwk()]);
    let gate = gate(&issuer, "");
    let claims = issuer.claims(&gate.gateway.url("up"), &json!({}));

    gate.passes("the good one", &echo(&token(&gate, &issuer)));
    gate.passes("another of its name", &echo(&same_name.sign(&same_name.header(), &claims)));
    let tag = |kid: &str, secret: &[u8]| {
        use base64::Engine as _;
        let header = json!({ "typ": "at+jwt", "alg": "HS256", "kid": kid });
        let message = crate::support::issuer::message(&header, &claims);
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret), message.as_bytes());
        format!("{message}.{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(tag))
    };
    gate.refuses("a published secret", &echo(&tag("oct", b"secret")), &invalid());
}

/// The keys may be said outright, and then nothing else is asked for.
#[test]
fn with_jwks_url_no_metadata_is_asked_for() {
    let (issuer, keys) = (Issuer::start(), Recorder::start());
    let jwks = json!({ "keys": [issuer.key.jwk()] }).to_string();
    keys.answer_with(move |_| Reply::json(jwks.clone()));
    let at = keys.url().replace("/mcp", "/keys?v=1");

    let gate = gate(&issuer, &format!(", jwks_url: \"{at}\""));

    gate.passes("its keys are elsewhere", &echo(&token(&gate, &issuer)));
    assert_eq!(issuer.recorder.n_connections(), 0);
    assert_eq!(keys.last().target, "/keys?v=1");
}
