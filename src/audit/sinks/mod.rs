//! Where records go beside the files: standard output, a syslog server, an OpenTelemetry collector.
//!
//! The files are the truth, and a sink reads from them: nothing waits for one, and nothing is lost while one is down or the
//! gateway is not running. How far each has come is kept in `data_dir/audit-sinks/<name>.json`, and written after the sink
//! has taken what is before it: after a crash some records arrive twice, none never.
//! `source` reads, `cursor` remembers, one file a kind of sink sends.

mod cursor;
mod otlp;
mod source;
mod stdout;
mod syslog;

use super::Directory;
use crate::clock::Clock;
use crate::config::{self, Problem, SyslogTo};
use crate::fetch::Fetcher;
use crate::metrics::Metrics;
use crate::otlp::{Backoff, Collector, Resource};
use source::{Batch, Source};
use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, timeout};

/// One of `audit.also`.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub to: Destination,
}

/// Where records are sent.
#[derive(Clone, Debug)]
pub enum Destination {
    /// The standard output of this process.
    Stdout,
    /// A syslog server.
    Syslog(SyslogTo),
    /// An OpenTelemetry collector.
    Otlp(Collector),
}

/// How a sink is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkStatus {
    /// Its name.
    pub name: String,
    /// Bytes of the log it has not taken yet.
    pub behind_bytes: u64,
    /// Records and checkpoints it has taken from this process.
    pub sent: u64,
    /// Why the last attempt failed; `None` while it takes what it is sent.
    pub problem: Option<String>,
}

/// What sinks are run with.
pub struct Given {
    /// They.
    pub sinks: Vec<Sink>,
    /// Sends to collectors.
    pub fetcher: Fetcher,
    /// Told how each is doing.
    pub metrics: Arc<Metrics>,
    /// The time of day, for what has none of its own.
    pub clock: Clock,
}

/// What they read.
pub(super) struct Log {
    pub(super) directory: Directory,
    pub(super) checkpoints: PathBuf,
    /// A sink that is new begins with this file.
    pub(super) begun_with: Arc<str>,
    /// And with what stands behind so many bytes of checkpoints: all of this process, however late it looks.
    pub(super) checkpoints_from: u64,
    /// Told by the writer that there is more.
    pub(super) grown: watch::Receiver<u64>,
}

/// The sinks of this process. When it is dropped they end where they are.
pub struct Sinks {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
    statuses: Statuses,
}

/// How each is doing; shared with who shows it.
pub(super) type Statuses = Arc<Mutex<Vec<SinkStatus>>>;

/// Why records were not taken.
#[derive(Debug)]
struct NotTaken {
    why: String,
    /// The sink asks not to be sent anything for this long.
    after: Option<Duration>,
    /// The same may be taken in smaller pieces.
    is_too_much: bool,
}

// === impl Sink ===

impl Sink {
    /// Those of a configuration that was checked.
    ///
    /// # Errors
    /// Every secret that is none, and every file that cannot be used.
    pub fn build(loaded: &config::Loaded) -> Result<Vec<Sink>, Vec<Problem>> {
        let (mut sinks, mut problems) = (Vec::new(), Vec::new());
        for (at, written) in loaded.config.audit.also.iter().enumerate() {
            let path = config::Path::root().key("audit").key("also").index(at);
            let to = match (&written.syslog, &written.otlp) {
                (Some(syslog), _) => syslog
                    .to
                    .parse()
                    .map(Destination::Syslog)
                    .map_err(|malformed: config::Malformed| vec![malformed.at(path.key("syslog").key("to"))]),
                (None, Some(otlp)) => crate::trace::collector(otlp, loaded, &path.key("otlp")).map(Destination::Otlp),
                (None, None) => Ok(Destination::Stdout),
            };
            match to {
                Ok(to) => sinks.push(Sink { name: written.name.clone(), to }),
                Err(more) => problems.extend(more),
            }
        }
        if problems.is_empty() { Ok(sinks) } else { Err(problems) }
    }
}

