//! Authorization codes: what a person consented to, until the client fetches it. Kept by their SHA-256 only.
//!
//! Whether a client may have a code is judged by `oauth`; that it is had once, and what happens to the grant when it
//! comes again, is kept here, in one transaction each.

use super::{Backend, Error, Grant, NewRefreshToken, Store, Subject};
use std::sync::Arc;

/// A code is over after as many tries that were wrong: whoever guesses has no more than these.
pub const MAX_WRONG_TRIES: u32 = 5;

/// One code, as it was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// SHA-256 of the code.
    pub digest: [u8; 32],
    /// The issuer of the tokens to come.
    pub issuer: Arc<str>,
    /// Who consented.
    pub subject: Subject,
    /// The client that asked.
    pub client: Arc<str>,
    /// The resource URL the tokens will open.
    pub resource: Arc<str>,
    /// What the tokens may be used for.
    pub scopes: Arc<[String]>,
    /// What the person's password was.
    pub password_mark: Option<Arc<str>>,
    /// Where the code was sent, as the client wrote it.
    pub redirect_uri: String,
    /// The code challenge, S256 (RFC 7636 §4.2).
    pub challenge: String,
    /// When it ends, milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
}

/// What a code is to become, for a client that has shown that it is its own.
#[derive(Clone, Debug)]
pub struct Redemption {
    /// SHA-256 of the code.
    pub code: [u8; 32],
    /// The grant it becomes. Its `created_at_ms` is now.
    pub grant: Grant,
    /// The first refresh token of that grant, for clients that may have one.
    pub refresh_token: Option<NewRefreshToken>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redeemed {
    /// The grant is in force.
    Granted {
        /// Another login of the subject that ended because there were as many as there may be.
        displaced: Option<Arc<str>>,
    },
    /// It had become a grant before, which is revoked now.
    Replayed {
        /// The grant.
        grant: Arc<str>,
    },
    /// There is no such code, or it is over.
    Over,
}

impl Store {
    /// Writes a code; one that is there already (a form that was sent twice) is left as it is.
    ///
    /// # Errors
    /// The store's own.
    pub async fn insert_code(&self, code: Code) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.insert_code(code).await,
        }
    }

    /// The code of this digest, redeemed and expired ones included.
    ///
    /// # Errors
    /// The store's own.
    pub async fn code(&self, digest: [u8; 32]) -> Result<Option<Code>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.code(digest).await,
        }
    }

    /// Whether the code would become a grant at this time, in milliseconds since the Unix epoch. Somebody may be faster:
    /// it is [`Store::redeem_code`] that decides.
    ///
    /// # Errors
    /// The store's own.
    pub async fn is_code_open(&self, digest: [u8; 32], now_ms: i64) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.is_code_open(digest, now_ms).await,
        }
    }

    /// Counts a try that was wrong. After [`MAX_WRONG_TRIES`] of them the code is over.
    ///
    /// # Errors
    /// The store's own.
    pub async fn count_wrong_try(&self, digest: [u8; 32]) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.count_wrong_try(digest).await,
        }
    }

    /// Uses up a code: once, whoever else tries at the same time. Whoever comes second with it is told so, and the
    /// grant it became is revoked (RFC 6749 §4.1.2). A subject that has as many grants as it may have loses the login
    /// that was idle for the longest time, of the same client and resource where there is one.
    ///
    /// # Errors
    /// [`Error::TooMany`] where none of the subject's grants is a login, or the store's own.
    pub async fn redeem_code(&self, redemption: Redemption) -> Result<Redeemed, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.redeem_code(redemption).await,
        }
    }
}
