//! The MCP server: tools, their schemas, who asks.

use crate::confine::Confinement;
use crate::settings::Settings;
use crate::workspace::Workspace;
use portcullis_local::Handover;
use thiserror::Error;

/// Why this process ends.
#[derive(Debug, Error)]
pub enum Error {
    /// What was handed over cannot be used.
    #[error("cannot use what the gateway handed over: {0}")]
    Handover(String),
    /// Commands cannot be confined on this host as the settings say.
    #[error("{0}")]
    Confine(#[from] crate::confine::CannotConfine),
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
    let folder = handover.folder.ok_or_else(|| Error::Handover("no workspace".to_owned()))?;
    let _confinement = Confinement::establish(&settings).await?;
    let _workspace = Workspace::new(folder, settings.quota);
    let router = axum::Router::new();
    portcullis_local::serve(handover.listener, handover.secret, handover.ready, router, async {})
        .await
        .map_err(Error::Serve)
}
