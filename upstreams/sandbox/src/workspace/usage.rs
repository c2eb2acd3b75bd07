//! What a folder holds, in bytes. Counted each time: whatever commands do with files, nothing has to be kept in step.

use super::open::{beneath, in_proc, kind};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

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
/// Folders within folders that are open at once. Those above are closed meanwhile, and found again from below.
const OPEN: usize = 64;

/// Counts what `directory` holds, until that is more than `enough`. Links are counted and not followed; a file with
/// several names is counted once, and each further name as an empty file.
///
/// A folder that its owner may not read is made readable first, or what is in it were free.
///
/// Folders may lie as deep as they like: a depth that is not counted would be a place that is free.
///
/// # Errors
/// A folder cannot be read, or was moved meanwhile.
pub fn usage(directory: BorrowedFd<'_>, enough: u64) -> io::Result<Usage> {
    let mut count = Count { bytes: 0, enough, several_names: HashSet::new() };
    let is_whole = count.all(directory)?;
    Ok(Usage { bytes: count.bytes, is_whole })
}

struct Count {
    bytes: u64,
    enough: u64,
    /// Inodes of files with several names that were counted.
    several_names: HashSet<u64>,
}

/// A folder on the way to the one that is being counted.
struct Level {
    inode: (u64, u64),
    /// `None` while there are enough open ones below it.
    opened: Option<OwnedFd>,
    /// What in it is still to be counted.
    folders: Vec<CString>,
}

impl Count {
    /// Adds all beneath `directory`; whether that was all.
    fn all(&mut self, directory: BorrowedFd<'_>) -> io::Result<bool> {
        let mut way = vec![Level::open(directory)?];
        if !self.inside(&mut way[0])? {
            return Ok(false);
        }
        while let Some(level) = way.last_mut() {
            let Some(name) = level.folders.pop() else {
                let counted = way.pop();
                if let (Some(counted), Some(above)) = (counted, way.last_mut()) {
                    above.open_again(&counted)?;
                }
                continue;
            };
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let inner = match beneath(level.opened()?, &name, flags) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue, // Gone, or something else by now.
                other => other?,
            };
            let mut inner = match Level::open(inner.as_fd()) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => continue, // Removed since.
                other => other?,
            };
            if !self.inside(&mut inner)? {
                return Ok(false);
            }
            way.push(inner);
            if let Some(far) = way.len().checked_sub(OPEN + 1) {
                way[far].opened = None;
            }
        }
        Ok(true)
    }

    /// Adds what is in this folder itself; whether that was all. The folders in it are still to be counted.
    fn inside(&mut self, level: &mut Level) -> io::Result<bool> {
        let mut folders = Vec::new();
        let opened = level.opened()?;
        let mut buffer = vec![MaybeUninit::uninit(); 16 * 1024];
        let mut entries = RawDir::new(opened, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::NOENT) => break, // The folder itself was removed meanwhile.
                other => other?,
            };
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let stat = match rustix::fs::statat(opened, name, AtFlags::SYMLINK_NOFOLLOW) {
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
            if is_directory {
                folders.push(name.to_owned());
            }
        }
        level.folders = folders;
        Ok(true)
    }
}

impl Level {
    /// A folder that is there, made readable where it is not.
    fn open(directory: BorrowedFd<'_>) -> io::Result<Level> {
        let stat = rustix::fs::fstat(directory)?;
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !mode.contains(Mode::RUSR | Mode::XUSR) {
            rustix::fs::chmod(in_proc(directory), mode | Mode::RUSR | Mode::XUSR)?;
        }
        // Opened again, since a descriptor has one place in a directory, and others may be reading by it.
        let opened = beneath(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Level { inode: (stat.st_dev, stat.st_ino), opened: Some(opened), folders: Vec::new() })
    }

    fn opened(&self) -> io::Result<BorrowedFd<'_>> {
        self.opened.as_ref().map(OwnedFd::as_fd).ok_or_else(|| Errno::BADF.into())
    }

    /// Finds it again above `inner`, which was in it. Where that lies elsewhere by now, nobody can say what was counted.
    fn open_again(&mut self, inner: &Level) -> io::Result<()> {
        if self.opened.is_some() {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = Level::open(rustix::fs::openat(inner.opened()?, "..", flags, Mode::empty())?.as_fd())?;
        if above.inode != self.inode {
            return Err(io::Error::other("a folder was moved while it was counted"));
        }
        self.opened = above.opened;
        Ok(())
    }
}
