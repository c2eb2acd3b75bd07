//! Decisions: effects, principals, scopes, lists.

use super::testing::{decide, policy, request, user, with_scopes, word};
use super::{Decision, Object, Policy, Why};
use crate::identity::{Principal, Subject};

#[track_caller]
fn check(policy: &Policy, principal: &Principal, tool: &str, arguments: &str, expected: &str) {
    assert_eq!(word(&decide(policy, principal, tool, arguments)), expected, "{tool} {arguments}");
}

#[track_caller]
fn denied(decision: Decision) -> super::Denied {
    match decision {
        Decision::Denied(denied) => denied,
        other => panic!("expected a denial, got {other}"),
    }
}

// === Effects ===

#[test]
fn deny_beats_hold_beats_allow() {
    let policy = policy(
        "rules: [{ name: all, tools: ['u/*'], allow: {} }, \
         { name: look, tools: ['u/h*'], hold: { approvers: { groups: [admins] } } }, \
         { name: never, tools: ['u/hd'], deny: {} }]",
    );
    let alice = user("alice", &[]);

    check(&policy, &alice, "u/a", "", "allowed");
    check(&policy, &alice, "u/h", "", "held");
    check(&policy, &alice, "u/hd", "", "unlisted");
    check(&policy, &alice, "v/a", "", "unlisted");
}

#[test]
fn kinds_of_objects_do_not_mix() {
    let policy = policy("rules: [{ name: r, tools: ['u/x'], allow: {} }]");
    let alice = user("alice", &[]);

    for object in [Object::Resource("x"), Object::Prompt("x")] {
        assert_eq!(word(&policy.decide(&request(&alice, "u", object, ""))), "unlisted");
    }
}

#[test]
fn an_allowed_call_carries_its_rules_and_whether_it_reads() {
    let policy = policy(
        "rules: [{ name: all, tools: ['u/*'], allow: {} }, { name: reads, tools: ['u/get_*'], allow: { reads: true } }]",
    );
    let alice = user("alice", &[]);

    let Decision::Allowed(read) = decide(&policy, &alice, "u/get_x", "") else { panic!() };
    let Decision::Allowed(write) = decide(&policy, &alice, "u/set_x", "") else { panic!() };

    assert_eq!(read.rules().iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["all", "reads"]);
    assert!(read.reads());
    assert!(!write.reads());
}

#[test]
fn holds_merge_and_the_requester_may_approve_only_if_all_say_so() {
    let policy = policy(
        r"rules:
          - { name: one, tools: ['u/*'], hold: { approvers: { groups: [admins] }, self: true, signals: { rm: '\brm\b' } } }
          - { name: two, tools: ['u/x'], hold: { approvers: { users: [bob] }, self: false, signals: { rm: '\brm\b', curl: curl } } }
          - { name: all, tools: ['u/*'], allow: {} }",
    );
    let alice = user("alice", &[]);

    let Decision::Held(one) = decide(&policy, &alice, "u/y", "") else { panic!() };
    let Decision::Held(both) = decide(&policy, &alice, "u/x", "") else { panic!() };

    assert!(one.hold.by_requester);
    assert!(!both.hold.by_requester);
    assert_eq!(both.rules.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["one", "two"]);
    assert_eq!(both.hold.approvers.len(), 2);
    assert_eq!(both.hold.signals.len(), 2);
}

// === Refusals ===

