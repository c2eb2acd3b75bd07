//! Who waits for a held call, and how they hear of it: from this process at once, from others through the store.

use super::decide::AT_TERMINAL;
use super::{Approvals, ERASED_AFTER_MS, FORGOTTEN_AFTER_MS};
use crate::store::ApprovalState as State;
use dashmap::DashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How soon a change by another process is seen.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked for what has run out or was lost.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// A call counts as waited for this long after its last sign of it.
pub(super) const ATTENDED_MS: i64 = 15_000;
/// How often such a sign is given.
const ATTEND_EVERY: Duration = Duration::from_secs(5);
/// A decision that is seen later than this was made while nobody looked; it is not counted.
const COUNTED_WITHIN_MS: i64 = 10_000;
/// How often what is old is erased.
const PURGE_EVERY: Duration = Duration::from_secs(60);

/// Everybody of this process who waits.
#[derive(Default)]
pub(super) struct Waiters {
    by_id: Arc<DashMap<Arc<str>, watch::Sender<()>>>,
    n: Arc<AtomicUsize>,
    /// Counts changes of any call, for lists.
    any: watch::Sender<()>,
}

/// One who waits for changes of a held call. Whoever drops it waits no longer.
pub struct Waiter {
    id: Arc<str>,
    changes: watch::Receiver<()>,
    by_id: Arc<DashMap<Arc<str>, watch::Sender<()>>>,
    n: Arc<AtomicUsize>,
}

/// Decisions made at a terminal. Its process has no metrics, and is gone soon: they are counted where they are seen.
#[derive(Default)]
struct AtTerminal {
    has_looked: bool,
    /// Those that were looked at, each call with the time of its decision: it changes again when it is used.
    seen: VecDeque<(Arc<str>, i64)>,
}

impl Waiters {
    pub(super) fn enter(&self, id: &Arc<str>) -> Waiter {
        let changes = self.by_id.entry(Arc::clone(id)).or_default().subscribe();
        self.n.fetch_add(1, Ordering::Relaxed);
        Waiter { id: Arc::clone(id), changes, by_id: Arc::clone(&self.by_id), n: Arc::clone(&self.n) }
    }

    /// Tells who waits that a call has changed.
    pub(super) fn wake(&self, id: &str) {
        if let Some(changes) = self.by_id.get(id) {
            changes.send_replace(());
        }
        self.any.send_replace(());
    }
}

impl Waiter {
    /// Resolves at a change since it was entered or last asked. Ask where the call stands after entering, never before:
    /// then no change is missed.
    pub async fn changed(&mut self) {
        // The sender stays while there is a receiver.
        let _ = self.changes.changed().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.n.fetch_sub(1, Ordering::Relaxed);
        // This one is still counted.
        self.by_id.remove_if(&self.id, |_, changes| changes.receiver_count() <= 1);
    }
}

