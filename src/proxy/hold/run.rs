//! An approved call on its way: sent by a task of its own, once, built from the very bytes that were approved.
//!
//! No client's leaving cuts it, and the gateway's stop waits for it as for any request. Its whole answer is read and
//! kept, for everybody who waits in whatever process. What it asks of a client is refused: nobody may be there.

use super::super::ask::{Allowance, answer_instead, refusal_of};
use super::super::forward;
use super::super::reply::{Kind, MAX_NODES, kind, sealed};
use super::super::traced;
use super::progress::{News, token};
use super::{Caller, Permit};
use crate::approval::{Consumed, Ending, UNKNOWN_END};
use crate::identity::Principal;
use crate::jsonrpc::{self, Id, Limits, Message, Node, Notification, Span};
use crate::mcp::{self, Ask, Era, sse, without_tasks};
use crate::metrics::InFlight;
use crate::otlp::KeyValue;
use crate::snapshot::{Route, Snapshot};
use crate::trace::{Aside, Onward};
use crate::upstream::{Answer, Definitions, Error, Request, Scope, Send, Session, also_named};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// What of a client's `_meta` travels with a held call.
const META: [&str; 6] = [
    "io.modelcontextprotocol/protocolVersion",
    CAPABILITIES,
    "io.modelcontextprotocol/clientInfo",
    "traceparent",
    "tracestate",
    "baggage",
];

/// A stream is taken up again after this long, where its server does not say.
const RETRY: Duration = Duration::from_secs(1);
const SHORTEST_RETRY: Duration = Duration::from_millis(10);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// One call that runs.
pub(super) struct Run {
    gateway: Arc<super::Gateway>,
    route: Arc<Route>,
    principal: Principal,
    consumed: Consumed,
    request: Request,
    /// What the server knows the call by: nobody else's id.
    id: Id,
    method: &'static mcp::Method,
    era: Era,
    session: Option<Session>,
    /// To the caller whose request runs it, for as long as it is there.
    news: mpsc::Sender<News>,
    /// Its span, where there is a trace.
    aside: Option<Aside>,
    asks: Allowance,
    limit: usize,
    limits: Limits,
    _in_flight: InFlight,
}

impl Run {
    /// The call of `consumed`, in the name of `caller`, with these headers.
    pub(super) fn new(
        caller: &Caller<'_>,
        snapshot: &Snapshot,
        route: &Arc<Route>,
        definitions: &Definitions,
        consumed: Consumed,
        (mut headers, news, aside): (Vec<(HeaderName, HeaderValue)>, mpsc::Sender<News>, Option<Aside>),
    ) -> Box<Run> {
        let received = caller.received;
        let quoted = serde_json::Value::from(crate::id::unguessable("portcullis-")).to_string();
        let id = Id::of(Node::of(quoted.as_bytes(), Span::whole(quoted.as_bytes()))).expect("a short string is an id");
        let call = consumed.call();
        also_named(&mut headers, consumed.id());
        if received.call.era == Era::Modern
            && let Some(definition) = definitions.tools.get(&call.tool())
        {
            headers.extend(definition.parameters.made_from(call.arguments()));
        }
        let onward = aside.as_ref().map(Aside::onward);
        let body = body(&consumed, &id, &received.body, token(received), onward.as_ref());
        let limits = &snapshot.config.limits;
        // Once, and nowhere but where it was approved to go: it is not sent again, on whatever word of its server.
        let (is_repeatable, follows_redirects) = (false, false);
        let method = Method::POST;
        Box::new(Run {
            gateway: Arc::clone(caller.gateway),
            route: Arc::clone(route),
            principal: caller.principal.clone(),
            request: Request { method, body, headers, is_repeatable, is_lasting: false, follows_redirects },
            id,
            method: received.call.method,
            era: received.call.era,
            session: received.session.clone(),
            news,
            aside,
            asks: Allowance::default(),
            limit: limits.answer.bytes(),
            limits: Limits { depth: limits.depth as usize, nodes: MAX_NODES },
            consumed,
            _in_flight: caller.gateway.metrics.begin(),
        })
    }

