//! From a bearer token to what it stands for, on every request.
//!
//! A token is checked in full once; then it is remembered by its SHA-256, and a request costs a hash, a look-up and two
//! comparisons. Only tokens that verified are remembered, so strangers cannot fill the memory.
//!
//! Remembering is safe only while revocations arrive: [`Verifier::watch_revocations`] asks the store for them five times
//! a second, and [`Verifier::is_current`] tells whether that worked lately. The data path asks before it lets a call through.

use super::cache::{Cache, Digest, sha256};
use super::{Claims, Error, Keys, Principal, Subject, token};
use crate::clock::Clock;
use crate::store::{self, Grant, Store};
use dashmap::DashMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Without news of revocations for this long, remembered tokens are not to be trusted with calls.
pub const FEED_LIMIT: Duration = Duration::from_secs(30);

/// How often revocations are asked for.
const FEED_PERIOD: Duration = Duration::from_millis(200);

/// What has expired is dropped this often.
const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// Grants stay in the store for a week after their end, so that `token list` and an audit can still name them.
const KEPT_AFTER_EXPIRY_MS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// Long streams are told of a revocation within moments; this leaves them plenty.
const KEPT_AFTER_REVOCATION_SECONDS: i64 = 10 * 60;

/// What a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// This gateway.
    pub issuer: Arc<str>,
    /// On whose behalf.
    pub subject: Subject,
    /// The OAuth client it was given to.
    pub client: Arc<str>,
    /// What it may be used for.
    pub scopes: Arc<[String]>,
    /// The grant behind it.
    pub grant: Arc<str>,
    /// The one resource it opens.
    pub resource: Arc<str>,
    /// When it ends, seconds since the Unix epoch.
    pub expires_at: i64,
    /// What its person's password was when the grant was made.
    pub password_mark: Option<Arc<str>>,
}

/// Verifies the access tokens of one issuer. Clones share what is remembered.
#[derive(Clone, Debug)]
pub struct Verifier(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    issuer: Arc<str>,
    keys: Arc<Keys>,
    store: Store,
    clock: Clock,
    cache: Cache<Verified>,
    feed: Feed,
    revoked: RevokedLately,
}

/// What long streams ask, which were verified long ago.
#[derive(Debug)]
struct RevokedLately {
    /// With when each was seen, in seconds since the Unix epoch.
    grants: DashMap<String, i64>,
    news: watch::Sender<()>,
}

/// How far this process has followed the revocations.
#[derive(Debug)]
struct Feed {
    /// Counts the times revocations were applied. A token looked up before and remembered after one could have missed it.
    n_applied: AtomicU64,
    /// When the store was last heard, in milliseconds since `start`.
    heard_ms: AtomicU64,
    start: Instant,
}

// === impl Verifier ===

impl Verifier {
    /// A verifier that remembers at most `capacity` tokens. Whoever makes it also runs [`Verifier::watch_revocations`].
    pub fn new(issuer: Arc<str>, keys: Arc<Keys>, store: Store, clock: Clock, capacity: usize) -> Verifier {
        let revoked = RevokedLately { grants: DashMap::new(), news: watch::Sender::new(()) };
        let (cache, feed) = (Cache::new(capacity), Feed::new());
        Verifier(Arc::new(Shared { issuer, keys, store, clock, cache, feed, revoked }))
    }

    /// How many tokens are remembered.
    pub fn n_cached(&self) -> usize {
        self.0.cache.len()
    }

    /// What `bearer` stands for at the route whose resource URL is `resource`.
    ///
    /// # Errors
    /// Why it is not accepted there now.
    pub async fn verify(&self, bearer: &str, resource: &str) -> Result<Arc<Verified>, Error> {
        if bearer.len() > token::LONGEST_TOKEN {
            return Err(Error::Malformed("too long"));
        }
        let key = sha256(bearer.as_bytes());
        let verified = match self.0.cache.get(&key) {
            Some(verified) => verified,
            None => self.verify_anew(bearer, key).await?,
        };
        // Also for what is remembered: the same token may come to another route, and time passes.
        if *verified.resource != *resource {
            return Err(Error::WrongAudience);
        }
        if self.0.clock.unix_seconds() >= verified.expires_at {
            self.0.cache.remove(&key);
            return Err(Error::Expired);
        }
        Ok(verified)
    }

    /// What a token of this grant would stand for now; `None` where the grant is not in force.
    ///
    /// # Errors
    /// The store's.
    pub async fn of_grant(&self, grant: &str) -> Result<Option<Verified>, store::Error> {
        let Some(grant) = self.0.store.grant(grant).await? else {
            return Ok(None);
        };
        let is_in_force = grant.revoked.is_none() && self.0.clock.unix_ms() < grant.expires_at_ms;
        Ok(is_in_force.then(|| Verified {
            issuer: grant.issuer,
            subject: grant.subject,
            client: grant.client,
            scopes: grant.scopes,
            grant: grant.id,
            resource: grant.resource,
            expires_at: grant.expires_at_ms.div_euclid(1000),
            password_mark: grant.password_mark,
        }))
    }

    /// Says when revocations were applied.
    pub fn revocations(&self) -> watch::Receiver<()> {
        self.0.revoked.news.subscribe()
    }

    /// Whether the grant of `principal` is among the latest revocations this process has seen.
    pub fn is_revoked(&self, principal: &Principal) -> bool {
        principal.grant.as_ref().is_some_and(|grant| self.0.revoked.grants.contains_key(&**grant))
    }

    /// Whether the store was heard within [`FEED_LIMIT`]. If not, a revoked token may still be remembered.
    pub fn is_current(&self) -> bool {
        self.0.feed.is_current_at(Instant::now())
    }

