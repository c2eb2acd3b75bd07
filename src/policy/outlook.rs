//! What a call gets of which not all is known any more: `audit replay` judges calls that were written down.
//!
//! A rule whose conditions cannot be told from what is left may match or not, and the answer is what all of these
//! possibilities have in common, or open. A call of which all is known is decided by [`Policy::decide`] itself.

use super::condition::{Condition, Test, index};
use super::rule::{Effect, Rule};
use super::{Decision, Object, Policy, Request};
use crate::identity::Principal;
use crate::jsonrpc::{Kind, Node};
use std::collections::HashMap;
use std::sync::Arc;

/// What is known of the arguments.
#[derive(Clone, Copy)]
pub enum Seen<'a> {
    /// All; `None` where the call had none.
    Whole(Option<Node<'a>>),
    /// All but what stands in place of texts and names for which this is true: anything could have been there.
    Except(Node<'a>, fn(&str) -> bool),
    /// Nothing, except what else is known of the rules ([`Learned`]).
    Nothing,
}

/// A call as it was written down.
#[derive(Clone, Copy)]
pub struct Sighting<'a> {
    /// Who asked.
    pub principal: &'a Principal,
    /// The upstream's name.
    pub upstream: &'a str,
    /// What was asked for there.
    pub object: Object<'a>,
    /// With which arguments.
    pub arguments: Seen<'a>,
}

/// A decision in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ruling {
    /// It may be forwarded.
    Allowed,
    /// A person must decide.
    Held,
    /// It may not.
    Denied,
}

/// What a call gets, as far as that can be told.
#[derive(Clone, Debug)]
pub enum Outlook {
    /// This, whatever is not known.
    Sure(Verdict),
    /// One of several.
    Open {
        /// Which, in the order of [`Ruling`].
        possible: Vec<Ruling>,
        /// The rules that depend on what is not known.
        rules: Vec<Arc<str>>,
    },
}

/// A decision with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub ruling: Ruling,
    /// The rules that make it so, as far as they are known: for a denial at most one.
    pub rules: Vec<Arc<str>>,
    /// Where a denial is for want of a scope: all that the token should carry.
    pub wanted_scopes: Vec<String>,
}

/// Which rules' conditions a call is known to meet or to miss, from what was decided on it under a policy that had them.
#[derive(Debug, Default)]
pub struct Learned(HashMap<[u8; 32], bool>);

/// How a rule stands to a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Not,
    Maybe,
    Matches,
}

impl Policy {
    /// What this call gets here.
    pub fn outlook(&self, call: &Sighting<'_>, learned: &Learned) -> Outlook {
        if let Seen::Whole(arguments) = call.arguments {
            let Sighting { principal, upstream, object, .. } = *call;
            return Outlook::Sure(Verdict::of(&self.decide(&Request { principal, upstream, object, arguments })));
        }
        let (mut sure, mut maybe) = (ByEffect::default(), ByEffect::default());
        for rule in self.candidates(call.upstream, call.object) {
            match rule.sight(call, learned) {
                Sight::Matches => sure.add(rule),
                Sight::Maybe => maybe.add(rule),
                Sight::Not => {}
            }
        }
        // The order of `decide`: a deny, else a hold, else an allow, else nothing.
        let steps = [
            (Ruling::Denied, &sure.denies, &maybe.denies),
            (Ruling::Held, &sure.holds, &maybe.holds),
            (Ruling::Allowed, &sure.allows, &maybe.allows),
        ];
        let mut possible = Vec::new();
        let mut open = Vec::new();
        let mut rules: &[Arc<str>] = &[];
        let mut is_settled = false;
        for (ruling, sure, maybe) in steps {
            if !sure.is_empty() || !maybe.is_empty() {
                possible.push(ruling);
            }
            if !sure.is_empty() {
                (rules, is_settled) = (sure, true);
                break;
            }
            open.extend(maybe.iter().cloned());
        }
        if !is_settled {
            possible.push(Ruling::Denied);
        }
        possible.sort_unstable();
        possible.dedup();
        match possible.as_slice() {
            [ruling] => Outlook::Sure(Verdict {
                ruling: *ruling,
                rules: if *ruling == Ruling::Denied { rules.iter().take(1).cloned().collect() } else { rules.to_vec() },
                wanted_scopes: Vec::new(),
            }),
            _ => Outlook::Open { possible, rules: open },
        }
    }

