//! An OAuth client, wherever it is known from: the configuration, its own registration, or a document at its id.

use super::Shared;
use std::sync::Arc;

/// A client, as far as the endpoints need to know it.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Its `client_id`.
    pub(super) id: Arc<str>,
    /// What it calls itself, or the configuration calls it; shown to people, believed by nobody.
    pub(super) name: Option<String>,
    /// Where it is known from.
    pub(super) origin: Origin,
    /// Where people may be sent back to.
    pub(super) redirect_uris: Vec<String>,
    /// How it proves who it is at `/token`.
    pub(super) authentication: Authentication,
    /// Whether it may use authorization codes.
    pub(super) may_use_codes: bool,
    /// Whether it may have refresh tokens.
    pub(super) may_refresh: bool,
    /// On whose account it may use client credentials; only clients of the configuration.
    pub(super) machine: Option<Machine>,
    /// SHA-256 of what it says of itself; consent is for exactly this.
    pub(super) metadata_sha256: [u8; 32],
}

/// Where a client is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// `identity.clients`.
    Configured,
    /// It registered itself (RFC 7591): nobody vouches for its name.
    Registered,
    /// A document at the URL that is its id: the host of the URL vouches for it.
    Document,
}

/// How a client proves who it is.
#[derive(Clone, Debug)]
pub(super) enum Authentication {
    /// It cannot: `none`.
    Public,
    /// By a secret, of which this is the SHA-256: `client_secret_basic`, `client_secret_post`.
    Secret([u8; 32]),
    /// By an assertion that one of these keys signed (JWK Set): `private_key_jwt`.
    Keys(Arc<serde_json::Value>),
}

/// A client that acts on its own account.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// The user who answers for it.
    pub(super) owner: Arc<str>,
    /// The routes it may have tokens for.
    pub(super) routes: Vec<String>,
}

/// Why there is no such client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    /// Nobody by this id.
    Unknown,
    /// Its document cannot be used; why, for people.
    Document(String),
    /// It could not be found out now.
    Unavailable,
}

// === impl Client ===

impl Client {
    /// Finds the client of this id.
    ///
    /// # Errors
    /// [`NotFound`].
    #[expect(clippy::unused_async, reason = "other origins are looked up")]
    pub(super) async fn find(shared: &Shared, id: &str) -> Result<Client, NotFound> {
        let snapshot = shared.snapshots.load();
        let mut written = snapshot.config.identity.clients.iter();
        let written = written.find(|client| client.id == id).ok_or(NotFound::Unknown)?;
        Ok(Client {
            id: id.into(),
            name: written.name.clone(),
            origin: Origin::Configured,
            redirect_uris: written.redirect_uris.clone(),
            authentication: Authentication::Public,
            may_use_codes: !written.redirect_uris.is_empty(),
            may_refresh: !written.redirect_uris.is_empty(),
            machine: None,
            metadata_sha256: [0; 32],
        })
    }

    /// Whether people may be sent back to this URI.
    pub(super) fn allows_redirect_to(&self, uri: &str) -> bool {
        self.redirect_uris.iter().any(|registered| registered == uri)
    }
}
