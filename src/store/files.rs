//! Directories and files that only their owner may read, written whole or not at all.

use crate::id;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Makes `dir` (`0700`) with its parents where they are missing. One that is there is left as its owner made it.
///
/// # Errors
/// What the operating system says.
pub fn make_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Makes the file `path`, empty (`0600`), where it is missing. One that is there is not even opened: closing it again
/// would release the locks this process holds on it (POSIX), and SQLite lives by those.
///
/// # Errors
/// What the operating system says.
pub fn make_private_file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Waits until no other process holds the lock `path`, and holds it until the file returned is dropped.
///
/// # Errors
/// What the operating system says.
pub fn lock(path: &Path) -> io::Result<File> {
    make_private_file(path)?;
    let file = File::open(path)?;
    file.lock()?;
    Ok(file)
}

/// Puts `content` (`0600`) in the place of `path`. A reader sees the old or the new content, also after a power cut.
///
/// # Errors
/// What the operating system says; `path` is then as it was.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let fresh = dir.join(id::unguessable(".new-"));
    write_new(&fresh, content).and_then(|()| fs::rename(&fresh, path)).inspect_err(|_| _ = fs::remove_file(&fresh))?;
    // The rename is on the disk only when the directory is.
    File::open(dir)?.sync_all()
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn a_replaced_file_is_private_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a/b");
        make_private_dir(&inner).unwrap();
        let path = inner.join("file");
        fs::write(&path, "old").unwrap();

        replace(&path, b"new").unwrap();

        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!((mode(&path), mode(&inner)), (0o600, 0o700));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
    }

    #[test]
    fn a_lock_keeps_the_second_holder_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap();

        assert!(File::open(&path).unwrap().try_lock().is_err());

        drop(held);
        assert!(File::open(&path).unwrap().try_lock().is_ok());
    }
}
