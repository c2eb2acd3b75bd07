//! Whole files in, what people read out.

mod admin;
mod audit;
mod files;
mod form;
mod generated;
mod sandbox;
mod sense;
mod ssh;
mod traces;

use super::{Known, load};

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
audit:
  sync: relaxed
  file_size: 1MiB
  keep: 90d
  keep_at_most: 20GiB
  checkpoints: { file: /mnt/other/checkpoints.jsonl, every: 10s, records: 1000 }
  arguments: [{ tools: ["files/*"], mask: [/body], tag: ["/users/*/name"] }]
  also:
    - { name: journal, stdout: {} }
    - { name: siem, syslog: { to: "unix:/dev/log" } }
    - { name: lake, otlp: { url: "https://collector.example.com/v1/logs", headers: { x: { env: KEY } }, ca: ca.pem } }
traces: { otlp: { url: "https://collector.example.com/v1/traces", headers: { x: { env: KEY } }, ca: ca.pem }, sample: 0.25 }
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
