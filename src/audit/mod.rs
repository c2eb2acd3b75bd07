//! The audit log: who asked for what, what was decided, how it ended. One JSON object a line, in `data_dir/audit/`.
//!
//! Callers describe what happened as an [`Event`] and wait until it is in the file; that a call goes on only then is theirs to keep.
//! One thread owns the file. While it waits for the disk others queue up, and one write and one sync serve them all.
//! Every line holds the hash of the line before it, so that an edit shows ([`verify`]); the hash is not a signature:
//! `checkpoint` signs how far the log has come, in a file of its own, and no caller waits for that.
//! When the log cannot be written it says so at once and for as long as that lasts ([`Unavailable`]), and mends itself.
//!
//! No token is ever handed to this module: there is no field to put one in. Arguments of a call are handed to it as they
//! may be written down (`redact`), and only where the configuration says so.

mod chain;
mod checkpoint;
mod directory;
mod escape;
mod event;
mod flood;
mod keeper;
mod measure;
mod members;
mod queue;
mod read;
mod records;
mod schedule;
mod segment;
mod sinks;
mod terms;
mod verify;
mod writer;

pub use chain::sha256;
pub use checkpoint::{CheckpointStatus, PublicKey, Signer};
pub use directory::Directory;
pub use escape::{ascii, escaped};
pub use event::{Arguments, Decision, Event, Kind, Subject, Who};
pub use measure::is_left_out;
pub use read::{Follow, newest};
pub use records::Records;
pub use sinks::{Destination, Given as SinksGiven, Sink, SinkStatus, Sinks};
pub use verify::{Against, CheckpointFile, Fault, Report, Unsigned, verify};

use crate::clock::Clock;
use crate::config::{self, Sync};
use crate::metrics::{AuditState, Metrics};
use crate::redact::Redactor;
use flood::Flood;
use queue::Queue;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use terms::Terms;
use writer::{Aides, Writer};

/// How certain a record must be before the caller goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The operating system has taken it: it outlives this process, not a power cut.
    Written,
    /// It is on the disk. With `audit: { sync: relaxed }` this is `Written`.
    Synced,
}

/// Why a record is not in the log. The caller refuses what it wanted to record.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// The writer is behind by as many records as it may be.
    #[error("the audit queue is full")]
    QueueFull,
    /// The log was closed, or its thread has died.
    #[error("the audit log is closed")]
    Closed,
    /// The disk would not take it.
    #[error(transparent)]
    Disk(Arc<Error>),
}

/// What the file system refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on a file or directory failed.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process has been opening a segment for too long.
    #[error("another process holds {}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// What is to be the file of checkpoints is something else.
    #[error("{} is not a file of checkpoints: name another one in `audit.checkpoints.file`", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file of checkpoints would lie among the files it is to speak for.
    #[error("{} lies among the files of the audit log: name another one in `audit.checkpoints.file`", path.display())]
    Misplaced {
        /// The file.
        path: PathBuf,
    },
}

impl Error {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { doing, path, source }
    }

    /// With what the system said.
    fn with_cause(&self) -> String {
        match self {
            Error::Io { source, .. } => format!("{self}: {source}"),
            Error::Locked { .. } | Error::Foreign { .. } | Error::Misplaced { .. } => self.to_string(),
        }
    }
}

/// Where and how to write.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The audit directory, `data_dir/audit`; created `0700`.
    pub directory: PathBuf,
    /// The file of checkpoints.
    pub checkpoints: PathBuf,
    /// The gateway's own key: those of tags and of checkpoints are derived from it.
    pub key: [u8; 32],
    /// The time of day for `at` and for file names.
    pub clock: Clock,
    /// How records are written, kept and signed.
    pub config: config::Audit,
    /// Whether old files are removed where `config` says so: by the gateway, not by commands that come and go.
    pub removes_old: bool,
    /// Where it is counted what is recorded, and what that costs.
    pub metrics: Arc<Metrics>,
    /// Records that may wait for the writer. Results get twice the room: what they tell of has already run.
    pub queue_len: usize,
    /// The disk's moods, for tests.
    #[cfg(test)]
    faults: Arc<segment::Faults>,
}