    /// Sends it, in a task that keeps what comes of it.
    pub(super) fn start(mut self: Box<Self>, permit: Permit) {
        tokio::spawn(async move {
            let answered = self.answer(permit).await;
            self.traced(&answered);
            let ending = match answered {
                Ok(answer) => Ending { is_completed: true, answer, note: None },
                Err(error) => self.failure(&error),
            };
            crate::fault::point("approval.answered");
            let id = Arc::clone(self.consumed.id());
            if let Err(error) = self.gateway.approvals.finish(self.consumed, ending).await {
                tracing::error!(%error, approval = %id, "a held call ran, and its end cannot be written down");
            }
            crate::fault::point("approval.finished");
        });
    }

    fn traced(&mut self, answered: &Result<Bytes, Error>) {
        if let Some(aside) = self.aside.take() {
            let tool = self.consumed.call().tool();
            let mut said = traced::of_forward(&self.route.name, self.method.name, Some(&tool));
            said.push(KeyValue::text("portcullis.approval.id", &**self.consumed.id()));
            let fault = answered.as_ref().ok().and_then(|answer| traced::fault_of_member(answer));
            let error = answered.as_ref().err().map(Error::code);
            aside.end(&self.gateway.tracer, format!("{} {tool}", self.method.name), said, error, fault);
        }
    }

    /// The member of the server's answer with the result or the error.
    async fn answer(&mut self, permit: Permit) -> Result<Bytes, Error> {
        crate::fault::point("approval.sending");
        let answer = forward::dispatch(&self.gateway, &self.route, &self.request, permit).await?;
        crate::fault::point("approval.sent");
        match (answer.status, kind(&answer)) {
            (StatusCode::OK, Kind::Json) => self.whole(answer).await,
            (StatusCode::OK, Kind::Stream) => self.stream(answer).await,
            (StatusCode::OK, Kind::Other) => Err(Error::Malformed("neither JSON nor an event stream".into())),
            (StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND, _) => self.refused(answer).await,
            (status, _) => Err(Error::Status(status.as_u16())),
        }
    }

    async fn whole(&self, mut answer: Answer) -> Result<Bytes, Error> {
        let text = answer.read_all(self.limit).await?;
        answer.release().await;
        self.taken(text)
    }

    /// 400 and 404 may hold a JSON-RPC error about this call.
    async fn refused(&self, mut answer: Answer) -> Result<Bytes, Error> {
        let status = answer.status;
        let text = answer.read_all(self.limit).await?;
        answer.release().await;
        match jsonrpc::parse_answer(&text, self.limits) {
            Ok(Message::Response(response)) if response.id.as_ref().is_none_or(|id| *id == self.id) => {
                member(&text).ok_or(Error::Status(status.as_u16()))
            }
            _ => Err(Error::Status(status.as_u16())),
        }
    }

    fn taken(&self, text: Bytes) -> Result<Bytes, Error> {
        let malformed = |why: &str| Error::Malformed(why.to_owned());
        match jsonrpc::parse_answer(&text, self.limits) {
            Ok(Message::Response(response)) if response.id.as_ref() == Some(&self.id) => {
                let scope = Scope { upstream: &self.route.name, principal: &self.principal };
                let tool = self.consumed.call().tool();
                let text = sealed(&self.gateway.seal, scope, self.era, self.method, &tool, text);
                member(&text).ok_or_else(|| malformed("neither a result nor an error"))
            }
            Ok(Message::Response(_)) => Err(malformed("an answer to another request")),
            Ok(_) => Err(malformed("not a response")),
            Err(error) => Err(malformed(&error.to_string())),
        }
    }

