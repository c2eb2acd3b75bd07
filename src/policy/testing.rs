//! What the unit tests of this module share: a policy from YAML, a principal, a decision in a word.

use super::{Decision, Object, Policy, Request, Why};
use crate::config::{self, Problem};
use crate::identity::{Principal, Subject};
use crate::jsonrpc::{Node, Span};

/// The rules of `policy`, as YAML.
pub(super) fn written(yaml: &str) -> config::Policy {
    serde_saphyr::from_str(yaml).expect("the test's YAML is a policy")
}

#[track_caller]
pub(super) fn policy(yaml: &str) -> Policy {
    match Policy::compile(&written(yaml)) {
        Ok(policy) => policy,
        Err(problems) => panic!("the test's policy has problems: {problems:#?}"),
    }
}

/// A user of this gateway with the base scope.
pub(super) fn user(name: &str, groups: &[&str]) -> Principal {
    Principal {
        issuer: "https://gateway.test".into(),
        subject: Subject::User(name.into()),
        client: "cli".into(),
        scopes: vec!["mcp".to_owned()].into(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        claimed: [].into(),
        grant: None,
        is_local: true,
        person: Some(name.into()),
    }
}

pub(super) fn with_scopes(principal: Principal, scopes: &[&str]) -> Principal {
    Principal { scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(), ..principal }
}

/// Calls the tool `upstream/name` with arguments as JSON text; none where the text is empty.
pub(super) fn decide(policy: &Policy, principal: &Principal, tool: &str, arguments: &str) -> Decision {
    let (upstream, name) = tool.split_once('/').expect("upstream/name");
    policy.decide(&request(principal, upstream, Object::Tool(name), arguments))
}

pub(super) fn request<'a>(
    principal: &'a Principal,
    upstream: &'a str,
    object: Object<'a>,
    arguments: &'a str,
) -> Request<'a> {
    let whole = Span { start: 0, end: arguments.len() };
    Request {
        principal,
        upstream,
        object,
        arguments: (!arguments.is_empty()).then(|| Node::of(arguments.as_bytes(), whole)),
    }
}

/// `allowed`, `held`, or why it is denied.
pub(super) fn word(decision: &Decision) -> &'static str {
    match decision {
        Decision::Allowed(_) => "allowed",
        Decision::Held(_) => "held",
        Decision::Denied(denied) => match denied.why {
            Why::Unlisted => "unlisted",
            Why::Arguments { .. } => "arguments",
            Why::Scope { .. } => "scope",
        },
    }
}

/// `path: message`, one a line.
pub(super) fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
    lines.join("\n")
}
