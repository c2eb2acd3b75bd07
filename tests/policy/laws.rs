//! Laws of policies, over generated ones: they agree with the model, order never matters, a deny never opens,
//! and what is not listed is never forwarded.

use super::model::{self, Ask, Asker, Condition, Effect, Rule, SCOPES, Who};
use super::{Verdict, decide, principal, verdict};
use portcullis::config;
use portcullis::identity::Principal;
use portcullis::policy::{Object, Policy};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decisions_and_lists_are_those_of_the_model(case in cases()) {
        let policy = compiled(&named(&case.rules));

        let decision = decide(&policy, &case.principal(), case.tool(), &case.arguments.to_string());
        let expected = model::verdict(&case.rules, &case.asker, case.tool(), &case.arguments);
        prop_assert_eq!(verdict(&decision), expected, "{}", decision);

        let listed = policy.is_listed(&case.principal(), &case.upstream, Object::Tool(&case.name));
        prop_assert_eq!(listed, model::is_listed(&case.rules, &case.asker, case.tool()));
    }

    #[test]
    fn order_never_matters(case in cases(), order in any::<prop::sample::Index>()) {
        let rules = named(&case.rules);
        let mut turned = rules.clone();
        if !turned.is_empty() {
            let at = order.index(turned.len());
            turned.rotate_left(at);
            turned[at..].reverse();
        }
        let ask = |rules: &[(String, Rule)]| {
            let decision = decide(&compiled(rules), &case.principal(), case.tool(), &case.arguments.to_string());
            (verdict(&decision), rule_names(&decision))
        };

        prop_assert_eq!(ask(&rules), ask(&turned));
    }

    #[test]
    fn adding_a_deny_never_opens_anything(case in cases(), deny in rules_of(Just(Effect::Deny)), at in any::<prop::sample::Index>()) {
        let before = named(&case.rules);
        let mut after = before.clone();
        after.insert(at.index(before.len() + 1), ("added".to_owned(), deny));
        let (before, after) = (compiled(&before), compiled(&after));
        let ask = |policy: &Policy| verdict(&decide(policy, &case.principal(), case.tool(), &case.arguments.to_string()));
        let listed = |policy: &Policy| policy.is_listed(&case.principal(), &case.upstream, Object::Tool(&case.name));

        let (was, is) = (ask(&before), ask(&after));
        prop_assert!(is == was || matches!(is, Verdict::Unlisted | Verdict::Arguments | Verdict::Scope(_)), "{:?} to {:?}", was, is);
        prop_assert!(!opens(&is) || opens(&was));
        prop_assert!(!listed(&after) || listed(&before));
    }

    #[test]
    fn what_is_not_listed_is_never_forwarded(case in cases(), others in vec(arguments(), 20)) {
        let policy = compiled(&named(&case.rules));
        let listed = policy.is_listed(&case.principal(), &case.upstream, Object::Tool(&case.name));

        for arguments in others.iter().map(ToString::to_string).chain([String::new()]) {
            let verdict = verdict(&decide(&policy, &case.principal(), case.tool(), &arguments));
            prop_assert_eq!(verdict == Verdict::Unlisted, !listed, "{}", arguments);
        }
    }

    #[test]
    fn more_scopes_asked_for_are_enough(case in cases()) {
        let policy = compiled(&named(&case.rules));
        let arguments = case.arguments.to_string();

        if let Verdict::Scope(wanted) = verdict(&decide(&policy, &case.principal(), case.tool(), &arguments)) {
            let richer = Principal { scopes: wanted.into(), ..case.principal() };
            prop_assert!(opens(&verdict(&decide(&policy, &richer, case.tool(), &arguments))));
        }
    }

    #[test]
    fn explaining_decides_alike_and_says_which_rules_match(case in cases()) {
        let rules = named(&case.rules);
        let policy = compiled(&rules);
        let arguments = case.arguments.to_string();
        let decision = decide(&policy, &case.principal(), case.tool(), &arguments);

        let explanation = policy.explain(&portcullis::policy::Request {
            principal: &case.principal(),
            upstream: &case.upstream,
            object: Object::Tool(&case.name),
            arguments: Some(node(&arguments)),
        });

        prop_assert_eq!(verdict(&explanation.decision), verdict(&decision));
        prop_assert_eq!(explanation.lines.len(), rules.len());
        for name in rule_names(&decision) {
            prop_assert!(explanation.lines.iter().any(|line| *line.rule == *name && line.is_match));
        }
    }

    #[test]
    fn stars_are_those_of_the_model(pattern in "[ab*]{1,8}", text in "[ab]{0,10}") {
        let policy = super::compiled(&format!("rules: [{{ name: r, tools: ['u/{pattern}'], allow: {{}} }}]"));

        let decision = decide(&policy, &super::alice(), ("u", &text), "");

        prop_assert_eq!(opens(&verdict(&decision)), model::wild(&pattern, &text));
    }

    #[test]
    fn numbers_are_compared_by_value_however_they_are_spelled(
        limit in -2000_i64..2000, given in -2000_i64..2000, spelling in spellings(),
    ) {
        let text = format!(r#"{{"x":{}}}"#, spelling.of(given));
        let ask = |condition: &str| {
            let policy = super::compiled(&format!(
                "rules: [{{ name: r, tools: ['u/t'], when: {{ /x: {{ {condition}: {limit} }} }}, allow: {{}} }}]"
            ));
            opens(&verdict(&decide(&policy, &super::alice(), ("u", "t"), &text)))
        };

        prop_assert_eq!(ask("equals"), given == limit, "{}", text);
        prop_assert_eq!(ask("min"), given >= limit, "{}", text);
        prop_assert_eq!(ask("max"), given <= limit, "{}", text);
    }

    #[test]
    fn text_that_is_no_json_neither_panics_nor_opens(bytes in vec(any::<u8>(), 0..200)) {
        let policy = super::compiled(
            "rules: [{ name: r, tools: ['u/t'], when: { /x/0: { min: 1, max: 2 }, /y: { matches: 'a+' } }, allow: {} }]",
        );
        let whole = portcullis::jsonrpc::Span { start: 0, end: bytes.len() };

        let decision = policy.decide(&portcullis::policy::Request {
            principal: &super::alice(),
            upstream: "u",
            object: Object::Tool("t"),
            arguments: Some(portcullis::jsonrpc::Node::of(&bytes, whole)),
        });

        prop_assert_eq!(verdict(&decision), Verdict::Arguments);
    }
}

