//! `private_key_jwt`: a client proves who it is by a JWT that it signed for us, once (RFC 7523, draft-ietf-oauth-rfc7523bis).
//!
//! The one audience is our issuer: an assertion that also names somebody else could be passed on by them (rfc7523bis §4).
//! Whether it was used before is the store's to say; this says by which digest it is remembered, and until when.

use super::issuer::jwk;
use super::json::{Object, object, optional_text, text, time};
use super::public_keys::PublicKeys;
use super::token::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde_json::Value;

/// No assertion lives longer: so long do we remember that it was used.
const LONGEST_LIFE_S: i64 = 10 * 60;
/// How far the client's clock may be ahead of ours.
const LEEWAY_S: i64 = 30;
/// In bytes.
const LONGEST_ID: usize = 256;

/// An assertion that holds, if it was not used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assertion {
    /// What it is remembered by: SHA-256 of the client and its `jti`.
    pub digest: [u8; 32],
    /// Until when it is to be remembered, seconds since the Unix epoch.
    pub expires_at: i64,
}

/// What an assertion says before it was verified: who it claims to be of, and with which key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// `sub`.
    pub client: String,
    /// `kid`.
    pub kid: Option<String>,
}

/// Who an assertion claims to be of, and the key it names. Nothing is verified: to find out whose keys to look at.
pub fn client_named_in_assertion(assertion: &str) -> Option<Claimed> {
    let parts = Parts::of(assertion).ok()?;
    let (header, payload) = (object(parts.header).ok()?, object(parts.payload).ok()?);
    let kid = optional_text(&header, "kid").ok()?.map(str::to_owned);
    Some(Claimed { client: text(&payload, "sub").ok()?.to_owned(), kid })
}

/// Verifies an assertion of this client for us, whose issuer is `issuer`.
///
/// # Errors
/// What is wrong with it: a sentence that repeats nothing of it.
pub fn verify_assertion(
    assertion: &str,
    keys: &PublicKeys,
    client: &str,
    issuer: &str,
    now: i64,
) -> Result<Assertion, &'static str> {
    const MALFORMED: &str = "the client assertion is no signed JWT";
    let parts = Parts::of(assertion).map_err(|_| MALFORMED)?;
    let (header, payload) =
        (object(parts.header).map_err(|_| MALFORMED)?, object(parts.payload).map_err(|_| MALFORMED)?);
    let signature = URL_SAFE_NO_PAD.decode(parts.signature).map_err(|_| MALFORMED)?;
    let (alg, kid) = check_header(&header)?;
    if !keys.have_signed(kid, alg, parts.message.as_bytes(), &signature) {
        return Err("the client assertion was not signed by a key of this client");
    }
    let is_client = |name| optional_text(&payload, name).is_ok_and(|it| it == Some(client));
    if !is_client("iss") || !is_client("sub") {
        return Err("iss and sub of the client assertion must both be the client_id");
    }
    check_audience(&payload, issuer)?;
    let expires_at = check_times(&payload, now)?;
    let jti = text(&payload, "jti").ok().filter(|jti| jti.len() <= LONGEST_ID);
    let jti = jti.ok_or("the client assertion needs a jti of at most 256 bytes")?;
    Ok(Assertion { digest: digest(client, jti), expires_at })
}

/// The algorithm is held against the key later; shared secrets and `none` are not among them at all.
fn check_header(header: &Object) -> Result<(crate::config::Algorithm, Option<&str>), &'static str> {
    let word = |name| optional_text(header, name).map_err(|_| "the header of the client assertion is malformed");
    // RFC 7515 §4.1.11 and RFC 7797: they change what the rest means.
    if header.contains_key("crit") || header.contains_key("b64") {
        return Err("the client assertion has an extension we do not know");
    }
    let is_fit = |typ: &str| ["JWT", "client-authentication+jwt"].iter().any(|it| typ.eq_ignore_ascii_case(it));
    if word("typ")?.is_some_and(|typ| !is_fit(typ)) {
        return Err("typ of the client assertion is that of something else");
    }
    let alg = word("alg")?.and_then(jwk::algorithm);
    Ok((alg.ok_or("alg of the client assertion is not one of ours")?, word("kid")?))
}

