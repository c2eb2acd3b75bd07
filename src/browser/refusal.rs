//! What is recorded of a request that was refused, whichever page or error says so.
//!
//! An answer carries it to the one place that writes it down, so that no endpoint has to and none can forget to: the page
//! names the request, and whoever is asked for help finds it in the log.

use super::Plane;
use crate::web::Caller;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use std::borrow::Cow;

/// Why an answer is no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The stable code.
    pub code: &'static str,
    /// A sentence of ours. Nothing a stranger sent is in it, except names that are public.
    pub detail: Cow<'static, str>,
}

/// Writes down what was refused. Strangers cannot fill the log with it.
pub async fn write_down(State(plane): State<Plane>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
    let response = next.run(request).await;
    if let Some(refusal) = response.extensions().get::<Refusal>() {
        plane.refused(&caller, refusal);
    }
    response
}

// === impl Refusal ===

impl Refusal {
    /// Lets this answer say so to whoever writes it down.
    pub fn mark(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}