    /// What a recorded decision of this policy tells of the conditions of its rules, which another policy may have as well.
    /// `rules` are those that the record names. All of the principal must be as it was then.
    pub fn learn(&self, call: &Sighting<'_>, ruling: Ruling, rules: &[&str]) -> Learned {
        let is_named = |rule: &Rule| rules.contains(&&*rule.name);
        // A denial names the first deny that matched. Of rules after that one it says nothing.
        let mut candidates = self.candidates(call.upstream, call.object);
        let denier = if ruling == Ruling::Denied {
            candidates.find(|rule| rule.is_deny() && is_named(rule)).map(|rule| Arc::clone(&rule.name))
        } else {
            None
        };
        let mut is_past_denier = false;
        let mut learned = HashMap::new();
        for rule in self.candidates(call.upstream, call.object) {
            let is_denier = denier.as_ref() == Some(&rule.name);
            let found = match (&rule.effect, ruling) {
                (Effect::Deny { .. }, Ruling::Denied) if is_denier => Some(true),
                (Effect::Deny { .. }, _) => (!is_past_denier).then_some(false),
                (_, Ruling::Denied) => denier.is_none().then_some(false),
                (Effect::Hold(_), _) => Some(ruling == Ruling::Held && is_named(rule)),
                (Effect::Allow { .. }, Ruling::Allowed) => Some(is_named(rule)),
                (Effect::Allow { .. }, Ruling::Held) => None,
            };
            is_past_denier |= is_denier;
            // Otherwise it was something else that kept the rule from matching.
            let depends_on_conditions = rule.is_meant(call) && !rule.when.is_empty();
            if let Some(holds) = found.filter(|_| depends_on_conditions) {
                learned.insert(rule.digest, holds);
            }
        }
        Learned(learned)
    }
}

/// The names of rules, in the order of the file.
#[derive(Default)]
struct ByEffect {
    denies: Vec<Arc<str>>,
    holds: Vec<Arc<str>>,
    allows: Vec<Arc<str>>,
}

impl ByEffect {
    fn add(&mut self, rule: &Rule) {
        let rules = match rule.effect {
            Effect::Deny { .. } => &mut self.denies,
            Effect::Hold(_) => &mut self.holds,
            Effect::Allow { .. } => &mut self.allows,
        };
        rules.push(Arc::clone(&rule.name));
    }
}

impl Rule {
    fn sight(&self, call: &Sighting<'_>, learned: &Learned) -> Sight {
        if !self.is_meant(call) {
            return Sight::Not;
        }
        let mut is_sure = true;
        for condition in &self.when {
            match self.meets(condition, call.arguments) {
                Some(true) => {}
                Some(false) => return Sight::Not,
                None => is_sure = false,
            }
        }
        match (is_sure, learned.0.get(&self.digest)) {
            (true, _) | (false, Some(true)) => Sight::Matches,
            (false, Some(false)) => Sight::Not,
            (false, None) => Sight::Maybe,
        }
    }

    /// All but the conditions.
    fn is_meant(&self, call: &Sighting<'_>) -> bool {
        let Sighting { principal, upstream, object, .. } = *call;
        self.names(upstream, object)
            && self.who.misses(principal).is_none()
            && self.who.missing_scopes(principal, &[]).next().is_none()
    }

