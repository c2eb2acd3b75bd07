//! What must survive a restart and be seen by every process of this gateway: grants, their revocations, failed logins.
//!
//! One small interface, a closed set of backends behind it, and one suite (`conformance`) that each of them passes.
//! The store keeps rows and counts; who may ask for a change is decided by its callers.
//! Times come from the callers as milliseconds since the Unix epoch, so that the store needs no clock of its own.

mod approval;
mod browser;
mod client;
mod code;
mod document;
/// Directories and files that only their owner may read.
pub mod files;
mod grant;
mod login;
mod notice;
mod refresh;
mod sqlite;

#[cfg(test)]
pub(crate) mod conformance;

pub use approval::{
    Approval, ApprovalDecision, ApprovalState, Holding, Judge, MAX_LISTED_APPROVALS, Move, NewNotice, Requester, Step,
};
pub use browser::{BrowserSession, Choice, Consent, Decided, Flow};
pub use client::{Insertion, MAX_CLIENTS, RegisteredClient, Removal};
pub use code::{Code, MAX_WRONG_TRIES, Redeemed, Redemption};
pub use document::{FetchedDocument, MAX_DOCUMENTS};
pub use grant::{Grant, LOGIN, MAX_GRANTS_OF_ONE_SUBJECT, MAX_LISTED, NotASubject, Revoked, Subject};
pub(crate) use grant::{is_client_id, is_user_name};
pub use login::{Attempt, LoginState};
pub use notice::{Notice, NoticeCounts, NoticeState};
pub use refresh::{
    MAX_USED_TOKENS_OF_ONE_GRANT, NewRefreshToken, REFRESH_TOKEN, RETRY_WINDOW_MS, RefreshToken, Rotated, Rotation,
};

use std::path::{Path, PathBuf};

/// A handle to the store; clones share it.
#[derive(Clone, Debug)]
pub struct Store(Backend);

/// Where the rows are. Closed: another backend is another variant, not another trait object.
#[derive(Clone, Debug)]
enum Backend {
    Sqlite(sqlite::Sqlite),
}

/// What came out of a wish to revoke a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// It was in force until now.
    Done,
    /// It had been revoked before; nothing changed.
    Before,
    /// There is no such grant.
    Unknown,
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory or file could not be made or opened.
    #[error("cannot open the store at {}", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Written by a later version of this program.
    #[error(
        "the store has schema {found}, and this program knows schemas up to {known}; run the version that wrote it"
    )]
    Newer {
        /// The schema in the file.
        found: i64,
        /// The latest this program knows.
        known: i64,
    },
    /// SQLite refused.
    #[error("the store cannot do that now")]
    Sqlite(#[from] rusqlite::Error),
    /// More work is waiting than the queue takes.
    #[error("the store is busy")]
    Busy,
    /// Its thread has ended.
    #[error("the store is closed")]
    Closed,
    /// There is a grant of this id already.
    #[error("grant `{0}` exists already")]
    Exists(String),
    /// The subject has as many grants in force as it may have.
    #[error("{subject} has {limit} grants in force already; revoke some")]
    TooMany {
        /// Whose.
        subject: Subject,
        /// How many it may have.
        limit: usize,
    },
}

/// Whether a store was ever opened in this folder.
pub fn is_in(data_dir: &Path) -> bool {
    data_dir.join("portcullis.db").is_file()
}

impl Store {
    /// Opens `data_dir/portcullis.db`, made with its directory where they are missing, and brings its schema up to date.
    /// Several processes on one host may have it open.
    ///
    /// # Errors
    /// [`Error::Open`] and [`Error::Sqlite`] where that is not possible, [`Error::Newer`] where it would do harm.
    pub async fn open(data_dir: &Path) -> Result<Self, Error> {
        Ok(Store(Backend::Sqlite(sqlite::Sqlite::open(data_dir)?)))
    }

