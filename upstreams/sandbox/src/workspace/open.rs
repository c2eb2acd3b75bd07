//! Opening what a path names: beneath the folder, never through a link, and only what a file tool can deal with.
//!
//! Links are not followed, neither out of the folder (which the kernel forbids) nor within it: a link is a further name
//! of a file, and rules about a file would not see that name. The error says where the link leads, so that the caller
//! can ask for that. What is found is looked at before it is opened, and opened by its descriptor: a named pipe or a
//! device is refused without anything having happened to it, and what was looked at is what is opened.

use super::error::Error;
use super::path::WorkspacePath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

/// How every path is resolved: beneath the descriptor, through no link of any kind, on the same mount.
const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Something in the folder, not opened yet.
pub(super) struct Found {
    /// O_PATH: says what it is, and nothing more.
    pub(super) place: OwnedFd,
    /// What it is.
    pub(super) stat: Stat,
}

impl Found {
    /// What is at `path`.
    ///
    /// # Errors
    /// Nothing is there, or a link is on the way or at its end.
    pub(super) fn at(folder: BorrowedFd<'_>, path: &WorkspacePath) -> Result<Found, Error> {
        let place = beneath(folder, path.relative(), OFlags::PATH | OFlags::NOFOLLOW);
        let place = place.map_err(|errno| explain(folder, path, errno))?;
        let stat = rustix::fs::fstat(&place).map_err(|errno| Error::system("look at", path, errno))?;
        if kind(&stat) == FileType::Symlink {
            return Err(explain(folder, path, Errno::LOOP));
        }
        Ok(Found { place, stat })
    }

    /// The file, to be opened with `flags`.
    ///
    /// # Errors
    /// It is not a regular file, or may not be opened.
    pub(super) fn file(&self, path: &WorkspacePath, flags: OFlags) -> Result<File, Error> {
        match kind(&self.stat) {
            FileType::RegularFile => {}
            other => return Err(Error::Kind { path: path.clone(), is: describe(other), wanted: "a file" }),
        }
        let opened = reopen(self.place.as_fd(), flags | OFlags::NONBLOCK | OFlags::NOCTTY);
        Ok(File::from(opened.map_err(|errno| Error::system("open", path, errno))?))
    }

    /// The folder, to be read.
    ///
    /// # Errors
    /// It is not a folder, or may not be read.
    pub(super) fn directory(&self, path: &WorkspacePath) -> Result<OwnedFd, Error> {
        match kind(&self.stat) {
            FileType::Directory => {}
            other => return Err(Error::Kind { path: path.clone(), is: describe(other), wanted: "a folder" }),
        }
        let opened = beneath(self.place.as_fd(), ".", OFlags::RDONLY | OFlags::DIRECTORY);
        opened.map_err(|errno| Error::system("open", path, errno))
    }
}

/// openat2(2), never through a link.
pub(super) fn beneath(from: BorrowedFd<'_>, path: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(from, path, flags | OFlags::CLOEXEC, Mode::empty(), RESOLVE)
}

/// What `place` stands for, opened with other flags: the very same inode, whatever its name stands for by now.
fn reopen(place: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    // The one magic link that is followed is our own.
    rustix::fs::open(in_proc(place), flags | OFlags::CLOEXEC, Mode::empty())
}

/// A path of `place`, for calls that take no descriptor that was opened with O_PATH.
pub(super) fn in_proc(place: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

/// The folder `path`, to work in; with `create`, made where it is missing, with those on the way to it.
///
/// # Errors
/// It is missing, is something else, or a link is on the way to it.
pub(super) fn directory(folder: BorrowedFd<'_>, path: &WorkspacePath, create: bool) -> Result<OwnedFd, Error> {
    const FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);
    match beneath(folder, path.relative(), FLAGS) {
        Ok(found) => return Ok(found),
        Err(Errno::NOENT) if create => {}
        Err(Errno::NOENT) => return Err(Error::NoFolder(path.clone())),
        Err(errno) => return Err(explain(folder, path, errno)),
    }
    let failed = |errno| explain(folder, path, errno);
    let mut current = beneath(folder, ".", FLAGS).map_err(failed)?;
    for name in path.components() {
        current = match beneath(current.as_fd(), name, FLAGS) {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdirat(&current, name, Mode::from_raw_mode(0o755)) {
                    // Whoever was faster made what is wanted, or something that the next step refuses.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(Error::system("make the folder", path, errno)),
                }
                beneath(current.as_fd(), name, FLAGS)
            }
            other => other,
        }
        .map_err(failed)?;
    }
    Ok(current)
}

/// What is called `name` in `directory`, if anything; links are not followed.
pub(super) fn entry(directory: BorrowedFd<'_>, name: &str) -> Result<Option<Stat>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// What `stat` is about.
pub(super) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// In words, with their article.
pub(super) fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}

/// Why the kernel would not open `path`. Only words are made here: what is found out by looking again may have changed.
pub(super) fn explain(folder: BorrowedFd<'_>, path: &WorkspacePath, errno: Errno) -> Error {
    match errno {
        Errno::LOOP | Errno::NOTDIR => link_on(folder, path)
            .unwrap_or_else(|| Error::system("open", path, if errno == Errno::LOOP { Errno::XDEV } else { errno })),
        Errno::NOENT => Error::Missing(path.clone()),
        _ => Error::system("open", path, errno),
    }
}

/// The first link on `path`, and where to go instead.
fn link_on(folder: BorrowedFd<'_>, path: &WorkspacePath) -> Option<Error> {
    let mut current = beneath(folder, ".", OFlags::PATH).ok()?;
    let mut at = WorkspacePath::root();
    let mut names = path.components();
    while let Some(name) = names.next() {
        at = at.join(name);
        let found = beneath(current.as_fd(), name, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        if kind(&rustix::fs::fstat(&found).ok()?) == FileType::Symlink {
            let target = rustix::fs::readlinkat(&found, "", Vec::new()).ok()?;
            let target = target.to_string_lossy().into_owned();
            let instead = at.follow(&target).map(|leads_to| names.fold(leads_to, |path, name| path.join(name)));
            return Some(Error::Link { link: at, target, instead });
        }
        current = found;
    }
    None
}
