//! What a command writes: its beginning and its end are kept, all of it is read and counted. A command that writes more
//! than anybody wants to see is not held up, and fills nothing. It is data: nothing in it is changed but what is not
//! UTF-8, and that is said.

use crate::words::grouped;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;

/// How far a command has come; the newest is enough.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Bytes that it has written to stdout and stderr.
    pub n_written: u64,
    /// The last line it wrote, whole or not, cut to 200 characters.
    pub last_line: String,
}

/// What was kept of an output: its beginning and its end.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// The beginning.
    pub head: Vec<u8>,
    /// The end, where something between was left out.
    pub tail: Vec<u8>,
    /// All that was written, in bytes.
    pub total: u64,
}

/// The same as text.
pub struct Text {
    /// With a line in the middle that says how much was left out, where that is so.
    pub text: String,
    /// Whether the middle was left out.
    pub is_cut: bool,
    /// Whether something was not UTF-8, and stands as U+FFFD.
    pub is_replaced: bool,
}

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// Characters of the last line that are told.
const LINE: usize = 200;

/// What was kept so far. Clones are the same one, so that what was read is there even if the reading never ends.
#[derive(Clone)]
pub struct Output(Arc<Mutex<Kept>>);

struct Kept {
    cap: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
}

impl Output {
    /// Nothing yet; `cap` bytes are to be kept, half of them of the beginning.
    pub fn new(cap: u64) -> Output {
        let cap = usize::try_from(cap).unwrap_or(usize::MAX);
        Output(Arc::new(Mutex::new(Kept { cap, head: Vec::new(), tail: VecDeque::new(), total: 0 })))
    }

    /// Reads `from` until it ends.
    pub async fn read(self, mut from: impl AsyncRead + Unpin, progress: watch::Sender<Progress>) {
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk).await {
                Ok(0) | Err(_) => return,
                Ok(n) => self.push(&chunk[..n], &progress),
            }
        }
    }

    /// Takes what came.
    pub fn push(&self, bytes: &[u8], progress: &watch::Sender<Progress>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        progress.send_modify(|told| tell(told, bytes));
    }

    /// What was kept.
    pub fn captured(&self) -> Captured {
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

impl Captured {
    /// As text, with what was left out said in its place.
    pub fn text(&self) -> Text {
        let n_kept = self.head.len() as u64 + self.tail.len() as u64;
        if self.total <= n_kept {
            let whole = [self.head.as_slice(), &self.tail].concat();
            let text = String::from_utf8_lossy(&whole);
            return Text { is_replaced: matches!(text, Cow::Owned(_)), text: text.into_owned(), is_cut: false };
        }
        // A character that was cut in two is left out whole.
        let head = &self.head[..self.head.len() - unfinished(&self.head)];
        let begun = self.tail.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
        let tail = &self.tail[begun..];
        let n_left_out = self.total - (head.len() + tail.len()) as u64;
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        let is_replaced = [&head, &tail].iter().any(|text| matches!(text, Cow::Owned(_)));
        Text {
            text: format!("{head}\n… {} bytes left out …\n{tail}", grouped(n_left_out)), is_cut: true, is_replaced
        }
    }
}

/// How many bytes at the end of `bytes` are the beginning of a character.
pub fn unfinished(bytes: &[u8]) -> usize {
    for n in 1..=bytes.len().min(3) {
        let needed = match bytes[bytes.len() - n] {
            byte if byte & 0xc0 == 0x80 => continue,
            byte if byte & 0xe0 == 0xc0 => 2,
            byte if byte & 0xf0 == 0xe0 => 3,
            byte if byte & 0xf8 == 0xf0 => 4,
            _ => 0,
        };
        return if needed > n { n } else { 0 };
    }
    0
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
            output.push(piece, &watch::Sender::new(Progress::default()));
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

    #[test]
    fn the_beginning_of_a_character_is_known_as_such() {
        for (bytes, n) in [
            (b"abc".as_slice(), 0),
            ("aä".as_bytes(), 0),
            (&"aä".as_bytes()[..2], 1),
            (&"€".as_bytes()[..2], 2),
            (&"😀".as_bytes()[..3], 3),
            ("😀".as_bytes(), 0),
            (b"\x80\x80\x80\x80", 0),
            (b"\xff", 0),
            (b"", 0),
        ] {
            assert_eq!(unfinished(bytes), n, "{bytes:?}");
        }
    }
}
