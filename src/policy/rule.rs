//! One compiled rule, and how it stands to one call. Deciding, listing and explaining all ask here, so they cannot differ.

use super::condition::{Condition, Finding};
use super::decision::Hold;
use super::pattern::Pattern;
use super::who::{Miss, Who};
use super::{Object, Request};
use crate::identity::Principal;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: Arc<str>,
    pub(super) tools: Box<[Pattern]>,
    pub(super) resources: Box<[Pattern]>,
    pub(super) prompts: Box<[Pattern]>,
    pub(super) who: Who,
    pub(super) when: Box<[Condition]>,
    pub(super) effect: Effect,
    /// SHA-256 over the rule as it is written.
    pub(super) digest: [u8; 32],
}

#[derive(Debug)]
pub(super) enum Effect {
    Allow { reads: bool },
    Deny { reason: Option<Box<str>> },
    Hold(Hold),
}

/// How a rule stands to a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fit<'r> {
    Matches,
    /// All else matches.
    LacksScopes,
    Not(Mismatch<'r>),
}

/// The first thing that does not match.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mismatch<'r> {
    Object,
    Who(Miss),
    Argument(&'r Condition, Finding),
}

/// Whether a rule would match while the arguments are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    Never,
    /// It depends on them.
    Maybe,
    Always,
}

// === impl Rule ===

impl Rule {
    /// `granted` are scopes taken to be there beside those of the token.
    pub(super) fn fit(&self, request: &Request<'_>, granted: &[Box<str>]) -> Fit<'_> {
        if !self.names(request.upstream, request.object) {
            return Fit::Not(Mismatch::Object);
        }
        if let Some(miss) = self.who.misses(request.principal) {
            return Fit::Not(Mismatch::Who(miss));
        }
        for condition in &self.when {
            let finding = condition.find(request.arguments);
            if !self.takes(condition, finding) {
                return Fit::Not(Mismatch::Argument(condition, finding));
            }
        }
        match self.who.missing_scopes(request.principal, granted).next() {
            None => Fit::Matches,
            Some(_) => Fit::LacksScopes,
        }
    }

    /// The same with the arguments unknown.
    pub(super) fn reach(
        &self,
        principal: &Principal,
        upstream: &str,
        object: Object<'_>,
        granted: &[Box<str>],
    ) -> Reach {
        let is_meant = self.names(upstream, object)
            && self.who.misses(principal).is_none()
            && self.who.missing_scopes(principal, granted).next().is_none();
        match (is_meant, self.when.is_empty()) {
            (false, _) => Reach::Never,
            (true, false) => Reach::Maybe,
            (true, true) => Reach::Always,
        }
    }

    pub(super) fn is_deny(&self) -> bool {
        matches!(self.effect, Effect::Deny { .. })
    }

    pub(super) fn is_allow(&self) -> bool {
        matches!(self.effect, Effect::Allow { .. })
    }

    pub(super) fn patterns(&self, object: Object<'_>) -> &[Pattern] {
        match object {
            Object::Tool(_) => &self.tools,
            Object::Resource(_) => &self.resources,
            Object::Prompt(_) => &self.prompts,
        }
    }

    pub(super) fn names(&self, upstream: &str, object: Object<'_>) -> bool {
        self.patterns(object).iter().any(|pattern| pattern.matches(upstream, object.name()))
    }

    /// Doubt never opens: what an allow cannot be sure of it does not take, what a deny or hold cannot rule out it does.
    pub(super) fn takes(&self, condition: &Condition, finding: Finding) -> bool {
        match finding {
            Finding::Holds => true,
            Finding::Fails(_) => false,
            Finding::WrongType(_) | Finding::Astray => !self.is_allow(),
            Finding::Absent => !self.is_allow() && condition.or_absent,
        }
    }
}
