//! Whether a command may go on filling its principal's folder.
//!
//! Walking a folder is dear, asking its file system is not: so the file system is asked often, and the folder walked only
//! where the file system has changed by as much as could matter. Commands end at their quota a little late, by what can be
//! written between two looks; a folder that is over it takes no more from the next command ([`Folders::watch`]).
//!
//! A walk does not find what has no name: files that were removed and are still open. Such a command is found by what no
//! walk explains: the file system has grown by more than all folders have, by more than the command had left, and the
//! command itself has written, or holds, more than it had left ([`super::writes`]). Both together: a host may fill up by itself, and a
//! build may write its files again and again.

use super::End;
use super::writes::{Processes, Writes, held};
use crate::workspace::{Usage, usage};
use rustix::fs::{fstat, fstatvfs};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A folder on a file system that changes is walked at least this often.
const AT_LEAST: Duration = Duration::from_secs(1);
/// Of a file system's inodes, those that a command must leave: a twentieth.
const INODES: u64 = 20;
/// Folders that are remembered.
const FOLDERS: usize = 10_000;
/// By this much, in bytes, a file system may grow without anybody being asked: files of the host's own, metadata.
const SLACK: i64 = 16 * 1024 * 1024;
/// By this much, in bytes, a folder may be more than when it was counted: where something lies is decided, and noted in
/// further blocks, after it was written.
const LAYOUT: u64 = 256 * 1024;
/// A walk that takes longer is not waited for if much is written meanwhile.
const SLOW: Duration = Duration::from_millis(200);
/// After this long, a suspicion is acted on even if other folders have not been walked since.
const SUSPENSE: Duration = Duration::from_secs(2);

/// A file system's device and a folder's inode.
type Inode = (u64, u64);

/// What is known of all folders that commands have run in.
pub(super) struct Folders {
    quota: u64,
    reserve: u64,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    known: HashMap<Inode, Known>,
    /// By how much all folders together have grown, as far as they were walked, in bytes.
    explained: i64,
    /// Commands that run, by a number of ours.
    running: HashMap<u64, Running>,
    next: u64,
    /// Whoever was walked before is to be walked again.
    asked: Option<Instant>,
}

/// What is known of one folder.
#[derive(Clone, Copy, Default)]
struct Known {
    /// `None` where that could not be said.
    used: Option<u64>,
    /// When that count began.
    as_of: Option<Instant>,
    /// How many are counting it anew, after a command.
    n_counting: u32,
}

/// What is known of a command that runs.
struct Running {
    folder: Inode,
    /// When the last walk began that is over.
    walked: Instant,
    /// Bytes that it has written, as far as anybody has asked.
    written: u64,
}

/// Watches a folder while a command runs in it.
pub(super) struct Watch {
    folder: Arc<OwnedFd>,
    folders: Arc<Folders>,
    inode: Inode,
    number: u64,
    /// What the folder may hold.
    limit: u64,
    is_full: bool,
    /// What it held when this began, and when it was walked last; `None` where that cannot be said.
    at_first: u64,
    known: Option<u64>,
    /// What its file system held when it was walked last.
    then: u64,
    at: Instant,
    /// How long after the last walk began there is none.
    pause: Duration,
    walking: Option<JoinHandle<Option<u64>>>,
    /// What the file system held, and the command had written, when the last walk began, and when the last one began
    /// that is over.
    at_walk: (u64, u64),
    at_known: (u64, u64),
    writes: Writes,
    /// What of the file system no walk explains: the least that this was while the command ran, in bytes.
    least: i64,
    /// Since when it is less than that, and since when so much more that the command is suspected.
    is_less: Option<Instant>,
    is_more: Option<Instant>,
    /// Where the file system is nearly full: what the command had written, and its folder held, when it became so.
    short: Option<(u64, Option<u64>)>,
    is_walked: bool,
}

// === impl Folders ===

impl Folders {
    /// Of none yet.
    pub(super) fn new(quota: u64, reserve: u64) -> Folders {
        Folders { quota, reserve, books: Mutex::default() }
    }