// === impl Sinks ===

impl Sinks {
    pub(super) fn start(log: &Log, given: Given, statuses: Statuses) -> Sinks {
        let (stop, stopping) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let Given { sinks, fetcher, metrics, clock } = given;
        *lock(&statuses) =
            sinks.iter().map(|sink| SinkStatus { name: sink.name.clone(), ..SinkStatus::default() }).collect();
        for (at, Sink { name, to }) in sinks.into_iter().enumerate() {
            let folder = log.directory.path.with_file_name(FOLDER);
            let sender = Sender::new(to, &fetcher, log, &clock);
            let task = Task {
                source: Some(Source::new(log, folder.join(format!("{name}.json")))),
                lock: folder.join(format!("{name}.lock")),
                sender,
                grown: log.grown.clone(),
                stopping: stopping.clone(),
                metrics: Arc::clone(&metrics),
                clock: clock.clone(),
                told: Told { statuses: Arc::clone(&statuses), at, name },
                backoff: Backoff::default(),
                unconfirmed: VecDeque::new(),
                lines_max: LINES_MAX,
            };
            tasks.spawn(task.run());
        }
        Sinks { tasks, stop, statuses }
    }

    /// How each is doing.
    pub fn statuses(&self) -> Vec<SinkStatus> {
        lock(&self.statuses).clone()
    }

    /// Sends what is still in the files, as far as that goes in this time. The rest is sent after the next start.
    pub async fn finish(mut self, limit: Duration) {
        self.stop.send_replace(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(limit, all).await.is_err() {
            tracing::warn!("a sink of the audit log has not taken everything; it gets the rest after the next start");
        }
    }
}

fn lock(statuses: &Statuses) -> MutexGuard<'_, Vec<SinkStatus>> {
    statuses.lock().unwrap_or_else(PoisonError::into_inner)
}

// === One sink ===

struct Task {
    /// Away only while it is read.
    source: Option<Source>,
    /// Held by the process that sends: two gateways on one log do not send everything twice.
    lock: PathBuf,
    sender: Sender,
    grown: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
    clock: Clock,
    told: Told,
    backoff: Backoff,
    /// Where the source stood before what was sent lately, and may be lost with the connection.
    unconfirmed: VecDeque<(Instant, cursor::Cursor)>,
    /// Fewer, after the sink found a batch too large.
    lines_max: usize,
}

impl Task {
    async fn run(mut self) {
        let Some(_only_one) = self.only_one().await else {
            return;
        };
        loop {
            let batch = self.read().await;
            let Some(batch) = batch else {
                return;
            };
            let is_stopping = *self.stopping.borrow();
            if batch.lines.is_empty() {
                self.told.behind(&self.metrics, 0, 0);
                if is_stopping {
                    return self.end().await;
                }
                self.wait().await;
                continue;
            }
            match self.sender.send(&batch).await {
                Ok(n_refused) => self.taken(batch, n_refused).await,
                Err(_) if is_stopping => return,
                Err(not_taken) => self.not_taken(&batch, not_taken).await,
            }
        }
    }

    /// Waits until no other process sends to this sink; `None` when it is time to stop.
    async fn only_one(&mut self) -> Option<File> {
        loop {
            match hold(&self.lock) {
                Ok(Some(held)) => return Some(held),
                Ok(None) => {}
                Err(why) => self.told.problem(&self.metrics, 0, &format!("cannot use {}: {why}", self.lock.display())),
            }
            tokio::select! {
                () = stopped(&mut self.stopping) => return None,
                () = sleep(POLL) => {}
            }
        }
    }