/// rfc7523bis §4: our issuer, and nothing beside it.
fn check_audience(payload: &Object, issuer: &str) -> Result<(), &'static str> {
    let is_ours = match payload.get("aud") {
        Some(Value::String(aud)) => aud == issuer,
        Some(Value::Array(list)) => matches!(list.as_slice(), [Value::String(aud)] if aud == issuer),
        _ => false,
    };
    if is_ours {
        Ok(())
    } else {
        Err("aud of the client assertion must be the issuer of this server, and nothing else")
    }
}

/// `exp`, which must be there, after now and not long after; `iat` and `nbf` not ahead (RFC 7523 §3).
fn check_times(payload: &Object, now: i64) -> Result<i64, &'static str> {
    let at = |name| time(payload, name).map_err(|_| "a time in the client assertion is no number");
    let Some(exp) = at("exp")? else {
        return Err("the client assertion needs exp");
    };
    let iat = at("iat")?.unwrap_or(now);
    if now >= exp {
        return Err("the client assertion has expired");
    }
    if iat > now.saturating_add(LEEWAY_S) || at("nbf")?.is_some_and(|nbf| nbf > now.saturating_add(LEEWAY_S)) {
        return Err("the client assertion is of the future");
    }
    if exp.saturating_sub(iat) > LONGEST_LIFE_S || exp > now.saturating_add(LONGEST_LIFE_S + LEEWAY_S) {
        return Err("the client assertion lives longer than ten minutes");
    }
    Ok(exp)
}

