//! The public keys of an OAuth client (RFC 7517), for `private_key_jwt`.

use super::issuer::jwk::Key;
use crate::config::Algorithm;
use crate::jsonrpc;
use serde_json::Value;

/// Clients have one key, and a second one while they change it.
const MAX_KEYS: usize = 20;
/// Of the set as text.
const LIMITS: jsonrpc::Limits = jsonrpc::Limits { depth: 8, nodes: 2_000 };
/// Members that only a private or a shared key has (RFC 7518 §6).
const PRIVATE: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// Keys of a client, each of which can verify.
#[derive(Debug)]
pub struct PublicKeys(Vec<Key>);

/// Why a key set cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitKeys {
    /// Not JSON, or with a name that stands twice.
    #[error("it is not one JSON object, in which no name stands twice")]
    Json,
    /// RFC 7517 §5.
    #[error("it has no list `keys`")]
    NoList,
    /// More than 20.
    #[error("it has more than 20 keys")]
    TooMany,
    /// Whoever shows it to us has given it away.
    #[error("it holds a private or shared key, which must go no further than its owner")]
    Private,
    /// Of the wrong kind, or too short.
    #[error("none of its keys can verify a signature: {0}")]
    NoneFits(&'static str),
}

impl PublicKeys {
    /// The keys of a JWK Set that can verify; others in it are left out.
    ///
    /// # Errors
    /// There is none, or there is one that should not be shown.
    pub fn of(set: &Value) -> Result<PublicKeys, UnfitKeys> {
        let list = set.get("keys").and_then(Value::as_array).ok_or(UnfitKeys::NoList)?;
        if list.len() > MAX_KEYS {
            return Err(UnfitKeys::TooMany);
        }
        if list.iter().any(|jwk| PRIVATE.iter().any(|name| jwk.get(name).is_some())) {
            return Err(UnfitKeys::Private);
        }
        let mut keys = Vec::new();
        let mut why_not = "the list is empty";
        for jwk in list {
            match Key::maybe_nameless(jwk) {
                Ok(key) => keys.push(key),
                Err(why) => why_not = why,
            }
        }
        if keys.is_empty() { Err(UnfitKeys::NoneFits(why_not)) } else { Ok(PublicKeys(keys)) }
    }

    /// The same from text.
    ///
    /// # Errors
    /// It is not strict JSON, or as [`PublicKeys::of`].
    pub fn parse(json: &[u8]) -> Result<PublicKeys, UnfitKeys> {
        jsonrpc::check_object(json, LIMITS).map_err(|_| UnfitKeys::Json)?;
        PublicKeys::of(&serde_json::from_slice(json).map_err(|_| UnfitKeys::Json)?)
    }

    /// Whether a key that could be meant by this name is among them; by none, all are.
    pub fn has(&self, kid: Option<&str>) -> bool {
        self.meant(kid).next().is_some()
    }

    pub(super) fn have_signed(&self, kid: Option<&str>, alg: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        self.meant(kid).any(|key| key.has_signed(alg, message, signature))
    }

    fn meant<'a>(&'a self, kid: Option<&'a str>) -> impl Iterator<Item = &'a Key> {
        self.0.iter().filter(move |key| kid.is_none_or(|kid| key.kid == kid || key.kid.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ec() -> Value {
        // RFC 7517 §A.1.
        json!({
            "kty": "EC", "crv": "P-256", "kid": "1",
            "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
            "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
        })
    }

    fn with(mut jwk: Value, name: &str, value: &str) -> Value {
        jwk[name] = json!(value);
        jwk
    }

    fn why(keys: &[Value]) -> Option<UnfitKeys> {
        PublicKeys::of(&json!({ "keys": keys })).err()
    }

    #[test]
    fn a_key_set_with_one_usable_key_is_good_and_a_private_key_spoils_it() {
        let enc = with(ec(), "use", "enc");
        assert_eq!(why(&[ec()]), None);
        assert_eq!(why(&[enc.clone(), ec()]), None);
        assert!(matches!(why(&[enc]), Some(UnfitKeys::NoneFits(_))));
        assert!(matches!(why(&[]), Some(UnfitKeys::NoneFits(_))));
        assert_eq!(why(&[ec(), with(ec(), "d", "x")]), Some(UnfitKeys::Private));
        assert_eq!(why(&[ec(), json!({ "kty": "oct", "k": "c2VjcmV0" })]), Some(UnfitKeys::Private));
        assert_eq!(why(&vec![ec(); MAX_KEYS + 1]), Some(UnfitKeys::TooMany));
        assert_eq!(why(&vec![ec(); MAX_KEYS]), None);
        assert_eq!(PublicKeys::of(&json!({})).err(), Some(UnfitKeys::NoList));
        assert_eq!(PublicKeys::parse(br#"{"keys":[],"keys":[]}"#).err(), Some(UnfitKeys::Json));
    }

    #[test]
    fn a_key_without_a_name_may_be_meant_by_any() {
        let nameless = {
            let mut jwk = ec();
            jwk.as_object_mut().unwrap().remove("kid");
            jwk
        };
        let named = PublicKeys::of(&json!({ "keys": [ec()] })).unwrap();
        assert!(named.has(Some("1")) && named.has(None) && !named.has(Some("2")));
        assert!(PublicKeys::of(&json!({ "keys": [nameless] })).unwrap().has(Some("2")));
    }
}
