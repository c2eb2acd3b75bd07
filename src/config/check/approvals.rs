//! Held calls: times that leave room for a person, values that are masked where they can be found, and webhooks that reach
//! somebody and may decide no more than was meant. Whether anybody could approve at all is judged by `policy`, which knows
//! everybody.

use super::Known;
use crate::config::origin::is_loopback;
use crate::config::problem::{Path, Problem};
use crate::config::{Approvers, Config, DecidesAs, Hold, Period, User, Webhook};
use std::collections::BTreeSet;
use std::time::Duration;
use url::Url;

/// Many clients give up after 60 s, and the answer has to reach them before.
const LONGEST_WAIT: Duration = Duration::from_secs(55);
/// Nobody remembers what they approve after this.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A receiver that takes longer is not there.
const LONGEST_DELIVERY: Duration = Duration::from_secs(60);
/// Calls of one principal that wait at once.
const MOST_PENDING: u32 = 1_000;
/// Receivers of every held call.
const MOST_WEBHOOKS: usize = 16;

pub(super) fn check(config: &Config, known: Known<'_>, problems: &mut Vec<Problem>) {
    let (path, approvals) = (Path::root().key("approvals"), &config.approvals);
    period(approvals.expires, path.key("expires"), problems);
    period(approvals.valid_for, path.key("valid_for"), problems);
    period(approvals.keep_result, path.key("keep_result"), problems);
    wait(approvals.wait, approvals.expires, path.key("wait"), problems);
    if !(1..=MOST_PENDING).contains(&approvals.pending) {
        let message = format!("`{}` is not between 1 and {MOST_PENDING}", approvals.pending);
        problems.push(Problem::new(path.key("pending"), message));
    }
    for (at, rule) in config.policy.rules.iter().enumerate() {
        if let Some(written) = &rule.hold {
            let path = Path::root().key("policy").key("rules").index(at).key("hold");
            hold(written, config, &path, problems);
        }
    }
    webhooks(config, known, problems);
}

// === Times ===

fn hold(hold: &Hold, config: &Config, path: &Path, problems: &mut Vec<Problem>) {
    for (key, given) in [("expires", hold.expires), ("valid_for", hold.valid_for)] {
        if let Some(given) = given {
            period(given, path.key(key), problems);
        }
    }
    let expires = hold.expires.unwrap_or(config.approvals.expires);
    match (hold.wait, hold.expires) {
        (Some(given), _) => wait(given, expires, path.key("wait"), problems),
        // The general one, where this rule has less time than others.
        (None, Some(_)) if config.approvals.wait.duration() > expires.duration() => {
            let message = format!("it is over before a caller has waited for `{}`", config.approvals.wait);
            problems.push(
                Problem::new(path.key("expires"), message).hint("make it longer, or give the rule a shorter `wait`"),
            );
        }
        _ => {}
    }
    for (at, pointer) in hold.mask.iter().enumerate() {
        if !is_pointer(pointer) {
            problems.push(
                Problem::new(path.key("mask").index(at), format!("`{pointer}` is no JSON Pointer"))
                    .hint("write `/password` or `/user/password`; a slash within a name is `~1`, a tilde `~0`"),
            );
        }
    }
}

fn period(period: Period, path: Path, problems: &mut Vec<Problem>) {
    if period.is_zero() {
        problems.push(Problem::new(path, "zero leaves no time at all"));
    } else if period.duration() > LONGEST {
        problems.push(Problem::new(path, format!("`{period}` is more than 30 days")));
    }
}

fn wait(wait: Period, expires: Period, path: Path, problems: &mut Vec<Problem>) {
    if wait.is_zero() {
        problems.push(
            Problem::new(path, "zero leaves no time at all")
                .hint("write `1s`: a caller is then told at once to call again"),
        );
    } else if wait.duration() > expires.duration() {
        let message = format!("a caller would wait for `{wait}`, and the call is over after `{expires}`");
        problems.push(Problem::new(path, message).hint("make it shorter than `expires`"));
    } else if wait.duration() > LONGEST_WAIT {
        problems.push(
            Problem::warning(path, format!("`{wait}` is longer than many clients wait"))
                .hint("most give up after 60 s, and then learn nothing; `45s` leaves room for the way back"),
        );
    }
}

/// RFC 6901 §3.
pub(super) fn is_pointer(text: &str) -> bool {
    let is_escaped = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    (text.is_empty() || text.starts_with('/')) && is_escaped
}

// === Webhooks ===

