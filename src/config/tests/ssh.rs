//! SSH upstreams that open nothing, or too much.

use super::{AROUND, messages};

/// What is said of an SSH upstream; what it needs beside stands in front of it.
const UPSTREAMS: &str = r#"
key: { file: key }

key: { env: KEY }, connect: 60s, keep_alive: 5m, idle: 24h, at_once: 256, user: ssh

certificates: { authority: { file: ca } }

certificates: { authority: { file: ca }, principal: "ops.prod@host:x/y-1_z", source: [192.0.2.7, "2001:db8::/64"], lifetime: 10s }

connect: 5s
=> error: nothing opens the host: neither `key` nor `certificates` is there (gateway.yaml:2:13)

key: { file: key }, certificates: { authority: { file: ca } }
=> error: `key` and `certificates` are both there, and only one can open the host (gateway.yaml:2:67)

key: { file: key, env: KEY }
=> error: `env` cannot stand beside the key before it (gateway.yaml:2:85)

key: "-----BEGIN OPENSSH PRIVATE KEY-----"
=> error: expected `{ env: … }` or `{ file: … }`, found a text (gateway.yaml:2:72)

certificates: { principal: a }
=> error: key `authority` is missing (gateway.yaml:2:67)

key: { file: key }, connect: 999ms
=> error: `999ms` is not between `1s` and `1m` (gateway.yaml:2:96)

key: { file: key }, connect: 61s
=> error: `61s` is not between `1s` and `1m` (gateway.yaml:2:96)

key: { file: key }, keep_alive: 0s
=> error: `0ms` is not between `1s` and `5m` (gateway.yaml:2:99)

key: { file: key }, keep_alive: 301s
=> error: `301s` is not between `1s` and `5m` (gateway.yaml:2:99)

key: { file: key }, idle: 500ms
=> error: `500ms` is not between `1s` and `1d` (gateway.yaml:2:93)

key: { file: key }, idle: 25h
=> error: `25h` is not between `1s` and `1d` (gateway.yaml:2:93)

key: { file: key }, at_once: 0
=> error: `0` is too small (gateway.yaml:2:96)

key: { file: key }, at_once: 257
=> error: `257` is not between `1` and `256` (gateway.yaml:2:96)

certificates: { authority: { file: ca }, lifetime: 9s }
=> error: `9s` is not between `10s` and `1h` (gateway.yaml:2:118)

certificates: { authority: { file: ca }, lifetime: 61m }
=> error: `61m` is not between `10s` and `1h` (gateway.yaml:2:118)

certificates: { authority: { file: ca }, principal: "a b" }
=> error: `a b` is no name for a principal (gateway.yaml:2:119)

certificates: { authority: { file: ca }, principal: "a,b" }
=> error: `a,b` is no name for a principal (gateway.yaml:2:119)

certificates: { authority: { file: ca }, principal: "a\nroot" }
=> error: `a\nroot` is no name for a principal (gateway.yaml:2:119)

certificates: { authority: { file: ca }, principal: "" }
=> error: `` is no name for a principal (gateway.yaml:2:119)

certificates: { authority: { file: ca }, principal: "*" }
=> error: `*` is no name for a principal (gateway.yaml:2:119)

certificates: { authority: { file: ca }, source: [gateway.internal, 10.0.0.7/8, 10.0.0.7/33, "::1%lo"] }
=> error: `gateway.internal` is no address or block of addresses (gateway.yaml:2:117)
=> error: `10.0.0.7/8` begins in the middle of its block (gateway.yaml:2:135)
=> error: `10.0.0.7/33` is no address or block of addresses (gateway.yaml:2:147)
=> error: `::1%lo` is no address or block of addresses (gateway.yaml:2:160)

certificates: { authority: { file: ca }, source: [0.0.0.0/0] }
=> warning: `0.0.0.0/0` is every address: a certificate could be used from anywhere (gateway.yaml:2:117)

key: { file: key }, port: 22
=> error: unknown key `port` (gateway.yaml:2:87)
"#;

#[test]
fn an_ssh_upstream_that_opens_nothing_or_too_much_is_refused() {
    let said = |block: &str| {
        let part = block.lines().next().expect("a block has a first line");
        let ssh = format!("ssh: {{ host: deploy@prod, known_hosts: k, actions: a, {part} }}");
        let file = AROUND.replace("http: { url: https://api.example.com/mcp }", &ssh);
        let said = messages(&file).into_iter().map(|line| format!("\n=> {line}"));
        part.to_owned() + &said.collect::<String>()
    };

    let said: Vec<String> = UPSTREAMS.trim().split("\n\n").map(said).collect();

    assert_eq!(said.join("\n\n"), UPSTREAMS.trim());
}

#[test]
fn what_opens_the_host_has_a_hint() {
    let ssh = "ssh: { host: deploy@prod, known_hosts: k, actions: a }";
    let file = AROUND.replace("http: { url: https://api.example.com/mcp }", ssh);

    let printed = super::printed(&file);

    let hint = "hint: write `key: { file: path }`, or `certificates: { authority: { file: path } }`";
    assert!(printed.contains(hint), "{printed}");
}

#[test]
fn a_private_key_that_is_written_out_is_not_repeated() {
    let ssh = "ssh:
      host: deploy@prod
      known_hosts: k
      actions: a
      key: |
        -----BEGIN OPENSSH PRIVATE KEY-----
        c2VjcmV0
        -----END OPENSSH PRIVATE KEY-----\n";
    let file = AROUND.replace("{ http: { url: https://api.example.com/mcp } }", &format!("\n    {ssh}"));

    let printed = super::printed(&file);

    assert!(printed.contains("expected `{ env: … }` or `{ file: … }`, found a text"), "{printed}");
    assert!(!printed.contains("c2VjcmV0"), "{printed}");
}
