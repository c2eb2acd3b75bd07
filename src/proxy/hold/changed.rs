//! What another configuration makes void, at the moment it comes into force, and not only when somebody uses it: a rule
//! that goes again before the call comes again has been there all the same.
//!
//! What cannot be judged without its caller, as where a token of an external issuer named the groups, is left to the
//! moment it would run, at which everything is judged again in any case.

use super::super::{Gateway, inspect};
use super::stand_in;
use crate::approval::Error;
use crate::policy::Decision;
use crate::snapshot::Snapshot;
use crate::store::{ApprovalState as State, Requester, Subject};
use pingora::server::ShutdownWatch;
use std::sync::Arc;

pub(super) const OTHER_PERSON: &str = "another person answers for its caller now";
pub(super) const OTHER_RULES: &str = "the rules that held it have changed";
pub(super) const DENIED: &str = "the policy denies it now";

/// Looks at what is open when the gateway starts and after every reload, until it stops.
pub async fn look_after_reloads(gateway: Arc<Gateway>, mut stopping: ShutdownWatch) {
    let mut reloads = gateway.reloads.clone();
    loop {
        if let Err(error) = look(&gateway).await {
            tracing::warn!(%error, "held calls cannot be compared with what is in force now; they are when they run");
        }
        tokio::select! {
            biased;
            _ = stopping.wait_for(|is_stopping| *is_stopping) => return,
            changed = reloads.changed() => if changed.is_err() { return },
        }
    }
}

async fn look(gateway: &Arc<Gateway>) -> Result<(), Error> {
    for open in gateway.approvals.list(&[State::Pending, State::Approved]).await? {
        let snapshot = gateway.snapshots.load_full();
        let why = match open.requester.person == person(&open.requester, &snapshot) {
            false => Some(OTHER_PERSON),
            true if open.state == State::Approved => rules(gateway, &snapshot, &open.id).await?,
            true => None,
        };
        if let Some(why) = why {
            gateway.approvals.invalidate(&open, why).await?;
        }
    }
    Ok(())
}

/// Why the rules of now make an approval void.
async fn rules(gateway: &Arc<Gateway>, snapshot: &Snapshot, id: &str) -> Result<Option<&'static str>, Error> {
    // Lists are without what is held.
    let Some(approval) = gateway.approvals.get(id).await? else {
        return Ok(None);
    };
    let (Some(kept), Some(route)) = (gateway.approvals.call_of(&approval)?, snapshot.routes.get(&*approval.upstream))
    else {
        return Ok(None);
    };
    let Some(principal) = stand_in::remade(gateway, route, &approval).await else {
        return Ok(None);
    };
    let decision = inspect::decide_tool(&snapshot.policy, &principal, &route.name, &kept.tool(), kept.arguments());
    Ok(match decision {
        Decision::Held(held) if held.rules_digest == approval.rules_digest => None,
        Decision::Held(_) | Decision::Allowed(_) => Some(OTHER_RULES),
        Decision::Denied(_) => Some(DENIED),
    })
}

/// Who answers now for the one who asked: the person themselves, whom `also` names, or the owner of a machine. What
/// another issuer vouched for that is not configured here is left as it is.
fn person(requester: &Requester, snapshot: &Snapshot) -> Option<Arc<str>> {
    let is_local = requester.issuer == snapshot.public_url;
    let is_known = snapshot.config.identity.issuers.iter().any(|issuer| *issuer.issuer == *requester.issuer);
    match &requester.subject {
        Subject::Client(id) if is_local => {
            snapshot.clients.machine(id, &snapshot.users).map(|machine| Arc::clone(&machine.owner))
        }
        Subject::User(name) if is_known => {
            snapshot.users.also(&requester.issuer, name).map(|person| person.name.clone())
        }
        _ => requester.person.clone(),
    }
}