impl Approvals {
    /// Told of every change of any held call, as soon as this process knows of it.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.waiters.any.subscribe()
    }

    /// Keeps this process informed, and held calls tidy: what ran out is ended, what was lost is found, what is old is
    /// erased. Until it is dropped.
    pub async fn watch(self) {
        let (mut last_change, mut at_terminal) = (0, AtTerminal::default());
        let (mut tidied, mut attended, mut purged) = (None, None, None);
        let mut tick = tokio::time::interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            last_change = self.look(last_change, &mut at_terminal).await;
            if is_due(&mut tidied, TIDY_EVERY) {
                self.tidy().await;
            }
            if is_due(&mut attended, ATTEND_EVERY) {
                self.attend().await;
            }
            if is_due(&mut purged, PURGE_EVERY) {
                let now_ms = self.0.clock.unix_ms();
                let (erase, forget) =
                    (now_ms.saturating_sub(ERASED_AFTER_MS), now_ms.saturating_sub(FORGOTTEN_AFTER_MS));
                if let Err(error) = self.0.store.purge_approvals(erase, forget).await {
                    tracing::warn!(%error, "old held calls cannot be erased");
                }
            }
        }
    }

    async fn look(&self, since: i64, at_terminal: &mut AtTerminal) -> i64 {
        match self.0.store.approvals_after(since).await {
            Ok((last, changed)) => {
                changed.iter().for_each(|id| self.0.waiters.wake(id));
                self.count_at_terminal(&changed, at_terminal).await;
                last
            }
            Err(error) => {
                tracing::warn!(%error, "changes of held calls cannot be seen");
                since
            }
        }
    }

    /// What was decided before this process was there is not its to count.
    async fn count_at_terminal(&self, changed: &[Arc<str>], at_terminal: &mut AtTerminal) {
        let from_ms = self.0.clock.unix_ms().saturating_sub(COUNTED_WITHIN_MS);
        at_terminal.seen.retain(|(_, at_ms)| *at_ms >= from_ms);
        if !std::mem::replace(&mut at_terminal.has_looked, true) {
            return;
        }
        for id in changed {
            let Ok(Some(approval)) = self.0.store.approval(id).await else { continue };
            let Some(at_ms) = approval.decided_at_ms.filter(|at_ms| *at_ms >= from_ms) else { continue };
            let decision = (Arc::clone(id), at_ms);
            if at_terminal.seen.contains(&decision) {
                continue;
            }
            at_terminal.seen.push_back(decision);
            let Ok(said) = self.0.store.approval_decisions(id).await else { continue };
            // The last word is the one that decided.
            if let Some(last) = said.last().filter(|last| last.via == AT_TERMINAL) {
                self.count_decided(&approval, last.approves, at_ms);
            }
        }
    }

    async fn tidy(&self) {
        let now_ms = self.0.clock.unix_ms();
        match self.0.store.expire_approvals(now_ms).await {
            Ok(expired) => expired.iter().for_each(|one| self.ended(one, State::Expired, one.note.as_deref())),
            Err(error) => tracing::warn!(%error, "held calls cannot be ended"),
        }
        match self.0.store.find_lost_approvals(now_ms).await {
            Ok(lost) => {
                for one in &lost {
                    tracing::warn!(approval = %one.id, "a call was running when its process ended: it needs a person to say what became of it");
                    self.ended(one, State::Indeterminate, one.note.as_deref());
                }
            }
            Err(error) => tracing::warn!(%error, "lost calls cannot be looked for"),
        }
        if let Ok(pending) = self.0.store.approvals(&[State::Pending]).await {
            let oldest_ms = pending.iter().map(|one| one.created_at_ms).min();
            self.0.metrics.approvals_pending(pending.len(), oldest_ms.map(|ms| ms / 1000));
        }
        self.0.metrics.approvals_waiting(self.0.waiters.n.load(Ordering::Relaxed));
    }

    async fn attend(&self) {
        let ids: Vec<Arc<str>> = self.0.waiters.by_id.iter().map(|entry| Arc::clone(entry.key())).collect();
        if ids.is_empty() {
            return;
        }
        let until_ms = self.0.clock.unix_ms().saturating_add(ATTENDED_MS);
        if let Err(error) = self.0.store.attend_approvals(ids, until_ms).await {
            tracing::warn!(%error, "it cannot be noted that callers wait");
        }
    }

    /// Notes that the last caller of this process has left, where it has: approvers see it at once.
    pub async fn left(&self, id: &str) {
        if self.0.waiters.by_id.contains_key(id) {
            return;
        }
        let now_ms = self.0.clock.unix_ms();
        if let Err(error) = self.0.store.attend_approvals(vec![id.into()], now_ms).await {
            tracing::warn!(%error, "it cannot be noted that a caller left");
        }
    }
}

pub(super) fn is_due(last: &mut Option<Instant>, every: Duration) -> bool {
    if last.is_some_and(|at| at.elapsed() < every) {
        return false;
    }
    *last = Some(Instant::now());
    true
}
