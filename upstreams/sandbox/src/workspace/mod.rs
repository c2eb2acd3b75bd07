//! Each principal's folder, and the files in it: every path is resolved by the kernel beneath that folder, whatever links
//! commands have left there.
//!
//! The folder that is handed over holds one folder per principal, and `staging`, where new contents wait for their
//! name: on the same file system, and where no command ever sees them ([`staging`]). Nothing of ours is in a principal's folder.

/// Why nothing was read or written.
mod error;
/// Which folder is whose.
mod name;
/// Opening what a path names.
mod open;
/// How a file is named in arguments.
pub mod path;
/// Reading a part of a file.
pub(crate) mod read;
/// Where new contents wait for their name.
mod staging;
/// What a folder holds, in bytes.
pub mod usage;
/// Going through folders, in order and within limits.
pub(crate) mod walk;
/// Writing a file, as a whole or not at all.
pub(crate) mod write;

pub use error::Error;
pub use path::WorkspacePath;
pub use usage::{Usage, usage};

use crate::words::DISK_FULL;
use portcullis_local::Principal;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::info;

/// The folder that holds all principals' folders.
pub struct Workspace {
    root: OwnedFd,
    staging: Arc<OwnedFd>,
    limits: Limits,
    /// What those who use a folder at the same time have in common; by the folder's name, for as long as it is used.
    shared: Mutex<HashMap<String, Weak<Shared>>>,
}

/// What may be taken.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// By one principal's folder, in bytes.
    pub quota: u64,
    /// By nobody: so many bytes of the file system stay free.
    pub reserve: u64,
    /// Commands of all principals at once.
    pub commands: u32,
}

/// One principal's folder.
pub struct Folder {
    /// The folder itself.
    pub directory: OwnedFd,
    staging: Arc<OwnedFd>,
    limits: Limits,
    shared: Arc<Shared>,
}

/// What those who use one folder at the same time have in common.
struct Shared {
    /// Held while a file is written: what was found out about space and contents still holds when it is.
    writing: Mutex<()>,
    /// File tools of one principal at once.
    turns: Arc<Semaphore>,
    /// Calls of one principal at once, those included that wait for their turn.
    calls: Arc<Semaphore>,
    /// Commands of one principal at once.
    commands: Arc<Semaphore>,
}

/// What nobody else may look into.
const PRIVATE: Mode = Mode::RWXU;
/// File tools of one principal at once.
const TURNS: usize = 2;
/// Calls of one principal at once. What each brings with it (8 MiB at most) is in memory.
const CALLS: usize = 64;

// === impl Workspace ===

impl Workspace {
    /// The folder that was handed over. What processes left half-written that have ended is removed.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn new(root: OwnedFd, limits: Limits) -> io::Result<Workspace> {
        let staging = staging::open(&root)?;
        Ok(Workspace { root, staging: Arc::new(staging), limits, shared: Mutex::default() })
    }

    /// This principal's folder; made where there is none yet.
    ///
    /// # Errors
    /// It cannot be made or opened.
    pub fn folder(&self, principal: &Principal) -> io::Result<Folder> {
        let name = name::of(principal);
        let (directory, is_new) = own_folder(&self.root, &name)?;
        if is_new {
            info!(
                folder = name,
                issuer = principal.issuer,
                subject = principal.subject,
                "made a folder for a principal"
            );
        }
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, used| used.strong_count() > 0);
        let shared = all.get(&name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::new(Shared {
                writing: Mutex::default(),
                turns: Arc::new(Semaphore::new(TURNS)),
                calls: Arc::new(Semaphore::new(CALLS)),
                commands: Arc::new(Semaphore::new(self.limits.share() as usize)),
            });
            all.insert(name, Arc::downgrade(&shared));
            shared
        });
        Ok(Folder { directory, staging: self.staging.clone(), limits: self.limits, shared })
    }
}

/// The folder `name` in `root`, ours alone; and whether it was made just now.
fn own_folder(root: &OwnedFd, name: &str) -> io::Result<(OwnedFd, bool)> {
    let is_new = match rustix::fs::mkdirat(root, name, PRIVATE) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno.into()),
    };
    let found = open::beneath(root.as_fd(), name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
    // A command may have changed what its own folder lets others do, or have locked itself out.
    if Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) != PRIVATE {
        rustix::fs::chmod(open::in_proc(found.as_fd()), PRIVATE)?;
    }
    Ok((open::beneath(found.as_fd(), ".", OFlags::RDONLY | OFlags::DIRECTORY)?, is_new))
}

// === impl Limits ===

impl Limits {
    /// Commands of one principal at once: all but an eighth, so that there are turns for somebody else, however many are
    /// asked for.
    pub fn share(&self) -> u32 {
        self.commands.saturating_sub((self.commands / 8).max(1)).max(1)
    }
}

// === impl Folder ===

impl Folder {
    /// Bytes it may hold.
    pub fn quota(&self) -> u64 {
        self.limits.quota
    }

    /// What it holds, as far as that is not more than its quota.
    ///
    /// # Errors
    /// It cannot be gone through.
    pub fn usage(&self) -> io::Result<Usage> {
        usage(self.directory.as_fd(), self.limits.quota)
    }

    /// The turns of the principal's file tools.
    pub(crate) fn turns(&self) -> Arc<Semaphore> {
        self.shared.turns.clone()
    }

    /// How many commands the principal may run at once, and the turns for that.
    pub(crate) fn commands(&self) -> (u32, Arc<Semaphore>) {
        (self.limits.share(), self.shared.commands.clone())
    }

    /// A call of the principal's, for as long as it is held; `None` where there are too many.
    pub(crate) fn call(&self) -> Option<OwnedSemaphorePermit> {
        self.shared.calls.clone().try_acquire_owned().ok()
    }

    /// Whether `more` bytes, where `freed` go, fit in.
    fn admit(&self, path: &WorkspacePath, more: u64, freed: u64) -> Result<(), Error> {
        let disk = rustix::fs::fstatvfs(&self.directory).map_err(|errno| Error::system("write", path, errno))?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < more.saturating_add(self.limits.reserve) {
            return Err(Error::Full(format!("{DISK_FULL}; nothing can be written")));
        }
        if more <= freed {
            return Ok(());
        }
        let usage = self.usage().map_err(|error| Error::io("measure the workspace for", path, &error))?;
        let would_be = usage.bytes.saturating_sub(freed).saturating_add(more);
        if usage.is_whole && would_be <= self.limits.quota {
            return Ok(());
        }
        Err(Error::quota(self.limits.quota, usage.is_whole.then_some(usage.bytes), more - freed))
    }
}

#[cfg(test)]
mod tests;
