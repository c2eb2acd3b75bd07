//! The MCP server: who asks, which tool, and how many at once.

use crate::confine::Confinement;
use crate::descriptors;
use crate::settings::Settings;
use crate::tools::{self, Runner};
use crate::workspace::{Limits, Workspace};
use axum::Router;
use portcullis_local::{Handover, Principal, Sessions};
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::{RwLock, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::warn;

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

/// What all requests share.
pub(crate) struct Shared {
    pub settings: Settings,
    pub workspace: Workspace,
    pub runner: Runner,
    /// File tools at once, of all principals.
    pub turns: Arc<Semaphore>,
    /// Cancelled when this process is to end.
    pub stopping: CancellationToken,
    /// Read by each command for as long as it runs.
    pub running: Arc<RwLock<()>>,
    tools: Vec<Tool>,
}

/// One session's server, or one request's: they differ in nothing.
#[derive(Clone)]
struct Server(Arc<Shared>);

/// The largest request, in bytes: the gateway sends none that is larger than its own limit, 4 MiB unless configured.
const BODY: usize = 8 * 1024 * 1024;
/// File tools at once, of all principals. Each may hold as many descriptors as folders can be deep.
const TURNS: usize = 4;
/// How long commands have to end when this process is to end.
const LAST_WAIT: Duration = Duration::from_secs(3);
/// A session that is not used for this long ends; beside that, for as long as a command may run.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Serves until the gateway ends.
///
/// # Errors
/// [`Error`].
pub async fn run(handover: Handover) -> Result<(), Error> {
    let settings: Settings =
        serde_json::from_slice(&handover.settings).map_err(|why| Error::Handover(why.to_string()))?;
    descriptors::raise(settings.at_once);
    let folder = handover.folder.ok_or_else(|| Error::Handover("no workspace".to_owned()))?;
    let limits = Limits { quota: settings.quota, reserve: settings.reserve, commands: settings.at_once };
    let workspace = Workspace::new(folder, limits)
        .map_err(|why| Error::Handover(format!("the workspace cannot be used: {why}")))?;
    let runner = Runner::Confined(Box::new(Confinement::establish(&settings).await?));
    let shared = Arc::new(Shared::new(settings, workspace, runner));
    let router = router(&shared);
    portcullis_local::serve(handover.listener, handover.secret, handover.ready, router, shared.stop())
        .await
        .map_err(Error::Serve)
}

/// The server at every path: the gateway has found out which one is ours.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut manager = LocalSessionManager::default();
    // A command without progress says nothing until it ends: its session must not be taken for an idle one.
    manager.session_config.keep_alive = Some(shared.settings.longest + IDLE);
    let manager = Arc::new(manager);
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_max_request_body_bytes(BODY)
        .with_cancellation_token(shared.stopping.clone());
    let server = Server(shared.clone());
    let service = StreamableHttpService::new(move || Ok(server.clone()), manager.clone(), config);
    Sessions::new(manager).guard(Router::new().fallback_service(service))
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(settings: Settings, workspace: Workspace, runner: Runner) -> Shared {
        Shared {
            tools: tools::definitions(&settings),
            settings,
            workspace,
            runner,
            turns: Arc::new(Semaphore::new(TURNS)),
            stopping: CancellationToken::new(),
            running: Arc::default(),
        }
    }

    /// Ends all commands, and waits for that.
    pub(crate) async fn stop(self: &Arc<Self>) {
        self.stopping.cancel();
        if tokio::time::timeout(LAST_WAIT, self.running.write()).await.is_err() {
            warn!("commands did not end in time");
        }
    }
}

// === impl Server ===

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let info = Implementation::new("portcullis-sandbox", env!("CARGO_PKG_VERSION")).with_title("Sandbox");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(info)
            .with_instructions(tools::instructions(&self.0.settings))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let principal = principal(&context)?;
        let folder = self.0.workspace.folder(&principal).map_err(|error| {
            warn!(%error, "a principal's folder cannot be opened");
            ErrorData::internal_error("the workspace cannot be opened", None)
        })?;
        let arguments = call.arguments.unwrap_or_default();
        let answer = tools::call(&self.0, &call.name, folder, arguments, &context).await;
        let unknown = || ErrorData::invalid_params(format!("there is no tool `{}`", call.name), None);
        answer.map(Into::into).ok_or_else(unknown)
    }
}

/// Who asks, as the gateway says: in each request, whatever its session.
fn principal(context: &RequestContext<RoleServer>) -> Result<Principal, ErrorData> {
    let parts = context.extensions.get::<axum::http::request::Parts>();
    let principal = parts.and_then(|parts| parts.extensions.get::<Principal>()).cloned();
    principal.ok_or_else(|| ErrorData::invalid_request("the gateway does not say who asks", None))
}

#[cfg(test)]
pub(crate) mod tests;