    /// `None` where that depends on what is not known.
    fn meets(&self, condition: &Condition, arguments: Seen<'_>) -> Option<bool> {
        let known = match arguments {
            Seen::Nothing => return None,
            Seen::Whole(known) => known,
            Seen::Except(known, is_hidden) => {
                if depends_on_hidden(condition, known, is_hidden) {
                    return None;
                }
                Some(known)
            }
        };
        Some(self.takes(condition, condition.find(known)))
    }
}

/// Whether another value in place of what is hidden could change what the condition finds.
fn depends_on_hidden(condition: &Condition, arguments: Node<'_>, is_hidden: fn(&str) -> bool) -> bool {
    let is_hidden_text = |node: Node<'_>| node.as_str().is_some_and(|text| is_hidden(&text));
    let mut node = arguments;
    for token in &condition.pointer.tokens {
        if is_hidden_text(node) {
            return true;
        }
        let inside = match node.kind() {
            Kind::Object => node.get(token),
            Kind::Array => index(token).and_then(|at| node.elements().nth(at)),
            // It leads astray, whatever stands elsewhere.
            _ => return false,
        };
        match inside {
            Some(inside) => node = inside,
            // Unless a name that is hidden was this one.
            None => return node.members().any(|(name, _)| is_hidden(&name)),
        }
    }
    let asks_only_whether_it_is_there = condition.tests.iter().all(|test| matches!(test, Test::Present | Test::Absent));
    !asks_only_whether_it_is_there && has_hidden(node, is_hidden)
}

/// Bounded by the length of a record, and by the depth of a message.
fn has_hidden(node: Node<'_>, is_hidden: fn(&str) -> bool) -> bool {
    match node.kind() {
        Kind::String => node.as_str().is_some_and(|text| is_hidden(&text)),
        Kind::Array => node.elements().any(|element| has_hidden(element, is_hidden)),
        Kind::Object => node.members().any(|(name, member)| is_hidden(&name) || has_hidden(member, is_hidden)),
        Kind::Null | Kind::Bool | Kind::Number => false,
    }
}

// === impl Verdict ===

impl Verdict {
    /// Of a decision that was made.
    pub fn of(decision: &Decision) -> Verdict {
        let (ruling, rules, wanted_scopes) = match decision {
            Decision::Allowed(allowed) => (Ruling::Allowed, allowed.rules().to_vec(), Vec::new()),
            Decision::Held(held) => (Ruling::Held, held.rules.clone(), Vec::new()),
            Decision::Denied(denied) => {
                let wanted = match &denied.why {
                    super::Why::Scope { wanted } => wanted.clone(),
                    super::Why::Unlisted | super::Why::Arguments { .. } => Vec::new(),
                };
                (Ruling::Denied, denied.rule.iter().cloned().collect(), wanted)
            }
        };
        Verdict { ruling, rules, wanted_scopes }
    }
}

// === impl Ruling ===

