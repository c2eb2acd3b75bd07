//! Attacks on a policy through names and arguments. Each comes with the allowed twin that shows the rule is alive.

use super::{Verdict, alice, compiled, decide, principal, verdict};
use portcullis::jsonrpc::{Limits, Message, Node, parse};
use portcullis::policy::{Decision, Object, Policy, Request};
use std::time::Duration;

const ALLOWED: Verdict = Verdict::Allowed { reads: false };

#[track_caller]
fn check(policy: &Policy, tool: (&str, &str), arguments: &str, expected: &Verdict) {
    let decision = decide(policy, &alice(), tool, arguments);
    assert_eq!(&verdict(&decision), expected, "{tool:?} {arguments}");
}

#[test]
fn n_02_what_no_rule_names_is_hidden() {
    let policy = compiled("rules: [{ name: r, tools: ['u/t'], who: { users: [alice] }, allow: {} }]");
    let mallory = principal("mallory", &[], &["mcp"]);

    check(&policy, ("u", "t"), "", &ALLOWED);
    check(&policy, ("u", "other"), "", &Verdict::Unlisted);
    check(&policy, ("v", "t"), "", &Verdict::Unlisted);
    assert_eq!(verdict(&decide(&policy, &mallory, ("u", "t"), "")), Verdict::Unlisted);
    assert!(!policy.is_listed(&mallory, "u", Object::Tool("t")));
}

#[test]
fn n_03_only_the_exact_bytes_are_the_name() {
    let policy = compiled("rules: [{ name: r, tools: ['u/delete_file', 'u/café'], allow: {} }]");

    check(&policy, ("u", "delete_file"), "", &ALLOWED);
    check(&policy, ("u", "caf\u{e9}"), "", &ALLOWED);
    for name in [
        "Delete_File",
        "DELETE_FILE",
        "delete_file ",
        " delete_file",
        "delete_file\n",
        "delete_file\0",
        "delete_file\u{200b}",
        "\u{feff}delete_file",
        "delete_fi1e",
        "d\u{435}lete_file",
        "\u{ff44}elete_file",
        "delete\u{ff3f}file",
        "delete%5ffile",
        "delete%5Ffile",
        "delete_file/",
        "u/delete_file",
        "./delete_file",
        "delete_fil",
        "elete_file",
        "cafe\u{301}",
        "",
    ] {
        check(&policy, ("u", name), "", &Verdict::Unlisted);
        assert!(!policy.is_listed(&alice(), "u", Object::Tool(name)), "{name:?}");
    }
    for upstream in ["U", "u ", " u", "u/", "", "\u{ff55}"] {
        check(&policy, (upstream, "delete_file"), "", &Verdict::Unlisted);
    }
}

#[test]
fn n_03_an_upstream_and_a_name_are_a_pair() {
    let policy = compiled("rules: [{ name: r, tools: ['a/b/c'], allow: {} }]");

    check(&policy, ("a", "b/c"), "", &ALLOWED);
    check(&policy, ("a/b", "c"), "", &Verdict::Unlisted);
}

