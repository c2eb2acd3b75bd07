//! Reads small files without trusting what stands at their path: a directory, a device that never ends, a pipe that
//! never answers, a file of gigabytes.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// A file's bytes and what the system says of it.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    pub(super) metadata: Metadata,
}

/// Why a file was not read. Reads on from the file's name.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system said no.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// Something else stands there.
    #[error("is {0}, not a file")]
    NotFile(&'static str),
    /// There is more in it than this many bytes.
    #[error("is larger than {0} bytes")]
    TooLarge(u64),
}

/// Reads at most `max` bytes.
///
/// What stands there is looked at before it is opened, because opening a pipe waits for its writer; and again after,
/// because it may have been replaced in between.
pub(super) fn read(path: &Path, max: u64) -> Result<Contents, FileError> {
    must_be_file(&fs::metadata(path).map_err(FileError::Unreadable)?)?;
    let file = File::open(path).map_err(FileError::Unreadable)?;
    let metadata = file.metadata().map_err(FileError::Unreadable)?;
    must_be_file(&metadata)?;
    let mut bytes = Vec::new();
    // One more than allowed, to see that there is more. The size in the metadata is not believed: it may grow.
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(FileError::Unreadable)?;
    if u64::try_from(bytes.len()).is_ok_and(|n| n > max) {
        return Err(FileError::TooLarge(max));
    }
    Ok(Contents { bytes, metadata })
}

fn must_be_file(metadata: &Metadata) -> Result<(), FileError> {
    if metadata.is_file() {
        Ok(())
    } else if metadata.is_dir() {
        Err(FileError::NotFile("a directory"))
    } else {
        Err(FileError::NotFile("a pipe, socket or device"))
    }
}

/// Whether people other than its owner may open it.
pub(super) fn is_open_to_others(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

/// Whether anyone on this machine may change it.
pub(super) fn is_writable_by_all(metadata: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o002 != 0
}
