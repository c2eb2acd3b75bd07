//! One file of the log, open for writing. It ends with a whole line at all times, as far as the disk lets us see to it.

use super::Error;
use super::directory::Directory;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;

/// See the module.
pub(super) struct Segment {
    pub(super) name: Arc<str>,
    path: PathBuf,
    /// Shared with who syncs it before it signs how far it has come.
    pub(super) file: Arc<File>,
    /// Bytes of whole records: what is beyond them is to be cut off.
    pub(super) len: u64,
    /// A write or sync failed, and what the file holds beyond `len` is not known.
    is_suspect: bool,
    #[cfg(test)]
    faults: std::sync::Arc<Faults>,
}

impl Segment {
    /// Creates the file, for us alone, and holds a lock on it that tells others that its writer lives.
    pub(super) fn create(directory: &Directory, name: String) -> Result<Segment, Error> {
        let path = directory.path.join(&name);
        let file = File::options()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("create", &path))?;
        // Where locks are not supported our end is taken for final by a second process; that shows in `verify`, not here.
        let _ = file.lock();
        Ok(Segment {
            name: name.into(),
            path,
            file: Arc::new(file),
            len: 0,
            is_suspect: false,
            #[cfg(test)]
            faults: directory.faults.clone(),
        })
    }

    /// Adds whole records. After an error the file is as it was before, or is mended before the next attempt.
    pub(super) fn append(&mut self, records: &[u8], is_synced: bool) -> Result<(), Error> {
        self.mend()?;
        let written = self
            .write(records)
            .map_err(Error::io("write to", &self.path))
            .and_then(|()| if is_synced { self.sync() } else { Ok(()) });
        match written {
            Ok(()) => self.len += records.len() as u64,
            Err(_) => {
                self.is_suspect = true;
                // Tried at once, so that no half line is left to lie; if this fails too, the next attempt begins with it.
                let _ = self.mend();
            }
        }
        written
    }

    /// Puts all that was written on the disk.
    pub(super) fn sync(&self) -> Result<(), Error> {
        #[cfg(test)]
        self.faults.sync().map_err(Error::io("sync", &self.path))?;
        self.file.sync_data().map_err(Error::io("sync", &self.path))
    }

    /// Whether its name still leads to the file we hold, and nobody else has written to it or cut it.
    pub(super) fn is_in_place(&self) -> bool {
        let (Ok(named), Ok(held)) = (fs::metadata(&self.path), self.file.metadata()) else {
            return false;
        };
        let is_ours = (named.dev(), named.ino()) == (held.dev(), held.ino());
        is_ours && (self.is_suspect || held.len() == self.len)
    }

    /// Takes back its creation, after its first record could not be written.
    pub(super) fn remove(self) {
        let _ = fs::remove_file(&self.path);
    }

    fn mend(&mut self) -> Result<(), Error> {
        if !self.is_suspect {
            return Ok(());
        }
        #[cfg(test)]
        self.faults.cut().map_err(Error::io("cut", &self.path))?;
        self.file.set_len(self.len).map_err(Error::io("cut", &self.path))?;
        self.is_suspect = false;
        Ok(())
    }

    #[cfg(not(test))]
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        (&*self.file).write_all(records)
    }

    #[cfg(test)]
    fn write(&mut self, records: &[u8]) -> io::Result<()> {
        let room = self.faults.room(records.len());
        (&*self.file).write_all(&records[..room])?;
        if room < records.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

/// A disk that fails when a test says so.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Bytes that fit, plus one; 0 for no end.
    pub(super) room: std::sync::atomic::AtomicUsize,
    pub(super) is_sync_broken: std::sync::atomic::AtomicBool,
    /// The writer does not survive the next sync.
    pub(super) is_deadly: std::sync::atomic::AtomicBool,
    pub(super) is_cut_broken: std::sync::atomic::AtomicBool,
    pub(super) syncs: std::sync::atomic::AtomicUsize,
    pub(super) sync_ms: std::sync::atomic::AtomicU64,
}

#[cfg(test)]
impl Faults {
    fn room(&self, wanted: usize) -> usize {
        match self.room.load(std::sync::atomic::Ordering::SeqCst) {
            0 => wanted,
            room => wanted.min(room - 1),
        }
    }

    fn sync(&self) -> io::Result<()> {
        use std::sync::atomic::Ordering::SeqCst;
        std::thread::sleep(std::time::Duration::from_millis(self.sync_ms.load(SeqCst)));
        assert!(!self.is_deadly.load(SeqCst), "a bug in the writer");
        if self.is_sync_broken.load(SeqCst) {
            return Err(io::Error::other("input/output error"));
        }
        self.syncs.fetch_add(1, SeqCst);
        Ok(())
    }

    fn cut(&self) -> io::Result<()> {
        if self.is_cut_broken.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(io::Error::other("input/output error"));
        }
        Ok(())
    }
}