    /// Watches `folder` from now on. It is counted before, unless it is known to be below its quota and nobody is about to know better: a command may
    /// remove from a folder that is over it, but not add to that, however often it is tried. So it is with a folder that
    /// cannot be counted.
    ///
    /// # Errors
    /// The file system does not say how full it is.
    pub(super) async fn watch(self: &Arc<Self>, folder: &OwnedFd) -> io::Result<Watch> {
        let inode = inode(folder)?;
        let found = self.books().known.get(&inode).filter(|known| known.n_counting == 0).and_then(|known| known.used);
        let folder = Arc::new(folder.try_clone()?);
        let then = taken(folder.as_fd())?;
        let known = match found {
            Some(known) if known <= self.quota => Some(known),
            _ => {
                let as_of = Instant::now();
                self.set(inode, as_of, count(Arc::clone(&folder), self.no_more_than(then)).await)
            }
        };
        let at_first = known.unwrap_or(self.quota);
        let (limit, is_full) =
            (self.quota.max(at_first.saturating_add(LAYOUT)), known.is_none_or(|known| known > self.quota));
        let (at, pause) = (Instant::now(), Duration::ZERO);
        let short = is_short(&folder, self.reserve).then_some((0, None));
        let mut books = self.books();
        let least = signed(then).saturating_sub(books.explained);
        let number = books.next;
        books.next += 1;
        books.running.insert(number, Running { folder: inode, walked: at, written: 0 });
        drop(books);
        Ok(Watch {
            folder,
            folders: Arc::clone(self),
            inode,
            number,
            limit,
            is_full,
            at_first,
            known: Some(at_first),
            then,
            at,
            pause,
            walking: None,
            at_walk: (then, 0),
            at_known: (then, 0),
            writes: Writes::default(),
            least,
            is_less: None,
            is_more: None,
            short,
            is_walked: false,
        })
    }

    /// What no folder holds if its whole file system holds `taken`: who makes files faster than they are counted, is not
    /// waited for.
    fn no_more_than(&self, taken: u64) -> u64 {
        self.quota.saturating_add(taken).saturating_mul(2)
    }

    /// Counts the folder once more, if a command has changed what it holds. Nobody waits for that.
    pub(super) fn settle(self: &Arc<Self>, watch: &Watch) {
        let inode = watch.inode;
        if !watch.is_stale() {
            return;
        }
        self.books().known.entry(inode).or_default().n_counting += 1;
        let (folders, folder) = (Arc::clone(self), Arc::clone(&watch.folder));
        let (enough, as_of) = (self.no_more_than(watch.then), Instant::now());
        tokio::spawn(async move {
            folders.set(inode, as_of, count(folder, enough).await);
            if let Some(known) = folders.books().known.get_mut(&inode) {
                known.n_counting = known.n_counting.saturating_sub(1);
            }
        });
    }

