//! From an approved call to one that runs: everything is judged again, under what is in force now and not when it was
//! asked for or approved; then the approval is used up, and only then anything is sent.
//!
//! A deny wins. What the approval was given for and is not so any more (the tool, the server, the rules, the people)
//! makes it void. What cannot be found out right now leaves it as it is: this call is refused, and may be made again.

use super::super::authenticate;
use super::super::exchange::{End, Exchange};
use super::super::forward::{self, failed};
use super::super::inspect;
use super::asked::requester;
use super::changed::{DENIED, OTHER_PERSON, OTHER_RULES};
use super::progress::News;
use super::run::Run;
use super::{Caller, Permit, denial, say};
use crate::approval::{Call, Consumed, Parts, People, Terms};
use crate::policy::Decision;
use crate::snapshot::{Route, Snapshot};
use crate::store::Approval;
use crate::trace::Aside;
use crate::upstream::Definitions;
use dashmap::DashSet;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Words of a server on their way to its caller; more are dropped.
const MAX_NEWS: usize = 16;

/// The held calls that a caller of this process is about to release: of a thousand who see that it is approved, one asks
/// the server for its definitions.
#[derive(Clone, Default)]
pub struct Releasing(Arc<DashSet<Arc<str>>>);

pub(super) struct Claim<'a>(&'a Releasing, Arc<str>);

impl Releasing {
    pub(super) fn claim(&self, id: &Arc<str>) -> Option<Claim<'_>> {
        self.0.insert(Arc::clone(id)).then(|| Claim(self, Arc::clone(id)))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.0.remove(&self.1);
    }
}

/// Why an approved call does not run.
pub(super) enum Stop {
    /// This caller is answered; the approval stays.
    Answer(End),
    /// The approval is void, for this reason.
    Void(&'static str),
    /// The policy denies it now: the approval is void, and the caller hears of it as of any other denial.
    Denied(End),
    /// Something changed in between: look again.
    Again,
}

impl From<End> for Stop {
    fn from(end: End) -> Self {
        Stop::Answer(end)
    }
}

impl Caller<'_> {
    /// Lets an approved call run, in a task of its own; gives what its server says meanwhile. `None`: it is to be looked at
    /// again.
    ///
    /// # Errors
    /// What this caller is told, or the client's leaving.
    pub(super) async fn release(
        &self,
        exchange: &mut Exchange,
        approval: &Approval,
    ) -> Result<Option<mpsc::Receiver<News>>, End> {
        let Some(_claim) = self.gateway.releasing.claim(&approval.id) else {
            return Ok(None);
        };
        crate::fault::point("approval.releasing");
        let why = match self.try_release(exchange, approval).await {
            Ok(news) => return Ok(Some(news)),
            Err(Stop::Again) => return Ok(None),
            Err(Stop::Answer(end)) => return Err(end),
            Err(Stop::Void(why)) => (why, None),
            Err(Stop::Denied(end)) => (DENIED, Some(end)),
        };
        let (why, end) = why;
        self.approvals().invalidate(approval, why).await.map_err(|error| self.unavailable(&error))?;
        end.map_or(Ok(None), Err)
    }

    async fn try_release(&self, exchange: &mut Exchange, approval: &Approval) -> Result<mpsc::Receiver<News>, Stop> {
        let gateway = self.gateway;
        let kept = self.approvals().call_of(approval).map_err(|error| self.unavailable(&error))?;
        let kept = kept.ok_or(Stop::Again)?;
        let route = self.route_now(approval)?;
        let fetched = exchange.while_there(Box::pin(route.upstream.fetch(&gateway.shared))).await;
        let fetched = fetched.map_err(End::from)?;
        let definitions = fetched.map_err(|error| {
            End::from(failed(gateway, &route, self.received.call.id.as_ref(), &error).say_first(say::NOT_RELEASED))
        })?;
        self.ping(exchange, &route).await?;
        let used_up = self.use_up(approval, &kept, &route, &definitions, exchange.id.as_str()).await?;
        let (snapshot, consumed, permit) = used_up;
        let aside = exchange.trace.aside(&gateway.tracer, kept_trace(approval).as_deref());
        let headers = forward::headers(exchange, &route, self.received, aside.as_ref().map(Aside::onward).as_ref());
        let (sender, news) = mpsc::channel(MAX_NEWS);
        Run::new(self, &snapshot, &route, &definitions, consumed, (headers, sender, aside)).start(permit);
        Ok(news)
    }

