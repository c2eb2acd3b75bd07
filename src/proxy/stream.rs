//! An event stream of the upstream, passed on event by event as it comes.
//!
//! Three kinds: the stream that answers a call and ends with its answer; the stream of a session (`GET`) or of a
//! subscription, which lasts; and a stream that is taken up again at an event. What one read brought goes out in one
//! write, and nothing waits for more. Event ids of older servers leave sealed; what lasts ends by itself when its
//! client may no longer have it, or when the gateway stops.

use super::coalesce::Coalesced;
use super::exchange::{End, Exchange};
use super::record::Outcome;
use super::reply::Reply;
use super::welcome::Welcome;
use crate::jsonrpc::{self, Message, Node, Notification};
use crate::mcp::{Verb, sse};
use crate::policy::Object;
use crate::upstream::{Answer, Error, EventId};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// The end of an upstream's stream is waited for this long after its last message, to keep the connection.
const LAST_CHUNK: Duration = Duration::from_millis(20);
/// What has come goes out in writes of about this size, in bytes.
const MAX_WRITE: usize = 64 * 1024;
/// How long a server may make its clients wait before they come back, in milliseconds. Some take much larger numbers for none.
const LONGEST_RETRY: u64 = 60 * 60 * 1000;
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";

/// Passes the stream on.
///
/// # Errors
/// The upstream's failure as a refusal, or the client's leaving.
pub(super) async fn pass_on(reply: &Reply<'_>, exchange: &mut Exchange, answer: Answer) -> Result<Outcome, End> {
    let call = &reply.received.call;
    let is_opening = call.method.name == "initialize";
    // The session that `initialize` opens stands in the head, and what was agreed on only in the answer.
    let writes_events = exchange.facts.accepts.stream && !is_opening;
    if writes_events {
        let session = reply.session_header(answer.session.clone()).map(|(_, id)| id);
        exchange.begin_stream(session).await?;
        exchange.write(Bytes::from_static(sse::COMMENT)).await?;
    }
    let is_lasting = matches!(call.method.verb, Verb::Stream | Verb::Listen);
    let pump = Pump {
        reply,
        writes_events,
        is_resumable: false,
        welcome: is_lasting.then(|| Welcome::new(reply, exchange)),
        decoder: sse::Decoder::new(reply.limit(exchange)),
        coalesced: Coalesced::default(),
        early: None,
    };
    pump.run(exchange, answer).await
}

/// One stream on its way.
struct Pump<'a> {
    reply: &'a Reply<'a>,
    /// Whether the client gets events; one that takes no stream gets the answer alone.
    writes_events: bool,
    /// Whether the client can take the stream up again: it has seen an event id.
    is_resumable: bool,
    /// Of a stream that lasts.
    welcome: Option<Welcome>,
    decoder: sse::Decoder,
    coalesced: Coalesced,
    /// The end of the stream, seen while what came before it had yet to go out.
    early: Option<Result<Option<Bytes>, Error>>,
}

/// What happened next.
pub(super) enum Next {
    Read(Result<Option<Bytes>, Error>),
    /// The configuration or the revocations changed.
    Changed,
    /// A notification that was held back is due.
    Due,
    /// The stream is to end: the gateway stops, or what it was opened with is over.
    Ending,
}

