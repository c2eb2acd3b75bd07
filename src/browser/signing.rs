//! Small signed things that browsers keep for us: nothing is stored for a stranger, and nobody else can make one.
//!
//! Each plane signs with keys of its own: what one of them has signed means nothing to another.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;

/// Signs and checks for one plane. Each kind of thing has a key of its own.
pub struct Signing {
    root: hmac::Key,
    plane: &'static str,
}

/// What is signed. A signature for one purpose holds for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
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
    /// How much of a held call a person was shown.
    Shown,
}

// === impl Signing ===

impl Signing {
    /// With keys derived from this one, for the plane of this name.
    pub fn new(key: &[u8; 32], plane: &'static str) -> Self {
        Signing { root: hmac::Key::new(hmac::HMAC_SHA256, key), plane }
    }

    fn key(&self, purpose: Purpose) -> hmac::Key {
        let purpose = match purpose {
            Purpose::Ticket => "ticket",
            Purpose::Csrf => "csrf",
            Purpose::Device => "device",
            Purpose::BrowserLink => "browser-link",
            Purpose::Code => "code",
            Purpose::Shown => "shown",
        };
        let label = format!("portcullis/{}/{purpose}/v1", self.plane);
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.root, label.as_bytes()).as_ref())
    }

    /// 256 bits that only we can make of `message`, in base64url.
    pub fn mark(&self, purpose: Purpose, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.key(purpose), message))
    }

    /// Whether `mark` is that of `message`; takes the same time whichever byte differs.
    pub fn is_mark(&self, purpose: Purpose, message: &[u8], mark: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(mark) else {
            return false;
        };
        hmac::verify(&self.key(purpose), message, &bytes).is_ok()
    }

    /// `payload` and its mark, in one text.
    pub fn sign(&self, purpose: Purpose, payload: &[u8]) -> String {
        let encoded = URL_SAFE_NO_PAD.encode(payload);
        let mark = self.mark(purpose, encoded.as_bytes());
        format!("{encoded}.{mark}")
    }

    /// The payload of a text that [`Signing::sign`] made for this purpose.
    pub fn open(&self, purpose: Purpose, signed: &str) -> Option<Vec<u8>> {
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
        let signing = Signing::new(&[7; 32], "oauth");
        let signed = signing.sign(Purpose::Ticket, b"payload");

        assert_eq!(signing.open(Purpose::Ticket, &signed).as_deref(), Some(&b"payload"[..]));
        assert_eq!(signing.open(Purpose::Device, &signed), None);
        assert_eq!(Signing::new(&[8; 32], "oauth").open(Purpose::Ticket, &signed), None);
        assert_eq!(Signing::new(&[7; 32], "admin").open(Purpose::Ticket, &signed), None);
        for n in 0..signed.len() {
            let mut changed = signed.clone().into_bytes();
            changed[n] = if changed[n] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(signing.open(Purpose::Ticket, &changed), None, "{changed}");
        }
    }
}
