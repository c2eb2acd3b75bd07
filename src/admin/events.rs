//! `/events`: says when the list of held calls has changed, or with `?status` anything that the status page shows
//! (server-sent events, WHATWG HTML §9.2). What has changed is not said: the page is asked for, and shows each person what
//! they may see.

use super::Shared;
use crate::browser::unavailable;
use crate::web::Caller;
use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until};

/// Changes are told at most this often.
const TOLD_EVERY: Duration = Duration::from_millis(250);
/// The status is looked at this often.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(1);
/// A sign of life, by which a browser that left is noticed as well.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `GET /events`, for whoever is logged in. An open list does not count as use of the session, and ends with it.
pub(super) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    match shared.plane.seen(&shared.snapshot(), &headers).await {
        Ok(Some(_)) => {}
        // 204: the browser does not try again.
        Ok(None) => return StatusCode::NO_CONTENT.into_response(),
        Err(error) => return unavailable(&caller, &error),
    }
    let Ok(place) = std::sync::Arc::clone(&shared.watchers).try_acquire_owned() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let (sender, body) = Channel::<Bytes>::new(4);
    let is_of_status = query.as_deref() == Some("status");
    tokio::spawn(tell(shared, headers, sender, place, is_of_status));
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store, no-transform"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (head, Body::new(body)).into_response()
}

/// Until the browser leaves, the session ends or the listener stops.
async fn tell(
    shared: Shared,
    headers: HeaderMap,
    mut sender: Sender<Bytes>,
    _place: OwnedSemaphorePermit,
    is_of_status: bool,
) {
    let mut changes = shared.approvals.changes();
    let mut stopping = shared.stopping.clone();
    // A list that was loaded a moment ago may have missed one.
    let mut word = Bytes::from_static(b"event: changed\ndata:\n\n");
    loop {
        if sender.send_data(word).await.is_err() {
            return;
        }
        let due = Instant::now() + KEEP_ALIVE;
        let seen = is_of_status.then(|| (shared.standing)().pulse());
        sleep(TOLD_EVERY).await;
        word = tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => Bytes::from_static(b"event: changed\ndata:\n\n"),
                Err(_) => return,
            },
            () = other(&shared, seen) => Bytes::from_static(b"event: changed\ndata:\n\n"),
            () = sleep_until(due) => Bytes::from_static(b":\n\n"),
            _ = stopping.wait_for(|is_stopping| *is_stopping) => return,
        };
        if !matches!(shared.plane.seen(&shared.snapshot(), &headers).await, Ok(Some(_))) {
            return;
        }
    }
}

/// Until the status is another than this. Never, where nobody asked for it.
async fn other(shared: &Shared, seen: Option<String>) {
    let Some(seen) = seen else {
        return std::future::pending().await;
    };
    while (shared.standing)().pulse() == seen {
        sleep(LOOKED_AT_EVERY).await;
    }
}
