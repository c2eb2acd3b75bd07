//! The signature of Standard Webhooks: HMAC-SHA256 over id, time and body, in both directions.
//!
//! Only `v1` is known here. While a secret is exchanged for another, what we send carries a signature of each, and what
//! comes may carry one of either.

use crate::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use ring::hmac;

/// Stands before a secret.
const PREFIX: &str = "whsec_";
/// Of a secret, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;
/// How far a sender's clock may be off, in seconds; what is older cannot be replayed for longer than that.
const TOLERANCE_S: i64 = 5 * 60;
/// Signatures that are looked at in one header; a sender that exchanges its secret sends two.
const MOST_SIGNATURES: usize = 8;
/// In bytes.
const LONGEST_ID: usize = 128;

/// What signs for one webhook: its secret, and the one before it while that still counts.
#[derive(Clone, Debug)]
pub struct Keys(Vec<hmac::Key>);

/// A secret that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not `whsec_` and base64 of 24 to 64 bytes")]
pub struct Unfit;

/// What came as a signed message, before it was found to be one. All of it is a stranger's.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: &'a str,
    /// `webhook-signature`.
    pub signature: &'a str,
    /// The body as it came.
    pub body: &'a [u8],
}

/// Names the message, the same at every attempt.
pub(super) const ID: HeaderName = HeaderName::from_static("webhook-id");
/// When it was signed, in seconds since the Unix epoch.
pub(super) const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
/// Signatures, separated by spaces.
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

// === impl Signed ===

impl<'a> Signed<'a> {
    /// What came with these header fields; `None` where one of the three is missing or stands there twice.
    pub fn of(headers: &'a HeaderMap, body: &'a [u8]) -> Option<Signed<'a>> {
        let field = |name| one(headers, name);
        Some(Signed { id: field(&ID)?, timestamp: field(&TIMESTAMP)?, signature: field(&SIGNATURE)?, body })
    }
}

/// The only field of this name, as text.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok();
    first.filter(|_| all.next().is_none())
}

// === impl Keys ===

impl Keys {
    /// Those of a secret and perhaps the one before it, each as `whsec_…`.
    ///
    /// # Errors
    /// [`Unfit`], for the first one that is.
    pub fn of<'a>(secrets: impl IntoIterator<Item = &'a Secret<String>>) -> Result<Keys, Unfit> {
        secrets.into_iter().map(|secret| key(secret.expose())).collect::<Result<_, _>>().map(Keys)
    }

    /// The value of `webhook-signature`.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let message = message(id, &timestamp_s.to_string(), body);
        let signatures = self.0.iter().map(|key| format!("v1,{}", STANDARD.encode(hmac::sign(key, &message))));
        signatures.collect::<Vec<_>>().join(" ")
    }

    /// Whether one of these signed it, at about `now_s`. Takes the same time wherever a signature differs.
    pub fn have_signed(&self, signed: &Signed<'_>, now_s: i64) -> bool {
        // With a dot in it, one message could be read as another.
        let is_id = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-');
        if signed.id.is_empty() || signed.id.len() > LONGEST_ID || !signed.id.bytes().all(is_id) {
            return false;
        }
        let is_number = !signed.timestamp.is_empty() && signed.timestamp.bytes().all(|c| c.is_ascii_digit());
        let is_now = |at_s: i64| now_s.abs_diff(at_s) <= TOLERANCE_S.unsigned_abs();
        if !is_number || !signed.timestamp.parse().is_ok_and(is_now) {
            return false;
        }
        let message = message(signed.id, signed.timestamp, signed.body);
        let words = signed.signature.split(' ').take(MOST_SIGNATURES).filter_map(|word| word.strip_prefix("v1,"));
        let tags = words.filter_map(|word| STANDARD.decode(word).ok());
        tags.into_iter().any(|tag| self.0.iter().any(|key| hmac::verify(key, &message, &tag).is_ok()))
    }
}

