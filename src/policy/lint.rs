//! What compiles and still cannot be meant: dead ends (errors), and what looks forgotten (warnings).

use super::condition::Pointer;
use super::pattern::Pattern;
use crate::config::{self, Condition, Path, Problem, Rule, Who};
use std::collections::BTreeSet;

/// A user and the groups they are in.
pub(super) type User = (String, Vec<String>);

/// Names of arguments that hold text for a shell.
const SHELL_NAMES: [&str; 4] = ["command", "cmd", "script", "shell"];

/// Everything in a policy that leads nowhere, as errors, and what looks forgotten, as warnings.
///
/// For a policy that compiles; of one that does not, only the rules that can be read are judged.
/// Whether what is held could be approved is judged by `unapprovable`.
pub fn lint(config: &config::Policy) -> Vec<Problem> {
    let path = Path::root().key("policy").key("rules");
    let mut problems = Vec::new();
    if !config.rules.is_empty() && config.rules.iter().all(|rule| rule.deny.is_some()) {
        problems.push(Problem::warning(&path, "all rules deny, so nothing is ever allowed"));
    }
    for (at, rule) in config.rules.iter().enumerate() {
        let here = path.index(at);
        problems.extend(never_decides(rule, &config.rules, &here));
        for (pointer, condition) in &rule.when {
            let here = here.key("when").key(pointer);
            problems.extend(forgets_absence(rule, condition, pointer, &here));
            problems.extend(reads_shell(condition, pointer, &here));
        }
    }
    problems
}

// === Dead ends ===

/// A rule all of whose objects a stronger rule takes, whatever the arguments.
fn never_decides(rule: &Rule, rules: &[Rule], path: &Path) -> Option<Problem> {
    if rule.deny.is_some() {
        return None;
    }
    let denies = covering(rule, rules, |other| other.deny.is_some());
    if let Some(names) = denies {
        let message = format!("rule `{}` can never match: {names} denies all that it names", rule.name);
        return Some(Problem::new(path, message).hint("remove it, or narrow the deny"));
    }
    let holds = covering(rule, rules, |other| rule.allow.is_some() && other.hold.is_some());
    holds.map(|names| {
        let message = format!("rule `{}` allows nothing: {names} holds all that it names", rule.name);
        Problem::warning(path, message)
            .hint("hold beats allow, in whatever order they stand: narrow the hold, or remove this rule")
    })
}

/// The unconditional rules among `rules` that together take every object of `rule`, if they do.
fn covering(rule: &Rule, rules: &[Rule], is_stronger: impl Fn(&Rule) -> bool) -> Option<String> {
    let is_cover =
        |other: &&Rule| is_stronger(other) && other.when.is_empty() && includes(other.who.as_ref(), rule.who.as_ref());
    let kinds: [fn(&Rule) -> &[String]; 3] = [|r| &r.tools, |r| &r.resources, |r| &r.prompts];
    let mut names = BTreeSet::new();
    for kind in kinds {
        for narrow in kind(rule) {
            let cover =
                rules.iter().filter(is_cover).find(|other| kind(other).iter().any(|wide| is_within(narrow, wide)))?;
            names.insert(format!("`{}`", cover.name));
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    (!names.is_empty()).then(|| names.join(" or "))
}

/// Whether all that `narrow` matches, `wide` matches too.
///
/// A `*` of `narrow`, read as a plain character, is one that only a `*` of `wide` can take: it stands for any text.
pub(super) fn is_within(narrow: &str, wide: &str) -> bool {
    match (narrow.split_once('/'), Pattern::parse(wide)) {
        (Some((upstream, name)), Ok(wide)) => wide.matches(upstream, name),
        _ => false,
    }
}

/// Whether all who are meant by `narrow` are meant by `wide`.
fn includes(wide: Option<&Who>, narrow: Option<&Who>) -> bool {
    let Some(wide) = wide else { return true };
    let of_narrow = |list: fn(&Who) -> Option<&Vec<String>>| narrow.and_then(list);
    let is_part = |narrow: Option<&Vec<String>>, wide: &Option<Vec<String>>| match (narrow, wide) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(narrow), Some(wide)) => narrow.iter().all(|name| wide.contains(name)),
    };
    let carries = match (&wide.scopes, of_narrow(|who| who.scopes.as_ref())) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide.iter().all(|scope| narrow.contains(scope)),
    };
    carries
        && is_part(of_narrow(|who| who.users.as_ref()), &wide.users)
        && is_part(of_narrow(|who| who.groups.as_ref()), &wide.groups)
        && is_part(of_narrow(|who| who.clients.as_ref()), &wide.clients)
}

pub(super) fn may_ask(who: Option<&Who>, (name, groups): &User) -> bool {
    who.is_none_or(|who| {
        who.users.as_ref().is_none_or(|users| users.contains(name))
            && who.groups.as_ref().is_none_or(|wanted| groups.iter().any(|group| wanted.contains(group)))
    })
}

// === What looks forgotten ===

