//! Files that are not YAML, or not of the form of `gateway.yaml`.

use super::{FULL, check, printed};
use crate::config::load;
use std::path::Path;

/// One mistake of every kind of form.
const MISTAKES: &str = r#"
listne: 127.0.0.1:8080
metrics: { listen: 9091 }
identity:
  users:
    - { name: 7 }
upstreams:
  github:
    htp: { url: https://api.example.com/mcp }
  files:
    http: { urll: http://files/mcp, timeouts: { connect: 5, answer: 2x } }
policy:
  rules:
    - { name: a, tools: github/*, allow: {} }
    - name: b
      who:
      deny: nope
  tests:
    - { user: alice, expect: alow }
limits: { depth: -1, nodes: 5000000000, tokens: 1.5, body: 4MB }
audit: { sync: never }
"#;

const MISTAKES_SAID: &str = r#"
error: unknown key `listne` (gateway.yaml:2:1)
  2 | listne: 127.0.0.1:8080
    | ^^^^^^
hint: did you mean `listen`?

error: expected a text, found the number `9091` (gateway.yaml:3:20)
  3 | metrics: { listen: 9091 }
    |                    ^^^^
hint: put it in quotes

error: key `password_hash` is missing (gateway.yaml:6:9)
  6 |     - { name: 7 }
    |         ^^^^

error: expected a text, found the number `7` (gateway.yaml:6:15)
  6 |     - { name: 7 }
    |               ^
hint: put it in quotes

error: unknown key `htp` (gateway.yaml:9:5)
  9 |     htp: { url: https://api.example.com/mcp }
    |     ^^^
hint: did you mean `http`?

error: unknown key `urll` (gateway.yaml:11:13)
  11 |     http: { urll: http://files/mcp, timeouts: { connect: 5, answer: 2x } }
     |             ^^^^
hint: did you mean `url`?

error: `5` has no unit (gateway.yaml:11:58)
  11 |     http: { urll: http://files/mcp, timeouts: { connect: 5, answer: 2x } }
     |                                                          ^
hint: write a whole number with its unit, like `30s`; the units are `ms`, `s`, `m`, `h`, `d`

error: `2x` is not a length of time (gateway.yaml:11:69)
  11 |     http: { urll: http://files/mcp, timeouts: { connect: 5, answer: 2x } }
     |                                                                     ^^
hint: write a whole number with its unit, like `30s`; the units are `ms`, `s`, `m`, `h`, `d`

error: expected a list, found the text `github/*` (gateway.yaml:14:25)
  14 |     - { name: a, tools: github/*, allow: {} }
     |                         ^^^^^^^^

error: nothing is written here, expected a mapping (gateway.yaml:16:7)
  16 |       who:
     |       ^^^
hint: write a value, or remove the key

error: expected a mapping, found the text `nope` (gateway.yaml:17:13)
  17 |       deny: nope
     |             ^^^^

error: unknown word `alow` (gateway.yaml:19:30)
  19 |     - { user: alice, expect: alow }
     |                              ^^^^
hint: did you mean `allow`?

error: `-1` is too small (gateway.yaml:20:18)
  20 | limits: { depth: -1, nodes: 5000000000, tokens: 1.5, body: 4MB }
     |                  ^^

error: `5000000000` is too large (gateway.yaml:20:29)
  20 | limits: { depth: -1, nodes: 5000000000, tokens: 1.5, body: 4MB }
     |                             ^^^^^^^^^^

error: `1.5` is not a whole number (gateway.yaml:20:49)
  20 | limits: { depth: -1, nodes: 5000000000, tokens: 1.5, body: 4MB }
     |                                                 ^^^

error: `4MB` is not a size (gateway.yaml:20:60)
  20 | limits: { depth: -1, nodes: 5000000000, tokens: 1.5, body: 4MB }
     |                                                            ^^^
hint: write a whole number with its unit, like `4MiB`; the units are `B`, `KiB`, `MiB`, `GiB`

error: unknown word `never` (gateway.yaml:21:16)
  21 | audit: { sync: never }
     |                ^^^^^
hint: one of `strict`, `relaxed`
"#;

/// Texts that are not the YAML we read, and what is said of them.
const NOT_YAML: &[(&str, &str)] = &[
    (
        "listen: 127.0.0.1:8080\nupstreams: { github: { http: { url: x } }\npolicy: {}\n",
        r#"
error: not YAML: while parsing a flow mapping, did not find expected ',' or '}' (gateway.yaml:3:1)
  3 | policy: {}
    | ^
"#,
    ),
    (
        "a: 1\nb: &x [*x, !!str 1]\na: yes\n",
        r#"
error: YAML anchors are not read (gateway.yaml:2:7)
  2 | b: &x [*x, !!str 1]
    |       ^
hint: write the value out where it is meant

error: YAML aliases are not read (gateway.yaml:2:8)
  2 | b: &x [*x, !!str 1]
    |        ^^
hint: put a pattern that begins with `*` in quotes

error: YAML tags are not read (gateway.yaml:2:12)
  2 | b: &x [*x, !!str 1]
    |            ^^^^^
hint: remove it, or put a text that begins with `!` in quotes

error: key `a` stands twice (gateway.yaml:3:1)
  3 | a: yes
    | ^
hint: keep one of the two

error: `yes` is read differently by different versions of YAML (gateway.yaml:3:4)
  3 | a: yes
    |    ^^^
hint: put it in quotes if it is a text; else write `true`, `false` or a plain decimal number
"#,
    ),
    (
        "",
        r#"
error: the file is empty (gateway.yaml:1:1)
hint: the smallest file names one upstream and one rule; see docs/configuration.md
"#,
    ),
    (
        "# nothing\n",
        r#"
error: the file is empty (gateway.yaml:1:1)
  1 | # nothing
    | ^
hint: the smallest file names one upstream and one rule; see docs/configuration.md
"#,
    ),
    (
        "- a\n",
        r#"
error: expected a mapping, found a list (gateway.yaml:1:1)
  1 | - a
    | ^^^
"#,
    ),
    (
        "upstreams: {}\npolicy: { rules: [] }\n",
        r#"
error: at least one is needed here (gateway.yaml:1:1)
  1 | upstreams: {}
    | ^^^^^^^^^

error: at least one is needed here (gateway.yaml:2:11)
  2 | policy: { rules: [] }
    |           ^^^^^
"#,
    ),
    (
        "a: 1\n---\nb: 2\n",
        r#"
error: a second document begins here (gateway.yaml:2:1)
  2 | ---
    | ^^^
hint: remove the `---` and what follows it: a configuration is one YAML document
"#,
    ),
    (
        "a: \"x\n",
        r#"
error: not YAML: unclosed quote (gateway.yaml:1:4)
  1 | a: "x
    |    ^
"#,
    ),
    (
        "a:\tb\n  c: d\n",
        r#"
error: not YAML: mapping values are not allowed in this context (gateway.yaml:2:4)
  2 |   c: d
    |    ^
"#,
    ),
    (
        "%YAML 1.1\n---\na: b\n",
        r#"
error: not YAML: YAML directives are disallowed (gateway.yaml:1:1)
  1 | %YAML 1.1
    | ^
"#,
    ),
];

#[test]
fn a_full_file_is_good() {
    check(FULL, "");
    let loaded = load(FULL, "etc/gateway.yaml").expect("good");

    assert_eq!(loaded.config.upstreams.len(), 2);
    assert_eq!(loaded.config.policy.rules[1].when["/command"].equals, Some(serde_json::Value::Null));
    assert_eq!(loaded.resolve(Path::new("keys/a")), Path::new("etc/keys/a"));
    assert_eq!(loaded.resolve(Path::new("/keys/a")), Path::new("/keys/a"));
}

#[test]
fn all_mistakes_of_form_are_reported_at_once() {
    check(MISTAKES, MISTAKES_SAID);
}

#[test]
fn a_mistake_in_yaml_is_shown_where_it_is() {
    for (text, expected) in NOT_YAML {
        check(text, expected);
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let text = FULL
        .replace("token: { env: METRICS_TOKEN }", "token: s3cret, oops: 1")
        .replace("{ env: GITHUB_AUTH }", "Bearer s3cret, Cookie: [s3cret], X-Auth: 1.5");

    let printed = printed(&text);

    assert!(printed.contains("unknown key `oops`"), "{printed}");
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(!printed.contains("1.5"), "{printed}");
}

#[test]
fn a_secret_in_a_url_is_not_repeated() {
    for url in ["https://me:s3cret@a.example", "ftp://me:s3cret@a.example", "https://a.example/?token=s3cret"] {
        let printed = printed(&FULL.replace("https://api.example.com/mcp?toolset=all", url));

        assert!(printed.contains("      url: *****"), "{printed}");
        assert!(!printed.contains("s3cret"), "{printed}");
    }
}
