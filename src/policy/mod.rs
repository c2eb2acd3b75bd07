//! Rules, and the decision they give on one call.
//!
//! Owns what a policy means: compiling it (`compile`), deciding (`Policy::decide`), what is shown in lists
//! (`Policy::is_listed`), and saying why (`Policy::explain`). Knows nothing of HTTP, of how a refusal is worded on the
//! wire, or of how approvals end.
//!
//! Deny beats hold beats allow, in whatever order they stand, and nothing matched means denied. Whoever reads a file
//! can therefore judge a deny alone: no other rule weakens it, and adding one never opens anything.
//!
//! Read on in `rule.rs` (how one rule stands to one call), then `condition.rs` (arguments).

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod admit;
mod approvable;
mod compile;
mod condition;
mod decision;
mod explain;
mod external;
mod index;
mod lint;
mod literal;
mod number;
mod outlook;
mod pattern;
mod recording;
mod rule;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trial;
mod who;

pub use approvable::unapprovable;
pub use decision::{Allowed, Approvers, Decision, Denied, Held, Hold, Signal, Why};
pub use explain::{Explanation, Line};
pub use external::lint_external;
pub use lint::lint;
pub use outlook::{Learned, Outlook, Ruling, Seen, Sighting, Verdict};
pub use pattern::Glob;
pub use recording::{Hidden, Recording};

use crate::identity::Principal;
use crate::jsonrpc::Node;
use index::Index;
use rule::{Effect, Fit, Reach, Rule};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A compiled policy.
#[derive(Debug)]
pub struct Policy {
    /// In the order of the file.
    rules: Vec<Arc<Rule>>,
    index: Index,
}

/// May this principal do this?
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Who asks.
    pub principal: &'a Principal,
    /// The upstream's name.
    pub upstream: &'a str,
    /// What is asked for there.
    pub object: Object<'a>,
    /// The arguments, as they stand in the message; none where the message has none.
    pub arguments: Option<Node<'a>>,
}

