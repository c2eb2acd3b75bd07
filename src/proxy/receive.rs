//! From a request to the [`Call`]s it makes: bounded, whole, strictly read, and in agreement with its headers.
//!
//! The bytes that are judged here are the bytes that are sent on; nothing is decoded and encoded again.

use super::Gateway;
use super::accept::{Accepts, is_json};
use super::body;
use super::exchange::{Exchange, SESSION_ID};
use super::peel::{Retry, peel};
use super::refuse::{Code, Refusal};
use crate::identity::Principal;
use crate::jsonrpc::{self, Id, Limits, Node, Span};
use crate::mcp::{self, Call, Era, MirroredHeaders, Object, Verb};
use crate::redact::Redactor;
use crate::snapshot::Route;
use crate::trace::Stage;
use crate::upstream::{EventId, HoldState, Scope, Session};
use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::json;

/// Messages in one batch.
const MAX_BATCH: usize = 64;
/// The only revision that knows batches.
const BATCHES: &str = "2025-03-26";

/// What one request brought.
pub(super) enum Incoming {
    /// One message, or a request for a stream or for the end of a session.
    One(Box<Received>),
    /// Several messages, each judged alone.
    Batch(Vec<Received>),
}

/// A message of a client, understood.
pub(super) struct Received {
    /// What it asks for.
    pub(super) call: Call,
    /// Its bytes, as they came.
    pub(super) body: Bytes,
    /// The session it belongs to, out of the sealed id the client sent.
    pub(super) session: Option<Session>,
    /// The place to take a stream up at.
    pub(super) resume: Option<EventId>,
    /// The upstream's own state of a round trip, out of the sealed one the client sent.
    pub(super) state: Option<String>,
    /// Where the client was asked to come back with a held call, and does: what it brought.
    pub(super) retry: Option<Retry>,
    /// The headers that mirror arguments, made anew from the body.
    pub(super) parameters: Vec<(HeaderName, HeaderValue)>,
}

/// Receives it.
///
/// # Errors
/// Whatever is wrong with the request; nothing of it has been forwarded.
pub(super) async fn messages(
    gateway: &Gateway,
    exchange: &mut Exchange,
    route: &Route,
    principal: &Principal,
) -> Result<Incoming, Refusal> {
    exchange.trace.enter(Stage::Receive);
    let receiver = Receiver { gateway, route, scope: Scope { upstream: &route.name, principal } };
    let method = match exchange.session.req_header().method {
        Method::POST => return receiver.posted(exchange).await,
        Method::GET => mcp::Method::STREAM,
        Method::DELETE => mcp::Method::END_SESSION,
        _ => return Err(Refusal::http(Code::HttpMethod, "messages are sent with POST").allow("GET, POST, DELETE")),
    };
    receiver.without_body(exchange, method).map(Box::new).map(Incoming::One)
}

/// What is known while one request is received.
struct Receiver<'a> {
    gateway: &'a Gateway,
    route: &'a Route,
    scope: Scope<'a>,
}

