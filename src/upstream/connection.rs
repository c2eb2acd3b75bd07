//! One request to an upstream and the head of its answer, over a pooled connection.
//!
//! Every request is built from nothing: a client's header gets here only if the data path names it.

use super::http2::{self, Lease};
use super::{Error, Shared, Upstream};
use crate::glance::glance;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use pingora::ErrorType;
use pingora::http::RequestHeader;
use pingora::upstreams::peer::HttpPeer;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

const AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"));
const BOTH_TYPES: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// A repeatable request is tried this often where pooled connections turn out dead.
const MAX_TRIES: usize = 3;
/// A redirect to the upstream itself (`/mcp` to `/mcp/`) is followed this often.
const MAX_REDIRECTS: usize = 2;

/// What is sent: the body, and the few headers that depend on the call.
pub struct Request {
    /// `POST` for a message, `GET` for a stream, `DELETE` to end a session.
    pub method: Method,
    /// The JSON-RPC message, as judged.
    pub body: Bytes,
    /// `MCP-Protocol-Version`, `Mcp-Session-Id`, `Mcp-Method` and the like.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether it may be sent again when a pooled connection died before any answer.
    pub is_repeatable: bool,
    /// Whether the answer may stay silent and open for as long as the client likes: a stream that waits for news.
    pub is_lasting: bool,
    /// Whether a redirect to the upstream itself is followed, which sends it again.
    pub follows_redirects: bool,
}

type Header = (HeaderName, HeaderValue);

/// How a request is sent; a borrowed bundle, so that data path and our own client use the same way.
pub struct Send<'a> {
    /// The upstream.
    pub upstream: &'a Upstream,
    /// The pool.
    pub shared: &'a Shared,
}

/// The head of an answer; the body is read from it piece by piece.
pub struct Answer {
    /// HTTP status.
    pub status: StatusCode,
    /// `Content-Type`, as sent.
    pub content_type: Option<HeaderValue>,
    /// `Mcp-Session-Id`, as sent; an empty one is none.
    pub session: Option<HeaderValue>,
    /// Boxed: an answer is handed from step to step, and is waited for long.
    session_http: Box<Lease>,
    /// `None` for an answer that lasts.
    limits: Option<Limits>,
}

/// How long an answer may take.
struct Limits {
    idle: Duration,
    deadline: Instant,
    total: Duration,
}

// === impl Send ===

