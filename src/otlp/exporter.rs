//! Spans on their way to a collector: a queue that never makes a call wait, and one task that empties it.
//!
//! The queue has a limit. What does not fit is dropped and counted: a trace is worth less than a call, and less than memory.

use super::message::{Resource, Span};
use super::send::{Backoff, Collector, NotTaken, Taken};
use crate::fetch::Fetcher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Spans that wait. With what one span may hold, some ten MiB at most.
const ROOM: usize = 8_192;
/// Spans in one request.
const BATCH: usize = 512;
/// A batch that is not full goes out after this.
const FULL_OR_AFTER: Duration = Duration::from_secs(1);
/// What is left when the gateway stops gets this long.
const FAREWELL: Duration = Duration::from_secs(5);

/// Takes spans. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Exporter {
    queue: mpsc::Sender<Span>,
    counts: Arc<Counts>,
}

/// The other end of the queue.
#[derive(Debug)]
pub struct Exporting {
    queue: mpsc::Receiver<Span>,
    /// The batch that is being put together.
    gathered: Vec<Span>,
    counts: Arc<Counts>,
    resource: Resource,
}

/// What became of spans since the start.
#[derive(Debug, Default)]
pub struct Counts {
    exported: AtomicU64,
    dropped_full: AtomicU64,
    dropped_refused: AtomicU64,
    dropped_stopped: AtomicU64,
    failures: AtomicU64,
}

// === impl Exporter ===

impl Exporter {
    /// A queue of this process, and what empties it.
    pub fn new(instance: &str) -> (Exporter, Exporting) {
        let (sender, receiver) = mpsc::channel(ROOM);
        let counts = Arc::new(Counts::default());
        let exporting = Exporting {
            queue: receiver,
            gathered: Vec::new(),
            counts: Arc::clone(&counts),
            resource: Resource::of_this_process(instance),
        };
        (Exporter { queue: sender, counts }, exporting)
    }

    /// Takes the spans of one request, all or none; never waits.
    pub fn take(&self, spans: Vec<Span>) {
        let n = spans.len();
        match self.queue.try_reserve_many(n) {
            Ok(room) => room.zip(spans).for_each(|(room, span)| room.send(span)),
            Err(mpsc::error::TrySendError::Full(())) => add(&self.counts.dropped_full, n),
            Err(mpsc::error::TrySendError::Closed(())) => add(&self.counts.dropped_stopped, n),
        }
    }

    /// Counts spans that are not even tried, as what does not fit is counted.
    pub fn drop_all(&self, n: usize) {
        add(&self.counts.dropped_full, n);
    }

    /// What became of spans so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Spans that wait right now.
    pub fn n_waiting(&self) -> usize {
        ROOM.saturating_sub(self.queue.capacity())
    }
}

// === impl Counts ===

impl Counts {
    /// Spans that a collector has.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Spans that none has, by why: there was no room (`full`), the collector did not want them (`refused`), the gateway
    /// stopped first (`stopped`).
    pub fn dropped(&self) -> [(&'static str, u64); 3] {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("full", count(&self.dropped_full)),
            ("refused", count(&self.dropped_refused)),
            ("stopped", count(&self.dropped_stopped)),
        ]
    }