    /// Forgets what was verified: a key that signed some of it counts no more.
    pub fn forget(&self) {
        // Counted first, see `verify_anew`.
        self.0.feed.n_applied.fetch_add(1, Ordering::SeqCst);
        self.0.cache.retain(|_| false);
    }

    /// Follows the revocations, and drops what has expired, for as long as it is polled; run as a task that ends with
    /// the server.
    pub async fn watch_revocations(&self) {
        let mut ticks = tokio::time::interval(FEED_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut change, mut swept_at, mut was_heard) = (0, Instant::now(), true);
        loop {
            ticks.tick().await;
            let followed = self.follow(&mut change).await;
            // One line when it goes wrong and one when it is well again, not five a second.
            match &followed {
                Err(error) if was_heard => {
                    tracing::warn!(%error, "revocations cannot be read; remembered tokens are trusted for 30 s more");
                }
                Ok(()) if !was_heard => tracing::info!("revocations are read again"),
                _ => {}
            }
            was_heard = followed.is_ok();
            if swept_at.elapsed() >= SWEEP_PERIOD {
                swept_at = Instant::now();
                self.sweep().await;
            }
        }
    }

    async fn verify_anew(&self, bearer: &str, key: Digest) -> Result<Arc<Verified>, Error> {
        let shared = &*self.0;
        let n_applied = shared.feed.n_applied.load(Ordering::SeqCst);
        let claims = token::verify(bearer, &shared.keys, &shared.issuer, shared.clock.unix_seconds())?;
        let grant = shared.store.grant(&claims.grant).await.map_err(Error::Unavailable)?;
        let grant = grant.ok_or(Error::UnknownGrant)?;
        let verified = Arc::new(accept(claims, &grant, shared.clock.unix_ms())?);
        self.remember(key, verified.clone(), n_applied);
        Ok(verified)
    }

    /// Remembers a token whose grant was looked up when revocations had been applied `n_applied` times.
    fn remember(&self, key: Digest, verified: Arc<Verified>, n_applied: u64) {
        self.0.cache.insert(key, verified);
        // Revoked between the look-up and the insertion: what dropped revoked tokens may have come too early for this one.
        if self.0.feed.n_applied.load(Ordering::SeqCst) != n_applied {
            self.0.cache.remove(&key);
        }
    }

    /// Takes in all revocations after `change` and notes that the store was heard.
    async fn follow(&self, change: &mut i64) -> Result<(), store::Error> {
        let shared = &*self.0;
        let asked_at = Instant::now();
        loop {
            let (next, revoked) = shared.store.revocations_after(*change).await?;
            *change = next;
            if revoked.is_empty() {
                shared.feed.heard_at(asked_at);
                return Ok(());
            }
            // Counted before anything is dropped, see `verify_anew`.
            shared.feed.n_applied.fetch_add(1, Ordering::SeqCst);
            let revoked: HashSet<String> = revoked.into_iter().collect();
            shared.cache.retain(|verified| !revoked.contains(&*verified.grant));
            let now = shared.clock.unix_seconds();
            revoked.into_iter().for_each(|grant| _ = shared.revoked.grants.insert(grant, now));
            shared.revoked.news.send_replace(());
        }
    }

    /// Drops what has expired, from memory and, after a while, from the store: neither may grow for ever.
    async fn sweep(&self) {
        let now = self.0.clock.unix_seconds();
        self.0.cache.retain(|verified| now < verified.expires_at);
        // Every stream has been told by then.
        self.0.revoked.grants.retain(|_, at| now.saturating_sub(*at) < KEPT_AFTER_REVOCATION_SECONDS);
        let long_ago_ms = self.0.clock.unix_ms().saturating_sub(KEPT_AFTER_EXPIRY_MS);
        if let Err(error) = self.0.store.purge_expired(long_ago_ms).await {
            tracing::warn!(%error, "expired grants cannot be removed");
        }
    }
}

/// The grant must be in force and say what the token says.
fn accept(claims: Claims, grant: &Grant, now_ms: i64) -> Result<Verified, Error> {
    let is_same = *grant.issuer == *claims.issuer
        && grant.subject == claims.subject
        && *grant.client == *claims.client
        && *grant.resource == *claims.resource
        && claims.scopes.iter().all(|scope| grant.scopes.contains(scope));
    if !is_same {
        return Err(Error::UnknownGrant);
    }
    if grant.revoked.is_some() {
        return Err(Error::Revoked);
    }
    if now_ms >= grant.expires_at_ms {
        return Err(Error::Expired);
    }
    Ok(Verified {
        issuer: claims.issuer,
        subject: claims.subject,
        client: claims.client,
        scopes: claims.scopes,
        grant: claims.grant,
        resource: claims.resource,
        expires_at: claims.expires_at.min(grant.expires_at_ms.div_euclid(1000)),
        password_mark: grant.password_mark.clone(),
    })
}

// === impl Feed ===

impl Feed {
    fn new() -> Feed {
        Feed { n_applied: AtomicU64::new(0), heard_ms: AtomicU64::new(0), start: Instant::now() }
    }

    fn heard_at(&self, at: Instant) {
        self.heard_ms.fetch_max(self.since_start_ms(at), Ordering::SeqCst);
    }

    fn is_current_at(&self, now: Instant) -> bool {
        let silent_ms = self.since_start_ms(now).saturating_sub(self.heard_ms.load(Ordering::SeqCst));
        Duration::from_millis(silent_ms) < FEED_LIMIT
    }

    fn since_start_ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
#[path = "verifier_tests.rs"]
mod tests;