    /// Judges everything again, under what is in force now, and uses the approval up. Whoever gets the permit sends it.
    pub(super) async fn use_up(
        &self,
        approval: &Approval,
        kept: &Call,
        route: &Arc<Route>,
        definitions: &Definitions,
        request: &str,
    ) -> Result<(Arc<Snapshot>, Consumed, Permit), Stop> {
        // After what takes time: this is what is in force when it runs.
        let snapshot = self.gateway.snapshots.load_full();
        if !Arc::ptr_eq(&self.route_now(approval)?.upstream, &route.upstream) {
            return Err(Stop::Again);
        }
        self.judge(&snapshot, approval, kept)?;
        compare(approval, kept, route, definitions)?;
        let consumed = self.approvals().consume(approval, &people(&snapshot), request).await;
        let mut consumed = consumed.map_err(|error| self.unavailable(&error))?.ok_or(Stop::Again)?;
        let permit = Permit::of(&mut consumed).ok_or(Stop::Again)?;
        Ok((snapshot, consumed, permit))
    }

    fn route_now(&self, approval: &Approval) -> Result<Arc<Route>, Stop> {
        let snapshot = self.gateway.snapshots.load();
        let route = snapshot.routes.get(&*approval.upstream);
        route.cloned().ok_or(Stop::Void("its server is not configured any more"))
    }

    /// Who asks may still ask, and the same rules still hold it.
    fn judge(&self, snapshot: &Snapshot, approval: &Approval, kept: &Call) -> Result<(), Stop> {
        let call = &self.received.call;
        authenticate::confirm(&self.gateway.verifier, call).map_err(End::from)?;
        let principal = authenticate::renew(self.gateway, snapshot, self.route, self.principal, call);
        let principal = principal.map_err(End::from)?;
        // Who answers for the caller now may be the one who approved it.
        if requester(&principal, snapshot).person != approval.requester.person {
            return Err(Stop::Void(OTHER_PERSON));
        }
        match inspect::decide_tool(&snapshot.policy, &principal, &self.route.name, &kept.tool(), kept.arguments()) {
            Decision::Held(held) if held.rules_digest == approval.rules_digest => Ok(()),
            Decision::Denied(denied) => Err(Stop::Denied(denial(&denied, self.route, call).into())),
            Decision::Held(_) | Decision::Allowed(_) => Err(Stop::Void(OTHER_RULES)),
        }
    }
}

/// Where the request that asked for it first stands in its trace.
pub(super) fn kept_trace(approval: &Approval) -> Option<String> {
    Terms::read(&approval.terms)?.trace
}

/// Whether what was approved is what would run: the same tool, as it is defined now, at the same place.
fn compare(approval: &Approval, kept: &Call, route: &Route, definitions: &Definitions) -> Result<(), Stop> {
    let (tool, state) = (kept.tool(), kept.request_state());
    let definition = definitions.tools.get(&tool).ok_or(Stop::Void("its server does not have the tool any more"))?;
    let parts = Parts {
        requester: &approval.requester,
        upstream: &route.name,
        endpoint: &route.upstream.endpoint,
        definition: &definition.digest,
        tool: &tool,
        arguments: kept.arguments(),
        input_responses: kept.input_responses(),
        request_state: state.as_deref(),
    };
    let is_same = Call::of(&parts).is_ok_and(|now| *now.digest() == approval.digest);
    if is_same { Ok(()) } else { Err(Stop::Void("the tool's definition or its server's address has changed")) }
}

/// The groups that people are in now.
fn people(snapshot: &Arc<Snapshot>) -> People {
    let snapshot = Arc::clone(snapshot);
    Arc::new(move |name| snapshot.users.get(name).map(|person| Arc::clone(&person.groups)))
}
