//! Every problem a policy can have, by its path and words.

use crate::policy::Policy;
use crate::policy::testing::{lines, policy, written};

#[track_caller]
fn check(yaml: &str, expected: &str) {
    let problems = Policy::compile(&written(yaml)).expect_err("the policy has problems");
    assert_eq!(lines(&problems), expected.trim());
}

/// The same of one rule `r` that allows tool `u/t`, with more keys.
#[track_caller]
fn check_rule(keys: &str, expected: &str) {
    check(&format!("rules: [{{ name: r, {keys} }}]"), expected);
}

#[track_caller]
fn check_when(condition: &str, expected: &str) {
    check_rule(&format!("tools: ['u/t'], when: {{ /x: {condition} }}, deny: {{}}"), expected);
}

#[test]
fn an_empty_policy_is_refused() {
    check("rules: []", "policy.rules: there are no rules");
}

#[test]
fn names_are_there_and_unique() {
    check(
        "rules: [{ name: a, tools: ['u/t'], allow: {} }, { name: ' ', tools: ['u/t'], allow: {} }, { name: a, tools: ['u/t'], allow: {} }]",
        "policy.rules[1].name: the rule has an empty name\n\
         policy.rules[2].name: another rule, `rules[0]`, is called `a` too",
    );
}

#[test]
fn a_rule_says_exactly_one_thing_about_something() {
    check_rule("tools: ['u/t']", "policy.rules[0]: rule `r` does not say what to do");
    check_rule(
        "tools: ['u/t'], allow: {}, deny: {}",
        "policy.rules[0]: rule `r` says more than one of `allow`, `deny` and `hold`",
    );
    check_rule("allow: {}", "policy.rules[0]: rule `r` is about nothing");
}

#[test]
fn patterns_have_two_halves() {
    check_rule(
        "tools: ['*', 'u/t'], resources: ['/x'], prompts: ['u/'], allow: {}",
        "policy.rules[0].tools[0]: the pattern `*` has no `/` between the upstream and the name\n\
         policy.rules[0].resources[0]: the pattern `/x` names no upstream before its first `/`\n\
         policy.rules[0].prompts[0]: the pattern `u/` names nothing after its first `/`",
    );
}

#[test]
fn who_names_somebody() {
    check_rule("tools: ['u/t'], who: {}, allow: {}", "policy.rules[0].who: `who` names nobody");
    check_rule(
        "tools: ['u/t'], who: { users: [], groups: [''], scopes: ['a b', '', 'ü', 'a\"b', 'a\\b', 'mcp:write'] }, allow: {}",
        "policy.rules[0].who.users: `users` is an empty list, which nobody is in\n\
         policy.rules[0].who.groups[0]: `groups` has an empty name\n\
         policy.rules[0].who.scopes[0]: `a b` is not a scope\n\
         policy.rules[0].who.scopes[1]: `` is not a scope\n\
         policy.rules[0].who.scopes[2]: `ü` is not a scope\n\
         policy.rules[0].who.scopes[3]: `a\"b` is not a scope\n\
         policy.rules[0].who.scopes[4]: `a\\b` is not a scope",
    );
}

#[test]
fn pointers_are_rfc_6901() {
    check_rule(
        "tools: ['u/t'], when: { x: { equals: 1 }, /a~2: { equals: 1 }, /b~: { equals: 1 } }, allow: {}",
        "policy.rules[0].when.\"/a~2\": `/a~2` has a `~` that is neither `~0` (for `~`) nor `~1` (for `/`)\n\
         policy.rules[0].when.\"/b~\": `/b~` has a `~` that is neither `~0` (for `~`) nor `~1` (for `/`)\n\
         policy.rules[0].when.x: `x` does not begin with `/`",
    );
}

#[test]
fn conditions_ask_something_that_can_be() {
    check_when("{}", "policy.rules[0].when./x: the condition is empty");
    check_when("{ or_absent: true }", "policy.rules[0].when./x: the condition is empty");
    check_when("{ in: [] }", "policy.rules[0].when./x.in: an empty list, which no value is in");
    check_when("{ min: 5, max: 4.9 }", "policy.rules[0].when./x.min: `min` 5 is above `max` 4.9");
    check_when(
        "{ present: false, max: 1 }",
        "policy.rules[0].when./x.present: `present: false` stands beside keys that only an argument that is there can fulfil",
    );
    check_when(
        "{ min: 1, matches: a }",
        "policy.rules[0].when./x: `min` and `max` ask for a number, `matches`, `not_matches` and `max_length` for none: no value is both",
    );
    check_when(
        "{ present: true, or_absent: true }",
        "policy.rules[0].when./x.or_absent: `or_absent` and `present` say the same thing twice, or opposite things",
    );
}

#[test]
fn an_allow_never_takes_what_is_absent() {
    check_rule(
        "tools: ['u/t'], when: { /x: { equals: 1, or_absent: true } }, allow: {}",
        "policy.rules[0].when./x.or_absent: `or_absent` has no place in an allow",
    );
}

#[test]
fn a_number_that_was_rounded_is_refused() {
    check_when(
        "{ max: 0.1234567890123456 }",
        "policy.rules[0].when./x.max: `0.1234567890123456` is a number that cannot be kept exactly: at most 15 digits, or an integer of 64 bits",
    );
}

#[test]
fn regular_expressions_are_well_formed_and_small() {
    check_when("{ matches: '(' }", "policy.rules[0].when./x.matches: `(` is not a regular expression: unclosed group");
    check_when(
        "{ not_matches: 'a)|(b' }",
        "policy.rules[0].when./x.not_matches: `a)|(b` is not a regular expression: unopened group",
    );
    check_when(
        "{ matches: '(?:a{1000}){1000}' }",
        "policy.rules[0].when./x.matches: the regular expression takes more than 2097152 bytes when compiled; use smaller repetitions",
    );
}

#[test]
fn holds_are_for_tools_and_name_approvers() {
    check_rule(
        "tools: ['u/t'], resources: ['u/r'], prompts: ['u/p'], hold: { approvers: {}, signals: { bad: '[' } }",
        "policy.rules[0].resources: resources cannot be held\n\
         policy.rules[0].prompts: prompts cannot be held\n\
         policy.rules[0].hold.approvers: rule `r` names nobody who may approve\n\
         policy.rules[0].hold.signals.bad: `[` is not a regular expression: unclosed character class",
    );
}

#[test]
fn resources_have_no_arguments() {
    check_rule(
        "resources: ['u/r'], when: { /x: { present: true } }, deny: {}",
        "policy.rules[0].when: resources have no arguments that a condition could ask for",
    );
}

#[test]
fn all_problems_come_at_once() {
    let config =
        written("rules: [{ name: '', tools: ['*'] }, { name: b, tools: ['u/t'], when: { x: {} }, allow: {} }]");

    let problems = Policy::compile(&config).expect_err("the policy has problems");

    assert_eq!(problems.len(), 5, "{problems:#?}");
}

#[test]
fn unicode_classes_of_ordinary_size_fit_the_limit() {
    policy(
        r"rules: [{ name: r, tools: ['u/t'], when: { /x: { matches: '[\w.-]{1,32}@\w+\.(?:com|org)' } }, allow: {} }]",
    );
}