impl Receiver<'_> {
    /// A request for a stream, or for the end of a session: older revisions only.
    fn without_body(&self, exchange: &mut Exchange, method: &'static mcp::Method) -> Result<Received, Refusal> {
        let mirrored = mirrored_headers(exchange)?;
        let call = Call::without_body(method, &mirrored).map_err(|error| not_mcp(None, &error, &mirrored))?;
        let call = call.ok_or_else(|| {
            Refusal::http(Code::HttpMethod, "this revision of MCP sends messages with POST only").allow("POST")
        })?;
        if body::is_announced(exchange) {
            return Err(Refusal::http(Code::Invalid, "a body, where none is expected"));
        }
        let session = self.session(exchange, &call)?;
        let is_stream = call.method.verb == Verb::Stream;
        if is_stream {
            exchange.facts.accepts = Accepts::read(&exchange.session.req_header().headers);
            if !exchange.facts.accepts.stream {
                return Err(Refusal::http(Code::Accept, "Accept must allow text/event-stream"));
            }
        } else if session.is_none() {
            return Err(Refusal::http(Code::Invalid, "which session? Mcp-Session-Id is missing"));
        }
        exchange.may_stream = is_stream;
        let resume = if is_stream { self.resume(exchange, session.as_ref())? } else { None };
        let received =
            Received { call, body: Bytes::new(), session, resume, state: None, retry: None, parameters: Vec::new() };
        received.note(exchange);
        Ok(received)
    }

    async fn posted(&self, exchange: &mut Exchange) -> Result<Incoming, Refusal> {
        check_head(exchange)?;
        let mirrored = mirrored_headers(exchange)?;
        let body = body::whole(exchange).await?;
        let limits = Limits {
            depth: exchange.snapshot.config.limits.depth as usize,
            nodes: exchange.snapshot.config.limits.nodes as usize,
        };
        match jsonrpc::parse(&body, limits) {
            Ok(message) => self.one(exchange, &body, message, limits, &mirrored).map(Box::new).map(Incoming::One),
            Err(error) if error.fault == jsonrpc::Fault::Batch && self.takes_batches(exchange, &mirrored) => {
                self.batch(exchange, &body, limits, &mirrored).map(Incoming::Batch)
            }
            Err(error) => Err(unreadable(&error)),
        }
    }

    fn one(
        &self,
        exchange: &mut Exchange,
        body: &Bytes,
        message: jsonrpc::Message,
        limits: Limits,
        mirrored: &MirroredHeaders,
    ) -> Result<Received, Refusal> {
        let read = |body: &Bytes, message| {
            Call::read(body, message, mirrored).map_err(|(id, error)| not_mcp(id.as_ref(), &error, mirrored))
        };
        let (mut body, mut call, mut retry) = (body.clone(), read(body, message)?, None);
        if let Some(state) = self.hold_state(&body, &call) {
            let (left, peeled) = peel(&body, state);
            let message = jsonrpc::parse(&left, limits).map_err(|error| unreadable(&error))?;
            (call, body, retry) = (read(&left, message)?, left, Some(peeled));
        }
        let session = self.session(exchange, &call)?;
        if call.method.verb == Verb::Answer && session.is_none() {
            return Err(Refusal::http(Code::Invalid, "a response, but nothing was asked: there is no session"));
        }
        let state = self.state(&body, &call)?;
        let parameters = self.parameters(&exchange.session.req_header().headers, &body, &call)?;
        if call.method.verb == Verb::Listen && !exchange.facts.accepts.stream {
            let why = "a subscription is a stream: Accept must allow text/event-stream";
            return Err(Refusal::error(Code::Accept, call.id.as_ref(), why));
        }
        exchange.may_stream = exchange.facts.accepts.stream && call.method.verb == Verb::CallTool;
        let received = Received { call, body, session, resume: None, state, retry, parameters };
        received.note(exchange);
        Ok(received)
    }

    fn takes_batches(&self, exchange: &Exchange, mirrored: &MirroredHeaders) -> bool {
        let headers = &exchange.session.req_header().headers;
        // That revision has no such header; whoever sends it means its own.
        let is_of_it = mirrored.version.as_deref().is_none_or(|version| version == BATCHES);
        is_of_it && self.open_session(headers).flatten().is_some_and(|session| session.version == BATCHES)
    }

    /// MCP 2025-03-26, Streamable HTTP, "Sending Messages to the Server". `initialize` has no place in a batch.
    fn batch(
        &self,
        exchange: &mut Exchange,
        body: &Bytes,
        limits: Limits,
        mirrored: &MirroredHeaders,
    ) -> Result<Vec<Received>, Refusal> {
        let spans = jsonrpc::batch(body, limits).map_err(|error| unreadable(&error))?;
        if spans.len() > MAX_BATCH {
            return Err(Refusal::http(Code::Batch, format!("a batch of more than {MAX_BATCH} messages")));
        }
        let mut batch = Vec::with_capacity(spans.len());
        for span in spans {
            let body = body.slice(span.start..span.end);
            let message = jsonrpc::parse(&body, limits).map_err(|error| unreadable(&error))?;
            let received = self.one(exchange, &body, message, limits, mirrored)?;
            if received.call.method.name == "initialize" {
                return Err(Refusal::http(Code::Batch, "`initialize` must not be part of a batch"));
            }
            batch.push(received);
        }
        exchange.may_stream = exchange.facts.accepts.stream;
        Ok(batch)
    }

    /// `None`: none was sent. `Some(None)`: one that is not this principal's here.
    fn open_session(&self, headers: &HeaderMap) -> Option<Option<Session>> {
        let mut sent = headers.get_all(SESSION_ID).iter();
        let sealed = sent.next()?;
        let is_only_one = sent.next().is_none();
        Some(is_only_one.then(|| self.gateway.sessions.open(sealed, self.scope)).flatten())
    }

    /// The session a call belongs to; an id that is not this principal's here is unknown (MCP: 404).
    fn session(&self, exchange: &Exchange, call: &Call) -> Result<Option<Session>, Refusal> {
        if call.era == Era::Modern {
            // Removed in 2026-07-28: ignored where it is sent.
            return Ok(None);
        }
        let unknown = || Refusal::error(Code::Session, call.id.as_ref(), "unknown session; initialize a new one");
        match self.open_session(&exchange.session.req_header().headers) {
            None => Ok(None),
            Some(opened) => opened.map(Some).ok_or_else(unknown),
        }
    }

    /// The place that `Last-Event-ID` names. One of another session, or of nobody's, takes up nothing.
    fn resume(&self, exchange: &Exchange, session: Option<&Session>) -> Result<Option<EventId>, Refusal> {
        let mut sent = exchange.session.req_header().headers.get_all("last-event-id").iter();
        let (first, is_only_one) = (sent.next(), sent.next().is_none());
        let Some(sealed) = first.filter(|id| !(id.is_empty() && is_only_one)) else {
            return Ok(None);
        };
        let session = session.map(|session| &session.id);
        let place = self.gateway.seal.open_event_id(sealed, session, self.scope).filter(|_| is_only_one);
        let unknown = || Refusal::http(Code::EventId, "Last-Event-ID names no event of this session; leave it out");
        place.map(Some).ok_or_else(unknown)
    }

    /// A state of our own, which the client was given with a held call.
    fn hold_state(&self, body: &[u8], call: &Call) -> Option<HoldState> {
        let Object::Tool(tool) = &call.object else {
            return None;
        };
        let sent = Node::of(body, call.state?).as_str()?;
        self.gateway.seal.open_hold_state(&sent, tool, self.scope)
    }

    fn state(&self, body: &[u8], call: &Call) -> Result<Option<String>, Refusal> {
        let Some(sent) = call.state.and_then(|span| Node::of(body, span).as_str()) else {
            return Ok(None);
        };
        let object = call.object.name().unwrap_or_default();
        let opened = self.gateway.seal.open_request_state(&sent, call.method.name, object, self.scope);
        let unknown = || Refusal::error(Code::State, call.id.as_ref(), "params.requestState belongs to no such call");
        opened.map(Some).ok_or_else(unknown)
    }

    /// Compares the headers that mirror arguments, where the tool is known; the upstream compares them all.
    fn parameters(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        call: &Call,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, Refusal> {
        let (Era::Modern, Object::Tool(name)) = (call.era, &call.object) else {
            return Ok(Vec::new());
        };
        let definitions = self.route.upstream.definitions();
        let definition = definitions.tools.get(name);
        let arguments = call.arguments.map(|span| Node::of(body, span));
        let mirrored = definition.map(|definition| definition.parameters.mirror(arguments, headers)).transpose();
        let mut mirrored = mirrored
            .map_err(|error| {
                // The client may know a newer definition than we do.
                self.route.upstream.mark_stale();
                Refusal::error(Code::HeaderMismatch, call.id.as_ref(), error.to_string())
            })?
            .unwrap_or_default();
        //= MCP 2026-07-28, Streamable HTTP: intermediaries forward `Mcp-Param-*` headers that they do not know.
        let is_known = |name: &HeaderName| definition.is_some_and(|definition| definition.parameters.contains(name));
        let others = headers.iter().filter(|(name, _)| name.as_str().starts_with("mcp-param-") && !is_known(name));
        mirrored.extend(others.map(|(name, value)| (name.clone(), value.clone())));
        Ok(mirrored)
    }
}