impl Pump<'_> {
    async fn run(mut self, exchange: &mut Exchange, mut answer: Answer) -> Result<Outcome, End> {
        let mut events = Vec::new();
        loop {
            let mut out = BytesMut::new();
            match self.next(exchange, &mut answer).await? {
                Next::Read(Ok(Some(piece))) => {
                    let mut piece = Some(piece);
                    while let Some(next) = piece.take() {
                        let taken = self.decoder.push(&next, &mut events);
                        taken.map_err(|over| self.reply.failed(&Error::TooLarge { limit: over.limit }))?;
                        let last = events.drain(..).find_map(|event| self.sort(exchange, event, &mut out));
                        if let Some(last) = last {
                            return self.conclude(exchange, answer, out, last).await;
                        }
                        piece = self.at_hand(&mut answer, out.len()).await;
                    }
                }
                Next::Read(Ok(None)) => return self.ended(exchange, answer, out).await,
                Next::Read(Err(error)) => {
                    self.put_rest(exchange, out).await?;
                    return self.broken(exchange, &error).await;
                }
                Next::Changed => match self.welcome.as_mut().map(|welcome| welcome.look_again(self.reply)) {
                    Some(Some(news)) => out.extend_from_slice(&news),
                    _ => return self.closed(exchange, answer).await,
                },
                Next::Due => self.coalesced.flush(&mut out),
                Next::Ending => {
                    self.put_rest(exchange, out).await?;
                    return self.closed(exchange, answer).await;
                }
            }
            self.put(exchange, out).await?;
        }
    }

    /// Sends what there is to send.
    async fn put(&self, exchange: &mut Exchange, out: BytesMut) -> Result<(), End> {
        if self.writes_events && !out.is_empty() {
            exchange.write(out.freeze()).await?;
        } else {
            exchange.look().await?;
        }
        Ok(())
    }

    /// The same at the end of the stream: what was held back goes with it.
    async fn put_rest(&mut self, exchange: &mut Exchange, mut out: BytesMut) -> Result<(), End> {
        self.coalesced.flush(&mut out);
        self.put(exchange, out).await
    }

    /// Another piece that has come already, to go out in the same write.
    async fn at_hand(&mut self, answer: &mut Answer, gathered: usize) -> Option<Bytes> {
        if gathered >= MAX_WRITE {
            return None;
        }
        match answer.read_now().await? {
            Ok(Some(piece)) => Some(piece),
            end => {
                self.early = Some(end);
                None
            }
        }
    }

    /// Waits for what comes next, while the client is there.
    async fn next(&mut self, exchange: &mut Exchange, answer: &mut Answer) -> Result<Next, End> {
        if let Some(end) = self.early.take() {
            return Ok(Next::Read(end));
        }
        let due = self.coalesced.due();
        let Some(welcome) = &mut self.welcome else {
            return Ok(match due {
                None => Next::Read(exchange.while_there(answer.read()).await?),
                Some(due) => {
                    let read = exchange.while_there(tokio::time::timeout_at(due, answer.read())).await?;
                    read.map_or(Next::Due, Next::Read)
                }
            });
        };
        let next = async {
            tokio::select! {
                biased;
                news = welcome.news() => news,
                read = answer.read() => Next::Read(read),
                () = at(due) => Next::Due,
            }
        };
        Ok(exchange.while_there(next).await?)
    }

    /// What one event means: the answer that ends the stream is returned, what is to be passed on is added to `out`,
    /// everything else dropped.
    fn sort(&mut self, exchange: &Exchange, event: sse::Event, out: &mut BytesMut) -> Option<Bytes> {
        let (place, before) = (self.place(&event), out.len());
        let last = self.sort_at(&place, exchange, event, out);
        if out.len() > before
            && let Some(id) = &place.id
        {
            self.is_resumable = !id.is_empty();
        }
        last
    }

    fn sort_at(
        &mut self,
        place: &sse::Place,
        exchange: &Exchange,
        event: sse::Event,
        out: &mut BytesMut,
    ) -> Option<Bytes> {
        if !event.is_message() || event.data.is_empty() {
            if *place != sse::Place::default() {
                sse::write(out, b"", place);
            }
            return None;
        }
        match jsonrpc::parse_answer(&event.data, self.reply.limits(exchange)) {
            Ok(Message::Response(response)) if self.reply.is_awaited(response.id.as_ref()) => {
                let message = self.reply.rewritten(exchange, event.data, &response);
                let is_end = self.reply.received.call.id.is_some();
                if is_end && !self.writes_events {
                    return Some(message);
                }
                if is_end {
                    self.coalesced.flush(out);
                }
                sse::write(out, &message, place);
                is_end.then(Bytes::new)
            }
            Ok(Message::Notification(told)) => {
                self.notify(exchange, &event.data, &told, place, out);
                None
            }
            Ok(Message::Request(asked)) => {
                if self.reply.may_ask(exchange, &asked) {
                    sse::write(out, &event.data, place);
                }
                None
            }
            Ok(Message::Response(_)) => {
                self.reply.count_dropped("foreign_response");
                None
            }
            Err(_) => {
                self.reply.count_dropped("malformed");
                None
            }
        }
    }

    /// The event's place in the stream, as the client gets to see it. The newer era has none. An empty id stays empty: it
    /// makes the client forget the last one.
    fn place(&self, event: &sse::Event) -> sse::Place {
        if !self.reply.is_legacy() {
            return sse::Place::default();
        }
        let id = event.id.as_ref().filter(|id| EventId::can_come_back(id)).map(|id| {
            if id.is_empty() {
                return String::new();
            }
            let event = EventId { id: id.clone(), call: self.reply.pending.clone() };
            let session = self.reply.received.session.as_ref().map(|session| &session.id);
            self.reply.gateway.seal.event_id(&event, session, self.reply.scope())
        });
        sse::Place { id, retry_ms: event.retry_ms.map(|ms| ms.min(LONGEST_RETRY)) }
    }

    fn notify(
        &mut self,
        exchange: &Exchange,
        text: &Bytes,
        told: &Notification,
        place: &sse::Place,
        out: &mut BytesMut,
    ) {
        let params = told.params.as_ref();
        let member = |key: &str| params.and_then(|params| params.get(key)).map(|span| Node::of(text, span));
        if self.reply.received.call.method.verb == Verb::Listen {
            let of = member("_meta").and_then(|meta| meta.get(SUBSCRIPTION_KEY)).and_then(jsonrpc::Id::of);
            if of != self.reply.received.call.id {
                return self.reply.count_dropped("foreign_subscription");
            }
        }
        if told.method == "notifications/resources/updated" {
            let uri = member("uri").and_then(Node::as_str).unwrap_or_default();
            let policy = &exchange.snapshot.policy;
            if !policy.is_listed(self.reply.principal, &self.reply.route.name, Object::Resource(&uri)) {
                return self.reply.count_dropped("unlisted_resource");
            }
        }
        if told.method == "notifications/tools/list_changed" {
            self.reply.route.upstream.mark_stale();
        }
        self.coalesced.pass(&told.method, text, place, out);
    }
}