impl Ruling {
    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Ruling::Allowed => "allowed",
            Ruling::Held => "held",
            Ruling::Denied => "denied",
        }
    }

    /// The ruling of this word.
    pub fn named(word: &str) -> Option<Ruling> {
        [Ruling::Allowed, Ruling::Held, Ruling::Denied].into_iter().find(|ruling| ruling.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::Span;
    use crate::policy::testing::{policy, user};
    use proptest::prelude::*;
    use proptest::sample::select;

    /// A few rules that get into one another's way. Conditions are drawn from a small set, so that they meet arguments.
    fn rules() -> impl Strategy<Value = String> {
        let condition = select(vec![
            "/a: { equals: 1 }",
            "/a: { min: 1, or_absent: true }",
            "/a: { present: false }",
            "/b/c: { equals: x }",
            "/b: { present: true }",
            "/b/c: { matches: 'x.*', or_absent: true }",
            "/b/d/0: { in: [1, x] }",
            "/b/d: { max_length: 1 }",
        ]);
        let effect = select(vec!["allow", "deny", "hold"]);
        let who = select(vec!["", "who: { groups: [ops] }, ", "who: { scopes: [more] }, "]);
        let rule = (effect, prop::option::weighted(0.8, condition), who).prop_map(|(effect, condition, who)| {
            let condition =
                condition.map(|it| if effect == "allow" { it.replace(", or_absent: true", "") } else { it.to_owned() });
            let when = condition.map(|it| format!("when: {{ {it} }}, ")).unwrap_or_default();
            let effect =
                if effect == "hold" { "hold: { approvers: { users: [bob] } }" } else { &format!("{effect}: {{}}") };
            format!("tools: ['u/t'], {who}{when}{effect} }}")
        });
        prop::collection::vec(rule, 1..6).prop_map(|rules| {
            let named: Vec<_> = rules.iter().enumerate().map(|(at, rule)| format!("{{ name: r{at}, {rule}")).collect();
            format!("rules: [{}]", named.join(", "))
        })
    }

    fn arguments() -> impl Strategy<Value = serde_json::Value> {
        let leaf = || {
            let leaves = ["1", "0", r#""x""#, r#""xy""#, "null", "[1]", r#"["x",2]"#];
            select(leaves.map(|text| serde_json::from_str::<serde_json::Value>(text).expect("JSON")).to_vec())
        };
        let inner = prop::collection::btree_map(select(vec!["c", "d"]), leaf(), 0..3);
        let b = prop_oneof![inner.prop_map(|it| serde_json::json!(it)), leaf()];
        (prop::option::of(leaf()), prop::option::of(b)).prop_map(|(a, b)| {
            let members = [("a", a), ("b", b)].into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
            serde_json::Value::Object(members.collect())
        })
    }

    /// Hides some of the values, chosen by the bits of `which`.
    fn hide(value: &mut serde_json::Value, which: &mut u32) {
        *which = which.rotate_right(3);
        if *which & 3 == 0 {
            *value = "HIDDEN".into();
            return;
        }
        match value {
            serde_json::Value::Array(elements) => elements.iter_mut().for_each(|element| hide(element, which)),
            serde_json::Value::Object(members) => members.values_mut().for_each(|member| hide(member, which)),
            _ => {}
        }
    }

    fn whole(text: &str) -> Node<'_> {
        Node::of(text.as_bytes(), Span::whole(text.as_bytes()))
    }

    fn is_hidden(text: &str) -> bool {
        text == "HIDDEN"
    }

    fn agrees(outlook: &Outlook, decision: &Decision) -> bool {
        let ruling = Verdict::of(decision).ruling;
        match outlook {
            Outlook::Sure(verdict) => verdict.ruling == ruling,
            Outlook::Open { possible, rules } => possible.len() > 1 && possible.contains(&ruling) && !rules.is_empty(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Whatever is hidden, what the gateway really decides is among what the outlook leaves open.
        #[test]
        fn what_is_decided_is_never_ruled_out(rules in rules(), arguments in arguments(), which in any::<u32>()) {
            let (policy, alice) = (policy(&rules), user("alice", &["ops"]));
            let text = arguments.to_string();
            let request = Request { principal: &alice, upstream: "u", object: Object::Tool("t"), arguments: Some(whole(&text)) };
            let decision = policy.decide(&request);
            let mut masked = arguments.clone();
            hide(&mut masked, &mut { which });
            let masked = masked.to_string();

            let mut call = Sighting { principal: &alice, upstream: "u", object: Object::Tool("t"), arguments: Seen::Nothing };
            for seen in [Seen::Nothing, Seen::Except(whole(&masked), is_hidden), Seen::Whole(Some(whole(&text)))] {
                call.arguments = seen;
                let outlook = policy.outlook(&call, &Learned::default());
                prop_assert!(agrees(&outlook, &decision), "{rules} on {text} as {masked}: {outlook:?}, but {decision}");
            }
            let same = policy.outlook(&call, &Learned::default());
            prop_assert!(matches!(same, Outlook::Sure(verdict) if verdict == Verdict::of(&decision)));
        }

        /// What was decided under one policy is used to judge under another that shares rules with it; never wrongly.
        #[test]
        fn what_is_learned_is_true(old in rules(), new in rules(), arguments in arguments(), keep in any::<u8>()) {
            // The new policy has some of the old one's rules, word for word, and some of its own.
            let body = |text: &str| text.trim_start_matches("rules: [").trim_end_matches(']').to_owned();
            let kept = body(&old).split(", { name: ").enumerate().filter(|(at, _)| keep >> at & 1 == 1)
                .map(|(_, rule)| if rule.starts_with("{ name: ") { rule.to_owned() } else { format!("{{ name: {rule}") })
                .collect::<Vec<_>>().join(", ");
            let added = body(&new).replace("name: r", "name: n");
            let new = format!("rules: [{}{}{added}]", kept, if kept.is_empty() { "" } else { ", " });
            let (old_policy, new_policy, alice) = (policy(&old), policy(&new), user("alice", &["ops"]));
            let text = arguments.to_string();
            let request = Request { principal: &alice, upstream: "u", object: Object::Tool("t"), arguments: Some(whole(&text)) };
            let was = Verdict::of(&old_policy.decide(&request));
            let names: Vec<&str> = was.rules.iter().map(|name| &**name).collect();

            let call = Sighting { principal: &alice, upstream: "u", object: Object::Tool("t"), arguments: Seen::Nothing };
            let learned = old_policy.learn(&call, was.ruling, &names);
            let again = old_policy.outlook(&call, &learned);
            prop_assert!(matches!(&again, Outlook::Sure(verdict) if verdict.ruling == was.ruling), "{old} on {text}: {was:?} became {again:?}");
            let outlook = new_policy.outlook(&call, &learned);
            let decision = new_policy.decide(&request);
            prop_assert!(agrees(&outlook, &decision), "{old}, then {new}, on {text}: {outlook:?}, but {decision}");
        }
    }

    #[test]
    fn presence_is_known_of_what_is_hidden_and_its_value_is_not() {
        let alice = user("alice", &[]);
        let check = |rules: &str, arguments: &str, expected: &[Ruling]| {
            let arguments = Seen::Except(whole(arguments), is_hidden);
            let call = Sighting { principal: &alice, upstream: "u", object: Object::Tool("t"), arguments };
            let possible = match policy(rules).outlook(&call, &Learned::default()) {
                Outlook::Sure(verdict) => vec![verdict.ruling],
                Outlook::Open { possible, .. } => possible,
            };
            assert_eq!(possible, expected, "{rules}");
        };
        let rule =
            |condition: &str| format!("rules: [{{ name: r, tools: ['u/t'], when: {{ {condition} }}, allow: {{}} }}]");
        let either = [Ruling::Allowed, Ruling::Denied];
        check(&rule("/a: { present: true }"), r#"{"a":"HIDDEN"}"#, &[Ruling::Allowed]);
        check(&rule("/a: { equals: 1 }"), r#"{"a":"HIDDEN"}"#, &either);
        check(&rule("/a/b: { equals: 1 }"), r#"{"a":"HIDDEN"}"#, &either);
        check(&rule("/a: { equals: { b: 1 } }"), r#"{"a":{"b":"HIDDEN"}}"#, &either);
        check(&rule("/a: { equals: 1 }"), r#"{"HIDDEN":1}"#, &either);
        check(&rule("/a: { equals: 1 }"), r#"{"a":1,"b":"HIDDEN"}"#, &[Ruling::Allowed]);
        check(&rule("/a: { equals: 1 }"), r#"{"a":2,"b":"HIDDEN"}"#, &[Ruling::Denied]);
        check(&rule("'': { equals: {} }"), r#""HIDDEN""#, &either);
    }
}
