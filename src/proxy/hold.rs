//! From a decision to a [`Permit`], the only thing that `forward` takes.
//!
//! A permit is made from a `policy::Allowed`, which only `policy` can make. (From a consumed approval, too, as soon as
//! there are approvals: until then a held call is refused, and says so.)

use super::refuse::{Code, Refusal};
use crate::mcp::{Call, Era, Object, Verb};
use crate::policy::{Allowed, Decision, Denied, Held, Why};
use crate::snapshot::Route;
use http::StatusCode;

/// The right to forward one call, once.
pub(super) struct Permit {
    _allowed: Allowed,
}

/// Releases what is allowed, and refuses everything else.
///
/// # Errors
/// The refusal a model and a person can read: never an HTTP error, except where another token would help.
pub(super) fn release(decision: Decision, route: &Route, call: &Call) -> Result<Permit, Refusal> {
    match decision {
        Decision::Allowed(allowed) => Ok(Permit { _allowed: allowed }),
        Decision::Denied(denied) => Err(denial(&denied, route, call)),
        Decision::Held(held) => Err(held_back(&held, call)),
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
        Object::None => ("Method not found", Code::Method),
    };
    let code =
        if call.era == Era::Modern && legacy_code == Code::UnlistedResource { Code::Unlisted } else { legacy_code };
    let refusal = Refusal::error(code, call.id.as_ref(), message);
    if call.era == Era::Modern && code == Code::Method { refusal.status(StatusCode::NOT_FOUND) } else { refusal }
}

fn held_back(held: &Held, call: &Call) -> Refusal {
    let rules: Vec<&str> = held.rules.iter().map(AsRef::as_ref).collect();
    let text = format!(
        "This call needs a person's approval (rule {}) and did not run. Approvals are not available in this version of \
         the gateway; calling again will not help.",
        rules.join(", ")
    );
    Refusal::tool_result(Code::Held, call.id.as_ref(), call.era, text)
}
