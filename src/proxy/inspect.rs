//! From a call to a decision: the method table says what is judged, `policy` judges it.

use super::exchange::Exchange;
use super::receive::Received;
use crate::identity::Principal;
use crate::jsonrpc::Node;
use crate::mcp::{Object, Verb};
use crate::policy::{self, Decision, Policy, Request};
use crate::snapshot::Route;
use crate::trace::Stage;

/// Decides on `received`, for `principal`, under the configuration this exchange began with.
pub(super) fn decide(exchange: &mut Exchange, route: &Route, principal: &Principal, received: &Received) -> Decision {
    exchange.trace.enter(Stage::Decide);
    crate::fault::point("call.judging");
    let policy = &exchange.snapshot.policy;
    let call = &received.call;
    if let Some(allowed) = policy.admit(call.method.verb, call.object == Object::None) {
        return Decision::Allowed(allowed);
    }
    let judge = |object| match call.method.verb {
        // A completion carries no arguments of its object: it follows whether the object could be used at all.
        Verb::Complete => policy.decide_reference(principal, &route.name, object),
        _ => policy.decide(&Request {
            principal,
            upstream: &route.name,
            object,
            arguments: call.arguments.map(|span| Node::of(&received.body, span)),
        }),
    };
    match &call.object {
        Object::Tool(name) => judge(policy::Object::Tool(name)),
        Object::Prompt(name) => judge(policy::Object::Prompt(name)),
        Object::Resources(uris) => strictest(uris.iter().map(|uri| judge(policy::Object::Resource(uri)))),
        Object::Task(_) | Object::None => Decision::unlisted(),
    }
}

/// Decides on a call of this tool under `policy`.
pub(super) fn decide_tool(
    policy: &Policy,
    principal: &Principal,
    upstream: &str,
    tool: &str,
    arguments: Option<Node<'_>>,
) -> Decision {
    policy.decide(&Request { principal, upstream, object: policy::Object::Tool(tool), arguments })
}

/// Of several, the first that is not an allow; a call that names nothing is not let through by naming nothing.
fn strictest(decisions: impl Iterator<Item = Decision>) -> Decision {
    let mut allowed = None;
    for decision in decisions {
        match decision {
            Decision::Allowed(_) => allowed = Some(decision),
            Decision::Denied(_) | Decision::Held(_) => return decision,
        }
    }
    allowed.unwrap_or_else(Decision::unlisted)
}