impl Received {
    /// Whether it subscribes to changes of the list of tools (MCP 2026-07-28, `subscriptions/listen`).
    pub(super) fn listens_to_tools(&self) -> bool {
        let whole = Node::of(&self.body, Span::whole(&self.body));
        let wanted = whole.get("params").and_then(|params| params.get("notifications"));
        wanted.and_then(|wanted| wanted.get("toolsListChanged")).and_then(Node::as_bool) == Some(true)
    }

    /// Notes what the records say of it.
    pub(super) fn note(&self, exchange: &mut Exchange) {
        exchange.facts.method = Some(self.call.method.name);
        exchange.facts.object = self.call.object.name().map(Into::into);
    }
}

fn check_head(exchange: &mut Exchange) -> Result<(), Refusal> {
    let headers = &exchange.session.req_header().headers;
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(Refusal::http(Code::ContentEncoding, "a request's body must not be compressed"));
    }
    if !is_json(headers) {
        return Err(Refusal::http(Code::ContentType, "Content-Type must be application/json, in UTF-8"));
    }
    let accepts = Accepts::read(headers);
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
        mcp::Error::UnsupportedVersion { version, supported } => refusal(Code::Version)
            .data("supported", json!(supported))
            .data("requested", json!(Redactor::of_process().text(version).chars().take(64).collect::<String>())),
        mcp::Error::InvalidRequest(_) => refusal(Code::Invalid),
    }
}
