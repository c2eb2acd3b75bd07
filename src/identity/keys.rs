//! The keys that sign access tokens (ES256), one PKCS#8 file each in `data_dir/keys`, named by its thumbprint.
//!
//! Every key in the directory verifies; the newest one signs. So a key can be added before it is used and kept until
//! its last token has expired.

use crate::store::files;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, crypto};
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The keys of this gateway; at least one.
#[derive(Debug)]
pub struct Keys {
    /// Newest first.
    keys: Vec<Key>,
}

/// One key pair.
#[derive(Debug)]
struct Key {
    /// Its thumbprint (RFC 7638).
    kid: String,
    private: EncodingKey,
    public: DecodingKey,
    /// The public point, uncompressed (SEC 1).
    point: Vec<u8>,
    /// When its file was written.
    made_at: SystemTime,
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or the directory cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Others may read a key.
    #[error("others may read the signing key {}; run: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The key's file.
        path: PathBuf,
    },
    /// The file holds no key for ES256.
    #[error("{} is not a P-256 private key in PKCS#8 PEM", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// The file's name is not the key's thumbprint.
    #[error("{} holds the key `{kid}`; rename it to {kid}.pem", path.display())]
    Misnamed {
        /// The file.
        path: PathBuf,
        /// The thumbprint.
        kid: String,
    },
    /// A key could not be made, or did not sign.
    #[error("the cryptographic library refused")]
    Crypto,
}

// === impl Keys ===

impl Keys {
    /// Reads `data_dir/keys`; makes the directory and a first key where there is none.
    ///
    /// # Errors
    /// When a key cannot be read or must not be used.
    pub fn open(data_dir: &Path) -> Result<Keys, Error> {
        let dir = data_dir.join("keys");
        let failed = |source| Error::File { path: dir.clone(), source };
        files::make_private_dir(&dir).map_err(failed)?;
        // Two processes that start at the same moment agree on one key.
        let _lock = files::lock(&dir.join(".lock")).map_err(failed)?;
        let mut keys = read_all(&dir)?;
        if keys.is_empty() {
            keys.push(make(&dir)?);
        }
        // Of two of the same age either may sign; the same one in every process.
        keys.sort_by(|a, b| (b.made_at, &b.kid).cmp(&(a.made_at, &a.kid)));
        Ok(Keys { keys })
    }

    /// The public keys as a JWK Set (RFC 7517 §5), newest first.
    pub fn jwks(&self) -> serde_json::Value {
        let keys: Vec<_> = self.keys.iter().map(Key::jwk).collect();
        json!({ "keys": keys })
    }

    /// The id of the key that signs.
    pub(super) fn signing_kid(&self) -> &str {
        &self.newest().kid
    }

    /// A signature in JWS form: base64url of r and s.
    pub(super) fn sign(&self, message: &[u8]) -> Result<String, Error> {
        crypto::sign(message, &self.newest().private, Algorithm::ES256).map_err(|_| Error::Crypto)
    }

    /// Whether the key `kid` of ours made this signature. The algorithm is the key's, whatever a token claims.
    pub(super) fn has_signed(&self, kid: &str, message: &[u8], signature: &str) -> bool {
        self.keys
            .iter()
            .filter(|key| key.kid == kid)
            .any(|key| crypto::verify(signature, message, &key.public, Algorithm::ES256).unwrap_or(false))
    }

    fn newest(&self) -> &Key {
        self.keys.first().expect("`open` leaves at least one key")
    }
}

// === impl Key ===

impl Key {
    fn of_pem(pem: &[u8], made_at: SystemTime) -> Option<Key> {
        let private = EncodingKey::from_ec_pem(pem).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private.as_bytes(), &SystemRandom::new());
        let point = pair.ok()?.public_key().as_ref().to_vec();
        Some(Key {
            kid: thumbprint(&point),
            private,
            // Despite its name it takes the bare point.
            public: DecodingKey::from_ec_der(&point),
            point,
            made_at,
        })
    }

    fn jwk(&self) -> serde_json::Value {
        let (x, y) = coordinates(&self.point);
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.kid, "alg": "ES256", "use": "sig" })
    }
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

// === files ===

fn read_all(dir: &Path) -> Result<Vec<Key>, Error> {
    let failed = |source| Error::File { path: dir.to_owned(), source };
    let mut keys = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|it| it == "pem") {
            keys.push(read(&path)?);
        }
    }
    Ok(keys)
}

fn read(path: &Path) -> Result<Key, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(Error::Exposed { path: path.to_owned() });
    }
    let pem = fs::read(path).map_err(failed)?;
    let made_at = made_at(&metadata).map_err(failed)?;
    let key = Key::of_pem(&pem, made_at).ok_or_else(|| Error::NotAKey { path: path.to_owned() })?;
    if path.file_stem().is_none_or(|stem| stem != key.kid.as_str()) {
        return Err(Error::Misnamed { path: path.to_owned(), kid: key.kid });
    }
    Ok(key)
}

