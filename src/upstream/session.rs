//! Sessions of legacy servers (MCP 2025-03-26 to 2025-11-25, Streamable HTTP, "Session Management").
//!
//! The client gets the upstream's session id sealed, together with what `initialize` agreed on: so that the revision
//! and the client's abilities are known on every later request, on any replica, without a table. What is kept is the
//! other end only: sessions that were ended, for as long as a seal could still name them.

use super::seal::{Purpose, Scope, Seal};
use crate::clock::Clock;
use crate::mcp::{Abilities, SUPPORTED};
use crate::store::{self, Store};
use dashmap::DashMap;
use http::HeaderValue;
use std::sync::Arc;

/// What one sealed session id stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The upstream's own id.
    pub id: HeaderValue,
    /// The revision that `initialize` agreed on.
    pub version: &'static str,
    /// What the client said it can be asked for.
    pub abilities: Abilities,
    /// When it began, seconds since the Unix epoch.
    pub began: i64,
}

/// Seals and opens session ids, and knows which sessions were ended.
pub struct Sessions {
    seal: Arc<Seal>,
    store: Store,
    clock: Clock,
    /// By the digest of upstream and id; with when each was ended.
    ended: DashMap<[u8; 32], i64>,
}

/// The longest id of an upstream's, in bytes.
const LONGEST: usize = 2048;
/// The longest sealed id that is looked at, in bytes.
const MAX_SEALED: usize = 4096;
/// A session lasts this long at most; then it is unknown, and the client begins another. Bounds what is kept of ended ones.
const LIFETIME_SECONDS: i64 = 30 * 24 * 60 * 60;

impl Session {
    /// Whether an upstream's `id` is one: visible ASCII (MCP, Streamable HTTP, "Session Management"), and short enough
    /// to come back sealed.
    pub fn is_id(id: &HeaderValue) -> bool {
        (1..=LONGEST).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
    }
}

impl Sessions {
    /// Sealed with `seal`; ended ones are remembered in `store`.
    ///
    /// # Errors
    /// The store cannot say which sessions were ended.
    pub async fn open_with(seal: Arc<Seal>, store: Store, clock: Clock) -> Result<Self, store::Error> {
        let oldest = clock.unix_seconds().saturating_sub(LIFETIME_SECONDS).saturating_mul(1000);
        let ended = store.ended_sessions(oldest).await?;
        let ended = ended.into_iter().collect();
        Ok(Sessions { seal, store, clock, ended })
    }

    /// A session that begins now.
    pub fn begin(&self, id: HeaderValue, version: &'static str, abilities: Abilities) -> Session {
        Session { id, version, abilities, began: self.clock.unix_seconds() }
    }

    /// `session` as its client gets to see it. Every seal looks different.
    pub fn seal(&self, session: &Session, scope: Scope<'_>) -> HeaderValue {
        let version = SUPPORTED.iter().position(|known| *known == session.version).unwrap_or_default();
        let mut payload = vec![u8::try_from(version).unwrap_or_default(), session.abilities.to_bits()];
        payload.extend_from_slice(&session.began.to_be_bytes());
        payload.extend_from_slice(session.id.as_bytes());
        let text = self.seal.seal(Purpose::Session, scope, &[], payload);
        HeaderValue::try_from(text).expect("base64url is a header value")
    }

    /// The session that the client named; `None` for one that is not ours, not this principal's here, or over.
    pub fn open(&self, sealed: &HeaderValue, scope: Scope<'_>) -> Option<Session> {
        if sealed.len() > MAX_SEALED {
            return None;
        }
        let payload = self.seal.open(Purpose::Session, scope, &[], sealed.as_bytes())?;
        let (head, id) = payload.split_first_chunk::<10>()?;
        let [version, abilities, began @ ..] = *head;
        let session = Session {
            id: HeaderValue::from_bytes(id).ok()?,
            version: SUPPORTED.get(usize::from(version))?,
            abilities: Abilities::from_bits(abilities),
            began: i64::from_be_bytes(began),
        };
        let age = self.clock.unix_seconds().saturating_sub(session.began);
        let is_over = age > LIFETIME_SECONDS || self.ended.contains_key(&digest(&session, scope));
        (!is_over).then_some(session)
    }

    /// Remembers that `session` was ended, however it is sealed. Durable when this returns.
    ///
    /// # Errors
    /// The store's own; until the next restart it is remembered all the same.
    pub async fn end(&self, session: &Session, scope: Scope<'_>) -> Result<(), store::Error> {
        let digest = digest(session, scope);
        let now = self.clock.unix_ms();
        self.ended.insert(digest, now);
        let oldest = now.saturating_sub(LIFETIME_SECONDS.saturating_mul(1000));
        self.ended.retain(|_, at| *at >= oldest);
        self.store.end_session(digest, now, oldest).await
    }
}

fn digest(session: &Session, scope: Scope<'_>) -> [u8; 32] {
    let subject = scope.principal.subject.to_string();
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    let whose = [scope.upstream, &scope.principal.issuer, &subject, &scope.principal.client];
    for part in whose.into_iter().map(str::as_bytes).chain([session.id.as_bytes()]) {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}
