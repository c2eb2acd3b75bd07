//! From a decision to a [`Permit`], the only thing that `forward` takes; and what becomes of a call that a person must decide.
//!
//! A permit is made from a `policy::Allowed`, which only `policy` can make, or from an `approval::Consumed`, which is made
//! by using an approval up. A held call goes another way than the others: it is asked for (`asked`), its caller waits with
//! all others who wait for the same call (`wait`), everything is judged again once it is approved (`release`), it is sent
//! by a task of its own, which no client's leaving can cut (`run`), and its answer is kept and given to whoever waits
//! (`deliver`). What a caller is told meanwhile stands in `say`.

mod asked;
mod changed;
mod deliver;
mod progress;
mod release;
mod rounds;
mod run;
mod say;
mod session;
mod stand_in;
pub(super) mod tasks;
mod wait;

use super::Gateway;
use super::exchange::{End, Exchange};
use super::receive::Received;
use super::record::{self, Outcome};
use super::refuse::{Code, Refusal};
use crate::approval::{Consumed, Release};
use crate::identity::Principal;
use crate::mcp::{Call, Era, Object, Verb};
use crate::policy::{Allowed, Decision, Denied, Held, Why};
use crate::snapshot::Route;
use crate::trace::Stage;
use http::StatusCode;
use std::sync::Arc;

pub use changed::look_after_reloads;
pub use release::Releasing;
pub use stand_in::stand_in;

/// The right to forward one call, once.
pub(super) struct Permit {
    _right: Right,
}

/// Where a permit comes from.
enum Right {
    Allowed { _by: Allowed },
    Approved { _by: Release },
}

impl Permit {
    /// Of an approval that was used up; the first time only.
    fn of(consumed: &mut Consumed) -> Option<Permit> {
        Some(Permit { _right: Right::Approved { _by: consumed.release()? } })
    }
}

/// One who made a call that a person must decide.
#[derive(Clone, Copy)]
struct Caller<'a> {
    gateway: &'a Arc<Gateway>,
    route: &'a Route,
    principal: &'a Principal,
    received: &'a Received,
}

/// How often a call is asked for anew, where the one it joined was over at the same moment.
const MAX_TURNS: usize = 3;

/// Takes a held call to whatever end it comes to while its caller waits.
///
/// # Errors
/// What the caller is told instead of a result, or the client's leaving.
pub(super) async fn pass(
    gateway: &Arc<Gateway>,
    exchange: &mut Exchange,
    route: &Route,
    principal: &Principal,
    received: &Received,
    held: &Held,
) -> Result<Outcome, End> {
    exchange.trace.enter(Stage::Hold);
    let caller = Caller { gateway, route, principal, received };
    let way = caller.way();
    let known = match &received.retry {
        Some(retry) => caller.come_back(exchange, retry).await,
        None => Ok(None),
    };
    let mut asked = match known {
        Ok(Some(approval)) => Ok(approval),
        Ok(None) => caller.ask(exchange, held).await,
        Err(end) => Err(end),
    };
    record::held(gateway, exchange, route, received, &held.rules).await;
    for _ in 0..MAX_TURNS {
        if let Some(outcome) = caller.wait_out(exchange, asked?, held.hold.wait, way).await? {
            return Ok(outcome);
        }
        asked = caller.ask(exchange, held).await;
    }
    Err(caller.refusal(Code::ApprovalUnavailable, say::BUSY).into())
}

/// Releases what is allowed, and refuses what is denied.
///
/// # Errors
/// The refusal a model and a person can read: never an HTTP error, except where another token would help.
pub(super) fn release(decision: Decision, route: &Route, call: &Call) -> Result<Permit, Refusal> {
    match decision {
        Decision::Allowed(allowed) => Ok(Permit { _right: Right::Allowed { _by: allowed } }),
        Decision::Denied(denied) => Err(denial(&denied, route, call)),
        // It takes the other way; whoever forgets that has no permit.
        Decision::Held(_) => Err(Refusal::tool_result(Code::Held, call.id.as_ref(), call.era, say::NOT_RUN)),
    }
}

impl Caller<'_> {
    /// A refusal that a model reads.
    fn refusal(&self, code: Code, text: impl Into<String>) -> Refusal {
        let call = &self.received.call;
        Refusal::tool_result(code, call.id.as_ref(), call.era, text)
    }
}

fn denial(denied: &Denied, route: &Route, call: &Call) -> Refusal {
    let id = call.id.as_ref();
    match &denied.why {
        Why::Unlisted => unlisted(call),
        Why::Arguments { reason } if call.method.verb == Verb::CallTool => {
            let text = format!("This call was refused by the gateway's policy and did not run. Reason: {reason}");
            Refusal::tool_result(Code::Denied, id, call.era, text)
        }
        Why::Arguments { reason } => Refusal::error(Code::Denied, id, format!("refused by policy: {reason}")),
        Why::Scope { wanted } => {
            let refusal = Refusal::error(Code::Scope, id, "the access token lacks a scope that this call needs");
            let what = Some(("insufficient_scope", "another scope is needed"));
            refusal.challenge_scope(route, what, wanted)
        }
    }
}

/// The same answer for every name that nothing could open, whether it exists or not.
fn unlisted(call: &Call) -> Refusal {
    let (message, legacy_code) = match call.object {
        Object::Tool(_) => ("Unknown tool", Code::Unlisted),
        Object::Prompt(_) => ("Unknown prompt", Code::Unlisted),
        // 2025-11-25 and older have a code of their own for this; 2026-07-28 must not use it.
        Object::Resources(_) => ("Resource not found", Code::UnlistedResource),
        Object::Task(_) | Object::None => ("Method not found", Code::Method),
    };
    let code =
        if call.era == Era::Modern && legacy_code == Code::UnlistedResource { Code::Unlisted } else { legacy_code };
    let refusal = Refusal::error(code, call.id.as_ref(), message);
    if call.era == Era::Modern && code == Code::Method { refusal.status(StatusCode::NOT_FOUND) } else { refusal }
}
