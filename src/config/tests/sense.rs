//! Files of the right form that make no sense, or leave a door open.

use super::{AROUND, FULL, check, messages};
use crate::config::{Known, Upstream, UpstreamTimeouts, load};

/// What is said of external issuers.
const ISSUERS: &str = r#"
identity: { issuers: [ { issuer: http://idp.example, groups: { a: ops } } ] }
=> error: `http://idp.example` is not `https`, so its keys could be exchanged on the way (gateway.yaml:1:34)

identity: { issuers: [ { issuer: idp.example, groups: { a: ops } } ] }
=> error: `idp.example` is no `https://` URL (gateway.yaml:1:34)

identity: { issuers: [ { issuer: "https://u:p@idp.example", groups: { a: ops } } ] }
=> error: a URL with a user name or password in it (gateway.yaml:1:34)

identity: { issuers: [ { issuer: "https://idp.example?x=1", groups: { a: ops } } ] }
=> error: an issuer has no query (gateway.yaml:1:34)

identity: { issuers: [ { issuer: "http://localhost:1", jwks_url: "http://idp.example/k", groups: { a: ops } } ] }
=> error: `http://idp.example/k` is not `https`, so its keys could be exchanged on the way (gateway.yaml:1:66)

public_url: https://a.example
tls: { cert: c, key: k }
identity: { issuers: [ { issuer: https://a.example/, groups: { a: ops } } ] }
=> error: `https://a.example/` is this gateway (gateway.yaml:3:34)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: ops }, algorithms: [HS256] } ] }
=> error: unknown word `HS256` (gateway.yaml:1:88)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: ops }, audience: [] } ] }
=> error: at least one is needed here (gateway.yaml:1:75)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: ops }, groups_claim: "" } ] }
=> error: `` names no claim (gateway.yaml:1:89)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: ops }, groups_claim: /a~2 } ] }
=> error: `/a~2` names no claim (gateway.yaml:1:89)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: ops }, subject_claim: email } ] }
=> warning: `email` can be changed, or given to somebody else later (gateway.yaml:1:90)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: " ops" } } ] }
=> error: ` ops` is no group name (gateway.yaml:1:68)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: ops }, scopes: { a: "b c" } } ] }
=> error: `b c` is no scope (gateway.yaml:1:88)

