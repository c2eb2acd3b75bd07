//! What became of the notices that webhooks are sent of held calls.

use super::{Backend, Error, Store};

/// How far a notice has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeState {
    /// To be sent, or sent again.
    Waiting,
    /// The receiver has it.
    Delivered,
    /// Given up.
    Dead,
}

/// One notice to one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Which webhook.
    pub hook: String,
    /// How far it has come.
    pub state: NoticeState,
    /// How often it was sent.
    pub attempts: u32,
    /// What went wrong last.
    pub last_error: Option<String>,
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

impl Notice {
    /// Whether it is not tried again.
    pub fn is_dead(&self) -> bool {
        self.state == NoticeState::Dead
    }
}

impl Store {
    /// What became of the notices of one held call.
    ///
    /// # Errors
    /// The store's own.
    pub async fn notices_of(&self, approval: &str) -> Result<Vec<Notice>, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.notices_of(approval).await,
        }
    }

    /// How many notices were given up, of all held calls that are remembered.
    ///
    /// # Errors
    /// The store's own.
    pub async fn n_dead_notices(&self) -> Result<usize, Error> {
        match &self.0 {
            Backend::Sqlite(backend) => backend.n_dead_notices().await,
        }
    }
}
