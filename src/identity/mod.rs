//! Who asks: the principal that a verified token stands for.

use std::fmt;
use std::sync::Arc;

/// Who asks, as a verified token says and the configuration completes it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Who vouches for them: our own issuer URL, or that of an external one.
    pub issuer: Arc<str>,
    /// The user, or the client acting for itself.
    pub subject: Subject,
    /// The OAuth client the token was given to.
    pub client: Arc<str>,
    /// What the token was granted.
    pub scopes: Arc<[String]>,
    /// The groups they are in now, read from the configuration and not from the token.
    pub groups: Arc<[String]>,
    /// The grant behind the token, by which it can be revoked.
    pub grant: Arc<str>,
    /// Of this gateway, not of an external issuer.
    pub is_local: bool,
}

/// Users and clients have names of their own, so that a client cannot call itself what a user is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A person.
    User(Arc<str>),
    /// A client acting for itself.
    Client(Arc<str>),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(name) => write!(f, "user:{name}"),
            Subject::Client(id) => write!(f, "client:{id}"),
        }
    }
}
