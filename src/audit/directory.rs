//! The directory of segments: their names, their order, and the ends a new one has to tie on to.
//!
//! Every process has a segment of its own, and a long one goes on in the next file; names sort in the order the
//! segments were begun, also when the clock was set back between them. The first record of a segment names the last
//! record of those before it ([`Link`]), so that none can lose its end, or go, unnoticed.

use super::Error;
use super::chain::{self, Hash, Head, LINE_MAX};
use crate::metrics::AuditSpace;
use jiff::Timestamp;
use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The audit directory.
#[derive(Clone, Debug)]
pub struct Directory {
    pub(super) path: PathBuf,
    #[cfg(test)]
    pub(super) faults: std::sync::Arc<super::segment::Faults>,
}

/// What the first record of a segment says of one before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    /// Its file.
    pub(super) file: String,
    /// The number of its last record; 0 when it has none.
    pub(super) seq: u64,
    /// That record's hash.
    pub(super) hash: Hash,
    /// Another process was still writing it: more records may follow.
    pub(super) live: bool,
    /// What follows its last record: the beginning of one that a crash or power cut kept from being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) torn: Option<Torn>,
}

/// Bytes that are no record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Torn {
    pub(super) bytes: u64,
    pub(super) sha256: Hash,
}

/// The first record of a segment, as far as it concerns the chain.
#[derive(Deserialize)]
pub(super) struct Opening {
    pub(super) event: String,
    pub(super) segment: String,
    pub(super) previous: Vec<Link>,
    /// The key that signs its checkpoints; those of older versions had none.
    #[serde(default)]
    pub(super) key: Option<String>,
}

// === impl Directory ===