    /// The next lines. Files are read where blocking is allowed.
    async fn read(&mut self) -> Option<Batch> {
        let mut source = self.source.take()?;
        let lines_max = self.lines_max;
        let read = spawn_blocking(move || {
            let batch = source.next(lines_max, BYTES_MAX);
            (source, batch)
        });
        let (source, batch) = read.await.ok()?;
        self.source = Some(source);
        match batch {
            Ok(batch) => {
                self.told.behind(&self.metrics, batch.behind, self.age(&batch));
                if batch.lost > 0 {
                    self.told.lost(&self.metrics, batch.lost);
                }
                Some(batch)
            }
            Err(error) => {
                self.told.problem(&self.metrics, 0, &error.with_cause());
                Some(Batch::default())
            }
        }
    }

    /// Of its first line, in seconds.
    fn age(&self, batch: &Batch) -> i64 {
        let made = batch.lines.first().and_then(|line| syslog::member(line, "at"));
        let made = made.and_then(|at| at.parse::<jiff::Timestamp>().ok());
        made.map_or(0, |at| self.clock.unix_seconds().saturating_sub(at.as_second()).max(0))
    }

    /// Waits for more.
    async fn wait(&mut self) {
        tokio::select! {
            // More comes in a moment, and is sent with it. A closed log does not grow.
            Ok(()) = self.grown.changed() => sleep(GATHER).await,
            () = stopped(&mut self.stopping) => {}
            // Other processes tell nobody.
            () = sleep(POLL) => {}
        }
    }

    async fn taken(&mut self, batch: Batch, n_refused: u64) {
        self.backoff.reset();
        self.told.sent(&self.metrics, batch.lines.len(), n_refused);
        let Some(source) = &mut self.source else {
            return;
        };
        let before = source.cursor().clone();
        source.advance(batch);
        if self.sender.is_sure() {
            self.unconfirmed.clear();
        } else {
            self.unconfirmed.push_back((Instant::now(), before));
            while self.unconfirmed.len() > 1 && self.unconfirmed[0].0.elapsed() > SURE_AFTER {
                self.unconfirmed.pop_front();
            }
        }
        let sure = self.unconfirmed.front().map(|(_, cursor)| cursor.clone());
        self.save(sure, false).await;
    }

    async fn not_taken(&mut self, batch: &Batch, not_taken: NotTaken) {
        // What went over the connection that broke may never have arrived.
        if let (Some((_, cursor)), Some(source)) = (self.unconfirmed.pop_front(), &mut self.source) {
            source.go_back(cursor);
            self.unconfirmed.clear();
        }
        self.told.problem(&self.metrics, batch.lines.len(), &not_taken.why);
        if not_taken.is_too_much {
            self.lines_max = (batch.lines.len() / 2).max(1);
        }
        let pause = self.backoff.failed(not_taken.after);
        tokio::select! {
            () = sleep(pause) => {}
            () = stopped(&mut self.stopping) => {}
        }
    }

    /// Everything was sent: waits until the sink has it, if it tells.
    async fn end(mut self) {
        if self.sender.finish().await {
            self.unconfirmed.clear();
        }
        let sure = self.unconfirmed.front().map(|(_, cursor)| cursor.clone());
        self.save(sure, true).await;
    }

    async fn save(&mut self, sure: Option<cursor::Cursor>, is_now: bool) {
        let Some(mut source) = self.source.take() else {
            return;
        };
        let saved = spawn_blocking(move || {
            let saved = source.save(sure.as_ref(), is_now);
            (source, saved)
        });
        let Ok((source, saved)) = saved.await else {
            return;
        };
        self.source = Some(source);
        if let Err(why) = saved {
            self.told.problem(&self.metrics, 0, &format!("how far it has come cannot be kept: {why}"));
        }
    }
}

/// Also when nobody is left who could say so.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|is| *is).await;
}

