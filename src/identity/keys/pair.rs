//! One key pair (ES256): how it signs, checks, and is named.

use super::Error;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, crypto};
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use std::fmt::Write as _;

/// A key pair and when it was made.
#[derive(Debug)]
pub(super) struct Key {
    /// Its thumbprint (RFC 7638).
    pub(super) kid: String,
    private: EncodingKey,
    public: DecodingKey,
    /// The public point, uncompressed (SEC 1).
    pub(super) point: Vec<u8>,
    /// When its file was written, milliseconds since the Unix epoch.
    pub(super) made_at_ms: i64,
}

// === impl Key ===

impl Key {
    /// The key in a file; `None` where it is none for ES256.
    pub(super) fn of_pem(pem: &[u8], made_at_ms: i64) -> Option<Key> {
        let private = EncodingKey::from_ec_pem(pem).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private.as_bytes(), &SystemRandom::new());
        let point = pair.ok()?.public_key().as_ref().to_vec();
        Some(Key {
            kid: thumbprint(&point),
            private,
            // Despite its name it takes the bare point.
            public: DecodingKey::from_ec_der(&point),
            point,
            made_at_ms,
        })
    }

    /// A signature in JWS form: base64url of r and s.
    pub(super) fn sign(&self, message: &[u8]) -> Result<String, Error> {
        crypto::sign(message, &self.private, Algorithm::ES256).map_err(|_| Error::Crypto)
    }

    /// Whether this key made this signature.
    pub(super) fn has_signed(&self, message: &[u8], signature: &str) -> bool {
        crypto::verify(signature, message, &self.public, Algorithm::ES256).unwrap_or(false)
    }

    /// The public half (RFC 7517).
    pub(super) fn jwk(&self) -> serde_json::Value {
        let (x, y) = coordinates(&self.point);
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.kid, "alg": "ES256", "use": "sig" })
    }
}

/// A new private key in PEM form.
pub(super) fn generate() -> Result<String, Error> {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    Ok(pem(pkcs8.map_err(|_| Error::Crypto)?.as_ref()))
}

/// RFC 7638 §3: SHA-256 over the required members in lexical order, without space.
fn thumbprint(point: &[u8]) -> String {
    let (x, y) = coordinates(point);
    let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, members.as_bytes()))
}

/// x and y of an uncompressed point, in base64url.
fn coordinates(point: &[u8]) -> (String, String) {
    let (x, y) = point.get(1..).and_then(|xy| xy.split_at_checked(32)).expect("a P-256 point has 65 bytes");
    (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y))
}

/// RFC 7468: lines of 64 characters.
pub(super) fn pem(der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN PRIVATE KEY-----\n");
    let mut rest = encoded.as_str();
    while let Some((line, more)) = rest.split_at_checked(64) {
        _ = writeln!(pem, "{line}");
        rest = more;
    }
    if !rest.is_empty() {
        _ = writeln!(pem, "{rest}");
    }
    pem + "-----END PRIVATE KEY-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thumbprint_is_that_of_rfc_7638() {
        let point: Vec<u8> = (0..65).map(|n| if n == 0 { 4 } else { n }).collect();
        // Computed apart, over {"crv":"P-256","kty":"EC","x":"AQID…","y":"ISIj…"}.
        assert_eq!(thumbprint(&point), "t1ZI8tOt77KZ9YepYcUiqtqXcpIYInMJhkFb6casAFo");
    }
}