impl Send<'_> {
    /// Sends `request` and waits for the head of the answer.
    ///
    /// # Errors
    /// [`Error`]. A request that is not repeatable is never sent twice, whatever happens to the connection.
    pub async fn send(&self, request: &Request) -> Result<Answer, Error> {
        let began = Instant::now();
        let answer = self.send_there(request).await?;
        self.shared.metrics.upstream_answered_after(&self.upstream.name, began.elapsed().as_secs_f64());
        Ok(answer)
    }

    async fn send_there(&self, request: &Request) -> Result<Answer, Error> {
        match &self.upstream.local {
            None => self.send_with(request, None).await,
            Some(process) => {
                let pass = process.pass().await?;
                tokio::select! {
                    answer = self.send_with(request, Some(&pass.header)) => answer,
                    () = pass.over() => Err(Error::Lost { cause: "its process ended".to_owned(), has_answered: false }),
                }
            }
        }
    }

    async fn send_with(&self, request: &Request, pass: Option<&Header>) -> Result<Answer, Error> {
        let deadline = Instant::now() + self.upstream.timeouts.total;
        let mut path = self.upstream.target.path.clone();
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.send_to(&path, request, pass, deadline).await?;
            let Some(location) = answer.redirect() else {
                return Ok(answer);
            };
            if !request.follows_redirects {
                return Err(Error::Redirect(without_query(&location)));
            }
            path = self.own_path(&location).ok_or_else(|| Error::Redirect(without_query(&location)))?;
        }
        Err(Error::Redirect(without_query(&path)))
    }

    async fn send_to(
        &self,
        path: &str,
        request: &Request,
        pass: Option<&Header>,
        deadline: Instant,
    ) -> Result<Answer, Error> {
        let limit = self.upstream.timeouts.answer;
        let mut tries = 1;
        loop {
            let (session, is_reused) = self.connect().await?;
            self.shared.metrics.upstream_connection(&self.upstream.name, is_reused);
            let sent = timeout(limit, pin!(self.try_once(path, request, pass, session))).await;
            match sent.map_err(|_| Error::Timeout { what: "answer", limit })? {
                Ok(session_http) => {
                    let deadline = (!request.is_lasting).then_some(deadline);
                    return Ok(self.answer(session_http, deadline));
                }
                Err(Error::Lost { has_answered: false, .. })
                    if is_reused && request.is_repeatable && tries < MAX_TRIES =>
                {
                    tries += 1;
                }
                // The server says itself that it has not run, whatever it is.
                Err(Error::Unprocessed(_)) if tries < MAX_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// A connection to the first of the upstream's addresses that accepts.
    async fn connect(&self) -> Result<(Box<Lease>, bool), Error> {
        let mut n_tried = 0;
        loop {
            let peer = self.upstream.dial.peer().await?;
            n_tried += 1;
            match self.connect_to(&peer).await {
                Ok(connected) => return Ok(connected),
                // A shared connection went while a stream was to be opened on it: nothing was sent yet.
                Err(Error::Unprocessed(_)) if n_tried < MAX_TRIES => {}
                Err(Error::Connect(_)) if n_tried < self.upstream.dial.put_back(&peer) => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn connect_to(&self, peer: &HttpPeer) -> Result<(Box<Lease>, bool), Error> {
        let limit = self.upstream.dial.connect_limit();
        // Boxed: dialling is by far the largest part of a call, and would be moved about with every future around it.
        let connected = timeout(limit, Box::pin(self.shared.connector.get_http_session(peer))).await;
        let connected = connected.map_err(|_| Error::Timeout { what: "connection", limit })?;
        let lease =
            |session| Lease::new(session, peer.clone(), &self.shared.connector, self.upstream.dial.idle_limit());
        connected.map(|(session, is_reused)| (lease(session), is_reused)).map_err(|error| match error.etype() {
            ErrorType::TLSHandshakeFailure | ErrorType::InvalidCert | ErrorType::TLSWantX509Lookup => {
                Error::Tls(error.to_string())
            }
            ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => {
                Error::Timeout { what: "connection", limit }
            }
            ErrorType::H2Error => Error::Unprocessed(error.to_string()),
            _ => Error::Connect(error.to_string()),
        })
    }

    async fn try_once(
        &self,
        path: &str,
        request: &Request,
        pass: Option<&Header>,
        mut session: Box<Lease>,
    ) -> Result<Box<Lease>, Error> {
        let mut head = self.head(path, request, pass)?;
        if session.is_http2() {
            head = http2::head(head, self.upstream.dial.is_tls())?;
        }
        if let Err(broken) = session.write_request_header(Box::new(head)).await {
            // HTTP/2 only queues it here: it fails where the connection has just gone, and nothing was sent.
            let is_unsent = session.is_http2() && *broken.etype() == ErrorType::H2Error;
            let unsent = is_unsent.then(|| Error::Unprocessed(broken.to_string()));
            return Err(if let Some(unsent) = unsent { unsent } else { why_broken(&mut session, broken).await });
        }
        if let Err(broken) = write_body(&mut session, request.body.clone()).await
            // A stream that ended meanwhile still says why, or holds an answer that needed no more of the request.
            && (!session.is_http2() || *broken.etype() == ErrorType::WriteTimedout)
        {
            return Err(why_broken(&mut session, broken).await);
        }
        loop {
            session.read_response_header().await.map_err(before_answer)?;
            let status = session.response_header().map(|head| head.status);
            if !status.is_some_and(|status| status.is_informational()) {
                return Ok(session);
            }
        }
    }

    fn head(&self, path: &str, request: &Request, pass: Option<&Header>) -> Result<RequestHeader, Error> {
        let bad = |error: pingora::BError| Error::Malformed(error.to_string());
        let mut head = RequestHeader::build_no_case(request.method.clone(), path.as_bytes(), Some(16)).map_err(bad)?;
        let is_post = request.method == Method::POST;
        let accept = if request.method == Method::GET { STREAM } else { BOTH_TYPES };
        let of_body = is_post.then(|| {
            let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
            [kind, (CONTENT_LENGTH, HeaderValue::from(request.body.len()))]
        });
        let fixed = [
            (HOST, self.upstream.target.host.clone()),
            (USER_AGENT, HeaderValue::from_static(AGENT)),
            (ACCEPT, accept),
        ];
        let fixed = fixed.into_iter().chain(of_body.into_iter().flatten());
        let given = request.headers.iter().cloned();
        let configured = self.upstream.headers.iter().cloned();
        for (name, value) in fixed.chain(given).chain(configured).chain(pass.cloned()) {
            head.insert_header(name, value).map_err(bad)?;
        }
        Ok(head)
    }

    fn answer(&self, session_http: Box<Lease>, deadline: Option<Instant>) -> Answer {
        let (status, content_type, session) = match session_http.response_header() {
            Some(head) => {
                let session = head.headers.get("mcp-session-id").filter(|id| !id.is_empty());
                (head.status, head.headers.get(CONTENT_TYPE).cloned(), session.cloned())
            }
            None => (StatusCode::BAD_GATEWAY, None, None),
        };
        let (idle, total) = (self.upstream.timeouts.idle, self.upstream.timeouts.total);
        let limits = deadline.map(|deadline| Limits { idle, deadline, total });
        Answer { status, content_type, session, session_http, limits }
    }

    /// The path of a redirect that stays with this upstream: our headers carry its credential, which is for nobody else.
    fn own_path(&self, location: &str) -> Option<String> {
        let path = match location.strip_prefix('/') {
            Some(rest) if !rest.starts_with('/') => location.to_owned(),
            Some(_) => return None,
            None => {
                let url = url::Url::parse(location).ok()?;
                let configured = self.upstream.dial.is_tls();
                let same_scheme = url.scheme() == if configured { "https" } else { "http" };
                let host = super::Target::of(location)?.host;
                if !same_scheme || host != self.upstream.target.host {
                    return None;
                }
                super::Target::of(location)?.path
            }
        };
        Some(path)
    }
}

async fn write_body(session: &mut Lease, body: Bytes) -> pingora::Result<()> {
    if !body.is_empty() {
        session.write_request_body(body, true).await?;
    }
    session.finish_request_body().await
}

/// Why a request could not be written: a server that refuses our certificate says so and closes, and what it said is
/// still there to be read.
async fn why_broken(session: &mut Lease, broken: pingora::BError) -> Error {
    if *broken.etype() == ErrorType::WriteError
        && let Err(refusal @ Error::Tls(_)) = session.read_response_header().await.map_err(before_answer)
    {
        return refusal;
    }
    before_answer(broken)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
fn before_answer(error: pingora::BError) -> Error {
    match error.etype() {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => {
            Error::Timeout { what: "answer", limit: Duration::from_secs(30) }
        }
        // Not pingora's own words: they hold all that was read, cookies and credentials included.
        ErrorType::InvalidHTTPHeader => Error::Malformed("no HTTP response".to_owned()),
        _ if http2::is_unprocessed(&error) => Error::Unprocessed(error.to_string()),
        _ if is_refusal_of_our_certificate(&error) => Error::Tls(error.to_string()),
        _ => Error::Lost { cause: error.to_string(), has_answered: false },
    }
}

/// In TLS 1.3 our side of the handshake ends before the server has judged our certificate: its refusal arrives where
/// the answer should, and nothing has run.
fn is_refusal_of_our_certificate(error: &pingora::BError) -> bool {
    const REFUSALS: [&str; 9] = [
        "AccessDenied",
        "BadCertificate",
        "CertificateExpired",
        "CertificateRequired",
        "CertificateRevoked",
        "CertificateUnknown",
        "HandshakeFailure",
        "UnknownCA",
        "UnsupportedCertificate",
    ];
    let cause = error.root_cause().to_string();
    cause.strip_prefix("received fatal alert: ").is_some_and(|alert| REFUSALS.contains(&alert))
}

/// A redirect as the log may show it: queries carry credentials.
fn without_query(location: &str) -> String {
    location.split(['?', '#']).next().unwrap_or_default().to_owned()
}

// === impl Limits ===

impl Limits {
    /// Until when the next piece must come, and which limit that is.
    fn next(&self) -> (Instant, &'static str, Duration) {
        let until_idle = Instant::now() + self.idle;
        if until_idle < self.deadline {
            (until_idle, "further data", self.idle)
        } else {
            (self.deadline, "end of its answer", self.total)
        }
    }
}

// === impl Answer ===

impl Answer {
    /// The next piece of the body; `None` at its end. Nothing is lost when the waiting is given up.
    ///
    /// # Errors
    /// [`Error`]: lost, or nothing came within the idle limit, or the call's time is over.
    pub async fn read(&mut self) -> Result<Option<Bytes>, Error> {
        let read = self.session_http.read_response_body();
        let read = match &self.limits {
            Some(limits) => {
                let (until, what, limit) = limits.next();
                timeout_at(until, read).await.map_err(|_| Error::Timeout { what, limit })?
            }
            None => read.await,
        };
        read.map_err(|error| Error::Lost { cause: error.to_string(), has_answered: true })
    }

    /// The next piece of the body, if it is there already; `Some(Ok(None))` at its end.
    pub async fn read_now(&mut self) -> Option<Result<Option<Bytes>, Error>> {
        let read = glance(pin!(self.session_http.read_response_body())).await?;
        Some(read.map_err(|error| Error::Lost { cause: error.to_string(), has_answered: true }))
    }

    /// Reads a body of at most `limit` bytes to its end.
    ///
    /// # Errors
    /// [`Error`]; [`Error::TooLarge`] as soon as it is known to be.
    pub async fn read_all(&mut self, limit: usize) -> Result<Bytes, Error> {
        let Some(first) = self.read().await? else {
            return Ok(Bytes::new());
        };
        if first.len() > limit {
            return Err(Error::TooLarge { limit });
        }
        let mut whole = bytes::BytesMut::from(first);
        while let Some(piece) = self.read().await? {
            if whole.len().saturating_add(piece.len()) > limit {
                return Err(Error::TooLarge { limit });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Gives the connection back to the pool; only for answers read to their end.
    pub async fn release(self) {
        // Boxed: it is large, and would make every future it is part of as large.
        Box::pin(self.session_http.release()).await;
    }

    /// Cuts the connection: what else it may bring is of no use.
    pub async fn cut(mut self) {
        self.session_http.shutdown().await;
    }

    fn redirect(&self) -> Option<String> {
        // Only these two keep method and body (RFC 9110 §15.4).
        if !matches!(self.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
            return None;
        }
        let head = self.session_http.response_header()?;
        Some(head.headers.get(LOCATION)?.to_str().unwrap_or("an unreadable place").to_owned())
    }
}
