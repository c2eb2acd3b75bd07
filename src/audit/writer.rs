//! The thread that owns the file: takes what waits, gives it its place in the chain, writes it with one write and,
//! if anyone asked, one sync, and then tells those who wait.
//!
//! While the disk fails, callers are refused and results are kept; twice a second it tries again, and the first record
//! that gets through says how long the log was silent and what it cost.

use super::chain::{self, Head, Stamp};
use super::checkpoint::{Ledger, Notary, Reached, Signer};
use super::directory::{Directory, Link, ROTATED, START};
use super::keeper::{Keeper, Wake};
use super::members::Members;
use super::queue::{Entry, Queue};
use super::segment::Segment;
use super::terms::Terms;
use super::{Error, Settings, Unavailable, schedule, sinks};
use crate::metrics::Metrics;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// See the module.
pub(super) struct Writer {
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
    directory: Directory,
    terms: Arc<Terms>,
    /// Signs how far the log has come.
    notary: Arc<Notary>,
    /// Tells further sinks.
    grown: watch::Sender<u64>,
    /// Told of each new file, where old ones are removed.
    keeper: Option<Arc<Wake>>,
    /// The key of the checkpoints, named in each file.
    kid: String,
    /// Results that may be kept while the disk fails.
    kept_max: usize,
    /// Names this process in every record and file.
    boot: Arc<str>,
    segment: Segment,
    /// When that was begun, by the clock.
    begun_ms: i64,
    head: Head,
    kept: VecDeque<Entry>,
    outage: Option<Outage>,
    dropped_noted: u64,
    buffer: Vec<u8>,
}

/// A time in which nothing could be written.
struct Outage {
    since: Stamp,
    cause: String,
    refused_before: u64,
}

/// The threads beside the writer's.
pub(super) struct Aides {
    pub(super) notary: Arc<Notary>,
    pub(super) keeper: Option<Keeper>,
    /// What further sinks read.
    pub(super) log: sinks::Log,
}

