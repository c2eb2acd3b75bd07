//! The MCP server: who asks, which tool, and how many at once.

use crate::settings::Settings;
use axum::Router;
use portcullis_local::Handover;
use thiserror::Error;

/// Why this process ends.
#[derive(Debug, Error)]
pub enum Error {
    /// What was handed over cannot be used.
    #[error("cannot use what the gateway handed over: {0}")]
    Handover(String),
    /// The host is not the one that it was.
    #[error("{0}")]
    Host(String),
    /// The socket cannot be used.
    #[error("cannot answer on the socket")]
    Serve(#[source] std::io::Error),
}

/// Serves until the gateway ends.
///
/// # Errors
/// [`Error`].
pub async fn run(handover: Handover) -> Result<(), Error> {
    let settings: Settings =
        serde_json::from_slice(&handover.settings).map_err(|why| Error::Handover(why.to_string()))?;
    let _ = settings;
    portcullis_local::serve(handover.listener, handover.secret, handover.ready, Router::new(), async {})
        .await
        .map_err(Error::Serve)
}
