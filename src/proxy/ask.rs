//! What a server of the older era asks of its client in mid-call: passed on where the client can be asked, and where
//! the answer will find its way back.
//!
//! The answer comes in a request of its own and is told from others by the session alone. Without one, any client of
//! the upstream could answer for any other: then nobody is asked. A server that is refused hears so at once, in the
//! client's place, and does not wait for an answer that will not come.

use super::exchange::Exchange;
use super::record;
use super::reply::Reply;
use crate::jsonrpc::{Id, Request as Asked};
use crate::mcp::Ask;
use crate::upstream::{Request, Send, Session, Shared, Upstream};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What a server may still ask on one stream: so many at once, and then one a second.
pub(super) struct Allowance {
    left: u32,
    since: Instant,
}

const AT_ONCE: u32 = 100;

impl Default for Allowance {
    fn default() -> Self {
        Allowance { left: AT_ONCE, since: Instant::now() }
    }
}

impl Allowance {
    pub(super) fn take(&mut self) -> bool {
        let seconds = self.since.elapsed().as_secs();
        if seconds > 0 {
            self.since += Duration::from_secs(seconds);
            self.left = AT_ONCE.min(self.left.saturating_add(u32::try_from(seconds).unwrap_or(AT_ONCE)));
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

impl Reply<'_> {
    /// Whether the client is asked. If not, the server is told so.
    pub(super) fn may_ask(&self, exchange: &Exchange, asked: &Asked) -> bool {
        if !self.is_legacy() {
            // MCP 2026-07-28 has no requests of servers, and no way to refuse one.
            self.count_dropped("server_request");
            return false;
        }
        if !self.asks.lock().take() {
            // Each is a record and perhaps a request of ours: not for a server to fill log and pool with.
            self.count_dropped("server_request_flood");
            return false;
        }
        let refusal = self.refuses(asked);
        record::asked(self.gateway, exchange, &asked.method, refusal.is_none());
        let Some((code, why)) = refusal else {
            return true;
        };
        self.count_dropped("server_request");
        let error = refusal_of(&asked.id, code, why);
        let session = self.received.session.as_ref();
        answer_instead(&self.gateway.refusals, &self.route.upstream, &self.gateway.shared, session, error);
        false
    }

    fn refuses(&self, asked: &Asked) -> Option<(i64, &'static str)> {
        let Some(ask) = Ask::of_method(&asked.method) else {
            return Some((-32601, "Method not found"));
        };
        let Some(session) = &self.received.session else {
            return Some((-32601, "Without a session the client cannot be asked"));
        };
        if !self.route.upstream.may_ask.allow(ask) {
            return Some((-32601, "The gateway does not let this server ask that of clients"));
        }
        (!session.abilities.allow(ask)).then_some((-32601, "The client did not declare that it can be asked that"))
    }
}

/// A server's question, refused.
pub(super) fn refusal_of(id: &Id, code: i64, why: &str) -> Bytes {
    let id = id.as_json();
    Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{why}"}}}}"#))
}

/// Answers a server in its client's place. In a task of its own: the stream that brought the question must not wait for it.
pub(super) fn answer_instead(
    permits: &Arc<Semaphore>,
    upstream: &Arc<Upstream>,
    shared: &Shared,
    session: Option<&Session>,
    body: Bytes,
) {
    let Ok(permit) = Arc::clone(permits).try_acquire_owned() else {
        // Too many at once: the server's own limit of time ends its waiting.
        return;
    };
    let mut headers = Vec::with_capacity(2);
    if let Some(session) = session {
        headers.push((super::exchange::SESSION_ID, session.id.clone()));
        let version = HeaderValue::from_static(session.version);
        headers.push((HeaderName::from_static("mcp-protocol-version"), version));
    }
    let request = Request {
        method: Method::POST,
        body,
        headers,
        is_repeatable: false,
        is_lasting: false,
        follows_redirects: true,
    };
    let (upstream, shared) = (Arc::clone(upstream), shared.clone());
    tokio::spawn(async move {
        let _permit = permit;
        match (Send { upstream: &upstream, shared: &shared }).send(&request).await {
            Ok(answer) => answer.cut().await,
            Err(error) => tracing::debug!(upstream = %upstream.name, %error, "a refusal did not reach the server"),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_asks_a_hundred_at_once_and_then_one_a_second() {
        let mut asks = Allowance::default();
        assert_eq!((0..1000).filter(|_| asks.take()).count(), 100);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((0..1000).filter(|_| asks.take()).count(), 5);
    }
}