fn digest(client: &str, jti: &str) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    // No client id holds a NUL.
    for part in [client.as_bytes(), &[0], jti.as_bytes()] {
        context.update(part);
    }
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;

    const ISSUER: &str = "https://mcp.example.com";
    const NOW: i64 = 1_800_000_000;

    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Signer {
            let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
            Signer(EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap())
        }

        fn keys(&self) -> PublicKeys {
            let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
            let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
            PublicKeys::of(&json!({ "keys": [{ "kty": "EC", "crv": "P-256", "kid": "k1", "x": x, "y": y }] })).unwrap()
        }

        fn sign(&self, header: &Value, payload: &Value) -> String {
            let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
            let message = format!("{header}.{payload}");
            let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    fn with(mut object: Value, more: &Value) -> Value {
        for (name, value) in more.as_object().unwrap() {
            match value {
                Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
                value => object[name] = value.clone(),
            }
        }
        object
    }

    fn verify(signer: &Signer, header: &Value, payload: &Value) -> Result<Assertion, &'static str> {
        let header = with(json!({ "alg": "ES256", "kid": "k1" }), header);
        let good = json!({ "iss": "c", "sub": "c", "aud": ISSUER, "iat": NOW, "exp": NOW + 60, "jti": "1" });
        verify_assertion(&signer.sign(&header, &with(good, payload)), &signer.keys(), "c", ISSUER, NOW)
    }

    #[test]
    fn an_assertion_for_us_that_the_client_signed_just_now_is_good() {
        let signer = Signer::new();
        let good = verify(&signer, &json!({}), &json!({})).unwrap();
        assert_eq!(good.expires_at, NOW + 60);
        for (header, payload) in [
            (json!({ "typ": "JWT" }), json!({})),
            (json!({ "typ": "client-authentication+jwt" }), json!({})),
            (json!({ "kid": null }), json!({})),
            (json!({}), json!({ "aud": [ISSUER] })),
            (json!({}), json!({ "exp": NOW + 600, "nbf": NOW })),
            (json!({}), json!({ "iat": null })),
            (json!({}), json!({ "iat": NOW + 30, "exp": NOW + 90 })),
            (json!({}), json!({ "iat": NOW - 500, "exp": NOW + 1 })),
        ] {
            assert!(verify(&signer, &header, &payload).is_ok(), "{header} {payload}");
        }
        // Each jti is another assertion, and each client has its own.
        let other = verify(&signer, &json!({}), &json!({ "jti": "2" })).unwrap();
        assert_ne!(good.digest, other.digest);
        assert_ne!(digest("c", "1"), digest("d", "1"));
    }

    #[test]
    fn as_45_an_assertion_that_is_anything_else_is_refused() {
        let signer = Signer::new();
        let token_endpoint = format!("{ISSUER}/token");
        for (header, payload) in [
            (json!({ "alg": "none" }), json!({})),
            (json!({ "alg": "HS256" }), json!({})),
            (json!({ "alg": "RS256" }), json!({})),
            (json!({ "alg": null }), json!({})),
            (json!({ "kid": "k2" }), json!({})),
            (json!({ "kid": 1 }), json!({})),
            (json!({ "typ": "at+jwt" }), json!({})),
            (json!({ "crit": ["exp"] }), json!({})),
            (json!({ "b64": false }), json!({})),
            (json!({}), json!({ "aud": token_endpoint })),
            (json!({}), json!({ "aud": [ISSUER, "https://other.example"] })),
            (json!({}), json!({ "aud": [ISSUER, ISSUER] })),
            (json!({}), json!({ "aud": format!("{ISSUER}/") })),
            (json!({}), json!({ "aud": null })),
            (json!({}), json!({ "iss": "d" })),
            (json!({}), json!({ "sub": "d" })),
            (json!({}), json!({ "iss": null })),
            (json!({}), json!({ "exp": NOW })),
            (json!({}), json!({ "exp": null })),
            (json!({}), json!({ "exp": (NOW + 60).to_string() })),
            (json!({}), json!({ "exp": NOW + 601 })),
            (json!({}), json!({ "iat": NOW + 31 })),
            (json!({}), json!({ "nbf": NOW + 31 })),
            (json!({}), json!({ "iat": NOW - 541 })),
            (json!({}), json!({ "jti": null })),
            (json!({}), json!({ "jti": "" })),
            (json!({}), json!({ "jti": 1 })),
            (json!({}), json!({ "jti": "j".repeat(257) })),
        ] {
            let refused = verify(&signer, &header, &payload);
            assert!(refused.is_err(), "{header} {payload}");
        }
    }

    #[test]
    fn as_45_a_signature_of_somebody_else_or_of_other_words_is_refused() {
        let (signer, other) = (Signer::new(), Signer::new());
        let header = json!({ "alg": "ES256", "kid": "k1" });
        let payload = json!({ "iss": "c", "sub": "c", "aud": ISSUER, "iat": NOW, "exp": NOW + 60, "jti": "1" });
        let good = signer.sign(&header, &payload);
        let check = |assertion: &str, keys: &PublicKeys| verify_assertion(assertion, keys, "c", ISSUER, NOW);
        assert!(check(&good, &signer.keys()).is_ok());
        assert!(check(&good, &other.keys()).is_err());
        let (message, signature) = good.rsplit_once('.').unwrap();
        let (_, payload_of) = message.split_once('.').unwrap();
        let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        // HMAC under the public key, as a careless reader would check it.
        let point = signer.0.public_key().as_ref();
        let hs256 = format!("{}.{payload_of}", URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","kid":"k1"}"#));
        let tag = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, point), hs256.as_bytes());
        for forged in [
            format!("{message}."),
            format!("{unsigned}.{payload_of}."),
            format!("{unsigned}.{payload_of}.{signature}"),
            format!("{hs256}.{}", URL_SAFE_NO_PAD.encode(tag)),
            format!("{good}.x"),
            message.to_owned(),
            String::new(),
        ] {
            assert!(check(&forged, &signer.keys()).is_err(), "{forged}");
        }
    }
}