    /// Writes a new grant. Durable when this returns.
    ///
    /// # Errors
    /// [`Error::Exists`] and [`Error::TooMany`], or the store's own.
    pub async fn insert_grant(&self, grant: Grant) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.insert_grant(grant).await,
        }
    }

    /// The grant of this id, revoked and expired ones included.
    ///
    /// # Errors
    /// The store's own.
    pub async fn grant(&self, id: &str) -> Result<Option<Grant>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.grant(id).await,
        }
    }

    /// All grants, those that were not revoked before the others, latest first, at most [`MAX_LISTED`].
    ///
    /// # Errors
    /// The store's own.
    pub async fn grants(&self) -> Result<Vec<Grant>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.grants(None).await,
        }
    }

    /// The grants of one subject, those that were not revoked before the others, latest first, at most [`MAX_LISTED`].
    ///
    /// # Errors
    /// The store's own.
    pub async fn grants_of(&self, subject: &Subject) -> Result<Vec<Grant>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.grants(Some(subject)).await,
        }
    }

    /// The grants of one subject that are in force, latest first: all of them, of which there are at most
    /// [`MAX_GRANTS_OF_ONE_SUBJECT`].
    ///
    /// # Errors
    /// The store's own.
    pub async fn grants_in_force(&self, subject: &Subject, at_ms: i64) -> Result<Vec<Grant>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.grants_in_force(subject, at_ms).await,
        }
    }

    /// Revokes a grant, once. Durable when this returns; the first revocation's `by` and time stay.
    ///
    /// # Errors
    /// The store's own.
    pub async fn revoke_grant(&self, id: &str, by: &str, at_ms: i64) -> Result<Revocation, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.revoke_grant(id, by, at_ms).await,
        }
    }

    /// The grants revoked after `change`, by any process, and the number to ask with next; `0` is before the first.
    /// Cheap when nothing changed. A long list comes in parts: ask again until nothing comes.
    ///
    /// # Errors
    /// The store's own.
    pub async fn revocations_after(&self, change: i64) -> Result<(i64, Vec<String>), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.revocations_after(change).await,
        }
    }

    /// Asks to try a password for `name`. Counted as a failure until [`Store::login_success`] says otherwise,
    /// so that many tries at the same time are not more than one after the other.
    ///
    /// # Errors
    /// The store's own.
    pub async fn login_attempt(&self, name: &str, at_ms: i64) -> Result<Attempt, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.login_attempt(name, at_ms).await,
        }
    }

    /// Forgets the failures of `name`.
    ///
    /// # Errors
    /// The store's own.
    pub async fn login_success(&self, name: &str) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.login_success(name).await,
        }
    }

    /// The failures of `name` so far.
    ///
    /// # Errors
    /// The store's own.
    pub async fn login_state(&self, name: &str) -> Result<LoginState, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.login_state(name).await,
        }
    }

    /// Notes that the session of this digest was ended, and forgets those ended before `oldest_ms`.
    /// Durable when this returns; the first end of a session stays.
    ///
    /// # Errors
    /// The store's own.
    pub async fn end_session(&self, digest: [u8; 32], at_ms: i64, oldest_ms: i64) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.end_session(digest, at_ms, oldest_ms).await,
        }
    }

    /// The sessions ended at or after `oldest_ms`, with when.
    ///
    /// # Errors
    /// The store's own.
    pub async fn ended_sessions(&self, oldest_ms: i64) -> Result<Vec<([u8; 32], i64)>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.ended_sessions(oldest_ms).await,
        }
    }

    /// Removes grants that had expired by `at_ms` with their revocations and refresh tokens, codes and refresh tokens
    /// that had, old documents of clients that have no grant, and failures nobody added to for a day.
    /// At most a few thousand rows at a time, so that other writers get their turn; returns how many grants went.
    ///
    /// # Errors
    /// The store's own.
    pub async fn purge_expired(&self, at_ms: i64) -> Result<usize, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.purge_expired(at_ms).await,
        }
    }
}
