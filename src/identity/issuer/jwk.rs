//! The keys of an external issuer: a JWK Set (RFC 7517), of which only what can verify a signature is kept.
//!
//! A key serves the algorithms of its kind and curve only, and where the set says `alg`, that one only: what a token's
//! header says is held against the key, never the other way round. One key that cannot be used does not spoil the rest.

use crate::config::Algorithm;
use crate::jsonrpc;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Map, Value};

/// More keys than that are no key set: real ones have two or three.
const MAX_KEYS: usize = 100;
/// Of the set as text. Room for `MAX_KEYS` with certificates; the rest of a document may nest a little.
const LIMITS: jsonrpc::Limits = jsonrpc::Limits { depth: 16, nodes: 20_000 };
/// In bytes.
const LONGEST_KID: usize = 256;
/// In bytes: RSA keys of 2048 to 8192 bits. Shorter ones can be factored, longer ones only cost time.
const RSA_MODULUS: std::ops::RangeInclusive<usize> = 256..=1024;
/// The smallest exponent that is taken: smaller ones have only ever made trouble.
const RSA_EXPONENT_MIN: u64 = 65_537;

/// A public key that can verify.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::identity) struct Key {
    /// Its name in headers; empty where it has none, as keys of clients may.
    pub(in crate::identity) kid: String,
    /// The one algorithm it is for, where the set says so.
    alg: Option<Algorithm>,
    public: Public,
}

#[derive(Debug, PartialEq, Eq)]
enum Public {
    /// The uncompressed point (SEC 1).
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
}

/// Why a key set cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::identity) enum Error {
    #[error("the key set is not JSON: {0}")]
    Json(String),
    #[error("the key set has no list `keys`")]
    NoList,
    #[error("the key set has {0} keys, more than {MAX_KEYS}")]
    TooMany(usize),
    #[error("none of the {0} keys in the key set can verify a token: {1}")]
    NoneFits(usize, &'static str),
}

/// Every key of the set that can verify. Those that cannot are left out.
pub(super) fn parse_set(json: &[u8]) -> Result<Vec<Key>, Error> {
    jsonrpc::check_object(json, LIMITS).map_err(|fault| Error::Json(fault.to_string()))?;
    let set: Map<String, Value> = serde_json::from_slice(json).map_err(|error| Error::Json(error.to_string()))?;
    let list = set.get("keys").and_then(Value::as_array).ok_or(Error::NoList)?;
    if list.len() > MAX_KEYS {
        return Err(Error::TooMany(list.len()));
    }
    let mut keys = Vec::new();
    let mut why_not = "the list is empty";
    for jwk in list {
        match Key::of(jwk) {
            Ok(key) => keys.push(key),
            Err(why) => {
                tracing::debug!(why, "a key of an issuer is left out");
                why_not = why;
            }
        }
    }
    if keys.is_empty() { Err(Error::NoneFits(list.len(), why_not)) } else { Ok(keys) }
}

// === impl Key ===

