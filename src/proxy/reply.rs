//! From the upstream's answer to the client's: read strictly, matched to the call, lists filtered, passed on at once.
//!
//! Of the upstream's headers only the session id crosses, sealed. A JSON answer is passed byte for byte; an event
//! stream is taken apart and put together again (`stream`), so that nothing an upstream writes can become a field of
//! ours. Messages that answer nobody's question here are dropped and counted.

use super::Gateway;
use super::ask::Allowance;
use super::exchange::{End, Exchange, SESSION_ID};
use super::forward::{Sent, failed};
use super::ids::Ticket;
use super::receive::Received;
use super::record::Outcome;
use super::refuse::{Code, Refusal};
use super::stream;
use super::traced;
use crate::identity::Principal;
use crate::jsonrpc::{self, Edits, Id, Limits, Message, Node, Response, Span};
use crate::mcp::{self, Abilities, Era, Listing, Method, Verb};
use crate::policy::Object;
use crate::snapshot::Route;
use crate::upstream::{Answer, Error, Pending, Scope, Seal, Session};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// JSON values in one answer; its size is limited on its own.
pub(super) const MAX_NODES: usize = 4_000_000;

/// Passes the answer on.
///
/// # Errors
/// The upstream's failure as a refusal, or the client's leaving.
pub(super) async fn pass_on(
    gateway: &Gateway,
    exchange: &mut Exchange,
    route: &Route,
    principal: &Principal,
    received: &Received,
    sent: Sent,
) -> Result<Outcome, End> {
    crate::fault::point("call.answering");
    let Sent { answer, ticket } = sent;
    let pending = pending(received, ticket.as_ref());
    let ticket = Mutex::new(ticket);
    let (has_warned, asks) = (AtomicBool::new(false), Mutex::default());
    let reply = Reply { gateway, route, principal, received, pending, ticket, asks, has_warned };
    let Some(answer) = answer else {
        return reply.accepted(exchange).await;
    };
    if reply.is_legacy() && !answer.session.as_ref().is_none_or(Session::is_id) {
        return Err(reply.failed(&Error::Malformed("a session id that clients cannot send back".into())));
    }
    let verb = received.call.method.verb;
    // Streams are boxed: what they carry along would make every other answer as large.
    match (verb, answer.status, kind(&answer)) {
        (Verb::EndSession, ..) => reply.session_ended(exchange, answer).await,
        (Verb::Stream, StatusCode::OK, Kind::Stream) => Box::pin(stream::pass_on(&reply, exchange, answer)).await,
        (Verb::Stream, ..) => reply.no_stream(exchange, answer).await,
        _ if received.call.id.is_none() => reply.acknowledge(exchange, answer).await,
        (_, StatusCode::OK, Kind::Json) => reply.whole(exchange, answer).await,
        (_, StatusCode::OK, Kind::Stream) => Box::pin(stream::pass_on(&reply, exchange, answer)).await,
        (_, StatusCode::OK, Kind::Other) => {
            Err(reply.failed(&Error::Malformed("neither JSON nor an event stream".into())))
        }
        (_, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND, _) => reply.refused_by_upstream(exchange, answer).await,
        (_, status, _) => Err(reply.failed(&Error::Status(status.as_u16()))),
    }
}

/// Which call the answer is to: this one, or the one whose stream is taken up again.
fn pending(received: &Received, ticket: Option<&Ticket>) -> Option<Pending> {
    let Some(id) = &received.call.id else {
        return received.resume.as_ref().and_then(|place| place.call.clone());
    };
    let upstream_id = ticket.and_then(Ticket::ours).unwrap_or(id).clone();
    Some(Pending { method: received.call.method, id: id.clone(), upstream_id })
}

