//! What looks like a credential: so that it is refused where it is written out, and blotted out where it is shown.

use super::tree::{Node, Value};
use crate::redact;
pub(super) use crate::redact::names_secret;
use std::ops::Range;
use url::Url;

/// Spans of every scalar under a key that names a secret. `env` and `file` only say where one stands.
pub(super) fn collect(node: &Node, is_secret: bool, found: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Map(entries) => {
            for entry in entries {
                let is_secret = match entry.key.as_str() {
                    "env" | "file" => false,
                    key => is_secret || names_secret(key),
                };
                collect(&entry.value, is_secret, found);
            }
        }
        Value::List(elements) => {
            for element in elements {
                collect(element, is_secret, found);
            }
        }
        _ if is_secret => found.push(node.span.clone()),
        Value::String(text) if holds_secret(text) => found.push(node.span.clone()),
        _ => {}
    }
}

/// Where the file is not readable as YAML: all that follows a key that names a secret.
pub(super) fn guess(line: &str) -> Option<Range<usize>> {
    let (at, _) = line.match_indices(':').find(|(at, _)| {
        let before = line.get(..*at).unwrap_or_default();
        let word = before.rsplit(['{', ',', ' ']).next().unwrap_or_default();
        names_secret(word.trim_matches(['"', '\'']))
    })?;
    let start = at.saturating_add(1);
    Some(start..line.len())
}

/// Whether a value is likely to hold a credential, whatever it is called.
pub(super) fn holds_secret(text: &str) -> bool {
    let scheme = text.split(' ').next().unwrap_or_default();
    let is_scheme = |word: &&str| scheme.eq_ignore_ascii_case(word) && scheme.len() < text.len();
    // A key in a PEM frame (RFC 7468), or the end of a line that begins one.
    text.contains(" PRIVATE KEY-----")
        || ["bearer", "basic"].iter().any(is_scheme)
        || Url::parse(text).is_ok_and(|url| has_userinfo(&url) || secret_parameter(&url).is_some())
        || redact::holds_secret(text)
}

/// Whether a user name or a password stands before the host.
pub(super) fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// The parameter of the query that names a secret.
pub(super) fn secret_parameter(url: &Url) -> Option<String> {
    url.query_pairs().find(|(key, _)| names_secret(key)).map(|(key, _)| key.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_hold_secrets_are_told_from_others() {
        for text in [
            "Bearer abc",
            "basic abc",
            "https://me@a.example",
            "ftp://a:b@c",
            "https://a.example/?api_key=x",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl",
        ] {
            assert!(holds_secret(text), "{text}");
        }
        for text in ["bearer", "Basics of cooking", "https://a.example/?toolset=all", "me@a.example", ""] {
            assert!(!holds_secret(text), "{text}");
        }
    }
}