    /// Attempts that failed and were, or are to be, made again.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

// === impl Exporting ===

impl Exporting {
    /// Sends what comes to wherever `collector` says at that time, until the gateway stops; then what is left, for a few
    /// seconds. Where there is no collector any more, what waits is let go.
    pub async fn run(
        mut self,
        fetcher: Fetcher,
        collector: impl Fn() -> Option<Arc<Collector>>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut backoff = Backoff::default();
        loop {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|is_stopping| *is_stopping) => break,
                () = self.gather() => {}
            }
            let batch = std::mem::take(&mut self.gathered);
            if let Some(unsent) = self.send(&fetcher, &collector, batch, &mut backoff, &mut stopping).await {
                self.gathered = unsent;
                break;
            }
        }
        self.farewell(&fetcher, &collector).await;
    }

    /// Waits for a full batch, or for what comes within a second of the first span. What has come so far stands in `gathered`,
    /// so that a wait that is cut loses nothing.
    async fn gather(&mut self) {
        let mut until = None;
        while self.gathered.len() < BATCH {
            let room = BATCH.saturating_sub(self.gathered.len());
            let more = self.queue.recv_many(&mut self.gathered, room);
            let n = match until {
                None => more.await,
                Some(until) => timeout_at(until, more).await.unwrap_or(0),
            };
            match (n, until) {
                // Nobody is there any more who could send something; what ends this is the gateway's stop.
                (0, None) => return std::future::pending().await,
                (0, Some(_)) => return,
                _ => until = until.or_else(|| Some(Instant::now() + FULL_OR_AFTER)),
            }
        }
    }

    /// Until it is taken, or refused for good. Gives it back where the gateway stops first.
    async fn send(
        &self,
        fetcher: &Fetcher,
        collector: &impl Fn() -> Option<Arc<Collector>>,
        batch: Vec<Span>,
        backoff: &mut Backoff,
        stopping: &mut watch::Receiver<bool>,
    ) -> Option<Vec<Span>> {
        loop {
            let to = collector()?;
            let n = batch.len();
            let sent = tokio::select! {
                biased;
                // Sent once more then, and perhaps there twice, which collectors know how to take.
                _ = stopping.wait_for(|is_stopping| *is_stopping) => return Some(batch),
                sent = to.send_spans(fetcher, &self.resource, batch.clone()) => sent,
            };
            match sent {
                Ok(taken) => {
                    backoff.reset();
                    self.taken(n, &taken);
                    return None;
                }
                Err(NotTaken::Ever(why)) => {
                    tracing::warn!(collector = ?to, n_spans = n, %why, "the collector does not want these spans: they are dropped");
                    add(&self.counts.dropped_refused, n);
                    return None;
                }
                Err(NotTaken::Yet { why, after }) => {
                    add(&self.counts.failures, 1);
                    let pause = backoff.failed(after);
                    tracing::warn!(collector = ?to, %why, ?pause, "spans cannot be sent; they wait, and what has no room is dropped");
                    tokio::select! {
                        biased;
                        _ = stopping.wait_for(|is_stopping| *is_stopping) => return Some(batch),
                        () = sleep_until(Instant::now() + pause) => {}
                    }
                }
            }
        }
    }

    /// One attempt for each batch that is left, as long as there is time.
    async fn farewell(mut self, fetcher: &Fetcher, collector: &impl Fn() -> Option<Arc<Collector>>) {
        let until = Instant::now() + FAREWELL;
        self.queue.close();
        let mut batch = self.left();
        while !batch.is_empty() {
            let Some(to) = collector() else {
                return;
            };
            let n = batch.len();
            let sent = timeout_at(until, to.send_spans(fetcher, &self.resource, batch)).await;
            match sent {
                Ok(Ok(taken)) => self.taken(n, &taken),
                Ok(Err(NotTaken::Ever(_))) => add(&self.counts.dropped_refused, n),
                Ok(Err(NotTaken::Yet { .. })) | Err(_) => {
                    let n = n.saturating_add(self.queue.len());
                    add(&self.counts.dropped_stopped, n);
                    return tracing::warn!(n_spans = n, "the gateway stops, and these spans could not be sent");
                }
            }
            batch = self.left();
        }
    }

    /// The next batch of what is there.
    fn left(&mut self) -> Vec<Span> {
        let mut batch = std::mem::take(&mut self.gathered);
        while batch.len() < BATCH
            && let Ok(span) = self.queue.try_recv()
        {
            batch.push(span);
        }
        batch
    }

    fn taken(&self, n: usize, taken: &Taken) {
        let n_rejected = usize::try_from(taken.n_rejected).unwrap_or(usize::MAX).min(n);
        add(&self.counts.exported, n.saturating_sub(n_rejected));
        add(&self.counts.dropped_refused, n_rejected);
        if let Some(note) = &taken.note {
            tracing::warn!(n_rejected, note = ?note, "the collector has something to say about the spans it got");
        }
    }
}

fn add(count: &AtomicU64, n: usize) {
    count.fetch_add(n as u64, Ordering::Relaxed);
}
