//! What differs where an upstream speaks HTTP/2: one connection carries many requests, each as a stream.

use super::Error;
use http::header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, Uri};
use pingora::ErrorType;
use pingora::RetryType;
use pingora::connectors::http::Connector;
use pingora::http::RequestHeader;
use pingora::protocols::http::client::HttpSession;
use pingora::upstreams::peer::{ALPN, HttpPeer, PeerOptions};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// Requests at once on one connection; a server may allow fewer. Ten thousand idle streams share a hundred connections.
const MAX_STREAMS: usize = 100;
/// What a server may send on one stream before we have passed it on: all that a slow client of ours can make us keep.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Room for every stream's window and one more, so that streams whose clients take nothing leave the others theirs.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * (MAX_STREAMS as u32 + 1);
/// A connection whose server has silently gone is found out after this long and a few seconds.
const PING: Duration = Duration::from_secs(30);

/// Which versions of HTTP an upstream is offered. Over TLS the server chooses (ALPN); in plain it must be known (RFC 9113 §3.3).
pub(super) fn versions(is_tls: bool, http2: Option<bool>) -> ALPN {
    match (is_tls, http2) {
        (true, Some(false)) | (false, None | Some(false)) => ALPN::H1,
        (true, None | Some(true)) => ALPN::H2H1,
        (false, Some(true)) => ALPN::H2,
    }
}

/// Fills in what holds for HTTP/2; without effect on HTTP/1.
pub(super) fn fill(options: &mut PeerOptions, versions: &ALPN) {
    options.alpn = versions.clone();
    options.max_h2_streams = MAX_STREAMS;
    options.h2_stream_window_size = Some(STREAM_WINDOW);
    options.h2_connection_window_size = Some(CONNECTION_WINDOW);
    options.h2_ping_interval = Some(PING);
}

/// The head of a request as HTTP/2 has it: scheme and authority are part of the target, and nothing speaks of the
/// connection (RFC 9113 §8.2.2, §8.3.1).
pub(super) fn head(mut head: RequestHeader, is_tls: bool) -> Result<RequestHeader, Error> {
    let bad = |what: &str| Error::Malformed(format!("no request for HTTP/2 can be made: {what}"));
    let host = head.headers.get(HOST).ok_or_else(|| bad("no host"))?;
    let authority = Authority::try_from(host.as_bytes()).map_err(|why| bad(&why.to_string()))?;
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let scheme = if is_tls { Scheme::HTTPS } else { Scheme::HTTP };
    let target = Uri::builder().scheme(scheme).authority(authority).path_and_query(path);
    head.set_uri(target.build().map_err(|why| bad(&why.to_string()))?);
    const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
    const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
    for name in [HOST, CONNECTION, TE, TRANSFER_ENCODING, UPGRADE, PROXY_CONNECTION, KEEP_ALIVE] {
        head.remove_header(&name);
    }
    Ok(head)
}

/// Whether the server says that it has not looked at the request: it refused the stream, or goes away and names an
/// earlier one as its last (RFC 9113 §8.7). Only then may anything be sent again.
pub(super) fn is_unprocessed(error: &pingora::BError) -> bool {
    // pingora decides so for these two and, under other names, for what is not safe for every call.
    *error.etype() == ErrorType::H2Error && matches!(error.retry, RetryType::Decided(true))
}

/// A session with an upstream. An HTTP/2 one that is dropped, for whatever reason, ends its stream only: the connection
/// it shares with others goes back to the pool.
pub(super) struct Lease {
    session: Option<HttpSession>,
    peer: HttpPeer,
    connector: Arc<Connector>,
    idle: Duration,
}

// === impl Lease ===

impl Lease {
    /// Boxed: it is carried through every step of a call, and is large.
    pub(super) fn new(session: HttpSession, peer: HttpPeer, connector: &Arc<Connector>, idle: Duration) -> Box<Self> {
        Box::new(Lease { session: Some(session), peer, connector: Arc::clone(connector), idle })
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.session, Some(HttpSession::H2(_)))
    }

    /// Gives the connection back: its answer was read to its end.
    pub(super) async fn release(mut self: Box<Self>) {
        if let Some(session) = self.session.take() {
            self.connector.release_http_session(session, &self.peer, Some(self.idle)).await;
        }
    }
}

impl Deref for Lease {
    type Target = HttpSession;

    fn deref(&self) -> &HttpSession {
        self.session.as_ref().expect("a lease has its session until it is given up")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut HttpSession {
        self.session.as_mut().expect("a lease has its session until it is given up")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(session @ HttpSession::H2(_)) = self.session.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (connector, peer, idle) = (Arc::clone(&self.connector), self.peer.clone(), self.idle);
            // It ends at once: pingora keeps a list of connections, and nothing of it is awaited for HTTP/2.
            runtime.spawn(async move { connector.release_http_session(session, &peer, Some(idle)).await });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_for_http_2_names_its_authority_and_nothing_of_the_connection() {
        let mut plain = RequestHeader::build("POST", b"/mcp?a=b", None).expect("a head");
        for (name, value) in
            [("host", "up.test:81"), ("connection", "x-a"), ("te", "trailers"), ("accept", "a/b"), ("keep-alive", "1")]
        {
            plain.insert_header(name, value).expect("a field");
        }

        let made = head(plain, false).expect("it can be made");

        assert_eq!(made.uri, "http://up.test:81/mcp?a=b");
        let names: Vec<&str> = made.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept"]);
    }

    #[test]
    fn in_plain_http_2_is_spoken_only_where_it_is_said_and_over_tls_unless_it_is_forbidden() {
        assert_eq!(versions(true, None), ALPN::H2H1);
        assert_eq!(versions(true, Some(true)), ALPN::H2H1);
        assert_eq!(versions(true, Some(false)), ALPN::H1);
        assert_eq!(versions(false, None), ALPN::H1);
        assert_eq!(versions(false, Some(true)), ALPN::H2);
    }
}