#[test]
fn n_07_an_allow_takes_no_argument_that_is_missing_or_of_another_type() {
    let policy = compiled("rules: [{ name: r, tools: ['u/t'], when: { /path: { matches: '/srv/.*' } }, allow: {} }]");

    check(&policy, ("u", "t"), r#"{"path":"/srv/a"}"#, &ALLOWED);
    for arguments in [
        "",
        "{}",
        "null",
        "[]",
        r#"{"path":null}"#,
        r#"{"path":5}"#,
        r#"{"path":["/srv/a"]}"#,
        r#"{"path":{"0":"/srv/a"}}"#,
        r#"{"Path":"/srv/a"}"#,
        r#"{"path ":"/srv/a"}"#,
        r#"{"inner":{"path":"/srv/a"}}"#,
        r#"["/srv/a"]"#,
        r#"{"path":"/etc/passwd","paths":"/srv/a"}"#,
    ] {
        check(&policy, ("u", "t"), arguments, &Verdict::Arguments);
    }
}

#[test]
fn n_07_a_deny_is_not_escaped_by_another_type_nor_where_it_says_so_by_absence() {
    let policy = compiled(
        "rules: [{ name: all, tools: ['u/*'], allow: {} }, \
         { name: d, tools: ['u/t'], when: { /env: { equals: prod, or_absent: true } }, deny: {} }, \
         { name: deep, tools: ['u/deep'], when: { /options/force: { equals: true, or_absent: true } }, deny: {} }]",
    );

    check(&policy, ("u", "t"), r#"{"env":"test"}"#, &ALLOWED);
    for arguments in [
        r#"{"env":"prod"}"#,
        r#"{"env":"\u0070rod"}"#,
        r#"{"\u0065nv":"prod"}"#,
        r#"{"env":["prod"]}"#,
        r#"{"env":{"value":"prod"}}"#,
        r#"{"env":null}"#,
        r#"{"env":true}"#,
        r#"{"Env":"prod"}"#,
        "{}",
        "",
    ] {
        check(&policy, ("u", "t"), arguments, &Verdict::Arguments);
    }

    check(&policy, ("u", "deep"), r#"{"options":{"force":false}}"#, &ALLOWED);
    for arguments in [
        r#"{"options":{"force":"true"}}"#,
        r#"{"options":{"force":1}}"#,
        r#"{"options":"force"}"#,
        r#"{"options":[{"force":true}]}"#,
        r#"{"options":null}"#,
        r#"{"options":{}}"#,
        "{}",
    ] {
        check(&policy, ("u", "deep"), arguments, &Verdict::Arguments);
    }
}

#[test]
fn n_08_a_line_break_does_not_carry_a_command_past_a_deny() {
    let policy = compiled(
        r"rules: [{ name: all, tools: ['u/*'], allow: {} },
          { name: d, tools: ['u/run'], when: { /command: { matches: '.*\brm\b.*', or_absent: true } }, deny: {} },
          { name: n, tools: ['u/get'], when: { /path: { not_matches: '/srv/.*', or_absent: true } }, deny: {} }]",
    );

    check(&policy, ("u", "run"), r#"{"command":"ls"}"#, &ALLOWED);
    for command in
        [r"rm -rf /", r"\nrm -rf /", r"ls\nrm -rf /", r"ls\r\nrm x", r"rm\n", r"\u2028rm", r"\u000b rm \u0085"]
    {
        check(&policy, ("u", "run"), &format!(r#"{{"command":"{command}"}}"#), &Verdict::Arguments);
    }

    check(&policy, ("u", "get"), r#"{"path":"/srv/a\nb"}"#, &ALLOWED);
    for path in [r"\n/srv/a", r"/etc/passwd\n/srv/a", r"/srv"] {
        check(&policy, ("u", "get"), &format!(r#"{{"path":"{path}"}}"#), &Verdict::Arguments);
    }
}

#[test]
fn n_08_an_allow_is_anchored_and_does_not_reach_over_line_breaks() {
    let policy =
        compiled("rules: [{ name: r, tools: ['u/run'], when: { /command: { matches: 'ls .*|pwd' } }, allow: {} }]");

    check(&policy, ("u", "run"), r#"{"command":"ls -l"}"#, &ALLOWED);
    check(&policy, ("u", "run"), r#"{"command":"pwd"}"#, &ALLOWED);
    for command in [r"ls -l\nrm -rf /", r"rm -rf /\nls -l", r"pwd\n", r"pwd; rm -rf /", r"x; ls -l", r"LS -l"] {
        check(&policy, ("u", "run"), &format!(r#"{{"command":"{command}"}}"#), &Verdict::Arguments);
    }
}

#[test]
fn n_08_a_megabyte_against_a_catastrophic_pattern_is_linear() {
    let policy = compiled(
        "rules: [{ name: all, tools: ['u/*'], allow: {} }, \
         { name: d, tools: ['u/t'], when: { /x: { matches: '(?:(?:a+)+|(?:a|aa)*)b' } }, deny: {} }]",
    );
    let arguments = format!(r#"{{"x":"{}"}}"#, "a".repeat(1 << 20));

    let start = tokio::time::Instant::now();
    check(&policy, ("u", "t"), &arguments, &ALLOWED);

    // About 5 ms optimised; the bound is for an unoptimised build on a busy machine. Backtracking would take for ever.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn n_09_limits_compare_decimals_exactly() {
    let policy = compiled("rules: [{ name: r, tools: ['u/pay'], when: { /amount: { min: 0, max: 100 } }, allow: {} }]");

    for amount in ["100", "1e2", "100.0", "1.00E+2", "0", "-0", "99.9999999999999999999", "1e-999999999"] {
        check(&policy, ("u", "pay"), &format!(r#"{{"amount":{amount}}}"#), &ALLOWED);
    }
    for amount in [
        r#""100""#,
        "100.0000000000000001",
        "-1",
        "-1e-999999999",
        "9007199254740993",
        "1e999999999",
        "1e99999999999999999999999999999",
        "null",
        "[100]",
        r#"{"value":100}"#,
        "true",
    ] {
        check(&policy, ("u", "pay"), &format!(r#"{{"amount":{amount}}}"#), &Verdict::Arguments);
    }
}

#[test]
fn n_09_large_integers_are_told_apart() {
    let policy =
        compiled("rules: [{ name: r, tools: ['u/t'], when: { /id: { equals: 9007199254740993 } }, allow: {} }]");

    check(&policy, ("u", "t"), r#"{"id":9007199254740993}"#, &ALLOWED);
    check(&policy, ("u", "t"), r#"{"id":9007199254740993.0}"#, &ALLOWED);
    check(&policy, ("u", "t"), r#"{"id":9007199254740992}"#, &Verdict::Arguments);
    check(&policy, ("u", "t"), r#"{"id":9007199254740993.1}"#, &Verdict::Arguments);
}

#[test]
fn n_10_deny_beats_hold_beats_allow_in_every_order() {
    let rules = [
        "{ name: a, tools: ['u/*'], allow: { reads: true } }",
        "{ name: h, tools: ['u/h*'], hold: { approvers: { users: [bob] } } }",
        "{ name: d, tools: ['u/hd'], when: { /x: { equals: 1 } }, deny: {} }",
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let policy = compiled(&format!("rules: [{}]", order.map(|at| rules[at]).join(", ")));

        check(&policy, ("u", "a"), "", &Verdict::Allowed { reads: true });
        check(&policy, ("u", "hd"), r#"{"x":2}"#, &Verdict::Held);
        check(&policy, ("u", "hd"), r#"{"x":1}"#, &Verdict::Arguments);
    }
}

/// There is no error for a decision to fail with: what cannot be read is what no allow takes and every deny does.
#[test]
fn n_11_what_cannot_be_read_is_denied() {
    let allow = compiled("rules: [{ name: r, tools: ['u/t'], when: { /x: { equals: 1 } }, allow: {} }]");
    let deny = compiled(
        "rules: [{ name: all, tools: ['u/t'], allow: {} }, \
         { name: d, tools: ['u/t'], when: { /x: { equals: 1, or_absent: true } }, deny: {} }]",
    );

    check(&allow, ("u", "t"), r#"{"x":1}"#, &ALLOWED);
    check(&deny, ("u", "t"), r#"{"x":2}"#, &ALLOWED);
    for arguments in ["{", r#"{"x"#, r#"{"x":"#, "}", "\\", r#"{"x":}"#, r#"{"x":"1}"#, "nul", "5"] {
        check(&allow, ("u", "t"), arguments, &Verdict::Arguments);
        check(&deny, ("u", "t"), arguments, &Verdict::Arguments);
    }
}

#[test]
fn arguments_are_judged_where_they_stand_in_the_message() {
    let policy = compiled("rules: [{ name: r, tools: ['u/t'], when: { /n: { max: 5 } }, allow: {} }]");
    let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","n":1,"arguments":{ "n" : 6 }}}"#;
    let Ok(Message::Request(message)) = parse(body, Limits { depth: 64, nodes: 1000 }) else { panic!() };
    let span = message.params.and_then(|params| params.get("arguments")).expect("there are arguments");

    let decision = policy.decide(&Request {
        principal: &alice(),
        upstream: "u",
        object: Object::Tool("t"),
        arguments: Some(Node::of(body, span)),
    });

    assert!(matches!(decision, Decision::Denied(_)));
}
