//! Going through folders, in order and within limits. Links are seen and not followed.

use super::open::{Found, beneath, kind};
use super::{Error, Folder, WorkspacePath};
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, Stat};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How far to go.
pub(crate) struct Bounds<'a> {
    /// Folders within folders; 1 for what is in the folder itself.
    pub depth: usize,
    /// Entries that are looked at.
    pub entries: usize,
    /// Until then.
    pub deadline: Instant,
    /// Or until whoever asked took it back.
    pub stop: &'a CancellationToken,
}

/// What is seen.
pub(crate) struct Entry<'a> {
    /// Where it is. A name that is not UTF-8 has replacement characters, and cannot be asked for.
    pub path: WorkspacePath,
    /// What it is.
    pub stat: Stat,
    /// The folder it is in.
    pub parent: BorrowedFd<'a>,
    /// Its name there.
    pub name: &'a CString,
}

/// What to do after an entry was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// See what is in it, if it is a folder, and what comes then.
    Enter,
    /// Leave out what is in it.
    Skip,
    /// See nothing more.
    End,
}

/// What was not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// There was more than the bounds allow.
    pub is_cut: bool,
    /// Folders that could not be read.
    pub n_closed: u64,
}

impl Bounds<'_> {
    /// Whether there is no time left, or nobody who waits.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.is_cancelled() || Instant::now() >= self.deadline
    }
}

/// The most that depth can be: each level takes a descriptor.
pub(crate) const DEEPEST: usize = 64;

impl Folder {
    /// Shows `see` what is in the folder `path`, sorted by name, each folder before what is in it.
    ///
    /// # Errors
    /// There is no such folder.
    pub(crate) fn walk(
        &self,
        path: &WorkspacePath,
        bounds: &Bounds<'_>,
        see: &mut dyn FnMut(&Entry<'_>) -> Next,
    ) -> Result<Missed, Error> {
        let directory = Found::at(self.directory.as_fd(), path)?.directory(path)?;
        let mut walk = Walk { bounds, n_left: bounds.entries, missed: Missed::default(), see };
        walk.inside(&directory, path, bounds.depth.min(DEEPEST));
        Ok(walk.missed)
    }
}

struct Walk<'a> {
    bounds: &'a Bounds<'a>,
    n_left: usize,
    missed: Missed,
    see: &'a mut dyn FnMut(&Entry<'_>) -> Next,
}

impl Walk<'_> {
    /// Whether to go on.
    fn inside(&mut self, directory: &OwnedFd, path: &WorkspacePath, depth: usize) -> bool {
        let Ok(names) = self.names(directory) else {
            self.missed.n_closed += 1;
            return true;
        };
        for name in &names {
            if self.n_left == 0 || self.bounds.is_over() {
                self.missed.is_cut = true;
                return false;
            }
            let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue; // Gone meanwhile.
            };
            self.n_left -= 1;
            let path = path.join(&name.to_string_lossy());
            match (self.see)(&Entry { path: path.clone(), stat, parent: directory.as_fd(), name }) {
                Next::Enter if kind(&stat) != FileType::Directory || depth <= 1 => {}
                Next::Enter => {
                    if !self.enter(directory, name, &path, depth) {
                        return false;
                    }
                }
                Next::Skip => {}
                Next::End => return false,
            }
        }
        true
    }

    fn enter(&mut self, directory: &OwnedFd, name: &CString, path: &WorkspacePath, depth: usize) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        match beneath(directory.as_fd(), name, flags) {
            Ok(inner) => self.inside(&inner, path, depth - 1),
            Err(_) => {
                self.missed.n_closed += 1;
                true
            }
        }
    }

    /// The names in `directory`, in order: as many of the first ones as may still be seen.
    fn names(&mut self, directory: &OwnedFd) -> Result<BTreeSet<CString>, rustix::io::Errno> {
        let mut names = BTreeSet::new();
        let mut buffer = vec![MaybeUninit::uninit(); 16 * 1024];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            if self.bounds.is_over() {
                self.missed.is_cut = true;
                break;
            }
            names.insert(name.to_owned());
            // One more than may be seen, to know that there is more.
            if names.len() > self.n_left + 1 {
                names.pop_last();
            }
        }
        Ok(names)
    }
}
