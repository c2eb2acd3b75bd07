//! The OAuth 2.1 authorization server, on the agent listener: one file an endpoint or grant, named as in the RFC.
//!
//! A login goes `authorize` → `request` (what is asked for, checked) → `login` → `consent` → a code; what follows is
//! `token`'s. Clients are `client`'s, whatever they are known from. What browsers keep is `crate::browser`'s.

mod authorization_code;
mod authorize;
mod caller;
mod client;
mod client_authentication;
mod client_credentials;
mod client_metadata;
mod consent;
mod documents;
mod error;
mod error_pages;
mod fetches;
mod grants;
mod holds;
mod introspect;
mod jwks;
mod login;
mod metadata;
mod metadata_document;
mod post;
mod protected_resource;
mod record;
mod redirect;
mod refresh_token;
mod register;
mod request;
mod resource;
mod revoke;
mod scope;
mod setup;
mod successor;
#[cfg(test)]
mod tests;
mod token;

use crate::approval::Approvals;
use crate::audit::Audit;
use crate::browser::{self, Budget, Plane, Rate, Signing};
use crate::clock::Clock;
use crate::fetch::Fetcher;
use crate::identity::Keys;
use crate::metrics::Metrics;
use crate::pages;
use crate::secret::Secret;
use crate::snapshot::Snapshot;
use crate::store::Store;
use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

use documents::Documents;
use register::Registrations;
use setup::Setup;

/// People at the agent listener.
pub const PLANE: browser::Kind = browser::Kind {
    name: "oauth",
    place: None,
    apart: None,
    session: "portcullis-session",
    browser: "portcullis-browser",
    device: "portcullis-device",
    session_domain: b"",
    idle_ms: 60 * 60 * 1000,
    longest_ms: 12 * 60 * 60 * 1000,
    url: |snapshot| &snapshot.public_url,
};

/// What the endpoints are given.
pub struct Given<'a> {
    /// The configuration in force. An endpoint loads it once.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// What signs access tokens.
    pub keys: Arc<Keys>,
    /// Clients, codes, grants, browser sessions.
    pub store: Store,
    /// Now.
    pub clock: Clock,
    /// The record of what was decided.
    pub audit: Audit,
    /// Calls that wait for a person.
    pub approvals: Approvals,
    /// Gets the documents of clients.
    pub fetcher: Fetcher,
    /// From which the keys are derived that sign the small things which browsers keep for us.
    pub key: &'a [u8; 32],
}

/// What the endpoints work with. Clones share all of it.
#[derive(Clone)]
pub struct Shared {
    snapshots: Arc<ArcSwap<Snapshot>>,
    keys: Arc<Keys>,
    store: Store,
    clock: Clock,
    audit: Audit,
    approvals: Approvals,
    /// What clients say of themselves at their own URLs.
    documents: Arc<Documents>,
    /// How fast clients may register.
    registrations: Arc<Registrations>,
    signing: Arc<Signing>,
    /// Logins of people.
    plane: Plane,
    /// How fast one address may begin to log in.
    beginnings: Arc<Budget>,
    /// The link for the first person, where there is nobody yet.
    setup: Option<Arc<Setup>>,
}

// === impl Shared ===

impl Shared {
    /// What the endpoints need, and the link for the first person where there is nobody yet: whoever has it becomes an admin.
    pub fn new(given: Given<'_>) -> (Shared, Option<Secret<String>>) {
        let snapshot = given.snapshots.load_full();
        let setup = snapshot.users.is_empty().then(|| Setup::new(&given.clock));
        let link = setup.as_ref().map(|(_, secret)| format!("{}/setup?link={}", snapshot.public_url, secret.expose()));
        let (snapshots, store) = (Arc::clone(&given.snapshots), given.store.clone());
        let plane = Plane::new(&PLANE, given.key, snapshots, store, given.clock.clone(), given.audit.clone());
        let shared = Shared {
            snapshots: given.snapshots,
            keys: given.keys,
            store: given.store,
            clock: given.clock,
            audit: given.audit,
            approvals: given.approvals,
            documents: Arc::new(Documents::new(given.fetcher)),
            registrations: Arc::default(),
            signing: Arc::clone(&plane.signing),
            plane,
            beginnings: Arc::new(Budget::of_each(Rate { burst: 60, every: Duration::from_secs(1) })),
            setup: setup.map(|(setup, _)| Arc::new(setup)),
        };
        (shared, link.map(Secret::new))
    }
}

/// Paths that scripts of any web origin may use: they carry no cookie, and what they give is for whoever asks, or for whoever
/// has the code or secret (OAuth 2.1 §3.2, RFC 9728). A `*` at the end stands for the rest of a path.
pub const OPEN_TO_SCRIPTS: &[&str] = &["/.well-known/*", "/jwks", "/token", "/register", "/revoke"];

/// Every endpoint and document, and for every other path a 404 that is neither HTML nor a challenge: clients probe many
/// well-known paths and take anything else for an answer.
pub fn router(shared: Shared, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .merge(authorization_server(&shared))
        .route("/.well-known/oauth-protected-resource", get(protected_resource::root))
        .route("/.well-known/oauth-protected-resource/mcp/{name}", get(protected_resource::of_route))
        .route("/jwks", get(jwks::get))
        .route("/login", get(login::get).post(login::post))
        .route("/logout", post(login::log_out))
        .route("/grants", get(grants::get).post(grants::post))
        .route("/holds/{id}", get(holds::get).post(holds::post))
        .route("/setup", get(setup::get).post(setup::post))
        .route(pages::STYLE_PATH, get(|| async { pages::style() }))
        .route(pages::ICON_PATH, get(|| async { pages::icon() }))
        .fallback(|| async { not_found() })
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(shared.plane.clone(), browser::write_down))
        .layer(axum::middleware::from_fn(caller::remember))
        .layer(from_fn_with_state(metrics, count))
        .with_state(shared)
}

async fn count(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let began = Instant::now();
    let response = next.run(request).await;
    let path = path.as_ref().map(MatchedPath::as_str);
    metrics.oauth_request(path, response.status().as_u16(), began.elapsed().as_secs_f64());
    response
}

/// Where clients get their tokens; not there while the configuration names another authorization server.
fn authorization_server(shared: &Shared) -> Router<Shared> {
    Router::new()
        .route("/.well-known/oauth-authorization-server", get(metadata::get))
        .route("/.well-known/openid-configuration", get(metadata::get_openid))
        // Not for HEAD, which must change nothing: who consented before is given a code here.
        .route("/authorize", get(authorize::get).head(method_not_allowed))
        .route("/consent", get(consent::get).post(consent::post))
        .route("/token", post(token::post))
        .route("/register", post(register::post))
        .route("/revoke", post(revoke::post))
        .route("/introspect", post(introspect::post))
        .route_layer(from_fn_with_state(shared.clone(), only_where_served))
}

async fn only_where_served(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let is_served = shared.snapshots.load().config.identity.authorization_server.is_none();
    if is_served { next.run(request).await } else { not_found() }
}

async fn method_not_allowed() -> Response {
    document(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "method_not_allowed" }))
}

fn not_found() -> Response {
    document(StatusCode::NOT_FOUND, &json!({ "error": "not_found" }))
}

fn document(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