/// What rules are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object<'a> {
    /// A tool by name.
    Tool(&'a str),
    /// A resource by URI.
    Resource(&'a str),
    /// A prompt by name.
    Prompt(&'a str),
}

/// Told to the caller where a deny matched and gives no reason.
const DENIED: &str = "this gateway's policy does not permit these arguments";
/// Told to the caller where no rule matched.
const NOT_ALLOWED: &str = "no rule of this gateway's policy permits these arguments";

// === impl Policy ===

impl Policy {
    /// Decides one call.
    pub fn decide(&self, request: &Request<'_>) -> Decision {
        let mut matched = Matched::default();
        for rule in self.candidates(request.upstream, request.object) {
            match (rule.fit(request, &[]), &rule.effect) {
                (Fit::Matches, Effect::Deny { .. }) => matched.denies.push(rule),
                (Fit::Matches, Effect::Hold(_)) => matched.holds.push(rule),
                (Fit::Matches, Effect::Allow { .. }) => matched.allows.push(rule),
                (Fit::LacksScopes, Effect::Hold(_) | Effect::Allow { .. }) => {
                    matched.lacking.push(rule);
                }
                _ => {}
            }
        }
        if !matched.denies.is_empty() {
            self.denied(request, &matched.denies)
        } else if !matched.holds.is_empty() {
            held(&matched.holds)
        } else if !matched.allows.is_empty() {
            allowed(&matched.allows)
        } else {
            self.not_allowed(request, &matched.lacking)
        }
    }

    /// Whether to show an object to this principal: some arguments could be allowed or held, or only a scope is missing.
    ///
    /// Three-valued: a rule with conditions *may* match while the arguments are unknown. A deny hides only what it is
    /// sure to refuse, so a tool that is not listed is one that is never forwarded.
    pub fn is_listed(&self, principal: &Principal, upstream: &str, object: Object<'_>) -> bool {
        let is_hidden = |granted: &[Box<str>]| {
            self.candidates(upstream, object)
                .any(|rule| rule.is_deny() && rule.reach(principal, upstream, object, granted) == Reach::Always)
        };
        !is_hidden(&[])
            && self.candidates(upstream, object).any(|rule| {
                let scopes = &rule.who.scopes;
                !rule.is_deny()
                    && rule.reach(principal, upstream, object, scopes) != Reach::Never
                    && (scopes.is_empty() || !is_hidden(scopes))
            })
    }

    /// Whether some rule could hold a call of some tool there, whoever makes it.
    pub fn may_hold(&self, upstream: &str) -> bool {
        let is_there = |rule: &Rule| rule.tools.iter().any(|pattern| pattern.upstream.matches(upstream));
        let holds = |rule: &Rule| matches!(rule.effect, Effect::Hold(_));
        self.candidates(upstream, Object::Tool("")).any(|rule| holds(rule) && is_there(rule))
    }

    /// The scopes that rules name, each once, in alphabetical order.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        let named: BTreeSet<&str> = self.rules.iter().flat_map(|rule| &*rule.who.scopes).map(AsRef::as_ref).collect();
        named.into_iter()
    }

    /// The rules that speak of this upstream, in the order of the file; some may speak of other names there.
    fn candidates(&self, upstream: &str, object: Object<'_>) -> impl Iterator<Item = &Rule> {
        self.index.candidates(upstream, object).iter().map(AsRef::as_ref)
    }

    /// A deny matched.
    fn denied(&self, request: &Request<'_>, denies: &[&Rule]) -> Decision {
        let given = denies.iter().find_map(|rule| match &rule.effect {
            Effect::Deny { reason } => reason.as_deref().map(str::to_owned),
            _ => None,
        });
        let why = if self.lists(request) {
            Why::Arguments { reason: given.unwrap_or_else(|| DENIED.to_owned()) }
        } else {
            Why::Unlisted
        };
        let rule = denies.first().map(|rule| rule.name.clone());
        Decision::Denied(Denied::new(rule, why))
    }

    /// Nothing matched, though some rules may have, had the token more scopes.
    fn not_allowed(&self, request: &Request<'_>, lacking: &[&Rule]) -> Decision {
        let denied = if let Some((missing, rule)) = self.opened_by_scopes(request, lacking) {
            let held = request.principal.scopes.iter().cloned();
            let mut wanted: Vec<String> = held.chain(missing).collect();
            wanted.sort();
            wanted.dedup();
            Denied::new(Some(rule.name.clone()), Why::Scope { wanted })
        } else if self.lists(request) {
            Denied::new(None, Why::Arguments { reason: NOT_ALLOWED.to_owned() })
        } else {
            Denied::new(None, Why::Unlisted)
        };
        Decision::Denied(denied)
    }

    /// The fewest scopes that would open the call, the alphabetically first of as few, and the rule that wants them.
    ///
    /// Scopes that would also bring a deny into play open nothing and are not asked for.
    fn opened_by_scopes<'p>(&self, request: &Request<'_>, lacking: &[&'p Rule]) -> Option<(Vec<String>, &'p Rule)> {
        let is_denied_with = |granted: &[Box<str>]| {
            self.candidates(request.upstream, request.object)
                .any(|rule| rule.is_deny() && matches!(rule.fit(request, granted), Fit::Matches))
        };
        lacking
            .iter()
            .filter(|rule| !is_denied_with(&rule.who.scopes))
            .map(|rule| {
                let missing = rule.who.missing_scopes(request.principal, &[]);
                let mut missing: Vec<String> = missing.map(str::to_owned).collect();
                missing.sort();
                missing.dedup();
                (missing, *rule)
            })
            .min_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
    }

    fn lists(&self, request: &Request<'_>) -> bool {
        self.is_listed(request.principal, request.upstream, request.object)
    }
}

/// The rules that matched, and those that lack nothing but scopes.
#[derive(Default)]
struct Matched<'p> {
    denies: Vec<&'p Rule>,
    holds: Vec<&'p Rule>,
    allows: Vec<&'p Rule>,
    lacking: Vec<&'p Rule>,
}

fn allowed(allows: &[&Rule]) -> Decision {
    let reads = allows.iter().any(|rule| matches!(rule.effect, Effect::Allow { reads: true }));
    Decision::Allowed(Allowed::new(names(allows), reads))
}

fn held(holds: &[&Rule]) -> Decision {
    let merged = holds
        .iter()
        .filter_map(|rule| match &rule.effect {
            Effect::Hold(hold) => Some(hold),
            _ => None,
        })
        .fold(None, |merged: Option<Hold>, hold| match merged {
            Some(merged) => Some(merged.merge(hold)),
            None => Some(hold.clone()),
        });
    let merged = merged.expect("only holds are merged, and at least one");
    let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
    holds.iter().for_each(|rule| digest.update(&rule.digest));
    let digest = digest.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
    Decision::Held(Held::new(names(holds), digest, merged))
}

fn names(rules: &[&Rule]) -> Vec<Arc<str>> {
    rules.iter().map(|rule| rule.name.clone()).collect()
}

// === impl Object ===

impl<'a> Object<'a> {
    /// Its name or URI.
    pub fn name(self) -> &'a str {
        match self {
            Object::Tool(name) | Object::Resource(name) | Object::Prompt(name) => name,
        }
    }

    /// What it is, in a word.
    pub fn kind(self) -> &'static str {
        match self {
            Object::Tool(_) => "tool",
            Object::Resource(_) => "resource",
            Object::Prompt(_) => "prompt",
        }
    }
}