    /// Notes what a folder holds, as it was counted from `as_of` on, unless a later count is known already.
    fn set(&self, inode: Inode, as_of: Instant, used: Option<u64>) -> Option<u64> {
        let mut books = self.books();
        if books.known.len() > FOLDERS {
            let used: HashSet<Inode> = books.running.values().map(|running| running.folder).collect();
            books.known.retain(|inode, _| used.contains(inode));
        }
        let known = books.known.entry(inode).or_default();
        if known.as_of > Some(as_of) {
            return used;
        }
        let before = std::mem::replace(&mut known.used, used);
        known.as_of = Some(as_of);
        if let (Some(used), Some(before)) = (used, before) {
            let more = signed(used).saturating_sub(signed(before));
            books.explained = books.explained.saturating_add(more);
        }
        used
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Books ===

impl Books {
    /// Whether all folders in which commands run were walked since `then`, or that was long enough ago. If not, they
    /// will be.
    fn are_walked_since(&mut self, then: Instant) -> bool {
        if then.elapsed() > SUSPENSE {
            return true;
        }
        self.asked = self.asked.max(Some(then));
        self.running.values().all(|running| running.walked > then)
    }

    /// What the commands that run in `folder` have written.
    fn written_in(&self, folder: Inode) -> u64 {
        let all = self.running.values().filter(|running| running.folder == folder);
        all.map(|running| running.written).fold(0, u64::saturating_add)
    }
}

// === impl Watch ===

impl Watch {
    /// Whether the folder was over its quota when this began.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the command must end, as far as that is known by now, and as what. `processes` are its own.
    pub(super) async fn is_over(&mut self, processes: Processes<'_>) -> Option<End> {
        if self.walking.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(walk) = self.walking.take()
        {
            (self.is_walked, self.at_known) = (true, self.at_walk);
            self.known = self.folders.set(self.inode, self.at, walk.await.unwrap_or(None));
            // As long as that took, or the walks of a large folder would be all that this host does.
            self.pause = self.at.elapsed() * 2;
            if let Some(running) = self.folders.books().running.get_mut(&self.number) {
                running.walked = self.at;
            }
        }
        let Some(known) = self.known.filter(|known| *known <= self.limit) else { return Some(End::OverQuota) };
        let Ok(now) = taken(self.folder.as_fd()) else { return Some(End::OverQuota) };
        let grown = now.saturating_sub(self.then);
        let since = self.at.elapsed();
        let is_asked = self.folders.books().asked.is_some_and(|asked| self.at <= asked);
        let is_due = grown > self.limit - known || (now != self.then && since > AT_LEAST) || is_asked;
        if is_due && since > self.pause && self.walking.is_none() {
            (self.then, self.at) = (now, Instant::now());
            self.at_walk = (now, self.written(processes));
            self.walking = Some(tokio::spawn(count(Arc::clone(&self.folder), self.limit)));
        }
        if self.outruns(now, known, processes) {
            return Some(End::OverQuota);
        }
        if self.has_filled(known, processes) {
            return Some(End::DiskFull);
        }
        self.hides_something(now, known, processes).then_some(End::OverQuota)
    }

    /// Whether a walk takes long, and the command and the file system are far ahead of what the last one found.
    fn outruns(&mut self, now: u64, known: u64, processes: Processes<'_>) -> bool {
        let left = (self.limit - known).saturating_add(SLACK.unsigned_abs());
        let (was_taken, was_written) = self.at_known;
        let is_slow = self.at.elapsed() > SLOW && (self.walking.is_some() || self.at.elapsed() < self.pause);
        is_slow && now.saturating_sub(was_taken) > left && self.written(processes).saturating_sub(was_written) > left
    }

    /// Whether the file system is nearly full, and the command has written since it is so.
    fn has_filled(&mut self, known: u64, processes: Processes<'_>) -> bool {
        if !is_short(&self.folder, self.folders.reserve) {
            self.short = None;
            return false;
        }
        let written = self.written(processes);
        let known = self.is_walked.then_some(known);
        let (was_written, was_known) = self.short.get_or_insert((written, known));
        // Many empty files are nothing that is written, and many inodes.
        *was_known = was_known.or(known);
        // To remove something may write a little.
        written > was_written.saturating_add(LAYOUT) || known > *was_known
    }

    /// Whether the command holds more than it may in files that no walk finds.
    fn hides_something(&mut self, now: u64, known: u64, processes: Processes<'_>) -> bool {
        let unexplained = signed(now).saturating_sub(self.folders.books().explained);
        if unexplained < self.least - SLACK / 4 {
            // What others held is free, and is not to be taken for room. A walk may find that it had a name.
            let since = *self.is_less.get_or_insert_with(Instant::now);
            if self.folders.books().are_walked_since(since) {
                (self.least, self.is_less) = (unexplained, None);
            }
            self.is_more = None;
            return false;
        }
        self.is_less = None;
        let hidden = unexplained - self.least;
        if hidden < SLACK / 2 {
            self.is_more = None;
            return false;
        }
        // From here on, so that little of what ends meanwhile is missed.
        let own = self.written(processes);
        if signed(known).saturating_add(hidden) <= signed(self.limit).saturating_add(SLACK) {
            self.is_more = None;
            return false;
        }
        let room = self.limit - self.at_first.min(self.limit);
        let since = *self.is_more.get_or_insert_with(Instant::now);
        if !self.folders.books().are_walked_since(since) {
            return false;
        }
        let own = own.max(held(processes, self.inode.0));
        let mut books = self.folders.books();
        if let Some(running) = books.running.get_mut(&self.number) {
            running.written = own;
        }
        own > 0 && books.written_in(self.inode) > room
    }

    fn written(&mut self, processes: Processes<'_>) -> u64 {
        let written = self.writes.look(processes);
        if let Some(running) = self.folders.books().running.get_mut(&self.number) {
            running.written = written;
        }
        written
    }

    /// Whether the folder may hold more, or less, than is known of it.
    fn is_stale(&self) -> bool {
        self.known.is_none_or(|known| known > self.limit)
            || self.walking.is_some()
            || taken(self.folder.as_fd()) != Ok(self.then)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.folders.books().running.remove(&self.number);
    }
}

fn inode(folder: &OwnedFd) -> io::Result<Inode> {
    let found = fstat(folder)?;
    Ok((found.st_dev, found.st_ino))
}

/// Whether the file system of `folder` is nearly full.
fn is_short(folder: &OwnedFd, reserve: u64) -> bool {
    fstatvfs(folder).is_ok_and(|found| {
        found.f_bavail * found.f_frsize < reserve || (found.f_files > 0 && found.f_favail < found.f_files / INODES)
    })
}

/// What `folder` holds, as far as `enough`; `None` where that cannot be said.
async fn count(folder: Arc<OwnedFd>, enough: u64) -> Option<u64> {
    let walk = tokio::task::spawn_blocking(move || usage(folder.as_fd(), enough));
    match walk.await {
        Ok(Ok(Usage { bytes, is_whole })) if is_whole || bytes > enough => Some(bytes),
        _ => None,
    }
}

/// Bytes that are taken on the file system of `folder`, whoever took them.
fn taken(folder: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    let found = fstatvfs(folder)?;
    Ok((found.f_blocks - found.f_bfree) * found.f_frsize)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
