//! Clients that registered themselves (RFC 7591), and the assertions that clients have used up.

use super::{Backend, Error, Store};

/// Clients that are kept. Strangers register, so there must be an end.
pub const MAX_CLIENTS: usize = 10_000;

/// A client may be this young and unused, and yet somebody is logging in through it at this moment.
pub(super) const YOUNG_MS: i64 = 60 * 60 * 1000;

/// `used_at` is written no more often than this.
pub(super) const TOUCHED_EVERY_MS: i64 = 60 * 60 * 1000;

/// One client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredClient {
    /// Its `client_id`.
    pub id: String,
    /// What it registered, as JSON.
    pub metadata: String,
    /// SHA-256 of its secret, if it has one.
    pub secret: Option<[u8; 32]>,
    /// When it registered, milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// When a person last consented to it, or it last got a token; to the hour.
    pub used_at_ms: Option<i64>,
}

/// What came out of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// It is there, and at the cap this one went for it.
    Done {
        /// The one that made room.
        removed: Option<String>,
    },
    /// There are as many as may be, and each of them is in use.
    Full,
}

/// What went with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Whether it was registered.
    pub was_registered: bool,
    /// How many of its grants were in force until now.
    pub n_revoked: usize,
}

impl Store {
    /// Writes a new client. Where there are `cap` of them already, the one goes that was never used and is the oldest of
    /// those, or else was used longest ago: but none of which a grant, a code or a consent is in force, and none that is
    /// younger than an hour. Durable when this returns.
    ///
    /// # Errors
    /// The store's own.
    pub async fn insert_client(&self, client: RegisteredClient, cap: usize) -> Result<Insertion, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.insert_client(client, cap).await,
        }
    }

    /// The client of this id.
    ///
    /// # Errors
    /// The store's own.
    pub async fn client(&self, id: &str) -> Result<Option<RegisteredClient>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.client(id).await,
        }
    }

    /// All clients, latest first.
    ///
    /// # Errors
    /// The store's own.
    pub async fn clients(&self) -> Result<Vec<RegisteredClient>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.clients().await,
        }
    }

    /// Notes that a client was used: a person consented to it, or it got a token. Cheap if that is known already.
    ///
    /// # Errors
    /// The store's own.
    pub async fn touch_client(&self, id: &str, at_ms: i64) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.touch_client(id, at_ms).await,
        }
    }

    /// Removes a client with its codes and consents, and revokes every grant of it, all or nothing. Grants of a client
    /// that was never registered are revoked as well. Durable when this returns.
    ///
    /// # Errors
    /// The store's own.
    pub async fn remove_client(&self, id: &str, by: &str, at_ms: i64) -> Result<Removal, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.remove_client(id, by, at_ms).await,
        }
    }

    /// Uses up an assertion (RFC 7523 §3, `jti`); `false` if it was used before. Those that had expired by `at_ms` are
    /// forgotten. Durable when this returns.
    ///
    /// # Errors
    /// The store's own.
    pub async fn use_assertion(&self, digest: [u8; 32], expires_at_ms: i64, at_ms: i64) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.use_assertion(digest, expires_at_ms, at_ms).await,
        }
    }
}