// === Helpers ===

fn compiled(rules: &[(String, Rule)]) -> Policy {
    let written: config::Policy =
        serde_json::from_value(model::written(rules)).expect("the model writes configuration");
    Policy::compile(&written).expect("the model writes policies without problems")
}

/// Rules with the names they keep when they change places.
fn named(rules: &[Rule]) -> Vec<(String, Rule)> {
    rules.iter().enumerate().map(|(at, rule)| (format!("r{at}"), rule.clone())).collect()
}

fn opens(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Allowed { .. } | Verdict::Held)
}

fn node(text: &str) -> portcullis::jsonrpc::Node<'_> {
    let whole = portcullis::jsonrpc::Span { start: 0, end: text.len() };
    portcullis::jsonrpc::Node::of(text.as_bytes(), whole)
}

/// The rules that let a call through or hold it, without their order.
fn rule_names(decision: &portcullis::policy::Decision) -> Vec<String> {
    use portcullis::policy::Decision;
    let mut names: Vec<String> = match decision {
        Decision::Allowed(allowed) => allowed.rules().iter().map(ToString::to_string).collect(),
        Decision::Held(held) => held.rules.iter().map(ToString::to_string).collect(),
        Decision::Denied(_) => Vec::new(),
    };
    names.sort();
    names
}

// === Cases ===

#[derive(Clone, Debug)]
struct Case {
    rules: Vec<Rule>,
    asker: Asker,
    upstream: String,
    name: String,
    arguments: Value,
}

impl Case {
    fn principal(&self) -> Principal {
        let borrowed = |names: &[String]| -> Vec<String> { names.to_vec() };
        Principal {
            scopes: borrowed(&self.asker.scopes).into(),
            groups: borrowed(&self.asker.groups).into(),
            ..principal(&self.asker.user, &[], &[])
        }
    }