identity: { issuers: [ { issuer: https://idp.example } ] }
=> warning: no group of `https://idp.example` counts here, so its tokens open nothing (gateway.yaml:1:26)

identity: { issuers: [ { issuer: https://idp.example, groups: { a: ops } } ], authorization_server: https://idp.exampel }
=> error: unknown issuer `https://idp.exampel` (gateway.yaml:1:101)
"#;

/// What is said of clients. HASH stands for a good hash.
const CLIENTS: &str = r#"
identity: { clients: [ { id: "a b", redirect_uris: ["https://a.example/cb"] } ] }
=> error: `a b` is no client id (gateway.yaml:1:30)

identity: { clients: [ { id: "https://a.example/c", redirect_uris: ["https://a.example/cb"] } ] }
=> error: `https://a.example/c` is no client id (gateway.yaml:1:30)

identity: { clients: [ { id: c_1, redirect_uris: ["https://a.example/cb"] } ] }
=> error: `c_1` begins as the ids of clients that register (gateway.yaml:1:30)

identity: { clients: [ { id: a, redirect_uris: ["https://a.example/"] }, { id: a, redirect_uris: ["https://b.example/"] } ] }
=> error: client `a` stands twice (gateway.yaml:1:80)

identity: { clients: [ { id: a, name: "", redirect_uris: ["https://a.example/"] } ] }
=> error: this name cannot be shown to people (gateway.yaml:1:39)

identity: { clients: [ { id: a, secret_hash: "sha256:12", redirect_uris: ["https://a.example/"] } ] }
=> error: no hash of a client's secret (gateway.yaml:1:46)

identity: { clients: [ { id: a, secret_hash: "$argon2id$x", redirect_uris: ["https://a.example/"] } ] }
=> error: no hash of a client's secret (gateway.yaml:1:46)

identity: { clients: [ { id: a, secret_hash: HASH, jwks: k.json, redirect_uris: ["https://a.example/"] } ] }
=> error: a client shows who it is in one way, and this one has a secret already (gateway.yaml:1:121)

identity: { clients: [ { id: a, redirect_uris: ["http://a.example/cb"] } ] }
=> error: `http://a.example/cb` is plain http, which is for this machine only (localhost, 127.0.0.1, [::1]) (gateway.yaml:1:49)

identity: { clients: [ { id: a, redirect_uris: ["javascript:alert(1)"] } ] }
=> error: `javascript:alert(1)` has a scheme that is not allowed: https, http to this machine, a reversed domain name, or that of a known program (gateway.yaml:1:49)

identity: { clients: [ { id: a } ] }
=> error: client `a` can do nothing (gateway.yaml:1:26)

identity: { clients: [ { id: a, redirect_uris: ["https://a.example/"], groups: [ops] } ] }
=> error: `groups` is for clients that act on their own account, and this one has no `owner` (gateway.yaml:1:72)

identity: { clients: [ { id: a, owner: alice, routes: [github] } ] }
=> error: anybody could act as `a`: it has neither `secret_hash` nor `jwks` (gateway.yaml:1:33)

identity: { clients: [ { id: a, owner: alice, secret_hash: HASH } ] }
=> error: client `a` may have tokens for no route (gateway.yaml:1:26)

identity: { clients: [ { id: a, owner: alice, secret_hash: HASH, routes: [githb] } ] }
=> error: unknown upstream `githb` (gateway.yaml:1:144)

identity: { clients: [ { id: a, owner: alice, secret_hash: HASH, routes: [github], groups: [" ops"] } ] }
=> error: ` ops` is no group name (gateway.yaml:1:162)

oauth: { metadata_documents: { only: ["https://a.example"] } }
=> error: `https://a.example` is no host (gateway.yaml:1:39)

oauth: { metadata_documents: { private: ["a.example/x"] } }
=> error: `a.example/x` is no host (gateway.yaml:1:42)

oauth: { metadata_documents: { only: [] } }
=> error: at least one is needed here (gateway.yaml:1:32)
"#;

/// The beginning of a file, and what is said of it.
const LISTENERS: &str = r#"
listen: localhost:80
=> error: `localhost:80` is no address to listen on (gateway.yaml:1:9)

listen: 0.0.0.0:8080
public_url: https://a.example
=> error: `0.0.0.0:8080` can be reached from other machines, without TLS (gateway.yaml:1:9)

listen: '[::]:8080'
public_url: https://a.example
=> error: `[::]:8080` can be reached from other machines, without TLS (gateway.yaml:1:9)

listen: 10.0.0.1:8443
tls: { cert: c, key: k }
=> error: `public_url` is missing, and clients do not come by this address alone (gateway.yaml:1:9)

listen: 127.0.0.1:8443
tls: { cert: c, key: k }
=> error: `public_url` is missing, and clients do not come by this address alone (gateway.yaml:1:9)

behind_proxy: { from: [127.0.0.1] }
public_url: http://a.example
=> error: `http://a.example` is not `https`, so tokens and passwords could be read on the way (gateway.yaml:2:13)

tls: { cert: c, key: k }
public_url: http://127.0.0.1:8080
=> error: `http://127.0.0.1:8080` is `http`, but the listener speaks TLS (gateway.yaml:2:13)

public_url: https://a.example
=> warning: `https://a.example` is `https`, but the listener speaks plain `http` (gateway.yaml:1:13)

public_url: ftp://a.example
=> error: `ftp://a.example` is neither `https` nor `http` (gateway.yaml:1:13)

public_url: https://a.example/gateway
tls: { cert: c, key: k }
=> error: `https://a.example/gateway` has more than scheme, host and port (gateway.yaml:1:13)

metrics: { listen: 0.0.0.0:9091 }
=> error: `0.0.0.0:9091` can be reached from other machines, without a token (gateway.yaml:1:20)

metrics: { listen: 127.0.0.1:8080 }
=> error: `127.0.0.1:8080` is where agents connect (gateway.yaml:1:20)

metrics: { listen: nowhere }
=> error: `nowhere` is no address to listen on (gateway.yaml:1:20)

public_url: https://a.example
behind_proxy: { from: [10.0.0.1/8] }
=> error: `10.0.0.1/8` begins in the middle of its block (gateway.yaml:2:24)

public_url: https://a.example
behind_proxy: { from: [0.0.0.0/0] }
=> warning: `0.0.0.0/0` takes everyone for a proxy of ours (gateway.yaml:2:24)

public_url: https://a.example
behind_proxy: { from: [] }
=> error: at least one is needed here (gateway.yaml:2:17)

hosts: [https://a.example]
=> error: `https://a.example` is no host as clients send it (gateway.yaml:1:9)

hosts: [a.example/x]
=> error: `a.example/x` is no host as clients send it (gateway.yaml:1:9)

hosts: ['*']
=> error: `*` is no host as clients send it (gateway.yaml:1:9)

origins: ['*']
=> error: `*` is no web origin (gateway.yaml:1:11)

origins: ['null']
=> error: `null` is no web origin (gateway.yaml:1:11)

origins: [https://a.example/x]
=> error: `https://a.example/x` has more than scheme, host and port (gateway.yaml:1:11)
"#;

/// Beginnings of files that nothing is said of.
const GOOD_LISTENERS: &str = r#"
listen: 127.0.0.1:0
metrics: { listen: 127.0.0.1:0 }

listen: '[::1]:8080'

public_url: http://localhost:8080

listen: 0.0.0.0:8443
public_url: https://a.example/
tls: { cert: c, key: k }

listen: 10.0.0.1:80
public_url: https://a.example
behind_proxy: { from: [10.0.0.0/8, '::1'] }

metrics: { listen: 0.0.0.0:9091, token: { env: T } }

hosts: [a.example, 'a.example:80', 'a.example:443', 'a.example:8080', 10.0.0.1, '[::1]:80']

origins: [https://a.example, 'http://localhost:6274']
"#;

/// `HASH` and its like stand for hashes.
const USERS: &str = r#"
identity: { users: [{ name: Alice, password_hash: HASH }] }
=> error: `Alice` is no user name (gateway.yaml:1:29)

identity: { users: [{ name: "", password_hash: HASH }] }
=> error: `` is no user name (gateway.yaml:1:29)

identity: { users: [{ name: alice, password_hash: HASH }, { password_hash: HASH, name: alice }] }
=> error: user `alice` stands twice (gateway.yaml:1:278)

identity: { users: [{ name: alice, password_hash: HASH, groups: [" a"] }] }
=> error: ` a` is no group name (gateway.yaml:1:161)

identity: { users: [{ name: alice, password_hash: "$argon2id$…" }] }
=> error: this stands for a password hash, but is none (gateway.yaml:1:51)

identity: { users: [{ name: alice, password_hash: hunter2 }] }
=> error: not an Argon2id hash (gateway.yaml:1:51)

identity: { users: [{ name: alice, password_hash: ARGON2I }] }
=> error: not an Argon2id hash (gateway.yaml:1:51)

identity: { users: [{ name: alice, password_hash: CHEAP }] }
=> warning: this hash is cheap to guess: it takes only 64 KiB of memory (gateway.yaml:1:51)

identity: { users: [{ name: alice, password_hash: DEAR }] }
=> error: this hash takes 2097152 KiB of memory to check (gateway.yaml:1:51)
"#;

/// The upstream `github`, and what is said of it.
const UPSTREAMS: &str = r#"
{ url: ftp://a.example }
=> error: `ftp://a.example` is no `http://` or `https://` URL (gateway.yaml:2:26)

{ url: 'https:a.example' }
=> error: `https:a.example` is no `http://` or `https://` URL (gateway.yaml:2:26)

{ url: 'https://me:pw@a.example' }
=> error: a URL with a user name or password in it (gateway.yaml:2:26)

{ url: 'https://a.example/?api_key=x' }
=> error: a URL with what looks like a credential in it: `api_key` (gateway.yaml:2:26)

{ url: 'https://a.example/#x' }
=> error: `https://a.example/#x` ends with a fragment, which no server sees (gateway.yaml:2:26)

{ url: 'https://a.example/a b' }
=> error: `https://a.example/a b` is no URL as it is sent (gateway.yaml:2:26)

{ url: https://a.example, socket: '' }
=> error: a socket's path has 1 to 107 bytes, this one 0 (gateway.yaml:2:53)

{ url: https://a.example, tls: { cert: c } }
=> error: `cert` needs its `key` (gateway.yaml:2:52)

{ url: https://a.example, tls: { key: k } }
=> error: `key` needs its `cert` (gateway.yaml:2:52)

{ url: http://127.0.0.1, tls: { ca: c } }
=> error: `tls` has no meaning for an `http://` URL (gateway.yaml:2:44)

{ url: https://a.example, tls: { server_name: 'A.example' } }
=> error: `A.example` is no host name (gateway.yaml:2:65)

{ url: https://a.example, timeouts: { total: 0s } }
=> error: zero leaves no time at all for `total` (gateway.yaml:2:64)

{ url: http://a.example, headers: { Authorization: { env: A } } }
=> warning: `Authorization` is sent to this server unencrypted (gateway.yaml:2:26)

{ url: https://a.example/mcp, headers: { Host: a } }
=> error: header `Host` is set by the gateway (gateway.yaml:2:60)

{ url: https://a.example/mcp, headers: { Mcp-Session-Id: { env: A } } }
=> error: header `Mcp-Session-Id` is set by the gateway (gateway.yaml:2:60)

{ url: https://a.example/mcp, headers: { 'a b': c } }
=> error: `a b` is no header name (gateway.yaml:2:60)

{ url: https://a.example/mcp, headers: { X-A: b, x-a: c } }
=> error: header `x-a` stands twice (gateway.yaml:2:68)

{ url: https://a.example/mcp, headers: { X-A: 'bé' } }
=> error: the value of `X-A` cannot be sent in a header (gateway.yaml:2:65)

{ url: https://a.example/mcp, headers: { X-A: ' b' } }
=> error: the value of `X-A` cannot be sent in a header (gateway.yaml:2:65)

{ url: https://a.example/mcp, headers: { Authorization: Bearer abc } }
=> error: the value of `Authorization` looks like a credential (gateway.yaml:2:75)

{ url: https://a.example/mcp, headers: { X-Api-Key: abc } }
=> error: the value of `X-Api-Key` looks like a credential (gateway.yaml:2:71)

{ url: https://a.example/mcp, headers: { X-A: Basic abc } }
=> error: the value of `X-A` looks like a credential (gateway.yaml:2:65)

{ url: https://a.example/mcp, headers: { X-A: {} } }
=> error: nothing is written here (gateway.yaml:2:60)

{ url: https://a.example/mcp, headers: { X-A: { env: A, file: b } } }
=> error: `file` cannot stand beside the key before it (gateway.yaml:2:75)

{ url: https://a.example/mcp, headers: { X-A: { envv: A } } }
=> error: unknown key `envv` (gateway.yaml:2:67)

{ url: https://a.example/mcp, headers: { X-A: [a] } }
=> error: expected a text or `{ env: … }` or `{ file: … }`, found a list (gateway.yaml:2:60)
"#;

const LIMITS: &str = r#"
limits: { body: 1B }
=> error: `1B` is not between `1KiB` and `256MiB` (gateway.yaml:1:17)

limits: { answer: 1GiB }
=> error: `1GiB` is not between `1KiB` and `256MiB` (gateway.yaml:1:19)

limits: { depth: 1 }
=> error: `1` is not between `8` and `512` (gateway.yaml:1:18)

limits: { tokens: 0 }
=> error: `0` is not between `1` and `10000000` (gateway.yaml:1:19)

timeouts: { head: 0s }
=> error: zero leaves no time at all for `head` (gateway.yaml:1:19)

oauth: { idle: 999ms }
=> error: `999ms` is not at least `1s` (gateway.yaml:1:16)

oauth: { access_token: 25h }
=> error: `25h` is more than `1d` (gateway.yaml:1:24)
"#;

/// Each block of `table` ends with the one thing that is said of it.
#[track_caller]
fn all_say(table: &str, file: impl Fn(&str) -> String) {
    for block in table.trim().split("\n\n") {
        let (part, expected) = block.split_once("\n=> ").expect("a block has an answer");
        assert_eq!(messages(&file(part)), [expected], "{part}");
    }
}

/// A good file that begins with `part`.
fn beginning(part: &str) -> String {
    format!("{part}\n{AROUND}")
}

#[test]
fn listeners_that_are_left_open_are_refused() {
    all_say(LISTENERS, beginning);
}

#[test]
fn issuers_that_could_be_somebody_else_are_refused() {
    all_say(ISSUERS, beginning);
}

const SECRET_HASH: &str = "\"sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"";

#[test]
fn clients_that_could_be_anybody_or_lead_anywhere_are_refused() {
    all_say(CLIENTS, |part| beginning(&part.replace("HASH", SECRET_HASH)));
}

#[test]
fn clients_that_make_sense_are_good() {
    let clients = "identity: { clients: [
    { id: ci, secret_hash: HASH, owner: alice, groups: [robots], routes: [github] },
    { id: web.app~1, name: Web, secret_hash: HASH, redirect_uris: [\"https://a.example/cb\"] },
    { id: keys, jwks: keys.json, owner: alice, routes: [github], redirect_uris: [\"http://127.0.0.1/\"] },
    { id: cursor, redirect_uris: [\"cursor://anysphere.cursor-mcp/oauth/callback\"] } ] }
oauth: { metadata_documents: { only: [a.example, \"b.example:8443\"], private: [\"localhost:1\", \"a.example:443\"] } }";
    check(&beginning(&clients.replace("HASH", SECRET_HASH)), "");
}

#[test]
fn a_subject_of_an_issuer_is_one_person() {
    let user = |name: &str, also: &str| {
        let hash = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI";
        format!("    - {{ name: {name}, password_hash: \"{hash}\", also: [{also}] }}\n")
    };
    let file = |alice: &str, bob: &str| {
        let users = user("alice", alice) + &user("bob", bob);
        format!("identity:\n  users:\n{users}  issuers: [ {{ issuer: https://idp.example }} ]\n{AROUND}")
    };
    let one = "{ issuer: https://idp.example, subject: a }";
    assert_eq!(messages(&file(one, "{ issuer: https://idp.example, subject: b }")).join("\n"), "");
    assert_eq!(
        messages(&file(one, one)).join("\n"),
        "error: subject `a` of this issuer stands twice (gateway.yaml:4:183)"
    );
    let elsewhere = messages(&file("{ issuer: https://idp.example/, subject: a }", one));
    assert!(elsewhere[0].starts_with("error: unknown issuer `https://idp.example/` "), "{elsewhere:?}");
}

#[test]
fn listeners_that_are_covered_are_good() {
    for part in GOOD_LISTENERS.trim().split("\n\n") {
        check(&beginning(part), "");
    }
}

#[test]
fn users_must_have_a_name_and_a_password_that_is_hard_to_guess() {
    const HASH: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI";
    let quoted = |from: &str, to: &str| format!("\"{}\"", HASH.replace(from, to));

    all_say(USERS, |part| {
        let part = part
            .replace("HASH", &quoted("", ""))
            .replace("ARGON2I", &quoted("argon2id", "argon2i"))
            .replace("CHEAP", &quoted("m=19456", "m=64"))
            .replace("DEAR", &quoted("m=19456", "m=2097152"));
        beginning(&part)
    });
}

#[test]
fn a_user_in_both_files_is_refused() {
    let loaded = load(FULL, "g.yaml").expect("good");
    let known = Known { users: &["alice"], groups: &[] };

    let problems = loaded.check(known);

    let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert_eq!(messages, ["user `alice` is in `data_dir/users.yaml` too"]);
}

#[test]
fn upstreams_that_leak_or_cannot_work_are_refused() {
    all_say(UPSTREAMS, |part| AROUND.replace("{ url: https://api.example.com/mcp }", part));
}

#[test]
fn an_upstreams_name_is_a_part_of_its_url() {
    let text = AROUND.replace("github:", "Git_Hub:").replace("github/*", "'*/*'");

    assert_eq!(messages(&text), ["error: `Git_Hub` is no name for an upstream (gateway.yaml:2:3)"]);
}

#[test]
fn times_that_are_not_written_are_the_defaults() {
    let loaded = load(FULL, "g.yaml").expect("good");
    let Upstream::Http(files) = &loaded.config.upstreams["files"] else {
        panic!("it is reached over HTTP");
    };

    assert_eq!(files.timeouts, UpstreamTimeouts::default());
}

#[test]
fn limits_that_let_nothing_through_are_refused() {
    all_say(LIMITS, beginning);
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
    let known = Known { users: &["bop"], groups: &["ops", "admins"] };

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
