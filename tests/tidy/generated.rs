//! The configuration's schema is closed, and the files that are written from code say what the code says.
//!
//! `UPDATE=1 cargo test --test all generated` writes them anew.

use super::{complains, none, root};
use portcullis::{config, mcp, metrics, redact};
use portcullis_sandbox::verify as sandbox;
use portcullis_ssh::verify as ssh;
use serde_json::Value;

/// The one object whose keys are not ours to close.
const OPEN: &[(&str, &str)] = &[("PolicyTest.arguments", "a tool names its own arguments")];

const METHODS: &str = "\
# Methods

<!-- Written from the table in `src/mcp/method.rs` by `UPDATE=1 cargo test --test all generated`. Edit that instead. -->

Every MCP method a client may send, what decides whether it passes, and what happens when no rule speaks of it.
The name is compared byte for byte: `Tools/Call`, or one with a space behind it, is a method that does not exist.
Requests of a server to its client (sampling, elicitation, roots) are passed on in sessions of older revisions, as [upstreams](upstreams.md#what-a-server-may-ask) says.

`tasks/*` are those of the Tasks extension (`io.modelcontextprotocol/tasks`, revision 2026-07-28). They are offered on routes where a rule could hold a call, and are about [held calls](approvals.md#clients-that-can-do-more) only: the gateway answers them, and passes none on. A server's own tasks cannot be asked about. The tasks of revision 2025-11-25 have the same names and are another thing; they are not offered.

";

const CLAIMS: &str = "\
# What is claimed of the sandbox

<!-- Written from the table in `upstreams/sandbox/src/verify/claims.rs` by `UPDATE=1 cargo test --test all generated`. Edit that instead. -->

Each claim is tried by `portcullis verify sandbox`: inside, where it must be blocked, and outside, where it must succeed ([sandbox](sandbox.md#trying-it)).
A word in `{}` stands for something that is put up outside for the purpose: a file, a listener, a process.
\"The host's kernel\": gVisor answers such calls itself, so that what it allows reaches nobody; allowed there is NOT APPLICABLE.

";

const ATTACKS: &str = "\
# Attacks on a host

<!-- Written from the table in `upstreams/ssh/src/verify/attacks.rs` by `UPDATE=1 cargo test --test all generated`. Edit that instead. -->

Each is tried by `portcullis verify ssh`, with the credential of the upstream and as whoever has stolen it would.
PASS: the script on the host refused it, with status 77 and nothing but its own line; or sshd refused it explicitly, and did not refuse the true login behind it.
A bare failure is no refusal: whatever is broken fails, too.
NOT APPLICABLE is no pass.

`{check}` stands for the action that changes nothing (`check` of the actions file), `{project}` for a project whose logs can be read, both in capitals where they are written so.
`{run}` is a program that adds two random numbers, `{a}` and `{b}`: their sum is in nothing that is sent, and where it comes back, something has run.

Rows that speak of any action are tried for each action of the actions file, wherever `{word}` can stand: for each of its arguments, and as one word more behind the last. `{WORD}` is that word in capitals, `{action}` is all of the words, and `{unknown}` one that nobody knows.
Of an action that changes nothing (`readOnlyHint: true`), all other words are as they should be, so that a script which looks at one after the other comes to the one that is not.
Of an action that changes something, each argument is a word that it does not take (`portcullis-verify-` and twelve letters, new each time), and where there is no such word, its name is wrong as well. So nothing that is sent is an action that changes something, even where a script leaves out, cuts off or unquotes what is hostile. What a script does with a second argument once the first was right is not seen there.
What the actions file allows is not sent as an attack, whatever it is: a pattern that takes `..` takes it.
Each such row is one finding. It counts what was refused, or names the first string that was not.
`sleep` is for what is run where nobody sees it: a refusal that comes after 4 seconds, and at once with `sleep 0`, is none.

## What PASS does not say

What was tried was refused; what was not tried is not known.

- **Actions that only the script knows.** It may take more than the actions file has.
- **Where else the host can be opened.** A further key without `restrict`, an account that is neither in the list nor given by `--account`, an account that is locked.
- **What is let in from elsewhere.** All attacks come from one address; a `Match … Address` may hold for it only.
- **A port that only `permitopen`, `permitlisten`, `PermitOpen` or `PermitListen` know.** Those in the table are tried. What says `DisableForwarding yes` or `restrict` alone opens none.
- **A tunnel device (`tun@openssh.com`).** It is not asked for: the library that we speak SSH with has no words for it. `PermitTunnel no`, which is sshd's default, closes it.
- **`~/.ssh/rc`** (`user-rc`, `PermitUserRC`), where it says nothing.
- **What runs in the background**, and takes no time of anybody's.

## The table

";

const REDACTION: &str = "\
# What is not written down

<!-- Written from the tables in `src/redact` by `UPDATE=1 cargo test --test all generated`. Edit those instead. -->

A secret in the wrong place (a token as a tool's name, a password in a URL) would be kept for as long as the log is.
So what has the shape of a secret, or stands where one stands, is replaced by a tag before it is written.

- **Where**: texts of an [audit](audit.md) record, recorded arguments, every line of the log, what is said of a panic, notices to webhooks (with the arguments where a webhook gets them), and what a refusal says of the request.
- **The tag**: `hmac:<key id>:<16 hexadecimal digits>`. The same value has the same tag in one deployment, so that it can be looked for (`portcullis audit hash`); without `data_dir/keys/session.key` nobody can try guesses.
- **Not there**: the call itself, which goes to the server as it came; the answer, which goes to the client; the approvals page, whose approvers see what they approve, minus `mask`; the `id` of an answer, which is the client's own.
- **Cost**: one look at each text for all beginnings and names at once; only where there is one, a closer look.
- **A text made to be looked at again and again** is hidden from the place on where that was too much.

## What it does not find

What looks like anything else: a password in the middle of a sentence, a token of letters alone under a name that says nothing, a secret in pieces, encrypted, compressed, or encoded twice.
Name what you know of in `audit.arguments` (`mask`, `tag`), and do not record arguments where they are of no use.

## Names of secrets

What stands under a name is hidden when its last word is `password`, `passphrase`, `secret`, `token`, `credential`, `cookie`, `auth`, `authorization`, `apikey`, `jwt`, `otp`, `pwd`, `dsn`, …, or a `key` that is said to be one (`api_key`, `private-key`, `accountKey`), however it is written: `clientSecret`, `CLIENT_SECRET`, `client-secret`, `client_secret_hash`.
`key` alone, `primary_key`, `max_tokens`, `nextPageToken` and `progressToken` are none.
The same list says which values of `gateway.yaml` may not be written out.

## Shapes

";

/// A file that a test writes.
struct Generated {
    path: &'static str,
    text: String,
}

fn all() -> [Generated; 7] {
    [
        Generated { path: "gateway.schema.json", text: config::schema() },
        Generated { path: "docs/configuration.md", text: config::reference() },
        Generated { path: "docs/redaction.md", text: REDACTION.to_owned() + &redact::tables() },
        Generated { path: "docs/methods.md", text: METHODS.to_owned() + &mcp::table() },
        Generated { path: "docs/operations.md", text: with_table("docs/operations.md", &metrics::table()) },
        Generated { path: "docs/sandbox-claims.md", text: CLAIMS.to_owned() + &sandbox::table() },
        Generated { path: "docs/ssh-attacks.md", text: ATTACKS.to_owned() + &ssh::table() },
    ]
}

/// The file with this table in place of the one below the line that says where it is written from.
fn with_table(path: &str, table: &str) -> String {
    let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let (before, rest) = text.split_once("<!-- Written from ").unwrap_or_else(|| panic!("{path} has no such line"));
    let (hint, rest) = rest.split_once("-->\n\n").unwrap_or_else(|| panic!("{path}: the line does not end"));
    let after: String = rest.split_inclusive('\n').skip_while(|line| line.starts_with('|')).collect();
    format!("{before}<!-- Written from {hint}-->\n\n{table}{after}")
}

/// A file that no longer says what the code says.
fn stale(generated: &Generated, on_disk: Option<&str>) -> Option<String> {
    let hint = "run `UPDATE=1 cargo test --test all generated` and commit what it writes";
    match on_disk {
        Some(text) if text == generated.text => None,
        Some(text) => {
            let same = text.lines().zip(generated.text.lines()).take_while(|(old, new)| old == new).count();
            Some(format!("{}:{}: differs from the code; {hint}", generated.path, same + 1))
        }
        None => Some(format!("{}: is missing; {hint}", generated.path)),
    }
}

/// Objects that let unknown keys in. A mistyped key in one would be a rule that is not there.
fn open_objects(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(schema, "", &mut found);
    found.retain(|path| !OPEN.iter().any(|(open, _)| path == open));
    found.into_iter().map(|path| format!("object `{path}` of the configuration lets unknown keys in")).collect()
}

fn walk(schema: &Value, path: &str, open: &mut Vec<String>) {
    let is_object = schema.get("properties").is_some() || schema.get("type").is_some_and(|kind| kind == "object");
    let others = schema.get("additionalProperties");
    // A map to values of one type is closed in its own way.
    let is_closed =
        others.is_some_and(|others| *others == false || others.as_object().is_some_and(|of| !of.is_empty()));
    if is_object && !is_closed {
        open.push(path.to_owned());
    }
    for key in ["properties", "$defs"] {
        for (name, part) in schema.get(key).and_then(Value::as_object).into_iter().flatten() {
            let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            walk(part, &inner, open);
        }
    }
    for key in ["items", "additionalProperties", "not"] {
        schema.get(key).into_iter().for_each(|part| walk(part, path, open));
    }
    for key in ["oneOf", "anyOf", "allOf"] {
        schema.get(key).and_then(Value::as_array).into_iter().flatten().for_each(|part| walk(part, path, open));
    }
}

#[test]
fn every_object_of_the_configuration_is_closed() {
    let schema = serde_json::from_str(&config::schema()).expect("the schema is JSON");
    none(open_objects(&schema));
}

#[test]
fn generated_files_say_what_the_code_says() {
    let is_update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut complaints: Vec<String> = Vec::new();
    for generated in all() {
        let path = root().join(generated.path);
        if is_update {
            std::fs::write(&path, &generated.text).unwrap_or_else(|error| panic!("{}: {error}", generated.path));
        }
        complaints.extend(stale(&generated, std::fs::read_to_string(&path).ok().as_deref()));
    }
    none(complaints);
}

#[test]
fn a_stale_or_missing_file_is_seen() {
    let generated = || Generated { path: "docs/x.md", text: "a\nb\n".to_owned() };
    let seen = |on_disk| stale(&generated(), on_disk).into_iter().collect::<Vec<_>>();

    complains(&seen(Some("a\nc\n")), "docs/x.md:2: differs");
    complains(&seen(None), "is missing");
    none(seen(Some("a\nb\n")));
}

#[test]
fn an_open_object_is_seen_wherever_it_stands() {
    let closed = r#"{ "type": "object", "properties": {}, "additionalProperties": false }"#;
    let open = r#"{ "type": "object", "properties": {} }"#;
    let inside = |part: &str| {
        let text = format!(r#"{{ "type": "object", "additionalProperties": false, "properties": {{ "a": {part} }} }}"#);
        open_objects(&serde_json::from_str(&text).expect("a sample"))
    };

    complains(&inside(open), "`a`");
    complains(&inside(&format!(r#"{{ "type": "array", "items": {open} }}"#)), "`a`");
    complains(&inside(&format!(r#"{{ "type": "object", "additionalProperties": {open} }}"#)), "`a`");
    complains(&inside(&format!(r#"{{ "oneOf": [{closed}, {open}] }}"#)), "`a`");
    complains(&inside(r#"{ "type": "object", "additionalProperties": true }"#), "`a`");
    none(inside(closed));
    none(inside(r#"{ "type": "object", "additionalProperties": { "type": "string" } }"#));
}

#[test]
fn what_may_be_open_exists_and_is_open() {
    let schema = serde_json::from_str::<Value>(&config::schema()).expect("the schema is JSON");
    let mut found = Vec::new();
    walk(&schema, "", &mut found);
    let gone = OPEN.iter().filter(|(open, _)| !found.iter().any(|path| path == open));
    none(gone.map(|(open, why)| format!("`{open}` ({why}) is closed or gone; take it out of OPEN")));
}
