//! Checks that the log is as it was written: every record's hash, every record's place, every tie between files, and that
//! each record a checkpoint names is there.
//!
//! What this cannot see: what came after the last checkpoint and was cut off at a line's end, or written anew with hashes
//! that fit. The report says which records no checkpoint speaks for.

mod removed;
mod statements;
mod walk;

use super::Error;
use super::checkpoint::PublicKey;
use super::directory::{Directory, LINKS_MAX, Link, Opening, START};
use removed::Removed;
use serde::Serialize;
use statements::Statements;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use walk::Walk;

/// What the log is held against.
#[derive(Debug, Default)]
pub struct Against<'a> {
    /// The first file that is there, where older ones were archived on purpose.
    pub from: Option<&'a str>,
    /// Its checkpoints; without them only the records are checked, and what they say of each other.
    pub checkpoints: Option<CheckpointFile>,
}

/// A file of checkpoints, and the keys that may have signed them.
#[derive(Debug)]
pub struct CheckpointFile {
    /// The file.
    pub path: PathBuf,
    /// Those of this gateway, now and before.
    pub keys: Vec<PublicKey>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Records whose hash and place are right.
    pub records: u64,
    /// Segments looked at, up to the one with the fault.
    pub segments: usize,
    /// Checkpoints whose signature and place are right.
    pub checkpoints: u64,
    /// The last of them: its number and time.
    pub last_checkpoint: Option<(u64, String)>,
    /// What is no fault but worth knowing: writes that were cut short, files that were removed by retention.
    pub notes: Vec<String>,
    /// Records that no checkpoint speaks for, the first hundred files of them.
    pub unsigned: Vec<Unsigned>,
    /// The newest segment's last record, as `file record n hash`. Kept elsewhere, it shows later whether the end was cut off.
    pub end: Option<String>,
    /// Whether the log says that it has checkpoints.
    pub is_signed: bool,
    /// The first thing that is wrong.
    pub fault: Option<Fault>,
}

/// Records at the end of a file that no checkpoint speaks for: whether more followed, or they were written anew, is not
/// known.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Unsigned {
    /// The segment's file name.
    pub file: String,
    /// The first of them.
    pub from: u64,
    /// The last one there is.
    pub to: u64,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The file's name.
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    /// What is wrong, continuing `file:line: `.
    pub what: String,
}

/// What was read, what is worth knowing of it, and what is wrong with it.
struct Found<T> {
    it: T,
    notes: Vec<String>,
    fault: Option<Fault>,
}

/// Checks the whole log.
pub fn verify(directory: &Directory, against: &Against<'_>) -> Result<Report, Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match once(directory, against) {
            // Retention took a file from under our eyes; the record that says so is there the next time.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound && attempts < ATTEMPTS => {}
            report => return report,
        }
    }
}

fn once(directory: &Directory, against: &Against<'_>) -> Result<Report, Error> {
    // First: what they speak of is in the log already, also while both grow.
    let found = against.checkpoints.as_ref().map(Statements::read).transpose()?;
    let mut names = directory.segments()?;
    names.retain(|name| against.from.is_none_or(|from| name.as_str() >= from));
    let ties = Ties::gather(directory, names, against.from)?;
    let mut report = Report::default();
    let mut checkpoint_fault = None;
    let statements = match found {
        Some(Some(Found { it, notes, fault })) => {
            report.notes.extend(notes);
            (report.checkpoints, report.last_checkpoint) = (it.count, it.last.clone());
            checkpoint_fault = fault;
            Some(it).filter(|_| checkpoint_fault.is_none())
        }
        Some(None) => {
            checkpoint_fault = against.checkpoints.as_ref().and_then(|file| unsigned_log(file, &ties, &mut report));
            None
        }
        None => None,
    };
    report.is_signed = ties.openings.values().any(|opening| opening.is_signed);
    walk_all(directory, &ties, statements.as_ref(), &mut report)?;
    if let Some(fault) = checkpoint_fault {
        if report.fault.is_none() {
            report.notes.push(format!(
                "the records alone are sound: {} in {} segments, each with its hash and in its place",
                report.records, report.segments
            ));
        }
        report.fault = Some(fault);
    }
    Ok(report)
}

fn walk_all(
    directory: &Directory,
    ties: &Ties<'_>,
    statements: Option<&Statements>,
    report: &mut Report,
) -> Result<(), Error> {
    let mut log = Log { ties, statements, removed: Removed::default(), absent: Vec::new(), ends: Vec::new() };
    for name in &ties.names {
        report.segments += 1;
        let path = directory.path.join(name);
        let checked = File::open(&path)
            .and_then(|file| Walk::new(name, file, &mut log)?.check(report))
            .map_err(Error::io("read", &path))?;
        if let Err(fault) = checked {
            report.fault = Some(fault);
            return Ok(());
        }
    }
    log.find_absent();
    report.fault = log.first_unaccounted();
    if log.removed.count() > 0 {
        report.notes.push(format!("{} files were removed by retention", log.removed.count()));
    }
    if statements.is_some() {
        report.unsigned = log.unsigned();
    }
    Ok(())
}

/// The log says that it is signed, and there is nothing to show for it.
fn unsigned_log(file: &CheckpointFile, ties: &Ties<'_>, report: &mut Report) -> Option<Fault> {
    let path = file.path.display();
    match ties.openings.iter().filter(|(_, opening)| opening.is_signed).map(|(name, _)| name).min() {
        Some(name) => Some(Fault {
            file: path.to_string(),
            line: 1,
            what: format!("is missing: the log is signed from {name} on, and this is where its checkpoints were to be"),
        }),
        None => {
            report.notes.push(format!("there are no checkpoints ({path}): an end that was cut off is not found"));
            None
        }
    }
}

