//! OAuth clients that are written here: ids, the ways to show who they are, where people are sent back to; and the
//! hosts whose metadata documents count.

use crate::config::nearest::did_you_mean;
use crate::config::problem::{Path, Problem};
use crate::config::{Client, Config, secret_hash};
use crate::redirect_uri;
use std::collections::BTreeSet;

/// Clients that register themselves get ids that begin so.
const REGISTERED: &str = "c_";
/// In characters, as for clients that say it of themselves.
const LONGEST_NAME: usize = 120;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (at, client) in config.identity.clients.iter().enumerate() {
        let path = Path::root().key("identity").key("clients").index(at);
        id(client, &path, problems);
        if !seen.insert(client.id.as_str()) {
            problems.push(Problem::new(path.key("id"), format!("client `{}` stands twice", client.id)));
        }
        name(client, &path, problems);
        authentication(client, &path, problems);
        redirect_uris(client, &path, problems);
        machine(client, config, &path, problems);
    }
    let documents = &config.oauth.metadata_documents;
    let path = Path::root().key("oauth").key("metadata_documents");
    for (key, list) in [("only", documents.only.as_deref().unwrap_or_default()), ("private", &documents.private)] {
        for (at, host) in list.iter().enumerate().filter(|(_, host)| !is_host(host)) {
            problems.push(
                Problem::new(path.key(key).index(at), format!("`{host}` is no host"))
                    .hint("write it as `client.example.com` or `client.example.com:8443`"),
            );
        }
    }
}

fn id(client: &Client, path: &Path, problems: &mut Vec<Problem>) {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._~-".contains(&b);
    if !(1..=64).contains(&client.id.len()) || !client.id.bytes().all(is_allowed) {
        problems.push(
            Problem::new(path.key("id"), format!("`{}` is no client id", client.id))
                .hint("1 to 64 of letters, digits and `._~-`"),
        );
    } else if client.id.starts_with(REGISTERED) {
        problems.push(
            Problem::new(path.key("id"), format!("`{}` begins as the ids of clients that register", client.id))
                .hint("choose one that does not begin with `c_`"),
        );
    }
}

fn name(client: &Client, path: &Path, problems: &mut Vec<Problem>) {
    let Some(name) = &client.name else {
        return;
    };
    if name.trim().is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
        problems.push(
            Problem::new(path.key("name"), "this name cannot be shown to people").hint("1 to 120 printable characters"),
        );
    }
}

/// The hash is not repeated in messages: it is likely to be something else that was pasted.
fn authentication(client: &Client, path: &Path, problems: &mut Vec<Problem>) {
    const HINT: &str =
        "run `portcullis clients secret`, give the secret to the client, and paste the line that it prints";
    if client.secret_hash.as_ref().is_some_and(|hash| secret_hash(hash).is_none()) {
        problems.push(Problem::new(path.key("secret_hash"), "no hash of a client's secret").hint(HINT));
    }
    if client.secret_hash.is_some() && client.jwks.is_some() {
        problems.push(
            Problem::new(path.key("jwks"), "a client shows who it is in one way, and this one has a secret already")
                .at_key()
                .hint("remove `secret_hash` or `jwks`"),
        );
    }
}

fn redirect_uris(client: &Client, path: &Path, problems: &mut Vec<Problem>) {
    for (at, uri) in client.redirect_uris.iter().enumerate() {
        if let Err(why) = redirect_uri::check(uri) {
            problems.push(Problem::new(path.key("redirect_uris").index(at), format!("`{uri}` {why}")));
        }
    }
    if client.redirect_uris.is_empty() && client.owner.is_none() {
        problems.push(Problem::new(path, format!("client `{}` can do nothing", client.id)).hint(
            "write `redirect_uris`, so that people can log in through it, or `owner`, so that it acts by itself",
        ));
    }
}

/// Whether its owner is there is said when the people in force are known: not all of them stand in this file.
fn machine(client: &Client, config: &Config, path: &Path, problems: &mut Vec<Problem>) {
    if client.owner.is_none() {
        for (key, list) in [("groups", &client.groups), ("routes", &client.routes)] {
            if !list.is_empty() {
                let message =
                    format!("`{key}` is for clients that act on their own account, and this one has no `owner`");
                problems.push(Problem::new(path.key(key), message).at_key());
            }
        }
        return;
    }
    if client.secret_hash.is_none() && client.jwks.is_none() {
        let message = format!("anybody could act as `{}`: it has neither `secret_hash` nor `jwks`", client.id);
        problems.push(Problem::new(path.key("owner"), message).at_key());
    }
    if client.routes.is_empty() {
        problems.push(
            Problem::new(path, format!("client `{}` may have tokens for no route", client.id))
                .hint("write `routes: [name of an upstream]`"),
        );
    }
    for (at, route) in client.routes.iter().enumerate().filter(|(_, route)| !config.upstreams.contains_key(*route)) {
        let hint = did_you_mean(route, config.upstreams.keys().map(String::as_str));
        let path = path.key("routes").index(at);
        problems.push(Problem::new(path, format!("unknown upstream `{route}`")).maybe_hint(hint));
    }
    for (at, group) in client.groups.iter().enumerate() {
        if group.trim() != group || group.is_empty() {
            problems.push(Problem::new(path.key("groups").index(at), format!("`{group}` is no group name")));
        }
    }
}

/// `host` or `host:port`, spelled as in a URL.
fn is_host(text: &str) -> bool {
    let url = url::Url::parse(&format!("https://{text}/"));
    url.is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{host}{port}") == text.strip_suffix(":443").unwrap_or(text)
    })
}