impl Writer {
    /// Begins this process's first segment, and returns with it those that work beside it.
    pub(super) fn open(settings: Settings, queue: Arc<Queue>, terms: Arc<Terms>) -> Result<(Writer, Aides), Error> {
        let directory = Directory::new(settings.directory);
        #[cfg(test)]
        let directory = Directory { faults: settings.faults, ..directory };
        let ledger = Ledger::new(settings.checkpoints.clone(), directory.clone(), Signer::new(&settings.key));
        directory.create()?;
        ledger.check_place()?;
        let kid = ledger.kid().to_owned();
        let boot: Arc<str> = format!("{:016x}", u64::from_be_bytes(crate::id::random_bytes())).into();
        let now = queue.now();
        let checkpoints_from = fs::metadata(&settings.checkpoints).map_or(0, |metadata| metadata.len());
        let (segment, head) = begin(&directory, now, &boot, &kid, None, None)?;
        let notary =
            Arc::new(Notary::start(ledger, Arc::clone(&terms), Arc::clone(&queue), Arc::clone(&settings.metrics))?);
        let keeper =
            settings.removes_old.then(|| Keeper::start(directory.clone(), Arc::clone(&terms), Arc::clone(&queue)));
        let (grown, grows) = watch::channel(0);
        let log = sinks::Log {
            directory: directory.clone(),
            checkpoints: settings.checkpoints,
            begun_with: Arc::clone(&segment.name),
            checkpoints_from,
            grown: grows,
        };
        let aides = Aides { notary: Arc::clone(&notary), keeper: keeper.transpose()?, log };
        let writer = Writer {
            queue,
            metrics: settings.metrics,
            directory,
            terms,
            notary,
            grown,
            keeper: aides.keeper.as_ref().map(Keeper::wake),
            kid,
            kept_max: settings.queue_len.saturating_mul(2),
            boot,
            segment,
            begun_ms: now.at_ms,
            head,
            kept: VecDeque::new(),
            outage: None,
            dropped_noted: 0,
            buffer: Vec::new(),
        };
        writer.tell(true);
        Ok((writer, aides))
    }

    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let _abandoned_at_the_end = Abandon(Arc::clone(&self.queue));
        schedule::give_way();
        loop {
            let patience = if self.outage.is_some() { RETRY } else { IDLE };
            let Some(fresh) = self.queue.take(BATCH_MAX, patience, self.kept.len()) else {
                break;
            };
            self.commit(fresh);
        }
        self.commit(VecDeque::new());
        match self.segment.sync() {
            Ok(()) => self.tell(true),
            Err(error) => tracing::error!(%error, "the end of the audit log may not be on the disk"),
        }
        self.queue.count_dropped(self.kept.len());
    }

    /// One batch, and the answers to those who wait for it.
    fn commit(&mut self, fresh: VecDeque<Entry>) {
        let mut batch = fresh;
        if !self.kept.is_empty() {
            let fresh = std::mem::replace(&mut batch, std::mem::take(&mut self.kept));
            batch.extend(fresh);
        }
        if batch.is_empty() && self.outage.is_none() {
            return;
        }
        match self.write(&batch) {
            Ok(first_seq) => {
                self.recovered();
                for (seq, entry) in (first_seq..).zip(batch) {
                    // Whoever stopped waiting has their record all the same.
                    entry.waiter.map(|waiter| waiter.send(Ok(seq)));
                }
            }
            Err(error) => self.failed(batch, error),
        }
    }

    /// Writes the batch whole or not at all, and returns the number of its first record.
    fn write(&mut self, batch: &VecDeque<Entry>) -> Result<u64, Error> {
        self.make_room(batch.iter().map(|e| e.members.len() + FRAME_BYTES).sum())?;
        let mut head = self.head;
        self.buffer.clear();
        for entry in batch {
            let (stamp, members) = (entry.stamp, &entry.members);
            chain::seal(&mut self.buffer, &mut head, stamp, &self.boot, members);
        }
        let note = self.note();
        if let Some(members) = &note {
            let now = self.queue.now();
            chain::seal(&mut self.buffer, &mut head, now, &self.boot, members);
        }
        let is_synced = note.is_some() || batch.iter().any(|entry| entry.is_synced);
        let began = Instant::now();
        self.segment.append(&self.buffer, is_synced)?;
        self.metrics.audit_written(self.buffer.len());
        if is_synced {
            self.metrics.audit_synced(began.elapsed().as_secs_f64());
        }
        let first_seq = self.head.seq + 1;
        self.head = head;
        self.tell(is_synced);
        Ok(first_seq)
    }

    /// Says how far the log has come, to who signs it and to who passes it on.
    fn tell(&self, is_synced: bool) {
        self.grown.send_replace(self.head.seq);
        self.notary.reached(self.end((!is_synced).then(|| Arc::clone(&self.segment.file))));
    }

    fn end(&self, to_sync: Option<Arc<File>>) -> Reached {
        let (segment, file) = (Arc::clone(&self.boot), Arc::clone(&self.segment.name));
        Reached { segment, file, head: self.head, to_sync }
    }

    /// Goes on in a new segment where this one is full or old, or is no longer what its name leads to.
    fn make_room(&mut self, bytes: usize) -> Result<(), Error> {
        let is_in_place = self.segment.is_in_place();
        let now = self.queue.now();
        if is_in_place && !self.is_full(bytes) && !self.is_old(now) {
            return Ok(());
        }
        if is_in_place {
            self.segment.sync()?;
        } else {
            tracing::error!(segment = &*self.segment.name, "{DISTURBED}");
        }
        let file = self.segment.name.to_string();
        let link = Link { file, seq: self.head.seq, hash: self.head.hash, live: false, torn: None };
        let note = (!is_in_place).then(|| format!("{}: {DISTURBED}", link.file));
        let end = self.end(None);
        (self.segment, self.head) = begin(&self.directory, now, &self.boot, &self.kid, Some(link), note)?;
        self.begun_ms = now.at_ms;
        self.notary.finished(end);
        self.tell(true);
        if let Some(keeper) = &self.keeper {
            keeper.ask();
        }
        Ok(())
    }

    fn is_full(&self, bytes: usize) -> bool {
        self.segment.len.saturating_add(bytes as u64) > self.terms.file_bytes()
    }

    fn is_old(&self, now: Stamp) -> bool {
        let age_ms = now.at_ms.saturating_sub(self.begun_ms).max(0).unsigned_abs();
        self.terms.file_age().is_some_and(|most| u128::from(age_ms) > most.as_millis())
    }

    /// What has to be said of records that are missing: after an outage, or when results were lost.
    fn note(&self) -> Option<Vec<u8>> {
        let dropped = self.queue.dropped() - self.dropped_noted;
        if self.outage.is_none() && dropped == 0 {
            return None;
        }
        let mut line = Members::default();
        line.word("event", Some("recovered"));
        if let Some(outage) = &self.outage {
            let silent_ms = self.queue.now().mono_ms.saturating_sub(outage.since.mono_ms);
            line.number("silent_ms", Some(silent_ms));
            line.number("refused", Some(self.queue.refused() - outage.refused_before));
        }
        line.number("dropped", Some(dropped));
        line.text("detail", self.outage.as_ref().map(|outage| outage.cause.as_str()));
        Some(line.finish())
    }

    fn recovered(&mut self) {
        self.dropped_noted = self.queue.dropped();
        if self.outage.take().is_some() {
            self.queue.set_available(true);
            tracing::info!("the audit log can be written again");
        }
    }

    /// Tells those who wait, and keeps what nobody waits for.
    fn failed(&mut self, batch: VecDeque<Entry>, error: Error) {
        self.queue.set_available(false);
        if self.outage.is_none() {
            self.metrics.audit_outage();
            tracing::error!(error = error.with_cause(), "the audit log cannot be written");
            self.outage = Some(Outage {
                since: self.queue.now(),
                cause: error.with_cause(),
                refused_before: self.queue.refused(),
            });
        }
        let error = Arc::new(error);
        for entry in batch {
            match entry.waiter {
                Some(waiter) => {
                    self.queue.count_refused(1);
                    // A caller that is gone needs no answer.
                    let _ = waiter.send(Err(Unavailable::Disk(Arc::clone(&error))));
                }
                None if self.kept.len() < self.kept_max => self.kept.push_back(entry),
                None => self.queue.count_dropped(1),
            }
        }
    }
}

