//! Whole files in, what people read out.

use super::{Known, Upstream, load, read};
use proptest::prelude::*;
use std::path::Path;

/// Every section and nearly every key.
const FULL: &str = r#"
public_url: https://mcp.example.com
listen: 0.0.0.0:8443
tls: { cert: tls/cert.pem, key: tls/key.pem }
behind_proxy: { from: [10.0.0.0/8, "::1"] }
hosts: [mcp.internal:8443]
origins: ["https://inspector.example.com"]
metrics: { listen: 0.0.0.0:9091, token: { env: METRICS_TOKEN } }
data_dir: data
identity:
  users:
    - name: alice
      password_hash: "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI"
      groups: [admins, ops]
upstreams:
  github:
    http:
      url: https://api.example.com/mcp?toolset=all
      headers: { Authorization: { env: GITHUB_AUTH }, X-Api-Key: { file: keys/api }, X-Team: ops }
      tls: { ca: ca.pem, cert: c.pem, key: k.pem, server_name: api.example.com }
      timeouts: { connect: 500ms, answer: 2m, idle: 5m, total: 1h }
  files:
    http: { url: "http://files/mcp", socket: run/files.sock }
policy:
  rules:
    - { name: read, tools: ["files/*", "git*/get_*"], who: { groups: [ops] }, allow: { reads: true } }
    - name: looked at
      resources: ["files/file:///*"]
      when: { /command: { matches: '.*\brm\b.*', not_matches: 'a', equals: null, in: [1, a], min: 1, max: 2.5, present: true, max_length: 3, or_absent: true } }
      hold: { approvers: { users: [alice] }, self: true, signals: { "recursive delete": '\brm\s+-\w*r' } }
    - { name: never, prompts: ["github/*"], deny: { reason: not here } }
  tests:
    - { tool: files/read, user: alice, groups: [ops], client: c, scopes: [mcp], arguments: { n: 1 }, expect: allow }
limits: { body: 1MiB, depth: 32, nodes: 1000, answer: 512KiB, tokens: 10 }
timeouts: { head: 1s, body: 1s, write: 1s, keep_alive: 1s, drain: 0s }
audit: { sync: relaxed }
"#;

