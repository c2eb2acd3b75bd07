//! Small writes joined into one: the head of an answer and a short body leave in the same system call and the same
//! packet. pingora writes them one after the other and flushes when both are there; the stream it is given here has to
//! keep the first that long, as those of pingora's own listeners do.

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
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufWriter, ReadBuf};

/// A head and a short answer fit; what is larger goes out by itself, in bytes.
const JOINED: usize = 2048;

/// A stream whose small writes wait for the flush.
#[derive(Debug)]
pub(super) struct Joined(BufWriter<Stream>);

// === impl Joined ===

impl Joined {
    /// Joins what is written on `stream`.
    pub(super) fn stream(stream: Stream) -> Stream {
        Box::new(Joined(BufWriter::with_capacity(JOINED, stream)))
    }

    fn inner(&self) -> &Stream {
        self.0.get_ref()
    }
}

impl AsyncRead for Joined {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().0.get_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for Joined {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Joined {
    async fn shutdown(&mut self) {
        // What cannot be sent any more is lost with the connection.
        _ = self.0.flush().await;
        Shutdown::shutdown(&mut **self.0.get_mut()).await;
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

    #[tokio::test]
    async fn what_is_written_leaves_with_the_flush_whole_and_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut stream = Joined::stream(Box::new(L4::from(ours)));
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
}
