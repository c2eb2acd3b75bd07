//! Runs `policy.tests`: calls written beside the rules, with the decision they must get.

use super::{Decision, Object, Policy, Request};
use crate::config::{Expect, Path, PolicyTest, Problem};
use crate::identity::{Principal, Subject};
use crate::jsonrpc::{Node, Span};
use std::sync::Arc;

/// What a token carries where a test does not say.
const BASE_SCOPE: &str = "mcp";

impl Policy {
    /// Every test that does not get what it expects. `user_groups` tells the groups a user is in by configuration.
    pub fn run_tests(&self, tests: &[PolicyTest], user_groups: impl Fn(&str) -> Vec<String>) -> Vec<Problem> {
        let path = Path::root().key("policy").key("tests");
        tests
            .iter()
            .enumerate()
            .filter_map(|(at, test)| self.run_test(test, user_groups(&test.user), &path.index(at)))
            .collect()
    }

    fn run_test(&self, test: &PolicyTest, user_groups: Vec<String>, path: &Path) -> Option<Problem> {
        let (upstream, object) = match object(test) {
            Ok(found) => found,
            Err(what) => return Some(Problem::new(path, what)),
        };
        let principal = principal(test, user_groups);
        let text = serde_json::Value::Object(test.arguments.clone()).to_string();
        let whole = Span { start: 0, end: text.len() };
        let decision = self.decide(&Request {
            principal: &principal,
            upstream,
            object,
            arguments: (!test.arguments.is_empty()).then(|| Node::of(text.as_bytes(), whole)),
        });
        let got = match &decision {
            Decision::Allowed(_) => Expect::Allow,
            Decision::Denied(_) => Expect::Deny,
            Decision::Held(_) => Expect::Hold,
        };
        (got != test.expect).then(|| {
            let message = format!("expected `{}`, but the call is {decision}", word(test.expect));
            Problem::new(path.key("expect"), message).hint("`portcullis explain` tells how each rule stands to a call")
        })
    }
}

/// Exactly one of `tool`, `resource` and `prompt`, with its upstream.
fn object<'a>(test: &'a PolicyTest) -> Result<(&'a str, Object<'a>), String> {
    let (text, kind): (&'a str, fn(&'a str) -> Object<'a>) = match (&test.tool, &test.resource, &test.prompt) {
        (Some(text), None, None) => (text, Object::Tool),
        (None, Some(text), None) => (text, Object::Resource),
        (None, None, Some(text)) => (text, Object::Prompt),
        _ => {
            return Err("a test is about exactly one of `tool`, `resource` and `prompt`".to_owned());
        }
    };
    match text.split_once('/') {
        Some((upstream, name)) if !upstream.is_empty() && !name.is_empty() => Ok((upstream, kind(name))),
        _ => Err(format!("`{text}` is not of the form `upstream/name`")),
    }
}

fn principal(test: &PolicyTest, mut groups: Vec<String>) -> Principal {
    groups.extend(test.groups.iter().cloned());
    let scopes = match &test.scopes {
        Some(scopes) => scopes.clone(),
        None => vec![BASE_SCOPE.to_owned()],
    };
    Principal {
        issuer: Arc::from(""),
        subject: Subject::User(test.user.as_str().into()),
        client: test.client.as_deref().unwrap_or_default().into(),
        scopes: scopes.into(),
        groups: groups.into(),
        claimed: [].into(),
        grant: None,
        is_local: true,
        person: Some(test.user.as_str().into()),
    }
}

fn word(expect: Expect) -> &'static str {
    match expect {
        Expect::Allow => "allow",
        Expect::Deny => "deny",
        Expect::Hold => "hold",
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::testing::{lines, policy, written};

    /// Runs `tests` against two rules; alice is in group `ops`.
    #[track_caller]
    fn check(tests: &str, expected: &str) {
        let rules = "rules: [{ name: r, tools: ['u/*'], who: { groups: [ops] }, allow: {} }, \
            { name: d, tools: ['u/*'], when: { /x: { min: 5 } }, deny: { reason: too much } }]";
        let config = written(&format!("{rules}\ntests: {tests}"));

        let problems = policy(rules).run_tests(&config.tests, |user| {
            let groups: &[&str] = if user == "alice" { &["ops"] } else { &[] };
            groups.iter().map(|group| (*group).to_owned()).collect()
        });

        assert_eq!(lines(&problems), expected);
    }

    #[test]
    fn tests_that_get_what_they_expect_say_nothing() {
        check(
            "[{ tool: u/t, user: alice, expect: allow }, \
             { tool: u/t, user: alice, arguments: { x: 5 }, expect: deny }, \
             { tool: u/t, user: bob, groups: [ops], expect: allow }, \
             { resource: u/t, user: alice, expect: deny }, \
             { prompt: u/t, user: bob, expect: deny }]",
            "",
        );
    }

    #[test]
    fn a_failure_says_what_was_expected_and_which_rule_decided() {
        check(
            "[{ tool: u/t, user: alice, arguments: { x: 5 }, expect: allow }, { tool: u/t, user: alice, expect: hold }]",
            "policy.tests[0].expect: expected `allow`, but the call is denied by `d`: too much\n\
             policy.tests[1].expect: expected `hold`, but the call is allowed by `r`",
        );
    }

    #[test]
    fn a_test_is_about_one_object() {
        check(
            "[{ user: alice, expect: allow }, { tool: t, user: alice, expect: allow }]",
            "policy.tests[0]: a test is about exactly one of `tool`, `resource` and `prompt`\n\
             policy.tests[1]: `t` is not of the form `upstream/name`",
        );
    }
}
