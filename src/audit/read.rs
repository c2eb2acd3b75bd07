//! Reading the log while it may still be written: its newest lines.
//!
//! Nothing is checked here; that is `verify`. What is handed out is printable ASCII, also from a file somebody edited.

use super::Error;
use super::chain::LINE_MAX;
use super::directory::Directory;
use super::escape::escaped;
use super::records::at;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};

/// The newest `n` records of this kind, the latest first. No more than the last megabyte of each of the newest files is
/// looked at: for people who want a glance, not the whole.
pub fn newest(directory: &Directory, kind: &str, n: usize) -> Result<Vec<String>, Error> {
    let wanted = format!(",\"event\":\"{}\"", escaped(kind));
    let mut found: Vec<String> = Vec::new();
    for name in directory.segments()?.into_iter().rev().take(GLANCE_FILES) {
        let path = directory.path.join(&name);
        let length = std::fs::metadata(&path).map_err(Error::io("look at", &path))?.len();
        let start = length.saturating_sub(GLANCE_BYTES);
        // The first line may be cut.
        let mut is_whole = start == 0;
        let mut of_file = Vec::new();
        read(directory, &name, start, |line| {
            if std::mem::replace(&mut is_whole, true) && line.contains(&wanted) {
                of_file.push(line);
            }
        })?;
        found.extend(of_file.into_iter().rev());
        if found.len() >= n {
            break;
        }
    }
    // Files of several processes run side by side.
    found.sort_by(|a, b| at(b).cmp(&at(a)));
    found.truncate(n);
    Ok(found)
}

const GLANCE_FILES: usize = 8;
const GLANCE_BYTES: u64 = 1024 * 1024;

/// The log as it grows.
pub struct Follow<'a> {
    directory: &'a Directory,
    /// How far each segment has been read; always the end of a line.
    read_to: HashMap<String, u64>,
}

impl<'a> Follow<'a> {
    /// The newest `n` records, the oldest of them first, and a place to go on from.
    pub fn tail(directory: &'a Directory, n: usize) -> Result<(Vec<String>, Follow<'a>), Error> {
        let mut read_to = HashMap::new();
        let mut newest: Vec<Timed> = Vec::new();
        for name in directory.segments()?.into_iter().rev() {
            // A segment begun early may still be written: what is new in it is found by time, not by its name.
            let is_older = match newest.first().filter(|_| newest.len() >= n) {
                Some(oldest) => last_at(directory, &name)?.is_none_or(|last| last <= oldest.at),
                None => n == 0,
            };
            let start = if is_older { last_line(directory, &name)? } else { near_end(directory, &name, n)? };
            let mut lines = VecDeque::new();
            let end = read(directory, &name, start, |line| {
                lines.push_back(line);
                if lines.len() > n || is_older {
                    lines.pop_front();
                }
            })?;
            let mut merged = timed(lines);
            merged.append(&mut newest);
            merged.sort_by(|one, other| one.at.cmp(&other.at));
            newest = merged.split_off(merged.len().saturating_sub(n));
            read_to.insert(name, end);
        }
        let follow = Follow { directory, read_to };
        Ok((newest.into_iter().map(|timed| timed.line).collect(), follow))
    }

    /// What was written since the last time.
    pub fn new_lines(&mut self) -> Result<Vec<String>, Error> {
        let mut new = Vec::new();
        for name in self.directory.segments()? {
            let start = self.read_to.get(&name).copied().unwrap_or(0);
            let mut lines = VecDeque::new();
            let end = read(self.directory, &name, start, |line| lines.push_back(line))?;
            new.extend(timed(lines));
            self.read_to.insert(name, end);
        }
        new.sort_by(|one, other| one.at.cmp(&other.at));
        Ok(new.into_iter().map(|timed| timed.line).collect())
    }
}

/// A line with its time, or that of one before it that is later: the order within a segment stays.
struct Timed {
    at: String,
    line: String,
}