impl Key {
    fn of(jwk: &Value) -> Result<Key, &'static str> {
        // A token of an issuer names its key, or we would have to try all of them.
        Some(Key::maybe_nameless(jwk)?).filter(|key| !key.kid.is_empty()).ok_or("no usable `kid`")
    }

    /// The same, with or without a name.
    pub(in crate::identity) fn maybe_nameless(jwk: &Value) -> Result<Key, &'static str> {
        let jwk = jwk.as_object().ok_or("not an object")?;
        let text = |name: &str| match jwk.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err("a member is of the wrong type"),
        };
        if text("use")?.is_some_and(|it| it != "sig") {
            return Err("its `use` is not `sig`");
        }
        if let Some(ops) = jwk.get("key_ops") {
            let ops = ops.as_array().ok_or("a member is of the wrong type")?;
            if !ops.iter().any(|op| op == "verify") {
                return Err("its `key_ops` do not have `verify`");
            }
        }
        let kid =
            Some(text("kid")?.unwrap_or_default()).filter(|kid| kid.len() <= LONGEST_KID).ok_or("no usable `kid`")?;
        let alg = text("alg")?.map(|alg| algorithm(alg).ok_or("its `alg` is not one of ours")).transpose()?;
        let bytes = |name: &str| -> Result<Vec<u8>, &'static str> {
            let text = text(name)?.ok_or("a member is missing")?;
            URL_SAFE_NO_PAD.decode(text).map_err(|_| "a member is not base64url")
        };
        let public = match (text("kty")?, text("crv")?) {
            (Some("EC"), Some("P-256")) => Public::P256(point(&bytes("x")?, &bytes("y")?, 32)?),
            (Some("EC"), Some("P-384")) => Public::P384(point(&bytes("x")?, &bytes("y")?, 48)?),
            (Some("OKP"), Some("Ed25519")) => {
                Public::Ed25519(Some(bytes("x")?).filter(|x| x.len() == 32).ok_or("not an Ed25519 key")?)
            }
            (Some("RSA"), _) => rsa(bytes("n")?, bytes("e")?)?,
            _ => return Err("its `kty` or `crv` is not one of ours"),
        };
        let key = Key { kid: kid.to_owned(), alg, public };
        match alg {
            Some(alg) if !key.fits(alg) => Err("its `alg` does not go with its `kty`"),
            _ => Ok(key),
        }
    }

    /// Whether it is for this algorithm.
    pub(in crate::identity) fn fits(&self, alg: Algorithm) -> bool {
        use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
        let is_of_kind = match self.public {
            Public::P256(_) => alg == ES256,
            Public::P384(_) => alg == ES384,
            Public::Ed25519(_) => alg == EdDSA,
            Public::Rsa { .. } => matches!(alg, RS256 | RS384 | RS512 | PS256 | PS384 | PS512),
        };
        is_of_kind && self.alg.is_none_or(|only| only == alg)
    }

    /// Whether it made this signature, by an algorithm it is for.
    pub(in crate::identity) fn has_signed(&self, alg: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.fits(alg) {
            return false;
        }
        match &self.public {
            Public::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
            Public::P384(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(message, signature).is_ok()
            }
            Public::Ed25519(x) => UnparsedPublicKey::new(&signature::ED25519, x).verify(message, signature).is_ok(),
            Public::Rsa { n, e } => rsa_parameters(alg)
                .is_some_and(|how| RsaPublicKeyComponents { n, e }.verify(how, message, signature).is_ok()),
        }
    }
}

fn rsa_parameters(alg: Algorithm) -> Option<&'static signature::RsaParameters> {
    Some(match alg {
        Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA => return None,
    })
}

/// The algorithm of this name, if it is one of ours. Names are exact (RFC 7515 §4.1.1).
pub(in crate::identity) fn algorithm(name: &str) -> Option<Algorithm> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    [ES256, ES384, EdDSA, RS256, RS384, RS512, PS256, PS384, PS512].into_iter().find(|alg| alg.name() == name)
}

/// RFC 7518 §6.2.1: both coordinates in full length. Whether they are on the curve is checked with each signature.
fn point(x: &[u8], y: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
    if x.len() != len || y.len() != len {
        return Err("a coordinate of the wrong length");
    }
    Ok([&[4], x, y].concat())
}

