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
    /// In the hands of the writer, and not in the file yet.
    n_taken: usize,
    writer: Wakefulness,
    is_closed: bool,
}

/// Waking the writer costs a call more than anything else here, so nobody does it in vain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wakefulness {
    /// It looks into the queue before it rests.
    Awake,
    /// It wakes by itself within [`SOON`].
    Dozing,
    /// It has to be woken.
    Asleep,
}

/// What a caller waits with for its record.
pub(super) struct Waiting<'a> {
    hurry: Hurry<'a>,
    written: oneshot::Receiver<Written>,
}

/// Has the writer look for what somebody waits for when this goes: whoever stops waiting has their record all the same,
/// and no later than if they had stayed.
struct Hurry<'a>(&'a Queue);

impl Queue {
    pub(super) fn new(clock: Clock, capacity: usize) -> Self {
        Queue {
            clock,
            opened: Instant::now(),
            capacity,
            state: Mutex::new(State {
                entries: VecDeque::new(),
                n_awaited: 0,
                n_taken: 0,
                writer: Wakefulness::Awake,
                is_closed: false,
            }),
            filled: Condvar::new(),
            is_available: AtomicBool::new(true),
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Adds a record whose caller waits. The writer is not woken for it yet.
    pub(super) fn push_waiting(&self, members: Vec<u8>, is_synced: bool) -> Result<Waiting<'_>, Unavailable> {
        let (waiter, written) = oneshot::channel();
        self.add(members, is_synced, Some(waiter), self.capacity).inspect_err(|_| self.count_refused(1))?;
        Ok(Waiting { hurry: Hurry(self), written })
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
        let is_much = state.entries.len().is_multiple_of(MANY);
        if is_much || (!is_awaited && state.writer == Wakefulness::Asleep) {
            self.wake(state);
        }
        Ok(())
    }

    /// Has the writer look for what somebody waits for.
    fn hurry(&self) {
        let state = self.lock();
        if state.n_awaited > 0 {
            self.wake(state);
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        let was_awake = std::mem::replace(&mut state.writer, Wakefulness::Awake) == Wakefulness::Awake;
        drop(state);
        if !was_awake {
            self.filled.notify_one();
        }
    }

    /// Waits for records, at most `patience`, and takes up to `max` of them. `None` when closed and empty.
    /// Of what was taken before, the writer keeps so many; the others are in the file now.
    pub(super) fn take(&self, max: usize, patience: Duration, n_kept: usize) -> Option<VecDeque<Entry>> {
        let mut state = self.lock();
        state.n_taken = n_kept;
        // What nobody waits for goes along with the next record that somebody waits for, where one comes soon.
        let is_for_later = |state: &State| state.n_awaited == 0 && state.entries.len() < MANY;
        state = self.rest(state, Wakefulness::Dozing, SOON, is_for_later);
        if state.entries.is_empty() {
            state = self.rest(state, Wakefulness::Asleep, patience, |state| state.entries.is_empty());
            state =
                self.rest(state, Wakefulness::Dozing, SOON, |state| !state.entries.is_empty() && is_for_later(state));
        }
        if state.entries.is_empty() && state.is_closed {
            return None;
        }
        let rest = state.entries.len().min(max);
        let rest = state.entries.split_off(rest);
        state.n_awaited = rest.iter().filter(|entry| entry.waiter.is_some()).count();
        state.n_taken += state.entries.len();
        Some(std::mem::replace(&mut state.entries, rest))
    }

    /// Rests as long as this is so, at most `patience`, and no longer than the queue is open.
    fn rest<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        how: Wakefulness,
        patience: Duration,
        is_so: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        let is_to_rest = |state: &mut State| {
            let is_to_rest = is_so(state) && !state.is_closed;
            state.writer = if is_to_rest { how } else { Wakefulness::Awake };
            is_to_rest
        };
        let rested = self.filled.wait_timeout_while(state, patience, is_to_rest);
        (state, _) = rested.unwrap_or_else(PoisonError::into_inner);
        state.writer = Wakefulness::Awake;
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
        (state.n_awaited, state.n_taken) = (0, 0);
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

    /// Records that are not in the file yet.
    pub(super) fn len(&self) -> usize {
        let state = self.lock();
        state.entries.len() + state.n_taken
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

// === impl Waiting ===

impl Waiting<'_> {
    /// Waits until the record is written. What else can go on on this thread goes on first: of many calls at once each
    /// adds its record, and then the writer is woken once for all of them. Who is alone loses nothing.
    pub(super) async fn written(self) -> Written {
        let Waiting { hurry, written } = self;
        tokio::task::yield_now().await;
        drop(hurry);
        written.await.unwrap_or(Err(Unavailable::Closed))
    }

    /// The same, for a thread that may block.
    pub(super) fn written_blocking(self) -> Written {
        let Waiting { hurry, written } = self;
        drop(hurry);
        written.blocking_recv().unwrap_or(Err(Unavailable::Closed))
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurry();
    }
}

/// How long a record that nobody waits for may wait for company.
const SOON: Duration = Duration::from_millis(5);
/// So many are enough company.
const MANY: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
        while let Some(batch) = queue.take(2, Duration::ZERO, 0) {
            assert!(batch.len() <= 2);
            seen.extend(batch.into_iter().flat_map(|entry| entry.members));
        }

        assert_eq!(seen, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_nobody_waits_for_leaves_by_itself_and_sooner_with_what_somebody_does() {
        let queue = queue(10);
        queue.push(vec![1]);
        assert_eq!(queue.take(9, IDLE, 0).expect("open").len(), 1);

        std::thread::scope(|scope| {
            let writer = scope.spawn(|| queue.take(9, IDLE, 0).expect("open").len());
            queue.push(vec![2]);
            let written = queue.push_waiting(vec![3], true).expect("room");
            drop(written);
            assert!((1..=2).contains(&writer.join().expect("it is woken")));
        });
    }

    #[tokio::test]
    async fn of_calls_at_once_all_have_added_their_record_before_the_writer_is_woken() {
        let queue = Arc::new(queue(100));
        let writer = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || std::iter::from_fn(|| queue.take(100, IDLE, 0)).map(answered).collect::<Vec<_>>()
        });
        while queue.lock().writer != Wakefulness::Asleep {
            std::thread::yield_now();
        }

        let calls: Vec<_> = (0..50)
            .map(|n| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.push_waiting(vec![n], true).expect("room").written().await })
            })
            .collect();
        for call in calls {
            call.await.expect("no panic").expect("written");
        }
        queue.close();

        assert_eq!(writer.join().expect("no panic"), [50]);
    }

    /// Tells all who wait, and says how many records it was.
    fn answered(batch: VecDeque<Entry>) -> usize {
        let n = batch.len();
        batch.into_iter().filter_map(|entry| entry.waiter).for_each(|waiter| waiter.send(Ok(1)).expect("waits"));
        n
    }

    #[test]
    fn a_record_counts_until_it_is_in_the_file() {
        let queue = queue(10);
        (0..3).for_each(|n| queue.push(vec![n]));
        let batch = queue.take(2, IDLE, 0).expect("open");
        assert_eq!((batch.len(), queue.len()), (2, 3), "these two are being written");
        queue.take(2, IDLE, 2);
        assert_eq!(queue.len(), 3, "the disk would not take these, and one more is tried");
        queue.take(2, Duration::ZERO, 0);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_closed_queue_takes_nothing_more() {
        let queue = queue(10);
        queue.close();

        assert!(matches!(queue.push_waiting(Vec::new(), false), Err(Unavailable::Closed)));
        assert!(queue.take(1, Duration::MAX, 0).is_none());
    }

    #[tokio::test]
    async fn an_abandoned_queue_tells_who_waits() {
        let queue = queue(10);
        let waiting = queue.push_waiting(Vec::new(), true).expect("room");
        queue.push(Vec::new());

        queue.abandon();

        assert!(waiting.written().await.is_err());
        assert_eq!(queue.dropped(), 1);
        assert!(!queue.is_available());
    }
}