fn timed(lines: VecDeque<String>) -> Vec<Timed> {
    let mut latest = String::new();
    let timed = lines.into_iter().map(|line| {
        if let Some(at) = at(&line).filter(|at| *at > latest.as_str()) {
            latest = at.to_owned();
        }
        Timed { at: latest.clone(), line }
    });
    timed.collect()
}

/// Where a line begins with at least so many behind it, or the beginning.
fn near_end(directory: &Directory, name: &str, n: usize) -> Result<u64, Error> {
    let path = directory.path.join(name);
    let look = || -> io::Result<u64> {
        let mut file = File::open(&path)?;
        let room = (n as u64).saturating_add(2).saturating_mul(LINE_MAX as u64);
        let start = file.seek(SeekFrom::End(0))?.saturating_sub(room);
        if start == 0 {
            return Ok(0);
        }
        file.seek(SeekFrom::Start(start))?;
        let mut rest = Vec::new();
        let n = BufReader::new(file.take(LONGEST)).read_until(b'\n', &mut rest)?;
        Ok(start + n as u64)
    };
    match look() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        looked => looked.map_err(Error::io("read", &path)),
    }
}

/// Hands out the whole lines after `start` and returns where the last of them ends.
fn read(directory: &Directory, name: &str, start: u64, mut each: impl FnMut(String)) -> Result<u64, Error> {
    let path = directory.path.join(name);
    let mut read = || -> io::Result<u64> {
        let mut file = match File::open(&path) {
            // Its time was over, and it was removed in between.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(start),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(start))?;
        let mut lines = BufReader::with_capacity(256 * 1024, file);
        let mut at = start;
        let mut line = Vec::new();
        loop {
            line.clear();
            let n = (&mut lines).take(LONGEST).read_until(b'\n', &mut line)?;
            // Without its line break a line is still being written, or never will be.
            if line.pop() != Some(b'\n') {
                return Ok(at);
            }
            at += n as u64;
            each(printable(&line));
        }
    };
    read().map_err(Error::io("read", &path))
}

/// When the last whole record of a segment says it was written; `None` where there is none to be seen.
pub(super) fn last_at(directory: &Directory, name: &str) -> Result<Option<String>, Error> {
    let path = directory.path.join(name);
    let look = || -> io::Result<Option<String>> {
        let mut file = File::open(&path)?;
        let len = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(len.saturating_sub(2 * LINE_MAX as u64)))?;
        let mut text = Vec::new();
        file.take(2 * LINE_MAX as u64).read_to_end(&mut text)?;
        let Some(end) = text.iter().rposition(|b| *b == b'\n') else { return Ok(None) };
        let whole = &text[..end];
        let line = &whole[whole.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)..];
        Ok(at(&printable(line)).map(str::to_owned))
    };
    match look() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        looked => looked.map_err(Error::io("read", &path)),
    }
}

/// Where the last line begins, or is being written.
fn last_line(directory: &Directory, name: &str) -> Result<u64, Error> {
    let path = directory.path.join(name);
    let look = || -> io::Result<u64> {
        let mut file = File::open(&path)?;
        let len = file.seek(SeekFrom::End(0))?;
        let start = file.seek(SeekFrom::Start(len.saturating_sub(LINE_MAX as u64)))?;
        let mut text = Vec::new();
        file.take(LINE_MAX as u64).read_to_end(&mut text)?;
        let newline = text.iter().rposition(|b| *b == b'\n');
        Ok(newline.map_or(start, |at| start + at as u64 + 1))
    };
    look().map_err(Error::io("read", &path))
}

pub(super) fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    if text.bytes().all(|b| matches!(b, 0x20..=0x7e)) {
        return text.into_owned();
    }
    escaped(&text)
}

/// No line of ours is as long; a longer one is somebody's edit, and ends the reading of that file.
pub(super) const LONGEST: u64 = 1024 * 1024;
