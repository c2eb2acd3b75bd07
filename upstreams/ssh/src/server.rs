//! The MCP server: who asks, which tool, and how many at once.

use crate::actions::{Action, Actions, Hints};
use crate::connection::{self, Connection, Way};
use crate::credential::{Login, key_id};
use crate::outcome::{self, failed};
use crate::pool::{Lease, Pool};
use crate::run::{Order, run as run_action};
use crate::settings::Settings;
use crate::turns::{Turn, Turns};
use axum::Router;
use portcullis_local::output::Progress;
use portcullis_local::progress::report;
use portcullis_local::{Handover, Principal, Request, Sessions};
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, JsonObject, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use russh::Channel;
use russh::client::Msg;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use zeroize::Zeroize as _;

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

/// What all requests share.
pub(crate) struct Shared {
    name: String,
    host: String,
    actions: Actions,
    tools: Vec<Tool>,
    pool: Pool,
    begin: Duration,
    at_once: u32,
    turns: Turns,
    /// Cancelled when this process is to end.
    stopping: CancellationToken,
    /// Read by each action for as long as it may run.
    running: Arc<RwLock<()>>,
    /// What is wrong with the host's key, once something is.
    changed: OnceLock<String>,
    /// Cancelled then.
    has_changed: CancellationToken,
}

/// One session's server, or one request's: they differ in nothing.
#[derive(Clone)]
struct Server(Arc<Shared>);

/// The largest request, in bytes: an action's arguments are a few words.
const BODY: usize = 1024 * 1024;
/// How long actions have to end when this process is to end: the gateway waits for 8 s.
const LAST_WAIT: Duration = Duration::from_millis(6500);
/// How long answers have to get out once the last action has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// A session that is not used for this long ends; beside that, for as long as an action may run.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// Serves until the gateway ends, or until the host is not the one that it was.
///
/// # Errors
/// [`Error`].
pub async fn run(mut handover: Handover) -> Result<(), Error> {
    let settings = serde_json::from_slice(&handover.settings);
    // Keys are kept once, where they are used.
    handover.settings.zeroize();
    let settings: Settings = settings.map_err(|why| Error::Handover(why.to_string()))?;
    let shared = Arc::new(Shared::new(settings).map_err(Error::Handover)?);
    shared.look().await?;
    let router = router(&shared);
    let serving = portcullis_local::serve(handover.listener, handover.secret, handover.ready, router, shared.stop());
    tokio::select! {
        ended = serving => ended.map_err(Error::Serve),
        why = shared.drained() => Err(Error::Host(why)),
        never = shared.pool.tidy() => never,
    }
}

/// The server at every path: the gateway has found out which one is ours.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let mut manager = LocalSessionManager::default();
    // An action without progress says nothing until it ends: its session must not be taken for an idle one.
    manager.session_config.keep_alive = Some(shared.actions.longest() + IDLE);
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
    /// # Errors
    /// A file among the settings cannot be used.
    pub(crate) fn new(mut settings: Settings) -> Result<Shared, String> {
        let login = Login::of(&settings.credential);
        settings.credential.wipe();
        let actions = Actions::parse(&settings.actions).map_err(|fault| fault.to_string())?;
        Ok(Shared {
            tools: actions.iter().map(tool).collect(),
            actions,
            pool: Pool::new(Way::of(&settings)?, login?, settings.idle),
            name: settings.name,
            host: settings.host.to_string(),
            begin: settings.connect,
            at_once: settings.at_once,
            turns: Turns::new(usize::try_from(settings.at_once).unwrap_or(1)),
            stopping: CancellationToken::new(),
            running: Arc::default(),
            changed: OnceLock::new(),
            has_changed: CancellationToken::new(),
        })
    }

    /// Looks whether the host is the one that is pinned. One that cannot be reached is no reason not to begin: calls say so
    /// until it can.
    ///
    /// # Errors
    /// [`Error::Host`]: it is another one.
    async fn look(&self) -> Result<(), Error> {
        match Connection::open(&self.pool.way).await {
            Ok(_) => info!(upstream = %self.name, host = %self.host, "the host shows a key that is pinned"),
            Err(connection::Error::HostKey(why)) => return Err(Error::Host(why)),
            Err(why) => warn!(upstream = %self.name, %why, "the host cannot be looked at; calls fail until it can"),
        }
        Ok(())
    }

    /// Ends all actions that can be ended, and waits for that.
    async fn stop(self: &Arc<Self>) {
        self.stopping.cancel();
        if tokio::time::timeout(LAST_WAIT, self.running.write()).await.is_err() {
            warn!(upstream = %self.name, "actions did not end in time");
        }
    }

    /// Returns when the host has turned out to be another one, and all that ran has ended.
    async fn drained(&self) -> String {
        self.has_changed.cancelled().await;
        drop(self.running.write().await);
        tokio::time::sleep(LAST_WORDS).await;
        self.changed.get().cloned().unwrap_or_default()
    }

    /// Takes no further calls: a host that was another one once is looked at anew by whoever starts this process.
    fn has_another_key(&self, why: &str) {
        if self.changed.set(why.to_owned()).is_ok() {
            error!(upstream = %self.name, reason = %why, "the host is not the one that is pinned");
        }
        self.has_changed.cancel();
    }

    /// Does what is asked, or says why not.
    async fn act(
        &self,
        action: &Action,
        arguments: &JsonObject,
        principal: &Principal,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let order = self.order(action, arguments)?;
        let turn = self.turn(principal, context).await?;
        if let Some(why) = self.changed.get() {
            return Err(why.clone());
        }
        // Held until the action has ended: whoever ends this process waits for it, and lets nobody in any more.
        let running = self.running.clone().try_read_owned().map(Arc::new).map_err(|_| ENDING)?;
        let request = request(context);
        let channel = self.channel(request, &order, context).await?;
        let (progress, newest) = watch::channel(Progress::default());
        let cancelled = self.stopping.child_token();
        let ran = tokio::select! {
            ran = run_action(channel, &order, &progress, &cancelled, (turn, Arc::clone(&running))) => ran,
            // These two never end. The first one is not waited for, and ends by what it sets off.
            never = pass_on(&context.ct, &cancelled) => never,
            never = report(context, &newest, order.timeout) => never,
        };
        info!(upstream = %self.name, request, tool = %action.name, end = ?ran.end, "an action was asked for");
        drop(running);
        Ok(outcome::result(&ran, &order))
    }

    async fn turn(&self, principal: &Principal, context: &RequestContext<RoleServer>) -> Result<Turn, String> {
        let turn = tokio::select! {
            turn = self.turns.turn(principal) => turn,
            () = context.ct.cancelled() => return Err(CANCELLED.to_owned()),
            () = self.stopping.cancelled() => return Err(ENDING.to_owned()),
        };
        turn.ok_or_else(|| {
            format!(
                "too many actions are running ({} at once, of which one user has all but an eighth); try again when one has \
                 ended",
                self.at_once
            )
        })
    }

    async fn channel(
        &self,
        request: &str,
        order: &Order,
        context: &RequestContext<RoleServer>,
    ) -> Result<(Channel<Msg>, Lease), String> {
        let key_id = key_id(request, &order.command);
        let channel = tokio::select! {
            channel = self.pool.channel(&key_id) => channel,
            () = context.ct.cancelled() => return Err(CANCELLED.to_owned()),
            () = self.stopping.cancelled() => return Err(ENDING.to_owned()),
        };
        channel.map_err(|why| {
            if let connection::Error::HostKey(why) = &why {
                self.has_another_key(why);
            }
            warn!(upstream = %self.name, request, tool = %order.tool, %why, "an action cannot be sent");
            why.to_string()
        })
    }

    fn order(&self, action: &Action, arguments: &JsonObject) -> Result<Order, String> {
        let command = action.command(arguments)?;
        Ok(Order {
            tool: action.name.clone(),
            command,
            finishes: action.finishes,
            timeout: action.timeout,
            output: action.output,
            begin: self.begin,
        })
    }
}

