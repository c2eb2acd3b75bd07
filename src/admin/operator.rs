//! The operator's socket, `data_dir/operator.sock`: what a command may ask of a running gateway.
//!
//! Agents and stdio servers often run as the same local user, so whoever can open the socket may only look, check and
//! reload (DESIGN §1). Nothing here changes the store.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the running gateway says.
#[derive(Debug, Deserialize, Serialize)]
pub struct Answer {
    /// Whether it was done.
    pub ok: bool,
    /// The configuration in force afterwards, by the start of its hash.
    pub snapshot: String,
    /// The origin that clients type.
    pub public_url: String,
    /// For people: what was done, or every problem.
    pub text: String,
    /// Of `status`: the same for programs, as `/api/status` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<serde_json::Value>,
}

type Action = Arc<dyn Fn() -> Answer + Send + Sync>;

#[derive(Clone)]
struct Actions {
    reload: Action,
    status: Action,
}

/// The socket's endpoints. `reload` and `status` are handed in, since what they do lies elsewhere.
pub fn router(
    reload: impl Fn() -> Answer + Send + Sync + 'static,
    status: impl Fn() -> Answer + Send + Sync + 'static,
) -> Router {
    Router::new()
        .route("/reload", post(|State(actions): State<Actions>| async move { answer(&(actions.reload)()) }))
        .route("/status", get(|State(actions): State<Actions>| async move { answer(&(actions.status)()) }))
        .with_state(Actions { reload: Arc::new(reload), status: Arc::new(status) })
}

fn answer(answer: &Answer) -> Response {
    let status = if answer.ok { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, serde_json::to_string(answer).unwrap_or_default()).into_response()
}