/// What is known while one answer is passed on.
pub(super) struct Reply<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) route: &'a Route,
    pub(super) principal: &'a Principal,
    pub(super) received: &'a Received,
    /// The call whose answer is waited for.
    pub(super) pending: Option<Pending>,
    /// Of its id, until that answer has come.
    ticket: Mutex<Option<Ticket>>,
    /// What the server may still ask the client in the meantime.
    pub(super) asks: Mutex<Allowance>,
    /// Whether the log says already that something was not passed on.
    has_warned: AtomicBool,
}

/// What an answer is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Stream,
    Other,
}

pub(super) fn kind(answer: &Answer) -> Kind {
    let value = answer.content_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.split(';').next().map(|kind| kind.trim().to_ascii_lowercase()).as_deref() {
        Some("application/json") => Kind::Json,
        Some("text/event-stream") => Kind::Stream,
        _ => Kind::Other,
    }
}

// === impl Reply: whole answers ===

impl Reply<'_> {
    /// One JSON body.
    async fn whole(&self, exchange: &mut Exchange, mut answer: Answer) -> Result<Outcome, End> {
        let session = answer.session.clone();
        let text = self.read_all(exchange, &mut answer).await?;
        answer.release().await;
        let message = self.accept(exchange, text).map_err(|why| self.failed(&Error::Malformed(why)))?;
        self.deliver(exchange, StatusCode::OK, session, message).await
    }

    /// 400 and 404 mean something to clients (an unknown session, an unknown method, an era not spoken) and keep
    /// their meaning; the body is passed on where it is a JSON-RPC error about this call.
    async fn refused_by_upstream(&self, exchange: &mut Exchange, mut answer: Answer) -> Result<Outcome, End> {
        let status = answer.status;
        let text = self.read_all(exchange, &mut answer).await?;
        answer.release().await;
        self.gateway.metrics.upstream_error(&self.route.name, Error::Status(0).code());
        let id = self.received.call.id.as_ref();
        let is_missing = status == StatusCode::NOT_FOUND && self.is_legacy();
        if self.is_lost_session(status, &text) {
            return Err(Refusal::error(Code::Session, id, "unknown session; initialize a new one").into());
        }
        match jsonrpc::parse_answer(&text, self.limits(exchange)) {
            Ok(Message::Response(response)) if response.id.is_none() || self.is_awaited(response.id.as_ref()) => {
                exchange.trace.fault(|| traced::fault(&text, &response));
                let text = self.with_their_id(text, &response);
                self.deliver(exchange, status, None, text).await
            }
            _ if is_missing && self.received.session.is_some() => {
                Err(Refusal::error(Code::Session, id, "unknown session; initialize a new one").into())
            }
            _ => {
                let error = Error::Status(status.as_u16());
                let refusal = Refusal::error(Code::Upstream(error.code()), id, error.public(&self.route.name));
                // Without a session, 404 is no word of MCP to an older client but a failure like others.
                Err(if is_missing { refusal } else { refusal.status(status) }.into())
            }
        }
    }

    /// A session that the upstream knew once and now complains of with 400, as many servers do after a restart. Clients
    /// begin a new one after 404 only, which is what it means (MCP, Streamable HTTP, "Session Management").
    fn is_lost_session(&self, status: StatusCode, text: &[u8]) -> bool {
        const MAX_COMPLAINT: usize = 4096;
        if status != StatusCode::BAD_REQUEST || self.received.session.is_none() || text.len() > MAX_COMPLAINT {
            return false;
        }
        is_about_sessions(text)
    }

    /// Writes the one message that ends the exchange.
    pub(super) async fn deliver(
        &self,
        exchange: &mut Exchange,
        status: StatusCode,
        session: Option<HeaderValue>,
        message: Bytes,
    ) -> Result<Outcome, End> {
        let session = session.and_then(|id| self.news(id, Some(&message)));
        let headers = session.map(|id| (SESSION_ID, id)).into_iter().collect();
        exchange.conclude(status, headers, message).await?;
        Ok(Outcome::Completed)
    }
}

