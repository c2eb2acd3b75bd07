//! Session ids of legacy servers, sealed before a client sees them (DESIGN §4).
//!
//! A session id is a name, never authentication. Ours holds the upstream's, encrypted and bound to the route, the
//! upstream, the issuer, the subject and the client, so that nobody else can use it; it is not bound to the token's
//! bytes, so that it outlives a refresh. Nothing is stored.

use crate::identity::Principal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// 256 bits that seal sessions; shared by all replicas.
pub type SessionKey = [u8; 32];

/// Seals and opens session ids.
pub struct Sessions {
    key: LessSafeKey,
}

/// The longest sealed id that is looked at.
const MAX_SEALED: usize = 4096;

impl Sessions {
    /// With this key.
    pub fn new(key: &SessionKey) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the length of this algorithm");
        Sessions { key: LessSafeKey::new(key) }
    }

    /// The upstream's `id` as the client gets it.
    pub fn seal(&self, id: &HeaderValue, upstream: &str, principal: &Principal) -> HeaderValue {
        let nonce: [u8; NONCE_LEN] = crate::id::random_bytes();
        let mut sealed = id.as_bytes().to_vec();
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound_to(upstream, principal), &mut sealed)
            .expect("a session id is far below the cipher's limit");
        let text = URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat());
        HeaderValue::try_from(text).expect("base64url is a header value")
    }

    /// The upstream's id in what the client sent; `None` for an id that is not ours, or not this principal's here.
    pub fn open(&self, sealed: &HeaderValue, upstream: &str, principal: &Principal) -> Option<HeaderValue> {
        if sealed.len() > MAX_SEALED {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(sealed.as_bytes()).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut rest = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let id = self.key.open_in_place(nonce, bound_to(upstream, principal), &mut rest).ok()?;
        HeaderValue::from_bytes(id).ok()
    }
}

/// Lengths stand before the parts, so that no two sets of parts give the same bytes.
fn bound_to(upstream: &str, principal: &Principal) -> Aad<Vec<u8>> {
    let subject = principal.subject.to_string();
    let mut bytes = b"portcullis/session/v1".to_vec();
    for part in [upstream, &principal.issuer, &subject, &principal.client] {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    Aad::from(bytes)
}
