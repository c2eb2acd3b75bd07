//! Sessions of the legacy era (MCP 2025-03-26 to 2025-11-25): how many there may be, and whose they are.
//!
//! The SDK's own manager knows neither. A session's answers can be fetched by whoever has its id (Streamable HTTP,
//! "Resumability"), so it is good for the principal that began it alone. The gateway seals ids for the same reason; this
//! holds without it.

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use portcullis_local::Principal;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tracing::warn;

/// Who has which session.
#[derive(Clone)]
pub(crate) struct Sessions {
    manager: Arc<LocalSessionManager>,
    owners: Arc<Mutex<HashMap<String, Owner>>>,
}

struct Owner {
    /// `None` for the gateway itself, which asks what tools there are.
    principal: Option<Principal>,
    last_used: Instant,
}

/// The header that names a session.
const SESSION: &str = "mcp-session-id";
/// The header that names a revision of the protocol.
const VERSION: &str = "mcp-protocol-version";
/// The first revision without sessions. Revisions are dates, and compare as text.
const WITHOUT_SESSIONS: &str = "2026-07-28";
/// Sessions of one principal. One more ends the one that was not used for the longest time.
const OF_ONE: usize = 64;
/// Sessions of all principals. One more is refused until one ends.
const OF_ALL: usize = 1024;

impl Sessions {
    pub(crate) fn new(manager: Arc<LocalSessionManager>) -> Sessions {
        Sessions { manager, owners: Arc::default() }
    }

    /// `router`, for those whose session it is.
    pub(crate) fn guard(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self, through))
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `id` is a session of `principal`, which uses it now.
    fn uses(&self, id: &str, principal: Option<&Principal>) -> bool {
        let mut owners = self.owners();
        let own = owners.get_mut(id).filter(|owner| owner.principal.as_ref() == principal);
        own.map(|owner| owner.last_used = Instant::now()).is_some()
    }

    /// Makes room for one more session of `principal`; whether there is any.
    async fn make_room(&self, principal: Option<&Principal>) -> bool {
        let live: Vec<String> = self.manager.sessions.read().await.keys().map(ToString::to_string).collect();
        let ended = {
            let mut owners = self.owners();
            owners.retain(|id, _| live.iter().any(|other| other == id));
            let mut own: Vec<(&String, Instant)> = owners
                .iter()
                .filter(|(_, owner)| owner.principal.as_ref() == principal)
                .map(|(id, owner)| (id, owner.last_used))
                .collect();
            own.sort_by_key(|(_, last_used)| *last_used);
            let n_over = (own.len() + 1).saturating_sub(OF_ONE);
            own.into_iter().take(n_over).map(|(id, _)| id.clone()).collect::<Vec<String>>()
        };
        for id in &ended {
            self.owners().remove(id);
            if let Err(error) = self.manager.close_session(&id.as_str().into()).await {
                warn!(%error, "a session cannot be ended");
            }
        }
        live.len() - ended.len() < OF_ALL
    }
}

async fn through(State(sessions): State<Sessions>, request: Request, next: Next) -> Response<Body> {
    let principal = request.extensions().get::<Principal>().cloned();
    let named = request.headers().get(SESSION).map(|id| id.to_str().unwrap_or_default().to_owned());
    if let Some(id) = &named {
        if !is_modern(request.headers()) && !sessions.uses(id, principal.as_ref()) {
            return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
        }
    } else if request.method() == Method::POST
        && !is_modern(request.headers())
        && !sessions.make_room(principal.as_ref()).await
    {
        let wait = [(header::RETRY_AFTER, "30")];
        return (StatusCode::SERVICE_UNAVAILABLE, wait, "too many sessions; end one, or come back later")
            .into_response();
    }
    let response = next.run(request).await;
    let begun = response.headers().get(SESSION).and_then(|id| id.to_str().ok());
    if let Some(id) = begun.filter(|_| named.is_none()) {
        sessions.owners().insert(id.to_owned(), Owner { principal, last_used: Instant::now() });
    }
    response
}

fn is_modern(headers: &HeaderMap) -> bool {
    headers.get(VERSION).and_then(|version| version.to_str().ok()).is_some_and(|version| version >= WITHOUT_SESSIONS)
}
