//! The kept copy of an upstream's tool definitions, and the task that keeps it fresh.

use super::{Error, Shared, Upstream, Upstreams, client};
use crate::jsonrpc::{Node, Span};
use crate::mcp::{Era, Parameters};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tracing::{info, warn};

/// A copy is fetched anew after this long.
const FRESH: Duration = Duration::from_secs(300);
/// What is said to have changed is fetched again, but no more often than this.
const STALE_RETRY: Duration = Duration::from_secs(1);
/// After a failure it is tried again, first after this long, then twice as long each time, up to `FRESH`.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// One fetch, all its pages included, may take this long.
const FETCH_LIMIT: Duration = Duration::from_secs(30);

/// What one upstream says of its tools.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Which era it speaks; `None` until it was reached once.
    pub era: Option<Era>,
    /// Its tools, by name.
    pub tools: BTreeMap<String, Definition>,
}

/// One tool.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// The definition, byte for byte as the upstream gave it.
    pub json: Bytes,
    /// SHA-256 of its canonical form (RFC 8785), so that order and space alone make no other definition; of those bytes, where
    /// it has none.
    pub digest: [u8; 32],
    /// Which arguments are mirrored into headers.
    pub parameters: Parameters,
}

impl Definition {
    pub(super) fn new(json: Bytes) -> Self {
        let mut canonical = Vec::with_capacity(json.len());
        let is_canonical = Node::of(&json, Span::whole(&json)).canonical(&mut canonical).is_ok();
        let text = if is_canonical { &canonical } else { &*json };
        let digest = ring::digest::digest(&ring::digest::SHA256, text);
        let parameters = Parameters::of_definition(&json);
        Definition { digest: digest.as_ref().try_into().expect("SHA-256 has 32 bytes"), parameters, json }
    }
}

impl Upstream {
    /// Asks the upstream for its tools now, and keeps them.
    ///
    /// # Errors
    /// [`Error`]; the copy known so far stays.
    pub async fn fetch(&self, shared: &Shared) -> Result<Arc<Definitions>, Error> {
        let fetched = tokio::time::timeout(FETCH_LIMIT, client::fetch(self, shared)).await;
        let fetched = Arc::new(fetched.map_err(|_| Error::Timeout { what: "tool definitions", limit: FETCH_LIMIT })??);
        self.definitions.store(Arc::clone(&fetched));
        Ok(fetched)
    }

    /// Says that the definitions have changed, as far as one can tell: they are fetched again soon.
    pub fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
    }
}

/// Keeps the definitions of all upstreams fresh, until it is dropped. `upstreams` says which are in force right now.
/// None waits for another: while one does not answer, all others are asked in their time.
pub async fn keep_fresh(upstreams: impl Fn() -> Arc<Upstreams>, shared: Shared) {
    let mut due: BTreeMap<usize, Due> = BTreeMap::new();
    let mut fetches = JoinSet::new();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let current = upstreams();
                due.retain(|_, due| due.fetch.is_some() || current.iter().any(|one| Arc::ptr_eq(one, &due.upstream)));
                for upstream in current.iter() {
                    // The address tells an upstream from its successor of the same name.
                    let due = due.entry(Arc::as_ptr(upstream) as usize).or_insert_with(|| Due::now(upstream));
                    due.hurry_if_stale();
                    if due.fetch.is_none() && due.at <= Instant::now() {
                        let (upstream, shared) = (Arc::clone(upstream), shared.clone());
                        due.asked = Some(Instant::now());
                        due.fetch = Some(fetches.spawn(async move { refresh(&upstream, &shared).await }).id());
                    }
                }
            }
            Some(done) = fetches.join_next_with_id() => {
                let (id, is_reached) = done.unwrap_or_else(|died| (died.id(), false));
                if let Some(due) = due.values_mut().find(|due| due.fetch == Some(id)) {
                    due.end(is_reached);
                }
            }
        }
    }
}

/// When an upstream is asked next.
struct Due {
    /// Held, so that its address is nobody else's.
    upstream: Arc<Upstream>,
    at: Instant,
    /// How long to wait after a failure.
    wait: Duration,
    /// The task that asks it right now.
    fetch: Option<Id>,
    /// When it was asked last.
    asked: Option<Instant>,
}

impl Due {
    fn now(upstream: &Arc<Upstream>) -> Self {
        Due { upstream: Arc::clone(upstream), at: Instant::now(), wait: FIRST_RETRY, fetch: None, asked: None }
    }

    fn hurry_if_stale(&mut self) {
        let may_ask = self.asked.is_none_or(|at| at.elapsed() >= STALE_RETRY);
        if self.fetch.is_none() && may_ask && self.upstream.is_stale.swap(false, Ordering::Relaxed) {
            self.at = Instant::now();
        }
    }

    fn end(&mut self, is_reached: bool) {
        let (next, wait) = if is_reached { (FRESH, FIRST_RETRY) } else { (self.wait, (self.wait * 2).min(FRESH)) };
        (self.at, self.wait, self.fetch) = (Instant::now() + next, wait, None);
    }
}

async fn refresh(upstream: &Upstream, shared: &Shared) -> bool {
    let was_up = upstream.definitions.load().era.is_some();
    let fetched = upstream.fetch(shared).await;
    shared.metrics.upstream_up(&upstream.name, fetched.as_ref().map_or(0, |d| d.tools.len()), fetched.is_ok());
    upstream.health.lock().note(fetched.as_ref().err().map(ToString::to_string));
    match fetched {
        Ok(known) => {
            if !was_up {
                let era = known.era.map_or("unknown", Era::as_str);
                info!(upstream = %upstream.name, tools = known.tools.len(), era, "upstream reached");
            }
            true
        }
        Err(error) => {
            warn!(upstream = %upstream.name, %error, "upstream did not list its tools; calls are still forwarded to it");
            false
        }
    }
}