// === impl Pump: ends ===

impl Pump<'_> {
    /// The answer has come: `last`, which stands in `out` already where the client gets events.
    async fn conclude(
        &self,
        exchange: &mut Exchange,
        answer: Answer,
        out: BytesMut,
        last: Bytes,
    ) -> Result<Outcome, End> {
        let session = answer.session.clone();
        let concluded = if self.writes_events {
            exchange.write(out.freeze()).await?;
            exchange.end_stream().await.map(|()| Outcome::Completed).map_err(End::from)
        } else {
            self.reply.deliver(exchange, http::StatusCode::OK, session, last).await
        };
        self.finish(answer).await;
        concluded
    }

    /// Keeps the connection if the upstream has nothing more to say.
    async fn finish(&self, mut answer: Answer) {
        if matches!(tokio::time::timeout(LAST_CHUNK, answer.read()).await, Ok(Ok(None))) {
            answer.release().await;
        } else {
            answer.cut().await;
        }
    }

    /// The upstream has ended the stream. That of a call ends without its answer only where it can be taken up again
    /// (MCP 2025-11-25, Streamable HTTP: "the server MAY close the connection").
    async fn ended(mut self, exchange: &mut Exchange, answer: Answer, mut out: BytesMut) -> Result<Outcome, End> {
        let rest = std::mem::replace(&mut self.decoder, sse::Decoder::new(0)).finish();
        if let Some(last) = rest.and_then(|event| self.sort(exchange, event, &mut out)) {
            return self.conclude(exchange, answer, out, last).await;
        }
        answer.release().await;
        if self.may_end() {
            self.put_rest(exchange, out).await?;
            exchange.end_stream().await?;
            return Ok(Outcome::Completed);
        }
        Err(self.reply.failed(&Error::Lost { cause: "a stream without an answer".into(), has_answered: true }))
    }

    /// The upstream is lost. A client that can take the stream up again will; to any other it is said.
    async fn broken(&self, exchange: &mut Exchange, error: &Error) -> Result<Outcome, End> {
        let end = self.reply.failed(error);
        if matches!(error, Error::Lost { .. }) && self.may_end() {
            exchange.end_stream().await?;
            return Ok(Outcome::UpstreamLost);
        }
        Err(end)
    }

    fn may_end(&self) -> bool {
        self.writes_events && (self.welcome.is_some() || self.is_resumable)
    }

    /// We end a stream that lasts.
    async fn closed(&self, exchange: &mut Exchange, answer: Answer) -> Result<Outcome, End> {
        answer.cut().await;
        exchange.end_stream().await?;
        Ok(Outcome::Closed)
    }
}

pub(super) async fn at(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
