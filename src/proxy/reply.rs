//! From the upstream's answer to the client's: read strictly, matched to the call, lists filtered, passed on at once.
//!
//! Of the upstream's headers only the session id crosses, sealed. A JSON answer is passed byte for byte; an event
//! stream is taken apart and put together again, one accepted message an event, so that nothing an upstream writes can
//! become a field of ours. Messages that answer nobody's question here are dropped and counted.

use super::Gateway;
use super::exchange::{End, Exchange};
use super::forward::failed;
use super::receive::Received;
use super::record::Outcome;
use super::refuse::{Code, Refusal};
use crate::identity::Principal;
use crate::jsonrpc::{self, Limits, Message, Response};
use crate::mcp::{self, Call, Era, Listing, Verb, sse};
use crate::policy::Object;
use crate::snapshot::Route;
use crate::upstream::{Answer, Error};
use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, StatusCode};
use std::time::Duration;

/// JSON values in one answer; its size is limited on its own.
const MAX_NODES: usize = 4_000_000;
/// The end of an upstream's stream is waited for this long after its last message, to keep the connection.
const LAST_CHUNK: Duration = Duration::from_millis(20);

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
    answer: Answer,
) -> Result<Outcome, End> {
    let call = &received.call;
    // An id that the client already has need not be sealed once more: every seal of it looks different.
    let is_news = call.era == Era::Legacy && answer.session != received.session;
    let session = answer.session.as_ref().filter(|_| is_news);
    let session = session.map(|id| gateway.sessions.seal(id, &route.name, principal));
    let reply = Reply { gateway, route, principal, call, session };
    if call.id.is_none() {
        return reply.acknowledge(exchange, answer).await;
    }
    match (answer.status, kind(&answer)) {
        (StatusCode::OK, Kind::Json) => reply.whole(exchange, answer).await,
        (StatusCode::OK, Kind::Stream) => reply.stream(exchange, answer).await,
        (StatusCode::OK, Kind::Other) => {
            Err(reply.failed(&Error::Malformed("neither JSON nor an event stream".into())))
        }
        (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND, _) => reply.refused_by_upstream(exchange, answer).await,
        (status, _) => Err(reply.failed(&Error::Status(status.as_u16()))),
    }
}

/// What is known while one answer is passed on.
struct Reply<'a> {
    gateway: &'a Gateway,
    route: &'a Route,
    principal: &'a Principal,
    call: &'a Call,
    /// The upstream's session id, sealed for this client.
    session: Option<HeaderValue>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Stream,
    Other,
}

fn kind(answer: &Answer) -> Kind {
    let value = answer.content_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.split(';').next().map(|kind| kind.trim().to_ascii_lowercase()).as_deref() {
        Some("application/json") => Kind::Json,
        Some("text/event-stream") => Kind::Stream,
        _ => Kind::Other,
    }
}