// === impl Reply: answers without a message ===

impl Reply<'_> {
    /// A notification is acknowledged with 202 and nothing else (MCP, Streamable HTTP, "Sending Messages to the Server").
    async fn acknowledge(&self, exchange: &mut Exchange, answer: Answer) -> Result<Outcome, End> {
        let status = answer.status;
        self.drain(exchange, answer).await?;
        if status.is_success() {
            return self.accepted(exchange).await;
        }
        if status == StatusCode::NOT_FOUND && self.is_legacy() {
            return Err(Refusal::http(Code::Session, "unknown session; initialize a new one").into());
        }
        Err(self.failed(&Error::Status(status.as_u16())))
    }

    async fn accepted(&self, exchange: &mut Exchange) -> Result<Outcome, End> {
        if !exchange.is_gathering() {
            exchange.answer(StatusCode::ACCEPTED, &[], Bytes::new()).await?;
        }
        Ok(Outcome::Completed)
    }

    /// The upstream has no stream to give: 405, whatever it said (MCP, Streamable HTTP, "Listening for Messages from
    /// the Server"); clients take any other status for a failure, and some take 404 for the loss of everything.
    async fn no_stream(&self, exchange: &mut Exchange, answer: Answer) -> Result<Outcome, End> {
        let status = answer.status;
        self.drain(exchange, answer).await?;
        match status {
            StatusCode::NOT_FOUND if self.received.session.is_some() => {
                Err(Refusal::http(Code::Session, "unknown session; initialize a new one").into())
            }
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => {
                Err(Refusal::http(Code::HttpMethod, "this server has no stream of its own")
                    .allow("POST, DELETE")
                    .into())
            }
            StatusCode::BAD_REQUEST | StatusCode::CONFLICT => {
                let error = Error::Status(status.as_u16());
                let refusal = Refusal::http(Code::Upstream(error.code()), error.public(&self.route.name));
                Err(refusal.status(status).into())
            }
            _ => Err(self.failed(&Error::Status(status.as_u16()))),
        }
    }

    /// A session that the upstream ended, or no longer knew, is over here as well.
    async fn session_ended(&self, exchange: &mut Exchange, answer: Answer) -> Result<Outcome, End> {
        let status = answer.status;
        self.drain(exchange, answer).await?;
        let is_unknown = status == StatusCode::NOT_FOUND;
        if (status.is_success() || is_unknown)
            && let Some(session) = &self.received.session
            && let Err(error) = self.gateway.sessions.end(session, self.scope()).await
        {
            tracing::error!(%error, "the end of a session cannot be written down");
        }
        match status {
            _ if status.is_success() => {
                exchange.answer(StatusCode::NO_CONTENT, &[], Bytes::new()).await?;
                Ok(Outcome::Completed)
            }
            StatusCode::NOT_FOUND => Err(Refusal::http(Code::Session, "unknown session").into()),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
                let refusal = Refusal::http(Code::HttpMethod, "this server ends its sessions itself");
                Err(refusal.allow("GET, POST").into())
            }
            _ => Err(self.failed(&Error::Status(status.as_u16()))),
        }
    }

    /// What an answer says whose status is all that matters. Its end keeps the connection, and is not waited for long:
    /// some servers answer with a stream that has none.
    async fn drain(&self, exchange: &mut Exchange, mut answer: Answer) -> Result<(), End> {
        const MAX_IGNORED: usize = 64 * 1024;
        const LAST_BYTES: Duration = Duration::from_millis(200);
        let drained = exchange.while_there(tokio::time::timeout(LAST_BYTES, answer.read_all(MAX_IGNORED))).await?;
        match drained {
            Ok(Ok(_)) => answer.release().await,
            _ => answer.cut().await,
        }
        Ok(())
    }
}

// === impl Reply: messages ===

