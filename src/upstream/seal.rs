//! What a client keeps for us: sealed so that it cannot be read or changed, and bound to where and whose it is.
//!
//! Session ids, event ids and request states of an upstream all leave the gateway this way (DESIGN §4). Nothing is
//! stored, so a seal opens after a restart and on every replica that has the key; and a seal is a name, never
//! authentication: it opens only for the principal it was made for, who has shown a token first.

use crate::identity::Principal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::sync::atomic::{AtomicU64, Ordering};

/// 256 bits that seal; shared by all replicas.
pub type SealKey = [u8; 32];

/// Seals and opens.
pub struct Seal {
    key: LessSafeKey,
    /// Random per process; the count makes each nonce differ, without asking the system for every one.
    nonce_base: [u8; NONCE_LEN],
    n_sealed: AtomicU64,
}

/// What a seal is for. One made for one purpose opens for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Session,
    Event,
    RequestState,
    HoldState,
}

/// Where and whose a seal is.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The upstream's name, which is the route's.
    pub upstream: &'a str,
    /// Who it is for. Not the token's bytes, scopes or grant: a seal outlives a refresh.
    pub principal: &'a Principal,
}

// === impl Seal ===

impl Seal {
    /// With this key.
    pub fn new(key: &SealKey) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has the length of this algorithm");
        Seal { key: LessSafeKey::new(key), nonce_base: crate::id::random_bytes(), n_sealed: AtomicU64::new(0) }
    }

    /// `payload`, sealed, as base64url. `within` narrows the scope: the session of an event, the call of a state.
    pub(super) fn seal(&self, purpose: Purpose, scope: Scope<'_>, within: &[&[u8]], mut payload: Vec<u8>) -> String {
        let nonce = self.next_nonce();
        let aad = bound_to(purpose, scope, within);
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut payload)
            .expect("what is sealed is far below the cipher's limit");
        URL_SAFE_NO_PAD.encode([&nonce[..], &payload].concat())
    }

    /// What is in `sealed`; `None` where it is not ours, or not for this.
    pub(super) fn open(&self, purpose: Purpose, scope: Scope<'_>, within: &[&[u8]], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let payload = self.key.open_in_place(nonce, bound_to(purpose, scope, within), rest).ok()?;
        Some(payload.to_vec())
    }

    fn next_nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.nonce_base;
        let count = self.n_sealed.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let low = nonce.iter_mut().rev().zip(count.iter().rev());
        low.for_each(|(byte, count)| *byte ^= count);
        nonce
    }
}

/// Lengths stand before the parts, so that no two sets of parts give the same bytes.
fn bound_to(purpose: Purpose, scope: Scope<'_>, within: &[&[u8]]) -> Aad<Vec<u8>> {
    let purpose: &[u8] = match purpose {
        Purpose::Session => b"portcullis/session/v2",
        Purpose::Event => b"portcullis/event/v1",
        Purpose::RequestState => b"portcullis/request-state/v1",
        Purpose::HoldState => b"portcullis/hold-state/v1",
    };
    let subject = scope.principal.subject.to_string();
    let whose = [scope.upstream, &scope.principal.issuer, &subject, &scope.principal.client].map(str::as_bytes);
    let mut bytes = Vec::with_capacity(256);
    for part in [purpose].iter().chain(&whose).chain(within) {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    Aad::from(bytes)
}
