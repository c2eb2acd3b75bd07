//! Protected Resource Metadata (RFC 9728): which authorization server issues tokens for a route.

use super::{Shared, document, not_found};
use crate::snapshot::Route;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;

/// The document of one route, at the path RFC 9728 §3.1 derives from the route's URL.
pub(super) async fn of_route(State(shared): State<Shared>, Path(name): Path<String>) -> Response {
    let snapshot = shared.snapshots.load_full();
    match snapshot.routes.get(&name) {
        Some(route) => metadata(route),
        None => not_found(),
    }
}

/// The document at the bare well-known path: that of the only route there is. With several, none is meant.
pub(super) async fn root(State(shared): State<Shared>) -> Response {
    let snapshot = shared.snapshots.load_full();
    let mut routes = snapshot.routes.values();
    match (routes.next(), routes.next()) {
        (Some(route), None) => metadata(route),
        _ => not_found(),
    }
}

//= RFC 9728 §3.3
//# The "resource" value returned MUST be identical to the protected resource's resource identifier value into which
//# the well-known URI path suffix was inserted to create the URL used to retrieve the metadata.
fn metadata(route: &Route) -> Response {
    let server = &route.server;
    let mut metadata = json!({
        "resource": route.resource,
        "authorization_servers": [&*server.issuer],
        "bearer_methods_supported": ["header"],
        "resource_name": &*route.name,
    });
    // RFC 9728 §2 has no empty list.
    if !server.scopes.is_empty() {
        metadata["scopes_supported"] = json!(server.scopes);
    }
    document(StatusCode::OK, &metadata)
}
