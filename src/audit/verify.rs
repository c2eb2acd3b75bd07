//! Checks that the log is as it was written: every record's hash, every record's place, and every tie between segments.
//!
//! What this cannot see, because a hash needs no secret: the newest segment's end cut off at a line's end, and a tail
//! rewritten with new hashes throughout. Signed checkpoints will close both.

use super::Error;
use super::chain::{self, Hash, Head, LINE_MAX, Sealed};
use super::directory::{Directory, LINKS_MAX, Link, Opening, ROTATED, START, Torn};
use ring::digest;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// Records whose hash and place are right.
    pub records: u64,
    /// Segments looked at, up to the one with the fault.
    pub segments: usize,
    /// What is no fault but worth knowing: writes that were cut short, segments still being written.
    pub notes: Vec<String>,
    /// The newest segment's last record, as `file record n hash`. Kept elsewhere, it shows later whether the end was cut off.
    pub end: Option<String>,
    /// The first thing that is wrong.
    pub fault: Option<Fault>,
}

/// Something that is not as it was written.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// The segment's file name.
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    /// What is wrong, continuing `file:line: `.
    pub what: String,
}

/// Checks the whole log, or, where older segments were archived on purpose, that beginning with the file `from`.
pub fn verify(directory: &Directory, from: Option<&str>) -> Result<Report, Error> {
    let mut names = directory.segments()?;
    names.retain(|name| from.is_none_or(|from| name.as_str() >= from));
    let ties = Ties::gather(directory, names, from)?;
    let mut report = Report::default();
    for name in &ties.names {
        report.segments += 1;
        let path = directory.path.join(name);
        let checked = File::open(&path)
            .and_then(|file| Walk::new(name, file, &ties)?.check(&mut report))
            .map_err(Error::io("read", &path))?;
        if let Err(fault) = checked {
            report.fault = Some(fault);
            break;
        }
    }
    Ok(report)
}

/// What the first records of all segments say of other segments.
struct Ties<'a> {
    names: Vec<String>,
    from: Option<&'a str>,
    /// By the segment that is tied, its ties and who says so.
    to: HashMap<String, Vec<(Link, String)>>,
    /// The newest `start`, which tied all loose ends there were; `None` when they may have been too many.
    last_start: Option<String>,
}

impl<'a> Ties<'a> {
    fn gather(directory: &Directory, names: Vec<String>, from: Option<&'a str>) -> Result<Ties<'a>, Error> {
        let mut to: HashMap<_, Vec<_>> = HashMap::new();
        let mut last_start = None;
        for name in &names {
            let Some(opening) = directory.opening(name)? else {
                continue;
            };
            if opening.event == START {
                let is_complete = opening.previous.len() < LINKS_MAX;
                last_start = is_complete.then(|| name.clone());
            }
            for link in opening.previous {
                let ties = to.entry(link.file.clone()).or_default();
                ties.push((link, name.clone()));
            }
        }
        Ok(Ties { names, from, to, last_start })
    }

    fn of(&self, name: &str) -> &[(Link, String)] {
        self.to.get(name).map_or(&[], Vec::as_slice)
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name) || self.from.is_some_and(|from| name < from)
    }
}

/// One segment, read from its first line to its last.
struct Walk<'a> {
    name: &'a str,
    ties: &'a Ties<'a>,
    lines: BufReader<io::Take<File>>,
    /// Lines that are records so far.
    line: u64,
    head: Head,
}

type Checked = Result<(), Fault>;

impl<'a> Walk<'a> {
    fn new(name: &'a str, file: File, ties: &'a Ties<'a>) -> io::Result<Self> {
        // Its length now: a line that is being written while we read must not look like two halves.
        let len = file.metadata()?.len();
        Ok(Walk { name, ties, lines: BufReader::with_capacity(256 * 1024, file.take(len)), line: 0, head: Head::NONE })
    }