impl Directory {
    /// The log in `path`, to be read. Nothing is created.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Directory {
            path: path.into(),
            #[cfg(test)]
            faults: std::sync::Arc::default(),
        }
    }

    /// Makes sure it is there and open to nobody else.
    pub(super) fn create(&self) -> Result<(), Error> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(Error::io("create", &self.path))?;
        fs::set_permissions(&self.path, Permissions::from_mode(0o700))
            .map_err(Error::io("set the permissions of", &self.path))
    }

    /// Held while a segment is begun, so that of two processes one sees the other's first record.
    pub(super) fn lock(&self) -> Result<File, Error> {
        lock(&self.path.join("lock"))
    }

    /// Whether there is a segment of this name.
    pub fn has(&self, name: &str) -> bool {
        began_ms(name).is_some() && self.path.join(name).is_file()
    }

    /// The segments' file names, in the order they were begun.
    pub(super) fn segments(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(Error::io("read", &self.path))? {
            let entry = entry.map_err(Error::io("read", &self.path))?;
            if let Ok(name) = entry.file_name().into_string()
                && began_ms(&name).is_some()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
    /// How much room the files take, and how much there is.
    pub(super) fn space(&self) -> Result<AuditSpace, Error> {
        let files = self.segments()?;
        let size = |name: &String| std::fs::metadata(self.path.join(name)).map_or(0, |file| file.len());
        let disk = statvfs(&self.path).map_err(|why| Error::io("look at", &self.path)(why.into()))?;
        Ok(AuditSpace {
            files: files.len(),
            bytes: files.iter().map(size).sum(),
            free: disk.blocks_available().saturating_mul(disk.fragment_size()),
            size: disk.blocks().saturating_mul(disk.fragment_size()),
        })
    }

    /// The name for a segment that begins now: after all that are there, whatever the clock says.
    pub(super) fn next_name(&self, now_ms: i64, boot: &str) -> Result<String, Error> {
        let newest = self.segments()?.pop();
        let after = newest.and_then(|name| began_ms(&name)).map_or(0, |ms| ms + 1);
        Ok(segment_name(now_ms.max(after), boot))
    }

    /// The ends of all segments that no later one has tied on to yet, the newest first.
    pub(super) fn loose_ends(&self) -> Result<Vec<Link>, Error> {
        let mut ends = Vec::new();
        let mut tied = HashSet::new();
        for name in self.segments()? {
            let opening = self.opening(&name)?;
            let links = opening.into_iter().flat_map(|opening| opening.previous);
            tied.extend(links.filter(|l| !l.live).map(|l| (l.file, l.seq)));
            ends.extend(self.end(&name)?);
        }
        ends.retain(|end| !tied.contains(&(end.file.clone(), end.seq)));
        ends.reverse();
        ends.truncate(LINKS_MAX);
        Ok(ends)
    }

    /// The first record of a segment; `None` when it is not one, or the segment is gone.
    pub(super) fn opening(&self, name: &str) -> Result<Option<Opening>, Error> {
        let path = self.path.join(name);
        let Some(file) = self.look_at(name)? else {
            return Ok(None);
        };
        let mut line = Vec::new();
        BufReader::new(file.take(LINE_MAX as u64)).read_until(b'\n', &mut line).map_err(Error::io("read", &path))?;
        Ok(serde_json::from_slice(&line).ok())
    }

    /// Where a segment ends at the moment; `None` when there is nothing in it. Asked under the lock only: it tries
    /// the lock by which a segment's writer shows that it lives, and a writer just begun must not find it taken.
    fn end(&self, name: &str) -> Result<Option<Link>, Error> {
        let path = self.path.join(name);
        let Some(mut file) = self.look_at(name)? else {
            return Ok(None);
        };
        let live = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        let End { head, torn, .. } = end(&mut file).map_err(Error::io("read", &path))?;
        // An empty file is what is left when the disk was full at the moment it was begun.
        let is_empty = head.seq == 0 && torn.is_none();
        Ok((!is_empty).then(|| Link {
            file: name.to_owned(),
            seq: head.seq,
            hash: head.hash,
            live,
            // What is half there now, its writer will finish.
            torn: torn.filter(|_| !live),
        }))
    }

    /// Whether somebody may still write to a segment. Where locks do not tell, somebody may.
    pub(super) fn may_live(&self, name: &str) -> Result<bool, Error> {
        let file = self.look_at(name)?;
        Ok(file.is_some_and(|file| file.try_lock_shared().is_err()))
    }

    /// Where a segment nobody writes to ends, and when its last record was made; `None` when there is nothing in it.
    pub(super) fn ended(&self, name: &str) -> Result<Option<(Link, i64)>, Error> {
        let path = self.path.join(name);
        let Some(mut file) = self.look_at(name)? else {
            return Ok(None);
        };
        let End { head, torn, at_ms } = end(&mut file).map_err(Error::io("read", &path))?;
        let at_ms = at_ms.or_else(|| began_ms(name)).unwrap_or(i64::MAX);
        let link = Link { file: name.to_owned(), seq: head.seq, hash: head.hash, live: false, torn };
        let is_empty = head.seq == 0 && link.torn.is_none();
        Ok((!is_empty).then_some((link, at_ms)))
    }

    fn look_at(&self, name: &str) -> Result<Option<File>, Error> {
        let path = self.path.join(name);
        match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(Error::io("open", &path)),
        }
    }

    /// Puts new names in the directory on the disk.
    pub(super) fn sync(&self) -> Result<(), Error> {
        File::open(&self.path).and_then(|directory| directory.sync_all()).map_err(Error::io("sync", &self.path))
    }
}

/// Waits a little until no other process holds the lock `path`, and holds it until the file returned is dropped.
pub(super) fn lock(path: &Path) -> Result<File, Error> {
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("create", path))?;
    for _ in 0..LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(source)) => return Err(Error::io("lock", path)(source)),
        }
    }
    Err(Error::Locked { path: path.to_owned() })
}

/// How a file ends.
struct End {
    /// Its last whole record.
    head: Head,
    /// When that was made; `None` where there is none, or it does not say.
    at_ms: Option<i64>,
    /// What follows it.
    torn: Option<Torn>,
}