    /// A stream with the answer in it, taken up again where the server ends it before (MCP 2025-11-25, Streamable HTTP:
    /// "the server MAY close the connection").
    async fn stream(&mut self, answer: Answer) -> Result<Bytes, Error> {
        let (until, mut place) = (Instant::now() + self.route.upstream.timeouts.total, sse::Place::default());
        let mut answer = Some(answer);
        loop {
            let open = match answer.take() {
                Some(open) => open,
                None => self.take_up(&place).await?,
            };
            let lost = match self.read(open, &mut place).await {
                Ok(Some(last)) => return self.taken(last),
                Ok(None) => Error::Lost { cause: "a stream without an answer".into(), has_answered: true },
                Err(error) => error,
            };
            let has_place = self.era == Era::Legacy && place.id.as_ref().is_some_and(|id| !id.is_empty());
            if !has_place || !matches!(lost, Error::Lost { .. }) || until <= Instant::now() {
                return Err(lost);
            }
            let pause = place.retry_ms.map_or(RETRY, Duration::from_millis).clamp(SHORTEST_RETRY, LONGEST_RETRY);
            tokio::time::sleep_until((Instant::now() + pause).min(until)).await;
        }
    }

    /// Reads one stream to its end, or to the answer; notes where it was.
    async fn read(&mut self, mut answer: Answer, place: &mut sse::Place) -> Result<Option<Bytes>, Error> {
        let mut decoder = sse::Decoder::new(self.limit);
        let mut events = Vec::new();
        while let Some(piece) = answer.read().await? {
            decoder.push(&piece, &mut events).map_err(|over| Error::TooLarge { limit: over.limit })?;
            for event in events.drain(..) {
                if let Some(last) = self.sort(event, place) {
                    answer.cut().await;
                    return Ok(Some(last));
                }
            }
        }
        answer.release().await;
        Ok(decoder.finish().and_then(|event| self.sort(event, place)))
    }

    async fn take_up(&self, place: &sse::Place) -> Result<Answer, Error> {
        let mut headers = self.request.headers.clone();
        let id = place.id.as_ref().and_then(|id| HeaderValue::try_from(id).ok());
        headers.extend(id.map(|id| (HeaderName::from_static("last-event-id"), id)));
        let request = Request {
            method: Method::GET,
            body: Bytes::new(),
            headers,
            is_repeatable: true,
            is_lasting: false,
            follows_redirects: false,
        };
        let sender = Send { upstream: &self.route.upstream, shared: &self.gateway.shared };
        let answer = sender.send(&request).await?;
        match (answer.status, kind(&answer)) {
            (StatusCode::OK, Kind::Stream) => Ok(answer),
            _ => Err(Error::Lost { cause: "a stream that cannot be taken up again".into(), has_answered: true }),
        }
    }

    /// The answer is returned, news are passed on, questions refused, everything else dropped.
    fn sort(&mut self, event: sse::Event, place: &mut sse::Place) -> Option<Bytes> {
        place.id = event.id.clone().or(place.id.take());
        place.retry_ms = event.retry_ms.or(place.retry_ms);
        if !event.is_message() || event.data.is_empty() {
            return None;
        }
        match jsonrpc::parse_answer(&event.data, self.limits) {
            Ok(Message::Response(response)) if response.id.as_ref() == Some(&self.id) => return Some(event.data),
            Ok(Message::Notification(told)) => self.tell(event.data, &told),
            Ok(Message::Request(asked)) => self.refuse(&asked),
            Ok(Message::Response(_)) => self.count_dropped("foreign_response"),
            Err(_) => self.count_dropped("malformed"),
        }
        None
    }

    fn tell(&self, message: Bytes, told: &Notification) {
        let progress = match told.method.as_str() {
            "notifications/message" => None,
            "notifications/progress" => {
                let said = told.params.as_ref().and_then(|params| params.get("progress"));
                let said = said.and_then(|span| Node::of(&message, span).as_number()?.parse().ok());
                Some(said.unwrap_or(f64::NAN))
            }
            "notifications/tools/list_changed" => return self.route.upstream.mark_stale(),
            _ => return self.count_dropped("held_call"),
        };
        // Nobody may be there, or be too slow: it is only told on the way.
        let _ = self.news.try_send(News { message, progress });
    }

