//! The checkpoints that a log is held against: read once for their signatures and their own chain, and once more, file
//! by file, beside the records they name. What is kept in memory is one entry a file of the log, however many there are.

use super::{CheckpointFile, Fault, Found};
use crate::audit::Error;
use crate::audit::chain::Hash;
use crate::audit::checkpoint::{Checkpoint, LONGEST, hash_of_line};
use crate::audit::directory::Torn;
use ring::digest;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

/// All of them, as they stood when they were read.
pub(super) struct Statements {
    path: PathBuf,
    /// As faults name it.
    name: String,
    of: HashMap<String, Span>,
    pub(super) count: u64,
    /// The last one, for people: its number and time.
    pub(super) last: Option<(u64, String)>,
}

/// Where in their file those about one file of the log stand.
struct Span {
    first: Place,
    end: u64,
    /// The highest record that one names.
    reached: u64,
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    line: u64,
}

/// What one says.
pub(super) struct Statement {
    pub(super) seq: u64,
    pub(super) hash: Hash,
    /// For people: `checkpoint 17 (audit-checkpoints.jsonl:17)`.
    pub(super) who: String,
}

impl Statements {
    /// Reads and checks them. Where there are none, because their file is not there, `None`.
    pub(super) fn read(file: &CheckpointFile) -> Result<Option<Found<Statements>>, Error> {
        let path = &file.path;
        let opened = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open", path))?,
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let statements = Statements { path: path.clone(), name, of: HashMap::new(), count: 0, last: None };
        let mut reading = Reading { statements, file, prev: None, line: 0, torn: None, notes: Vec::new() };
        let read = (|| {
            let len = opened.metadata()?.len();
            reading.all(BufReader::with_capacity(256 * 1024, opened.take(len)))
        })();
        let fault = read.map_err(Error::io("read", path))?.err();
        let Reading { statements, notes, .. } = reading;
        Ok(Some(Found { it: statements, notes, fault }))
    }

    /// The names of the log's files that they speak of.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.of.keys().map(String::as_str)
    }

    /// The highest record of a file that one names.
    pub(super) fn reached(&self, file: &str) -> Option<u64> {
        self.of.get(file).map(|span| span.reached)
    }

    /// Those about one file, in their order.
    pub(super) fn about(&self, file: &str) -> io::Result<About> {
        let Some(span) = self.of.get(file) else {
            return Ok(About { lines: None, name: String::new(), file: String::new(), line: 0, next: None });
        };
        let mut opened = File::open(&self.path)?;
        opened.seek(SeekFrom::Start(span.first.offset))?;
        let lines = BufReader::new(opened.take(span.end - span.first.offset));
        let (name, file) = (self.name.clone(), file.to_owned());
        let mut about = About { lines: Some(lines), name, file, line: span.first.line, next: None };
        about.advance()?;
        Ok(about)
    }
}

/// Those about one file, one after the other.
pub(super) struct About {
    lines: Option<BufReader<io::Take<File>>>,
    name: String,
    file: String,
    line: u64,
    next: Option<Statement>,
}

impl About {
    pub(super) fn next(&self) -> Option<&Statement> {
        self.next.as_ref()
    }

    pub(super) fn advance(&mut self) -> io::Result<()> {
        self.next = None;
        let Some(lines) = &mut self.lines else {
            return Ok(());
        };
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.take(LONGEST as u64).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let at = self.line;
            if line.ends_with(b"\n") {
                self.line += 1;
            }
            let read = Checkpoint::parse(line.strip_suffix(b"\n").unwrap_or(&line));
            if let Some(checkpoint) = read.map(|read| read.checkpoint).filter(|read| read.file == self.file) {
                let who = format!("checkpoint {} ({}:{at})", checkpoint.number, self.name);
                self.next = Some(Statement { seq: checkpoint.seq, hash: checkpoint.hash, who });
                return Ok(());
            }
        }
    }
}

// === The first reading ===

struct Reading<'a> {
    statements: Statements,
    file: &'a CheckpointFile,
    /// Number and hash of the one before.
    prev: Option<(u64, Hash)>,
    /// Line breaks so far.
    line: u64,
    /// What stands since the one before and is none: its first line, and a hash of all but its last byte.
    torn: Option<(u64, TornSoFar)>,
    notes: Vec<String>,
}

