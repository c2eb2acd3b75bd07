//! OAuth on the agent listener. Today: the documents that tell a client where a token for a route comes from
//! (RFC 9728) and our public keys. The flows themselves are a later step.

mod jwks;
mod protected_resource;

use crate::identity::Keys;
use crate::snapshot::Snapshot;
use arc_swap::ArcSwap;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the endpoints work with.
#[derive(Clone)]
struct Shared {
    snapshots: Arc<ArcSwap<Snapshot>>,
    keys: Arc<Keys>,
}

/// Every document, and for every other path a 404 that is neither HTML nor a challenge: clients probe many well-known
/// paths and take anything else for an answer.
pub fn router(snapshots: Arc<ArcSwap<Snapshot>>, keys: Arc<Keys>) -> Router {
    Router::new()
        .route("/.well-known/oauth-protected-resource", get(protected_resource::root))
        .route("/.well-known/oauth-protected-resource/mcp/{name}", get(protected_resource::of_route))
        .route("/jwks", get(jwks::get))
        .fallback(|| async { not_found() })
        .method_not_allowed_fallback(|| async {
            document(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "method_not_allowed" }))
        })
        .with_state(Shared { snapshots, keys })
}

fn not_found() -> Response {
    document(StatusCode::NOT_FOUND, &json!({ "error": "not_found" }))
}

fn document(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