const CANCELLED: &str = "the call was cancelled";
const ENDING: &str = "this upstream is ending; try again in a moment";

// === impl Server ===

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let info = Implementation::new("portcullis-ssh", env!("CARGO_PKG_VERSION")).with_title("Actions on a host");
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(info)
            .with_instructions(INSTRUCTIONS)
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
        let unnamed = || ErrorData::invalid_request("the gateway does not say who asks", None);
        let principal = extension::<Principal>(&context).ok_or_else(unnamed)?;
        let unknown = || ErrorData::invalid_params(format!("there is no tool `{}`", call.name), None);
        let action = self.0.actions.get(&call.name).ok_or_else(unknown)?;
        let arguments = call.arguments.unwrap_or_default();
        let answer = self.0.act(action, &arguments, principal, &context).await;
        // What a caller can do something about is an answer, which models read (MCP 2025-11-25, Tools, "Error Handling").
        Ok(answer.unwrap_or_else(|why| failed(format!("nothing was sent to the host: {why}"))).into())
    }
}

/// What a model is told before it knows any tool.
const INSTRUCTIONS: &str = "A few actions on one host. Each is fixed: nothing else can be run there, and arguments are words \
                            from a short list or of a narrow form. A result with `isError` whose `ended` is `lost`, or that \
                            says that the action runs on, leaves open whether it was done: look before you ask again.";

fn tool(action: &Action) -> Tool {
    let mut tool = Tool::new(action.name.clone(), action.description.clone(), action.input_schema());
    tool.title = action.title.clone();
    tool.output_schema = Some(outcome::schema());
    let Hints { read_only_hint, destructive_hint, idempotent_hint, open_world_hint } = action.hints;
    let mut hints = ToolAnnotations::default();
    hints.title = action.title.clone();
    hints.read_only_hint = read_only_hint;
    hints.destructive_hint = destructive_hint;
    hints.idempotent_hint = idempotent_hint;
    hints.open_world_hint = open_world_hint;
    tool.annotations = Some(hints);
    tool
}

/// What the gateway says beside the request.
fn extension<T: Send + Sync + 'static>(context: &RequestContext<RoleServer>) -> Option<&T> {
    context.extensions.get::<axum::http::request::Parts>()?.extensions.get::<T>()
}

/// The name of the request; `-` where the gateway gives it none.
fn request(context: &RequestContext<RoleServer>) -> &str {
    extension::<Request>(context).map_or("-", Request::as_str)
}

/// Cancels one when the other is.
async fn pass_on<T>(from: &CancellationToken, to: &CancellationToken) -> T {
    from.cancelled().await;
    to.cancel();
    std::future::pending().await
}
