//! Says in words which rules decide a call, and why the others do not.

use super::condition::Finding;
use super::decision::{Approvers, Decision, Held, Why};
use super::rule::{Effect, Fit, Mismatch, Rule};
use super::who::Miss;
use super::{Policy, Request};
use std::fmt;
use std::sync::Arc;

/// A decision, and how every rule stands to it. Printed, it is a line for the decision and one for each rule.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// What `decide` answers.
    pub decision: Decision,
    /// One a rule, in the order of the file.
    pub lines: Vec<Line>,
}

/// How one rule stands to a call.
#[derive(Clone, Debug)]
pub struct Line {
    /// The rule.
    pub rule: Arc<str>,
    /// `allow`, `deny` or `hold`.
    pub effect: &'static str,
    /// Whether it matches.
    pub is_match: bool,
    /// The first reason why it does not; where it does, what it made of arguments it could not be sure of.
    pub note: Option<String>,
}

impl Policy {
    /// Decides one call and says why.
    pub fn explain(&self, request: &Request<'_>) -> Explanation {
        Explanation {
            decision: self.decide(request),
            lines: self.rules.iter().map(|rule| line(rule, request)).collect(),
        }
    }
}

fn line(rule: &Rule, request: &Request<'_>) -> Line {
    let fit = rule.fit(request, &[]);
    let note = match fit {
        Fit::Matches => doubts(rule, request),
        Fit::LacksScopes => {
            let missing = rule.who.missing_scopes(request.principal, &[]);
            Some(format!("the token lacks {}", quoted(missing)))
        }
        Fit::Not(Mismatch::Object) => {
            let (kind, name) = (request.object.kind(), request.object.name());
            Some(format!("no pattern of it names the {kind} `{}/{name}`", request.upstream))
        }
        Fit::Not(Mismatch::Who(miss)) => Some(stranger(miss).to_owned()),
        Fit::Not(Mismatch::Argument(condition, finding)) => Some(argument(&condition.pointer.text, finding)),
    };
    Line { rule: rule.name.clone(), effect: rule.effect.word(), is_match: matches!(fit, Fit::Matches), note }
}

/// What a deny or hold took in doubt.
fn doubts(rule: &Rule, request: &Request<'_>) -> Option<String> {
    let doubts: Vec<String> = rule
        .when
        .iter()
        .map(|condition| (condition, condition.find(request.arguments)))
        .filter(|(_, finding)| *finding != Finding::Holds)
        .map(|(condition, finding)| argument(&condition.pointer.text, finding))
        .collect();
    (!doubts.is_empty()).then(|| doubts.join("; "))
}

fn stranger(miss: Miss) -> &'static str {
    match miss {
        Miss::External => "it is for principals of this gateway only",
        Miss::User => "it is for other users",
        Miss::Group => "it is for other groups",
        Miss::Client => "it is for other clients",
    }
}

fn argument(pointer: &str, finding: Finding) -> String {
    match finding {
        Finding::Holds => format!("argument `{pointer}` is as asked"),
        Finding::Fails(key) => format!("argument `{pointer}` is not what `{key}` asks for"),
        Finding::WrongType(key) => format!("argument `{pointer}` is of the wrong type for `{key}`"),
        Finding::Astray => {
            format!("argument `{pointer}` would be inside a value that has no such inside")
        }
        Finding::Absent => format!("argument `{pointer}` is absent"),
    }
}

// === impl Effect ===

impl Effect {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Effect::Allow { .. } => "allow",
            Effect::Deny { .. } => "deny",
            Effect::Hold(_) => "hold",
        }
    }
}

