//! From the rules as written to rules that can be asked, or everything that is wrong with them at once.

#[cfg(test)]
mod tests;
mod when;

use super::Policy;
use super::decision::{Approvers, Hold, Signal};
use super::index::Index;
use super::pattern::Pattern;
use super::rule::{Effect, Rule};
use super::who::Who;
use crate::config::{self, Path, Problem};
use regex::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::Arc;

/// A compiled regular expression may take this much. It also bounds what matching costs per character.
const REGEX_BYTES_MAX: usize = 2 << 20;

impl Policy {
    /// Compiles the rules. Fails with every problem in them, each with its path from the root of the file.
    pub fn compile(config: &config::Policy) -> Result<Policy, Vec<Problem>> {
        let path = Path::root().key("policy").key("rules");
        let mut problems = Vec::new();
        if config.rules.is_empty() {
            problems.push(
                Problem::new(&path, "there are no rules")
                    .hint("nothing matched means denied, so at least one rule must allow something"),
            );
        }
        check_names(&config.rules, &path, &mut problems);
        let rules: Vec<Arc<Rule>> = config
            .rules
            .iter()
            .enumerate()
            .filter_map(|(at, rule)| compile_rule(rule, &path.index(at), &mut problems))
            .map(Arc::new)
            .collect();
        if problems.is_empty() { Ok(Policy { index: Index::new(&rules), rules }) } else { Err(problems) }
    }
}

/// Names are how audit records and approvers tell rules apart.
fn check_names(rules: &[config::Rule], path: &Path, problems: &mut Vec<Problem>) {
    let mut first_with: HashMap<&str, usize> = HashMap::new();
    for (at, rule) in rules.iter().enumerate() {
        let here = path.index(at).key("name");
        if rule.name.trim().is_empty() {
            problems.push(Problem::new(here, "the rule has an empty name"));
        } else if let Some(first) = first_with.get(&*rule.name) {
            let message = format!("another rule, `rules[{first}]`, is called `{}` too", rule.name);
            problems.push(Problem::new(here, message));
        } else {
            first_with.insert(&rule.name, at);
        }
    }
}

/// `None` only beside a problem.
fn compile_rule(rule: &config::Rule, path: &Path, problems: &mut Vec<Problem>) -> Option<Rule> {
    let is_about_nothing = rule.tools.is_empty() && rule.resources.is_empty() && rule.prompts.is_empty();
    if is_about_nothing {
        problems.push(
            Problem::new(path, format!("rule `{}` is about nothing", rule.name))
                .hint("say what it is about: `tools`, `resources` or `prompts`, each a list of `upstream/name`"),
        );
    }
    if !rule.resources.is_empty() && !rule.when.is_empty() {
        problems.push(
            Problem::new(path.key("when"), "resources have no arguments that a condition could ask for")
                .hint("put the resources into a rule without `when`; a pattern can narrow the URI"),
        );
    }
    let effect = compile_effect(rule, path, problems);
    let is_allow = rule.allow.is_some();
    Some(Rule {
        name: rule.name.as_str().into(),
        tools: compile_patterns(&rule.tools, &path.key("tools"), problems),
        resources: compile_patterns(&rule.resources, &path.key("resources"), problems),
        prompts: compile_patterns(&rule.prompts, &path.key("prompts"), problems),
        who: compile_who(rule, &path.key("who"), problems),
        when: when::compile(&rule.when, is_allow, &path.key("when"), problems),
        effect: effect?,
        digest: digest(rule),
    })
}

/// Of everything that is written in the rule, in the order of its fields.
fn digest(rule: &config::Rule) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{rule:?}").as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

pub(super) fn compile_patterns(texts: &[String], path: &Path, problems: &mut Vec<Problem>) -> Box<[Pattern]> {
    let mut patterns = Vec::with_capacity(texts.len());
    for (at, text) in texts.iter().enumerate() {
        match Pattern::parse(text) {
            Ok(pattern) => patterns.push(pattern),
            Err(what) => problems.push(
                Problem::new(path.index(at), format!("the pattern `{text}` {what}"))
                    .hint("write `upstream/name`; `*` stands for any characters, `*/*` for everything"),
            ),
        }
    }
    patterns.into()
}

fn compile_who(rule: &config::Rule, path: &Path, problems: &mut Vec<Problem>) -> Who {
    let is_of_deny = rule.deny.is_some();
    let Some(who) = &rule.who else {
        return Who { is_of_deny, ..Who::default() };
    };
    let lists = [("users", &who.users), ("groups", &who.groups), ("clients", &who.clients), ("scopes", &who.scopes)];
    if lists.iter().all(|(_, list)| list.is_none()) {
        problems.push(
            Problem::new(path, "`who` names nobody")
                .hint("leave `who` out for everybody, or name `users`, `groups`, `clients` or `scopes`"),
        );
    }
    for (key, list) in lists {
        check_who_list(key, list.as_deref(), &path.key(key), problems);
    }
    let list = |names: &Option<Vec<String>>| names.as_deref().map(boxed);
    Who {
        users: list(&who.users),
        groups: list(&who.groups),
        clients: list(&who.clients),
        scopes: list(&who.scopes).unwrap_or_default(),
        is_of_deny,
    }
}

