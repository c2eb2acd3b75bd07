//! What a folder holds, in bytes. Counted each time: whatever commands do with files, nothing has to be kept in step.

use super::open::{beneath, in_proc, kind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Allocated bytes; each entry counts [`ENTRY`] at least.
    pub bytes: u64,
    /// Whether that is all: counting ends as soon as there is more than enough.
    pub is_whole: bool,
}

/// What an entry counts at least, in bytes: or a million empty files were free, and going through them were not.
pub const ENTRY: u64 = 4096;
/// Folders within folders, at most; each takes a descriptor while what is in it is counted. What is deeper counts as
/// more than enough.
const DEEPEST: usize = 128;

/// Counts what `directory` holds, until that is more than `enough`. Links are counted and not followed; a file with
/// several names is counted once, and each further name as an empty file.
///
/// A folder that its owner may not read is made readable first, or what is in it were free.
///
/// # Errors
/// A folder cannot be read.
pub fn usage(directory: BorrowedFd<'_>, enough: u64) -> io::Result<Usage> {
    let mut count = Count { bytes: 0, enough, several_names: HashSet::new() };
    let is_whole = count.inside(directory, DEEPEST)?;
    Ok(Usage { bytes: count.bytes, is_whole })
}

struct Count {
    bytes: u64,
    enough: u64,
    /// Inodes of files with several names that were counted.
    several_names: HashSet<u64>,
}

impl Count {
    /// Adds what is in `directory`; whether that was all.
    fn inside(&mut self, directory: BorrowedFd<'_>, depth: usize) -> io::Result<bool> {
        if depth == 0 {
            return Ok(false);
        }
        let mode = Mode::from_raw_mode(rustix::fs::fstat(directory)?.st_mode);
        if !mode.contains(Mode::RUSR | Mode::XUSR) {
            rustix::fs::chmod(in_proc(directory), mode | Mode::RUSR | Mode::XUSR)?;
        }
        // Opened again, since a descriptor has one place in a directory, and others may be reading by it.
        let opened = beneath(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut buffer = vec![MaybeUninit::uninit(); 16 * 1024];
        let mut entries = RawDir::new(&opened, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let stat = match rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue, // Gone meanwhile.
                other => other?,
            };
            let is_directory = kind(&stat) == FileType::Directory;
            let is_counted = !is_directory && stat.st_nlink > 1 && !self.several_names.insert(stat.st_ino);
            let allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            self.bytes = self.bytes.saturating_add(if is_counted { ENTRY } else { allocated.max(ENTRY) });
            if self.bytes > self.enough {
                return Ok(false);
            }
            if !is_directory {
                continue;
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let inner = match beneath(opened.as_fd(), name, flags) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue, // Gone, or something else by now.
                other => other?,
            };
            if !self.inside(inner.as_fd(), depth - 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
