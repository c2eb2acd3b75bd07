//! Our public keys (RFC 7517), for whoever wants to check a token of ours by themselves.

use super::{Shared, document};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

pub(super) async fn get(State(shared): State<Shared>) -> Response {
    document(StatusCode::OK, &shared.keys.jwks())
}