/// A deny that an agent escapes by leaving the argument out, where the upstream has a default of its own.
fn forgets_absence(rule: &Rule, condition: &Condition, pointer: &str, path: &Path) -> Option<Problem> {
    let effect = match (&rule.deny, &rule.hold) {
        (Some(_), _) => "deny",
        (_, Some(_)) => "hold",
        _ => return None,
    };
    if condition.or_absent || condition.present.is_some() {
        return None;
    }
    let message = format!("{effect} `{}` does not match a call without `{pointer}`", rule.name);
    Some(Problem::warning(path, message).hint(
        "write `or_absent: true`, unless leaving the argument out is harmless whatever the upstream then assumes",
    ))
}

fn reads_shell(condition: &Condition, pointer: &str, path: &Path) -> Option<Problem> {
    let key = match (&condition.matches, &condition.not_matches) {
        (Some(_), _) => "matches",
        (_, Some(_)) => "not_matches",
        _ => return None,
    };
    let pointer = Pointer::parse(pointer).ok()?;
    let is_shell = pointer.tokens.iter().any(|token| SHELL_NAMES.iter().any(|name| token.eq_ignore_ascii_case(name)));
    is_shell.then(|| {
        let message = format!("a regular expression on `{}` is a signal for people, not a boundary", pointer.text);
        Problem::warning(path.key(key), message)
            .hint("a shell can write any command in other characters; the boundary is what the upstream is confined to")
    })
}

#[cfg(test)]
mod tests {
    use super::lint;
    use crate::policy::testing::written;

    #[track_caller]
    fn check(rules: &str, expected: &str) {
        let found: Vec<String> = lint(&written(&format!("rules: [{rules}]")))
            .iter()
            .map(|problem| {
                let kind = if problem.is_error() { "error" } else { "warning" };
                format!("{kind} {}: {}", problem.path, problem.message)
            })
            .collect();
        assert_eq!(found.join("\n"), expected);
    }

    #[test]
    fn a_rule_below_an_unconditional_deny_is_a_dead_end() {
        check(
            "{ name: a, tools: ['u/get_*'], allow: {} }, { name: d, tools: ['*/get*'], deny: {} }",
            "error policy.rules[0]: rule `a` can never match: `d` denies all that it names",
        );
        check(
            "{ name: a, tools: ['u/x', 'u/y'], who: { groups: [ops] }, allow: {} }, \
             { name: d, tools: ['u/x'], deny: {} }, { name: e, tools: ['*/y'], who: { groups: [ops, x] }, deny: {} }",
            "error policy.rules[0]: rule `a` can never match: `d` or `e` denies all that it names",
        );
    }

    #[test]
    fn a_rule_that_a_deny_takes_only_in_part_is_none() {
        for deny in [
            "tools: ['u/get_*_x'], deny: {}",
            "tools: ['u/*'], who: { groups: [x] }, deny: {}",
            "tools: ['u/*'], who: { scopes: [x] }, deny: {}",
            "tools: ['u/*'], when: { /x: { present: true } }, deny: {}",
            "resources: ['u/*'], deny: {}",
        ] {
            check(
                &format!(
                    "{{ name: a, tools: ['u/get_*'], who: {{ groups: [ops] }}, allow: {{}} }}, {{ name: d, {deny} }}"
                ),
                "",
            );
        }
    }

    #[test]
    fn an_allow_below_an_unconditional_hold_is_pointed_out() {
        check(
            "{ name: a, tools: ['u/status'], allow: {} }, { name: h, tools: ['u/*'], hold: { approvers: { groups: [ops] } } }",
            "warning policy.rules[0]: rule `a` allows nothing: `h` holds all that it names",
        );
    }

    #[test]
    fn a_policy_of_denies_is_pointed_out() {
        check(
            "{ name: d, tools: ['u/*'], deny: {} }",
            "warning policy.rules: all rules deny, so nothing is ever allowed",
        );
    }

    #[test]
    fn a_deny_that_forgets_absence_is_pointed_out() {
        let allow = "{ name: a, tools: ['u/*'], allow: {} }";
        check(
            &format!("{allow}, {{ name: d, tools: ['u/t'], when: {{ /env: {{ equals: prod }} }}, deny: {{}} }}"),
            "warning policy.rules[1].when./env: deny `d` does not match a call without `/env`",
        );
        check(
            &format!(
                "{allow}, {{ name: d, tools: ['u/t'], when: {{ /env: {{ equals: prod, or_absent: true }}, /x: {{ present: true }} }}, deny: {{}} }}"
            ),
            "",
        );
    }

    #[test]
    fn a_pattern_on_shell_text_is_called_a_signal() {
        check(
            "{ name: a, tools: ['u/t'], when: { /Command: { matches: 'ls.*' } }, allow: {} }",
            "warning policy.rules[0].when./Command.matches: a regular expression on `/Command` is a signal for people, not a boundary",
        );
        check("{ name: a, tools: ['u/t'], when: { /path: { matches: '/srv/.*' } }, allow: {} }", "");
    }
}
