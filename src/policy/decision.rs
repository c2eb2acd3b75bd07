//! The answer to one call. Each kind can be made only in `policy`, so that whoever holds one has asked.

use regex::Regex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The answer.
#[derive(Clone, Debug)]
pub enum Decision {
    /// It may be forwarded.
    Allowed(Allowed),
    /// It may not.
    Denied(Denied),
    /// A person must decide.
    Held(Held),
}

/// Proof that the policy lets a call through.
#[derive(Clone, Debug)]
pub struct Allowed {
    rules: Vec<Arc<str>>,
    reads: bool,
}

/// A call that may not be made.
#[derive(Clone, Debug)]
pub struct Denied {
    /// The rule that decided, for the audit record: the first deny that matched or, for want of a scope, the rule that
    /// would have let it through. None where nothing matched.
    pub rule: Option<Arc<str>>,
    /// What the caller may know.
    pub why: Why,
    _only_here: OnlyHere,
}

/// Why a call may not be made, as far as the caller may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No arguments could open it: to this principal there is no such object.
    Unlisted,
    /// Not with these arguments.
    Arguments {
        /// In plain words, for the caller.
        reason: String,
    },
    /// Only a scope is missing.
    Scope {
        /// All that the token should carry: what it has, and what is missing. Sorted.
        wanted: Vec<String>,
    },
}

/// A call that a person must decide.
#[derive(Clone, Debug)]
pub struct Held {
    /// The rules that hold it, in the order of the file.
    pub rules: Vec<Arc<str>>,
    /// SHA-256 over those rules as they are written: where it differs, other rules decide.
    pub rules_digest: [u8; 32],
    /// What they ask for, together.
    pub hold: Hold,
    _only_here: OnlyHere,
}

/// What holds ask for, one alone or several merged: all of them must be satisfied.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Who may approve, one entry a hold. Each entry needs its approval.
    pub approvers: Vec<Approvers>,
    /// Whether the requester may be among them; only where every hold says so.
    pub by_requester: bool,
    /// What to point out to them.
    pub signals: Vec<Signal>,
    /// Arguments whose values they do not see, as JSON Pointers.
    pub mask: BTreeSet<String>,
    /// The shortest time that one of them gives for a decision; `None` where none says.
    pub expires: Option<Duration>,
    /// The shortest time that one of them gives for using an approval.
    pub valid_for: Option<Duration>,
    /// The shortest time that one of them keeps a caller waiting.
    pub wait: Option<Duration>,
}

/// Who may approve.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Approvers {
    /// Users by name.
    pub users: BTreeSet<String>,
    /// Groups.
    pub groups: BTreeSet<String>,
    /// How many different people of these must.
    pub quorum: u32,
}

/// A pattern pointed out to approvers wherever it is found; an aid to people, not a boundary.
#[derive(Clone, Debug)]
pub struct Signal {
    /// What it is called.
    pub name: Arc<str>,
    /// What it looks for, anywhere in a text.
    pub pattern: Regex,
}

/// Keeps a struct with public fields from being made elsewhere.
#[derive(Clone, Copy, Debug)]
struct OnlyHere;

// === impl Allowed ===

impl Allowed {
    pub(super) fn new(rules: Vec<Arc<str>>, reads: bool) -> Allowed {
        Allowed { rules, reads }
    }

    /// The rules that allow it, in the order of the file.
    pub fn rules(&self) -> &[Arc<str>] {
        &self.rules
    }

    /// Whether one of them says that it changes nothing.
    pub fn reads(&self) -> bool {
        self.reads
    }
}

// === impl Denied ===

impl Denied {
    pub(super) fn new(rule: Option<Arc<str>>, why: Why) -> Denied {
        Denied { rule, why, _only_here: OnlyHere }
    }
}

// === impl Held ===

impl Held {
    pub(super) fn new(rules: Vec<Arc<str>>, rules_digest: [u8; 32], hold: Hold) -> Held {
        Held { rules, rules_digest, hold, _only_here: OnlyHere }
    }
}

// === impl Approvers ===

impl Approvers {
    /// Whether this person is one of them.
    pub fn include(&self, name: &str, groups: &[String]) -> bool {
        self.users.contains(name) || groups.iter().any(|group| self.groups.contains(group))
    }
}

// === impl Hold ===

impl Hold {
    /// Both together. A signal both know under one name and pattern is pointed out once.
    pub(super) fn merge(mut self, other: &Hold) -> Hold {
        self.approvers.extend(other.approvers.iter().cloned());
        self.by_requester &= other.by_requester;
        self.mask.extend(other.mask.iter().cloned());
        self.expires = shorter(self.expires, other.expires);
        self.valid_for = shorter(self.valid_for, other.valid_for);
        self.wait = shorter(self.wait, other.wait);
        for signal in &other.signals {
            let is_known = self
                .signals
                .iter()
                .any(|known| known.name == signal.name && known.pattern.as_str() == signal.pattern.as_str());
            if !is_known {
                self.signals.push(signal.clone());
            }
        }
        self
    }
}

fn shorter(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
