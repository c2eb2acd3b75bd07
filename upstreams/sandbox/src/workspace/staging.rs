//! Where new contents wait for their name: a folder for each process, on the same file system as all principals' folders.
//!
//! A gateway that takes over from another one runs beside it for a while, each with a process of ours on the same
//! workspace. So each process locks its folder (flock(2)) for as long as it lives, and what is swept is what nobody has
//! locked: the kernel lets go of a lock when its holder ends, however it ends.

use super::open::beneath;
use super::own_folder;
use rustix::fs::{AtFlags, FileType, FlockOperation, OFlags, RawDir, flock};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use tracing::warn;

/// What holds the folders of all processes. No principal's folder is called this ([`super::name`]).
const STAGING: &str = "staging";
/// Names that are tried. Process numbers come again, and another PID namespace has the same ones.
const ATTEMPTS: u32 = 1000;

/// A folder of our own, locked. What processes have left there that have ended is removed.
///
/// # Errors
/// It cannot be made.
pub(super) fn open(root: &OwnedFd) -> io::Result<OwnedFd> {
    let all = own_folder(root, STAGING)?.0;
    sweep(&all)?;
    for n in 0..ATTEMPTS {
        let name = format!("{}-{n}", std::process::id());
        let ours = match own_folder(&all, &name) {
            Ok((ours, true)) => ours,
            Ok((_, false)) => continue,
            // Somebody swept it before it was locked.
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            Err(why) => return Err(why),
        };
        match flock(&ours, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => continue,
            // Where nobody can lock, nobody sweeps.
            Err(errno) => {
                warn!(error = %errno, "the file system of the workspace has no locks: half-written files stay");
            }
        }
        if is_at(&all, &CString::new(name)?, &ours)? {
            return Ok(ours);
        }
    }
    Err(io::Error::other("no name is free for a folder in `staging`"))
}

/// Whether `folder` is what has the name.
fn is_at(all: &OwnedFd, name: &CStr, folder: &OwnedFd) -> io::Result<bool> {
    let found = match rustix::fs::statat(all, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno.into()),
    };
    let folder = rustix::fs::fstat(folder)?;
    Ok((found.st_dev, found.st_ino) == (folder.st_dev, folder.st_ino))
}

/// Removes what is in `all`, but for the folders of processes that live.
fn sweep(all: &OwnedFd) -> io::Result<()> {
    for (name, kind) in entries(all)? {
        if kind != FileType::Directory {
            remove(all, &name, AtFlags::empty())?;
            continue;
        }
        let left = match beneath(all.as_fd(), &name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        // With the lock, and only then, what has the name stays what it is.
        if flock(&left, FlockOperation::NonBlockingLockExclusive).is_err() || !is_at(all, &name, &left)? {
            continue;
        }
        for (file, _) in entries(&left)? {
            remove(&left, &file, AtFlags::empty())?;
        }
        remove(all, &name, AtFlags::REMOVEDIR)?;
    }
    Ok(())
}

fn remove(folder: &OwnedFd, name: &CStr, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn entries(folder: &OwnedFd) -> io::Result<Vec<(CString, FileType)>> {
    let mut buffer = vec![MaybeUninit::uninit(); 8192];
    let mut found = Vec::new();
    let mut entries = RawDir::new(folder, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            found.push((entry.file_name().to_owned(), entry.file_type()));
        }
    }
    Ok(found)
}
