//! From a request's body to a [`Call`]: bounded, whole, strictly read, and in agreement with its headers.
//!
//! The bytes that are judged here are the bytes that are sent on; nothing is decoded and encoded again.

use super::exchange::Exchange;
use super::refuse::{Code, Refusal};
use crate::identity::Principal;
use crate::jsonrpc::{self, Id, Limits};
use crate::mcp::{self, Call, MirroredHeaders};
use crate::snapshot::Route;
use crate::upstream::Sessions;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

/// A message of a client, understood.
pub(super) struct Received {
    /// What it asks for.
    pub(super) call: Call,
    /// Its bytes, as they came.
    pub(super) body: Bytes,
    /// The upstream's session id, out of the sealed one the client sent.
    pub(super) session: Option<HeaderValue>,
}

/// What kinds of answer the client takes. A client that names none takes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    /// `application/json`.
    pub(super) json: bool,
    /// `text/event-stream`.
    pub(super) stream: bool,
}

/// Receives it.
///
/// # Errors
/// Whatever is wrong with the request; nothing of it has been forwarded.
pub(super) async fn call(
    exchange: &mut Exchange,
    route: &Route,
    principal: &Principal,
    sessions: &Sessions,
) -> Result<Received, Refusal> {
    check_head(exchange)?;
    let mirrored = mirrored_headers(exchange)?;
    let body = whole_body(exchange).await?;
    let limits = Limits {
        depth: exchange.snapshot.config.limits.depth as usize,
        nodes: exchange.snapshot.config.limits.nodes as usize,
    };
    let message = jsonrpc::parse(&body, limits).map_err(|error| unreadable(&error))?;
    let call = Call::read(&body, message, &mirrored).map_err(|(id, error)| not_mcp(id.as_ref(), &error, &mirrored))?;
    exchange.facts.method = Some(call.method.name);
    exchange.facts.object = call.object.name().map(Into::into);
    let session = session(exchange, route, principal, sessions, &call)?;
    exchange.may_stream = exchange.facts.accepts.stream && call.method.verb == mcp::Verb::CallTool;
    Ok(Received { call, body, session })
}

fn check_head(exchange: &mut Exchange) -> Result<(), Refusal> {
    let head = exchange.session.req_header();
    if head.method != Method::POST {
        // The stream and the end of a session are the next step's; until then the standard's answer is 405.
        return Err(Refusal::http(Code::HttpMethod, "messages are sent with POST"));
    }
    if head.headers.contains_key(CONTENT_ENCODING) {
        return Err(Refusal::http(Code::ContentEncoding, "a request's body must not be compressed"));
    }
    if !is_json(&head.headers) {
        return Err(Refusal::http(Code::ContentType, "Content-Type must be application/json, in UTF-8"));
    }
    let accepts = Accepts::read(&head.headers);
    if !accepts.json && !accepts.stream {
        return Err(Refusal::http(Code::Accept, "Accept must allow application/json or text/event-stream"));
    }
    exchange.facts.accepts = accepts;
    Ok(())
}

fn mirrored_headers(exchange: &Exchange) -> Result<MirroredHeaders, Refusal> {
    MirroredHeaders::read(&exchange.session.req_header().headers)
        .map_err(|error| Refusal::http(Code::HeaderMismatch, error.to_string()))
}

/// Exactly one `application/json`; `charset`, where there, is UTF-8 (RFC 8259 §8.1 knows no other).
fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next().and_then(|value| value.to_str().ok()), values.next()) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let is_type = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    is_type
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

impl Accepts {
    /// RFC 9110 §12.5.1, as far as it matters here: types, `*`, and `q=0`.
    pub(super) fn read(headers: &HeaderMap) -> Accepts {
        let mut accepts = Accepts { json: false, stream: false };
        let mut is_absent = true;
        for value in headers.get_all(ACCEPT) {
            is_absent = false;
            for range in value.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
                let is_refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
                let (json, stream) = match kind.as_str() {
                    "*/*" => (true, true),
                    "application/json" | "application/*" => (true, false),
                    "text/event-stream" | "text/*" => (false, true),
                    _ => (false, false),
                };
                accepts.json |= json && !is_refused;
                accepts.stream |= stream && !is_refused;
            }
        }
        if is_absent { Accepts { json: true, stream: true } } else { accepts }
    }
}

