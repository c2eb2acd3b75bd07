//! What must not be written down is replaced by a tag: in the audit log, in the log, in notices to webhooks.
//!
//! Three ways lead to a tag: a rule of the configuration names the value, the key it stands under names a secret, or it has the
//! shape of one (a token, a private key, a URL with credentials). A tag is keyed, so that the same value has the same tag
//! in one deployment and can be looked for (`portcullis audit hash`), while nobody without the key can try guesses.

mod base64;
mod find;
mod json;
mod names;
mod pattern;
mod places;
mod shapes;
mod value;

pub use names::is_secret as names_secret;
pub use pattern::Shape;
pub use shapes::SHAPES;

use ring::{digest, hmac};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock, OnceLock};

/// Finds secrets and replaces them. Clones share the key.
#[derive(Clone)]
pub struct Redactor(Arc<Tagger>);

struct Tagger {
    key: hmac::Key,
    kid: String,
}

/// That of this process, for what it writes before and beside its work: the log, and what is said of a panic.
static OF_PROCESS: OnceLock<Redactor> = OnceLock::new();
/// Before there is a key, and in processes that have none: tags are good for nothing then but to hide.
static OF_NOBODY: LazyLock<Redactor> = LazyLock::new(|| Redactor::new(&crate::id::random_bytes()));

/// What stands in a value's place: `hmac:<key id>:<16 hexadecimal digits>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag(String);

// === impl Redactor ===

impl Redactor {
    /// With a key derived from the gateway's own.
    pub fn new(gateway_key: &[u8; 32]) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, gateway_key);
        let derived = hmac::sign(&root, b"portcullis/redact/v1");
        let mut kid = String::new();
        push_hex(&mut kid, digest::digest(&digest::SHA256, derived.as_ref()).as_ref(), 4);
        Redactor(Arc::new(Tagger { key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()), kid }))
    }

    /// That of this process: the one that was put in force first.
    pub fn of_process() -> &'static Redactor {
        OF_PROCESS.get().unwrap_or(&OF_NOBODY)
    }

    /// Makes this the one of the process, unless there is one: a process has one key.
    pub fn put_in_force(&self) {
        let _ = OF_PROCESS.set(self.clone());
    }

    /// The tag of a value.
    pub fn tag(&self, value: &[u8]) -> Tag {
        let mac = hmac::sign(&self.0.key, value);
        let mut tag = String::with_capacity(TAG_LENGTH);
        tag.extend(["hmac:", &self.0.kid, ":"]);
        push_hex(&mut tag, mac.as_ref(), 8);
        Tag(tag)
    }

    /// `text` with a tag in place of all that has the shape of a secret. Most texts are returned as they are, and quickly.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = find::find(text);
        if found.is_empty() || crate::fault::is_armed(NOTHING) {
            return Cow::Borrowed(text);
        }
        let mut out = self.replaced(text, &found);
        // What stood between two secrets may be read otherwise now. Most often nothing is found, and this is the end.
        for _ in 0..MOST_ROUNDS {
            let found = find::find(&out);
            if found.is_empty() {
                break;
            }
            out = self.replaced(&out, &found);
        }
        Cow::Owned(out)
    }

    fn replaced(&self, text: &str, found: &[Range<usize>]) -> String {
        let mut out = String::with_capacity(text.len());
        let mut end = 0;
        for range in found {
            out.push_str(&text[end..range.start]);
            out.push_str(self.tag(text[range.clone()].as_bytes()).as_str());
            end = range.end;
        }
        out.push_str(&text[end..]);
        out
    }

    /// `value` without what has the shape of a secret, stands under a key that names one, or is pointed at:
    /// `masked` values are left out (`"[masked]"`), `tagged` ones replaced by their tag. Pointers are RFC 6901, with `*` for
    /// any key or index. Keys that look like secrets are replaced as well.
    pub fn json(&self, value: &Value, masked: &[String], tagged: &[String]) -> Value {
        if crate::fault::is_armed(NOTHING) {
            return value.clone();
        }
        json::Walk::new(self, masked, tagged).value(value)
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

/// Whether a text holds what has the shape of a secret.
pub fn holds_secret(text: &str) -> bool {
    !find::find(text).is_empty()
}

/// The tables of shapes and places, for the documentation.
pub fn tables() -> String {
    let mut text = String::from("| Shape | What it is | How it is written |\n|---|---|---|\n");
    for shape in SHAPES {
        text.push_str(&format!("| {} | {} | `{}` |\n", shape.id, shape.what, shape.to_string().replace('|', "\\|")));
    }
    text.push_str("\n| What | Where it stands |\n|---|---|\n");
    for (what, place) in places::TABLE {
        text.push_str(&format!("| {what} | {place} |\n"));
    }
    text
}

/// Whether a text is a tag, and nothing else.
fn is_tag(text: &str) -> bool {
    let hexadecimal = |text: &str, n: usize| text.len() == n && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = text.strip_prefix("hmac:").and_then(|rest| rest.split_once(':'));
    parts.is_some_and(|(kid, mac)| hexadecimal(kid, 8) && hexadecimal(mac, 16))
}

/// Where a test looks for the secrets that would be written down without all this (`fault`).
const NOTHING: &str = "redact.nothing";
const MOST_ROUNDS: usize = 3;
const TAG_LENGTH: usize = "hmac:01234567:0123456789abcdef".len();

/// Adds the first `n` bytes in hexadecimal: a tag is made for every call.
fn push_hex(out: &mut String, bytes: &[u8], n: usize) {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    out.extend(bytes.iter().take(n).flat_map(|byte| [digit(byte >> 4), digit(*byte)]));
}

#[cfg(test)]
mod tests;