    fn tool(&self) -> (&str, &str) {
        (&self.upstream, &self.name)
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let effects = prop_oneof![
        3 => any::<bool>().prop_map(|reads| Effect::Allow { reads }),
        1 => Just(Effect::Deny),
        1 => Just(Effect::Hold),
    ];
    (vec(rules_of(effects), 1..6), askers(), "[uv]", "[ab]{1,2}", arguments())
        .prop_map(|(rules, asker, upstream, name, arguments)| Case { rules, asker, upstream, name, arguments })
}

fn rules_of(effects: impl Strategy<Value = Effect>) -> impl Strategy<Value = Rule> {
    let tools = vec(("[uv*]", prop_oneof![Just("*".to_owned()), "[ab*]{1,2}"]), 1..3);
    (tools, whos(), btree_map("[xy]", conditions(), 0..2), effects).prop_map(|(tools, who, when, effect)| {
        let is_allow = matches!(effect, Effect::Allow { .. });
        let when = when.into_iter().map(|(key, condition)| {
            let or_absent = condition.or_absent && !is_allow && !matches!(condition.ask, Ask::Present(_));
            (key, Condition { or_absent, ..condition })
        });
        Rule { tools, who, when: when.collect(), effect }
    })
}

fn whos() -> impl Strategy<Value = Who> {
    let users = option::weighted(0.2, names(&["alice", "bob"]));
    let groups = option::weighted(0.2, names(&["g1", "g2"]));
    let scopes = option::weighted(0.4, names(&SCOPES));
    (users, groups, scopes).prop_map(|(users, groups, scopes)| Who { users, groups, scopes })
}

fn askers() -> impl Strategy<Value = Asker> {
    let some = |names: &'static [&'static str]| {
        prop::sample::subsequence(names, 0..=names.len())
            .prop_map(|names| names.into_iter().map(str::to_owned).collect())
    };
    (prop_oneof![Just("alice"), Just("bob")], some(&["g1", "g2"]), some(&SCOPES))
        .prop_map(|(user, groups, scopes)| Asker { user: user.to_owned(), groups, scopes })
}

/// At least one of them.
fn names(all: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    prop::sample::subsequence(all, 1..=all.len()).prop_map(|names| names.into_iter().map(str::to_owned).collect())
}

fn conditions() -> impl Strategy<Value = Condition> {
    let ask = prop_oneof![
        values().prop_map(Ask::Equals),
        vec(values(), 1..3).prop_map(Ask::In),
        (-1_i64..4).prop_map(Ask::Min),
        (-1_i64..4).prop_map(Ask::Max),
        (0_u64..3).prop_map(Ask::MaxLength),
        any::<bool>().prop_map(Ask::Present),
        (texts(), any::<bool>()).prop_map(|(begin, wanted)| Ask::BeginsWith(begin, wanted)),
    ];
    (ask, any::<bool>()).prop_map(|(ask, or_absent)| Condition { ask, or_absent })
}

fn arguments() -> impl Strategy<Value = Value> {
    btree_map("[xy]", values(), 0..3).prop_map(|members| json!(members))
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => (-1_i64..4).prop_map(|n| json!(n)),
        3 => (texts(), prop_oneof![Just(""), Just("\n"), Just("p\nq")]).prop_map(|(text, end)| json!(text + end)),
        1 => any::<bool>().prop_map(|truth| json!(truth)),
        1 => Just(Value::Null),
    ];
    leaf.prop_recursive(1, 4, 2, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[kl]", inner, 0..2).prop_map(|members| json!(members)),
        ]
    })
}

fn texts() -> impl Strategy<Value = String> {
    "[pq]{0,2}"
}

/// Ways to write one number.
#[derive(Clone, Copy, Debug)]
struct Spelling {
    zeros: usize,
    shift: i32,
    plus: bool,
}

impl Spelling {
    fn of(self, n: i64) -> String {
        let fraction = if self.zeros > 0 { format!(".{}", "0".repeat(self.zeros)) } else { String::new() };
        let sign = if self.plus && self.shift >= 0 { "+" } else { "" };
        match self.shift {
            // The digits are moved up by as much as the exponent moves them down.
            shift @ ..=0 => {
                let digits = format!("{n}{}", "0".repeat(shift.unsigned_abs() as usize));
                format!("{digits}{fraction}e{sign}{shift}")
            }
            // The point is moved into the digits, by as much as the exponent moves it out.
            shift => {
                let places = shift.unsigned_abs() as usize;
                let digits = format!("{:0>width$}", n.unsigned_abs(), width = places + 1);
                let (whole, part) = digits.split_at(digits.len() - places);
                let minus = if n < 0 { "-" } else { "" };
                format!("{minus}{}.{part}{}E{sign}{shift}", whole, "0".repeat(self.zeros))
            }
        }
    }
}

fn spellings() -> impl Strategy<Value = Spelling> {
    (0_usize..4, -6..6, any::<bool>()).prop_map(|(zeros, shift, plus)| Spelling { zeros, shift, plus })
}