/// A good file around the part a test is about. `{}` is where it goes.
const AROUND: &str = "\
upstreams:
  github: { http: { url: https://api.example.com/mcp } }
policy:
  rules: [{ name: r, tools: [github/*], allow: {} }]
";

/// What `portcullis check` prints for it.
fn printed(text: &str) -> String {
    match load(text, "gateway.yaml") {
        Ok(loaded) => loaded.check(Known::default()).to_string(),
        Err(problems) => problems.to_string(),
    }
}

/// The first lines of what it prints: the messages without snippets and hints.
fn messages(text: &str) -> Vec<String> {
    printed(text)
        .lines()
        .filter(|line| line.starts_with("error: ") || line.starts_with("warning: "))
        .map(str::to_owned)
        .collect()
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let printed = printed(text);
    assert_eq!(printed, expected.trim_matches('\n'), "\n{printed}\n");
}

/// A good file with `part` in front.
#[track_caller]
fn says(part: &str, expected: &str) {
    assert_eq!(messages(&format!("{part}\n{AROUND}")), [expected], "{part}");
}

/// A good file whose one upstream is this.
#[track_caller]
fn upstream_says(upstream: &str, expected: &str) {
    let text = AROUND.replace("{ url: https://api.example.com/mcp }", upstream);
    assert_eq!(messages(&text), [expected], "{upstream}");
}

// === Form ===

#[test]
fn a_full_file_is_good() {
    check(FULL, "");
    let loaded = load(FULL, "etc/gateway.yaml").expect("good");

    assert_eq!(loaded.config.upstreams.len(), 2);
    assert_eq!(
        loaded.config.policy.rules[1].when["/command"].equals,
        Some(serde_json::Value::Null)
    );
    assert_eq!(loaded.resolve(Path::new("keys/a")), Path::new("etc/keys/a"));
    assert_eq!(loaded.resolve(Path::new("/keys/a")), Path::new("/keys/a"));
}

#[test]
fn all_mistakes_of_form_are_reported_at_once() {
    check(
        r#"
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
"#,
        r#"
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
"#,
    );
}

#[test]
fn a_mistake_in_yaml_is_shown_where_it_is() {
    for (text, expected) in [
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
    ] {
        check(text, expected);
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let text = FULL
        .replace("token: { env: METRICS_TOKEN }", "token: s3cret, oops: 1")
        .replace(
            "{ env: GITHUB_AUTH }",
            "Bearer s3cret, Cookie: [s3cret], X-Auth: 1.5",
        )
        .replace(
            "https://api.example.com/mcp?toolset=all",
            "https://me:s3cret@api.example.com/mcp",
        );

    let printed = printed(&text);

    assert!(printed.contains("unknown key `oops`"), "{printed}");
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(!printed.contains("1.5"), "{printed}");
    assert!(!self::printed(&text.replace("oops: 1", "")).contains("s3cret"));
}

// === Files ===

#[test]
fn a_file_cut_anywhere_is_good_or_says_where_it_is_not() {
    for end in (0..FULL.len()).filter(|end| FULL.is_char_boundary(*end)) {
        let text = &FULL[..end];
        if let Err(problems) = load(text, "gateway.yaml") {
            for problem in &problems {
                assert!(problem.location.is_some(), "{end}: {problem}");
                assert!(
                    !problem.path.is_root()
                        || problem.location.as_ref().is_some_and(|at| at.line > 0),
                    "{end}: {problem}"
                );
            }
        }
    }
}

#[test]
fn a_file_that_is_no_text_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway.yaml");
    let large = format!("a: {}\n", "x".repeat(1024 * 1024));

    for (bytes, expected) in [
        (&b"a: 1\nb: \xff\n"[..], "not UTF-8 text from here on"),
        (
            b"\x7fELF\x02\x01\x01\0\0\0",
            "not YAML: unexpected character: `\\u{7f}'",
        ),
        (b"a: \0b\n", "not YAML: unexpected character: `\\u{0}'"),
        (large.as_bytes(), "`FILE` is larger than 1048576 bytes"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let problems = read(&path).expect_err("refused");
        let first = problems.iter().next().expect("a problem");
        assert_eq!(
            first.message.replace(&path.display().to_string(), "FILE"),
            expected
        );
    }
}

#[test]
fn what_is_not_a_file_is_refused_at_once() {
    for (path, expected) in [
        (
            "/dev/zero",
            "error: `/dev/zero` is a pipe, socket or device, not a file",
        ),
        ("/tmp", "error: `/tmp` is a directory, not a file"),
        (
            "/nowhere",
            "error: `/nowhere` cannot be read: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(
            read(Path::new(path)).expect_err("refused").to_string(),
            expected
        );
    }
}

#[test]
fn line_ends_and_a_byte_order_mark_make_no_difference() {
    let plain = load(FULL, "g.yaml").expect("good");

    for text in [FULL.replace('\n', "\r\n"), format!("\u{feff}{FULL}")] {
        let loaded = load(&text, "g.yaml").expect("good");
        assert_eq!(
            format!("{:?}", loaded.config),
            format!("{:?}", plain.config)
        );
        assert_ne!(loaded.hash, plain.hash);
    }
    assert_eq!(plain.hash, load(FULL, "h.yaml").expect("good").hash);
    check(
        "\u{feff}listn: a\r\nupstreams: 1\r\npolicy: 2\r\n",
        r#"
error: unknown key `listn` (gateway.yaml:1:1)
  1 | listn: a
    | ^^^^^
hint: did you mean `listen`?

error: expected a mapping, found the number `1` (gateway.yaml:2:12)
  2 | upstreams: 1
    |            ^

error: expected a mapping, found the number `2` (gateway.yaml:3:9)
  3 | policy: 2
    |         ^
"#,
    );
}

#[test]
fn an_alias_bomb_is_refused_before_it_grows() {
    let mut text = "a0: &a0 [x, x]\n".to_owned();
    for n in 1..40 {
        let below = n - 1;
        text.push_str(&format!("a{n}: &a{n} [*a{below}, *a{below}]\n"));
    }

    let messages = messages(&text);

    assert!(messages.len() <= 102, "{}", messages.len());
    assert!(messages[0].starts_with("error: YAML anchors are not read"));
}

#[test]
fn a_file_of_mistakes_is_not_listed_to_the_end() {
    let text: String = (0..20_000).map(|n| format!("k{n}: 1\n")).collect();

    assert!(messages(&text).len() <= 102);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// What the schema lets through, serde builds: the one is as strict as the other.
    #[test]
    fn no_edit_of_a_good_file_passes_the_schema_and_fails_to_build(
        cuts in prop::collection::vec((0..FULL.len(), 0_usize..12, "[a-z0-9:{}\\[\\], \n\"'*-]{0,4}"), 1..3)
    ) {
        let mut text = FULL.to_owned();
        for (at, len, put) in cuts {
            let at = at.min(text.len());
            let end = (at + len).min(text.len());
            if text.is_char_boundary(at) && text.is_char_boundary(end) {
                text.replace_range(at..end, &put);
            }
        }
        match load(&text, "gateway.yaml") {
            Ok(loaded) => drop(loaded.check(Known::default()).to_string()),
            Err(problems) => for problem in &problems {
                let place = problem.location.as_ref().expect("a place");
                prop_assert!(place.line > 0 || problem.message.starts_with("section"), "{problem}\n{text}");
            },
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in "\\PC{0,200}") {
        super::fuzz_load(text.as_bytes());
    }
}

// === Sense ===

#[test]
fn listeners_that_are_left_open_are_refused() {
    for (part, expected) in [
        (
            "listen: localhost:80",
            "error: `localhost:80` is no address to listen on (gateway.yaml:1:9)",
        ),
        (
            "listen: 0.0.0.0:8080\npublic_url: https://a.example",
            "error: `0.0.0.0:8080` can be reached from other machines, without TLS (gateway.yaml:1:9)",
        ),
        (
            "listen: '[::]:8080'\npublic_url: https://a.example",
            "error: `[::]:8080` can be reached from other machines, without TLS (gateway.yaml:1:9)",
        ),
        (
            "listen: 10.0.0.1:8443\ntls: { cert: c, key: k }",
            "error: `public_url` is missing, and clients do not come by this address alone (gateway.yaml:1:9)",
        ),
        (
            "listen: 127.0.0.1:8443\ntls: { cert: c, key: k }",
            "error: `public_url` is missing, and clients do not come by this address alone (gateway.yaml:1:9)",
        ),
        (
            "behind_proxy: { from: [127.0.0.1] }\npublic_url: http://a.example",
            "error: `http://a.example` is not `https`, so tokens and passwords could be read on the way (gateway.yaml:2:13)",
        ),
        (
            "tls: { cert: c, key: k }\npublic_url: http://127.0.0.1:8080",
            "error: `http://127.0.0.1:8080` is `http`, but the listener speaks TLS (gateway.yaml:2:13)",
        ),
        (
            "public_url: https://a.example",
            "warning: `https://a.example` is `https`, but the listener speaks plain `http` (gateway.yaml:1:13)",
        ),
        (
            "public_url: ftp://a.example",
            "error: `ftp://a.example` is neither `https` nor `http` (gateway.yaml:1:13)",
        ),
        (
            "public_url: https://a.example/gateway\ntls: { cert: c, key: k }",
            "error: `https://a.example/gateway` has more than scheme, host and port (gateway.yaml:1:13)",
        ),
        (
            "metrics: { listen: 0.0.0.0:9091 }",
            "error: `0.0.0.0:9091` can be reached from other machines, without a token (gateway.yaml:1:20)",
        ),
        (
            "metrics: { listen: 127.0.0.1:8080 }",
            "error: `127.0.0.1:8080` is where agents connect (gateway.yaml:1:20)",
        ),
        (
            "metrics: { listen: nowhere }",
            "error: `nowhere` is no address to listen on (gateway.yaml:1:20)",
        ),
        (
            "public_url: https://a.example\nbehind_proxy: { from: [10.0.0.1/8] }",
            "error: `10.0.0.1/8` begins in the middle of its block (gateway.yaml:2:24)",
        ),
        (
            "public_url: https://a.example\nbehind_proxy: { from: [0.0.0.0/0] }",
            "warning: `0.0.0.0/0` takes everyone for a proxy of ours (gateway.yaml:2:24)",
        ),
        (
            "public_url: https://a.example\nbehind_proxy: { from: [] }",
            "error: at least one is needed here (gateway.yaml:2:17)",
        ),
        (
            "hosts: [https://a.example]",
            "error: `https://a.example` is no host as clients send it (gateway.yaml:1:9)",
        ),
        (
            "hosts: [a.example/x]",
            "error: `a.example/x` is no host as clients send it (gateway.yaml:1:9)",
        ),
        (
            "hosts: ['*']",
            "error: `*` is no host as clients send it (gateway.yaml:1:9)",
        ),
        (
            "origins: ['*']",
            "error: `*` is no web origin (gateway.yaml:1:11)",
        ),
        (
            "origins: ['null']",
            "error: `null` is no web origin (gateway.yaml:1:11)",
        ),
        (
            "origins: [https://a.example/x]",
            "error: `https://a.example/x` has more than scheme, host and port (gateway.yaml:1:11)",
        ),
    ] {
        says(part, expected);
    }
}

#[test]
fn listeners_that_are_covered_are_good() {
    for part in [
        "",
        "listen: 127.0.0.1:0\nmetrics: { listen: 127.0.0.1:0 }",
        "listen: '[::1]:8080'",
        "public_url: http://localhost:8080",
        "listen: 0.0.0.0:8443\npublic_url: https://a.example/\ntls: { cert: c, key: k }",
        "listen: 10.0.0.1:80\npublic_url: https://a.example\nbehind_proxy: { from: [10.0.0.0/8, '::1'] }",
        "metrics: { listen: 0.0.0.0:9091, token: { env: T } }",
        "hosts: [a.example, 'a.example:80', 'a.example:443', 'a.example:8080', 10.0.0.1, '[::1]:80']",
        "origins: [https://a.example, 'http://localhost:6274']",
    ] {
        check(&format!("{part}\n{AROUND}"), "");
    }
}

#[test]
fn users_are_checked() {
    const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI";
    let user = |name: &str, hash: &str, rest: &str| {
        format!("identity: {{ users: [{{ name: \"{name}\", password_hash: \"{hash}\" }}{rest}] }}")
    };
    let twice = format!(", {{ name: alice, password_hash: \"{HASH}\" }}");
    let weak = HASH.replace("m=19456", "m=64");
    let dear = HASH.replace("m=19456", "m=2097152");
    let other = HASH.replace("argon2id", "argon2i");

    for (part, expected) in [
        (
            user("Alice", HASH, ""),
            "error: `Alice` is no user name (gateway.yaml:1:29)",
        ),
        (
            user("", HASH, ""),
            "error: `` is no user name (gateway.yaml:1:29)",
        ),
        (
            user("alice", HASH, &twice),
            "error: user `alice` stands twice (gateway.yaml:1:164)",
        ),
        (
            user("alice", "$argon2id$…", ""),
            "error: this stands for a password hash, but is none (gateway.yaml:1:53)",
        ),
        (
            user("alice", "hunter2", ""),
            "error: not an Argon2id hash (gateway.yaml:1:53)",
        ),
        (
            user("alice", &other, ""),
            "error: not an Argon2id hash (gateway.yaml:1:53)",
        ),
        (
            user("alice", &weak, ""),
            "warning: this hash is cheap to guess: it takes only 64 KiB of memory (gateway.yaml:1:53)",
        ),
        (
            user("alice", &dear, ""),
            "error: this hash takes 2097152 KiB of memory to check (gateway.yaml:1:53)",
        ),
    ] {
        says(&part, expected);
    }
    let text = format!("{}\n{AROUND}", user("alice", HASH, ""));
    let loaded = load(&text, "g.yaml").expect("good");
    let known = Known {
        users: &["alice"],
        groups: &[],
    };
    assert_eq!(
        loaded
            .check(known)
            .iter()
            .next()
            .map(|problem| problem.message.as_str()),
        Some("user `alice` is in `data_dir/users.yaml` too")
    );
}

#[test]
fn upstreams_are_checked() {
    let headers =
        |headers: &str| format!("{{ url: https://a.example/mcp, headers: {{ {headers} }} }}");
    for (upstream, expected) in [
        (
            "{ url: ftp://a.example }",
            "error: `ftp://a.example` is no `http://` or `https://` URL (gateway.yaml:2:26)",
        ),
        (
            "{ url: 'https:a.example' }",
            "error: `https:a.example` is no `http://` or `https://` URL (gateway.yaml:2:26)",
        ),
        (
            "{ url: 'https://me:pw@a.example' }",
            "error: a URL with a user name or password in it (gateway.yaml:2:26)",
        ),
        (
            "{ url: 'https://a.example/?api_key=x' }",
            "error: a URL with what looks like a credential in it: `api_key` (gateway.yaml:2:26)",
        ),
        (
            "{ url: 'https://a.example/#x' }",
            "error: `https://a.example/#x` ends with a fragment, which no server sees (gateway.yaml:2:26)",
        ),
        (
            "{ url: 'https://a.example/a b' }",
            "error: `https://a.example/a b` is no URL as it is sent (gateway.yaml:2:26)",
        ),
        (
            "{ url: https://a.example, socket: '' }",
            "error: a socket's path has 1 to 107 bytes, this one 0 (gateway.yaml:2:53)",
        ),
        (
            "{ url: https://a.example, tls: { cert: c } }",
            "error: `cert` needs its `key` (gateway.yaml:2:52)",
        ),
        (
            "{ url: https://a.example, tls: { key: k } }",
            "error: `key` needs its `cert` (gateway.yaml:2:52)",
        ),
        (
            "{ url: http://127.0.0.1, tls: { ca: c } }",
            "error: `tls` has no meaning for an `http://` URL (gateway.yaml:2:44)",
        ),
        (
            "{ url: https://a.example, tls: { server_name: 'A.example' } }",
            "error: `A.example` is no host name (gateway.yaml:2:65)",
        ),
        (
            "{ url: https://a.example, timeouts: { total: 0s } }",
            "error: zero leaves no time at all for `total` (gateway.yaml:2:64)",
        ),
        (
            "{ url: http://a.example, headers: { Authorization: { env: A } } }",
            "warning: `Authorization` is sent to this server unencrypted (gateway.yaml:2:26)",
        ),
        (
            &headers("Host: a"),
            "error: header `Host` is set by the gateway (gateway.yaml:2:60)",
        ),
        (
            &headers("Mcp-Session-Id: a"),
            "error: header `Mcp-Session-Id` is set by the gateway (gateway.yaml:2:60)",
        ),
        (
            &headers("'a b': c"),
            "error: `a b` is no header name (gateway.yaml:2:60)",
        ),
        (
            &headers("X-A: b, x-a: c"),
            "error: header `x-a` stands twice (gateway.yaml:2:68)",
        ),
        (
            &headers("X-A: 'b\u{e9}'"),
            "error: the value of `X-A` cannot be sent in a header (gateway.yaml:2:65)",
        ),
        (
            &headers("X-A: ' b'"),
            "error: the value of `X-A` cannot be sent in a header (gateway.yaml:2:65)",
        ),
        (
            &headers("Authorization: Bearer abc"),
            "error: the value of `Authorization` looks like a credential (gateway.yaml:2:75)",
        ),
        (
            &headers("X-Api-Key: abc"),
            "error: the value of `X-Api-Key` looks like a credential (gateway.yaml:2:71)",
        ),
        (
            &headers("X-A: Basic abc"),
            "error: the value of `X-A` looks like a credential (gateway.yaml:2:65)",
        ),
        (
            &headers("X-A: {}"),
            "error: nothing is written here (gateway.yaml:2:60)",
        ),
        (
            &headers("X-A: { env: A, file: b }"),
            "error: `file` cannot stand beside the key before it (gateway.yaml:2:75)",
        ),
        (
            &headers("X-A: { envv: A }"),
            "error: unknown key `envv` (gateway.yaml:2:67)",
        ),
        (
            &headers("X-A: [a]"),
            "error: expected a text or `{ env: … }` or `{ file: … }`, found a list (gateway.yaml:2:60)",
        ),
    ] {
        upstream_says(upstream, expected);
    }
    assert_eq!(
        messages(
            &AROUND
                .replace("github:", "Git_Hub:")
                .replace("github/*", "'*/*'")
        ),
        ["error: `Git_Hub` is no name for an upstream (gateway.yaml:2:3)"]
    );
    let loaded = load(FULL, "g.yaml").expect("good");
    let Upstream::Http(files) = &loaded.config.upstreams["files"];
    assert_eq!(files.timeouts, super::UpstreamTimeouts::default());
}

#[test]
fn names_in_rules_must_exist() {
    let text = AROUND.replace(
        "rules: [{ name: r, tools: [github/*], allow: {} }]",
        "\
rules:
    - { name: a, tools: [githb/x, 'a*/x', github/y], allow: {}, who: { users: [bob], groups: [op] } }
    - { name: b, tools: [nothing/x], hold: { approvers: { groups: [admin] } } }
  tests: [{ tool: gitub/x, user: bob, expect: deny }]",
    );
    let loaded = load(&text, "gateway.yaml").expect("form");
    let known = Known {
        users: &["bop"],
        groups: &["ops", "admins"],
    };

    let printed = loaded.check(known).to_string();
    assert_eq!(
        printed,
        r#"error: unknown upstream `githb` (gateway.yaml:5:26)
  5 |     - { name: a, tools: [githb/x, 'a*/x', github/y], allow: {}, who: { users: [bob], groups: [op] }
    |                          ^^^^^^^
hint: did you mean `github`?

error: no upstream matches `a*` (gateway.yaml:5:35)
  5 |     - { name: a, tools: [githb/x, 'a*/x', github/y], allow: {}, who: { users: [bob], groups: [op] }
    |                                   ^^^^^^
hint: upstreams: `github`

warning: unknown user `bob` (gateway.yaml:5:80)
  5 |     - { name: a, tools: [githb/x, 'a*/x', github/y], allow: {}, who: { users: [bob], groups: [op] }
    |                                                                                ^^^
hint: did you mean `bop`?

warning: unknown group `op` (gateway.yaml:5:95)
  5 | …s: [bob], groups: [op] } }
    |                     ^^
hint: did you mean `ops`?

error: unknown upstream `nothing` (gateway.yaml:6:26)
  6 |     - { name: b, tools: [nothing/x], hold: { approvers: { groups: [admin] } } }
    |                          ^^^^^^^^^
hint: upstreams: `github`

warning: unknown group `admin` (gateway.yaml:6:68)
  6 |     - { name: b, tools: [nothing/x], hold: { approvers: { groups: [admin] } } }
    |                                                                    ^^^^^
hint: did you mean `admins`?

error: unknown upstream `gitub` (gateway.yaml:7:19)
  7 |   tests: [{ tool: gitub/x, user: bob, expect: deny }]
    |                   ^^^^^^^
hint: did you mean `github`?"#
    );
}

#[test]
fn limits_that_let_nothing_through_are_refused() {
    for (part, expected) in [
        (
            "limits: { body: 1B }",
            "error: `1B` is not between `1KiB` and `256MiB` (gateway.yaml:1:17)",
        ),
        (
            "limits: { answer: 1GiB }",
            "error: `1GiB` is not between `1KiB` and `256MiB` (gateway.yaml:1:19)",
        ),
        (
            "limits: { depth: 1 }",
            "error: `1` is not between `8` and `512` (gateway.yaml:1:18)",
        ),
        (
            "limits: { tokens: 0 }",
            "error: `0` is not between `1` and `10000000` (gateway.yaml:1:19)",
        ),
        (
            "timeouts: { head: 0s }",
            "error: zero leaves no time at all for `head` (gateway.yaml:1:19)",
        ),
    ] {
        says(part, expected);
    }
}
