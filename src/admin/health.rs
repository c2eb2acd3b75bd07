//! `/healthz`, `/readyz` and `/metrics`, on a listener of their own: agents and browsers have no business there.

use crate::audit::Audit;
use crate::identity::Verifier;
use crate::metrics::{Metrics, Spans};
use crate::otlp::Exporter;
use crate::secret::Secret;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What decides whether this process should get traffic.
#[derive(Clone)]
pub struct Readiness {
    /// The audit log; without it no tool call goes through.
    pub audit: Audit,
    /// Tokens; without news of revocations no tool call goes through.
    pub verifier: Verifier,
    /// Set once the process begins to stop.
    pub is_stopping: Arc<AtomicBool>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Spans on their way.
    pub traces: Exporter,
    /// What `/metrics` asks for.
    pub token: Option<Secret<String>>,
}

/// The three endpoints.
pub fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(readiness)
}

/// 200 while traffic is welcome, 503 with the reasons otherwise. A failing upstream is no reason: the others work.
async fn ready(State(readiness): State<Readiness>) -> Response {
    let checks = [
        ("audit", readiness.audit.is_available()),
        ("revocations", readiness.verifier.is_current()),
        ("running", !readiness.is_stopping.load(Ordering::Relaxed)),
    ];
    let is_ready = checks.iter().all(|(_, is_well)| *is_well);
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({ "ready": is_ready, "checks": checks.into_iter().collect::<std::collections::BTreeMap<_, _>>() });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

async fn metrics(State(readiness): State<Readiness>, headers: HeaderMap) -> Response {
    if let Some(token) = &readiness.token {
        let wanted = format!("Bearer {}", token.expose());
        let sent = headers.get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes).unwrap_or_default();
        // Both are hashed first, so that the comparison tells nothing of where they differ.
        if crate::audit::sha256(sent) != crate::audit::sha256(wanted.as_bytes()) {
            return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response();
        }
    }
    let audit = readiness.audit.clone();
    // It reads a directory: not on a thread that serves calls.
    let _ = tokio::task::spawn_blocking(move || audit.measure()).await;
    readiness.metrics.tokens(readiness.verifier.n_cached(), readiness.verifier.is_current());
    let (counts, waiting) = (readiness.traces.counts(), readiness.traces.n_waiting());
    let (exported, dropped, failures) = (counts.exported(), counts.dropped(), counts.failures());
    readiness.metrics.spans(&Spans { exported, dropped, failures, waiting });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], readiness.metrics.render()).into_response()
}
