//! Refresh tokens: each is used once and gives its successor. Kept by their SHA-256 only.
//!
//! A client that loses the answer, or sends the same token twice at once, must not be logged out for it: within a short
//! window, and as long as the successor was not used, it gets the same successor again. For that the successor itself is
//! kept, sealed under a key that only the predecessor gives, so that whoever reads the store has nothing. Any other
//! token that comes twice is in two hands, and its grant ends (RFC 9700 §4.14).

use super::{Backend, Error, Grant, Store};

/// How refresh tokens begin, so that a scanner finds one that was published by mistake.
pub const REFRESH_TOKEN: &str = "pcr_";

/// How long after its use a token still gives its successor again.
pub const RETRY_WINDOW_MS: i64 = 30 * 1_000;

/// As many used tokens of one grant are known as used. An older one is merely unknown.
pub const MAX_USED_TOKENS_OF_ONE_GRANT: i64 = 1_000;

/// A refresh token to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRefreshToken {
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// When it ends if it is not used, milliseconds since the Unix epoch.
    pub expires_at_ms: i64,
}

/// What is known of a refresh token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshToken {
    /// Its grant, revoked and expired ones included.
    pub grant: Grant,
    /// When it ends if it is not used.
    pub expires_at_ms: i64,
    /// When it was used.
    pub used_at_ms: Option<i64>,
}

/// The wish to use a refresh token, for a client that has shown that it is its own.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// SHA-256 of the token.
    pub token: [u8; 32],
    /// Now.
    pub at_ms: i64,
    /// What it becomes. Its end is also the new end of the grant, unless that ends for good before.
    pub successor: NewRefreshToken,
    /// The successor, sealed so that only the token opens it.
    pub sealed: Vec<u8>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotated {
    /// The successor is in force.
    Fresh,
    /// It had been used a moment ago; this is the successor that it gave then, sealed.
    Again(Vec<u8>),
    /// It had been used before: its grant is revoked now.
    Replayed,
    /// There is no such token, or it or its grant is over.
    Over,
}

impl Store {
    /// The refresh token of this digest, used and expired ones included.
    ///
    /// # Errors
    /// The store's own.
    pub async fn refresh_token(&self, digest: [u8; 32]) -> Result<Option<RefreshToken>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.refresh_token(digest).await,
        }
    }

    /// Uses a refresh token: it has one successor, whoever else uses it at the same time.
    /// A grant that was revoked stays revoked.
    ///
    /// # Errors
    /// The store's own.
    pub async fn rotate_refresh_token(&self, rotation: Rotation) -> Result<Rotated, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.rotate_refresh_token(rotation).await,
        }
    }
}
