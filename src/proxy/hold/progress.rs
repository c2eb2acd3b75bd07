//! What a waiting client hears meanwhile: `notifications/progress`, where it gave a token for that.
//!
//! "The progress value MUST increase with each notification" (MCP, "Progress"), and the server, once it runs, counts for
//! itself. So ours are tiny steps, between which any count of a server finds its place.

use super::super::receive::Received;
use crate::jsonrpc::{Kind, Node, Span};
use crate::mcp::sse;
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;

/// Between two of ours.
const EVERY: Duration = Duration::from_secs(10);
const STEP: f64 = 1e-6;
/// A longer token is not repeated, in bytes.
const LONGEST_TOKEN: usize = 1024;

/// The progress of one call, as its client sees it.
pub(super) struct Progress {
    /// As the client wrote it; `None` where it wants to hear nothing.
    token: Option<Box<str>>,
    last: f64,
    due: Instant,
}

/// A notification of the server, on its way to the client that waits.
pub(super) struct News {
    /// The message.
    pub(super) message: Bytes,
    /// Where it is about progress: how far.
    pub(super) progress: Option<f64>,
}

impl Progress {
    /// Of the call in `received`. The first word is due at once.
    pub(super) fn of(received: &Received) -> Progress {
        Progress { token: token(received).map(Into::into), last: 0.0, due: Instant::now() }
    }

    /// When the next of ours is due; never, where nobody wants to hear it.
    pub(super) fn due(&self) -> Option<Instant> {
        self.token.as_ref().map(|_| self.due)
    }

    /// The event that is due, if it is. `about` says what is waited for.
    pub(super) fn ours(&mut self, about: &str) -> Option<Bytes> {
        let token = self.token.as_ref().filter(|_| self.due <= Instant::now())?;
        self.due = Instant::now() + EVERY;
        self.last = (self.last + STEP).max(self.last.next_up());
        let (progress, about) = (serde_json::Value::from(self.last), serde_json::Value::from(about));
        let params = format!(r#"{{"progressToken":{token},"progress":{progress},"message":{about}}}"#);
        let message = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
        Some(sse::encode(message.as_bytes()))
    }

    /// What the server said, if the client may hear it after what it has heard.
    pub(super) fn theirs(&mut self, news: &News) -> Option<Bytes> {
        if let Some(progress) = news.progress {
            if self.token.is_none() || progress.is_nan() || progress <= self.last {
                return None;
            }
            self.last = progress;
            self.due = Instant::now() + EVERY;
        }
        Some(sse::encode(&news.message))
    }
}

/// The token as the client wrote it: a string or a number.
pub(super) fn token(received: &Received) -> Option<&str> {
    let whole = Node::of(&received.body, Span::whole(&received.body));
    let token = whole.get("params")?.get("_meta")?.get("progressToken")?;
    let is_token = matches!(token.kind(), Kind::String | Kind::Number) && token.text().len() <= LONGEST_TOKEN;
    is_token.then(|| token.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        Progress { token: Some("7".into()), last: 0.0, due: Instant::now() }
    }

    fn news(progress: f64) -> News {
        News { message: Bytes::from_static(b"{}"), progress: Some(progress) }
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_grows_with_every_word_whoever_says_it() {
        let mut progress = progress();
        let first = progress.ours("held").expect("at once");
        assert!(first.starts_with(b"event: message\ndata: ") || first.starts_with(b"data: "), "{first:?}");
        assert!(progress.ours("held").is_none(), "not before its time");
        tokio::time::sleep(EVERY).await;
        progress.ours("held").expect("in time");

        assert!(progress.theirs(&news(0.0)).is_none(), "it is less than what was said");
        assert!(progress.theirs(&news(0.5)).is_some());
        assert!(progress.theirs(&news(0.5)).is_none());
        assert!(progress.theirs(&news(f64::NAN)).is_none());
        assert!(progress.theirs(&news(1e15)).is_some());
        tokio::time::sleep(EVERY).await;
        let before = progress.last;
        progress.ours("running").expect("in time");
        assert!(progress.last > before);
    }

    #[tokio::test]
    async fn who_gave_no_token_hears_no_progress_and_everything_else() {
        let mut progress = Progress { token: None, ..progress() };
        assert!(progress.due().is_none() && progress.ours("held").is_none());
        assert!(progress.theirs(&news(1.0)).is_none());
        assert!(progress.theirs(&News { message: Bytes::from_static(b"{}"), progress: None }).is_some());
    }
}