    fn check(mut self, report: &mut Report) -> io::Result<Checked> {
        let mut line = Vec::new();
        let rest = loop {
            line.clear();
            let limit = LINE_MAX as u64;
            (&mut self.lines).take(limit).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                break Rest::Nothing;
            }
            let record = line.strip_suffix(b"\n").ok_or("is not a whole line");
            match record.and_then(chain::unseal) {
                Ok(sealed) => {
                    if let Err(fault) = self.record(&line, &sealed) {
                        return Ok(Err(fault));
                    }
                    report.records += 1;
                }
                Err(what) => break self.rest(&line, what)?,
            }
        };
        Ok(self.end(rest, report))
    }

    fn record(&mut self, line: &[u8], sealed: &Sealed) -> Checked {
        if self.line == 0 {
            self.first(line, sealed)?;
        } else if sealed.prev != self.head.hash {
            return Err(self.fault("does not follow the record before it: one was removed, added or moved"));
        } else if sealed.head.seq != self.head.seq + 1 {
            return Err(self.fault("is out of number"));
        }
        for (link, by) in self.ties.of(self.name) {
            if link.seq == sealed.head.seq && link.hash != sealed.head.hash {
                return Err(self.fault(format!("is not the record that {by} ties on to")));
            }
            if self.line == 0 && link.seq > 0 && link.seq < sealed.head.seq {
                return Err(self.fault(format!("is not where {by} says this segment ends")));
            }
            if link.seq == self.head.seq && !link.live {
                return Err(self.fault(format!("comes after what {by} names as the last record")));
            }
        }
        self.line += 1;
        self.head = sealed.head;
        Ok(())
    }

    /// The first record: this segment's own ties have to lead to segments that are there and come before it.
    fn first(&self, line: &[u8], sealed: &Sealed) -> Checked {
        let opening: Opening =
            serde_json::from_slice(line).map_err(|_| self.fault("is not the first record of a segment"))?;
        if !self.name.ends_with(&format!("-{}.jsonl", opening.segment)) {
            return Err(self.fault("belongs to a segment of another name"));
        }
        let links = &opening.previous;
        let is_in_number = match opening.event.as_str() {
            START => sealed.head.seq == 1,
            ROTATED => links.len() == 1 && links.iter().all(|l| sealed.head.seq == l.seq + 1),
            _ => return Err(self.fault("is not the first record of a segment")),
        };
        let prev = links.first().map_or(Head::NONE.hash, |link| link.hash);
        if !is_in_number || sealed.prev != prev {
            return Err(self.fault("does not follow the segment it names"));
        }
        match links.iter().find(|l| l.file.as_str() >= self.name || !self.ties.has(&l.file)) {
            Some(Link { file, .. }) => Err(self.fault(format!("ties on to {file}, which is missing"))),
            None => Ok(()),
        }
    }

    /// What follows the last record, in full.
    fn rest(&mut self, line: &[u8], what: &'static str) -> io::Result<Rest> {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(line);
        let mut bytes = line.len() as u64;
        loop {
            let more = self.lines.fill_buf()?;
            if more.is_empty() {
                break;
            }
            context.update(more);
            let n = more.len();
            bytes += n as u64;
            self.lines.consume(n);
        }
        let mut sha256 = [0; 32];
        sha256.copy_from_slice(context.finish().as_ref());
        let torn = Torn { bytes, sha256: Hash(sha256) };
        // A write that was cut short leaves the beginning of a line. A whole record and one more byte is no such thing.
        let is_prefix = bytes == line.len() as u64
            && line.iter().all(|b| matches!(b, 0x20..=0x7e))
            && line.split_last().is_none_or(|(_, line)| chain::unseal(line).is_err());
        Ok(Rest::Torn { torn, is_prefix, what })
    }

    /// The end: nothing that others tie on to may be missing, and what is no record must be accounted for.
    fn end(self, rest: Rest, report: &mut Report) -> Checked {
        let ties = self.ties.of(self.name);
        if let Some((link, by)) = ties.iter().find(|(link, _)| link.seq > self.head.seq) {
            let what = rest
                .what()
                .map_or_else(|| format!("is missing: {by} names record {} of this segment", link.seq), str::to_owned);
            return Err(self.fault(what));
        }
        let last = ties.iter().find(|(link, _)| !link.live && link.seq == self.head.seq);
        if let Rest::Torn { torn, is_prefix, what } = rest {
            let is_known = last.is_some_and(|(link, _)| link.torn.as_ref() == Some(&torn));
            if !is_known && (last.is_some() || !is_prefix) {
                return Err(self.fault(what));
            }
            let (name, bytes, seq) = (self.name, torn.bytes, self.head.seq);
            let seen = if is_known { "noted at the next start" } else { "not noted yet" };
            report.notes.push(format!("{name}: {bytes} bytes after record {seq} are a write cut short, {seen}"));
        } else if let Some((Link { torn: Some(_), .. }, by)) = last {
            return Err(self.fault(format!("is missing: {by} names the beginning of a record here")));
        }
        let is_before_last_start = self.ties.last_start.as_deref().is_some_and(|last| self.name < last);
        if is_before_last_start && ties.is_empty() && self.line > 0 {
            return Err(Fault {
                line: 1,
                ..self.fault("begins a segment that no later one ties on to: it was added, or the one that did is gone")
            });
        }
        if self.line > 0 {
            report.end = Some(format!("{} record {} {}", self.name, self.head.seq, self.head.hash));
        }
        Ok(())
    }

    /// A fault in the line that follows the records found so far.
    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault { file: self.name.to_owned(), line: self.line + 1, what: what.into() }
    }
}

/// What follows the last record of a file.
enum Rest {
    Nothing,
    Torn {
        torn: Torn,
        /// It can be the beginning of a record.
        is_prefix: bool,
        what: &'static str,
    },
}

impl Rest {
    fn what(&self) -> Option<&'static str> {
        match self {
            Rest::Nothing => None,
            Rest::Torn { what, .. } => Some(what),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}
