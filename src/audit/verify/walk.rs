//! One file of the log, read from its first line to its last, beside the checkpoints that speak of it.

use super::statements::About;
use super::{Fault, Log, Report};
use crate::audit::chain::{self, Hash, Head, LINE_MAX, Sealed};
use crate::audit::directory::{Link, Opening, ROTATED, START, Torn};
use ring::digest;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// One segment.
pub(super) struct Walk<'a, 'l> {
    name: &'a str,
    log: &'a mut Log<'l>,
    /// What checkpoints say of it, from the next one on.
    about: Option<About>,
    lines: BufReader<io::Take<File>>,
    /// Lines that are records so far.
    line: u64,
    head: Head,
}

type Checked = Result<(), Fault>;

impl<'a, 'l> Walk<'a, 'l> {
    pub(super) fn new(name: &'a str, file: File, log: &'a mut Log<'l>) -> io::Result<Self> {
        // Its length now: a line that is being written while we read must not look like two halves.
        let len = file.metadata()?.len();
        let lines = BufReader::with_capacity(256 * 1024, file.take(len));
        let about = log.statements.map(|statements| statements.about(name)).transpose()?;
        Ok(Walk { name, log, about, lines, line: 0, head: Head::NONE })
    }

    pub(super) fn check(mut self, report: &mut Report) -> io::Result<Checked> {
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
                    let checked = self.record(&line, &sealed).map(|()| self.is_as_stated());
                    match checked {
                        Ok(stated) => {
                            if let Err(fault) = stated? {
                                return Ok(Err(fault));
                            }
                        }
                        Err(fault) => return Ok(Err(fault)),
                    }
                    self.log.removed.look_at(&line);
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
        for (link, by) in self.log.ties.of(self.name) {
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
    fn first(&mut self, line: &[u8], sealed: &Sealed) -> Checked {
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
        if let Some(rival) = self.log.ties.rival(self.name, &opening) {
            return Err(self.fault(format!("stands where {rival} does: one of the two was added")));
        }
        for link in links {
            let fault = self.fault(format!("ties on to {}, which is missing", link.file));
            if link.file.as_str() >= self.name {
                return Err(fault);
            }
            if !self.log.ties.has(&link.file) {
                self.log.absent.push((link.clone(), fault));
            }
        }
        Ok(())
    }

    /// The record just read is the one that checkpoints name by its number.
    fn is_as_stated(&mut self) -> io::Result<Checked> {
        let Some(about) = &mut self.about else {
            return Ok(Ok(()));
        };
        while let Some(stated) = about.next().filter(|stated| stated.seq <= self.head.seq) {
            if stated.seq < self.head.seq || stated.hash != self.head.hash {
                let what = match stated.seq < self.head.seq {
                    true => {
                        format!("comes after record {}, which {} names and which is not here", stated.seq, stated.who)
                    }
                    false => format!("is not the record that {} names: it was written anew", stated.who),
                };
                // Counted already.
                return Ok(Err(Fault { file: self.name.to_owned(), line: self.line, what }));
            }
            about.advance()?;
        }
        Ok(Ok(()))
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
        let ties = self.log.ties.of(self.name);
        if let Some(stated) = self.about.as_ref().and_then(About::next) {
            let what = rest.what().map_or_else(
                || {
                    format!(
                        "is missing: {} names record {} of this segment; its end was cut off",
                        stated.who, stated.seq
                    )
                },
                str::to_owned,
            );
            return Err(self.fault(what));
        }
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
        let is_before_last_start = self.log.ties.last_start.as_deref().is_some_and(|last| self.name < last);
        if is_before_last_start && ties.is_empty() && self.line > 0 {
            return Err(Fault {
                line: 1,
                ..self.fault("begins a segment that no later one ties on to: it was added, or the one that did is gone")
            });
        }
        if self.line > 0 {
            report.end = Some(format!("{} record {} {}", self.name, self.head.seq, self.head.hash));
            self.log.ends.push((self.name.to_owned(), self.head.seq));
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
