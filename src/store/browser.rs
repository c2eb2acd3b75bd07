//! What a person does with a browser: their sessions, the authorization requests that wait for them, their consents.

use super::{Backend, Error, Store};
use std::sync::Arc;

/// A person may be logged in with this many browsers; the oldest is logged out for one more.
pub(super) const MAX_SESSIONS_OF_ONE_USER: i64 = 50;
/// Requests that wait in one session; the oldest makes room.
pub(super) const MAX_FLOWS_OF_ONE_SESSION: i64 = 50;
/// A session is noted as seen at most this often.
pub(super) const SEEN_EVERY_MS: i64 = 30_000;

/// A person logged in with a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSession {
    /// SHA-256 of the cookie.
    pub digest: [u8; 32],
    /// Who.
    pub user: Arc<str>,
    /// What their password was when they logged in.
    pub password_mark: Arc<str>,
    /// When they logged in, milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// When the session was last used, within half a minute.
    pub seen_at_ms: i64,
}

/// An authorization request that waits for a person who is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its name, unguessable.
    pub id: String,
    /// The session it waits in, and opens in no other.
    pub session: [u8; 32],
    /// What was asked, checked already; JSON.
    pub request: String,
    /// When it came, milliseconds since the Unix epoch.
    pub created_at_ms: i64,
    /// What the person said, and when.
    pub decision: Option<(Choice, i64)>,
}

/// What counts of what a person said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What.
    pub choice: Choice,
    /// When, milliseconds since the Unix epoch.
    pub at_ms: i64,
    /// Whether it was said before, and nothing was written.
    pub is_repeated: bool,
}

/// What a person says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Yes.
    Allow,
    /// No.
    Deny,
}

/// That a person said yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consent {
    /// Who.
    pub user: Arc<str>,
    /// To which client.
    pub client: Arc<str>,
    /// Where they are sent back to: the redirect URI's host, or its scheme.
    pub redirect_host: String,
    /// At which resource.
    pub resource: String,
    /// SHA-256 of what the client said of itself.
    pub metadata_sha256: [u8; 32],
    /// To what.
    pub scopes: Vec<String>,
    /// When, milliseconds since the Unix epoch.
    pub given_at_ms: i64,
}

// === impl Choice ===

impl Choice {
    /// The word in the form and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Choice::Allow => "allow",
            Choice::Deny => "deny",
        }
    }

    /// The choice of this word.
    pub fn of(word: &str) -> Option<Choice> {
        [Choice::Allow, Choice::Deny].into_iter().find(|choice| choice.as_str() == word)
    }
}

impl Store {
    /// Writes a new session.
    ///
    /// # Errors
    /// The store's own.
    pub async fn insert_browser_session(&self, session: BrowserSession) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.insert_browser_session(session).await,
        }
    }

    /// The session of this cookie. Whether it still holds is the caller's to judge.
    ///
    /// # Errors
    /// The store's own.
    pub async fn browser_session(&self, digest: [u8; 32]) -> Result<Option<BrowserSession>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.browser_session(digest).await,
        }
    }

    /// Notes that a session was used.
    ///
    /// # Errors
    /// The store's own.
    pub async fn browser_session_seen(&self, session: &BrowserSession, at_ms: i64) -> Result<(), Error> {
        if at_ms.saturating_sub(session.seen_at_ms) < SEEN_EVERY_MS {
            return Ok(());
        }
        match &self.0 {
            Backend::Sqlite(backend) => backend.browser_session_seen(session.digest, at_ms).await,
        }
    }

    /// Ends a session; what waits in it ends, too.
    ///
    /// # Errors
    /// The store's own.
    pub async fn end_browser_session(&self, digest: [u8; 32]) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.end_browser_session(digest).await,
        }
    }

    /// Writes an authorization request that waits.
    ///
    /// # Errors
    /// The store's own.
    pub async fn insert_flow(&self, flow: Flow) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.insert_flow(flow).await,
        }
    }

    /// The request of this name.
    ///
    /// # Errors
    /// The store's own.
    pub async fn flow(&self, id: &str) -> Result<Option<Flow>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.flow(id).await,
        }
    }

    /// Writes what the person said, once. Gives what counts, with its time, and whether it was written now; `None` where
    /// there is no such request in this session.
    ///
    /// # Errors
    /// The store's own.
    pub async fn decide_flow(
        &self,
        id: &str,
        session: [u8; 32],
        choice: Choice,
        at_ms: i64,
    ) -> Result<Option<Decided>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.decide_flow(id, session, choice, at_ms).await,
        }
    }

    /// What a person said yes to for this client, redirect host and resource.
    ///
    /// # Errors
    /// The store's own.
    pub async fn consent(
        &self,
        user: &str,
        client: &str,
        redirect_host: &str,
        resource: &str,
    ) -> Result<Option<Consent>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => {
                backend.consent([user, client, redirect_host, resource].map(str::to_owned)).await
            }
        }
    }

    /// Writes that a person said yes, in place of what they said before.
    ///
    /// # Errors
    /// The store's own.
    pub async fn insert_consent(&self, consent: Consent) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.insert_consent(consent).await,
        }
    }

    /// Forgets that a person ever said yes to this client: they are asked again.
    ///
    /// # Errors
    /// The store's own.
    pub async fn forget_consents(&self, user: &str, client: &str) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.forget_consents(user, client).await,
        }
    }
}
