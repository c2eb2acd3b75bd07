//! A second, naive reading of what a policy means, over `serde_json` values and small integers.
//!
//! Written from the documentation and not from the code: backtracking wildcards, floats, every subset of scopes tried.
//! Where it and `portcullis::policy` differ, one of them is wrong.

use super::Verdict;
use serde_json::{Value, json};

/// A policy of the model.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) tools: Vec<(String, String)>,
    pub(super) who: Who,
    pub(super) when: Vec<(String, Condition)>,
    pub(super) effect: Effect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Allow { reads: bool },
    Deny,
    Hold,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Who {
    pub(super) users: Option<Vec<String>>,
    pub(super) groups: Option<Vec<String>>,
    pub(super) scopes: Option<Vec<String>>,
}

#[derive(Clone, Debug)]
pub(super) struct Condition {
    pub(super) ask: Ask,
    pub(super) or_absent: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Ask {
    Equals(Value),
    In(Vec<Value>),
    Min(i64),
    Max(i64),
    MaxLength(u64),
    Present(bool),
    /// `matches` (or `not_matches`) on the pattern `<text>.*`.
    BeginsWith(String, bool),
}

#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) scopes: Vec<String>,
}

/// All scopes that rules and tokens of a generated case can name.
pub(super) const SCOPES: [&str; 3] = ["s1", "s2", "s3"];

// === The answers ===

pub(super) fn verdict(rules: &[Rule], asker: &Asker, tool: (&str, &str), arguments: &Value) -> Verdict {
    let matching = |effect: fn(Effect) -> bool| {
        rules.iter().filter(move |rule| effect(rule.effect)).any(|rule| matches(rule, asker, tool, arguments))
    };
    let is_denied = matching(|effect| effect == Effect::Deny);
    if !is_denied && matching(|effect| effect == Effect::Hold) {
        return Verdict::Held;
    }
    if !is_denied && matching(|effect| matches!(effect, Effect::Allow { .. })) {
        let reads = matching(|effect| effect == Effect::Allow { reads: true });
        return Verdict::Allowed { reads };
    }
    if !is_listed(rules, asker, tool) {
        return Verdict::Unlisted;
    }
    if is_denied {
        return Verdict::Arguments;
    }
    match cheapest(rules, asker, tool, arguments) {
        Some(wanted) => Verdict::Scope(wanted),
        None => Verdict::Arguments,
    }
}

/// No deny without conditions, and with some scopes more or none a rule that may open it and still no such deny.
pub(super) fn is_listed(rules: &[Rule], asker: &Asker, tool: (&str, &str)) -> bool {
    let is_hidden = |asker: &Asker| {
        rules.iter().any(|rule| rule.effect == Effect::Deny && rule.when.is_empty() && is_meant(rule, asker, tool))
    };
    let may_open = |asker: &Asker| rules.iter().any(|rule| rule.effect != Effect::Deny && is_meant(rule, asker, tool));
    !is_hidden(asker)
        && subsets().iter().any(|more| {
            let richer = with(asker, more);
            may_open(&richer) && !is_hidden(&richer)
        })
}

/// Of all sets of scopes that would open the call, the one that adds fewest; of as few, the alphabetically first.
fn cheapest(rules: &[Rule], asker: &Asker, tool: (&str, &str), arguments: &Value) -> Option<Vec<String>> {
    let opens = |asker: &Asker| {
        let any = |is_deny: bool| {
            rules.iter().any(|rule| (rule.effect == Effect::Deny) == is_deny && matches(rule, asker, tool, arguments))
        };
        any(false) && !any(true)
    };
    let mut openers: Vec<Vec<String>> = subsets().into_iter().filter(|more| opens(&with(asker, more))).collect();
    openers.iter_mut().for_each(|more| more.retain(|scope| !asker.scopes.contains(scope)));
    openers.sort_by_key(|more| (more.len(), more.clone()));
    openers.into_iter().next().map(|more| with(asker, &more).scopes)
}

fn subsets() -> Vec<Vec<String>> {
    (0..1_usize << SCOPES.len())
        .map(|bits| {
            let chosen = SCOPES.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
            chosen.map(|(_, scope)| (*scope).to_owned()).collect()
        })
        .collect()
}

fn with(asker: &Asker, more: &[String]) -> Asker {
    let mut richer = asker.clone();
    richer.scopes.extend(more.iter().cloned());
    richer.scopes.sort();
    richer.scopes.dedup();
    richer
}

// === One rule ===

fn matches(rule: &Rule, asker: &Asker, tool: (&str, &str), arguments: &Value) -> bool {
    is_meant(rule, asker, tool)
        && rule.when.iter().all(|(key, condition)| takes(rule.effect, condition, arguments.get(key)))
}

