//! A grant: that a subject let a client act for it at one resource, for a while.
//!
//! Every access token names one, so that revoking the row revokes the token.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A subject may have this many grants in force at once.
pub const MAX_GRANTS_OF_ONE_SUBJECT: usize = 1000;

/// What a grant is `made_by` when a person let a client act for them, logged in with a browser.
pub const LOGIN: &str = "login";

/// Who revoked a grant whose authorization code or refresh token came a second time, for people.
pub(super) const REPLAY: &str = "replay";

/// Who revoked a login that made room for another, for people.
pub(super) const NEWER_LOGIN: &str = "newer login";

/// A list of grants is at most this long.
pub const MAX_LISTED: usize = 1000;

/// Who acts: a person, or a machine on its own account. The kind is part of the name:
/// the user `ci` and the client `ci` are different subjects (RFC 9700 §4.15).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A person, by the name in `identity.users`.
    User(Arc<str>),
    /// An OAuth client, by its id.
    Client(Arc<str>),
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its name, unguessable.
    pub id: Arc<str>,
    /// The issuer of its tokens: this gateway's `public_url`.
    pub issuer: Arc<str>,
    /// On whose behalf.
    pub subject: Subject,
    /// The OAuth client it was given to.
    pub client: Arc<str>,
    /// The resource URL it opens, and no other.
    pub resource: Arc<str>,
    /// What its tokens may carry at most.
    pub scopes: Arc<[String]>,
    /// When it was made.
    pub created_at_ms: i64,
    /// When it ends by itself.
    pub expires_at_ms: i64,
    /// How it came to be, for people: [`LOGIN`], `token issue`.
    pub made_by: String,
    /// What the person's password was then (`Person::password_mark`); a new password ends the grant.
    pub password_mark: Option<Arc<str>>,
    /// Its end moves with each refresh, up to here; `None`: it does not move.
    pub longest_until_ms: Option<i64>,
    /// Set once it was revoked.
    pub revoked: Option<Revoked>,
}

/// That a grant was revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// When.
    pub at_ms: i64,
    /// By whom, for people: `user:alice`.
    pub by: String,
}

// === impl Subject ===

impl Subject {
    /// `user` or `client`.
    pub fn kind(&self) -> &'static str {
        match self {
            Subject::User(_) => "user",
            Subject::Client(_) => "client",
        }
    }

    /// The name without its kind.
    pub fn name(&self) -> &str {
        match self {
            Subject::User(name) | Subject::Client(name) => name,
        }
    }

    /// A subject from the two columns it is kept in; `None` for a kind we do not know.
    pub(super) fn of_columns(kind: &str, name: Arc<str>) -> Option<Self> {
        match kind {
            "user" => Some(Subject::User(name)),
            "client" => Some(Subject::Client(name)),
            _ => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.name())
    }
}

/// Not of the form `user:<name>` or `client:<id>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a subject: expected `user:<name>` or `client:<id>`")]
pub struct NotASubject;

impl FromStr for Subject {
    type Err = NotASubject;

    fn from_str(text: &str) -> Result<Self, NotASubject> {
        match text.split_once(':') {
            Some(("user", name)) if is_user_name(name) => Ok(Subject::User(name.into())),
            Some(("client", id)) if is_client_id(id) => Ok(Subject::Client(id.into())),
            _ => Err(NotASubject),
        }
    }
}

/// `[a-z0-9._@-]{1,64}`.
pub(crate) fn is_user_name(name: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'.' | b'_' | b'@' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// Visible ASCII, at most 512 characters: also a metadata document's URL is a client id.
pub(crate) fn is_client_id(id: &str) -> bool {
    (1..=512).contains(&id.len()) && id.bytes().all(|c| c.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_reads_back_as_it_is_shown() {
        for text in ["user:alice", "user:a.b_c@d-9", "client:ci", "client:https://x.example/c"] {
            let subject: Subject = text.parse().expect(text);
            assert_eq!(subject.to_string(), text);
        }
    }

    #[test]
    fn a_malformed_subject_is_refused() {
        let long = format!("user:{}", "a".repeat(65));
        for text in [
            "",
            "alice",
            ":alice",
            "user:",
            "user:Alice",
            "user:a b",
            "user:a\n",
            "User:alice",
            " user:alice",
            "client:",
            "client:a b",
            "client:é",
            "group:admins",
            "user:a:b",
            &long,
        ] {
            assert_eq!(text.parse::<Subject>(), Err(NotASubject), "{text}");
        }
    }
}