fn end(file: &mut File) -> std::io::Result<End> {
    let len = file.seek(SeekFrom::End(0))?;
    let mut window = 4 * LINE_MAX as u64;
    loop {
        let start = len.saturating_sub(window);
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        // The length was read once: what a living writer adds meanwhile is not looked at.
        (&mut *file).take(len - start).read_to_end(&mut text)?;
        if let Some(end) = last_record(&text, start == 0) {
            return Ok(end);
        }
        if start == 0 {
            return Ok(End { head: Head::NONE, at_ms: None, torn: torn(&text) });
        }
        window = window.saturating_mul(8);
    }
}

/// The last line of `text` that is a record, and what follows it. The first line is one only if it is whole.
fn last_record(text: &[u8], is_from_start: bool) -> Option<End> {
    let mut rest = text;
    while let Some(newline) = rest.iter().rposition(|b| *b == b'\n') {
        let before = &rest[..newline];
        let start = before.iter().rposition(|b| *b == b'\n');
        if start.is_none() && !is_from_start {
            return None;
        }
        let line = &before[start.map_or(0, |at| at + 1)..];
        if let Ok(sealed) = chain::unseal(line) {
            return Some(End { head: sealed.head, at_ms: made_ms(line), torn: torn(&text[newline + 1..]) });
        }
        rest = before;
    }
    None
}

/// When a record was made.
fn made_ms(line: &[u8]) -> Option<i64> {
    #[derive(Deserialize)]
    struct Made {
        at: String,
    }
    let made: Made = serde_json::from_slice(line).ok()?;
    made.at.parse().ok().map(Timestamp::as_millisecond)
}

fn torn(rest: &[u8]) -> Option<Torn> {
    (!rest.is_empty()).then(|| Torn { bytes: rest.len() as u64, sha256: Hash(chain::sha256(rest)) })
}

/// `audit-20260801T101112.123Z-<boot id>.jsonl`.
fn segment_name(at_ms: i64, boot: &str) -> String {
    let at = Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::MAX);
    format!("audit-{}-{boot}.jsonl", at.strftime(NAME_TIME))
}

/// When the segment of that name was begun; `None` when it is not the name of one.
pub(super) fn began_ms(name: &str) -> Option<i64> {
    let (at, boot) = name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.split_once('-')?;
    let at: Timestamp = at.parse().ok()?;
    let at_ms = at.as_millisecond();
    (is_boot_id(boot) && segment_name(at_ms, boot) == name).then_some(at_ms)
}

/// What [`crate::audit`] calls a process: hexadecimal, so that names need no escaping.
fn is_boot_id(boot: &str) -> bool {
    !boot.is_empty() && boot.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The event of the first record of a process.
pub(super) const START: &str = "start";
/// The event of the first record of a segment that goes on where a full one ended.
pub(super) const ROTATED: &str = "rotated";
const NAME_TIME: &str = "%Y%m%dT%H%M%S%.3fZ";
/// Ends a first record names at most, so that its line keeps within 16 KiB; more than two or three are unheard of.
pub(super) const LINKS_MAX: usize = 40;
const LOCK_ATTEMPTS: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_when_and_sort_by_it() {
        let name = segment_name(1_700_000_000_500, "00ff");
        assert_eq!(name, "audit-20231114T221320.500Z-00ff.jsonl");
        assert_eq!(began_ms(&name), Some(1_700_000_000_500));
        assert!(segment_name(1_700_000_000_501, "00aa") > name);
    }

    #[test]
    fn other_files_are_no_segments() {
        for name in [
            "lock",
            "audit-.jsonl",
            "audit-20231114T221320.500Z-00ff.jsonl.1",
            "audit-2023-11-14T22:13:20.500Z-00ff.jsonl",
        ] {
            assert_eq!(began_ms(name), None, "{name}");
        }
    }

    #[test]
    fn a_clock_set_back_does_not_reorder_segments() {
        let directory = Directory::new(tempfile::tempdir().expect("a directory").keep());
        let first = directory.next_name(5_000, "b1").expect("a name");
        File::create(directory.path.join(&first)).expect("a file");

        let second = directory.next_name(1_000, "b2").expect("a name");

        assert_eq!(began_ms(&second), Some(5_001));
    }
}
