//! Webhooks that are to be told of a held call: which, how often it was tried, and how it went.
//!
//! What is sent is made from the held call each time; here is only that it is to be sent. Of several processes one sends a
//! notice at a time, and when that one dies, another does after a while, under the same id.

use super::{Backend, Error, Store};
use std::sync::Arc;

/// One webhook's notice of one held call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The `webhook-id`: the same however often it is sent.
    pub id: Arc<str>,
    /// The held call.
    pub approval: Arc<str>,
    /// Which webhook.
    pub hook: Arc<str>,
    /// To be repeated with a decision.
    pub nonce: String,
    /// How far it has come.
    pub state: NoticeState,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried next. All times: milliseconds since the Unix epoch.
    pub next_at_ms: i64,
    /// Until then a process has it to itself.
    pub claimed_until_ms: i64,
    /// What went wrong the last time.
    pub last_error: Option<String>,
    /// When the call was held.
    pub created_at_ms: i64,
    /// When it was taken, or given up.
    pub ended_at_ms: Option<i64>,
}

/// How far a notice has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeState {
    /// It is to be sent.
    Waiting,
    /// The receiver has it.
    Delivered,
    /// It was given up.
    Dead,
}

/// How many notices there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoticeCounts {
    /// Yet to be sent.
    pub waiting: usize,
    /// Given up not before the time that was asked for.
    pub dead: usize,
}

impl NoticeState {
    /// The word in the store and for people.
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeState::Waiting => "waiting",
            NoticeState::Delivered => "delivered",
            NoticeState::Dead => "dead",
        }
    }

    /// The state of this word.
    pub fn of(word: &str) -> Option<NoticeState> {
        let all = [NoticeState::Waiting, NoticeState::Delivered, NoticeState::Dead];
        all.into_iter().find(|state| state.as_str() == word)
    }
}

impl Store {
    /// The notices of a held call, by webhook.
    ///
    /// # Errors
    /// The store's own.
    pub async fn notices(&self, approval: &str) -> Result<Vec<Notice>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.notices(approval).await,
        }
    }

    /// Takes at most `most` notices of `hook` that are due at `at_ms` and whose call is still undecided, for this process
    /// alone until `until_ms`; the longest due first. Cheap when there are none.
    ///
    /// # Errors
    /// The store's own.
    pub async fn claim_notices(
        &self,
        hook: &str,
        most: usize,
        at_ms: i64,
        until_ms: i64,
    ) -> Result<Vec<Notice>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.claim_notices(hook, most, at_ms, until_ms).await,
        }
    }

    /// Notes that a notice was tried in vain and is to be tried again at `next_at_ms`. `false`: it was not this process's
    /// any more.
    ///
    /// # Errors
    /// The store's own.
    pub async fn retry_notice(&self, claimed: &Notice, next_at_ms: i64, error: &str) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.retry_notice(claimed, next_at_ms, error).await,
        }
    }

    /// Notes how a notice ended. `false`: it was not this process's any more.
    ///
    /// # Errors
    /// The store's own.
    pub async fn end_notice(
        &self,
        claimed: &Notice,
        state: NoticeState,
        error: Option<&str>,
        at_ms: i64,
    ) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.end_notice(claimed, state, error, at_ms).await,
        }
    }

    /// Gives up what is still to be sent of calls that wait for nobody any more. Gives those notices.
    ///
    /// # Errors
    /// The store's own.
    pub async fn end_late_notices(&self, at_ms: i64) -> Result<Vec<Notice>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.end_late_notices(at_ms).await,
        }
    }

    /// How many notices there are; of those given up, the ones since `since_ms`.
    ///
    /// # Errors
    /// The store's own.
    pub async fn count_notices(&self, since_ms: i64) -> Result<NoticeCounts, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.count_notices(since_ms).await,
        }
    }

    /// Notes that a webhook has sent a message of this id. `false`: it has before.
    ///
    /// # Errors
    /// The store's own.
    pub async fn hear_webhook(&self, hook: &str, id: &str, at_ms: i64) -> Result<bool, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.hear_webhook(hook, id, at_ms).await,
        }
    }

    /// Takes back that a message was heard, where nothing could be made of it: it may come again.
    ///
    /// # Errors
    /// The store's own.
    pub async fn unhear_webhook(&self, hook: &str, id: &str) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.unhear_webhook(hook, id).await,
        }
    }

    /// Forgets what webhooks sent before this time.
    ///
    /// # Errors
    /// The store's own.
    pub async fn forget_webhooks(&self, before_ms: i64) -> Result<(), Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.forget_webhooks(before_ms).await,
        }
    }
}