    /// Who would be asked may have left, and what runs is what was approved: no answer of a client belongs to that.
    fn refuse(&mut self, asked: &jsonrpc::Request) {
        if self.era == Era::Modern || !self.asks.take() {
            return self.count_dropped("server_request");
        }
        self.count_dropped("server_request");
        let answer = match Ask::of_method(&asked.method) {
            Some(Ask::Ping) => Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, asked.id.as_json())),
            Some(_) => refusal_of(&asked.id, -32601, "The client of an approved call cannot be asked"),
            None => refusal_of(&asked.id, -32601, "Method not found"),
        };
        let (gateway, route) = (&self.gateway, &self.route);
        answer_instead(&gateway.refusals, &route.upstream, &gateway.shared, self.session.as_ref(), answer);
    }

    fn count_dropped(&self, reason: &'static str) {
        self.gateway.metrics.dropped_message(&self.route.name, reason);
    }

    /// What callers and people are told where the server gave no answer.
    fn failure(&self, error: &Error) -> Ending {
        let name = &self.route.name;
        self.gateway.metrics.upstream_error(name, error.code());
        tracing::warn!(upstream = %name, %error, approval = %self.consumed.id(), "an approved call failed");
        let has_run = if error.is_unsent() { "It did not run." } else { UNKNOWN_END };
        let public = error.public(name);
        // Said once, for every failure in the same words.
        let public = public.split_once("; whether").map_or(&*public, |(what, _)| what);
        let text = format!("{public}. {has_run} Its approval is used up (held call {}).", self.consumed.id());
        let error = json!({ "code": -32603, "message": text, "data": { "code": error.code() } });
        Ending {
            is_completed: false,
            answer: Bytes::from(format!(r#""error":{error}"#)),
            note: Some(format!("{public}. {has_run}")),
        }
    }
}

/// A new message, of nothing but what was approved and what the protocol needs.
fn body(consumed: &Consumed, id: &Id, received: &[u8], token: Option<&str>, onward: Option<&Onward>) -> Bytes {
    let call = consumed.call();
    let name = serde_json::Value::from(call.tool());
    let mut params = format!(r#""name":{name}"#);
    let mut add = |name: &str, json: &str| params.push_str(&format!(r#","{name}":{json}"#));
    if let Some(arguments) = call.arguments() {
        add("arguments", arguments.text());
    }
    if let Some(responses) = call.input_responses() {
        add("inputResponses", responses.text());
    }
    if let Some(state) = call.request_state() {
        add("requestState", &serde_json::Value::from(state).to_string());
    }
    let meta = Node::of(received, Span::whole(received)).get("params").and_then(|params| params.get("_meta"));
    let kept = META.into_iter().filter_map(|key| Some((key, meta?.get(key)?)));
    let kept = kept.map(|(key, value)| match key {
        CAPABILITIES => (key, without_tasks(value)),
        "traceparent" => (key, onward.map_or_else(|| value.text().to_owned(), |to| format!("\"{}\"", to.traceparent))),
        _ => (key, value.text().to_owned()),
    });
    let kept = kept.chain(token.map(|token| ("progressToken", token.to_owned())));
    let kept: Vec<String> = kept.map(|(key, json)| format!(r#""{key}":{json}"#)).collect();
    if !kept.is_empty() {
        add("_meta", &format!("{{{}}}", kept.join(",")));
    }
    let id = id.as_json();
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{params}}}}}"#))
}

/// `"result":…` or `"error":…` of a response.
fn member(text: &[u8]) -> Option<Bytes> {
    let whole = Node::of(text, Span::whole(text));
    let member = |name: &str| Some(Bytes::from(format!(r#""{name}":{}"#, whole.get(name)?.text())));
    member("result").or_else(|| member("error"))
}
