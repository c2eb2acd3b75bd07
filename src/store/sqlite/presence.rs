//! Whether a process is still there, told by a lock that the kernel lets go with it: at once, also when it was killed, and
//! never because it was slow.

use crate::id;
use crate::store::{Error, files};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// This process among those that share the store.
#[derive(Debug)]
pub(super) struct Presence {
    folder: PathBuf,
    name: String,
    /// Held from the first time that others have to know of us.
    lock: Mutex<Option<File>>,
}

impl Presence {
    pub(super) fn new(data_dir: &Path) -> Presence {
        Presence { folder: data_dir.join("processes"), name: id::unguessable("p_"), lock: Mutex::new(None) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Makes sure that others see this process, before it writes its name anywhere.
    pub(super) fn show(&self) -> Result<(), Error> {
        let mut lock = self.lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if lock.is_none() {
            let path = self.folder.join(&self.name);
            let failed = |source| Error::Open { path: path.clone(), source };
            files::make_private_dir(&self.folder).map_err(failed)?;
            *lock = Some(files::lock(&path).map_err(failed)?);
        }
        Ok(())
    }

    /// Whether the process `name` has ended. Where that cannot be told it counts as running: then its calls wait, and
    /// nothing runs twice.
    pub(super) fn has_ended(&self, name: &str) -> bool {
        let is_name = name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c));
        if !is_name || name == self.name {
            return false;
        }
        let path = self.folder.join(name);
        match File::open(&path) {
            Err(error) => error.kind() == io::ErrorKind::NotFound,
            Ok(file) if file.try_lock().is_ok() => {
                // Nobody takes this name again.
                _ = fs::remove_file(&path);
                true
            }
            Ok(_) => false,
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let lock = self.lock.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if lock.take().is_some() {
            _ = fs::remove_file(self.folder.join(&self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_there_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (Presence::new(dir.path()), Presence::new(dir.path()));
        here.show().unwrap();
        here.show().unwrap();

        assert!(!there.has_ended(here.name()));
        assert!(!here.has_ended(here.name()));
        let name = here.name().to_owned();
        drop(here);
        assert!(there.has_ended(&name));
        assert!(there.has_ended("p_never_seen"));
        assert!(!there.has_ended("../portcullis.db"));
    }
}