fn key(secret: &str) -> Result<hmac::Key, Unfit> {
    let bytes = secret.strip_prefix(PREFIX).and_then(|text| STANDARD.decode(text).ok()).ok_or(Unfit)?;
    if !LENGTHS.contains(&bytes.len()) {
        return Err(Unfit);
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

fn message(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_614_265_330;
    const BODY: &[u8] = b"{\"test\": 2432232314}";

    fn keys(secrets: &[&str]) -> Result<Keys, Unfit> {
        Keys::of(&secrets.iter().map(|secret| Secret::new((*secret).to_owned())).collect::<Vec<_>>())
    }

    fn one() -> Keys {
        keys(&["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap()
    }

    /// The example of the specification's reference libraries.
    #[test]
    fn the_known_message_has_the_known_signature() {
        let signature = one().sign("msg_p5jXN8AQM9LWM0D4loKWxJek", NOW_S, BODY);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_24_to_64_bytes_behind_its_prefix() {
        let of = |n: usize| format!("whsec_{}", STANDARD.encode(vec![7; n]));
        for good in [of(24), of(32), of(64)] {
            assert!(keys(&[&good]).is_ok(), "{good}");
        }
        for bad in [of(23), of(65), "whsec_".to_owned(), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(), of(32) + "!"] {
            assert_eq!(keys(&[&bad]).map(|_| ()), Err(Unfit), "{bad}");
        }
        assert!(keys(&[&of(24), "x"]).is_err());
    }

    ///
    #[test]
    fn what_is_signed_otherwise_or_altered_or_old_is_not_taken() {
        let (id, timestamp) = ("msg_1", NOW_S.to_string());
        let signature = one().sign(id, NOW_S, BODY);
        let signed = Signed { id, timestamp: &timestamp, signature: &signature, body: BODY };
        assert!(one().have_signed(&signed, NOW_S));
        assert!(one().have_signed(&signed, NOW_S + 300) && one().have_signed(&signed, NOW_S - 300));

        assert!(!one().have_signed(&signed, NOW_S + 301) && !one().have_signed(&signed, NOW_S - 301));
        let other = keys(&["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]).unwrap();
        assert!(!other.have_signed(&signed, NOW_S));
        let asymmetric = signature.replace("v1,", "v1a,");
        let bare = signature.replace("v1,", "");
        let cut = signature.trim_end_matches('=');
        let junk = "v1,!!!! v1, v2,AAAA";
        let many = format!("{}{signature}", "v1,AAAA ".repeat(8));
        for signature in ["", &asymmetric, &bare, cut, junk, &many] {
            assert!(!one().have_signed(&Signed { signature, ..signed }, NOW_S), "{signature}");
        }
        for body in [&BODY[1..], b"", b"{\"test\": 2432232315}"] {
            assert!(!one().have_signed(&Signed { body, ..signed }, NOW_S));
        }
        for timestamp in ["", "now", "-1614265330", "+1614265330", "1614265331", "99999999999999999999"] {
            assert!(!one().have_signed(&Signed { timestamp, ..signed }, NOW_S), "{timestamp}");
        }
        for id in ["", "msg_2", "msg.1", "msg 1", &"m".repeat(200)] {
            let signature = one().sign(id, NOW_S, BODY);
            let is_same = Signed { id, signature: &signature, ..signed };
            assert_eq!(one().have_signed(&is_same, NOW_S), id == "msg_2", "{id}");
            assert!(!one().have_signed(&Signed { id, ..signed }, NOW_S), "{id}");
        }
    }

    #[test]
    fn while_a_secret_is_exchanged_both_count() {
        let (old, new) = ("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let both = keys(&[new, old]).unwrap();
        let signature = both.sign("msg_1", NOW_S, BODY);
        assert_eq!(signature.split(' ').count(), 2);
        for keys in [keys(&[new]).unwrap(), keys(&[old]).unwrap()] {
            let (timestamp, own) = (NOW_S.to_string(), keys.sign("msg_1", NOW_S, BODY));
            let ours = Signed { id: "msg_1", timestamp: &timestamp, signature: &signature, body: BODY };
            assert!(keys.have_signed(&ours, NOW_S), "they take ours");
            assert!(both.have_signed(&Signed { signature: &own, ..ours }, NOW_S), "we take theirs");
        }
    }
}