fn rsa(n: Vec<u8>, e: Vec<u8>) -> Result<Public, &'static str> {
    if !RSA_MODULUS.contains(&n.len()) || n.first().is_none_or(|first| *first < 0x80) {
        return Err("an RSA modulus of fewer than 2048 or more than 8192 bits");
    }
    let exponent = e.iter().try_fold(0_u64, |sum, byte| sum.checked_mul(256)?.checked_add(u64::from(*byte)));
    let is_fit = exponent.is_some_and(|e| e >= RSA_EXPONENT_MIN && e % 2 == 1 && e < 1 << 33);
    if !is_fit || e.first() == Some(&0) {
        return Err("an RSA exponent that is even, below 65537 or very large");
    }
    Ok(Public::Rsa { n, e })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ec() -> Value {
        // RFC 7517 §A.1.
        json!({
            "kty": "EC", "crv": "P-256", "kid": "1", "use": "sig",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
        })
    }

    fn rsa(n_bytes: usize, e: &[u8]) -> Value {
        let mut n = vec![0xc1; n_bytes];
        n[n_bytes - 1] = 1;
        json!({ "kty": "RSA", "kid": "r", "n": URL_SAFE_NO_PAD.encode(n), "e": URL_SAFE_NO_PAD.encode(e) })
    }

    fn with(mut jwk: Value, name: &str, value: Value) -> Value {
        jwk[name] = value;
        jwk
    }

    fn set(keys: &[Value]) -> Result<Vec<Key>, Error> {
        parse_set(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn a_key_serves_its_own_kind_and_its_own_algorithm_only() {
        let key = |jwk: Value| Key::of(&jwk).unwrap();
        let serves = |key: &Key| {
            let all = ["ES256", "ES384", "EdDSA", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
            all.into_iter().filter(|name| key.fits(algorithm(name).unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(serves(&key(ec())), ["ES256"]);
        assert_eq!(serves(&key(rsa(256, &[1, 0, 1]))), ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]);
        assert_eq!(serves(&key(with(rsa(256, &[1, 0, 1]), "alg", json!("PS256")))), ["PS256"]);
        for name in ["none", "HS256", "es256", "ES256K", ""] {
            assert_eq!(algorithm(name), None, "{name}");
        }
    }

    #[test]
    fn a_key_that_cannot_verify_is_left_out_and_the_others_stay() {
        let bad = [
            with(ec(), "use", json!("enc")),
            with(ec(), "use", json!(1)),
            with(ec(), "key_ops", json!(["sign"])),
            with(ec(), "key_ops", json!("verify")),
            with(ec(), "alg", json!("RS256")),
            with(ec(), "alg", json!("HS256")),
            with(ec(), "kid", json!("")),
            with(ec(), "kid", json!(7)),
            with(ec(), "kid", json!("k".repeat(257))),
            with(ec(), "crv", json!("P-384")),
            with(ec(), "crv", json!("secp256k1")),
            with(ec(), "x", json!("AA")),
            with(ec(), "y", json!("4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM=")),
            json!({ "kty": "oct", "kid": "o", "k": "c2VjcmV0" }),
            rsa(255, &[1, 0, 1]),
            rsa(1025, &[1, 0, 1]),
            rsa(256, &[1]),
            rsa(256, &[3]),
            rsa(256, &[1, 0, 0]),
            rsa(256, &[0, 1, 0, 1]),
            json!("EC"),
            Value::Null,
        ];
        for jwk in &bad {
            let kept = set(&[jwk.clone(), with(ec(), "kid", json!("good"))]).unwrap();
            assert_eq!(kept.iter().map(|key| key.kid.as_str()).collect::<Vec<_>>(), ["good"], "{jwk}");
            assert!(matches!(set(std::slice::from_ref(jwk)), Err(Error::NoneFits(1, _))), "{jwk}");
        }
    }

    #[test]
    fn what_is_no_key_set_is_refused() {
        for text in ["", "<html>", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[]}"#, r#"{"keys":[],"keys":[]}"#] {
            assert!(parse_set(text.as_bytes()).is_err(), "{text}");
        }
        let many = vec![ec(); MAX_KEYS + 1];
        assert_eq!(set(&many), Err(Error::TooMany(MAX_KEYS + 1)));
        assert_eq!(set(&many[1..]).map(|keys| keys.len()), Ok(MAX_KEYS));
        let twin = format!(r#"{{"keys":[{}]}}"#, ec().to_string().replacen('{', r#"{"kid":"other","#, 1));
        assert!(matches!(parse_set(twin.as_bytes()), Err(Error::Json(_))), "a name twice");
    }

    #[test]
    fn a_point_off_the_curve_verifies_nothing() {
        let key = Key::of(&with(ec(), "y", json!("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))).unwrap();
        for signature in [vec![0; 64], vec![1; 64], Vec::new()] {
            assert!(!key.has_signed(Algorithm::ES256, b"message", &signature));
        }
    }
}
