//! Runs what was approved for a task whose client is not there: it comes back for the result, and not for the run.
//!
//! Everything is judged as it is for a caller who is there. Who asked is made anew from their grant, which must be in
//! force, and from the people and machines of now. Of a token that an external issuer vouched for nothing is kept: such a
//! task runs when its owner asks about it, with the token they show then.

use super::super::Gateway;
use super::super::receive::Received;
use super::Caller;
use super::changed::DENIED;
use super::release::{Stop, kept_trace};
use super::run::Run;
use crate::approval::Call;
use crate::id::RequestId;
use crate::identity::Principal;
use crate::mcp::{self, Era, LATEST, Method, Object};
use crate::snapshot::Route;
use crate::store::{Approval, ApprovalState as State};
use crate::trace::Aside;
use bytes::Bytes;
use pingora::server::ShutdownWatch;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// What could not run is tried again after this long.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// Looks at once after a change, but not more often than this.
const PAUSE: Duration = Duration::from_millis(50);

/// Lets approved tasks run, until the gateway stops. What runs by then runs on.
pub async fn stand_in(gateway: Arc<Gateway>, mut stopping: ShutdownWatch) {
    let mut changes = gateway.approvals.changes();
    // What was approved while no process was there.
    changes.mark_changed();
    loop {
        tokio::select! {
            biased;
            _ = stopping.wait_for(|is_stopping| *is_stopping) => return,
            Ok(()) = changes.changed() => {}
            () = sleep(TRY_AGAIN) => {}
        }
        let now_ms = gateway.fetching.clock.unix_ms();
        match gateway.approvals.list(&[State::Approved]).await {
            Ok(approved) => approved
                .iter()
                .filter(|approval| approval.task_until_ms.is_some_and(|until_ms| now_ms < until_ms))
                .for_each(|approval| attempt(Arc::clone(&gateway), Arc::clone(&approval.id), None)),
            Err(error) => tracing::warn!(%error, "approved tasks cannot be looked for"),
        }
        sleep(PAUSE).await;
    }
}

/// Lets one of them run, in a task of its own, as `principal` or as whoever its grant is of. It counts as a request:
/// the gateway's stop waits for it. Nothing happens where another attempt is under way.
pub(super) fn attempt(gateway: Arc<Gateway>, id: Arc<str>, principal: Option<Principal>) {
    let in_flight = gateway.metrics.begin();
    tokio::spawn(async move {
        let _in_flight = in_flight;
        let Some(_claim) = gateway.releasing.claim(&id) else {
            return;
        };
        let Ok(Some(approval)) = gateway.approvals.get(&id).await else {
            return;
        };
        if approval.state == State::Approved {
            let void = try_to_run(&gateway, &approval, principal).await;
            if let Some(why) = void
                && let Err(error) = gateway.approvals.invalidate(&approval, why).await
            {
                tracing::error!(%error, approval = %id, "an approval that is void cannot be ended");
            }
        }
    });
}

/// Gives why the approval is void, where it is.
async fn try_to_run(gateway: &Arc<Gateway>, approval: &Approval, principal: Option<Principal>) -> Option<&'static str> {
    let route = gateway.snapshots.load().routes.get(&*approval.upstream).cloned();
    let Some(route) = route else {
        return Some("its server is not configured any more");
    };
    let principal = match principal {
        Some(principal) => Some(principal),
        None => remade(gateway, &route, approval).await,
    };
    let (principal, kept) = (principal?, gateway.approvals.call_of(approval).ok()??);
    let received = in_its_place(&kept);
    let caller = Caller { gateway, route: &route, principal: &principal, received: &received };
    match caller.run_alone(approval, &kept, &route).await {
        Ok(()) | Err(Stop::Again | Stop::Answer(_)) => None,
        Err(Stop::Void(why)) => Some(why),
        Err(Stop::Denied(_)) => Some(DENIED),
    }
}

impl Caller<'_> {
    async fn run_alone(&self, approval: &Approval, kept: &Call, route: &Arc<Route>) -> Result<(), Stop> {
        let fetched = route.upstream.fetch(&self.gateway.shared).await;
        let definitions = fetched.map_err(|error| {
            tracing::warn!(%error, approval = %approval.id, upstream = %route.name, "an approved task cannot run yet");
            Stop::Again
        })?;
        let name = RequestId::next();
        let (snapshot, consumed, permit) = self.use_up(approval, kept, route, &definitions, name.as_str()).await?;
        let mut headers =
            super::super::forward::headers_alone(self.principal, name.as_str(), route, &self.received.call);
        let kept = snapshot.tracing.as_ref().and_then(|_| kept_trace(approval));
        let aside = Aside::resumed(&self.gateway.tracer, kept.as_deref());
        headers.extend(aside.as_ref().map(Aside::onward).iter().flat_map(super::super::traced::of));
        // Nobody hears what the server says meanwhile.
        let (news, _) = mpsc::channel(1);
        Run::new(self, &snapshot, route, &definitions, consumed, (headers, news, aside)).start(permit);
        Ok(())
    }
}

/// Who asked, as they are now; `None` where that cannot be known without them, or where they may not ask any more.
pub(super) async fn remade(gateway: &Gateway, route: &Route, approval: &Approval) -> Option<Principal> {
    let requester = &approval.requester;
    let verified = gateway.verifier.of_grant(requester.grant.as_deref()?).await.ok()??;
    let snapshot = gateway.snapshots.load_full();
    let principal = Principal::of(&verified, &snapshot.users, &snapshot.clients)?;
    let is_theirs = principal.issuer == requester.issuer
        && principal.subject == requester.subject
        && principal.client == requester.client
        && *verified.resource == *route.resource;
    is_theirs.then_some(principal)
}

/// The request of a client that can nothing, in the place of the one that left.
fn in_its_place(kept: &Call) -> Received {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": LATEST,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
    });
    let tool = kept.tool();
    let params = json!({ "name": tool, "_meta": meta });
    let body: Value = json!({ "jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": params });
    let call = mcp::Call {
        id: None,
        method: Method::named("tools/call").expect("it is in the table"),
        object: Object::Tool(tool),
        arguments: None,
        state: None,
        era: Era::Modern,
        version: Some(LATEST.to_owned()),
    };
    let body = Bytes::from(body.to_string());
    Received { call, body, session: None, resume: None, state: None, retry: None, parameters: Vec::new() }
}
