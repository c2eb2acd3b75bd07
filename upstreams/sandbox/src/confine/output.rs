//! What a command writes: its beginning and its end are kept, all of it is read and counted. A command that writes more
//! than anybody wants to see is not held up, and fills nothing.

use super::{Captured, Progress};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// Characters of the last line that are told.
const LINE: usize = 200;

/// What was kept so far. Clones are the same one, so that what was read is there even if the reading never ends.
#[derive(Clone)]
pub(super) struct Output(Arc<Mutex<Kept>>);

struct Kept {
    cap: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Output {
    /// Nothing yet; `cap` bytes are to be kept, half of them of the beginning.
    pub(super) fn new(cap: u64) -> Output {
        let cap = usize::try_from(cap).unwrap_or(usize::MAX);
        Output(Arc::new(Mutex::new(Kept { cap, head: Vec::new(), tail: VecDeque::new(), total: 0 })))
    }

    /// Reads `from` until it ends.
    pub(super) async fn read(self, mut from: impl AsyncRead + Unpin, progress: watch::Sender<Progress>) {
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(n) => {
                    self.push(&chunk[..n]);
                    progress.send_modify(|told| tell(told, &chunk[..n]));
                }
            }
        }
    }

    fn push(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
    }

    /// What was kept.
    pub(super) fn captured(&self) -> Captured {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).captured()
    }
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let to_head = bytes.len().min((self.cap / 2).saturating_sub(self.head.len()));
        self.head.extend_from_slice(&bytes[..to_head]);
        let rest = &bytes[to_head..];
        let cap = self.cap - self.cap / 2;
        let rest = &rest[rest.len().saturating_sub(cap)..];
        let too_many = (self.tail.len() + rest.len()).saturating_sub(cap);
        self.tail.drain(..too_many);
        self.tail.extend(rest);
    }

    fn captured(&mut self) -> Captured {
        let (mut head, mut tail) = (self.head.clone(), Vec::from(self.tail.clone()));
        if self.total == (head.len() + tail.len()) as u64 {
            head.append(&mut tail);
        }
        Captured { head, tail, total: self.total }
    }
}

/// The last line with something in it. A line that came in two pieces is told by its last one.
fn tell(told: &mut Progress, bytes: &[u8]) {
    told.n_written += bytes.len() as u64;
    // A character has four bytes at most.
    let end = bytes.trim_ascii_end();
    let begin = end.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
    let line = &end[begin..];
    if !line.is_empty() {
        told.last_line = String::from_utf8_lossy(&line[..line.len().min(4 * LINE)]).chars().take(LINE).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(cap: u64, pieces: &[&[u8]]) -> Captured {
        let output = Output::new(cap);
        for piece in pieces {
            output.push(piece);
        }
        output.captured()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let kept = captured(10, &[b"01234", b"56789"]);

        assert_eq!((kept.head.as_slice(), kept.tail.as_slice(), kept.total), (&b"0123456789"[..], &b""[..], 10));
    }

    #[test]
    fn what_does_not_fit_leaves_out_the_middle_however_it_came() {
        for pieces in [&[&b"0123456789ab"[..]][..], &[b"0", b"123", b"456789a", b"b"], &[b"0123456789", b"a", b"b"]] {
            let kept = captured(10, pieces);

            assert_eq!((kept.head.as_slice(), kept.tail.as_slice(), kept.total), (&b"01234"[..], &b"789ab"[..], 12));
        }
    }

    #[test]
    fn the_last_line_with_something_in_it_is_told() {
        let mut told = Progress::default();
        for (bytes, line) in [
            (&b"one\ntwo\n\n"[..], "two"),
            (b"\n", "two"),
            (b"10%\r20%\r", "20%"),
            (b"no end", "no end"),
            (b"\xff\n", "\u{fffd}"),
        ] {
            tell(&mut told, bytes);

            assert_eq!(told.last_line, line);
        }
        assert_eq!(told.n_written, 26);
        tell(&mut told, "ä".repeat(1000).as_bytes());
        assert_eq!(told.last_line.chars().count(), 200);
    }
}