/// Reads the body to its end, within its limits of size and time.
async fn whole_body(exchange: &mut Exchange) -> Result<Bytes, Refusal> {
    let limit = exchange.snapshot.config.limits.body.bytes();
    let until = Instant::now() + exchange.snapshot.config.timeouts.body.duration();
    let headers = &exchange.session.req_header().headers;
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    if headers.contains_key(EXPECT)
        && let pingora::protocols::http::ServerSession::H1(session) = &mut exchange.session
    {
        session.write_continue_response().await.map_err(|_| incomplete())?;
    }
    let mut pieces = Pieces { first: None, rest: BytesMut::new(), announced: announced.unwrap_or(0) };
    loop {
        let read = timeout_at(until, exchange.session.read_request_body()).await;
        if !matches!(read, Ok(Ok(_))) {
            // pingora takes a body that it could not read for one that has ended: what comes next must be no request.
            exchange.session.set_keepalive(None);
        }
        let slow = || Refusal::http(Code::TooSlow, "the request's body did not come in time");
        let Some(piece) = read.map_err(|_| slow())?.map_err(|_| incomplete())? else {
            break;
        };
        if pieces.len().saturating_add(piece.len()) > limit {
            return Err(too_large(limit));
        }
        pieces.add(piece);
    }
    let body = pieces.whole();
    exchange.facts.bytes_in = body.len();
    Ok(body)
}

/// Gathers a body; one that came in a single piece is not copied.
struct Pieces {
    first: Option<Bytes>,
    rest: BytesMut,
    announced: usize,
}

impl Pieces {
    fn len(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len) + self.rest.len()
    }

    fn add(&mut self, piece: Bytes) {
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some(piece);
            return;
        }
        if let Some(first) = self.first.take() {
            self.rest.reserve(self.announced.max(first.len() + piece.len()));
            self.rest.extend_from_slice(&first);
        }
        self.rest.extend_from_slice(&piece);
    }

    fn whole(self) -> Bytes {
        self.first.unwrap_or_else(|| self.rest.freeze())
    }
}

fn too_large(limit: usize) -> Refusal {
    Refusal::http(Code::TooLarge, format!("the request's body is over the limit of {limit} bytes (`limits.body`)"))
        .data("limit", json!(limit))
}

fn incomplete() -> Refusal {
    Refusal::http(Code::Incomplete, "the request's body is not complete")
}

fn unreadable(error: &jsonrpc::Error) -> Refusal {
    let code = match error.fault {
        jsonrpc::Fault::Batch => Code::Batch,
        jsonrpc::Fault::Syntax { .. } => Code::Syntax,
        _ => Code::Invalid,
    };
    // JSON-RPC 2.0 §5: of a text that is no JSON there is no id to answer to, whatever its beginning looked like.
    let id = error.id().filter(|_| code != Code::Syntax);
    Refusal::error(code, id, error.to_string())
}

fn not_mcp(id: Option<&Id>, error: &mcp::Error, mirrored: &MirroredHeaders) -> Refusal {
    let is_modern = mirrored.version.as_deref().and_then(mcp::Era::of) == Some(mcp::Era::Modern);
    let refusal = |code| Refusal::error(code, id, error.to_string());
    match error {
        mcp::Error::UnknownMethod(_) if is_modern => refusal(Code::Method).status(StatusCode::NOT_FOUND),
        mcp::Error::UnknownMethod(_) => refusal(Code::Method),
        mcp::Error::InvalidParams(why) if is_modern && why.starts_with("params._meta") => {
            refusal(Code::Params).status(StatusCode::BAD_REQUEST)
        }
        mcp::Error::InvalidParams(_) => refusal(Code::Params),
        mcp::Error::HeaderMismatch(_) => refusal(Code::HeaderMismatch),
        mcp::Error::UnsupportedVersion(version) => refusal(Code::Version)
            .data("supported", json!(mcp::SUPPORTED))
            .data("requested", json!(version.chars().take(64).collect::<String>())),
        mcp::Error::InvalidRequest(_) => refusal(Code::Invalid),
    }
}

/// A sealed session id becomes the upstream's own; one that is not this principal's here is unknown (MCP: 404).
fn session(
    exchange: &Exchange,
    route: &Route,
    principal: &Principal,
    sessions: &Sessions,
    call: &Call,
) -> Result<Option<HeaderValue>, Refusal> {
    if call.era == mcp::Era::Modern {
        // Removed in 2026-07-28: ignored where it is sent.
        return Ok(None);
    }
    let mut sent = exchange.session.req_header().headers.get_all("mcp-session-id").iter();
    let Some(sealed) = sent.next() else {
        return Ok(None);
    };
    let opened = if sent.next().is_none() { sessions.open(sealed, &route.name, principal) } else { None };
    let unknown = || Refusal::error(Code::Session, call.id.as_ref(), "unknown session; initialize a new one");
    opened.map(Some).ok_or_else(unknown)
}
