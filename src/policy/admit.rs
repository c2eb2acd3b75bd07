//! What needs no rule, and what follows another object: the calls that `mcp`'s method table does not put to the rules
//! one by one.

use super::rule::{Reach, Rule};
use super::{Allowed, Decision, Denied, Object, Policy, Why};
use crate::identity::Principal;
use crate::mcp::Verb;

impl Policy {
    /// Lets through what the method table lets through for whoever holds a token for the route: lifecycle, lists
    /// (their answers are filtered), notifications, and subscriptions that name no resource. `None`: ask the rules.
    pub fn admit(&self, verb: Verb, names_nothing: bool) -> Option<Allowed> {
        let is_open = match verb {
            Verb::Lifecycle
            | Verb::List(_)
            | Verb::Notify
            | Verb::Answer
            | Verb::Stream
            | Verb::EndSession
            | Verb::Task => true,
            Verb::Listen => names_nothing,
            Verb::CallTool | Verb::GetPrompt | Verb::ReadResource | Verb::Complete => false,
        };
        is_open.then(|| Allowed::new(Vec::new(), true))
    }

    /// Decides on a mere reference to an object, as a completion makes it: it follows whether some arguments could
    /// open the object at all.
    pub fn decide_reference(&self, principal: &Principal, upstream: &str, object: Object<'_>) -> Decision {
        if self.is_listed(principal, upstream, object) {
            return Decision::Allowed(Allowed::new(Vec::new(), true));
        }
        let hides = |rule: &&Rule| rule.is_deny() && rule.reach(principal, upstream, object, &[]) == Reach::Always;
        let rule = self.candidates(upstream, object).find(hides).map(|rule| rule.name.clone());
        Decision::Denied(Denied::new(rule, Why::Unlisted))
    }
}

impl Decision {
    /// Denied, as for an object that nothing could open.
    pub fn unlisted() -> Decision {
        Decision::Denied(Denied::new(None, Why::Unlisted))
    }
}
