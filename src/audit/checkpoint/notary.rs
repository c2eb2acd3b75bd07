//! The thread that signs how far the log has come, and when it does so. The writer tells it and never waits for it.

use super::ledger::Ledger;
use crate::audit::Error;
use crate::audit::chain::Head;
use crate::audit::queue::Queue;
use crate::audit::terms::Terms;
use crate::metrics::Metrics;
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::time::Instant;

/// The last record of a file, for now or for good.
#[derive(Clone, Debug)]
pub(in crate::audit) struct Reached {
    pub(in crate::audit) segment: Arc<str>,
    pub(in crate::audit) file: Arc<str>,
    pub(in crate::audit) head: Head,
    /// The file, where the record may not be on the disk yet: what a power cut could take back must not be signed.
    pub(in crate::audit) to_sync: Option<Arc<File>>,
}

/// How often.
#[derive(Debug, Default)]
pub(in crate::audit) struct Pace {
    every_ms: AtomicU64,
    records: AtomicU64,
}

/// How checkpoints are doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Checkpoints written by this process.
    pub written: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Why the last attempt failed; `None` while they can be written.
    pub problem: Option<String>,
    /// Records of this process that no checkpoint speaks for yet.
    pub waiting: u64,
}

/// See the module.
pub(in crate::audit) struct Notary {
    shared: Arc<Shared>,
    terms: Arc<Terms>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Ends of files that are finished.
    finished: VecDeque<Reached>,
    /// The newest record.
    newest: Option<Reached>,
    is_closed: bool,
    is_done: bool,
    signed_seq: u64,
    status: CheckpointStatus,
}

// === impl Pace ===

impl Pace {
    pub(in crate::audit) fn set(&self, every: Duration, records: u32) {
        self.every_ms.store(u64::try_from(every.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.records.store(u64::from(records), Ordering::Relaxed);
    }

    fn every(&self) -> Duration {
        Duration::from_millis(self.every_ms.load(Ordering::Relaxed))
    }

    fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }
}

// === impl Notary ===

impl Notary {
    pub(in crate::audit) fn start(
        ledger: Ledger,
        terms: Arc<Terms>,
        queue: Arc<Queue>,
        metrics: Arc<Metrics>,
    ) -> Result<Notary, Error> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let worker = Worker { shared: Arc::clone(&shared), ledger, terms: Arc::clone(&terms), queue, metrics };
        let thread = std::thread::Builder::new()
            .name("audit-checkpoints".to_owned())
            .spawn(move || worker.run())
            .map_err(Error::io("start the thread of", Path::new("the audit checkpoints")))?;
        Ok(Notary { shared, terms, thread: Mutex::new(Some(thread)) })
    }

    /// The log has come this far.
    pub(in crate::audit) fn reached(&self, newest: Reached) {
        let mut state = self.shared.lock();
        let was_waiting = state.waiting();
        state.newest = Some(newest);
        state.count_waiting();
        let is_worth_waking = was_waiting == 0 || state.waiting() >= self.terms.pace.records();
        drop(state);
        if is_worth_waking {
            self.shared.changed.notify_all();
        }
    }

    /// This is the end of a file: nothing follows in it.
    pub(in crate::audit) fn finished(&self, end: Reached) {
        let mut state = self.shared.lock();
        // The newest of them speak for those before: each file names the end of the one before it.
        if state.finished.len() >= FINISHED_MAX {
            state.finished.pop_front();
        }
        state.finished.push_back(end);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The pace has changed.
    pub(in crate::audit) fn ask(&self) {
        self.shared.changed.notify_all();
    }

    pub(in crate::audit) fn status(&self) -> CheckpointStatus {
        self.shared.lock().status.clone()
    }

    /// Signs what is left, and ends. A file that does not answer is not waited for: nothing is lost that is not lost
    /// anyway, and the next start signs what came before it.
    pub(in crate::audit) fn close(&self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), PATIENCE, |state| !state.is_done)
            .unwrap_or_else(PoisonError::into_inner);
        let is_done = state.is_done;
        drop(state);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else {
            return;
        };
        if !is_done {
            tracing::error!("the end of the audit log is not signed: the checkpoint file does not answer");
        } else if thread.join().is_err() {
            tracing::error!("the thread of the checkpoints panicked");
        }
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn waiting(&self) -> u64 {
        self.newest.as_ref().map_or(0, |newest| newest.head.seq.saturating_sub(self.signed_seq))
    }

