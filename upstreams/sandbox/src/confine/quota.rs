//! Whether a command may go on filling its principal's folder.
//!
//! Walking a folder is dear, asking its file system is not: so the file system is asked often, and the folder walked only
//! where the file system has grown by as much as could matter. Commands end at their quota a little late, by what can be
//! written between two looks; a folder that is over it takes no more from the next command ([`Folders::watch`]).

use crate::workspace::{Usage, usage};
use rustix::fs::{fstat, fstatvfs};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A folder on a file system that grows is walked at least this often.
const AT_LEAST: Duration = Duration::from_secs(1);
/// Of a file system's inodes, those that a command must leave: a twentieth.
const INODES: u64 = 20;
/// Folders that are remembered.
const FOLDERS: usize = 10_000;

/// What is known of all folders that commands have run in.
pub(super) struct Folders {
    quota: u64,
    reserve: u64,
    known: Mutex<HashMap<(u64, u64), Known>>,
}

/// What is known of one, by its inode.
#[derive(Clone, Copy, Default)]
struct Known {
    used: u64,
    /// Somebody is counting it anew.
    is_counting: bool,
}

/// Watches a folder while a command runs in it.
pub(super) struct Watch {
    folder: Arc<OwnedFd>,
    reserve: u64,
    /// What the folder may hold.
    limit: u64,
    is_full: bool,
    /// What it held when it was walked last.
    known: u64,
    /// What its file system held then.
    then: u64,
    at: Instant,
    /// How long after the last walk began there is none.
    pause: Duration,
    walking: Option<JoinHandle<u64>>,
}

// === impl Folders ===

impl Folders {
    /// Of none yet.
    pub(super) fn new(quota: u64, reserve: u64) -> Folders {
        Folders { quota, reserve, known: Mutex::default() }
    }

    /// Watches `folder` from now on. It is counted before, unless it is known to be below its quota: a command may
    /// remove from a folder that is over it, but not add to that, however often it is tried.
    ///
    /// # Errors
    /// The file system does not say how full it is.
    pub(super) async fn watch(&self, folder: &OwnedFd) -> io::Result<Watch> {
        let inode = inode(folder)?;
        let known = self.known().get(&inode).map(|known| known.used);
        let folder = Arc::new(folder.try_clone()?);
        let then = taken(folder.as_fd())?;
        let known = match known {
            Some(known) if known <= self.quota => known,
            _ => self.set(inode, count(Arc::clone(&folder), u64::MAX).await),
        };
        let (limit, is_full) = (self.quota.max(known), known > self.quota);
        let (at, pause) = (Instant::now(), Duration::ZERO);
        Ok(Watch { folder, reserve: self.reserve, limit, is_full, known, then, at, pause, walking: None })
    }

    /// Counts the folder once more, if a command has changed what it holds. Nobody waits for that.
    pub(super) fn settle(self: &Arc<Self>, watch: Watch) {
        let Ok(inode) = inode(&watch.folder) else { return };
        if !watch.is_stale() {
            self.set(inode, watch.known);
            return;
        }
        let was_counting = std::mem::replace(&mut self.known().entry(inode).or_default().is_counting, true);
        if !was_counting {
            let folders = Arc::clone(self);
            tokio::spawn(async move { folders.set(inode, count(watch.folder, folders.quota).await) });
        }
    }

    fn set(&self, inode: (u64, u64), used: u64) -> u64 {
        let mut known = self.known();
        if known.len() > FOLDERS {
            known.clear();
        }
        known.insert(inode, Known { used, is_counting: false });
        used
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(u64, u64), Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inode(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let found = fstat(folder)?;
    Ok((found.st_dev, found.st_ino))
}

// === impl Watch ===

impl Watch {
    /// Whether the folder was over its quota when this began.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the command must end, as far as that is known by now.
    pub(super) async fn is_over(&mut self) -> bool {
        if self.walking.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(walk) = self.walking.take()
        {
            self.known = walk.await.unwrap_or(u64::MAX);
            // As long as that took, or the walks of a large folder would be all that this host does.
            self.pause = self.at.elapsed() * 2;
        }
        if self.known > self.limit || self.is_short() {
            return true;
        }
        let Ok(now) = taken(self.folder.as_fd()) else { return true };
        let grown = now.saturating_sub(self.then);
        let since = self.at.elapsed();
        let is_due = grown > self.limit - self.known || (grown > 0 && since > AT_LEAST);
        if is_due && since > self.pause && self.walking.is_none() {
            (self.then, self.at) = (now, Instant::now());
            self.walking = Some(tokio::spawn(count(Arc::clone(&self.folder), self.limit)));
        }
        false
    }

    /// Whether the folder may hold more, or less, than is known of it.
    fn is_stale(&self) -> bool {
        self.known > self.limit || self.walking.is_some() || taken(self.folder.as_fd()) != Ok(self.then)
    }

    /// Whether the file system is nearly full.
    fn is_short(&self) -> bool {
        fstatvfs(&*self.folder).is_ok_and(|found| {
            found.f_bavail * found.f_frsize < self.reserve
                || (found.f_files > 0 && found.f_favail < found.f_files / INODES)
        })
    }
}

/// What `folder` holds, as far as `enough`; more than any quota where that cannot be said.
async fn count(folder: Arc<OwnedFd>, enough: u64) -> u64 {
    let walk = tokio::task::spawn_blocking(move || usage(folder.as_fd(), enough));
    match walk.await {
        Ok(Ok(Usage { bytes, is_whole })) if is_whole || bytes > enough => bytes,
        _ => u64::MAX,
    }
}

/// Bytes that are taken on the file system of `folder`, whoever took them.
fn taken(folder: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    let found = fstatvfs(folder)?;
    Ok((found.f_blocks - found.f_bfree) * found.f_frsize)
}
