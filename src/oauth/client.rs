//! An OAuth client, wherever it is known from: the configuration, its own registration, or a document at its id.

use super::Shared;
use super::client_metadata::{AuthMethod, Metadata};
use super::documents::Meanwhile;
use super::metadata_document;
use crate::audit::sha256;
use crate::identity::{ConfiguredClient, PublicKeys, is_client_id};
use crate::redirect_uri;
use crate::snapshot::Snapshot;
use crate::store::RegisteredClient;
use std::sync::Arc;
use url::Url;

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
    /// By an assertion that one of these keys signed: `private_key_jwt`.
    Keys {
        /// The keys.
        set: KeySet,
        /// Whether it may also come without: its document lists `none`, too.
        or_none: bool,
    },
}

/// Where the keys of a client are.
#[derive(Clone, Debug)]
pub(super) enum KeySet {
    /// Here.
    Given(Arc<PublicKeys>),
    /// At the `jwks_uri` of its document.
    At(Arc<Url>),
}

/// A client that acts on its own account.
#[derive(Clone, Debug)]
pub(super) struct Machine {
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
    pub(super) async fn find(shared: &Shared, id: &str) -> Result<Client, NotFound> {
        Client::find_meanwhile(shared, id, Meanwhile::Nothing).await
    }

    /// Finds the client of this id, which shows something that it has been given: it stays who it was while the host of
    /// its document is down.
    ///
    /// # Errors
    /// [`NotFound`].
    pub(super) async fn find_again(shared: &Shared, id: &str) -> Result<Client, NotFound> {
        Client::find_meanwhile(shared, id, Meanwhile::LastSaid).await
    }

    async fn find_meanwhile(shared: &Shared, id: &str, meanwhile: Meanwhile) -> Result<Client, NotFound> {
        if !is_client_id(id) {
            return Err(NotFound::Unknown);
        }
        let snapshot = shared.snapshots.load_full();
        if let Some(configured) = snapshot.clients.get(id) {
            return Ok(Client::of_configuration(configured, &snapshot));
        }
        if metadata_document::is_url(id) {
            if !metadata_document::is_enabled(&snapshot) {
                return Err(NotFound::Unknown);
            }
            return shared.documents.client(shared, &snapshot, id, meanwhile).await;
        }
        match shared.store.client(id).await {
            Ok(Some(registered)) => Client::of_registration(&registered),
            Ok(None) => Err(NotFound::Unknown),
            Err(error) => {
                tracing::error!(%error, "the store could not say whether a client is registered");
                Err(NotFound::Unavailable)
            }
        }
    }

    /// Whether people may be sent back to this URI.
    pub(super) fn allows_redirect_to(&self, uri: &str) -> bool {
        self.redirect_uris.iter().any(|registered| redirect_uri::matches(registered, uri))
    }

    fn of_configuration(client: &ConfiguredClient, snapshot: &Snapshot) -> Client {
        let authentication = match (&client.secret, &client.keys) {
            (_, Some(keys)) => Authentication::Keys { set: KeySet::Given(Arc::clone(keys)), or_none: false },
            (Some(secret), None) => Authentication::Secret(*secret),
            (None, None) => Authentication::Public,
        };
        let machine = snapshot.clients.machine(&client.id, &snapshot.users);
        let has_people = !client.redirect_uris.is_empty();
        Client {
            id: Arc::clone(&client.id),
            name: Some(client.name.clone()),
            origin: Origin::Configured,
            metadata_sha256: sha256(serde_json::json!([client.name, client.redirect_uris]).to_string().as_bytes()),
            redirect_uris: client.redirect_uris.clone(),
            authentication,
            may_use_codes: has_people,
            may_refresh: has_people,
            machine: machine.map(|it| Machine { routes: it.routes.clone() }),
        }
    }

    fn of_registration(registered: &RegisteredClient) -> Result<Client, NotFound> {
        let unreadable = |why: &str| {
            tracing::error!(client = registered.id, why, "a registered client cannot be read");
            NotFound::Unavailable
        };
        let metadata: Metadata =
            serde_json::from_str(&registered.metadata).map_err(|why| unreadable(&why.to_string()))?;
        let authentication = match (metadata.token_endpoint_auth_method, registered.secret, &metadata.jwks) {
            (AuthMethod::None, _, _) => Authentication::Public,
            (method, Some(secret), _) if method.has_secret() => Authentication::Secret(secret),
            (AuthMethod::PrivateKeyJwt, _, Some(jwks)) => {
                let keys = PublicKeys::of(jwks).map_err(|why| unreadable(&why.to_string()))?;
                Authentication::Keys { set: KeySet::Given(keys.into()), or_none: false }
            }
            _ => return Err(unreadable("it has no way to show who it is")),
        };
        Ok(Client::of_metadata(&registered.id, Origin::Registered, &metadata, authentication))
    }

    /// A client that said this of itself.
    pub(super) fn of_metadata(id: &str, origin: Origin, metadata: &Metadata, authentication: Authentication) -> Client {
        let may = |grant: &str| metadata.grant_types.iter().any(|it| it == grant);
        Client {
            id: id.into(),
            name: metadata.client_name.clone(),
            origin,
            redirect_uris: metadata.redirect_uris.clone(),
            authentication,
            may_use_codes: may("authorization_code"),
            may_refresh: may("refresh_token"),
            machine: None,
            metadata_sha256: sha256(metadata.to_json().as_bytes()),
        }
    }
}
