//! Writing a file, as a whole or not at all: new contents are written beside all folders, reach the disk, and then get
//! the file's name in one step. Whoever reads meanwhile, or after a crash, has the old contents or the new ones.
//!
//! - What has the name is replaced, not written into: where a file has further names (hard links), those keep the old
//!   contents; where a link or a pipe was put there in the last moment, that goes, and nothing is written through it.
//! - Adding to a file is the exception: it is written into, as `>>` would, and seen by all its names. Those are all in
//!   the same folder: commands see one mount, and link(2) makes no names across mounts.

use super::open::{Found, describe, directory, entry, kind};
use super::usage::ENTRY;
use super::{Error, Folder, WorkspacePath};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens to what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Nothing may be there.
    Create,
    /// It is replaced.
    Overwrite,
    /// It is added to.
    Append,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Whether there was no such file before.
    pub is_new: bool,
    /// What the file holds now, in bytes.
    pub size: u64,
}

/// Permission bits of new files.
const NEW: u32 = 0o644;
/// The bits that are kept of a file that is replaced: not set-user-ID, set-group-ID or the sticky bit.
const KEPT: u32 = 0o777;

impl Folder {
    /// Writes `content` to `path`.
    ///
    /// # Errors
    /// Nothing was written, unless it was to be added to a file and the disk was full in between.
    pub(crate) fn write(
        &self,
        path: &WorkspacePath,
        content: &[u8],
        how: How,
        create_parents: bool,
    ) -> Result<Written, Error> {
        let _writing = self.shared.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (parent, name) = path.split().ok_or_else(|| not_a_file(path, FileType::Directory))?;
        let there = match directory(self.directory.as_fd(), &parent, false) {
            Ok(there) => Some(there),
            Err(Error::NoFolder(_)) if create_parents => None,
            Err(error) => return Err(error),
        };
        let failed = |errno| Error::system("look at", path, errno);
        let existing = there.as_ref().map(|there| entry(there.as_fd(), name)).transpose().map_err(failed)?.flatten();
        if let Some(existing) = &existing {
            self.may_replace(path, existing, how)?;
        }
        let replaced = existing.as_ref().filter(|_| how == How::Overwrite);
        // A file with further names stays where it is.
        let freed = replaced.filter(|stat| stat.st_nlink == 1).map_or(0, allocated);
        let made = if there.is_none() { parent.components().count() as u64 } else { 0 };
        self.admit(path, space(content).saturating_add(made * ENTRY), freed)?;
        let there = there.map_or_else(|| directory(self.directory.as_fd(), &parent, true), Ok)?;
        match existing {
            Some(_) if how == How::Append => self.append(path, content),
            existing => self.put(path, &there, name, content, existing.as_ref(), how),
        }
    }

    /// Replaces the contents of a file that was read before: by `change`, which gets the old ones.
    ///
    /// # Errors
    /// Nothing was written.
    pub(crate) fn change<T, E: From<Error>>(
        &self,
        path: &WorkspacePath,
        change: impl FnOnce(File) -> Result<(Vec<u8>, T), E>,
    ) -> Result<T, E> {
        let _writing = self.shared.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let found = Found::at(self.directory.as_fd(), path)?;
        let (parent, name) = path.split().ok_or_else(|| not_a_file(path, FileType::Directory))?;
        self.may_replace(path, &found.stat, How::Overwrite)?;
        let (content, told) = change(found.file(path, OFlags::RDONLY)?)?;
        let freed = if found.stat.st_nlink == 1 { allocated(&found.stat) } else { 0 };
        self.admit(path, space(&content), freed)?;
        let there = directory(self.directory.as_fd(), &parent, false)?;
        self.put(path, &there, name, &content, Some(&found.stat), How::Overwrite)?;
        Ok(told)
    }

    fn may_replace(&self, path: &WorkspacePath, existing: &Stat, how: How) -> Result<(), Error> {
        match kind(existing) {
            kind if how == How::Create => Err(Error::Exists { path: path.clone(), is: describe(kind) }),
            // Says where it leads.
            FileType::Symlink => Err(Found::at(self.directory.as_fd(), path)
                .err()
                .unwrap_or_else(|| not_a_file(path, FileType::Symlink))),
            FileType::RegularFile if existing.st_mode & 0o200 == 0 => {
                Err(Error::ReadOnly { path: path.clone(), mode: existing.st_mode & 0o7777 })
            }
            FileType::RegularFile => Ok(()),
            kind => Err(not_a_file(path, kind)),
        }
    }

    /// Gives `content` the name.
    fn put(
        &self,
        path: &WorkspacePath,
        there: &OwnedFd,
        name: &str,
        content: &[u8],
        replaced: Option<&Stat>,
        how: How,
    ) -> Result<Written, Error> {
        let staged = self.stage(content, replaced.map_or(NEW, |stat| stat.st_mode & KEPT));
        let staged = staged.map_err(|error| Error::io("write", path, &error))?;
        let renamed = if how == How::Overwrite {
            rustix::fs::renameat(&*self.staging, &staged, there, name)
        } else {
            rustix::fs::renameat_with(&*self.staging, &staged, there, name, RenameFlags::NOREPLACE)
        };
        if let Err(errno) = renamed {
            let _ = rustix::fs::unlinkat(&*self.staging, &staged, AtFlags::empty());
            return Err(match errno {
                Errno::EXIST => Error::Exists { path: path.clone(), is: describe(FileType::RegularFile) },
                Errno::ISDIR => not_a_file(path, FileType::Directory),
                errno => Error::system("write", path, errno),
            });
        }
        Ok(Written { is_new: replaced.is_none(), size: content.len() as u64 })
    }

    /// `content` in a file of its own, on the disk; its name in `staging`.
    fn stage(&self, content: &[u8], mode: u32) -> std::io::Result<String> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let staged = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&*self.staging, &staged, flags, Mode::RUSR | Mode::WUSR)?);
        let written = file
            .write_all(content)
            .and_then(|()| Ok(rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?))
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = rustix::fs::unlinkat(&*self.staging, &staged, AtFlags::empty());
            return Err(error);
        }
        Ok(staged)
    }

    fn append(&self, path: &WorkspacePath, content: &[u8]) -> Result<Written, Error> {
        let found = Found::at(self.directory.as_fd(), path)?;
        let mut file = found.file(path, OFlags::WRONLY | OFlags::APPEND)?;
        let failed = |error: std::io::Error| Error::io("add to", path, &error);
        file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        Ok(Written { is_new: false, size })
    }
}

fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512).max(ENTRY)
}

/// What a file takes, as it will be counted.
fn space(content: &[u8]) -> u64 {
    (content.len() as u64).next_multiple_of(ENTRY).max(ENTRY)
}

fn not_a_file(path: &WorkspacePath, kind: FileType) -> Error {
    Error::Kind { path: path.clone(), is: describe(kind), wanted: "a file" }
}
