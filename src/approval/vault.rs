//! What the store keeps of a held call is sealed, and what people said of it carries a mark: whoever can write the store
//! but has no key of ours can read no arguments, exchange no call for another, and approve nothing.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

/// Seals and marks with keys derived from the one of this gateway.
pub(super) struct Vault {
    seal: LessSafeKey,
    mark: hmac::Key,
    mask: hmac::Key,
}

/// What is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Call,
    Result,
}

impl Vault {
    pub(super) fn new(key: &[u8; 32]) -> Vault {
        let root = hmac::Key::new(hmac::HMAC_SHA256, key);
        let derived = |label: &[u8]| hmac::sign(&root, label);
        let seal = UnboundKey::new(&CHACHA20_POLY1305, derived(b"portcullis/approval/seal/v1").as_ref());
        Vault {
            seal: LessSafeKey::new(seal.expect("an HMAC of SHA-256 has the length of this key")),
            mark: hmac::Key::new(hmac::HMAC_SHA256, derived(b"portcullis/approval/mark/v1").as_ref()),
            mask: hmac::Key::new(hmac::HMAC_SHA256, derived(b"portcullis/approval/mask/v1").as_ref()),
        }
    }

    /// `bytes` of the call `id`, so that they open as nothing else, nor beside other `terms`.
    pub(super) fn seal(&self, content: Content, id: &str, digest: &[u8; 32], terms: &str, bytes: &[u8]) -> Vec<u8> {
        // Random: several processes seal with this key, each far fewer than the 2^32 that a random nonce allows.
        let nonce: [u8; NONCE_LEN] = crate::id::random_bytes();
        let mut sealed = bytes.to_vec();
        self.seal
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(bound_to(content, id, digest, terms)),
                &mut sealed,
            )
            .expect("what is sealed is far below the cipher's limit");
        [&nonce[..], &sealed].concat()
    }

    /// What was sealed; `None` where it is not that.
    pub(super) fn open(
        &self,
        content: Content,
        id: &str,
        digest: &[u8; 32],
        terms: &str,
        sealed: &[u8],
    ) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut rest = rest.to_vec();
        let aad = Aad::from(bound_to(content, id, digest, terms));
        let opened = self.seal.open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut rest).ok()?;
        Some(opened.to_vec())
    }

    /// Proves that this gateway wrote these parts down together.
    pub(super) fn mark(&self, parts: &[&[u8]]) -> [u8; 32] {
        hmac::sign(&self.mark, &joined(parts)).as_ref().try_into().expect("an HMAC of SHA-256 has 32 bytes")
    }

    /// Whether `mark` is theirs.
    pub(super) fn is_mark(&self, parts: &[&[u8]], mark: &[u8; 32]) -> bool {
        hmac::verify(&self.mark, &joined(parts), mark).is_ok()
    }

    /// A name for a masked value: the same for the same value, and told to nobody who could try values at home.
    pub(super) fn mask(&self, value: &[u8]) -> String {
        super::call::hex(hmac::sign(&self.mask, value).as_ref().get(..8).unwrap_or_default())
    }
}

fn bound_to(content: Content, id: &str, digest: &[u8; 32], terms: &str) -> Vec<u8> {
    let content: &[u8] = match content {
        Content::Call => b"call",
        Content::Result => b"result",
    };
    joined(&[content, id.as_bytes(), digest, terms.as_bytes()])
}

/// Lengths stand before the parts, so that no two sets of parts give the same bytes.
fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    for part in parts {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_where_it_belongs_only() {
        let vault = Vault::new(&[7; 32]);
        let sealed = vault.seal(Content::Call, "h_1", &[1; 32], "{}", b"rm -rf /");

        assert_eq!(vault.open(Content::Call, "h_1", &[1; 32], "{}", &sealed).as_deref(), Some(&b"rm -rf /"[..]));
        assert!(!sealed.windows(2).any(|two| two == b"rm"));
        assert_eq!(vault.open(Content::Result, "h_1", &[1; 32], "{}", &sealed), None);
        assert_eq!(vault.open(Content::Call, "h_2", &[1; 32], "{}", &sealed), None);
        assert_eq!(vault.open(Content::Call, "h_1", &[2; 32], "{}", &sealed), None);
        assert_eq!(Vault::new(&[8; 32]).open(Content::Call, "h_1", &[1; 32], "{}", &sealed), None);
        assert_eq!(vault.open(Content::Call, "h_1", &[1; 32], "[]", &sealed), None);
        assert_eq!(vault.open(Content::Call, "h_1", &[1; 32], "{}", b"short"), None);
    }

    #[test]
    fn a_mark_is_of_its_parts_and_their_borders() {
        let vault = Vault::new(&[7; 32]);
        let mark = vault.mark(&[b"ab", b"c"]);
        assert!(vault.is_mark(&[b"ab", b"c"], &mark));
        assert!(!vault.is_mark(&[b"a", b"bc"], &mark));
        assert!(!vault.is_mark(&[b"ab", b"c", b""], &mark));
    }
}
