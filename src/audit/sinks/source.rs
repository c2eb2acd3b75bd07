//! Reads what a sink has not had yet: records in the order of the files, then checkpoints.

use super::Log;
use super::cursor::Cursor;
use crate::audit::escape::escaped;
use crate::audit::{Directory, Error};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// See the module.
pub(super) struct Source {
    directory: Directory,
    checkpoints: PathBuf,
    begun_with: Arc<str>,
    checkpoints_from: u64,
    kept_in: PathBuf,
    /// `None` until it was looked for.
    cursor: Option<Cursor>,
    saved: Option<(Instant, Cursor)>,
    /// How long each file was when it was last seen.
    sizes: BTreeMap<String, u64>,
}

/// Lines, and where the source stands once they are taken.
#[derive(Default)]
pub(super) struct Batch {
    /// Without line breaks.
    pub(super) lines: Vec<String>,
    /// Bytes that are not sent yet, these among them.
    pub(super) behind: u64,
    /// Files that went before they were sent.
    pub(super) lost: u64,
    after: Cursor,
}

impl Source {
    pub(super) fn new(log: &Log, kept_in: PathBuf) -> Source {
        Source {
            directory: log.directory.clone(),
            checkpoints: log.checkpoints.clone(),
            begun_with: Arc::clone(&log.begun_with),
            checkpoints_from: log.checkpoints_from,
            kept_in,
            cursor: None,
            saved: None,
            sizes: BTreeMap::new(),
        }
    }

    /// The next lines, at most so many and about so many bytes of them. They stay the next until [`Source::advance`].
    pub(super) fn next(&mut self, lines_max: usize, bytes_max: usize) -> Result<Batch, Error> {
        self.look_for_cursor()?;
        let names = self.directory.segments()?;
        let cursor = self.cursor.get_or_insert_default();
        let mut batch = Batch::default();
        // Each file is known from when it is first seen, so that one that goes is missed.
        for name in names.iter().filter(|name| cursor.upto.as_ref().is_none_or(|upto| *name > upto)) {
            cursor.files.entry(name.clone()).or_insert(0);
        }
        let gone: Vec<String> =
            cursor.files.keys().filter(|name| names.binary_search(name).is_err()).cloned().collect();
        for name in gone {
            let sent = cursor.files.remove(&name).unwrap_or(0);
            batch.lost += u64::from(self.sizes.remove(&name).is_none_or(|size| sent < size));
        }
        batch.after = cursor.clone();
        let mut room = Room { lines: lines_max, bytes: bytes_max };
        for (name, start) in &cursor.files {
            let path = self.directory.path.join(name);
            let size = size(&path);
            self.sizes.insert(name.clone(), size);
            batch.behind += size.saturating_sub(*start);
            let end = read(&path, *start, &mut room, &mut batch.lines).map_err(Error::io("read", &path))?;
            batch.after.files.insert(name.clone(), end);
        }
        let start = cursor.checkpoints.min(size(&self.checkpoints));
        batch.behind += size(&self.checkpoints).saturating_sub(start);
        batch.after.checkpoints = match read(&self.checkpoints, start, &mut room, &mut batch.lines) {
            // They may be on a disk that is not there.
            Err(_) => start,
            Ok(end) => end,
        };
        self.settle(&mut batch.after, room.is_left())?;
        if batch.lines.is_empty() {
            // Nothing to send, but files may have come to their end.
            self.cursor = Some(batch.after.clone());
        }
        Ok(batch)
    }

    pub(super) fn cursor(&self) -> &Cursor {
        static NONE: Cursor = Cursor { upto: None, files: BTreeMap::new(), checkpoints: 0 };
        self.cursor.as_ref().unwrap_or(&NONE)
    }

    /// The lines were taken.
    pub(super) fn advance(&mut self, batch: Batch) {
        self.cursor = Some(batch.after);
    }

    /// What came after this is to be sent again.
    pub(super) fn go_back(&mut self, to: Cursor) {
        self.cursor = Some(to);
    }

