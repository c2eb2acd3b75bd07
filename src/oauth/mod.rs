//! OAuth on the agent listener. Today: the documents that tell a client where a token for a route comes from
//! (RFC 9728) and our public keys. The flows themselves are a later step.

mod budget;
mod caller;
mod client;
mod client_authentication;
mod client_metadata;
mod error;
mod fetches;
mod form;
mod jwks;
mod metadata_document;
mod protected_resource;
mod register;
mod signing;

use crate::audit::Audit;
use crate::clock::Clock;
use crate::identity::Keys;
use crate::snapshot::Snapshot;
use crate::store::Store;
use arc_swap::ArcSwap;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use std::sync::Arc;

pub use metadata_document::Documents;
pub use register::Registrations;
pub use signing::Signing;

/// What the endpoints work with. Clones share all of it.
#[derive(Clone)]
pub struct Shared {
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
    /// What clients say of themselves at their own URLs.
    pub documents: Arc<Documents>,
    /// How fast clients may register.
    pub registrations: Arc<Registrations>,
    /// What signs the small things that browsers keep for us.
    pub signing: Arc<Signing>,
}

/// Every document, and for every other path a 404 that is neither HTML nor a challenge: clients probe many well-known
/// paths and take anything else for an answer.
pub fn router(shared: Shared) -> Router {
    Router::new()
        .route("/.well-known/oauth-protected-resource", get(protected_resource::root))
        .route("/.well-known/oauth-protected-resource/mcp/{name}", get(protected_resource::of_route))
        .route("/jwks", get(jwks::get))
        .route("/register", post(register::post))
        .fallback(|| async { not_found() })
        .method_not_allowed_fallback(|| async {
            document(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "method_not_allowed" }))
        })
        .layer(axum::middleware::from_fn(caller::remember))
        .with_state(shared)
}

fn not_found() -> Response {
    document(StatusCode::NOT_FOUND, &json!({ "error": "not_found" }))
}

fn document(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