fn hold(path: &Path) -> std::io::Result<Option<File>> {
    let folder = path.parent().unwrap_or(Path::new("."));
    crate::store::files::make_private_dir(folder)?;
    crate::store::files::make_private_file(path)?;
    let file = File::options().write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

// === What is told of it ===

struct Told {
    statuses: Statuses,
    at: usize,
    name: String,
}

impl Told {
    fn with(&self, change: impl FnOnce(&mut SinkStatus)) {
        if let Some(status) = lock(&self.statuses).get_mut(self.at) {
            change(status);
        }
    }

    fn behind(&self, metrics: &Metrics, bytes: u64, seconds: i64) {
        self.with(|status| status.behind_bytes = bytes);
        metrics.sink_lag(&self.name, seconds);
    }

    fn sent(&self, metrics: &Metrics, n: usize, n_refused: u64) {
        let mut had_problem = false;
        self.with(|status| {
            status.sent += n as u64;
            had_problem = status.problem.take().is_some();
        });
        metrics.sink(&self.name, "sent", n as u64);
        if had_problem {
            tracing::info!(sink = self.name, "the sink takes audit records again");
        }
        if n_refused > 0 {
            tracing::error!(sink = self.name, n_refused, "the sink did not want some audit records");
            metrics.sink(&self.name, "dropped", n_refused);
        }
    }

    /// Logged when it begins, not for every attempt.
    fn problem(&self, metrics: &Metrics, n: usize, why: &str) {
        let mut is_new = false;
        self.with(|status| is_new = status.problem.replace(why.to_owned()).is_none());
        metrics.sink(&self.name, "failed", n as u64);
        if is_new {
            tracing::error!(sink = self.name, error = why, "the sink does not take audit records");
        }
    }

    fn lost(&self, metrics: &Metrics, files: u64) {
        tracing::error!(
            sink = self.name,
            files,
            "audit files were removed by retention before the sink had taken them"
        );
        metrics.sink(&self.name, "dropped", files);
    }
}

// === Senders ===

enum Sender {
    Stdout,
    Syslog(Box<syslog::Syslog>),
    Otlp(Box<otlp::Otlp>),
}

impl Sender {
    fn new(to: Destination, fetcher: &Fetcher, log: &Log, clock: &Clock) -> Sender {
        match to {
            Destination::Stdout => Sender::Stdout,
            Destination::Syslog(to) => Sender::Syslog(Box::new(syslog::Syslog::new(to, clock.clone()))),
            Destination::Otlp(collector) => {
                let instance = log.begun_with.trim_end_matches(".jsonl").rsplit('-').next().unwrap_or_default();
                let resource = Resource::of_this_process(instance);
                Sender::Otlp(Box::new(otlp::Otlp { collector, fetcher: fetcher.clone(), resource }))
            }
        }
    }

    /// Sends all lines. How many of them the sink will never want.
    async fn send(&mut self, batch: &Batch) -> Result<u64, NotTaken> {
        match self {
            Sender::Stdout => stdout::send(batch).await.map(|()| 0),
            Sender::Syslog(syslog) => syslog.send(batch).await.map(|()| 0),
            Sender::Otlp(otlp) => otlp.send(batch).await,
        }
    }

    /// Whether what was sent has arrived as far as anybody can tell.
    fn is_sure(&self) -> bool {
        !matches!(self, Sender::Syslog(syslog) if syslog.is_stream())
    }

    /// Ends the connection; whether all that was sent has arrived.
    async fn finish(&mut self) -> bool {
        match self {
            Sender::Syslog(syslog) => syslog.finish().await,
            Sender::Stdout | Sender::Otlp(_) => true,
        }
    }
}

impl NotTaken {
    fn because(why: impl std::fmt::Display) -> NotTaken {
        NotTaken { why: why.to_string(), after: None, is_too_much: false }
    }
}

const FOLDER: &str = "audit-sinks";
/// How often is looked for what other processes wrote.
const POLL: Duration = Duration::from_secs(1);
const GATHER: Duration = Duration::from_millis(20);
/// A connection that broke later than this after something was sent over it had delivered that.
const SURE_AFTER: Duration = Duration::from_secs(5);
/// Lines sent at once.
const LINES_MAX: usize = 512;
const BYTES_MAX: usize = 512 * 1024;

#[cfg(test)]
mod tests;
