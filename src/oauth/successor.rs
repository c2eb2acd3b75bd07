//! A refresh token's successor, sealed under a key that only the refresh token itself gives.
//!
//! A client whose first answer was lost comes again with the old token and must get the same successor. Kept as it is,
//! that successor would give every live refresh token to whoever reads the store. So the key is derived from the old
//! token (HKDF, RFC 5869), of which the store has only the SHA-256.

use crate::id::random_bytes;
use crate::secret::Secret;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;

/// `successor`, for whoever has `token`.
pub(super) fn seal(token: &str, successor: &str) -> Vec<u8> {
    let nonce = random_bytes::<NONCE_LEN>();
    let mut sealed = successor.as_bytes().to_vec();
    key(token)
        .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed)
        .expect("a token is far below the cipher's limit");
    [&nonce[..], &sealed].concat()
}

/// What [`seal`] sealed for `token`; `None` where it was not for this token, or was changed.
pub(super) fn open(token: &str, sealed: &[u8]) -> Option<Secret<String>> {
    let mut sealed = sealed.to_vec();
    let (nonce, rest) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
    let successor = key(token).open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::empty(), rest).ok()?;
    String::from_utf8(successor.to_vec()).ok().map(Secret::new)
}

fn key(token: &str) -> LessSafeKey {
    let root = hkdf::Salt::new(hkdf::HKDF_SHA256, b"portcullis/oauth/refresh/v1").extract(token.as_bytes());
    let key = root.expand(&[b"successor"], &CHACHA20_POLY1305).expect("the key is shorter than HKDF's limit");
    LessSafeKey::new(UnboundKey::from(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_opens_with_its_predecessor_only() {
        let sealed = seal("pcr_old", "pcr_new");

        assert_eq!(open("pcr_old", &sealed), Some(Secret::new("pcr_new".to_owned())));
        assert!(!sealed.windows(7).any(|window| window == b"pcr_new"));
        assert_eq!(open("pcr_other", &sealed), None);
        for n in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[n] ^= 1;
            assert_eq!(open("pcr_old", &changed), None, "byte {n}");
        }
        for short in [&[][..], &sealed[..5], &sealed[..NONCE_LEN]] {
            assert_eq!(open("pcr_old", short), None);
        }
    }
}