/// Creates a segment and writes its first record: `start`, tying on to all loose ends, or `rotated`, tying on to `last`.
fn begin(
    directory: &Directory,
    now: Stamp,
    boot: &str,
    kid: &str,
    last: Option<Link>,
    note: Option<String>,
) -> Result<(Segment, Head), Error> {
    directory.create()?;
    let _lock = directory.lock()?;
    let (event, links, seq) = match last {
        Some(link) => (ROTATED, vec![link.clone()], link.seq),
        None => (START, directory.loose_ends()?, 0),
    };
    let mut head = Head { seq, hash: links.first().map_or(Head::NONE.hash, |link| link.hash) };
    let mut records = Vec::new();
    chain::seal(&mut records, &mut head, now, boot, &opening(event, kid, &links));
    for detail in note.into_iter().chain(links.iter().filter_map(torn_note)) {
        let mut line = Members::default();
        line.word("event", Some("recovered"));
        line.text("detail", Some(&detail));
        chain::seal(&mut records, &mut head, now, boot, &line.finish());
    }
    let mut segment = Segment::create(directory, directory.next_name(now.at_ms, boot)?)?;
    let written = segment.append(&records, true);
    match written.and_then(|()| directory.sync()) {
        Ok(()) => Ok((segment, head)),
        Err(error) => {
            segment.remove();
            Err(error)
        }
    }
}

fn opening(event: &str, kid: &str, links: &[Link]) -> Vec<u8> {
    let mut line = Members::default();
    line.word("event", Some(event));
    line.word("version", Some(env!("CARGO_PKG_VERSION")));
    line.word("key", Some(kid));
    line.json("previous", &serde_json::to_vec(links).expect("links are plain data"));
    line.finish()
}

fn torn_note(link: &Link) -> Option<String> {
    let bytes = link.torn.as_ref()?.bytes;
    let (file, seq) = (&link.file, link.seq);
    Some(format!("{file}: {bytes} bytes after record {seq} are no record: a write was cut short"))
}

/// However the thread ends, nobody is left waiting for it.
struct Abandon(Arc<Queue>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

const DISTURBED: &str = "the segment was moved, removed or changed while in use";
const RETRY: Duration = Duration::from_millis(500);
const IDLE: Duration = Duration::from_secs(3600);
/// Records written at once: bounds the write a waiting caller may be behind.
const BATCH_MAX: usize = 1024;
/// What a record needs beside its members.
const FRAME_BYTES: usize = 300;
