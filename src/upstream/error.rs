//! How an upstream can fail us.

use std::time::Duration;
use thiserror::Error;

/// A failure between us and an upstream. `Display` is for the log: it may name addresses. [`Error::public`] is for clients.
#[derive(Debug, Error)]
pub enum Error {
    /// Its name has no address.
    #[error("cannot resolve `{host}`: {cause}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        cause: String,
    },
    /// No connection came about.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// TLS failed: who is there is not who was expected, or does not accept us.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// The connection broke. `has_answered` is whether any byte of an answer had come.
    #[error("connection lost: {cause}")]
    Lost {
        /// What broke.
        cause: String,
        /// Whether an answer had begun.
        has_answered: bool,
    },
    /// It closed, and said that it had not looked at the request (HTTP/2 only).
    #[error("not processed: {0}")]
    Unprocessed(String),
    /// It took too long.
    #[error("no {what} within {limit:?}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        limit: Duration,
    },
    /// Its answer is over the limit.
    #[error("an answer of more than {limit} bytes")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
    /// Its answer is not what MCP says an answer is.
    #[error("a malformed answer: {0}")]
    Malformed(String),
    /// It redirects elsewhere than to itself, or without end.
    #[error("a redirect to {0}, which is not followed")]
    Redirect(String),
    /// It is a process of ours that does not run.
    #[error("it does not run: {0}")]
    Down(String),
    /// It answered with an HTTP status that is no answer to the call.
    #[error("HTTP status {0}")]
    Status(u16),
}

impl Error {
    /// Whether it is certain that the upstream was sent nothing that it could have run.
    pub fn is_unsent(&self) -> bool {
        matches!(
            self,
            Error::Resolve { .. }
                | Error::Connect(_)
                | Error::Tls(_)
                | Error::Unprocessed(_)
                | Error::Down(_)
                | Error::Timeout { what: "connection", .. }
        )
    }

    /// The stable code: the label in metrics, `data.code` in answers.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Resolve { .. } | Error::Connect(_) | Error::Unprocessed(_) => "upstream.unreachable",
            Error::Tls(_) => "upstream.tls",
            Error::Lost { .. } => "upstream.lost",
            Error::Timeout { .. } => "upstream.timeout",
            Error::TooLarge { .. } => "upstream.too_large",
            Error::Malformed(_) => "upstream.malformed",
            Error::Redirect(_) => "upstream.redirect",
            Error::Down(_) => "upstream.down",
            Error::Status(_) => "upstream.status",
        }
    }

    /// What a client may know: nothing of addresses, certificates or what the upstream printed.
    pub fn public(&self, upstream: &str) -> String {
        match self {
            Error::Resolve { .. } | Error::Connect(_) | Error::Unprocessed(_) => {
                format!("upstream `{upstream}` cannot be reached")
            }
            Error::Tls(_) => format!("the TLS connection to upstream `{upstream}` failed"),
            Error::Lost { has_answered: false, .. } => {
                format!(
                    "upstream `{upstream}` closed the connection without an answer; whether the call ran is not known"
                )
            }
            Error::Lost { .. } => {
                format!("upstream `{upstream}` closed the connection within its answer")
            }
            Error::Timeout { what, limit } => {
                format!("upstream `{upstream}` gave no {what} within {limit:?}")
            }
            Error::TooLarge { limit } => {
                format!("the answer of upstream `{upstream}` is over the limit of {limit} bytes")
            }
            Error::Malformed(_) => format!("upstream `{upstream}` gave a malformed answer"),
            Error::Redirect(_) => format!("upstream `{upstream}` redirects elsewhere"),
            Error::Down(_) => format!("upstream `{upstream}` does not run right now; the gateway's log says why"),
            Error::Status(status) => {
                format!("upstream `{upstream}` answered with HTTP status {status}")
            }
        }
    }
}
