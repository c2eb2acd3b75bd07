//! HTTP/1.1, as far as a loader and a stub that know each other need it.

use memchr::memmem;

/// Where the body begins, once the head is complete.
pub fn head_end(bytes: &[u8]) -> Option<usize> {
    memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// The value of a header; `name` in lower case.
pub fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let head = str::from_utf8(head).ok()?;
    head.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The status of a response's head.
pub fn status(head: &[u8]) -> Option<u16> {
    str::from_utf8(head.get(9..12)?).ok()?.parse().ok()
}

/// Takes a chunked body apart as it comes.
#[derive(Default)]
pub struct Chunked {
    state: State,
    left: usize,
}

#[derive(Default, PartialEq)]
enum State {
    /// In a chunk's length.
    #[default]
    Size,
    /// Behind the length, before the line's end.
    SizeEnd,
    Data,
    /// Between a chunk's data and the next length.
    DataEnd,
    /// In the line after the last chunk.
    Last,
    Done,
}

impl Chunked {
    /// Adds the data in `input` to `body`. Returns whether the body is complete, or `None` where it is no chunked body.
    pub fn push(&mut self, mut input: &[u8], body: &mut Vec<u8>) -> Option<bool> {
        while let Some(byte) = input.first().copied() {
            match self.state {
                State::Data => {
                    let n = self.left.min(input.len());
                    body.extend_from_slice(&input[..n]);
                    self.left -= n;
                    input = &input[n..];
                    if self.left == 0 {
                        self.state = State::DataEnd;
                    }
                    continue;
                }
                State::Size => match byte {
                    b'\r' => {}
                    b'\n' => self.state = if self.left == 0 { State::Last } else { State::Data },
                    b';' => self.state = State::SizeEnd,
                    _ => self.left = self.left.checked_mul(16)? + char::from(byte).to_digit(16)? as usize,
                },
                State::SizeEnd if byte == b'\n' => {
                    self.state = if self.left == 0 { State::Last } else { State::Data };
                }
                State::DataEnd if byte == b'\n' => self.state = State::Size,
                State::Last if byte == b'\n' => self.state = State::Done,
                State::Done => return None,
                State::SizeEnd | State::DataEnd | State::Last => {}
            }
            input = &input[1..];
        }
        Some(self.state == State::Done)
    }
}