impl Reply<'_> {
    /// A notification is acknowledged with 202 and nothing else (MCP, Streamable HTTP, "Sending Messages to the Server").
    async fn acknowledge(&self, exchange: &mut Exchange, mut answer: Answer) -> Result<Outcome, End> {
        let status = answer.status;
        let drained = exchange.while_there(answer.read_all(64 * 1024)).await?;
        if drained.is_ok() {
            answer.release().await;
        }
        if status.is_success() {
            exchange.answer(StatusCode::ACCEPTED, &self.session_header(), Bytes::new()).await?;
            return Ok(Outcome::Completed);
        }
        let is_unknown_session = status == StatusCode::NOT_FOUND && self.call.era == Era::Legacy;
        if is_unknown_session {
            return Err(Refusal::http(Code::Session, "unknown session; initialize a new one").into());
        }
        Err(self.failed(&Error::Status(status.as_u16())))
    }

    /// One JSON body.
    async fn whole(&self, exchange: &mut Exchange, mut answer: Answer) -> Result<Outcome, End> {
        let limit = self.limit(exchange);
        let read = exchange.while_there(answer.read_all(limit)).await?;
        let text = read.map_err(|error| self.failed(&error))?;
        answer.release().await;
        let message = self.accept(exchange, text).map_err(|why| self.failed(&Error::Malformed(why)))?;
        self.deliver(exchange, StatusCode::OK, message).await
    }

    /// 400 and 404 mean something to clients (an unknown session, an unknown method, an era not spoken) and keep
    /// their meaning; the body is passed on where it is a JSON-RPC error about this call.
    async fn refused_by_upstream(&self, exchange: &mut Exchange, mut answer: Answer) -> Result<Outcome, End> {
        let status = answer.status;
        let limit = self.limit(exchange);
        let read = exchange.while_there(answer.read_all(limit)).await?;
        let text = read.map_err(|error| self.failed(&error))?;
        answer.release().await;
        self.gateway.metrics.upstream_error(&self.route.name, Error::Status(0).code());
        let id = self.call.id.as_ref();
        let is_missing = status == StatusCode::NOT_FOUND && self.call.era == Era::Legacy;
        match jsonrpc::parse_answer(&text, self.limits(exchange)) {
            Ok(Message::Response(response)) if response.id.is_none() || response.id.as_ref() == id => {
                self.deliver(exchange, status, text).await
            }
            _ if is_missing && exchange.session.req_header().headers.contains_key("mcp-session-id") => {
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

    /// Writes the one message that ends the exchange, in a form the client takes.
    async fn deliver(&self, exchange: &mut Exchange, status: StatusCode, message: Bytes) -> Result<Outcome, End> {
        let must_stream = exchange.is_streaming() || !exchange.facts.accepts.json;
        if must_stream {
            exchange.begin_stream(self.session.clone()).await?;
            exchange.write(sse::encode(&message)).await?;
            exchange.end_stream().await?;
        } else {
            let mut headers = self.session_header();
            headers.push((CONTENT_TYPE, HeaderValue::from_static("application/json")));
            headers.push((CACHE_CONTROL, HeaderValue::from_static("no-store")));
            exchange.answer(status, &headers, message).await?;
        }
        Ok(Outcome::Completed)
    }

    /// An event stream, passed on event by event as it comes.
    async fn stream(&self, exchange: &mut Exchange, mut answer: Answer) -> Result<Outcome, End> {
        let takes_stream = exchange.facts.accepts.stream;
        if takes_stream {
            exchange.begin_stream(self.session.clone()).await?;
            exchange.write(Bytes::from_static(sse::COMMENT)).await?;
        }
        let mut decoder = sse::Decoder::new(self.limit(exchange));
        let mut events = Vec::new();
        loop {
            let read = exchange.while_there(answer.read()).await?;
            let piece = read.map_err(|error| self.failed(&error))?;
            let is_end = piece.is_none();
            match piece {
                Some(piece) => decoder
                    .push(&piece, &mut events)
                    .map_err(|over| self.failed(&Error::TooLarge { limit: over.limit }))?,
                None => events.extend(std::mem::replace(&mut decoder, sse::Decoder::new(0)).finish()),
            }
            // What one read brought goes out in one write.
            let mut out = BytesMut::new();
            let last = events.drain(..).find_map(|event| self.sort(exchange, event, &mut out));
            if let Some(last) = last {
                let concluded = self.conclude(exchange, takes_stream, out, last).await;
                self.finish(answer, is_end).await;
                return concluded;
            }
            if takes_stream && !out.is_empty() {
                exchange.write(out.freeze()).await?;
            }
            if is_end {
                return Err(
                    self.failed(&Error::Lost { cause: "a stream without an answer".into(), has_answered: true })
                );
            }
        }
    }

    async fn conclude(
        &self,
        exchange: &mut Exchange,
        takes_stream: bool,
        mut out: BytesMut,
        last: Bytes,
    ) -> Result<Outcome, End> {
        if !takes_stream {
            return self.deliver(exchange, StatusCode::OK, last).await;
        }
        out.extend_from_slice(&sse::encode(&last));
        exchange.write(out.freeze()).await?;
        exchange.end_stream().await?;
        Ok(Outcome::Completed)
    }

    /// Keeps the connection if the upstream has nothing more to say.
    async fn finish(&self, mut answer: Answer, is_end: bool) {
        let ended = is_end || matches!(tokio::time::timeout(LAST_CHUNK, answer.read()).await, Ok(Ok(None)));
        if ended {
            answer.release().await;
        } else {
            answer.cut().await;
        }
    }

    /// What one event means: the answer itself is returned, a notification is added to `out`, everything else dropped.
    fn sort(&self, exchange: &Exchange, event: sse::Event, out: &mut BytesMut) -> Option<Bytes> {
        if !event.is_message() || event.data.is_empty() {
            return None;
        }
        match jsonrpc::parse_answer(&event.data, self.limits(exchange)) {
            Ok(Message::Response(response)) if response.id == self.call.id => {
                return Some(self.filtered(exchange, event.data, &response));
            }
            Ok(Message::Notification(_)) => out.extend_from_slice(&sse::encode(&event.data)),
            Ok(Message::Response(_)) => self.drop_message("foreign_response"),
            // No client could answer it through us yet.
            Ok(Message::Request(_)) => self.drop_message("server_request"),
            Err(_) => self.drop_message("malformed"),
        }
        None
    }

    fn drop_message(&self, reason: &'static str) {
        tracing::warn!(upstream = %self.route.name, reason, "a message of the upstream was not passed on");
        self.gateway.metrics.dropped_message(&self.route.name, reason);
    }

    /// The answer to this call in `text`, filtered where it is a list; or why it is none.
    fn accept(&self, exchange: &Exchange, text: Bytes) -> Result<Bytes, String> {
        match jsonrpc::parse_answer(&text, self.limits(exchange)) {
            Ok(Message::Response(response)) if response.id == self.call.id => {
                Ok(self.filtered(exchange, text, &response))
            }
            Ok(Message::Response(_)) => Err("an answer to another request".to_owned()),
            Ok(_) => Err("not a response".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn filtered(&self, exchange: &Exchange, text: Bytes, response: &Response) -> Bytes {
        let jsonrpc::Outcome::Result(result) = response.outcome else {
            return text;
        };
        let listing = match self.call.method.verb {
            Verb::List(listing) => Some(listing),
            // Judged per principal, so that no shared cache may keep them either.
            Verb::ReadResource => None,
            _ => return text,
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
        mcp::filter(&text, result, listing, keep).into()
    }

    fn session_header(&self) -> Vec<(HeaderName, HeaderValue)> {
        self.session.clone().map(|id| (HeaderName::from_static("mcp-session-id"), id)).into_iter().collect()
    }

    fn failed(&self, error: &Error) -> End {
        failed(self.gateway, self.route, self.call.id.as_ref(), error).into()
    }

    fn limit(&self, exchange: &Exchange) -> usize {
        exchange.snapshot.config.limits.answer.bytes()
    }

    fn limits(&self, exchange: &Exchange) -> Limits {
        Limits { depth: exchange.snapshot.config.limits.depth as usize, nodes: MAX_NODES }
    }
}
