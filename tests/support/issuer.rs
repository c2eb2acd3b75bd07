//! An authorization server that signs whatever a test wants, for what a real one cannot be made to do: wrong claims, keys
//! that come and go, documents that lie. It stands on a recorder, so that every fetch is counted.

use super::recorder::{Recorded, Recorder};
use super::reply::Reply;
use super::tls::Identity;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis::clock::Clock;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

/// The server, with one key `k1` at first.
pub(crate) struct Issuer {
    /// Its `iss`.
    pub(crate) name: String,
    /// What was asked of it.
    pub(crate) recorder: Recorder,
    /// Signs as `k1`.
    pub(crate) key: SigningKey,
    published: Arc<Mutex<Value>>,
}

/// A P-256 key pair with a name.
pub(crate) struct SigningKey {
    /// Its `kid`.
    pub(crate) kid: String,
    pair: EcdsaKeyPair,
}

/// Now, as tokens write it.
pub(crate) fn now() -> i64 {
    Clock::System.unix_seconds()
}

/// Header and payload as they are signed.
pub(crate) fn message(header: &Value, payload: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(payload.to_string()))
}

// === impl SigningKey ===

impl SigningKey {
    /// A new one.
    pub(crate) fn new(kid: &str) -> SigningKey {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("it makes one");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        SigningKey { kid: kid.to_owned(), pair: pair.expect("it has just been made") }
    }

    /// Its public half.
    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.point()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.kid, "x": x, "y": y })
    }

    /// Its public half as a point.
    pub(crate) fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// A header that names it.
    pub(crate) fn header(&self) -> Value {
        json!({ "typ": "at+jwt", "alg": "ES256", "kid": self.kid })
    }

    /// A token of these two, whatever they say.
    pub(crate) fn sign(&self, header: &Value, payload: &Value) -> String {
        let message = message(header, payload);
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).expect("it signs");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

// === impl Issuer ===

impl Issuer {
    /// On a port of 127.0.0.1.
    pub(crate) fn start() -> Issuer {
        Issuer::on(Recorder::start())
    }

    /// On this address, which must be free.
    #[track_caller]
    pub(crate) fn start_on(address: SocketAddr) -> Issuer {
        Issuer::on(Recorder::start_on(address))
    }

    /// Behind TLS.
    pub(crate) fn start_tls(identity: &Identity) -> Issuer {
        Issuer::on(Recorder::start_tls(identity, None))
    }

    fn on(recorder: Recorder) -> Issuer {
        let name = recorder.url().trim_end_matches("/mcp").to_owned();
        let key = SigningKey::new("k1");
        let issuer = Issuer { published: Arc::new(Mutex::new(json!([key.jwk()]))), name, recorder, key };
        issuer.answer_well();
        issuer
    }

    /// Answers as it should, from now on.
    pub(crate) fn answer_well(&self) {
        let (name, published) = (self.name.clone(), Arc::clone(&self.published));
        self.recorder.answer_with(move |request| {
            let keys = published.lock().expect("nobody panics").clone();
            documents(request, &name, &keys).unwrap_or_else(|| Reply::new(404, "<html>not here</html>"))
        });
    }

    /// Publishes these keys from now on.
    pub(crate) fn publish(&self, keys: &[Value]) {
        *self.published.lock().expect("nobody panics") = json!(keys);
    }

    /// How often its keys were asked for.
    pub(crate) fn n_fetches(&self) -> usize {
        self.recorder.requests().iter().filter(|request| request.target == "/jwks").count()
    }

    /// The claims of a good token for this resource, in group `operators`, with these claims besides or, where they are
    /// `null`, without them.
    pub(crate) fn claims(&self, resource: &str, more: &Value) -> Value {
        let mut claims = json!({
            "iss": self.name, "sub": "00u1", "aud": resource, "client_id": "app", "scope": "openid mcp.use",
            "groups": ["operators"], "iat": now() - 1, "exp": now() + 300, "jti": "t1",
        });
        for (name, value) in more.as_object().expect("claims are an object") {
            match value {
                Value::Null => drop(claims.as_object_mut().expect("it is one").remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    /// A token with these claims, signed as `k1`.
    pub(crate) fn token(&self, resource: &str, more: &Value) -> String {
        self.key.sign(&self.key.header(), &self.claims(resource, more))
    }
}

fn documents(request: &Recorded, name: &str, keys: &Value) -> Option<Reply> {
    let body = match request.target.as_str() {
        "/.well-known/openid-configuration" => json!({ "issuer": name, "jwks_uri": format!("{name}/jwks") }),
        "/jwks" => json!({ "keys": keys }),
        _ => return None,
    };
    Some(Reply::json(body.to_string()))
}
