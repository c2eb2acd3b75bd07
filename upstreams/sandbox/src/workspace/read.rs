//! Reading a part of a file: by bytes, or by lines.

use super::open::Found;
use super::{Error, Folder, WorkspacePath};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    /// So many bytes, from this one on.
    Bytes {
        /// The first byte, from 0.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// So many lines, from this one on.
    Lines {
        /// The first line, from 1.
        first: u64,
        /// How many.
        n: u64,
    },
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The bytes themselves.
    pub bytes: Vec<u8>,
    /// Where in the file they begin.
    pub offset: u64,
    /// What the file holds, in bytes.
    pub size: u64,
}

/// What is read at once.
const BUFFER: usize = 64 * 1024;
/// How long a line is looked for. A file of no blocks may have any size.
const LOOKING: Duration = Duration::from_secs(10);

impl Folder {
    /// Opens a regular file to read it; with its size.
    ///
    /// # Errors
    /// It is missing, or something else.
    pub(crate) fn open(&self, path: &WorkspacePath) -> Result<(File, u64), Error> {
        let found = Found::at(self.directory.as_fd(), path)?;
        let size = u64::try_from(found.stat.st_size).unwrap_or(0);
        Ok((found.file(path, OFlags::RDONLY)?, size))
    }

    /// Reads `range` of a file, `most` bytes of it at most.
    ///
    /// # Errors
    /// It cannot be read, or `stop` came.
    pub(crate) fn read(
        &self,
        path: &WorkspacePath,
        range: Range,
        most: u64,
        stop: &CancellationToken,
    ) -> Result<Part, Error> {
        let (file, size) = self.open(path)?;
        let read = match range {
            Range::Bytes { offset, length } => bytes(file, offset, length.min(most)),
            Range::Lines { first, n } => lines(file, first, n, most, stop),
        };
        let (bytes, offset) = read.map_err(|error| Error::io("read", path, &error))?;
        // It may have grown meanwhile.
        Ok(Part { size: size.max(offset + bytes.len() as u64), bytes, offset })
    }
}

fn bytes(mut file: File, offset: u64, length: u64) -> io::Result<(Vec<u8>, u64)> {
    let mut read = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(length).read_to_end(&mut read)?;
    Ok((read, offset))
}

fn lines(file: File, first: u64, n: u64, most: u64, stop: &CancellationToken) -> io::Result<(Vec<u8>, u64)> {
    let mut file = BufReader::with_capacity(BUFFER, file);
    let deadline = Instant::now() + LOOKING;
    let mut offset = 0;
    let mut line = 1;
    while line < first {
        if stop.is_cancelled() || Instant::now() >= deadline {
            // ETIME.
            return Err(Errno::TIME.into());
        }
        // Not by the line: one may be as long as the file, and none of it is wanted.
        let buffer = file.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let skipped = end.map_or(buffer.len(), |end| end + 1);
        line += u64::from(end.is_some());
        offset += skipped as u64;
        file.consume(skipped);
    }
    let mut read = Vec::new();
    let mut file = file.take(most);
    for _ in 0..n {
        if file.read_until(b'\n', &mut read)? == 0 {
            break;
        }
    }
    Ok((read, offset))
}
