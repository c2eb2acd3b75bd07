//! HTTP/1.1 messages as bytes: heads, bodies and chunks, read leniently and kept as they came; and the sockets they come on.
//!
//! Not the gateway's own parser, on purpose: what the tests see must not depend on the code under test.

use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Header fields in the order and the case they came in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers(pub(crate) Vec<(String, String)>);

/// A start line and its header fields.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// The request line or status line, without its line end.
    pub(crate) start: String,
    /// The fields after it.
    pub(crate) headers: Headers,
}

impl Headers {
    /// The first field of this name, whatever its case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).into_iter().next()
    }

    /// Every field of this name, whatever its case.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str()).collect()
    }

    fn is_chunked(&self) -> bool {
        self.get("transfer-encoding").is_some_and(|value| value.to_ascii_lowercase().contains("chunked"))
    }

    fn content_length(&self) -> Option<u64> {
        self.get("content-length").and_then(|value| value.trim().parse().ok())
    }
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes, and so many are left.
    Length(u64),
    /// Chunks, ended by an empty one.
    Chunked,
    /// Until the peer closes.
    UntilClose,
    /// Nothing more.
    Done,
}

impl Framing {
    /// The framing of a request's body.
    pub(crate) fn of_request(headers: &Headers) -> Framing {
        match headers.content_length() {
            _ if headers.is_chunked() => Framing::Chunked,
            Some(length) if length > 0 => Framing::Length(length),
            _ => Framing::Done,
        }
    }

    /// The framing of a response's body.
    pub(crate) fn of_response(status: u16, headers: &Headers) -> Framing {
        match headers.content_length() {
            _ if status == 204 || status == 304 || (100..200).contains(&status) => Framing::Done,
            _ if headers.is_chunked() => Framing::Chunked,
            Some(0) => Framing::Done,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        }
    }

    /// The next piece of the body, or `None` at its end. An end that came too early is an error.
    pub(crate) fn piece(&mut self, reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
        match *self {
            Framing::Done => Ok(None),
            Framing::Length(left) => {
                let mut piece = vec![0; usize::try_from(left.min(64 * 1024)).expect("at most 64 KiB")];
                let n = reader.read(&mut piece)?;
                if n == 0 {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        format!("{left} bytes of the body are missing"),
                    ));
                }
                piece.truncate(n);
                *self = if left == n as u64 { Framing::Done } else { Framing::Length(left - n as u64) };
                Ok(Some(piece))
            }
            Framing::Chunked => {
                let piece = read_chunk(reader)?;
                if piece.is_none() {
                    *self = Framing::Done;
                }
                Ok(piece)
            }
            Framing::UntilClose => {
                let mut piece = vec![0; 64 * 1024];
                let n = reader.read(&mut piece)?;
                piece.truncate(n);
                if n == 0 {
                    *self = Framing::Done;
                }
                Ok((n > 0).then_some(piece))
            }
        }
    }

    /// The whole rest of the body.
    pub(crate) fn rest(&mut self, reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(reader)? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }
}

/// Reads a head; `None` when the peer closed before its first byte.
pub(crate) fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Head>> {
    let Some(start) = read_line(reader)? else {
        return Ok(None);
    };
    let mut headers = Headers::default();
    loop {
        let line = read_line(reader)?.ok_or_else(|| cut("the head"))?;
        if line.is_empty() {
            return Ok(Some(Head { start, headers }));
        }
        let (name, value) = line.split_once(':').unwrap_or((line.as_str(), ""));
        headers.0.push((name.to_owned(), value.trim().to_owned()));
    }
}

fn read_chunk(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let line = read_line(reader)?.ok_or_else(|| cut("a chunk's length"))?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    let length =
        u64::from_str_radix(digits, 16).map_err(|_| io::Error::other(format!("not a chunk's length: {line:?}")))?;
    let mut chunk = Vec::new();
    if reader.take(length).read_to_end(&mut chunk)? as u64 != length {
        return Err(cut("a chunk"));
    }
    let end = read_line(reader)?.ok_or_else(|| cut("a chunk's end"))?;
    if !end.is_empty() {
        return Err(io::Error::other(format!("a chunk is longer than it says: {end:?}")));
    }
    Ok((length > 0).then_some(chunk))
}

fn read_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if reader.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        return Err(cut("a line"));
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}

fn cut(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, format!("the peer closed in the middle of {what}"))
}

/// One chunk of a chunked body, ready to be written. Of nothing, it is the end of the body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A connected socket of either kind.
pub(crate) enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a UNIX socket, or in plain on our side of TLS.
    Unix(UnixStream),
}

impl Socket {
    /// A second handle on it.
    pub(crate) fn try_clone(&self) -> io::Result<Socket> {
        Ok(match self {
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
        })
    }

    /// How long a read may wait.
    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(limit),
            Socket::Unix(stream) => stream.set_read_timeout(limit),
        }
    }

    /// Closes one half or both.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.shutdown(how),
            Socket::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(into),
            Socket::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
