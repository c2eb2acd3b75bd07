//! Why a bearer token was not accepted: the whole truth for the log, and the little a stranger is told.

use crate::store;

/// Why a bearer token was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not a token by its form: what is wrong with it.
    #[error("the access token is malformed: {0}")]
    Malformed(&'static str),
    /// Not signed by the key it names.
    #[error("the access token is not signed by a key of its issuer")]
    Signature,
    /// It names a key that an external issuer does not publish.
    #[error("the access token names a key that its issuer does not publish")]
    UnknownKey,
    /// The keys of an external issuer could not be fetched, or not for too long.
    #[error("the keys of issuer `{0}` are not known at the moment")]
    NoKeys(std::sync::Arc<str>),
    /// It was given to an OAuth client whose tokens do not count.
    #[error("the access token was given to the client `{0}`, which is not in `clients` of its issuer")]
    Client(std::sync::Arc<str>),
    /// Its time, or its grant's, is over.
    #[error("the access token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the access token is not valid yet")]
    NotYetValid,
    /// From somebody else.
    #[error("the access token is of another issuer")]
    WrongIssuer,
    /// For another resource.
    #[error("the access token is for another resource")]
    WrongAudience,
    /// Its grant was revoked.
    #[error("the grant of the access token was revoked")]
    Revoked,
    /// Its grant is not in the store, or says something else than the token.
    #[error("the grant of the access token is unknown")]
    UnknownGrant,
    /// Nobody of that name is configured any more.
    #[error("the subject of the access token is unknown")]
    UnknownUser,
    /// The store could not be asked.
    #[error("the grant of the access token cannot be looked up")]
    Unavailable(#[source] store::Error),
}

impl Error {
    /// What the client is told. Whether a signature, a grant or a user was wrong is nothing to help a stranger with;
    /// that a token has expired is what an honest client needs to know.
    pub fn public(&self) -> &'static str {
        match self {
            Error::Expired => "the access token has expired",
            Error::Unavailable(_) | Error::NoKeys(_) => "the access token cannot be checked at the moment",
            Error::Malformed(_)
            | Error::Signature
            | Error::UnknownKey
            | Error::Client(_)
            | Error::NotYetValid
            | Error::WrongIssuer
            | Error::WrongAudience
            | Error::Revoked
            | Error::UnknownGrant
            | Error::UnknownUser => "the access token is not valid",
        }
    }
}