    /// Keeps `sure`, or where it stands, unless that was done a moment ago: a crash then costs some records sent twice.
    pub(super) fn save(&mut self, sure: Option<&Cursor>, is_now: bool) -> io::Result<()> {
        let Some(cursor) = sure.or(self.cursor.as_ref()).cloned() else {
            return Ok(());
        };
        let is_due = match &self.saved {
            None => true,
            Some((at, saved)) => *saved != cursor && (is_now || at.elapsed() >= SAVE_EVERY),
        };
        if is_due {
            cursor.save(&self.kept_in)?;
            self.saved = Some((Instant::now(), cursor));
        }
        Ok(())
    }

    /// One that is new begins with what this process writes.
    fn look_for_cursor(&mut self) -> Result<(), Error> {
        if self.cursor.is_some() {
            return Ok(());
        }
        let kept = Cursor::load(&self.kept_in).unwrap_or_else(|error| {
            let file = self.kept_in.display();
            tracing::error!(%error, %file, "how far a sink has come cannot be read: it begins with this process");
            None
        });
        if kept.is_some() {
            self.cursor = kept;
            return Ok(());
        }
        let before = |name: &String| **name < *self.begun_with;
        let upto = self.directory.segments()?.into_iter().rfind(before);
        let fresh = Cursor { upto, files: BTreeMap::new(), checkpoints: self.checkpoints_from };
        // Kept at once: where nothing is taken before this process ends, the next one must not begin with itself.
        fresh.save(&self.kept_in).map_err(Error::io("write", &self.kept_in))?;
        self.cursor = Some(fresh);
        Ok(())
    }

    /// Files from the beginning that nobody writes to any more, and that were read to their end, need no entry.
    fn settle(&self, cursor: &mut Cursor, is_all_read: bool) -> Result<(), Error> {
        if !is_all_read {
            return Ok(());
        }
        while let Some((name, read_to)) = cursor.files.first_key_value() {
            // An empty one was created a moment ago, and its writer has not locked it yet.
            if *read_to == 0 || self.directory.may_live(name)? {
                break;
            }
            // Its writer may have written its last line after we read and before it went.
            let path = self.directory.path.join(name);
            let mut room = Room { lines: 1, bytes: 1 };
            let is_at_end = read(&path, *read_to, &mut room, &mut Vec::new()).is_ok_and(|end| end == *read_to);
            if !is_at_end {
                break;
            }
            cursor.upto = cursor.files.pop_first().map(|(name, _)| name);
        }
        Ok(())
    }
}

struct Room {
    lines: usize,
    bytes: usize,
}

impl Room {
    fn is_left(&self) -> bool {
        self.lines > 0 && self.bytes > 0
    }
}

/// Adds the whole lines after `start`, and returns where the last of them ends.
fn read(path: &Path, start: u64, room: &mut Room, lines: &mut Vec<String>) -> io::Result<u64> {
    let mut at = start;
    if !room.is_left() {
        return Ok(at);
    }
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(at),
        opened => opened?,
    };
    file.seek(SeekFrom::Start(start))?;
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let mut line = Vec::new();
    while room.is_left() {
        line.clear();
        let n = (&mut reader).take(LONGEST).read_until(b'\n', &mut line)?;
        // Without its line break a line is still being written, or never will be.
        if line.pop() != Some(b'\n') {
            break;
        }
        at += n as u64;
        room.lines -= 1;
        room.bytes = room.bytes.saturating_sub(n);
        lines.push(printable(&line));
    }
    Ok(at)
}

/// As it stands; what somebody put there that is not printable is escaped.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if text.bytes().all(|b| matches!(b, 0x20..=0x7e)) {
        return text.into_owned();
    }
    escaped(&text)
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// No line of ours is as long.
const LONGEST: u64 = 1024 * 1024;
const SAVE_EVERY: Duration = Duration::from_secs(1);