impl Settings {
    /// The log of the gateway whose data is in `data_dir`, with nothing configured but `sync`.
    pub fn new(data_dir: &Path, key: [u8; 32], sync: Sync, clock: Clock) -> Self {
        Settings::of(&config::Audit { sync, ..config::Audit::default() }, data_dir, key, clock)
    }

    /// The log of the gateway whose data is in `data_dir`. Paths in `config` are resolved.
    pub fn of(config: &config::Audit, data_dir: &Path, key: [u8; 32], clock: Clock) -> Self {
        Settings {
            directory: data_dir.join("audit"),
            checkpoints: checkpoints_file(config, data_dir),
            key,
            clock,
            config: config.clone(),
            removes_old: false,
            metrics: Arc::default(),
            queue_len: 4096,
            #[cfg(test)]
            faults: Arc::default(),
        }
    }
}

/// Where the checkpoints of the gateway whose data is in `data_dir` are. Paths in `config` are resolved.
pub fn checkpoints_file(config: &config::Audit, data_dir: &Path) -> PathBuf {
    config.checkpoints.file.clone().unwrap_or_else(|| data_dir.join("audit-checkpoints.jsonl"))
}

/// A handle on the log; clones write to the same one. The last to go closes it, after what is queued is written.
#[derive(Clone)]
pub struct Audit(Arc<Open>);

struct Open {
    queue: Arc<Queue>,
    flood: Flood,
    redactor: Redactor,
    terms: Arc<Terms>,
    metrics: Arc<Metrics>,
    directory: Option<Directory>,
    writer: Mutex<Option<JoinHandle<()>>>,
    aides: Option<Aides>,
    sinks: sinks::Statuses,
}