fn check_who_list(key: &str, list: Option<&[String]>, path: &Path, problems: &mut Vec<Problem>) {
    let Some(list) = list else { return };
    if list.is_empty() {
        problems.push(Problem::new(path, format!("`{key}` is an empty list, which nobody is in")));
    }
    for (at, name) in list.iter().enumerate() {
        if key == "scopes" && !is_scope_token(name) {
            problems.push(Problem::new(path.index(at), format!("`{name}` is not a scope")).hint(
                "a scope is one or more printable ASCII characters without space, `\"` and `\\` (RFC 6749 §3.3)",
            ));
        } else if name.is_empty() {
            problems.push(Problem::new(path.index(at), format!("`{key}` has an empty name")));
        }
    }
}

/// RFC 6749 §3.3: `1*( %x21 / %x23-5B / %x5D-7E )`.
fn is_scope_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

/// Exactly one of `allow`, `deny`, `hold`.
fn compile_effect(rule: &config::Rule, path: &Path, problems: &mut Vec<Problem>) -> Option<Effect> {
    match (&rule.allow, &rule.deny, &rule.hold) {
        (Some(allow), None, None) => Some(Effect::Allow { reads: allow.reads }),
        (None, Some(deny), None) => Some(Effect::Deny { reason: deny.reason.as_deref().map(Box::from) }),
        (None, None, Some(hold)) => {
            check_hold(rule, hold, path, problems);
            let signals = compile_signals(hold, &path.key("hold").key("signals"), problems);
            Some(Effect::Hold(Hold {
                approvers: vec![Approvers {
                    users: hold.approvers.users.iter().cloned().collect(),
                    groups: hold.approvers.groups.iter().cloned().collect(),
                    quorum: hold.quorum,
                }],
                by_requester: hold.by_requester,
                signals,
                mask: hold.mask.iter().cloned().collect(),
                expires: hold.expires.map(config::Period::duration),
                valid_for: hold.valid_for.map(config::Period::duration),
                wait: hold.wait.map(config::Period::duration),
            }))
        }
        (None, None, None) => {
            problems.push(
                Problem::new(path, format!("rule `{}` does not say what to do", rule.name))
                    .hint("write exactly one of `allow: {}`, `deny: {}` and `hold: {…}`"),
            );
            None
        }
        _ => {
            problems.push(
                Problem::new(path, format!("rule `{}` says more than one of `allow`, `deny` and `hold`", rule.name))
                    .hint("write one rule for each; deny beats hold beats allow"),
            );
            None
        }
    }
}

fn check_hold(rule: &config::Rule, hold: &config::Hold, path: &Path, problems: &mut Vec<Problem>) {
    for (key, patterns) in [("resources", &rule.resources), ("prompts", &rule.prompts)] {
        if !patterns.is_empty() {
            problems.push(
                Problem::new(path.key(key), format!("{key} cannot be held"))
                    .hint("only tool calls can wait for a person; allow or deny the rest in another rule"),
            );
        }
    }
    let approvers = path.key("hold").key("approvers");
    let lists = [("users", &hold.approvers.users), ("groups", &hold.approvers.groups)];
    if lists.iter().all(|(_, list)| list.is_empty()) {
        problems.push(
            Problem::new(&approvers, format!("rule `{}` names nobody who may approve", rule.name))
                .hint("name `users`, `groups` or both"),
        );
    }
    for (key, list) in lists {
        for (at, _) in list.iter().enumerate().filter(|(_, name)| name.is_empty()) {
            problems.push(Problem::new(approvers.key(key).index(at), format!("`{key}` has an empty name")));
        }
    }
}

fn compile_signals(hold: &config::Hold, path: &Path, problems: &mut Vec<Problem>) -> Vec<Signal> {
    let mut signals = Vec::with_capacity(hold.signals.len());
    for (name, pattern) in &hold.signals {
        match build_regex(pattern, true) {
            Ok(pattern) => signals.push(Signal { name: name.as_str().into(), pattern }),
            Err(what) => problems.push(Problem::new(path.key(name), what)),
        }
    }
    signals
}

/// Finds `pattern` anywhere. `dot_takes_newlines` is what `(?s)` says.
fn build_regex(pattern: &str, dot_takes_newlines: bool) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).dot_matches_new_line(dot_takes_newlines).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(limit) => {
            format!("the regular expression takes more than {limit} bytes when compiled; use smaller repetitions")
        }
        error => {
            // The crate draws the pattern over several lines; its last one says what is wrong.
            let text = error.to_string();
            let what = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("`{pattern}` is not a regular expression: {what}")
        }
    })
}

fn boxed(names: &[String]) -> Box<[Box<str>]> {
    names.iter().map(|name| name.as_str().into()).collect()
}