#[test]
fn a_refusal_gives_the_first_reason_and_names_the_first_deny() {
    let policy = policy(
        "rules: [{ name: all, tools: ['u/*'], allow: {} }, \
         { name: d1, tools: ['u/*'], when: { /a: { equals: 1 } }, deny: {} }, \
         { name: d2, tools: ['u/*'], when: { /a: { equals: 1 } }, deny: { reason: not on a Friday } }, \
         { name: d3, tools: ['u/*'], when: { /a: { equals: 1 } }, deny: { reason: never } }]",
    );

    let denied = denied(decide(&policy, &user("alice", &[]), "u/t", r#"{"a":1}"#));

    assert_eq!(denied.rule.as_deref(), Some("d1"));
    assert_eq!(denied.why, Why::Arguments { reason: "not on a Friday".to_owned() });
}

#[test]
fn arguments_that_no_rule_takes_are_said_to_be_the_reason() {
    let policy = policy("rules: [{ name: a, tools: ['u/t'], when: { /a: { equals: 1 } }, allow: {} }]");

    let denied = denied(decide(&policy, &user("alice", &[]), "u/t", r#"{"a":2}"#));

    assert_eq!(denied.rule, None);
    assert_eq!(denied.why, Why::Arguments { reason: super::NOT_ALLOWED.to_owned() });
}

#[test]
fn a_deny_without_conditions_hides() {
    let policy = policy(
        "rules: [{ name: all, tools: ['u/*'], allow: {} }, { name: d, tools: ['u/t'], deny: { reason: secret } }]",
    );

    let denied = denied(decide(&policy, &user("alice", &[]), "u/t", r#"{"a":2}"#));

    assert_eq!(denied.rule.as_deref(), Some("d"));
    assert_eq!(denied.why, Why::Unlisted);
}

// === Who ===

#[test]
fn every_key_of_who_must_match_and_one_entry_of_it_is_enough() {
    let policy = policy(
        "rules: [{ name: r, tools: ['u/t'], who: { users: [alice, bob], groups: [ops, admins], clients: [cli] }, allow: {} }]",
    );
    let other_client = Principal { client: "other".into(), ..user("alice", &["ops"]) };

    check(&policy, &user("alice", &["x", "admins"]), "u/t", "", "allowed");
    check(&policy, &user("bob", &["ops"]), "u/t", "", "allowed");
    check(&policy, &user("carol", &["ops"]), "u/t", "", "unlisted");
    check(&policy, &user("alice", &["x"]), "u/t", "", "unlisted");
    check(&policy, &user("Alice", &["ops"]), "u/t", "", "unlisted");
    check(&policy, &other_client, "u/t", "", "unlisted");
}

#[test]
fn a_client_is_never_taken_for_a_user_of_its_name() {
    let policy = policy("rules: [{ name: r, tools: ['u/t'], who: { users: [alice] }, allow: {} }]");
    let client = Principal { subject: Subject::Client("alice".into()), person: None, ..user("alice", &[]) };

    check(&policy, &client, "u/t", "", "unlisted");
}

#[test]
fn external_principals_are_let_in_by_group_only_and_kept_out_by_any_deny() {
    let policy = policy(
        "rules: [{ name: everybody, tools: ['u/a'], allow: {} }, \
         { name: alice, tools: ['u/b'], who: { users: [alice] }, allow: {} }, \
         { name: client, tools: ['u/c'], who: { clients: [cli] }, allow: {} }, \
         { name: scope, tools: ['u/d'], who: { scopes: [mcp] }, allow: {} }, \
         { name: ops, tools: ['u/e', 'u/f'], who: { groups: [ops] }, allow: {} }, \
         { name: not f, tools: ['u/f'], deny: {} }]",
    );
    let external = Principal { is_local: false, person: None, ..user("alice", &["ops"]) };

    for hidden in ["u/a", "u/b", "u/c", "u/d", "u/f"] {
        check(&policy, &external, hidden, "", "unlisted");
    }
    check(&policy, &external, "u/e", "", "allowed");
}

#[test]
fn an_external_principal_who_is_a_person_of_this_gateway_is_that_person_with_another_client() {
    let policy = policy(
        "rules: [{ name: everybody, tools: ['u/a'], allow: {} }, \
         { name: alice, tools: ['u/b'], who: { users: [alice] }, allow: {} }, \
         { name: client, tools: ['u/c'], who: { clients: [cli] }, allow: {} }]",
    );
    let known = Principal { subject: Subject::User("00u1".into()), is_local: false, ..user("alice", &[]) };

    check(&policy, &known, "u/a", "", "allowed");
    check(&policy, &known, "u/b", "", "allowed");
    check(&policy, &known, "u/c", "", "unlisted");
    check(&policy, &Principal { person: None, ..known }, "u/b", "", "unlisted");
}

// === Scopes ===

#[test]
fn a_call_that_only_lacks_a_scope_is_told_which_and_is_listed() {
    let policy = policy("rules: [{ name: w, tools: ['u/t'], who: { scopes: [mcp, write] }, allow: {} }]");
    let alice = user("alice", &[]);

    let denied = denied(decide(&policy, &alice, "u/t", ""));

    assert_eq!(denied.rule.as_deref(), Some("w"));
    assert_eq!(denied.why, Why::Scope { wanted: vec!["mcp".to_owned(), "write".to_owned()] });
    assert!(policy.is_listed(&alice, "u", Object::Tool("t")));
    check(&policy, &with_scopes(alice, &["mcp", "write"]), "u/t", "", "allowed");
}

#[test]
fn the_fewest_scopes_are_asked_for_whatever_the_order_of_rules() {
    let rules = [
        "{ name: two, tools: ['u/t'], who: { scopes: [a, b] }, allow: {} }",
        "{ name: z, tools: ['u/t'], who: { scopes: [z] }, allow: {} }",
        "{ name: y, tools: ['u/t'], who: { scopes: [y, mcp] }, hold: { approvers: { users: [bob] } } }",
    ];
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let policy = policy(&format!("rules: [{}]", order.map(|at| rules[at]).join(", ")));

        let denied = denied(decide(&policy, &user("alice", &[]), "u/t", ""));

        assert_eq!(denied.why, Why::Scope { wanted: vec!["mcp".to_owned(), "y".to_owned()] });
    }
}

#[test]
fn a_scope_that_would_bring_a_deny_into_play_is_not_asked_for() {
    let only_way = "{ name: a, tools: ['u/t'], who: { scopes: [write] }, allow: {} }";
    let deny = "{ name: d, tools: ['u/t'], who: { scopes: [write] }, deny: {} }";
    let other_way = "{ name: b, tools: ['u/t'], who: { scopes: [x, y] }, allow: {} }";
    let alice = user("alice", &[]);

    let dead_end = policy(&format!("rules: [{only_way}, {deny}]"));
    let detour = policy(&format!("rules: [{only_way}, {deny}, {other_way}]"));

    check(&dead_end, &alice, "u/t", "", "unlisted");
    let denied = denied(decide(&detour, &alice, "u/t", ""));
    let wanted = ["mcp", "x", "y"].map(str::to_owned).to_vec();
    assert_eq!(denied.why, Why::Scope { wanted });
}

#[test]
fn a_deny_with_scopes_is_for_tokens_that_carry_them() {
    let policy = policy(
        "rules: [{ name: a, tools: ['u/t'], allow: {} }, { name: d, tools: ['u/t'], who: { scopes: [ci] }, deny: {} }]",
    );
    let alice = user("alice", &[]);

    check(&policy, &alice, "u/t", "", "allowed");
    check(&policy, &with_scopes(alice, &["mcp", "ci"]), "u/t", "", "unlisted");
}

#[test]
fn wrong_arguments_are_not_said_to_be_a_matter_of_scope() {
    let policy = policy(
        "rules: [{ name: a, tools: ['u/t'], who: { scopes: [write] }, when: { /x: { equals: 1 } }, allow: {} }]",
    );
    let alice = user("alice", &[]);

    check(&policy, &alice, "u/t", r#"{"x":1}"#, "scope");
    check(&policy, &alice, "u/t", r#"{"x":2}"#, "arguments");
}

// === Lists ===

#[test]
fn an_upstream_may_have_held_calls_where_a_hold_names_it() {
    let policy = policy(
        "rules:
          - { name: a, tools: [\"a/*\"], allow: {} }
          - { name: b, tools: [\"b*/deploy\"], hold: { approvers: { groups: [admins] } } }",
    );

    let may_hold = ["a", "b", "b2", "c"].map(|upstream| policy.may_hold(upstream));

    assert_eq!(may_hold, [false, true, true, false]);
}

#[test]
fn a_tool_is_listed_when_some_arguments_could_open_it() {
    let policy = policy(
        "rules: [{ name: some, tools: ['u/some'], when: { /x: { equals: 1 } }, allow: {} }, \
         { name: held, tools: ['u/held'], hold: { approvers: { users: [bob] } } }, \
         { name: all, tools: ['u/less', 'u/none'], allow: {} }, \
         { name: less, tools: ['u/less'], when: { /x: { equals: 1 } }, deny: {} }, \
         { name: none, tools: ['u/none'], deny: {} }, \
         { name: others, tools: ['u/others'], who: { users: [bob] }, allow: {} }]",
    );
    let alice = user("alice", &[]);

    for (name, expected) in
        [("some", true), ("held", true), ("less", true), ("none", false), ("others", false), ("unknown", false)]
    {
        assert_eq!(policy.is_listed(&alice, "u", Object::Tool(name)), expected, "{name}");
    }
}

#[test]
fn rules_with_a_star_for_the_upstream_join_those_that_name_it() {
    let policy = policy(
        "rules: [{ name: named, tools: ['u/*'], allow: {} }, { name: everywhere, tools: ['*/danger'], deny: {} }, \
         { name: status, tools: ['*/status'], allow: {} }]",
    );
    let alice = user("alice", &[]);

    check(&policy, &alice, "u/x", "", "allowed");
    check(&policy, &alice, "u/danger", "", "unlisted");
    check(&policy, &alice, "v/status", "", "allowed");
    check(&policy, &alice, "v/x", "", "unlisted");
}
