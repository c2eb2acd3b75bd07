//! Sessions of the legacy era (MCP 2025-03-26 to 2025-11-25): how many there may be, and whose they are.
//!
//! The SDK's own manager knows neither. A session's answers can be fetched by whoever has its id (Streamable HTTP,
//! "Resumability"), so it is good for the principal that began it alone. The gateway seals ids for the same reason; this
//! holds without it.

use crate::principal::Principal;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tracing::{info, warn};

/// Who has which session.
#[derive(Clone)]
pub struct Sessions {
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
/// Sessions of one principal. One more ends the one that was not used for the longest time.
const OF_ONE: usize = 64;
/// Sessions of all principals. The same holds.
const OF_ALL: usize = 1024;

impl Sessions {
    /// Those that `manager` keeps.
    pub fn new(manager: Arc<LocalSessionManager>) -> Sessions {
        Sessions { manager, owners: Arc::default() }
    }

    /// `router`, for those whose session it is.
    pub fn guard(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self, through))
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `principal` may name the session `id`, and uses it now. One that is not known is the SDK's to refuse.
    fn uses(&self, id: &str, principal: Option<&Principal>) -> bool {
        match self.owners().get_mut(id) {
            Some(owner) if owner.principal.as_ref() == principal => {
                owner.last_used = Instant::now();
                true
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Writes down whose the session `id` is, and ends those that are too many then.
    async fn begun(&self, id: &str, principal: Option<Principal>) {
        let live: HashSet<String> = self.manager.sessions.read().await.keys().map(ToString::to_string).collect();
        let too_many = {
            let mut owners = self.owners();
            owners.insert(id.to_owned(), Owner { principal: principal.clone(), last_used: Instant::now() });
            owners.retain(|id, _| live.contains(id));
            let mut too_many = oldest(&owners, OF_ONE, |owner| owner.principal == principal);
            too_many.extend(oldest(&owners, OF_ALL, |_| true));
            owners.retain(|id, _| !too_many.contains(id));
            too_many
        };
        for id in too_many {
            info!("ended the session that was not used for the longest time, since there were too many");
            if let Err(error) = self.manager.close_session(&id.into()).await {
                warn!(%error, "a session cannot be ended");
            }
        }
    }
}

/// Those that were not used for the longest time, as far as more than `most` are meant.
fn oldest(owners: &HashMap<String, Owner>, most: usize, is_meant: impl Fn(&Owner) -> bool) -> Vec<String> {
    let mut meant: Vec<_> = owners.iter().filter(|(_, owner)| is_meant(owner)).collect();
    meant.sort_by_key(|(_, owner)| owner.last_used);
    let n_over = meant.len().saturating_sub(most);
    meant.into_iter().take(n_over).map(|(id, _)| id.clone()).collect()
}

async fn through(State(sessions): State<Sessions>, request: Request, next: Next) -> Response<Body> {
    let principal = request.extensions().get::<Principal>().cloned();
    let named = request.headers().get(SESSION).map(|id| id.to_str().unwrap_or_default().to_owned());
    if named.as_ref().is_some_and(|id| !sessions.uses(id, principal.as_ref())) {
        return (StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
    }
    let response = next.run(request).await;
    let begun = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
    if let Some(id) = begun.filter(|_| named.is_none()) {
        sessions.begun(&id, principal).await;
    }
    response
}