fn webhooks(config: &Config, known: Known<'_>, problems: &mut Vec<Problem>) {
    let (path, hooks) = (Path::root().key("approvals").key("webhooks"), &config.approvals.webhooks);
    if !hooks.is_empty() && config.admin.is_none() {
        problems.push(
            Problem::new(&path, "webhooks lead people to a page, and there is no `admin` listener")
                .at_key()
                .hint("add `admin: { listen: 127.0.0.1:9090 }`, with a `public_url` where approvers sit elsewhere"),
        );
    }
    if hooks.len() > MOST_WEBHOOKS {
        problems.push(Problem::new(&path, format!("{} webhooks are more than {MOST_WEBHOOKS}", hooks.len())));
    }
    let mut names = BTreeSet::new();
    for (at, hook) in hooks.iter().enumerate() {
        let path = path.index(at);
        if !is_name(&hook.name) {
            problems.push(
                Problem::new(path.key("name"), format!("`{}` is no name of a webhook", hook.name))
                    .hint("1 to 32 of `a-z`, `0-9` and `-`"),
            );
        } else if !names.insert(hook.name.as_str()) {
            problems.push(Problem::new(path.key("name"), format!("webhook `{}` stands twice", hook.name)));
        }
        if hook.timeout.is_zero() || hook.timeout.duration() > LONGEST_DELIVERY {
            let message = format!("`{}` is not between 1 ms and 60 s", hook.timeout);
            problems.push(Problem::new(path.key("timeout"), message));
        }
        problems.extend(url(hook, &path));
        decides_as(hook, config, known, &path, problems);
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=32).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn url(hook: &Webhook, path: &Path) -> Option<Problem> {
    let at = path.key("url");
    let Ok(url) = Url::parse(&hook.url) else {
        return Some(
            Problem::new(at, format!("`{}` is no URL", hook.url)).hint("write `https://chat.example.com/hook`"),
        );
    };
    match url.scheme() {
        "https" => None,
        "http" if hook.ca.is_some() => Some(Problem::new(path.key("ca"), "`ca` has no meaning for an `http://` URL")),
        "http" if url.host().is_some_and(|host| is_loopback(&host)) => None,
        "http" => Some(
            Problem::new(at, "what it is told could be read and changed on the way")
                .hint("write `https://`. Plain `http` works for this machine only"),
        ),
        _ => Some(Problem::new(at, format!("`{}` is neither `https` nor `http`", url.scheme()))),
    }
}

fn decides_as(hook: &Webhook, config: &Config, known: Known<'_>, path: &Path, problems: &mut Vec<Problem>) {
    let path = path.key("decides_as");
    let people = &config.identity.users;
    let is_user = |name: &str| people.iter().any(|user| user.name == name) || known.users.contains(&name);
    let is_group = |name: &str| {
        people.iter().any(|user| user.groups.iter().any(|group| group == name)) || known.groups.contains(&name)
    };
    let (path, missing) = match &hook.decides_as {
        None => return,
        Some(DecidesAs::User(name)) if !is_user(name) => (path.key("user"), format!("there is no user `{name}`")),
        Some(DecidesAs::Groups(groups)) if groups.is_empty() => {
            (path.key("groups"), "a webhook that decides as nobody decides nothing".to_owned())
        }
        Some(DecidesAs::Groups(groups)) => match groups.iter().position(|group| !is_group(group)) {
            Some(at) => (path.key("groups").index(at), "nobody is in this group".to_owned()),
            None => return could_decide(hook, config, known, &path, problems),
        },
        Some(DecidesAs::User(_)) => return could_decide(hook, config, known, &path, problems),
    };
    problems.push(Problem::new(path, missing));
}

/// Whether there is a rule whose held calls it could decide on. People who are written elsewhere are not known here.
fn could_decide(hook: &Webhook, config: &Config, known: Known<'_>, path: &Path, problems: &mut Vec<Problem>) {
    let is_meant = |user: &User| match &hook.decides_as {
        Some(DecidesAs::User(name)) => user.name == *name,
        Some(DecidesAs::Groups(groups)) => user.groups.iter().any(|group| groups.contains(group)),
        None => false,
    };
    let is_among = |approvers: &Approvers, user: &User| {
        approvers.users.contains(&user.name) || user.groups.iter().any(|group| approvers.groups.contains(group))
    };
    let holds: Vec<&Hold> = config.policy.rules.iter().filter_map(|rule| rule.hold.as_ref()).collect();
    let mut meant = config.identity.users.iter().filter(|user| is_meant(user));
    if known.users.is_empty() && !meant.any(|user| holds.iter().any(|hold| is_among(&hold.approvers, user))) {
        let message = format!("no rule lets webhook `{}` decide on what it holds", hook.name);
        problems
            .push(Problem::new(path, message).hint("name it, or its group, in `approvers`; or remove `decides_as`"));
    }
}