    fn count_waiting(&mut self) {
        self.status.waiting = self.waiting();
    }
}

// === The thread ===

struct Worker {
    shared: Arc<Shared>,
    ledger: Ledger,
    terms: Arc<Terms>,
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
}

impl Worker {
    fn run(mut self) {
        let _done_at_the_end = Done(Arc::clone(&self.shared));
        let mut not_before = Instant::now();
        loop {
            let Some((due, is_last)) = self.wait(not_before) else {
                return;
            };
            let signed = self.sign(&due);
            self.note(due, signed);
            if is_last {
                return;
            }
            not_before = Instant::now() + if self.is_failing() { RETRY } else { SHORTEST };
        }
    }

    /// Waits until something is to be signed; whether it is the last, and `None` when nothing is left to be.
    fn wait(&self, not_before: Instant) -> Option<(Vec<Reached>, bool)> {
        let began = Instant::now();
        let mut state = self.shared.lock();
        loop {
            let now = Instant::now();
            let waiting = state.waiting();
            let rest = self.terms.pace.every().saturating_sub(now.saturating_duration_since(began));
            let is_due = !state.finished.is_empty()
                || waiting > 0 && (state.signed_seq == 0 || waiting >= self.terms.pace.records() || rest.is_zero());
            if state.is_closed || is_due && now >= not_before {
                let mut due: Vec<Reached> = state.finished.drain(..).collect();
                if waiting > 0 {
                    due.extend(state.newest.clone());
                }
                let is_closed = state.is_closed;
                return if due.is_empty() { None } else { Some((due, is_closed)) };
            }
            let pause = match (is_due, waiting) {
                (true, _) => not_before.saturating_duration_since(now),
                (false, 0) => IDLE,
                (false, _) => rest,
            };
            state = self.shared.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn sign(&mut self, due: &[Reached]) -> Result<(), Error> {
        for reached in due {
            if let Some(file) = &reached.to_sync {
                file.sync_data().map_err(Error::io("sync", Path::new(&*reached.file)))?;
            }
        }
        self.ledger.add(due, self.queue.now().at_ms)
    }

    fn note(&self, mut due: Vec<Reached>, signed: Result<(), Error>) {
        let mut state = self.shared.lock();
        match signed {
            Ok(()) => {
                let newest = due.iter().map(|reached| reached.head.seq).max();
                state.signed_seq = newest.unwrap_or(0).max(state.signed_seq);
                state.status.written += due.len() as u64;
                for _ in &due {
                    self.metrics.checkpoint_written(self.queue.now().at_ms.div_euclid(1000));
                }
                if state.status.problem.take().is_some() {
                    tracing::info!("audit checkpoints can be written again");
                }
            }
            Err(error) => {
                state.status.failed += 1;
                self.metrics.checkpoint_failed();
                if state.status.problem.is_none() {
                    tracing::error!(error = error.with_cause(), "an audit checkpoint cannot be written");
                }
                state.status.problem = Some(error.with_cause());
                // The newest will be there again; the ends of files, which are on the disk, only if they are kept.
                let newest = state.newest.as_ref().map(|newest| Arc::clone(&newest.file));
                due.retain(|reached| Some(&reached.file) != newest.as_ref() && reached.to_sync.is_none());
                let later = std::mem::take(&mut state.finished);
                let all = due.into_iter().chain(later);
                state.finished = all.collect();
                while state.finished.len() > FINISHED_MAX {
                    state.finished.pop_front();
                }
            }
        }
        state.count_waiting();
    }

    fn is_failing(&self) -> bool {
        self.shared.lock().status.problem.is_some()
    }
}

/// However the thread ends, nobody waits for it.
struct Done(Arc<Shared>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.lock().is_done = true;
        self.0.changed.notify_all();
    }
}

/// Ends of files that wait to be signed.
const FINISHED_MAX: usize = 64;
const IDLE: Duration = Duration::from_secs(3600);
/// Between two that were written, however many records there are.
const SHORTEST: Duration = Duration::from_millis(20);
/// After one that could not be.
const RETRY: Duration = Duration::from_secs(2);
/// For the last ones.
const PATIENCE: Duration = Duration::from_secs(5);
