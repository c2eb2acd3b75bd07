//! The records that wait for the writer. Bounded; what comes first is first in the log, and its times say so.

use super::Unavailable;
use super::chain::Stamp;
use crate::clock::Clock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What a caller waits for: the number of its record, or why there is none.
pub(super) type Written = Result<u64, Unavailable>;

/// One record on its way.
pub(super) struct Entry {
    pub(super) stamp: Stamp,
    pub(super) members: Vec<u8>,
    pub(super) is_synced: bool,
    /// Who waits for it; nobody, for results.
    pub(super) waiter: Option<oneshot::Sender<Written>>,
}

/// See the module.
pub(super) struct Queue {
    clock: Clock,
    opened: Instant,
    capacity: usize,
    state: Mutex<State>,
    filled: Condvar,
    is_available: AtomicBool,
    refused: AtomicU64,
    dropped: AtomicU64,
}

struct State {
    entries: VecDeque<Entry>,
    /// Somebody waits for so many of them.
    n_awaited: usize,
    /// The writer has nothing to do. Waking it costs a call more than anything else here, so nobody does it in vain.
    is_idle: bool,
    is_closed: bool,
}

impl Queue {
    pub(super) fn new(clock: Clock, capacity: usize) -> Self {
        Queue {
            clock,
            opened: Instant::now(),
            capacity,
            state: Mutex::new(State { entries: VecDeque::new(), n_awaited: 0, is_idle: false, is_closed: false }),
            filled: Condvar::new(),
            is_available: AtomicBool::new(true),
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a record whose caller waits.
    pub(super) fn push_waiting(
        &self,
        members: Vec<u8>,
        is_synced: bool,
    ) -> Result<oneshot::Receiver<Written>, Unavailable> {
        let (waiter, written) = oneshot::channel();
        self.add(members, is_synced, Some(waiter), self.capacity).inspect_err(|_| self.count_refused(1))?;
        Ok(written)
    }

    /// Adds a record nobody waits for, or counts its loss.
    pub(super) fn push(&self, members: Vec<u8>) {
        let room = self.capacity.saturating_mul(2);
        if self.add(members, false, None, room).is_err() {
            self.count_dropped(1);
        }
    }

    fn add(
        &self,
        members: Vec<u8>,
        is_synced: bool,
        waiter: Option<oneshot::Sender<Written>>,
        room: usize,
    ) -> Result<(), Unavailable> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(Unavailable::Closed);
        }
        if state.entries.len() >= room {
            return Err(Unavailable::QueueFull);
        }
        // Read under the lock, so that no record stands before one with an earlier `mono_ms`.
        let stamp = self.now();
        let is_awaited = waiter.is_some();
        state.n_awaited += usize::from(is_awaited);
        state.entries.push_back(Entry { stamp, members, is_synced, waiter });
        let n = state.entries.len();
        let is_to_wake = state.is_idle && (is_awaited || n == 1 || n.is_multiple_of(MANY));
        drop(state);
        if is_to_wake {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for records, at most `patience`, and takes up to `max` of them. `None` when closed and empty.
    pub(super) fn take(&self, max: usize, patience: Duration) -> Option<VecDeque<Entry>> {
        let mut state = self.wait(self.lock(), patience, |state| state.entries.is_empty());
        // What nobody waits for goes along with the next record that somebody waits for, where one comes soon.
        state = self.wait(state, SOON, |state| state.n_awaited == 0 && (1..MANY).contains(&state.entries.len()));
        if state.entries.is_empty() && state.is_closed {
            return None;
        }
        let rest = state.entries.len().min(max);
        let rest = state.entries.split_off(rest);
        state.n_awaited = rest.iter().filter(|entry| entry.waiter.is_some()).count();
        Some(std::mem::replace(&mut state.entries, rest))
    }

    /// Waits as long as this is so, at most `patience`, and no longer than the queue is open.
    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        patience: Duration,
        is_so: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        state.is_idle = true;
        let waited = self.filled.wait_timeout_while(state, patience, |state| is_so(state) && !state.is_closed);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_idle = false;
        state
    }

    /// Nothing more is let in.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    /// Nothing more is let in and what waits is given up: its callers are told, the rest is counted as lost.
    pub(super) fn abandon(&self) {
        self.close();
        self.set_available(false);
        let mut state = self.lock();
        state.n_awaited = 0;
        let entries = std::mem::take(&mut state.entries);
        drop(state);
        let lost = entries.iter().filter(|e| e.waiter.is_none()).count();
        self.count_dropped(lost);
    }

    /// The time, both ways.
    pub(super) fn now(&self) -> Stamp {
        let since = Instant::now().saturating_duration_since(self.opened);
        Stamp { at_ms: self.clock.unix_ms(), mono_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX) }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    pub(super) fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Relaxed)
    }

    pub(super) fn set_available(&self, is_available: bool) {
        self.is_available.store(is_available, Ordering::Relaxed);
    }

    /// Records whose callers were told no.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn count_refused(&self, n: usize) {
        self.refused.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn count_dropped(&self, n: usize) {
        self.dropped.fetch_add(n as u64, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a record that nobody waits for may wait for company.
const SOON: Duration = Duration::from_millis(5);
/// So many are enough company.
const MANY: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any test may take: who is not woken shows.
    const IDLE: Duration = Duration::from_secs(3600);

    fn queue(capacity: usize) -> Queue {
        Queue::new(Clock::manual(0), capacity)
    }

    #[test]
    fn a_full_queue_refuses_decisions_before_results() {
        let queue = queue(2);
        let _waiting: Vec<_> = (0..2).map(|_| queue.push_waiting(Vec::new(), true).expect("room")).collect();

        assert!(matches!(queue.push_waiting(Vec::new(), true), Err(Unavailable::QueueFull)));
        (0..3).for_each(|_| queue.push(Vec::new()));

        assert_eq!((queue.len(), queue.refused(), queue.dropped()), (4, 1, 1));
    }

    #[test]
    fn records_leave_in_the_order_they_came_and_none_is_left() {
        let queue = queue(10);
        (0..5u8).for_each(|n| queue.push(vec![n]));
        queue.close();

        let mut seen = Vec::new();
        while let Some(batch) = queue.take(2, Duration::ZERO) {
            assert!(batch.len() <= 2);
            seen.extend(batch.into_iter().flat_map(|entry| entry.members));
        }

        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_nobody_waits_for_leaves_by_itself_and_sooner_with_what_somebody_does() {
        let queue = queue(10);
        queue.push(vec![1]);
        assert_eq!(queue.take(9, IDLE).expect("open").len(), 1);

        std::thread::scope(|scope| {
            let writer = scope.spawn(|| queue.take(9, IDLE).expect("open").len());
            queue.push(vec![2]);
            let _written = queue.push_waiting(vec![3], true).expect("room");
            assert!((1..=2).contains(&writer.join().expect("it is woken")));
        });
    }

    #[test]
    fn a_closed_queue_takes_nothing_more() {
        let queue = queue(10);
        queue.close();

        assert!(matches!(queue.push_waiting(Vec::new(), false), Err(Unavailable::Closed)));
        assert!(queue.take(1, Duration::MAX).is_none());
    }

    #[tokio::test]
    async fn an_abandoned_queue_tells_who_waits() {
        let queue = queue(10);
        let waiting = queue.push_waiting(Vec::new(), true).expect("room");
        queue.push(Vec::new());

        queue.abandon();

        assert!(waiting.await.is_err());
        assert_eq!(queue.dropped(), 1);
        assert!(!queue.is_available());
    }
}