/// What is known of the log as a whole while it is read file by file.
struct Log<'a> {
    ties: &'a Ties<'a>,
    statements: Option<&'a Statements>,
    removed: Removed,
    /// Files that are named and not there, with what is named of each, and what is wrong if nothing accounts for it.
    absent: Vec<(Link, Fault)>,
    /// Each file's last record.
    ends: Vec<(String, u64)>,
}

impl Log<'_> {
    /// Files that checkpoints name and that are not there.
    fn find_absent(&mut self) {
        let Some(statements) = self.statements else {
            return;
        };
        let mut files: Vec<&str> = statements.files().filter(|file| !self.ties.has(file)).collect();
        files.sort_unstable();
        for file in files {
            let Ok(about) = statements.about(file) else { continue };
            let Some(first) = about.next() else { continue };
            let (seq, hash) = (statements.reached(file).unwrap_or(first.seq), first.hash);
            let what = format!("is missing: {} names record {} of it", first.who, first.seq);
            let link = Link { file: file.to_owned(), seq, hash, live: true, torn: None };
            self.absent.push((link, Fault { file: file.to_owned(), line: 1, what }));
        }
    }

    fn first_unaccounted(&self) -> Option<Fault> {
        let account = |(link, fault): &(Link, Fault)| {
            let said = (!link.live).then_some(link);
            self.removed.account_for(&link.file, link.seq, said, fault).err()
        };
        self.absent.iter().find_map(account)
    }

    /// Which records no checkpoint speaks for: neither for themselves nor for a file that ties on to them.
    fn unsigned(&self) -> Vec<Unsigned> {
        let mut reached: HashMap<&str, u64> = HashMap::new();
        let mut unsigned = Vec::new();
        for (name, end) in self.ends.iter().rev() {
            let named = self.statements.and_then(|statements| statements.reached(name)).unwrap_or(0);
            let reached_here = reached.get(name.as_str()).copied().unwrap_or(0).max(named);
            let opening = self.ties.openings.get(name);
            if let Some(opening) = opening.filter(|opening| reached_here >= opening.seq) {
                for link in &opening.previous {
                    let of = reached.entry(link.file.as_str()).or_default();
                    *of = (*of).max(link.seq);
                }
            }
            if reached_here < *end && unsigned.len() < UNSIGNED_MAX {
                let from = opening.map_or(1, |opening| opening.seq).max(reached_here + 1);
                unsigned.push(Unsigned { file: name.clone(), from, to: *end });
            }
        }
        unsigned.reverse();
        unsigned
    }
}

/// What the first records of all segments say of other segments.
struct Ties<'a> {
    names: Vec<String>,
    from: Option<&'a str>,
    /// By the segment that is tied, its ties and who says so.
    to: HashMap<String, Vec<(Link, String)>>,
    /// By the segment that ties.
    openings: HashMap<String, First>,
    /// By the process, the first file that it says it begins with.
    starts: HashMap<String, String>,
    /// The newest `start`, which tied all loose ends there were; `None` when they may have been too many.
    last_start: Option<String>,
}

/// A segment's first record.
struct First {
    seq: u64,
    previous: Vec<Link>,
    is_signed: bool,
    is_start: bool,
}

impl<'a> Ties<'a> {
    fn gather(directory: &Directory, names: Vec<String>, from: Option<&'a str>) -> Result<Ties<'a>, Error> {
        let mut to: HashMap<_, Vec<_>> = HashMap::new();
        let (mut last_start, mut openings, mut starts) = (None, HashMap::new(), HashMap::new());
        for name in &names {
            let Some(opening) = directory.opening(name)? else {
                continue;
            };
            let is_start = opening.event == START;
            if is_start {
                let is_complete = opening.previous.len() < LINKS_MAX;
                last_start = is_complete.then(|| name.clone());
            }
            for link in &opening.previous {
                let ties = to.entry(link.file.clone()).or_default();
                ties.push((link.clone(), name.clone()));
            }
            let before = opening.previous.first().map_or(0, |link| link.seq);
            let seq = if is_start { 1 } else { before + 1 };
            if is_start {
                starts.entry(opening.segment).or_insert_with(|| name.clone());
            }
            let first = First { seq, is_signed: opening.key.is_some(), previous: opening.previous, is_start };
            openings.insert(name.clone(), first);
        }
        Ok(Ties { names, from, to, openings, starts, last_start })
    }

    fn of(&self, name: &str) -> &[(Link, String)] {
        self.to.get(name).map_or(&[], Vec::as_slice)
    }

    /// An earlier file that stands where this one does: it begins the same process, or goes on from the same file. A process
    /// has one beginning, and each of its files one that follows.
    fn rival(&self, name: &str, opening: &Opening) -> Option<&str> {
        if opening.event == START {
            return self.starts.get(&opening.segment).map(String::as_str).filter(|first| *first != name);
        }
        let goes_on = |by: &String| self.openings.get(by).is_some_and(|first| !first.is_start);
        let before = opening.previous.first().map(|link| self.of(&link.file)).unwrap_or_default();
        before.iter().map(|(_, by)| by).find(|by| by.as_str() < name && goes_on(by)).map(String::as_str)
    }

    fn has(&self, name: &str) -> bool {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
            || self.from.is_some_and(|from| name < from)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// Retention may take files while they are looked at.
const ATTEMPTS: u32 = 5;
const UNSIGNED_MAX: usize = 100;
