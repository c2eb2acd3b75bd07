//! `POST /webhooks/<name>`: where a receiver of webhooks sends its decision, if it did not give it as its answer.
//!
//! Nobody is logged in here: the signature of the body says who speaks, and the configuration as whom. What counts and what
//! does not is `approval::webhook`'s matter; here it is made of HTTP, and into HTTP.

use crate::approval::webhook::{Heard, Hearing, NotHeard, Signed};
use crate::approval::{Approvals, Place, Refused};
use crate::snapshot::Snapshot;
use crate::web::Caller;
use arc_swap::ArcSwap;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use serde_json::json;
use std::sync::Arc;

/// In bytes. A decision has a few hundred.
const MAX_BODY: usize = 16 * 1024;

#[derive(Clone)]
struct Given {
    snapshots: Arc<ArcSwap<Snapshot>>,
    approvals: Approvals,
}

/// The endpoint, for the admin listener.
pub fn router<S: Clone + Send + Sync + 'static>(snapshots: Arc<ArcSwap<Snapshot>>, approvals: Approvals) -> Router<S> {
    Router::new().route("/webhooks/{hook}", post(hear)).with_state(Given { snapshots, approvals })
}

async fn hear(State(given): State<Given>, Path(hook): Path<String>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let caller: Caller = parts.extensions.get().cloned().unwrap_or_default();
    let Some(in_force) = given.snapshots.load_full().telling() else {
        return refused(&NotHeard::Hook);
    };
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return refused(&NotHeard::Malformed(format!("its body is larger than {} KiB", MAX_BODY / 1024)));
    };
    let Some(signed) = Signed::of(&parts.headers, &body) else {
        return refused(&NotHeard::Signature);
    };
    let peer = caller.address.map(|address| address.to_string());
    let place = Place { issuer: &in_force.issuer, request: Some(&caller.request), peer: peer.as_deref() };
    match given.approvals.hear(&Hearing { hook: &hook, signed, place }, &in_force).await {
        Ok(Ok(heard)) => taken(&heard),
        Ok(Err(why)) => refused(&why),
        Err(error) => {
            tracing::error!(%error, "a decision of a webhook could not be taken");
            let text = "it could not be written down; send it again";
            answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "unavailable", "error_description": text }))
        }
    }
}

fn taken(heard: &Heard) -> Response {
    let body = json!({ "id": heard.id, "state": heard.state.as_str(), "repeated": heard.is_repeated });
    answer(StatusCode::OK, &body)
}

fn refused(why: &NotHeard) -> Response {
    answer(status(why), &json!({ "error": why.code(), "error_description": why.to_string() }))
}

fn status(why: &NotHeard) -> StatusCode {
    match why {
        NotHeard::Hook | NotHeard::Unknown | NotHeard::Refused(Refused::Unknown) => StatusCode::NOT_FOUND,
        NotHeard::Signature => StatusCode::UNAUTHORIZED,
        NotHeard::Malformed(_) => StatusCode::BAD_REQUEST,
        NotHeard::DecidesNot | NotHeard::Person => StatusCode::FORBIDDEN,
        NotHeard::Refused(Refused::NotEntitled | Refused::OwnCall | Refused::NeedsPassword) => StatusCode::FORBIDDEN,
        NotHeard::Repeated | NotHeard::Refused(Refused::Decided(_) | Refused::Digest | Refused::Twice) => {
            StatusCode::CONFLICT
        }
    }
}

fn answer(status: StatusCode, body: &serde_json::Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
