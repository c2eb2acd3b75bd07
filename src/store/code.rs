//! Authorization codes: what a person consented to, until the client fetches it. Kept by their SHA-256 only.

use super::{Backend, Error, Store, Subject};
use std::sync::Arc;

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
}
