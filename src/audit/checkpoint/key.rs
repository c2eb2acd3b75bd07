//! What signs checkpoints: an Ed25519 key (RFC 8032) derived from the gateway's own; and its public half for an auditor
//! elsewhere, in the form that openssl reads.

use crate::audit::chain;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use ring::signature::{self, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls_pki_types::SubjectPublicKeyInfoDer;
use rustls_pki_types::pem::PemObject as _;
use std::fmt;

/// Signs checkpoints.
pub struct Signer {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// Checks what a [`Signer`] signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    bytes: [u8; 32],
    kid: String,
}

// === impl Signer ===

impl Signer {
    /// With a key derived from the gateway's own.
    pub fn new(gateway_key: &[u8; 32]) -> Signer {
        let root = hmac::Key::new(hmac::HMAC_SHA256, gateway_key);
        let seed = hmac::sign(&root, LABEL);
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_ref()).expect("a SHA-256 has the length of a seed");
        let bytes = pair.public_key().as_ref().try_into().expect("an Ed25519 public key has 32 bytes");
        Signer { pair, public: PublicKey::new(bytes) }
    }

    /// Its public half.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.pair.sign(message).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.public.kid)
    }
}

// === impl PublicKey ===

impl PublicKey {
    fn new(bytes: [u8; 32]) -> PublicKey {
        let hash = chain::sha256(&bytes);
        let kid = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        PublicKey { bytes, kid }
    }

    /// Names it in every checkpoint: the first 8 bytes of its SHA-256, in hexadecimal.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// As openssl reads it: a `SubjectPublicKeyInfo` (RFC 8410 §4) in PEM.
    pub fn pem(&self) -> String {
        let der = [&SPKI[..], &self.bytes].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }

    /// Reads what [`PublicKey::pem`] wrote; `None` when it is not an Ed25519 key in PEM.
    pub fn from_pem(pem: &[u8]) -> Option<PublicKey> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem).ok()?;
        let bytes = der.as_ref().strip_prefix(&SPKI[..])?;
        Some(PublicKey::new(bytes.try_into().ok()?))
    }

    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&signature::ED25519, &self.bytes).verify(message, signature).is_ok()
    }
}

/// What the key is derived for; another version would be another key.
const LABEL: &[u8] = b"portcullis/audit/checkpoint/v1";
/// What stands before the 32 bytes of the key (RFC 8410 §4): an algorithm, no parameters, a bit string.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_survives_its_pem_and_verifies_what_its_signer_signed_and_nothing_else() {
        let signer = Signer::new(&[7; 32]);
        let public = PublicKey::from_pem(signer.public().pem().as_bytes()).expect("a key");

        assert_eq!(&public, signer.public());
        assert!(public.verifies(b"message", &signer.sign(b"message")));
        assert!(!public.verifies(b"massage", &signer.sign(b"message")));
        assert!(!public.verifies(b"message", &Signer::new(&[8; 32]).sign(b"message")));
    }

    #[test]
    fn other_pem_is_no_key() {
        let pem = Signer::new(&[7; 32]).public().pem();
        for other in ["", "x", &pem.replace("MCow", "MCox"), &pem.replace("PUBLIC KEY", "PRIVATE KEY")] {
            assert_eq!(PublicKey::from_pem(other.as_bytes()), None, "{other}");
        }
    }
}
