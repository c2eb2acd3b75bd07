//! What a policy promises, seen from outside: laws over generated policies, and named attacks.

mod attacks;
mod docs;
mod laws;
mod model;

use portcullis::config;
use portcullis::identity::{Principal, Subject};
use portcullis::jsonrpc::{Node, Span};
use portcullis::policy::{Decision, Object, Policy, Request, Why};

/// The rules of `policy`, as YAML.
#[track_caller]
fn compiled(yaml: &str) -> Policy {
    let written: config::Policy = serde_saphyr::from_str(yaml).expect("the test's YAML is a policy");
    Policy::compile(&written).expect("the test's policy has no problems")
}

/// A user of this gateway with the base scope and no groups.
fn alice() -> Principal {
    principal("alice", &[], &["mcp"])
}

fn principal(name: &str, groups: &[&str], scopes: &[&str]) -> Principal {
    Principal {
        issuer: "https://gateway.test".into(),
        subject: Subject::User(name.into()),
        client: "cli".into(),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        claimed: [].into(),
        grant: None,
        person: Some(name.into()),
        is_local: true,
    }
}

/// The decision on a tool call whose arguments are this JSON text; none where it is empty.
fn decide(policy: &Policy, principal: &Principal, tool: (&str, &str), arguments: &str) -> Decision {
    let whole = Span { start: 0, end: arguments.len() };
    policy.decide(&Request {
        principal,
        upstream: tool.0,
        object: Object::Tool(tool.1),
        arguments: (!arguments.is_empty()).then(|| Node::of(arguments.as_bytes(), whole)),
    })
}

/// A decision without the names of rules, which depend on their order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed { reads: bool },
    Held,
    Unlisted,
    Arguments,
    Scope(Vec<String>),
}

fn verdict(decision: &Decision) -> Verdict {
    match decision {
        Decision::Allowed(allowed) => Verdict::Allowed { reads: allowed.reads() },
        Decision::Held(_) => Verdict::Held,
        Decision::Denied(denied) => match &denied.why {
            Why::Unlisted => Verdict::Unlisted,
            Why::Arguments { .. } => Verdict::Arguments,
            Why::Scope { wanted } => Verdict::Scope(wanted.clone()),
        },
    }
}
