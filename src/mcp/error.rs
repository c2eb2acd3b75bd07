//! What can be wrong with a message that is well-formed JSON-RPC, with the codes MCP gives it.

use thiserror::Error;

/// A message that MCP does not allow. `Display` is meant for the one who sent it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The method is not in the table.
    #[error("method not found: {0}")]
    UnknownMethod(String),
    /// A member of `params` is missing or of the wrong type.
    #[error("invalid params: {0}")]
    InvalidParams(String),
    /// A header does not say what the body says (2026-07-28, Streamable HTTP).
    #[error("header does not match the body: {0}")]
    HeaderMismatch(String),
    /// The protocol version is not spoken here.
    #[error("unsupported protocol version {version}")]
    UnsupportedVersion {
        /// What was asked for.
        version: String,
        /// What could be asked for instead in the same way: revisions older than 2026-07-28 are negotiated by
        /// `initialize`, and are no answer to a request that carries its own.
        supported: &'static [&'static str],
    },
    /// A request was sent as a notification, or the other way round.
    #[error("invalid request: {0}")]
    InvalidRequest(String),
}

impl Error {
    /// The JSON-RPC error code (JSON-RPC 2.0 §5.1; MCP 2026-07-28, Streamable HTTP, error codes).
    pub fn code(&self) -> i64 {
        match self {
            Error::UnknownMethod(_) => -32601,
            Error::InvalidParams(_) => -32602,
            Error::HeaderMismatch(_) => -32020,
            Error::UnsupportedVersion { .. } => -32022,
            Error::InvalidRequest(_) => -32600,
        }
    }
}