impl Reply<'_> {
    /// The answer to this call in `text`, as the client gets it; or why it is none.
    fn accept(&self, exchange: &Exchange, text: Bytes) -> Result<Bytes, String> {
        match jsonrpc::parse_answer(&text, self.limits(exchange)) {
            Ok(Message::Response(response)) if self.is_awaited(response.id.as_ref()) => {
                Ok(self.rewritten(exchange, text, &response))
            }
            Ok(Message::Response(_)) => Err("an answer to another request".to_owned()),
            Ok(_) => Err("not a response".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether `id` is the one that the upstream knows the awaited call by.
    pub(super) fn is_awaited(&self, id: Option<&Id>) -> bool {
        self.pending.as_ref().is_some_and(|pending| id == Some(&pending.upstream_id))
    }

    /// The awaited answer as the client gets it: under its own id, a list without what it may not see, a state sealed.
    pub(super) fn rewritten(&self, exchange: &Exchange, text: Bytes, response: &Response) -> Bytes {
        self.ticket.lock().take();
        exchange.trace.fault(|| traced::fault(&text, response));
        let text = self.with_their_id(text, response);
        let jsonrpc::Outcome::Result(_) = response.outcome else {
            return text;
        };
        let Some(method) = self.pending.as_ref().map(|pending| pending.method) else {
            return text;
        };
        match method.verb {
            Verb::List(listing) => self.filtered(exchange, &text, Some(listing)),
            // Judged per principal, so that no shared cache may keep it either.
            Verb::ReadResource => self.sealed(self.filtered(exchange, &text, None), method),
            _ if method.name == "server/discover" => self.with_tasks(exchange, text),
            _ => self.sealed(text, method),
        }
    }

    fn with_their_id(&self, text: Bytes, response: &Response) -> Bytes {
        let Some(pending) = self.pending.as_ref().filter(|pending| pending.id != pending.upstream_id) else {
            return text;
        };
        let mut edits = Edits::of(&text);
        if let Some(id) = whole(&text).get("id").filter(|_| response.id.is_some()) {
            edits.replace(id, pending.id.as_json());
        }
        edits.apply().into()
    }

    /// Tasks are spoken here where calls may be held, whether or not the server speaks them.
    fn with_tasks(&self, exchange: &Exchange, text: Bytes) -> Bytes {
        let is_offered = exchange.snapshot.policy.may_hold(&self.route.name);
        is_offered.then(|| mcp::with_tasks(&text)).flatten().map_or(text, Into::into)
    }

    fn filtered(&self, exchange: &Exchange, text: &Bytes, listing: Option<Listing>) -> Bytes {
        let Some(result) = whole(text).get("result").and_then(|result| result.span_in(text)) else {
            return text.clone();
        };
        let policy = &exchange.snapshot.policy;
        let keep = |name: &str| {
            let object = match listing {
                Some(Listing::Prompts) => Object::Prompt(name),
                Some(Listing::Resources | Listing::ResourceTemplates) => Object::Resource(name),
                Some(Listing::Tools) | None => Object::Tool(name),
            };
            policy.is_listed(self.principal, &self.route.name, object)
        };
        mcp::filter(text, result, listing, keep).into()
    }

    fn sealed(&self, text: Bytes, method: &Method) -> Bytes {
        let call = &self.received.call;
        sealed(&self.gateway.seal, self.scope(), call.era, method, call.object.name().unwrap_or_default(), text)
    }
}

/// Whether a server's complaint is that it does not know the session.
pub(super) fn is_about_sessions(text: &[u8]) -> bool {
    // Not always an answer in form: some leave out the id.
    let said: serde_json::Value = serde_json::from_slice(text).unwrap_or_default();
    let message = said.pointer("/error/message").and_then(serde_json::Value::as_str).unwrap_or_default();
    message.to_ascii_lowercase().contains("session id")
}

/// MCP 2026-07-28, "Multi Round-Trip Requests": the state that the client is to send back leaves sealed. `text` is the
/// message that answers a call of `method` on `object`.
pub(super) fn sealed(seal: &Seal, scope: Scope<'_>, era: Era, method: &Method, object: &str, text: Bytes) -> Bytes {
    const WORD: &[u8] = b"input_required";
    // A word that is written with escapes is not found; its state is then refused when it comes back.
    if era == Era::Legacy || !mcp::may_take_rounds(method.name) || memchr::memmem::find(&text, WORD).is_none() {
        return text;
    }
    let result = whole(&text).get("result");
    let is_a_round = result.and_then(|result| result.get("resultType")).and_then(Node::as_str);
    let state = result.and_then(|result| result.get("requestState"));
    let (Some("input_required"), Some(node)) = (is_a_round.as_deref(), state) else {
        return text;
    };
    let Some(state) = node.as_str() else {
        return text;
    };
    let sealed = seal.request_state(&state, method.name, object, scope);
    let mut edits = Edits::of(&text);
    edits.replace(node, format!("\"{sealed}\""));
    edits.apply().into()
}

// === impl Reply: surroundings ===

impl Reply<'_> {
    /// The upstream's session `id` sealed for this client, if the client does not have it yet. `message` answers
    /// `initialize`, which says what was agreed on.
    pub(super) fn news(&self, id: HeaderValue, message: Option<&Bytes>) -> Option<HeaderValue> {
        let known = self.received.session.as_ref();
        if !self.is_legacy() || known.is_some_and(|session| session.id == id) {
            return None;
        }
        let is_opening = self.received.call.method.name == "initialize";
        let result = message.and_then(|message| whole(message).get("result"));
        let agreed = result.and_then(|result| result.get("protocolVersion")).and_then(Node::as_str);
        let version = mcp::SUPPORTED.into_iter().find(|version| agreed.as_deref() == Some(version));
        let (version, abilities) = match known {
            _ if is_opening => (version?, Abilities::declared(&self.received.body)),
            Some(session) => (session.version, session.abilities),
            // A server that gives sessions at any time: what was agreed on is not known.
            None => (mcp::LATEST_LEGACY, Abilities::default()),
        };
        let session = self.gateway.sessions.begin(id, version, abilities);
        Some(self.gateway.sessions.seal(&session, self.scope()))
    }

    pub(super) fn session_header(&self, id: Option<HeaderValue>) -> Option<(HeaderName, HeaderValue)> {
        Some((SESSION_ID, self.news(id?, None)?))
    }

    /// Counts a message of the upstream that is not passed on. The log hears of the first: its disk is not the upstream's to fill.
    pub(super) fn count_dropped(&self, reason: &'static str) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(upstream = %self.route.name, reason, "a message of the upstream was not passed on");
        }
        self.gateway.metrics.dropped_message(&self.route.name, reason);
    }

    async fn read_all(&self, exchange: &mut Exchange, answer: &mut Answer) -> Result<Bytes, End> {
        let limit = self.limit(exchange);
        let read = exchange.while_there(answer.read_all(limit)).await?;
        read.map_err(|error| self.failed(&error))
    }

    pub(super) fn is_legacy(&self) -> bool {
        self.received.call.era == Era::Legacy
    }

    pub(super) fn scope(&self) -> Scope<'_> {
        Scope { upstream: &self.route.name, principal: self.principal }
    }

    pub(super) fn failed(&self, error: &Error) -> End {
        failed(self.gateway, self.route, self.received.call.id.as_ref(), error).into()
    }

    pub(super) fn limit(&self, exchange: &Exchange) -> usize {
        exchange.snapshot.config.limits.answer.bytes()
    }

    pub(super) fn limits(&self, exchange: &Exchange) -> Limits {
        Limits { depth: exchange.snapshot.config.limits.depth as usize, nodes: MAX_NODES }
    }
}

fn whole(text: &[u8]) -> Node<'_> {
    Node::of(text, Span::whole(text))
}
