//! One request and its answer: the client's session, what has been found out, and how bytes get back to the client.
//!
//! Writes are never raced against anything, since a cancelled write would tear the framing; waits are always raced
//! against the client's leaving ([`Exchange::while_there`]).

use super::record::{Facts, Outcome};
use super::refuse::Refusal;
use crate::glance::glance;
use crate::id::RequestId;
use crate::mcp::sse;
use crate::metrics::{InFlight, Metrics};
use crate::snapshot::Snapshot;
use crate::trace::Trace;
use arc_swap::ArcSwap;
use axum::Router;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS,
    ACCESS_CONTROL_REQUEST_HEADERS, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, STRICT_TRANSPORT_SECURITY,
    TRANSFER_ENCODING, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use pingora::apps::ReusedHttpStream;
use pingora::http::ResponseHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

/// A client that is waiting for a call sees its first bytes within this time.
const FIRST_BYTES: Duration = Duration::from_secs(1);
/// And then a sign of life this often, well below the 60 s after which many proxies give up.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The session of an older client.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// On every answer that is a message: what it is, and that it is for nobody else.
const JSON: [(HeaderName, HeaderValue); 2] = [
    (CONTENT_TYPE, HeaderValue::from_static("application/json")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What scripts of allowed origins may send.
const ASKABLE: &str = "authorization, content-type, accept, last-event-id, mcp-protocol-version, mcp-session-id, \
                       mcp-method, mcp-name, traceparent, tracestate";
/// What scripts of allowed origins may read of our answers.
const EXPOSED: HeaderValue = HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate, X-Request-Id");

/// One request and its answer.
pub(super) struct Exchange {
    /// The client's side.
    pub(super) session: ServerSession,
    /// The configuration this request sees from end to end.
    pub(super) snapshot: Arc<Snapshot>,
    /// Its name.
    pub(super) id: RequestId,
    /// When its head was complete.
    pub(super) started: Instant,
    /// What has been found out, for records.
    pub(super) facts: Facts,
    /// Where it stands in a trace.
    pub(super) trace: Trace,
    /// The origin to name in CORS headers, where an allowed one asked.
    pub(super) origin: Option<HeaderValue>,
    /// Whether an event stream may be begun before the upstream has answered.
    pub(super) may_stream: bool,
    /// Says when the gateway stops: what would last is ended then.
    pub(super) stopping: ShutdownWatch,
    is_streaming: bool,
    /// When the client heard of us last; before that, when it began to wait.
    said: Instant,
    /// The answers to the messages of a batch, until they go out together.
    gathered: Option<Vec<Bytes>>,
    _in_flight: InFlight,
}

/// Why an exchange ends before its call has been passed through.
#[derive(Debug)]
pub(super) enum End {
    /// We answer.
    Refused(Refusal),
    /// Nobody is there to answer.
    Gone,
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        End::Refused(refusal)
    }
}

impl From<Gone> for End {
    fn from(Gone: Gone) -> Self {
        End::Gone
    }
}

/// The client left. There is nobody to answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

impl Exchange {
    /// Reads the head of the next request. `None`: there is none, or it was no HTTP, and the connection is over.
    ///
    /// The configuration is taken when the head is complete: a connection may have waited long for its next request.
    pub(super) async fn begin(
        mut session: ServerSession,
        snapshots: &ArcSwap<Snapshot>,
        metrics: &Metrics,
        stopping: &ShutdownWatch,
    ) -> Option<Self> {
        // The listener has it whole already (`listener::head`).
        match session.read_request().await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) => {
                let _ = session.respond_error(400).await;
                return None;
            }
        }
        let snapshot = snapshots.load_full();
        session.set_write_timeout(Some(snapshot.config.timeouts.write.duration()));
        // pingora turns keep-alive off where the framing is doubtful; it must not be turned on again.
        if session.get_keepalive().is_some() {
            session.set_keepalive(Some(snapshot.keep_alive().as_secs().max(1)));
        }
        let peer = session.client_addr().map(ToString::to_string);
        let started = Instant::now();
        Some(Exchange {
            session,
            snapshot,
            id: RequestId::next(),
            started,
            facts: Facts { peer, ..Facts::default() },
            trace: Trace::default(),
            origin: None,
            may_stream: false,
            stopping: stopping.clone(),
            is_streaming: false,
            said: started,
            gathered: None,
            _in_flight: metrics.begin(),
        })
    }

    /// Gives the connection back for the next request, where it is fit for one.
    pub(super) async fn end(self, outcome: Outcome, is_stopping: bool) -> Option<ReusedHttpStream> {
        let mut session = self.session;
        if matches!(outcome, Outcome::ClientGone | Outcome::Broken) {
            session.shutdown().await;
            return None;
        }
        if is_stopping {
            session.set_keepalive(None);
        }
        crate::web::give_back(session).await
    }

    /// Waits for `work`, unless the client leaves first. Meanwhile a client that may get an event stream gets one,
    /// with signs of life in it.
    pub(super) async fn while_there<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = pin!(work);
        // Most often it is there already; then nothing is set up for a wait.
        if let Some(done) = glance(work.as_mut()).await {
            return Ok(done);
        }
        loop {
            let shows_life = self.may_stream || self.is_streaming;
            let due = self.said + if self.is_streaming { KEEP_ALIVE } else { FIRST_BYTES };
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                // Also resolves when the client sends what it must not send now: then it is over as well.
                _ = self.session.read_body_or_idle(true) => return Err(Gone),
                () = sleep_until(due), if shows_life => {}
            }
            self.begin_stream(None).await?;
            self.write(Bytes::from_static(sse::COMMENT)).await?;
        }
    }

    /// To be called where something came for the client and nothing of it is passed on: an upstream that never pauses
    /// must not keep us from noticing that the client left, nor the client from signs of life.
    pub(super) async fn look(&mut self) -> Result<(), Gone> {
        // The budget of this turn may be used up by the upstream; that must not look like a client that is there.
        let has_left = glance(pin!(unconstrained(self.session.read_body_or_idle(true)))).await.is_some();
        if has_left {
            return Err(Gone);
        }
        if self.is_streaming && self.said.elapsed() >= KEEP_ALIVE {
            self.write(Bytes::from_static(sse::COMMENT)).await?;
        }
        Ok(())
    }

    /// Whether an event stream has begun.
    pub(super) fn is_streaming(&self) -> bool {
        self.is_streaming
    }

    /// Begins an event stream, if none has begun.
    pub(super) async fn begin_stream(&mut self, session_id: Option<HeaderValue>) -> Result<(), Gone> {
        if self.is_streaming {
            return Ok(());
        }
        self.is_streaming = true;
        let mut head = self.head(
            StatusCode::OK,
            &[
                (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
                (CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform")),
                (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
                (TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
            ],
        );
        if let Some(id) = session_id {
            insert(&mut head, SESSION_ID, id);
        }
        self.write_head(head).await?;
        let earlier = self.gathered.as_mut().map(std::mem::take).unwrap_or_default();
        for message in earlier {
            self.write(sse::encode(&message)).await?;
        }
        Ok(())
    }

    /// Writes a piece of a begun event stream.
    pub(super) async fn write(&mut self, piece: Bytes) -> Result<(), Gone> {
        self.facts.bytes_out += piece.len();
        self.session.write_response_body(piece, false).await.map_err(|_| Gone)?;
        self.said = Instant::now();
        Ok(())
    }

    /// Ends a begun event stream. (That of a batch goes on until [`Exchange::end_batch`].)
    pub(super) async fn end_stream(&mut self) -> Result<(), Gone> {
        if self.gathered.is_some() {
            return Ok(());
        }
        self.session.finish_body().await.map_err(|_| Gone)
    }

    /// Whether answers are gathered for a batch.
    pub(super) fn is_gathering(&self) -> bool {
        self.gathered.is_some()
    }

    /// What is gathered of the answers to a batch, in bytes.
    pub(super) fn gathered_bytes(&self) -> usize {
        self.gathered.iter().flatten().map(Bytes::len).sum()
    }

    /// From here on answers are those of a batch.
    pub(super) fn begin_batch(&mut self) {
        self.gathered = Some(Vec::new());
    }

    /// Answers the batch with what was gathered: an array, or nothing where nothing wanted an answer (JSON-RPC 2.0 §6).
    pub(super) async fn end_batch(&mut self) -> Result<(), Gone> {
        let messages = self.gathered.take().unwrap_or_default();
        if self.is_streaming {
            return self.end_stream().await;
        }
        if messages.is_empty() {
            return self.answer(StatusCode::ACCEPTED, &[], Bytes::new()).await;
        }
        let array = [&b"["[..], &messages.join(&b','), b"]"].concat();
        self.answer(StatusCode::OK, &JSON, array.into()).await
    }

    /// Answers with the one message that ends a call, in a form the client takes: an event where a stream has begun or
    /// nothing else is accepted, otherwise a body, with these headers beside it.
    pub(super) async fn conclude(
        &mut self,
        status: StatusCode,
        headers: Vec<(HeaderName, HeaderValue)>,
        message: Bytes,
    ) -> Result<(), Gone> {
        if !self.is_streaming
            && self.facts.accepts.json
            && let Some(gathered) = &mut self.gathered
        {
            gathered.push(message);
            return Ok(());
        }
        let is_event = !self.facts.accepts.json && (status.is_success() || self.is_gathering());
        if self.is_streaming || is_event {
            let session = headers.into_iter().find(|(name, _)| *name == SESSION_ID).map(|(_, id)| id);
            self.begin_stream(session).await?;
            self.write(sse::encode(&message)).await?;
            return self.end_stream().await;
        }
        let headers = [headers.as_slice(), &JSON].concat();
        self.answer(status, &headers, message).await
    }

    /// Answers whole: status, a few headers, and a body whose length is known.
    pub(super) async fn answer(
        &mut self,
        status: StatusCode,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(), Gone> {
        let mut head = self.head(status, headers);
        if status != StatusCode::NO_CONTENT {
            insert(&mut head, CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        self.facts.bytes_out += body.len();
        self.write_head(head).await?;
        if !body.is_empty() {
            self.session.write_response_body(body, true).await.map_err(|_| Gone)?;
        }
        self.session.finish_body().await.map_err(|_| Gone)
    }

    /// Lets the router of our own documents and pages answer.
    pub(super) async fn answer_page(&mut self, pages: &Router) -> Result<Outcome, End> {
        let extra = self.common_headers();
        let caller = crate::web::Caller { address: self.client_address(), request: self.id.as_str().to_owned() };
        let answered = crate::web::answer(pages, &mut self.session, caller, &extra).await;
        let answered = answered.map_err(|_| Gone)?;
        (self.facts.status, self.facts.code) = (answered.status, answered.unread);
        Ok(Outcome::Page)
    }

    /// Answers a CORS preflight (Fetch standard, "CORS-preflight request") of an allowed origin.
    pub(super) async fn answer_preflight(&mut self) -> Result<Outcome, End> {
        let fixed = |name, value| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let headers = [
            fixed("access-control-allow-methods", "GET, POST, DELETE"),
            (ACCESS_CONTROL_ALLOW_HEADERS, askable_headers(&self.session.req_header().headers)),
            fixed("access-control-max-age", "600"),
        ];
        self.answer(StatusCode::NO_CONTENT, &headers, Bytes::new()).await?;
        Ok(Outcome::Page)
    }

    fn head(&self, status: StatusCode, headers: &[(HeaderName, HeaderValue)]) -> ResponseHeader {
        let mut head =
            ResponseHeader::build_no_case(status, Some(headers.len() + 6)).expect("a status code of the standard");
        for (name, value) in headers.iter().cloned().chain(self.common_headers()) {
            insert(&mut head, name, value);
        }
        head
    }

    /// The address of the client; that of the connection, or the one that trusted proxies vouch for.
    fn client_address(&self) -> Option<IpAddr> {
        let peer = self.session.client_addr().and_then(|address| address.as_inet()).map(SocketAddr::ip)?;
        let forwarded = self.session.req_header().headers.get_all("x-forwarded-for");
        let forwarded = forwarded.iter().filter_map(|value| value.to_str().ok());
        Some(self.snapshot.guard.client_address(peer, forwarded))
    }

    async fn write_head(&mut self, head: ResponseHeader) -> Result<(), Gone> {
        self.facts.status = head.status.as_u16();
        self.session.write_response_header(Box::new(head)).await.map_err(|_| Gone)
    }

    /// On every answer of ours: its name, that it is had over https only, and what scripts of an allowed origin need to read it.
    fn common_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let id = HeaderValue::try_from(self.id.as_str()).expect("request ids are visible ASCII");
        let mut headers = vec![(REQUEST_ID, id)];
        // Browsers are to keep to https (RFC 6797 §7.2: never said over http, where anybody could say it).
        if self.snapshot.public_url.starts_with("https://") {
            headers.push((STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000")));
        }
        if let Some(origin) = &self.origin {
            headers.push((ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone()));
            headers.push((ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED));
            headers.push((VARY, HeaderValue::from_static("Origin")));
        }
        headers
    }
}

/// What pages of an allowed origin may send: what MCP names, and of the headers that mirror arguments, whose names
/// stand in each tool's schema, those that this preflight asks for.
fn askable_headers(preflight: &HeaderMap) -> HeaderValue {
    let mut names = ASKABLE.to_owned();
    let asked = preflight.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter().filter_map(|value| value.to_str().ok());
    let asked = asked.flat_map(|value| value.split(',')).map(str::trim);
    for name in asked.filter_map(|name| HeaderName::try_from(name).ok()).take(64) {
        if name.as_str().starts_with("mcp-param-") {
            names.push_str(", ");
            names.push_str(name.as_str());
        }
    }
    HeaderValue::try_from(names).expect("header names are visible ASCII")
}

fn insert(head: &mut ResponseHeader, name: HeaderName, value: HeaderValue) {
    head.insert_header(name, value).expect("names and values are already of the header's types");
}
