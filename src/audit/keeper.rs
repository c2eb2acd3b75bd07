//! Removes what is old or too much, and writes down first what is about to go: `retention` names the file, its last record
//! and that record's hash, so that `verify` can tell a file that was removed by this rule from one that is missing.
//!
//! Files go in the order they were begun, and none whose writer lives. What ties on to a file has a later name, so that
//! no tie is lost to one that stays.

use super::Error;
use super::directory::{Directory, LINKS_MAX, Link};
use super::members::Members;
use super::queue::{Queue, Waiting};
use super::terms::Terms;
use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// See the module.
pub(super) struct Keeper {
    wake: Arc<Wake>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How the thread is told to look again, or to end.
#[derive(Default)]
pub(super) struct Wake {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_asked: bool,
    is_closed: bool,
}

/// A file that is about to go.
struct Doomed {
    end: Link,
    why: &'static str,
    /// Files begun before it that stay, because they are still written to.
    kept: Vec<String>,
}

// === impl Wake ===

impl Wake {
    /// There is another file: some may have to go.
    pub(super) fn ask(&self) {
        self.lock().is_asked = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn start(directory: Directory, terms: Arc<Terms>, queue: Arc<Queue>) -> Result<Keeper, Error> {
        let wake = Arc::<Wake>::default();
        let now = queue.now();
        let seen = (now.at_ms, now.mono_ms);
        let worker = Worker { directory, terms, queue, wake: Arc::clone(&wake), seen, patience_until_ms: 0 };
        let thread = std::thread::Builder::new()
            .name("audit-retention".to_owned())
            .spawn(move || worker.run())
            .map_err(Error::io("start the thread that removes old files of", Path::new("the audit log")))?;
        Ok(Keeper { wake, thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn wake(&self) -> Arc<Wake> {
        Arc::clone(&self.wake)
    }

    /// Ends it. The log still takes records, since it may wait for one of its own.
    pub(super) fn close(&self) {
        self.wake.lock().is_closed = true;
        self.wake.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that removes old audit files panicked");
        }
    }
}

// === The thread ===

struct Worker {
    directory: Directory,
    terms: Arc<Terms>,
    queue: Arc<Queue>,
    wake: Arc<Wake>,
    /// The time at the last look, or when the log was opened, both ways.
    seen: (i64, u64),
    /// Until then, by the clock that cannot be set, nothing goes for its age.
    patience_until_ms: u64,
}

impl Worker {
    fn run(mut self) {
        let mut is_failing = false;
        loop {
            match self.look() {
                Ok(()) => is_failing = false,
                Err(error) if !is_failing => {
                    tracing::error!(error = error.with_cause(), "old audit files cannot be removed");
                    is_failing = true;
                }
                Err(_) => {}
            }
            let state = self.wake.lock();
            let (mut state, _) = self
                .wake
                .changed
                .wait_timeout_while(state, LOOK, |state| !state.is_asked && !state.is_closed)
                .unwrap_or_else(PoisonError::into_inner);
            state.is_asked = false;
            if state.is_closed {
                return;
            }
        }
    }

    fn look(&mut self) -> Result<(), Error> {
        if self.terms.keep().is_none() && self.terms.keep_bytes().is_none() {
            return Ok(());
        }
        // One process at a time; another does it as well.
        let Some(_only_one) = try_lock(&self.directory.path.join(LOCK))? else {
            return Ok(());
        };
        let is_clock_trusted = self.is_clock_trusted();
        loop {
            let doomed = self.doomed(is_clock_trusted)?;
            if doomed.is_empty() || !self.announce(&doomed) {
                return Ok(());
            }
            self.remove(&doomed)?;
        }
    }

    /// What has to go, the oldest first.
    fn doomed(&self, is_clock_trusted: bool) -> Result<Vec<Doomed>, Error> {
        // A new segment ties on to what is there: it is either before or after this look.
        let _lock = self.directory.lock()?;
        let names = self.directory.segments()?;
        let sizes: Vec<u64> = names.iter().map(|name| size(&self.directory.path.join(name))).collect();
        let mut total: u64 = sizes.iter().sum();
        // The newest one grows to its full size before anyone looks again.
        let most = self.terms.keep_bytes().map(|most| most.saturating_sub(self.terms.file_bytes()));
        let now_ms = self.queue.now().at_ms;
        let (mut doomed, mut kept) = (Vec::new(), Vec::new());
        for (name, bytes) in names.into_iter().zip(sizes) {
            if self.directory.may_live(&name)? {
                kept.push(name);
                if kept.len() > LINKS_MAX {
                    break;
                }
                continue;
            }
            // Nothing in it: left by a disk that was full when it was begun.
            let Some((end, at_ms)) = self.directory.ended(&name)? else {
                continue;
            };
            let is_too_much = most.is_some_and(|most| total > most);
            let is_old = |keep: Duration| {
                u128::from(now_ms.saturating_sub(at_ms).unsigned_abs()) > keep.as_millis() && at_ms < now_ms
            };
            let why = match (is_too_much, self.terms.keep()) {
                (true, _) => "more than `keep_at_most`",
                (false, Some(keep)) if is_clock_trusted && is_old(keep) => "older than `keep`",
                _ => break,
            };
            total = total.saturating_sub(bytes);
            doomed.push(Doomed { end, why, kept: kept.clone() });
            if doomed.len() >= AT_ONCE {
                break;
            }
        }
        Ok(doomed)
    }

    /// Writes down what is about to go, and waits until that is on the disk.
    fn announce(&self, doomed: &[Doomed]) -> bool {
        let written: Vec<_> = doomed.iter().map(|doomed| self.queue.push_waiting(doomed.members(), true)).collect();
        let is_written = |waiting: Result<Waiting<'_>, _>| waiting.and_then(Waiting::written_blocking).is_ok();
        // All are waited for, also after one that failed.
        let n_written = written.into_iter().map(is_written).filter(|is_written| *is_written).count();
        n_written == doomed.len()
    }

    fn remove(&self, doomed: &[Doomed]) -> Result<(), Error> {
        let _lock = self.directory.lock()?;
        for Doomed { end, why, .. } in doomed {
            let path = self.directory.path.join(&end.file);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path)(error));
                }
                _ => tracing::info!(file = end.file, reason = why, "an audit file was removed"),
            }
        }
        self.directory.sync()
    }

