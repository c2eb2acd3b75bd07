//! The keys of one issuer as they are known now, and when they are fetched again.
//!
//! Strangers can send tokens that name keys nobody has heard of, as many as they like. So such a token brings about at
//! most one fetch in [`UNKNOWN_KEY_PAUSE`], there is never more than one at a time, and whoever comes meanwhile waits for
//! it or is refused. Everything else goes by the clock: every [`FRESH`] while it works, sooner and then more slowly while
//! it does not. A token never causes a fetch by having a wrong signature.

use super::discovery::{self, Place};
use super::jwk::Key;
use crate::clock::Clock;
use crate::fetch::Fetcher;
use crate::metrics::Metrics;
use arc_swap::ArcSwap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

/// Keys are fetched again after this long: a key that was taken out is trusted for no longer, while the issuer answers.
pub(super) const FRESH: Duration = Duration::from_secs(300);
/// While the issuer does not answer, its last keys are trusted for this long.
pub(super) const STALE: Duration = Duration::from_secs(24 * 60 * 60);
/// Between two fetches that tokens with unknown keys bring about.
pub(super) const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(30);
/// After a failure; doubled each time.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Metadata and keys together may take this long; requests that wait for them wait no longer.
const LIMIT: Duration = Duration::from_secs(10);

/// What fetching needs. Clones share it.
#[derive(Clone)]
pub struct Fetching {
    /// Fetches.
    pub fetcher: Fetcher,
    /// Counts fetches.
    pub metrics: Arc<Metrics>,
    /// The time of day, for tokens and metrics.
    pub clock: Clock,
}

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct Keys {
    /// Where they come from.
    pub(super) place: Place,
    known: ArcSwap<Known>,
    plan: Mutex<Plan>,
}

/// What the last fetch that worked brought.
#[derive(Debug, Default)]
struct Known {
    keys: Vec<Arc<Key>>,
    /// `None`: there was none yet.
    fetched_at: Option<Instant>,
}

/// When the next fetch is.
#[derive(Debug)]
struct Plan {
    due: Instant,
    /// How long to wait after the next failure.
    wait: Duration,
    /// When a token with an unknown key last brought one about.
    asked_at: Option<Instant>,
    /// Closed when the fetch that is under way ends.
    running: Option<watch::Receiver<()>>,
}

// === impl Keys ===

impl Keys {
    pub(super) fn new(place: Place) -> Keys {
        let plan = Plan { due: Instant::now(), wait: FIRST_RETRY, asked_at: None, running: None };
        Keys { place, known: ArcSwap::default(), plan: Mutex::new(plan) }
    }

    /// The keys of this name; two of different kinds may share one (RFC 7517 §4.5). None where nothing is known, or what
    /// is known is too old to be trusted.
    pub(super) fn find(&self, kid: &str) -> Vec<Arc<Key>> {
        let known = self.known.load();
        let named = known.keys.iter().filter(|key| key.kid == kid);
        if known.is_trusted_at(Instant::now()) { named.cloned().collect() } else { Vec::new() }
    }

    /// Whether this key still counts.
    pub(super) fn has(&self, key: &Arc<Key>) -> bool {
        let known = self.known.load();
        known.keys.iter().any(|it| Arc::ptr_eq(it, key)) && known.is_trusted_at(Instant::now())
    }

    /// Whether there are any that can be trusted.
    pub(super) fn is_known(&self) -> bool {
        self.known.load().is_trusted_at(Instant::now())
    }

    /// Looks for new keys because a token names an unknown one, if that may be done now. Says whether it was done.
    pub(super) async fn ask_for_unknown(self: &Arc<Keys>, with: &Fetching) -> bool {
        let running = {
            let mut plan = self.plan();
            match &plan.running {
                Some(running) => running.clone(),
                None => {
                    let now = Instant::now();
                    if plan.asked_at.is_some_and(|at| now.duration_since(at) < UNKNOWN_KEY_PAUSE) {
                        return false;
                    }
                    plan.asked_at = Some(now);
                    self.start(&mut plan, with)
                }
            }
        };
        ended(running).await;
        true
    }

