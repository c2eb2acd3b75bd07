//! HTTP/1: one request after the other on a connection.

use super::Listener;
use super::chunks::{Chunks, Misplaced, Watched};
use super::head::{self, End, Fault};
use super::joined::Joined;
use super::refuse;
use super::room::Guest;
use bytes::BytesMut;
use pingora::apps::HttpServerApp;
use pingora::protocols::Stream;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout};

/// Serves a connection until one side has had enough. `bytes` is what was read of it already.
pub(super) async fn serve<A>(
    listener: &Listener<A>,
    mut stream: Stream,
    mut bytes: BytesMut,
    guest: &mut Guest,
    mut until: Instant,
    mut stop: ShutdownWatch,
) where
    A: HttpServerApp + Send + Sync + 'static,
{
    stream = Joined::stream(stream, listener.snapshots.load().config.timeouts.write.duration());
    loop {
        let limit = listener.snapshots.load().config.limits.head.bytes();
        let chunks = match begin(&mut stream, &mut bytes, until, limit).await {
            Ok(chunks) => chunks,
            Err(End::Gone) => return,
            Err(End::Refused(fault)) => {
                listener.refused(fault.row().0);
                return refuse::answer(stream, fault, listener.clock.unix_seconds()).await;
            }
        };
        if !guest.asks() {
            return;
        }
        let is_chunked = chunks.is_some();
        if let Some(chunks) = chunks {
            stream = Watched::watch(stream, chunks);
        }
        let mut session = ServerSession::new_http1(stream);
        // Some value: without one pingora would not keep the connection whatever the application says.
        session.set_keepalive((!*stop.borrow()).then_some(60));
        session.set_pipelining_enabled(true);
        session.set_pipelined_prefix(bytes);
        let Some(reused) = listener.app.process_new_http(session, &stop).await else {
            return;
        };
        let (given_back, settings) = reused.consume();
        let given_back = if is_chunked { Watched::release(given_back) } else { Some(given_back) };
        stream = given_back.expect("a session gives back the stream it was given");
        bytes = settings.and_then(|mut settings| settings.take_user_context()).map_or_else(BytesMut::new, unread);
        guest.rests();
        let times = &listener.snapshots.load_full().config.timeouts;
        if bytes.is_empty() {
            let wait = timeout(times.keep_alive.duration(), stream.read_buf(&mut bytes));
            let n_read = tokio::select! {
                // Nobody waits for an answer here.
                _ = stop.wait_for(|is_stopping| *is_stopping) => return,
                read = wait => read,
            };
            if !matches!(n_read, Ok(Ok(1..))) {
                return;
            }
        }
        // What comes now has begun: from here on the head's time runs, however it trickles.
        until = Instant::now() + times.head.duration();
    }
}

/// Reads a head; where a body in chunks follows, gives what watches it, which has seen what was read of it already.
async fn begin(stream: &mut Stream, bytes: &mut BytesMut, until: Instant, limit: usize) -> Result<Option<Chunks>, End> {
    let head = head::read(stream, bytes, until, limit).await?;
    if !head.is_chunked {
        return Ok(None);
    }
    let mut chunks = Chunks::new();
    let taken = chunks.take(&bytes[head.length..]);
    taken.map_err(|Misplaced| End::Refused(Fault::Malformed("a chunk of its body is not well-formed")))?;
    Ok(Some(chunks))
}

/// What the application's session had read beyond its request (`web::give_back`).
fn unread(context: Box<dyn std::any::Any + Send + Sync>) -> BytesMut {
    context.downcast().map_or_else(|_| BytesMut::new(), |bytes| *bytes)
}
