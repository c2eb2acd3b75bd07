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
    assert_eq!(loaded.config.policy.rules[1].when["/command"].equals, Some(serde_json::Value::Null));
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
hint: Put it in quotes.

error: expected a text, found the number `7` (gateway.yaml:6:15)
  6 |     - { name: 7 }
    |               ^
hint: Put it in quotes.
"#,
    );
}

#[test]
fn a_mistake_in_yaml_is_shown_where_it_is() {
    check(
        "listen: 127.0.0.1:8080\nupstreams: { github: { http: { url: x } }\npolicy: {}\n",
        "",
    );
    check("a: 1\nb: &x [*x, !!str 1]\na: yes\n", "");
    check("", "");
    check("# nothing\n", "");
    check("a: 1\n---\nb: 2\n", "");
    check("a: \"x\n", "");
}
