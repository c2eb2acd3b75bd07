//! The log from the oldest record to the newest, over all segments, one line in memory for each that is read at the moment.
//!
//! Segments of several processes overlap in time: what a command did stands in another file than what it did it to. So
//! they are merged by time. Within one segment the order is that of the file, also where the clock was set back.

use super::Error;
use super::directory::{Directory, began_ms};
use super::read::{LONGEST, last_at, printable};
use crate::clock;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::PathBuf;

/// The records of a span of time, in the order of time. See the module.
pub struct Records {
    /// Not begun yet, in the order they were begun.
    waiting: VecDeque<(i64, PathBuf)>,
    open: BinaryHeap<Reverse<Open>>,
    since: Option<String>,
    until: Option<String>,
}

/// A segment that is being read.
struct Open {
    /// The time of `line`, or of one before it that is later.
    at: String,
    line: String,
    path: PathBuf,
    reader: BufReader<File>,
}

impl Records {
    /// Those recorded from `since_ms` to `until_ms` (milliseconds since the Unix epoch). Segments that have none of them
    /// are not read.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn new(directory: &Directory, since_ms: Option<i64>, until_ms: Option<i64>) -> Result<Records, Error> {
        let since = since_ms.map(clock::rfc3339);
        let mut waiting = VecDeque::new();
        for name in directory.segments()? {
            let began = began_ms(&name).unwrap_or(i64::MIN);
            let is_later = until_ms.is_some_and(|until| began > until);
            let is_earlier = match &since {
                Some(since) => last_at(directory, &name)?.is_some_and(|last| last < *since),
                None => false,
            };
            if !is_later && !is_earlier {
                waiting.push_back((began, directory.path.join(name)));
            }
        }
        Ok(Records { waiting, open: BinaryHeap::new(), since, until: until_ms.map(clock::rfc3339) })
    }

    /// Opens the segments that may hold the next record.
    fn begin(&mut self) -> Result<(), Error> {
        while let Some((began, _)) = self.waiting.front() {
            let is_due = self.open.peek().is_none_or(|Reverse(first)| first.at >= clock::rfc3339(*began));
            if !is_due {
                return Ok(());
            }
            let Some((began, path)) = self.waiting.pop_front() else {
                return Ok(());
            };
            match File::open(&path) {
                Ok(file) => {
                    let reader = BufReader::with_capacity(256 * 1024, file);
                    self.add(Open { at: clock::rfc3339(began), line: String::new(), path, reader })?;
                }
                // Its time was over, and it was removed in between.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("open", &path)(error)),
            }
        }
        Ok(())
    }

    /// Goes on to the next line of a segment, if there is one.
    fn add(&mut self, mut segment: Open) -> Result<(), Error> {
        let next = segment.next().map_err(Error::io("read", &segment.path))?;
        if let Some(line) = next {
            if let Some(at) = at(&line).filter(|at| *at > segment.at.as_str()) {
                segment.at = at.to_owned();
            }
            segment.line = line;
            self.open.push(Reverse(segment));
        }
        Ok(())
    }

    fn next_line(&mut self) -> Result<Option<String>, Error> {
        loop {
            self.begin()?;
            let Some(Reverse(mut first)) = self.open.pop() else {
                return Ok(None);
            };
            let line = std::mem::take(&mut first.line);
            self.add(first)?;
            let at = at(&line).unwrap_or_default();
            let is_within = self.since.as_deref().is_none_or(|since| at >= since)
                && self.until.as_deref().is_none_or(|until| at <= until);
            if is_within {
                return Ok(Some(line));
            }
        }
    }
}

impl Iterator for Records {
    type Item = Result<String, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_line().transpose()
    }
}

impl Open {
    fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        (&mut self.reader).take(LONGEST).read_until(b'\n', &mut line)?;
        // Without its line break a line is still being written, or never will be.
        Ok((line.pop() == Some(b'\n')).then(|| printable(&line)))
    }
}

/// When a line says it was recorded. It stands near the beginning, where no value of a stranger does.
pub(super) fn at(line: &str) -> Option<&str> {
    let (_, rest) = line.get(..100)?.split_once("\"at\":\"")?;
    rest.split_once('"').map(|(at, _)| at)
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Open {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at).then_with(|| self.path.cmp(&other.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn log(segments: &[(&str, &[&str])]) -> (tempfile::TempDir, Directory) {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, times) in segments {
            let line = |(n, at): (usize, &&str)| {
                format!(
                    "{{\"seq\":{n},\"at\":\"2026-11-30T{at}.000Z\",\"mono_ms\":0,\"segment\":\"ab\",\"event\":\"decision\",\"of\":\"{name}/{n}\",\"detail\":\"................\"}}\n"
                )
            };
            let text: String = times.iter().enumerate().map(line).collect();
            fs::write(folder.path().join(format!("audit-20261130T{name}.000Z-ab.jsonl")), text).expect("written");
        }
        let directory = Directory::new(folder.path());
        (folder, directory)
    }

    #[track_caller]
    fn check(segments: &[(&str, &[&str])], span: (Option<i64>, Option<i64>), expected: &[&str]) {
        let (_folder, directory) = log(segments);
        let records = Records::new(&directory, span.0, span.1).expect("readable");
        let found: Vec<String> = records
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(&line.expect("readable")).expect("JSON");
                line["of"].as_str().expect("a text").to_owned()
            })
            .collect();
        assert_eq!(found, expected);
    }

    const OVERLAPPING: [(&str, &[&str]); 3] = [
        ("100000", &["10:00:00", "10:00:05", "10:00:20"]),
        ("100003", &["10:00:03", "10:00:04", "10:00:21"]),
        ("110000", &["11:00:00"]),
    ];

    fn ms(time: &str) -> Option<i64> {
        let at: jiff::Timestamp = format!("2026-11-30T{time}Z").parse().expect("a time");
        Some(at.as_millisecond())
    }

    #[test]
    fn segments_that_overlap_are_merged_by_time() {
        let expected = ["100000/0", "100003/0", "100003/1", "100000/1", "100000/2", "100003/2", "110000/0"];
        check(&OVERLAPPING, (None, None), &expected);
    }

    #[test]
    fn only_a_span_of_time_is_read() {
        check(&OVERLAPPING, (ms("10:00:04"), ms("10:00:20")), &["100003/1", "100000/1", "100000/2"]);
        check(&OVERLAPPING, (ms("10:30:00"), None), &["110000/0"]);
        check(&OVERLAPPING, (None, ms("10:00:00")), &["100000/0"]);
        check(&OVERLAPPING, (ms("12:00:00"), None), &[]);
    }

    #[test]
    fn a_clock_that_was_set_back_changes_no_order_within_a_segment() {
        let set_back: [(&str, &[&str]); 2] =
            [("100000", &["10:00:00", "10:00:30", "09:00:00", "10:00:31"]), ("100010", &["10:00:10", "10:00:40"])];
        check(&set_back, (None, None), &["100000/0", "100010/0", "100000/1", "100000/2", "100000/3", "100010/1"]);
    }
}