fn is_meant(rule: &Rule, asker: &Asker, tool: (&str, &str)) -> bool {
    let named = rule.tools.iter().any(|(upstream, name)| wild(upstream, tool.0) && wild(name, tool.1));
    let user = rule.who.users.as_ref().is_none_or(|users| users.contains(&asker.user));
    let group = rule.who.groups.as_ref().is_none_or(|groups| groups.iter().any(|group| asker.groups.contains(group)));
    let scopes = rule.who.scopes.as_ref().is_none_or(|scopes| scopes.iter().all(|scope| asker.scopes.contains(scope)));
    named && user && group && scopes
}

/// Backtracks over every way to read the stars.
pub(super) fn wild(pattern: &str, text: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => text.is_empty(),
        Some('*') => {
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| wild(rest.as_str(), &text[at..]))
        }
        Some(c) => text.strip_prefix(c).is_some_and(|text| wild(rest.as_str(), text)),
    }
}

/// The table of `docs/policy.md`: what holds; what is of the wrong type; what is absent.
fn takes(effect: Effect, condition: &Condition, argument: Option<&Value>) -> bool {
    let closes = !matches!(effect, Effect::Allow { .. });
    let Some(argument) = argument else {
        return matches!(condition.ask, Ask::Present(false)) || (closes && condition.or_absent);
    };
    let answer = match &condition.ask {
        Ask::Present(wanted) => Some(*wanted),
        Ask::Equals(value) => among(std::slice::from_ref(value), argument),
        Ask::In(values) => among(values, argument),
        Ask::Min(limit) => argument.as_f64().map(|given| given >= *limit as f64),
        Ask::Max(limit) => argument.as_f64().map(|given| given <= *limit as f64),
        Ask::MaxLength(limit) => match argument {
            Value::String(text) => Some(text.chars().count() as u64 <= *limit),
            Value::Array(elements) => Some(elements.len() as u64 <= *limit),
            _ => None,
        },
        Ask::BeginsWith(begin, wanted) => argument.as_str().map(|text| {
            let rest = text.strip_prefix(begin.as_str());
            rest.is_some_and(|rest| closes || !rest.contains('\n')) == *wanted
        }),
    };
    answer.unwrap_or(closes)
}

fn among(values: &[Value], argument: &Value) -> Option<bool> {
    if values.contains(argument) {
        return Some(true);
    }
    let kind = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    };
    let asks_for_type = values.iter().any(|value| !value.is_null());
    let has_type = values.iter().any(|value| !value.is_null() && kind(value) == kind(argument));
    (!asks_for_type || has_type).then_some(false)
}

// === As configuration ===

/// The rules as they would stand in `policy`, in this order, with these names.
pub(super) fn written(rules: &[(String, Rule)]) -> Value {
    let rules: Vec<Value> = rules.iter().map(|(name, rule)| written_rule(name, rule)).collect();
    json!({ "rules": rules })
}

fn written_rule(name: &str, rule: &Rule) -> Value {
    let tools: Vec<String> = rule.tools.iter().map(|(upstream, tool)| format!("{upstream}/{tool}")).collect();
    let when: serde_json::Map<String, Value> =
        rule.when.iter().map(|(key, condition)| (format!("/{key}"), written_condition(condition))).collect();
    let mut written = json!({ "name": name, "tools": tools, "when": when });
    if rule.who.users.is_some() || rule.who.groups.is_some() || rule.who.scopes.is_some() {
        written["who"] = json!({ "users": rule.who.users, "groups": rule.who.groups, "scopes": rule.who.scopes });
    }
    match rule.effect {
        Effect::Allow { reads } => written["allow"] = json!({ "reads": reads }),
        Effect::Deny => written["deny"] = json!({}),
        Effect::Hold => written["hold"] = json!({ "approvers": { "users": ["bob"] } }),
    }
    written
}

fn written_condition(condition: &Condition) -> Value {
    let mut written = match &condition.ask {
        Ask::Equals(value) => json!({ "equals": value }),
        Ask::In(values) => json!({ "in": values }),
        Ask::Min(limit) => json!({ "min": limit }),
        Ask::Max(limit) => json!({ "max": limit }),
        Ask::MaxLength(limit) => json!({ "max_length": limit }),
        Ask::Present(wanted) => json!({ "present": wanted }),
        Ask::BeginsWith(begin, true) => json!({ "matches": format!("{begin}.*") }),
        Ask::BeginsWith(begin, false) => json!({ "not_matches": format!("{begin}.*") }),
    };
    if condition.or_absent {
        written["or_absent"] = json!(true);
    }
    written
}