impl Audit {
    /// Opens a new segment and writes its `start`, synced. A gateway that cannot do this must not begin to serve.
    pub fn open(settings: Settings) -> Result<Audit, Error> {
        let queue = Arc::new(Queue::new(settings.clock.clone(), settings.queue_len));
        let terms = Arc::new(Terms::new(&settings.config));
        let redactor = Redactor::new(&settings.key);
        let (metrics, directory) = (Arc::clone(&settings.metrics), Some(Directory::new(settings.directory.clone())));
        let (writer, aides) = Writer::open(settings, Arc::clone(&queue), Arc::clone(&terms))?;
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run())
            .map_err(Error::io("start the writer of", Path::new("the audit log")))?;
        let (flood, writer) = (Flood::new(), Mutex::new(Some(thread)));
        let (aides, sinks) = (Some(aides), sinks::Statuses::default());
        Ok(Audit(Arc::new(Open { queue, flood, redactor, terms, metrics, directory, writer, aides, sinks })))
    }

    /// A log that takes no record, for who only reads what others do: what has to be recorded first is refused.
    pub fn closed(clock: Clock) -> Audit {
        let queue = Queue::new(clock, 0);
        queue.close();
        let (flood, terms) = (Flood::new(), Arc::new(Terms::new(&config::Audit::default())));
        // It tags nothing: nothing is written.
        let redactor = Redactor::new(&[0; 32]);
        let (metrics, directory, writer) = (Arc::default(), None, Mutex::new(None));
        let (queue, aides, sinks) = (Arc::new(queue), None, sinks::Statuses::default());
        Audit(Arc::new(Open { queue, flood, redactor, terms, metrics, directory, writer, aides, sinks }))
    }

    /// Writes `event` and returns its `seq` once it is as certain as `durability` asks.
    /// A caller that stops waiting takes nothing back: the record is written all the same.
    pub async fn record(&self, event: Event<'_>, durability: Durability) -> Result<u64, Unavailable> {
        if is_left_out() {
            if measure::is_gathered() {
                tokio::task::yield_now().await;
            }
            return Ok(0);
        }
        self.0.metrics.event(event.kind.as_str(), event.code);
        let is_synced = durability == Durability::Synced && self.0.terms.is_strict();
        self.0.queue.push_waiting(event.encode(&self.0.redactor), is_synced)?.written().await
    }

    /// Writes `event` without waiting for it: for results, whose call has already run. It is kept while the disk
    /// cannot take it; when even the room kept for that is full it is lost, and counted in [`Audit::dropped`].
    pub fn record_later(&self, event: Event<'_>) {
        if is_left_out() {
            return;
        }
        self.0.metrics.event(event.kind.as_str(), event.code);
        self.0.queue.push(event.encode(&self.0.redactor));
    }

    /// Writes, without waiting, what somebody did who has not shown who they are. A thousand such records are written
    /// whole, then 20 a second; the next one written says in `unrecorded` how many were not.
    pub fn record_stranger(&self, event: Event<'_>) {
        if let Some(unrecorded) = self.0.flood.admit() {
            self.record_later(Event { unrecorded: (unrecorded > 0).then_some(unrecorded), ..event });
        } else {
            self.0.metrics.event(event.kind.as_str(), event.code);
            self.0.metrics.audit_left_out();
        }
    }

    /// What makes tags for this log.
    pub fn redactor(&self) -> &Redactor {
        &self.0.redactor
    }

    /// Whether the last attempt to write succeeded. While it did not, the writer tries again twice a second.
    pub fn is_available(&self) -> bool {
        self.0.queue.is_available()
    }

    /// Records of [`Audit::record_later`] that were lost since the start.
    pub fn dropped(&self) -> u64 {
        self.0.queue.dropped()
    }

    /// Records that are not in the file yet.
    pub fn queued(&self) -> usize {
        self.0.queue.len()
    }

    /// Brings those metrics up to date that are looked up rather than counted. Reads the directory.
    pub fn measure(&self) {
        let queue = &self.0.queue;
        self.0.metrics.audit(&AuditState {
            is_available: queue.is_available(),
            queued: queue.len(),
            refused: queue.refused(),
            dropped: queue.dropped(),
        });
        self.0.metrics.unchecked_records(self.checkpoints().waiting);
        // While the directory cannot be read, the last sizes stand; `audit_available` says that something is wrong.
        if let Some(space) = self.0.directory.as_ref().and_then(|directory| directory.space().ok()) {
            self.0.metrics.audit_space(&space);
        }
    }

    /// How the checkpoints of this log are doing.
    pub fn checkpoints(&self) -> CheckpointStatus {
        self.0.aides.as_ref().map(|aides| aides.notary.status()).unwrap_or_default()
    }

    /// Starts the further sinks; `None` for a log that is closed.
    pub fn start_sinks(&self, given: SinksGiven) -> Option<Sinks> {
        let aides = self.0.aides.as_ref()?;
        Some(Sinks::start(&aides.log, given, Arc::clone(&self.0.sinks)))
    }

    /// How the further sinks are doing.
    pub fn sinks(&self) -> Vec<SinkStatus> {
        self.0.sinks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a reloaded configuration into force. The file of checkpoints and the further sinks stay as they were.
    pub fn reload(&self, config: &config::Audit) {
        self.0.terms.set(config);
        let Some(aides) = &self.0.aides else {
            return;
        };
        aides.notary.ask();
        if let Some(keeper) = &aides.keeper {
            keeper.wake().ask();
        }
    }

    /// Writes what is queued, syncs, and ends the writer. Whatever is recorded after this is refused. Blocks.
    pub fn close(&self) {
        self.0.close();
    }
}

// === impl Open ===

impl Open {
    fn close(&self) {
        let unrecorded = self.flood.take_unrecorded();
        if unrecorded > 0 {
            let event = Event { unrecorded: Some(unrecorded), ..Event::new(Kind::Refused) };
            self.queue.push(event.encode(&self.redactor));
        }
        if let Some(keeper) = self.aides.as_ref().and_then(|aides| aides.keeper.as_ref()) {
            keeper.close();
        }
        self.queue.close();
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = writer.take()
            && thread.join().is_err()
        {
            tracing::error!("the audit writer panicked");
        }
        drop(writer);
        if let Some(aides) = &self.aides {
            aides.notary.close();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