fn made_at(metadata: &Metadata) -> io::Result<SystemTime> {
    metadata.modified()
}

/// Makes a key pair and its file.
fn make(dir: &Path) -> Result<Key, Error> {
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
        .map_err(|_| Error::Crypto)?;
    let pem = pem(pkcs8.as_ref());
    let key = Key::of_pem(pem.as_bytes(), SystemTime::UNIX_EPOCH).ok_or(Error::Crypto)?;
    let path = dir.join(format!("{}.pem", key.kid));
    files::replace(&path, pem.as_bytes()).map_err(|source| Error::File { path: path.clone(), source })?;
    read(&path)
}

/// RFC 7468: lines of 64 characters.
fn pem(der: &[u8]) -> String {
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
pub(super) mod tests {
    use super::*;

    impl Keys {
        /// The public key of the newest in forms an attacker could hand to an HMAC: PEM, DER, JWK, bare point.
        pub(crate) fn public_forms(&self) -> Vec<Vec<u8>> {
            let key = self.newest();
            let mut der = vec![
                0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
                0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
            ];
            der.extend(&key.point);
            let pem = pem(&der).replace("PRIVATE", "PUBLIC");
            let jwk = key.jwk().to_string();
            vec![
                pem.clone().into_bytes(),
                pem.trim_end().as_bytes().to_vec(),
                format!(" {pem}").into_bytes(),
                der,
                jwk.into_bytes(),
                key.point.clone(),
            ]
        }
    }

    /// Keys in a directory that is gone already: they are in memory.
    pub(crate) fn keys() -> Keys {
        Keys::open(tempfile::tempdir().unwrap().path()).unwrap()
    }

    #[test]
    fn the_first_start_makes_one_private_key_and_later_ones_use_it() {
        let dir = tempfile::tempdir().unwrap();

        let first = Keys::open(dir.path()).unwrap();
        let second = Keys::open(dir.path()).unwrap();

        assert_eq!(first.signing_kid(), second.signing_kid());
        let path = dir.path().join(format!("keys/{}.pem", first.signing_kid()));
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        let signature = first.sign(b"message").unwrap();
        assert!(second.has_signed(first.signing_kid(), b"message", &signature));
        assert!(!second.has_signed(first.signing_kid(), b"messagf", &signature));
        assert!(!second.has_signed("other", b"message", &signature));
    }

    #[test]
    fn a_key_others_may_read_is_refused_with_the_command_that_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        let path = dir.path().join(format!("keys/{}.pem", keys.signing_kid()));
        for mode in [0o640, 0o604, 0o620, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();

            let refused = Keys::open(dir.path()).unwrap_err();

            assert!(matches!(refused, Error::Exposed { .. }));
            let command = format!("; run: chmod 600 {}", path.display());
            assert!(refused.to_string().ends_with(&command), "{refused}");
        }
    }

    #[test]
    fn every_key_verifies_and_the_newest_signs() {
        let dir = tempfile::tempdir().unwrap();
        let old = Keys::open(dir.path()).unwrap();
        let signature = old.sign(b"message").unwrap();
        let new = make(&dir.path().join("keys")).unwrap();
        let path = dir.path().join(format!("keys/{}.pem", new.kid));
        let later = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(5);
        fs::File::open(&path).unwrap().set_modified(later).unwrap();

        let both = Keys::open(dir.path()).unwrap();

        assert_eq!(both.signing_kid(), new.kid);
        assert!(both.has_signed(old.signing_kid(), b"message", &signature));
        assert_eq!(both.jwks()["keys"].as_array().map(Vec::len), Some(2));
        assert!(both.jwks()["keys"][0].get("d").is_none());
    }

    #[test]
    fn what_is_no_key_of_ours_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path()).unwrap();
        let good = dir.path().join(format!("keys/{}.pem", keys.signing_kid()));
        let other = dir.path().join("keys/other.pem");
        files::replace(&other, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        assert!(matches!(Keys::open(dir.path()), Err(Error::NotAKey { .. })));

        files::replace(&other, &fs::read(&good).unwrap()).unwrap();
        let refused = Keys::open(dir.path()).unwrap_err();
        assert!(matches!(&refused, Error::Misnamed { kid, .. } if kid == keys.signing_kid()));
    }

    #[test]
    fn the_thumbprint_is_that_of_rfc_7638() {
        let point: Vec<u8> = (0..65).map(|n| if n == 0 { 4 } else { n }).collect();
        // Computed apart, over {"crv":"P-256","kty":"EC","x":"AQID…","y":"ISIj…"}.
        assert_eq!(thumbprint(&point), THUMBPRINT_OF_1_TO_64);
    }

    const THUMBPRINT_OF_1_TO_64: &str = "t1ZI8tOt77KZ9YepYcUiqtqXcpIYInMJhkFb6casAFo";
}
