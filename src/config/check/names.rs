//! Names: of users, groups and upstreams, where they are given and where they are used.

use super::Known;
use crate::config::nearest::did_you_mean;
use crate::config::problem::{Path, Problem};
use crate::config::{Config, Rule, User};
use argon2::{ARGON2ID_IDENT, Params, PasswordHash};
use std::collections::BTreeSet;

pub(super) fn check(config: &Config, known: Known<'_>, problems: &mut Vec<Problem>) {
    users(config, known, problems);
    let names = Names::of(config, known);
    for (at, rule) in config.policy.rules.iter().enumerate() {
        let path = Path::root().key("policy").key("rules").index(at);
        objects(rule, &path, &names, problems);
        people(rule, &path, &names, problems);
    }
    tests(config, &names, problems);
}

/// All names there are.
struct Names<'a> {
    upstreams: BTreeSet<&'a str>,
    users: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn of(config: &'a Config, known: Known<'a>) -> Self {
        let users = &config.identity.users;
        let ours = users.iter().map(|user| user.name.as_str());
        let groups = users.iter().flat_map(|user| &user.groups);
        let groups = groups.chain(config.identity.issuers.iter().flat_map(|issuer| issuer.groups.values()));
        Names {
            upstreams: config.upstreams.keys().map(String::as_str).collect(),
            users: ours.chain(known.users.iter().copied()).collect(),
            groups: groups.map(String::as_str).chain(known.groups.iter().copied()).collect(),
        }
    }
}

// === Users ===

fn users(config: &Config, known: Known<'_>, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (at, user) in config.identity.users.iter().enumerate() {
        let path = Path::root().key("identity").key("users").index(at);
        let name = user.name.as_str();
        if !is_user_name(name) {
            problems.push(
                Problem::new(path.key("name"), format!("`{name}` is no user name"))
                    .hint("1 to 64 of `a-z`, `0-9` and `._@-`"),
            );
        }
        if !seen.insert(name) {
            problems.push(Problem::new(path.key("name"), format!("user `{name}` stands twice")));
        } else if known.users.contains(&name) {
            problems.push(
                Problem::new(path.key("name"), format!("user `{name}` is in `data_dir/users.yaml` too"))
                    .hint("keep one of the two; `portcullis user` changes the other file"),
            );
        }
        password(user, &path.key("password_hash"), problems);
        for (at, group) in user.groups.iter().enumerate() {
            if group.trim() != group || group.is_empty() {
                let path = path.key("groups").index(at);
                problems.push(Problem::new(path, format!("`{group}` is no group name")));
            }
        }
    }
}

fn is_user_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._@-".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(is_allowed)
}

/// Guessing a password costs an attacker this much memory a guess at least, in KiB (OWASP's lowest for Argon2id).
const MEMORY_KIB_MIN: u32 = 7 * 1024;
/// A login may not cost us more than this, in KiB: a wrong password costs the same.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;

/// The hash itself is not repeated in messages: it is half a password.
fn password(user: &User, path: &Path, problems: &mut Vec<Problem>) {
    const HINT: &str = "run `portcullis user hash` and paste what it prints, in quotes";
    let params = PasswordHash::new(&user.password_hash)
        .ok()
        .filter(|hash| hash.algorithm == ARGON2ID_IDENT && hash.salt.is_some() && hash.hash.is_some());
    let params = params.and_then(|hash| Params::try_from(&hash).ok());
    let Some(params) = params else {
        let message = if user.password_hash.contains(['…', '<']) || user.password_hash.contains("...") {
            "this stands for a password hash, but is none"
        } else {
            "not an Argon2id hash"
        };
        problems.push(Problem::new(path, message).hint(HINT));
        return;
    };
    let memory = params.m_cost();
    if memory > MEMORY_KIB_MAX {
        let message = format!("this hash takes {memory} KiB of memory to check");
        problems.push(Problem::new(path, message).hint(HINT));
    } else if memory < MEMORY_KIB_MIN {
        let message = format!("this hash is cheap to guess: it takes only {memory} KiB of memory");
        problems.push(Problem::warning(path, message).hint(HINT));
    }
}

// === Rules ===

fn objects(rule: &Rule, path: &Path, names: &Names<'_>, problems: &mut Vec<Problem>) {
    for (key, patterns) in [("tools", &rule.tools), ("resources", &rule.resources), ("prompts", &rule.prompts)] {
        for (at, pattern) in patterns.iter().enumerate() {
            let path = path.key(key).index(at);
            problems.extend(unknown(pattern, path, &names.upstreams));
        }
    }
}

/// Whether the half before the first `/` matches no upstream. A pattern without `/` is `policy`'s to refuse.
pub(super) fn unknown_upstream(config: &Config, pattern: &str, path: Path) -> Option<Problem> {
    unknown(pattern, path, &config.upstreams.keys().map(String::as_str).collect())
}

fn unknown(pattern: &str, path: Path, upstreams: &BTreeSet<&str>) -> Option<Problem> {
    let (upstream, _) = pattern.split_once('/')?;
    let mut all = upstreams.iter().copied();
    if all.any(|name| matches(upstream, name)) {
        return None;
    }
    if upstream.contains('*') {
        let message = format!("no upstream matches `{upstream}`");
        return Some(Problem::new(path, message).hint(known("upstreams", upstreams)));
    }
    let hint = did_you_mean(upstream, upstreams.iter().copied()).unwrap_or_else(|| known("upstreams", upstreams));
    Some(Problem::new(path, format!("unknown upstream `{upstream}`")).hint(hint))
}

/// `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(head) else {
        return false;
    };
    // The star takes as little as it can, then one more, and so on.
    name.char_indices()
        .map(|(at, _)| at)
        .chain([name.len()])
        .any(|at| matches(rest, name.get(at..).unwrap_or_default()))
}

/// Only warnings: users and groups may come later, or from elsewhere.
fn people(rule: &Rule, path: &Path, names: &Names<'_>, problems: &mut Vec<Problem>) {
    let mut unknown = |what: &str, wanted: &[String], all: &BTreeSet<&str>, path: Path| {
        for (at, name) in wanted.iter().enumerate() {
            if !all.contains(name.as_str()) {
                let hint = did_you_mean(name, all.iter().copied());
                let message = format!("unknown {what} `{name}`");
                problems.push(Problem::warning(path.index(at), message).maybe_hint(hint));
            }
        }
    };
    if let Some(who) = &rule.who {
        let path = path.key("who");
        let users = who.users.as_deref().unwrap_or_default();
        let groups = who.groups.as_deref().unwrap_or_default();
        unknown("user", users, &names.users, path.key("users"));
        unknown("group", groups, &names.groups, path.key("groups"));
    }
    if let Some(hold) = &rule.hold {
        let path = path.key("hold").key("approvers");
        let approvers = &hold.approvers;
        unknown("user", &approvers.users, &names.users, path.key("users"));
        unknown("group", &approvers.groups, &names.groups, path.key("groups"));
    }
}

fn tests(config: &Config, names: &Names<'_>, problems: &mut Vec<Problem>) {
    for (at, test) in config.policy.tests.iter().enumerate() {
        let path = Path::root().key("policy").key("tests").index(at);
        for (key, object) in [("tool", &test.tool), ("resource", &test.resource), ("prompt", &test.prompt)] {
            let object = object.as_deref().unwrap_or_default();
            problems.extend(unknown(object, path.key(key), &names.upstreams));
        }
    }
}

fn known(what: &str, names: &BTreeSet<&str>) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("{what}: {}", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "axbybc", true),
            ("a*d", "abc", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