    /// Fetches them if it is time to.
    pub(super) fn fetch_if_due(self: &Arc<Keys>, with: &Fetching) {
        let mut plan = self.plan();
        if plan.running.is_none() && plan.due <= Instant::now() {
            self.start(&mut plan, with);
        }
    }

    /// Begins a fetch, in a task of its own: it is not cut short when the request that asked for it ends. It ends by
    /// itself within [`LIMIT`].
    fn start(self: &Arc<Keys>, plan: &mut Plan, with: &Fetching) -> watch::Receiver<()> {
        let (sender, receiver) = watch::channel(());
        plan.running = Some(receiver.clone());
        let running = Running { keys: Arc::clone(self), _sender: sender };
        let with = with.clone();
        tokio::spawn(async move { running.run(&with).await });
        receiver
    }

    async fn fetch(&self, with: &Fetching) -> bool {
        let issuer = self.place.issuer.as_str();
        let fetched = match timeout(LIMIT, discovery::keys(&self.place, &with.fetcher)).await {
            Ok(fetched) => fetched.map_err(|error| error.to_string()),
            Err(_) => Err(format!("metadata and keys together took longer than {LIMIT:?}")),
        };
        match fetched {
            Ok(keys) => {
                with.metrics.issuer_fetched(issuer, keys.len(), with.clock.unix_seconds());
                self.take(keys);
                true
            }
            Err(error) => {
                with.metrics.issuer_fetch_failed(issuer);
                let known = self.known.load();
                if known.is_trusted_at(Instant::now()) {
                    warn!(issuer, %error, "the keys of an issuer cannot be fetched; the last ones are trusted for a day");
                } else {
                    warn!(issuer, %error, "the keys of an issuer cannot be fetched; its tokens are refused until they can");
                }
                false
            }
        }
    }

    /// Puts these keys in force. One that is the same as before stays the same, with the tokens it has verified.
    fn take(&self, keys: Vec<Key>) {
        let before = self.known.load();
        let same = |key: &Key| before.keys.iter().find(|it| ***it == *key).cloned();
        let keys: Vec<Arc<Key>> = keys.into_iter().map(|key| same(&key).unwrap_or_else(|| Arc::new(key))).collect();
        let is_changed = before.fetched_at.is_none()
            || keys.len() != before.keys.len()
            || keys.iter().any(|key| !before.keys.iter().any(|it| Arc::ptr_eq(it, key)));
        if is_changed {
            let kids: Vec<&str> = keys.iter().map(|key| key.kid.as_str()).collect();
            info!(issuer = self.place.issuer, ?kids, "the keys of an issuer are known");
        }
        self.known.store(Arc::new(Known { keys, fetched_at: Some(Instant::now()) }));
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the fetch is over. Nothing is ever sent: its end closes the channel.
async fn ended(mut running: watch::Receiver<()>) {
    while running.changed().await.is_ok() {}
}

impl Known {
    fn is_trusted_at(&self, now: Instant) -> bool {
        self.fetched_at.is_some_and(|at| now.duration_since(at) < STALE)
    }
}

/// A fetch under way; when it is dropped, also by a panic, the next one may begin.
struct Running {
    keys: Arc<Keys>,
    _sender: watch::Sender<()>,
}

impl Running {
    async fn run(self, with: &Fetching) {
        let has_worked = self.keys.fetch(with).await;
        let mut plan = self.keys.plan();
        let wait = if has_worked { FRESH } else { plan.wait };
        plan.due = Instant::now() + wait;
        plan.wait = if has_worked { FIRST_RETRY } else { (plan.wait * 2).min(LAST_RETRY) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.keys.plan().running = None;
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