// === For people ===

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.decision)?;
        for line in &self.lines {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_match { "matches" } else { "does not match" };
        write!(f, "{} `{}` {verdict}", self.effect, self.rule)?;
        match &self.note {
            Some(note) => write!(f, ": {note}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Allowed(allowed) => {
                write!(f, "allowed by {}", quoted(allowed.rules()))?;
                f.write_str(if allowed.reads() { ", as a call that changes nothing" } else { "" })
            }
            Decision::Held(held) => held.fmt(f),
            Decision::Denied(denied) => match (&denied.why, &denied.rule) {
                (Why::Scope { wanted }, _) => {
                    write!(f, "denied for want of a scope; the token should carry {}", quoted(wanted))
                }
                (Why::Arguments { reason }, Some(rule)) => {
                    write!(f, "denied by `{rule}`: {reason}")
                }
                (Why::Arguments { reason }, None) => write!(f, "denied: {reason}"),
                (Why::Unlisted, Some(rule)) => write!(f, "denied by `{rule}` whatever the arguments, and not listed"),
                (Why::Unlisted, None) => f.write_str("denied, and not listed: no rule could let it through"),
            },
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held by {} until approved by ", quoted(&self.rules))?;
        for (at, approvers) in self.hold.approvers.iter().enumerate() {
            f.write_str(if at > 0 { ", and by " } else { "" })?;
            approvers.fmt(f)?;
        }
        let requester = if self.hold.by_requester { "may" } else { "may not" };
        write!(f, " (the requester {requester} be among them)")
    }
}

impl fmt::Display for Approvers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let users = self.users.iter().map(|name| format!("user `{name}`"));
        let groups = self.groups.iter().map(|name| format!("group `{name}`"));
        f.write_str(&users.chain(groups).collect::<Vec<_>>().join(" or "))
    }
}

fn quoted<T: fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use crate::policy::Object;
    use crate::policy::testing::{policy, request, user};

    const RULES: &str = "rules: [{ name: sandbox, tools: ['u/*'], allow: {} }, \
        { name: big, tools: ['u/pay'], when: { /amount: { min: 100 } }, hold: { approvers: { users: [bob], groups: [admins] } } }, \
        { name: free, tools: ['u/pay'], when: { /amount: { equals: 0 } }, deny: { reason: nothing is free } }, \
        { name: ops, tools: ['u/pay'], who: { groups: [ops] }, allow: {} }, \
        { name: scoped, tools: ['u/pay'], who: { scopes: [pay, mcp] }, allow: {} }, \
        { name: elsewhere, tools: ['v/*'], allow: {} }, \
        { name: nested, tools: ['u/pay'], when: { /amount/unit: { equals: EUR } }, allow: {} }]";

    #[track_caller]
    fn check(arguments: &str, expected: &str) {
        let policy = policy(RULES);
        let alice = user("alice", &[]);
        let explanation = policy.explain(&request(&alice, "u", Object::Tool("pay"), arguments));
        assert_eq!(explanation.to_string(), expected.trim());
    }

    #[test]
    fn every_rule_says_that_it_matches_or_the_first_reason_why_not() {
        check(
            r#"{"amount":250}"#,
            "
held by `big` until approved by user `bob` or group `admins` (the requester may not be among them)
  allow `sandbox` matches
  hold `big` matches
  deny `free` does not match: argument `/amount` is not what `equals` asks for
  allow `ops` does not match: it is for other groups
  allow `scoped` does not match: the token lacks `pay`
  allow `elsewhere` does not match: no pattern of it names the tool `u/pay`
  allow `nested` does not match: argument `/amount/unit` would be inside a value that has no such inside",
        );
    }

    #[test]
    fn what_a_deny_took_in_doubt_is_said() {
        check(
            r#"{"amount":"250"}"#,
            "
denied by `free`: nothing is free
  allow `sandbox` matches
  hold `big` matches: argument `/amount` is of the wrong type for `min`
  deny `free` matches: argument `/amount` is of the wrong type for `equals`
  allow `ops` does not match: it is for other groups
  allow `scoped` does not match: the token lacks `pay`
  allow `elsewhere` does not match: no pattern of it names the tool `u/pay`
  allow `nested` does not match: argument `/amount/unit` would be inside a value that has no such inside",
        );
    }

    #[test]
    fn an_absent_argument_is_called_absent() {
        check(
            "{}",
            "
allowed by `sandbox`
  allow `sandbox` matches
  hold `big` does not match: argument `/amount` is absent
  deny `free` does not match: argument `/amount` is absent
  allow `ops` does not match: it is for other groups
  allow `scoped` does not match: the token lacks `pay`
  allow `elsewhere` does not match: no pattern of it names the tool `u/pay`
  allow `nested` does not match: argument `/amount/unit` is absent",
        );
    }
}
