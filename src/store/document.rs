//! Documents that clients publish about themselves, as they were last fetched: of clients that a person has let in, for
//! the time in which their host cannot be asked.

use super::{Backend, Error, Store};

/// Documents that are kept. Each is of a client that somebody said yes to; beyond it those go that were fetched longest ago.
pub const MAX_DOCUMENTS: usize = 2_000;

/// One that no grant needs is kept this long after it was fetched.
pub(super) const UNUSED_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// One document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDocument {
    /// The `client_id` of the client it belongs to, which is itself the URL of a document.
    pub client: String,
    /// Where it was: at the `client_id`, or at the client's `jwks_uri`.
    pub url: String,
    /// What it said, byte for byte.
    pub body: Vec<u8>,
    /// When it was fetched, milliseconds since the Unix epoch.
    pub fetched_at_ms: i64,
}

impl Store {
    /// Keeps a document in place of what was there before, unless that was fetched later. Durable when this returns.
    ///
    /// # Errors
    /// The store's own.
    pub async fn keep_document(&self, document: FetchedDocument, cap: usize) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.keep_document(document, cap).await,
        }
    }

    /// The document of this client that was at this URL.
    ///
    /// # Errors
    /// The store's own.
    pub async fn document(&self, client: &str, url: &str) -> Result<Option<FetchedDocument>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.document(client, url).await,
        }
    }

    /// Forgets the documents of this client.
    ///
    /// # Errors
    /// The store's own.
    pub async fn forget_documents(&self, client: &str) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.forget_documents(client).await,
        }
    }
}
