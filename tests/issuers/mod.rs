//! Tokens of authorization servers that are not ours: which of them count, as whom, and for what; and what becomes of
//! that when the issuer's keys change, or cannot be had. `real` meets a real one; the others an issuer of the tests' own.

mod counting;
mod faults;
mod forgeries;
mod keys;
mod real;
mod reload;

use crate::support::gate::{Gate, Refused, call, error};
use crate::support::gateway::{IDENTITY, in_front_of};
use crate::support::http::Request;
use crate::support::issuer::Issuer;
use crate::support::wait_for;
use serde_json::json;

/// Group `ops` may do everything but `danger`, which is for alice; nobody else may do anything.
const RULES: &str = r#"
- { name: ops, tools: ["up/echo", "up/add"], who: { groups: [ops] }, allow: {} }
- { name: alice, tools: ["up/danger"], who: { users: [alice] }, allow: {} }
- { name: locals, tools: ["up/local"], allow: {} }
"#;

/// An entry of `identity.issuers`: its group `operators` is our `ops`.
fn entry(issuer: &str, more: &str) -> String {
    format!("    - {{ issuer: \"{issuer}\", groups: {{ operators: ops }}{more} }}\n")
}

/// The whole configuration with these entries.
fn config(url: &str, entries: &str) -> String {
    format!("{IDENTITY}  issuers:\n{entries}{}", in_front_of(url, RULES))
}

/// A gate that trusts this issuer and has its keys.
#[track_caller]
fn gate(issuer: &Issuer, more: &str) -> Gate {
    let gate = Gate::with(|url| config(url, &entry(&issuer.name, more)));
    wait_for_keys(&gate, &issuer.name);
    gate
}

#[track_caller]
fn wait_for_keys(gate: &Gate, issuer: &str) {
    let sample = format!("portcullis_issuer_fetches_total{{issuer=\"{issuer}\",result=\"ok\"}}");
    wait_for(&sample, || gate.gateway.metric(&sample) > 0.5);
}

/// A good token of this issuer for `/mcp/up`.
fn token(gate: &Gate, issuer: &Issuer) -> String {
    issuer.token(&gate.gateway.url("up"), &json!({}))
}

/// A call of `echo` with this token.
fn echo(token: &str) -> Request {
    Request::mcp("/mcp/up", call("echo", "{}")).bearer(token)
}

fn invalid() -> Refused {
    error(401, -32600, "token.invalid")
}

/// Its issuer's keys are not known.
fn unavailable() -> Refused {
    error(503, 31503, "token.unavailable")
}
