//! The data path: one call, from the socket to the upstream and back. Read [`Gateway::pass`] first; it is the whole story.
//!
//! The files stand in the order they act: `route`, `authenticate`, `receive`, `inspect`, `hold`, `forward`, `reply`.
//! Each step returns what it found, or a [`Refusal`]; `refuse` is the only place that turns one into an answer, and
//! `record` the only one that writes down how an exchange ended, for every ending.
//!
//! The order is part of the promise. Routing comes before authentication, because the route says which resource a
//! token must be for. Authentication comes before the body, so that strangers cannot fill our memory, and before any
//! other complaint, because clients find out how to log in by being told 401.
//! pingora's own proxy picks the upstream before it has seen the body and replays no more than 64 KiB; so the body is
//! read, judged and sent here, over pingora's sessions and pooled connections (docs/decisions/0001).

mod accept;
mod arguments;
mod ask;
mod authenticate;
mod batch;
mod body;
mod coalesce;
mod exchange;
mod forward;
mod hold;
mod ids;
mod inspect;
mod peel;
mod receive;
mod record;
mod refuse;
mod reply;
mod route;
mod stream;
mod traced;
mod welcome;

use crate::approval::Approvals;
use crate::audit::Audit;
use crate::glance::survived;
use crate::identity::{Fetching, Principal, Verifier};
use crate::mcp::Verb;
use crate::metrics::Metrics;
use crate::policy::Decision;
use crate::snapshot::{Route, Snapshot};
use crate::trace::Tracer;
use crate::upstream::{Seal, Sessions, Shared};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use exchange::{End, Exchange};
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use receive::{Incoming, Received};
use record::Outcome;
use route::Found;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

pub use hold::{Releasing, look_after_reloads, stand_in};
pub use ids::Ids;
pub use route::Pages;

/// Refusals on their way to servers that asked what they may not, at most.
pub const MAX_REFUSALS: usize = 64;

/// What the data path works with; one per process.
pub struct Gateway {
    /// The configuration in force.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Knows which of our tokens are good.
    pub verifier: Verifier,
    /// Fetches the keys of external issuers.
    pub fetching: Fetching,
    /// The audit log.
    pub audit: Audit,
    /// Calls that are held for a person.
    pub approvals: Approvals,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The pool of upstream connections.
    pub shared: Shared,
    /// Seals what clients keep for us.
    pub seal: Arc<Seal>,
    /// The sessions of legacy servers.
    pub sessions: Sessions,
    /// The ids in flight at legacy servers.
    pub ids: Ids,
    /// The held calls that are about to run.
    pub releasing: Releasing,
    /// Says when another configuration came into force.
    pub reloads: watch::Receiver<()>,
    /// Limits the refusals that are on their way to servers which asked what they may not.
    pub refusals: Arc<Semaphore>,
    /// Takes the spans of requests.
    pub tracer: Tracer,
    /// Our own documents and pages on the agent listener.
    pub pages: Pages,
}

impl Gateway {
    /// One call, walked through the house.
    async fn pass(self: &Arc<Self>, exchange: &mut Exchange) -> Result<Outcome, End> {
        let route = match route::find(exchange, &self.pages)? {
            Found::Route(route) => route,
            Found::Page => return exchange.answer_page(&self.pages.router).await,
            Found::Preflight => return exchange.answer_preflight().await,
        };
        traced::begin(self, exchange);
        let principal = authenticate::principal(exchange, &route, self).await?;
        match receive::messages(self, exchange, &route, &principal).await? {
            Incoming::One(received) => self.pass_one(exchange, &route, &principal, &received).await,
            Incoming::Batch(batch) => batch::pass(self, exchange, &route, &principal, batch).await,
        }
    }

    async fn pass_one(
        self: &Arc<Self>,
        exchange: &mut Exchange,
        route: &Route,
        principal: &Principal,
        received: &Received,
    ) -> Result<Outcome, End> {
        traced::received(exchange, received);
        authenticate::confirm(&self.verifier, &received.call)?;
        let decision = inspect::decide(exchange, route, principal, received);
        if let Decision::Held(held) = &decision {
            // Boxed: what waits for a person is not to make every other call as large.
            return Box::pin(hold::pass(self, exchange, route, principal, received, held)).await;
        }
        record::decided(self, exchange, route, received, &decision).await?;
        match received.call.method.verb {
            Verb::Task => return Box::pin(hold::tasks::answer(self, exchange, route, principal, received)).await,
            Verb::Listen => hold::tasks::check_subscription(exchange, route, received)?,
            _ => {}
        }
        let permit = hold::release(decision, route, &received.call)?;
        let sent = forward::send(self, exchange, route, received, permit).await?;
        reply::pass_on(self, exchange, route, principal, received, sent).await
    }

    async fn serve(self: &Arc<Self>, exchange: &mut Exchange) -> Outcome {
        match self.pass(exchange).await {
            Ok(outcome) => outcome,
            Err(End::Refused(refusal)) => refuse::answer(exchange, refusal).await,
            Err(End::Gone) => Outcome::ClientGone,
        }
    }
}

#[async_trait]
impl HttpServerApp for Gateway {
    async fn process_new_http(
        self: &Arc<Self>,
        session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let mut exchange = Exchange::begin(session, &self.snapshots, &self.metrics, shutdown).await?;
        let outcome = match survived(self.serve(&mut exchange)).await {
            Some(outcome) => outcome,
            None => refuse::broken(&mut exchange).await,
        };
        record::ended(self, &mut exchange, outcome);
        let is_stopping = *shutdown.borrow();
        exchange.end(outcome, is_stopping).await
    }
}
