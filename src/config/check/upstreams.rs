//! Where calls go, what is sent with them, and whether it can be read on the way.

use crate::config::origin::is_loopback;
use crate::config::problem::{Path, Problem};
use crate::config::sensitive::{has_userinfo, holds_secret, names_secret, secret_parameter};
use crate::config::{Config, HttpUpstream, Text, Upstream};
use http::{HeaderName, HeaderValue};
use std::collections::{BTreeMap, BTreeSet};
use url::Url;

/// Headers that say something about the connection or the MCP exchange, which only we know.
const OURS: [&str; 18] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "origin",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// The longest path a UNIX socket can have on Linux, without its final NUL.
const SOCKET_PATH_MAX: usize = 107;

pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    for (name, upstream) in &config.upstreams {
        let path = Path::root().key("upstreams").key(name);
        if !is_upstream_name(name) {
            problems.push(
                Problem::new(&path, format!("`{name}` is no name for an upstream"))
                    .at_key()
                    .hint("1 to 32 of `a-z`, `0-9` and `-`: it is a part of the URL"),
            );
        }
        match upstream {
            Upstream::Http(http) => self::http(http, &path.key("http"), problems),
            Upstream::Ssh(ssh) => super::ssh::check(ssh, &path.key("ssh"), problems),
            Upstream::Sandbox(sandbox) => super::sandbox::check(sandbox, &path.key("sandbox"), problems),
        }
    }
}

fn is_upstream_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=32).contains(&name.len()) && name.bytes().all(is_allowed)
}

fn http(upstream: &HttpUpstream, path: &Path, problems: &mut Vec<Problem>) {
    let url = match endpoint(&upstream.url, "write it as `https://mcp.example.com/mcp`") {
        Ok(url) => Some(url),
        Err((message, hint)) => {
            problems.push(Problem::new(path.key("url"), message).hint(hint));
            None
        }
    };
    if let Some(socket) = &upstream.socket {
        let len = socket.as_os_str().len();
        if len == 0 || len > SOCKET_PATH_MAX {
            let message = format!("a socket's path has 1 to {SOCKET_PATH_MAX} bytes, this one {len}");
            problems.push(Problem::new(path.key("socket"), message));
        }
    }
    headers(&upstream.headers, &path.key("headers"), problems);
    if let Some(url) = &url {
        tls(upstream, url, path, problems);
        in_the_clear(upstream, url, path, problems);
    }
}

/// The URL, or what is wrong with it. It is not repeated where it may hold a credential.
pub(super) fn endpoint(text: &str, example: &'static str) -> Result<Url, (String, &'static str)> {
    const HEADER: &str = "send it as a header: `headers: { Authorization: { env: NAME } }`";
    let url = Url::parse(text).ok().filter(Url::has_host);
    if url.as_ref().is_some_and(has_userinfo) {
        return Err(("a URL with a user name or password in it".to_owned(), HEADER));
    }
    if let Some(name) = url.as_ref().and_then(secret_parameter) {
        let message = format!("a URL with what looks like a credential in it: `{name}`");
        return Err((message, HEADER));
    }
    let is_written_out = text.starts_with("http://") || text.starts_with("https://");
    let Some(url) = url.filter(|_| is_written_out) else {
        return Err((format!("`{text}` is no `http://` or `https://` URL"), example));
    };
    if url.fragment().is_some() {
        let message = format!("`{text}` ends with a fragment, which no server sees");
        return Err((message, "leave out `#` and what follows"));
    }
    if text.contains(char::is_whitespace) || text.contains('\\') {
        return Err((format!("`{text}` is no URL as it is sent"), example));
    }
    Ok(url)
}

/// Headers we send along with a request of our own.
pub(super) fn headers(headers: &BTreeMap<String, Text>, path: &Path, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (name, value) in headers {
        let path = path.key(name);
        let mut refuse = |message: String, hint: Option<&str>| {
            let problem = Problem::new(&path, message).at_key();
            problems.push(problem.maybe_hint(hint.map(str::to_owned)));
        };
        let lower = name.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            refuse(format!("`{name}` is no header name"), None);
        } else if OURS.contains(&lower.as_str()) || lower.starts_with("mcp-") {
            refuse(format!("header `{name}` is set by the gateway"), Some("remove it"));
        } else if !seen.insert(lower) {
            refuse(format!("header `{name}` stands twice"), Some("upper and lower case are the same here"));
        }
        if let Text::Literal(text) = value {
            problems.extend(literal(name, text, &path));
        }
    }
}

/// The value is not repeated: whatever is wrong with it, it may be a credential.
fn literal(name: &str, text: &str, path: &Path) -> Option<Problem> {
    const ELSEWHERE: &str = "write `{ env: NAME }` or `{ file: path }`: this file is copied and shown";
    if names_secret(name) || holds_secret(text) {
        let message = format!("the value of `{name}` looks like a credential");
        return Some(Problem::new(path, message).hint(ELSEWHERE));
    }
    let is_visible = text.bytes().all(|b| matches!(b, b' '..=b'~'));
    if !is_visible || text.trim() != text || text.is_empty() || HeaderValue::from_str(text).is_err() {
        let problem = Problem::new(path, format!("the value of `{name}` cannot be sent in a header"));
        return Some(problem.hint("visible ASCII characters, with no space at either end"));
    }
    None
}

fn tls(upstream: &HttpUpstream, url: &Url, path: &Path, problems: &mut Vec<Problem>) {
    let tls = &upstream.tls;
    let path = path.key("tls");
    match (&tls.cert, &tls.key) {
        (Some(_), None) => {
            problems.push(Problem::new(path.key("cert"), "`cert` needs its `key`").at_key());
        }
        (None, Some(_)) => {
            problems.push(Problem::new(path.key("key"), "`key` needs its `cert`").at_key());
        }
        _ => {}
    }
    let is_set = tls.ca.is_some() || tls.cert.is_some() || tls.key.is_some() || tls.server_name.is_some();
    if is_set && url.scheme() == "http" {
        problems.push(
            Problem::new(&path, "`tls` has no meaning for an `http://` URL")
                .at_key()
                .hint("write `https://`, or remove `tls`"),
        );
    }
    if let Some(name) = &tls.server_name {
        let spelled = url::Host::parse(name).map(|host| host.to_string());
        if spelled.as_ref() != Ok(name) {
            problems.push(
                Problem::new(path.key("server_name"), format!("`{name}` is no host name"))
                    .hint("write the name alone, in lower case, like `mcp.example.com`"),
            );
        }
    }
}

/// What is sent over plain `http` to another machine can be read by whatever stands between.
fn in_the_clear(upstream: &HttpUpstream, url: &Url, path: &Path, problems: &mut Vec<Problem>) {
    let is_here = upstream.socket.is_some() || url.host().is_some_and(|host| is_loopback(&host));
    let secret = upstream.headers.iter().find(|(_, value)| matches!(value, Text::From(_)));
    if let (Some((name, _)), "http", false) = (secret, url.scheme(), is_here) {
        problems.push(
            Problem::warning(path.key("url"), format!("`{name}` is sent to this server unencrypted"))
                .hint("use `https://` unless you trust every network between"),
        );
    }
}
