//! How an upstream was the last time that we asked it for its tools, for people who look.

use std::time::Duration;
use tokio::time::Instant;

/// What we know of it.
#[derive(Clone, Debug)]
pub struct Health {
    /// Whether it answered; `None` before it was asked for the first time.
    pub is_up: Option<bool>,
    /// What went wrong the last time that something did; it may have been mended since.
    pub last_error: Option<String>,
    since: Instant,
}

impl Default for Health {
    fn default() -> Self {
        Health { is_up: None, last_error: None, since: Instant::now() }
    }
}

impl Health {
    /// For how long it has been so.
    pub fn lasts(&self) -> Duration {
        self.since.elapsed()
    }

    /// It was asked again.
    pub(super) fn note(&mut self, error: Option<String>) {
        let is_up = error.is_none();
        if self.is_up != Some(is_up) {
            (self.is_up, self.since) = (Some(is_up), Instant::now());
        }
        if error.is_some() {
            self.last_error = error;
        }
    }
}
