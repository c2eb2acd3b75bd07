//! Whether there is anybody who could approve what a rule holds. Where there is not, the gateway does not start: a hold
//! that can only run out looks like a safeguard and is a dead tool.

use super::lint::{User, may_ask};
use crate::config::{self, Hold, Path, Problem, Rule};
use std::collections::BTreeSet;

const HINT: &str = "name another approver, or write `self: true`: then they may approve their own calls with the password entered afresh";

/// Holds that nobody could approve, as errors, and those that some requesters' calls could not get past, as warnings.
///
/// `users` are all that the gateway knows, since only they can approve. `has_issuers`: others than they may ask as well.
pub fn unapprovable(config: &config::Policy, users: &[(String, Vec<String>)], has_issuers: bool) -> Vec<Problem> {
    let path = Path::root().key("policy").key("rules");
    let holds = config.rules.iter().enumerate().filter_map(|(at, rule)| Some((at, rule, rule.hold.as_ref()?)));
    holds.filter_map(|(at, rule, hold)| cannot_be_approved(rule, hold, users, has_issuers, &path.index(at))).collect()
}

/// A hold that would only run out.
fn cannot_be_approved(rule: &Rule, hold: &Hold, users: &[User], has_issuers: bool, path: &Path) -> Option<Problem> {
    let at = path.key("hold").key("approvers");
    let is_approver = |(name, groups): &&User| {
        hold.approvers.users.contains(name) || groups.iter().any(|group| hold.approvers.groups.contains(group))
    };
    let approvers: BTreeSet<&str> = users.iter().filter(is_approver).map(|(name, _)| name.as_str()).collect();
    let (name, n_needed) = (&rule.name, usize::try_from(hold.quorum).unwrap_or(usize::MAX).max(1));
    if approvers.is_empty() {
        return Some(
            Problem::new(at, format!("nobody known here could approve what rule `{name}` holds"))
                .hint("name a user that exists, or a group that one is in"),
        );
    }
    if approvers.len() < n_needed {
        let message = format!("rule `{name}` needs {n_needed} people, and {} could approve", approvers.len());
        return Some(Problem::new(path.key("hold").key("quorum"), message).hint("lower it, or name more approvers"));
    }
    if hold.by_requester || approvers.len() > n_needed {
        return None;
    }
    // Everybody else among them would have to approve, and one of them asked.
    let requesters: BTreeSet<&str> =
        users.iter().filter(|user| may_ask(rule.who.as_ref(), user)).map(|(name, _)| name.as_str()).collect();
    let stuck: Vec<String> = approvers.intersection(&requesters).map(|name| format!("`{name}`")).collect();
    let stuck_names = stuck.join(", ");
    if stuck.is_empty() {
        return None;
    }
    if stuck.len() < requesters.len() || has_issuers {
        let who = if approvers.len() == 1 { "who is its only approver" } else { "who are all needed to approve it" };
        let message = format!("nobody could approve what rule `{name}` holds of {stuck_names}, {who}");
        return Some(Problem::warning(at, message).hint(HINT));
    }
    let message =
        format!("only {stuck_names} could approve what rule `{name}` holds, and only {stuck_names} can ask for it");
    Some(Problem::new(at, message).hint(HINT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::written;

    #[track_caller]
    fn check(rule: &str, expected: &str) {
        check_with(rule, false, expected);
    }

    #[track_caller]
    fn check_with(rule: &str, has_issuers: bool, expected: &str) {
        let groups = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let users = [("alice".to_owned(), groups(&["admins", "ops"])), ("bob".to_owned(), groups(&["ops"]))];
        let found = unapprovable(&written(&format!("rules: [{rule}]")), &users, has_issuers);
        let found: Vec<String> = found.iter().map(|it| format!("{} {}: {}", kind(it), it.path, it.message)).collect();
        assert_eq!(found.join("\n"), expected, "{rule}");
    }

    fn kind(problem: &Problem) -> &'static str {
        if problem.is_error() { "error" } else { "warning" }
    }

    fn hold(rest: &str, approvers: &str) -> String {
        format!("{{ name: h, tools: ['u/t'], {rest} hold: {{ approvers: {approvers} }} }}")
    }

    #[test]
    fn a_hold_needs_an_approver_who_did_not_ask() {
        check(&hold("", "{ groups: [ops] }"), "");
        check(&hold("who: { users: [bob] },", "{ groups: [admins] }"), "");
        check(
            &hold("", "{ users: [carol], groups: [nobody] }"),
            "error policy.rules[0].hold.approvers: nobody known here could approve what rule `h` holds",
        );
        check(
            &hold("who: { groups: [admins] },", "{ users: [alice] }"),
            "error policy.rules[0].hold.approvers: only `alice` could approve what rule `h` holds, and only `alice` can ask for it",
        );
        check(&hold("who: { groups: [admins] },", "{ users: [alice] }, self: true"), "");
        check(
            &hold("", "{ users: [alice] }"),
            "warning policy.rules[0].hold.approvers: nobody could approve what rule `h` holds of `alice`, who is its only approver",
        );
        check_with(
            &hold("who: { groups: [admins] },", "{ users: [alice] }"),
            true,
            "warning policy.rules[0].hold.approvers: nobody could approve what rule `h` holds of `alice`, who is its only approver",
        );
    }

    #[test]
    fn a_quorum_is_reached_by_people_who_are_there_and_did_not_ask() {
        check(
            &hold("", "{ groups: [ops] }, quorum: 3"),
            "error policy.rules[0].hold.quorum: rule `h` needs 3 people, and 2 could approve",
        );
        check(&hold("", "{ groups: [ops] }, quorum: 2, self: true"), "");
        check(
            &hold("", "{ groups: [ops] }, quorum: 2"),
            "error policy.rules[0].hold.approvers: only `alice`, `bob` could approve what rule `h` holds, and only `alice`, `bob` can ask for it",
        );
    }
}