impl Reading<'_> {
    fn all(&mut self, mut lines: impl BufRead) -> io::Result<Result<(), Fault>> {
        let (mut line, mut offset, mut is_within_line) = (Vec::new(), 0, false);
        loop {
            line.clear();
            let n = (&mut lines).take(LONGEST as u64).read_until(b'\n', &mut line)? as u64;
            if n == 0 {
                break;
            }
            let start = Place { offset, line: self.line + 1 };
            offset += n;
            let is_whole = line.ends_with(b"\n");
            self.line += u64::from(is_whole);
            let read = Checkpoint::parse(line.strip_suffix(b"\n").unwrap_or_default());
            match read.filter(|_| !is_within_line) {
                Some(read) => {
                    if let Err(what) = self.one(&read, &line[..line.len() - 1], start, offset) {
                        return Ok(Err(self.fault(start.line, what)));
                    }
                }
                None => self.torn.get_or_insert_with(|| (start.line, TornSoFar::default())).1.add(&line),
            }
            is_within_line = !is_whole;
        }
        Ok(self.end())
    }

    fn one(
        &mut self,
        read: &crate::audit::checkpoint::Unverified<'_>,
        line: &[u8],
        start: Place,
        end: u64,
    ) -> Result<(), String> {
        let checkpoint = &read.checkpoint;
        let Some(key) = self.file.keys.iter().find(|key| key.kid() == checkpoint.key) else {
            return Err(format!("is signed with key {}, which is not at hand: name it with `--key`", checkpoint.key));
        };
        if !read.is_signed_by(key) {
            return Err("does not have the signature it needs: it was changed".to_owned());
        }
        let torn = self.torn.take().map(|(_, torn)| torn.finish());
        if torn.as_ref().is_some_and(|torn| !torn.ends_line) || torn.map(|torn| torn.torn) != checkpoint.torn {
            return Err("does not account for what stands before it".to_owned());
        }
        match self.prev {
            Some((number, hash)) if checkpoint.number != number + 1 || checkpoint.prev != hash => {
                return Err(format!("does not follow checkpoint {number}: some were removed, added or moved"));
            }
            None if checkpoint.number != 1 => self.notes.push(format!(
                "the checkpoints begin with number {}: those before it are elsewhere, and were not checked",
                checkpoint.number
            )),
            None if checkpoint.prev != Hash([0; 32]) => {
                return Err("names a checkpoint before it, and there is none".to_owned());
            }
            _ => {}
        }
        self.prev = Some((checkpoint.number, hash_of_line(line)));
        self.statements.count += 1;
        self.statements.last = Some((checkpoint.number, checkpoint.at.clone()));
        let span = self.statements.of.entry(checkpoint.file.clone());
        let span = span.or_insert(Span { first: start, end, reached: 0 });
        if checkpoint.seq < span.reached {
            return Err(format!("names record {} after one named record {}", checkpoint.seq, span.reached));
        }
        (span.end, span.reached) = (end, checkpoint.seq);
        Ok(())
    }

    /// What stands after the last one: a beginning of one may, as after a crash.
    fn end(&mut self) -> Result<(), Fault> {
        let Some((line, torn)) = self.torn.take() else {
            return Ok(());
        };
        let torn = torn.finish();
        if torn.has_line_break {
            return Err(self.fault(line, "is no checkpoint".to_owned()));
        }
        let name = &self.statements.name;
        self.notes.push(format!("{name}:{line}: {} bytes at the end are a checkpoint cut short", torn.all_bytes));
        Ok(())
    }

    fn fault(&self, line: u64, what: String) -> Fault {
        Fault { file: self.statements.name.clone(), line, what }
    }
}

/// Bytes that are no checkpoint, as they come; the last one is held back.
struct TornSoFar {
    hash: digest::Context,
    bytes: u64,
    held: Option<u8>,
    has_line_break: bool,
}

struct TornWhole {
    /// Without the last byte, which is the line break that closes them.
    torn: Torn,
    all_bytes: u64,
    ends_line: bool,
    has_line_break: bool,
}

impl Default for TornSoFar {
    fn default() -> Self {
        TornSoFar { hash: digest::Context::new(&digest::SHA256), bytes: 0, held: None, has_line_break: false }
    }
}

impl TornSoFar {
    fn add(&mut self, more: &[u8]) {
        let Some((last, rest)) = more.split_last() else {
            return;
        };
        if let Some(held) = self.held.replace(*last) {
            self.hash.update(&[held]);
            self.bytes += 1;
        }
        self.hash.update(rest);
        self.bytes += rest.len() as u64;
        self.has_line_break |= more.contains(&b'\n');
    }

    fn finish(self) -> TornWhole {
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(self.hash.finish().as_ref());
        TornWhole {
            torn: Torn { bytes: self.bytes, sha256: Hash(sha256) },
            all_bytes: self.bytes + u64::from(self.held.is_some()),
            ends_line: self.held == Some(b'\n'),
            has_line_break: self.has_line_break,
        }
    }
}
