//! Small signed things that browsers keep for us: nothing is stored for a stranger, and nobody else can make one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// Signs and checks. Each kind of thing has a key of its own.
pub struct Signing {
    root: hmac::Key,
}

/// What is signed. A signature for one purpose holds for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// An authorization request that waits for a login.
    Ticket,
    /// A form of a session's page.
    Csrf,
    /// A browser that a person logged in with before.
    Device,
    /// A link that makes a browser one that a person has used before.
    BrowserLink,
    /// The authorization code of a flow.
    Code,
}

// === impl Signing ===

impl Signing {
    /// With keys derived from this one.
    pub fn new(key: &[u8; 32]) -> Self {
        Signing { root: hmac::Key::new(hmac::HMAC_SHA256, key) }
    }

    fn key(&self, purpose: Purpose) -> hmac::Key {
        let label: &[u8] = match purpose {
            Purpose::Ticket => b"portcullis/oauth/ticket/v1",
            Purpose::Csrf => b"portcullis/oauth/csrf/v1",
            Purpose::Device => b"portcullis/oauth/device/v1",
            Purpose::BrowserLink => b"portcullis/oauth/browser-link/v1",
            Purpose::Code => b"portcullis/oauth/code/v1",
        };
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.root, label).as_ref())
    }

    /// 256 bits that only we can make of `message`, in base64url.
    pub(super) fn mark(&self, purpose: Purpose, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key(purpose), message))
    }

    /// Whether `mark` is that of `message`; takes the same time whichever byte differs.
    pub(super) fn is_mark(&self, purpose: Purpose, message: &[u8], mark: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(mark) else {
            return false;
        };
        hmac::verify(&self.key(purpose), message, &bytes).is_ok()
    }

    /// `payload` and its mark, in one text.
    pub(super) fn sign(&self, purpose: Purpose, payload: &[u8]) -> String {
        let encoded = URL_SAFE_NO_PAD.encode(payload);
        let mark = self.mark(purpose, encoded.as_bytes());
        format!("{encoded}.{mark}")
    }

    /// The payload of a text that [`Signing::sign`] made for this purpose.
    pub(super) fn open(&self, purpose: Purpose, signed: &str) -> Option<Vec<u8>> {
        let (encoded, mark) = signed.split_once('.')?;
        if !self.is_mark(purpose, encoded.as_bytes(), mark) {
            return None;
        }
        URL_SAFE_NO_PAD.decode(encoded).ok()
    }
}

impl std::fmt::Debug for Signing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_opens_for_its_purpose_only_and_not_when_it_was_changed() {
        let signing = Signing::new(&[7; 32]);
        let signed = signing.sign(Purpose::Ticket, b"payload");

        assert_eq!(signing.open(Purpose::Ticket, &signed).as_deref(), Some(&b"payload"[..]));
        assert_eq!(signing.open(Purpose::Device, &signed), None);
        assert_eq!(Signing::new(&[8; 32]).open(Purpose::Ticket, &signed), None);
        for n in 0..signed.len() {
            let mut changed = signed.clone().into_bytes();
            changed[n] = if changed[n] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(signing.open(Purpose::Ticket, &changed), None, "{changed}");
        }
    }
}
