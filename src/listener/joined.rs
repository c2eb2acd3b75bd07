//! Small writes joined into one: the head of an answer and a short body leave in the same system call and the same
//! packet. pingora writes them one after the other and flushes when both are there; the stream it is given here has to
//! keep the first that long, as those of pingora's own listeners do.
//!
//! And no write waits for ever: pingora bounds that of a body, but not that of a head, of the end of a body, or of the
//! connection's own end, and a client that takes nothing would hold each of them.

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
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A head and a short answer fit; what is larger goes out by itself, in bytes.
const JOINED: usize = 2048;

/// A stream whose small writes wait for the flush.
#[derive(Debug)]
pub(super) struct Joined {
    stream: BufWriter<Stream>,
    /// How long the client may take nothing before it counts as gone.
    limit: Duration,
    /// Runs while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

// === impl Joined ===

impl Joined {
    /// Joins what is written on `stream`; a write that gets nowhere for `limit` fails, and so do those after it.
    pub(super) fn stream(stream: Stream, limit: Duration) -> Stream {
        Box::new(Joined { stream: BufWriter::with_capacity(JOINED, stream), limit, stall: None })
    }

    fn inner(&self) -> &Stream {
        self.stream.get_ref()
    }

    /// Does a piece of work on the stream, for a while at most where that gets nowhere.
    fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        work: impl FnOnce(Pin<&mut BufWriter<Stream>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let done = work(Pin::new(&mut self.stream), cx);
        if done.is_ready() {
            self.stall = None;
            return done;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        ready!(stall.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl AsyncRead for Joined {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().stream.get_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for Joined {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().bounded(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().bounded(cx, |stream, cx| stream.poll_write_vectored(cx, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().bounded(cx, BufWriter::poll_flush)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().bounded(cx, BufWriter::poll_shutdown)
    }
}

#[async_trait]
impl Shutdown for Joined {
    async fn shutdown(&mut self) {
        // What cannot be sent any more is lost with the connection.
        _ = AsyncWriteExt::shutdown(self).await;
    }
}

impl Peek for Joined {}

impl UniqueID for Joined {
    fn id(&self) -> UniqueIDType {
        self.inner().id()
    }
}

impl Ssl for Joined {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner().get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner().selected_alpn_proto()
    }
}

impl GetTimingDigest for Joined {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner().get_timing_digest()
    }
}

impl GetProxyDigest for Joined {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner().get_proxy_digest()
    }
}

impl GetSocketDigest for Joined {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner().get_socket_digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pingora::protocols::l4::stream::Stream as L4;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::UnixStream;

    const LIMIT: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn what_is_written_leaves_with_the_flush_whole_and_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream = Joined::stream(Box::new(L4::from(ours)), LIMIT);
        let large = vec![b'x'; JOINED * 3];
        stream.write_all(b"head ").await.unwrap();
        stream.write_all(b"body").await.unwrap();
        assert!(theirs.try_read(&mut [0; 16]).is_err(), "nothing has left yet");

        stream.flush().await.unwrap();

        let mut read = vec![0; 64];
        let n = theirs.read(&mut read).await.unwrap();
        assert_eq!(&read[..n], b"head body");
        stream.write_all(b"head ").await.unwrap();
        stream.write_all(&large).await.unwrap();
        stream.flush().await.unwrap();
        Shutdown::shutdown(&mut *stream).await;
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, [b"head ".as_slice(), &large].concat());
    }

    #[tokio::test]
    async fn nothing_waits_for_ever_for_a_client_that_takes_nothing() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut stream = Joined::stream(Box::new(L4::from(ours)), LIMIT);
        let taken = async {
            while stream.write_all(&[b'x'; JOINED * 3]).await.is_ok() {}
            _ = stream.write_all(b"the rest").await;
            assert!(stream.flush().await.is_err());
            // pingora ends a connection so, and not by its own `Shutdown`.
            AsyncWriteExt::shutdown(&mut stream).await.unwrap_err();
        };
        assert!(tokio::time::timeout(LIMIT * 60, taken).await.is_ok());
    }

    #[tokio::test]
    async fn a_client_that_takes_a_little_now_and_then_is_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream = Joined::stream(Box::new(L4::from(ours)), LIMIT);
        let n_sent = 8 * 1024 * 1024;
        let reading = tokio::spawn(async move {
            let (mut piece, mut n) = (vec![0; 1024 * 1024], 0);
            while n < n_sent {
                tokio::time::sleep(LIMIT / 10).await;
                n += theirs.read(&mut piece).await.unwrap();
            }
        });
        for _ in 0..n_sent / 4096 {
            stream.write_all(&[b'x'; 4096]).await.unwrap();
        }
        stream.flush().await.unwrap();
        reading.await.unwrap();
    }
}
