//! The framing of a chunked body (RFC 9112 §7.1), watched while pingora reads it: written in one way only.
//!
//! pingora's reader takes an empty size for zero, and anything but CR within an extension, a lone LF among it, which
//! other readers take for the end of the line. What is watched here is only where the body ends; a byte out of place
//! ends the connection, before another reader's idea of the rest could become a request.

use async_trait::async_trait;
use pingora::protocols::raw_connect::ProxyDigest;
use pingora::protocols::tls::SslDigest;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType,
};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Where in a chunked body the next byte stands.
#[derive(Debug)]
pub(super) struct Chunks {
    next: Next,
    /// Of the chunk's size what was read, or of its data what is to come.
    size: u64,
    /// Digits of the size, or bytes of the extension or of all trailers.
    n: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer,
    InTrailer,
    TrailerLf,
    LastLf,
    Done,
}

/// A byte out of place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misplaced;

/// No length needs more: they would not fit into 64 bits.
const MAX_DIGITS: usize = 16;
/// Nobody needs extensions; they are read over, but not for ever.
const MAX_EXTENSION: usize = 1024;
/// Trailers are dropped.
const MAX_TRAILERS: usize = 16 * 1024;

// === impl Chunks ===

impl Chunks {
    /// Before the first byte.
    pub(super) fn new() -> Self {
        Chunks { next: Next::Size, size: 0, n: 0 }
    }

    /// Takes further bytes. What comes after the body's end is not its concern.
    ///
    /// # Errors
    /// [`Misplaced`]; from then on nothing is in its place.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Misplaced> {
        while let Some((byte, rest)) = bytes.split_first() {
            match self.next {
                Next::Done => return Ok(()),
                Next::Data => {
                    let n = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len());
                    self.size -= n as u64;
                    bytes = &bytes[n..];
                    if self.size == 0 {
                        self.next = Next::DataCr;
                    }
                }
                _ => {
                    self.next = self.step(*byte)?;
                    bytes = rest;
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, byte: u8) -> Result<Next, Misplaced> {
        let next = match (self.next, byte) {
            (Next::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if self.n < MAX_DIGITS => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                (self.size, self.n) = (self.size * 16 + u64::from(digit), self.n + 1);
                Next::Size
            }
            (Next::Size, b'\r') if self.n > 0 => Next::SizeLf,
            (Next::Size, b';' | b' ' | b'\t') if self.n > 0 => {
                self.n = 0;
                Next::Extension
            }
            (Next::Extension, b'\r') => Next::SizeLf,
            (Next::Extension, _) => self.text(byte, MAX_EXTENSION)?,
            (Next::SizeLf, b'\n') => {
                self.n = 0;
                if self.size == 0 { Next::Trailer } else { Next::Data }
            }
            (Next::DataCr, b'\r') => Next::DataLf,
            (Next::DataLf, b'\n') => {
                *self = Chunks::new();
                Next::Size
            }
            (Next::Trailer, b'\r') => Next::LastLf,
            (Next::InTrailer, b'\r') => Next::TrailerLf,
            // A line that begins with a space would continue the one before.
            (Next::Trailer, b'!'..) | (Next::InTrailer, _) => {
                self.text(byte, MAX_TRAILERS)?;
                Next::InTrailer
            }
            (Next::TrailerLf, b'\n') => Next::Trailer,
            (Next::LastLf, b'\n') => Next::Done,
            _ => return Err(Misplaced),
        };
        Ok(next)
    }

    /// A byte of text, of which there may be so many.
    fn text(&mut self, byte: u8, limit: usize) -> Result<Next, Misplaced> {
        self.n += 1;
        let is_text = matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
        if is_text && self.n <= limit { Ok(self.next) } else { Err(Misplaced) }
    }
}

/// A stream of which the next bytes are a chunked body.
#[derive(Debug)]
pub(super) struct Watched {
    stream: Stream,
    chunks: Chunks,
    is_bad: bool,
}

// === impl Watched ===

impl Watched {
    /// Watches what comes on `stream` from here on; `chunks` has seen what was read before.
    pub(super) fn watch(stream: Stream, chunks: Chunks) -> Stream {
        Box::new(Watched { stream, chunks, is_bad: false })
    }

    /// The stream that was given to [`Watched::watch`].
    pub(super) fn release(stream: Stream) -> Option<Stream> {
        stream.into_any().downcast::<Watched>().ok().map(|watched| watched.stream)
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if !this.is_bad {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            this.is_bad = this.chunks.take(&buf.filled()[before..]).is_err();
        }
        if this.is_bad {
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a chunk is not well-formed")));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Watched {
    async fn shutdown(&mut self) {
        Shutdown::shutdown(&mut *self.stream).await;
    }
}

impl Peek for Watched {}

impl UniqueID for Watched {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for Watched {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for Watched {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }
}

impl GetProxyDigest for Watched {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for Watched {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(body: &str) -> Result<bool, Misplaced> {
        let mut chunks = Chunks::new();
        chunks.take(body.as_bytes())?;
        // Cut at every byte, it is the same.
        let mut piecewise = Chunks::new();
        body.as_bytes().iter().try_for_each(|byte| piecewise.take(&[*byte]))?;
        assert_eq!(piecewise.next, chunks.next, "{body:?}");
        Ok(chunks.next == Next::Done)
    }

    #[test]
    fn what_every_reader_takes_alike_is_taken_to_its_end() {
        for body in [
            "0\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\n",
            "00000000000000A\r\n0123\r\n5678\r\n1;a=\"b\"\r\nx\r\n0 \t;x\r\nA: b\r\nC:\r\n\r\n",
            "5\r\nhello\r\n0\r\n\r\nPOST / HTTP/1.1\nand whatever\0",
        ] {
            assert_eq!(taken(body), Ok(true), "{body:?}");
        }
        for cut in ["", "5", "5\r\nhell", "5\r\nhello\r\n0\r\n", "0\r\nA: b\r\n"] {
            assert_eq!(taken(cut), Ok(false), "{cut:?}");
        }
    }

    #[test]
    fn a_byte_out_of_place_is_seen() {
        for body in [
            "\r\n",
            ";a\r\n",
            " 5\r\n",
            "+5\r\n",
            "0x5\r\n",
            "5\n",
            "5\rx",
            "5;a\nb\r\n",
            "5;a\rb\r\n",
            "5;\u{1}\r\n",
            "00000000000000005\r\n",
            "5\r\nhello0\r\n",
            "5\r\nhello\n0\r\n",
            "0\n\r\n",
            "0\r\n\n",
            "0\r\nA: b\n\r\n",
            "0\r\n A: b\r\n\r\n",
            "0\r\nA: \u{0}\r\n\r\n",
        ] {
            assert_eq!(taken(body), Err(Misplaced), "{body:?}");
        }
        assert_eq!(taken(&format!("5;{}", "x".repeat(MAX_EXTENSION + 1))), Err(Misplaced));
        assert_eq!(taken(&format!("0\r\n{}", "a: b\r\n".repeat(MAX_TRAILERS))), Err(Misplaced));
    }
}