    /// A clock that was set forward makes every file look old, and what is removed does not come back.
    fn is_clock_trusted(&mut self) -> bool {
        let now = self.queue.now();
        let (at_ms, mono_ms) = std::mem::replace(&mut self.seen, (now.at_ms, now.mono_ms));
        let by_clock = now.at_ms.saturating_sub(at_ms);
        let really = i64::try_from(now.mono_ms.saturating_sub(mono_ms)).unwrap_or(i64::MAX);
        if by_clock.saturating_sub(really) > STEP_MS {
            tracing::warn!("the clock went forward: for a day no audit file is removed for its age");
            self.patience_until_ms = now.mono_ms.saturating_add(PATIENCE_MS);
        }
        now.mono_ms >= self.patience_until_ms
    }
}

impl Doomed {
    fn members(&self) -> Vec<u8> {
        let mut line = Members::default();
        line.word("event", Some(RETENTION));
        line.json("removed", &serde_json::to_vec(&self.end).expect("a link is plain data"));
        if !self.kept.is_empty() {
            line.json("kept", &serde_json::to_vec(&self.kept).expect("names are plain data"));
        }
        line.text("detail", Some(self.why));
        line.finish()
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn try_lock(path: &Path) -> Result<Option<File>, Error> {
    let file =
        File::options().create(true).write(true).truncate(false).open(path).map_err(Error::io("create", path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(Error::io("lock", path)(source)),
    }
}

/// The event of the record that names a file which is about to be removed.
pub(super) const RETENTION: &str = "retention";
const LOCK: &str = "retention.lock";
const LOOK: Duration = Duration::from_secs(60);
/// Files that go after one look.
const AT_ONCE: usize = 32;
const STEP_MS: i64 = 60 * 60 * 1000;
const PATIENCE_MS: u64 = 24 * 60 * 60 * 1000;
