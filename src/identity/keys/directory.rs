//! `data_dir/keys`: one PKCS#8 file a key, named by its thumbprint. When a key was made is when its file was written.

use super::Error;
use super::pair::{self, Key};
use crate::store::files;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What the directory looks like from outside: file, time of change in nanoseconds, size and mode of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look(Vec<(PathBuf, i64, i64, u64, u32)>);

/// Every key there is; a first one is made where there is none.
pub(super) fn open(dir: &Path) -> Result<Vec<Key>, Error> {
    let _lock = lock(dir)?;
    let mut keys = read_all(dir)?;
    if keys.is_empty() {
        keys.push(make(dir)?);
    }
    Ok(keys)
}

/// Makes one more, unless there are `max` already.
pub(super) fn add(dir: &Path, max: usize) -> Result<Key, Error> {
    let _lock = lock(dir)?;
    if read_all(dir)?.len() >= max {
        return Err(Error::TooMany { dir: dir.to_owned(), max });
    }
    make(dir)
}

/// Removes the file of a key; one that is gone already is no fault.
pub(super) fn remove(dir: &Path, kid: &str) -> Result<(), Error> {
    let path = dir.join(format!("{kid}.pem"));
    match fs::remove_file(&path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::File { path, source }),
        _ => Ok(()),
    }
}

/// A look at the directory, far cheaper than reading it.
pub(super) fn look(dir: &Path) -> Result<Look, Error> {
    let failed = |source| Error::File { path: dir.to_owned(), source };
    let mut seen = Vec::new();
    for path in key_files(dir)? {
        match fs::metadata(&path) {
            Ok(it) => seen.push((path, it.mtime(), it.mtime_nsec(), it.len(), it.mode())),
            // It went in between.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    seen.sort();
    Ok(Look(seen))
}

/// Two processes that change keys, or start at the same moment, agree on one after the other.
fn lock(dir: &Path) -> Result<fs::File, Error> {
    let failed = |source| Error::File { path: dir.to_owned(), source };
    files::make_private_dir(dir).map_err(failed)?;
    files::lock(&dir.join(".lock")).map_err(failed)
}

fn read_all(dir: &Path) -> Result<Vec<Key>, Error> {
    key_files(dir)?.iter().map(|path| read(path)).collect()
}

fn key_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::File { path: dir.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|it| it == "pem") {
            paths.push(path);
        }
    }
    Ok(paths)
}

fn read(path: &Path) -> Result<Key, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(Error::Exposed { path: path.to_owned() });
    }
    let pem = fs::read(path).map_err(failed)?;
    let made_at_ms = made_at_ms(&metadata).map_err(failed)?;
    let key = Key::of_pem(&pem, made_at_ms).ok_or_else(|| Error::NotAKey { path: path.to_owned() })?;
    if path.file_stem().is_none_or(|stem| stem != key.kid.as_str()) {
        return Err(Error::Misnamed { path: path.to_owned(), kid: key.kid });
    }
    Ok(key)
}

fn made_at_ms(metadata: &Metadata) -> io::Result<i64> {
    let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn make(dir: &Path) -> Result<Key, Error> {
    let pem = pair::generate()?;
    let key = Key::of_pem(pem.as_bytes(), 0).ok_or(Error::Crypto)?;
    let path = dir.join(format!("{}.pem", key.kid));
    files::replace(&path, pem.as_bytes()).map_err(|source| Error::File { path: path.clone(), source })?;
    read(&path)
}
