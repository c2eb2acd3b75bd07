//! HTTP/2: many requests at once on a connection, each as a stream of its own.

use super::Listener;
use super::room::Guest;
use bytes::BytesMut;
use pingora::apps::HttpServerApp;
use pingora::protocols::http::ServerSession;
use pingora::protocols::http::v2::server::{self, H2Accept, H2Options, HttpSession, default_h2_options};
use pingora::protocols::l4::stream::Stream as Socket;
use pingora::protocols::{Digest, Stream};
use pingora::server::ShutdownWatch;
use std::sync::Arc;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;

/// What an HTTP/2 client says first (RFC 9113 §3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a client may send on one stream before we have read it. Bodies of MCP are small; larger ones take more round trips.
const STREAM_WINDOW: u32 = 64 * 1024;
/// What we hold of one answer that the client does not take; then the upstream waits.
const SEND_BUFFER: usize = 64 * 1024;
/// Requests that are no HTTP, before the connection is cut.
const MAX_MALFORMED: usize = 32;
/// Streams that a client has reset leave their tasks behind for a moment; so many, times the streams it may open, are borne.
const MAX_LEFT_BEHIND: usize = 2;

/// Whether the client begins as HTTP/2 does (prior knowledge, RFC 9113 §3.3); what was read is in `bytes`. `None`: it left.
pub(super) async fn is_spoken(stream: &mut Socket, bytes: &mut BytesMut, until: Instant) -> Option<bool> {
    loop {
        if bytes.len() >= PREFACE.len() || !PREFACE.starts_with(bytes) {
            return Some(bytes.starts_with(PREFACE));
        }
        match timeout_at(until, stream.read_buf(bytes)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0) | Err(_)) => return None,
            // The head's own reader says what is to be said about slowness.
            Err(_) => return Some(false),
        }
    }
}

/// Serves a connection until the client leaves, is idle for too long, or we stop and its streams have ended.
pub(super) async fn serve<A>(
    listener: &Listener<A>,
    stream: Stream,
    guest: &mut Guest,
    until: Instant,
    mut stop: ShutdownWatch,
) where
    A: HttpServerApp + Send + Sync + 'static,
{
    let config = &listener.snapshots.load_full().config;
    let (idle, max_streams) = (config.timeouts.keep_alive.duration(), config.limits.streams);
    let digest = Arc::new(digest_of(&stream));
    let options = options(max_streams, config.limits.head.bytes());
    let Ok(Ok(mut connection)) = timeout_at(until, server::handshake(stream, Some(options))).await else {
        return listener.refused("http2");
    };
    let mut streams = JoinSet::new();
    let mut n_malformed = 0;
    let mut is_stopping = false;
    loop {
        let accepted = tokio::select! {
            biased;
            // Tells the client to open no further streams here; those that are open go on (RFC 9113 §6.8).
            _ = stop.wait_for(|is_stopping| *is_stopping), if !is_stopping => {
                connection.graceful_shutdown();
                is_stopping = true;
                continue;
            }
            Some(ended) = streams.join_next() => {
                super::note(&ended);
                if streams.is_empty() {
                    guest.rests();
                }
                continue;
            }
            // Also drives the connection: frames of every stream are read and written in here.
            accepted = HttpSession::from_h2_conn(&mut connection, Arc::clone(&digest)) => accepted,
            () = sleep(idle), if streams.is_empty() => return,
        };
        match accepted {
            Ok(Some(H2Accept::Session(session))) => {
                if !guest.asks() {
                    return;
                }
                let (app, stop) = (Arc::clone(&listener.app), stop.clone());
                streams.spawn(async move {
                    app.process_new_http(ServerSession::new_http2(session), &stop).await;
                });
            }
            Ok(Some(H2Accept::Rejected)) => {
                listener.refused("request.malformed");
                n_malformed += 1;
            }
            Ok(None) => break,
            Err(error) => {
                debug!(%error, "an HTTP/2 connection broke");
                break;
            }
        }
        if n_malformed >= MAX_MALFORMED || streams.len() > max_streams as usize * MAX_LEFT_BEHIND {
            listener.refused("http2");
            break;
        }
    }
    // Their client is gone, which each of them notices and writes down.
    streams.detach_all();
}

/// What is known of a connection, for each request on it.
fn digest_of(stream: &Stream) -> Digest {
    Digest {
        ssl_digest: stream.get_ssl_digest(),
        timing_digest: stream.get_timing_digest(),
        proxy_digest: stream.get_proxy_digest(),
        socket_digest: stream.get_socket_digest(),
    }
}

/// A stream whose data nobody reads holds no more than its own window. The connection's window is the sum of all of
/// them and one more: however many streams lie idle with unread data, a further one can still send its whole window,
/// so none can starve a POST. This is also the most that one connection can make us keep of unread data: 6.3 MiB with
/// a hundred streams.
fn options(max_streams: u32, max_head: usize) -> H2Options {
    let mut options = default_h2_options();
    options
        .max_concurrent_streams(max_streams)
        .max_header_list_size(u32::try_from(max_head).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW.saturating_mul(max_streams.saturating_add(1)).min(MAX_WINDOW))
        .max_send_buffer_size(SEND_BUFFER);
    options
}

/// RFC 9113 §6.9.1.
const MAX_WINDOW: u32 = (1 << 31) - 1;
