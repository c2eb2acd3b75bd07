//! External issuers: URLs that cannot be read on the way, names that exist, claims that can be relied on.

use crate::config::nearest::did_you_mean;
use crate::config::origin::is_loopback;
use crate::config::problem::{Path, Problem};
use crate::config::sensitive::has_userinfo;
use crate::config::{Config, Issuer};
use std::collections::BTreeSet;
use url::Url;

/// Claims that the person, or an administrator of theirs, can change to the value of somebody else.
const CHANGEABLE: [&str; 7] = ["email", "mail", "upn", "unique_name", "preferred_username", "name", "nickname"];

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let identity = Path::root().key("identity");
    let mut seen = BTreeSet::new();
    for (at, issuer) in config.identity.issuers.iter().enumerate() {
        let path = identity.key("issuers").index(at);
        url(&issuer.issuer, &path.key("issuer"), problems);
        if issuer.issuer.contains('?') {
            // RFC 8414 §2.
            problems.push(Problem::new(path.key("issuer"), "an issuer has no query"));
        }
        if !seen.insert(issuer.issuer.as_str()) {
            problems.push(Problem::new(path.key("issuer"), format!("issuer `{}` stands twice", issuer.issuer)));
        }
        if config
            .public_url
            .as_ref()
            .is_some_and(|ours| ours.trim_end_matches('/') == issuer.issuer.trim_end_matches('/'))
        {
            problems.push(
                Problem::new(path.key("issuer"), format!("`{}` is this gateway", issuer.issuer))
                    .hint("its own tokens count in any case; remove this issuer"),
            );
        }
        if let Some(jwks_url) = &issuer.jwks_url {
            url(jwks_url, &path.key("jwks_url"), problems);
        }
        tls(issuer, &path, problems);
        claims(issuer, &path, problems);
        mapped(config, issuer, &path, problems);
    }
    also(config, &seen, problems);
    authorization_server(config, &seen, problems);
}

/// A token is as good as the way its keys came.
fn url(text: &str, path: &Path, problems: &mut Vec<Problem>) {
    const EXAMPLE: &str = "write it as `https://idp.example.com`";
    let url = Url::parse(text).ok().filter(Url::has_host);
    let is_written_out = text.starts_with("https://") || text.starts_with("http://");
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic()) && !text.contains(['\\', '"']);
    let Some(url) = url.filter(|_| is_written_out && is_plain) else {
        problems.push(Problem::new(path, format!("`{text}` is no `https://` URL")).hint(EXAMPLE));
        return;
    };
    if has_userinfo(&url) {
        problems.push(Problem::new(path, "a URL with a user name or password in it").hint("leave them out"));
    } else if url.fragment().is_some() {
        problems.push(Problem::new(path, format!("`{text}` ends with a fragment, which no server sees")));
    } else if url.scheme() == "http" && !url.host().is_some_and(|host| is_loopback(&host)) {
        let message = format!("`{text}` is not `https`, so its keys could be exchanged on the way");
        problems.push(Problem::new(path, message).hint("write `https://`. Plain `http` works for this machine only"));
    }
}

fn tls(issuer: &Issuer, path: &Path, problems: &mut Vec<Problem>) {
    let from = issuer.jwks_url.as_ref().unwrap_or(&issuer.issuer);
    if issuer.tls.ca.is_some() && from.starts_with("http://") {
        problems.push(
            Problem::new(path.key("tls"), "`tls` has no meaning where the keys come over `http://`")
                .at_key()
                .hint("write `https://`, or remove `tls`"),
        );
    }
}

fn claims(issuer: &Issuer, path: &Path, problems: &mut Vec<Problem>) {
    for (key, claim) in [("subject_claim", &issuer.subject_claim), ("groups_claim", &issuer.groups_claim)] {
        let is_pointer = claim.starts_with('/');
        let is_broken = is_pointer && claim.replace("~0", "").replace("~1", "").contains('~');
        if claim.is_empty() || is_broken {
            problems.push(
                Problem::new(path.key(key), format!("`{claim}` names no claim"))
                    .hint("a name like `groups`, or a JSON Pointer like `/realm_access/roles`"),
            );
        }
    }
    if CHANGEABLE.contains(&issuer.subject_claim.as_str()) {
        let message = format!("`{}` can be changed, or given to somebody else later", issuer.subject_claim);
        problems.push(
            Problem::warning(path.key("subject_claim"), message)
                .hint("use a claim that stays with one person, like `sub` (or `oid` in Microsoft Entra ID)"),
        );
    }
    for (theirs, ours) in &issuer.groups {
        if ours.trim() != ours || ours.is_empty() {
            problems.push(Problem::new(path.key("groups").key(theirs), format!("`{ours}` is no group name")));
        }
    }
    let scopes = issuer.scopes.iter().flat_map(|(theirs, ours)| [(theirs, theirs), (theirs, ours)]);
    for (key, scope) in scopes {
        if !is_scope(scope) {
            problems.push(Problem::new(path.key("scopes").key(key), format!("`{scope}` is no scope")));
        }
    }
    for (at, scope) in issuer.scopes_supported.iter().flatten().enumerate() {
        if !is_scope(scope) {
            problems.push(Problem::new(path.key("scopes_supported").index(at), format!("`{scope}` is no scope")));
        }
    }
}

/// RFC 6749 §3.3 `scope-token`.
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
}

/// Rules open nothing to external people but by their groups.
fn mapped(config: &Config, issuer: &Issuer, path: &Path, problems: &mut Vec<Problem>) {
    let is_somebody = config.identity.users.iter().any(|user| user.also.iter().any(|it| it.issuer == issuer.issuer));
    if issuer.groups.is_empty() && !is_somebody {
        let message = format!("no group of `{}` counts here, so its tokens open nothing", issuer.issuer);
        problems
            .push(Problem::warning(path, message).hint(
                "write `groups: { theirs: ours }`, or `also` with a user, and rules with `who: { groups: […] }`",
            ));
    }
}

fn also(config: &Config, issuers: &BTreeSet<&str>, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (at, user) in config.identity.users.iter().enumerate() {
        for (n, also) in user.also.iter().enumerate() {
            let path = Path::root().key("identity").key("users").index(at).key("also").index(n);
            unknown_issuer(&also.issuer, issuers, path.key("issuer"), problems);
            if also.subject.is_empty() {
                problems.push(Problem::new(path.key("subject"), "an empty subject is nobody"));
            }
            if !seen.insert((&also.issuer, &also.subject)) {
                let message = format!("subject `{}` of this issuer stands twice", also.subject);
                problems.push(Problem::new(path.key("subject"), message).hint("a subject is one person"));
            }
        }
    }
}

fn authorization_server(config: &Config, issuers: &BTreeSet<&str>, problems: &mut Vec<Problem>) {
    if let Some(server) = &config.identity.authorization_server {
        unknown_issuer(server, issuers, Path::root().key("identity").key("authorization_server"), problems);
    }
}

fn unknown_issuer(name: &str, issuers: &BTreeSet<&str>, path: Path, problems: &mut Vec<Problem>) {
    if !issuers.contains(name) {
        let hint = did_you_mean(name, issuers.iter().copied())
            .unwrap_or_else(|| "name one of `identity.issuers`, byte for byte".to_owned());
        problems.push(Problem::new(path, format!("unknown issuer `{name}`")).hint(hint));
    }
}
