//! What people, operators and their machines see: the pages where held calls are decided, health, metrics, and the local
//! socket that commands talk to.
//!
//! The pages are on a listener of their own (`door`), with logins of their own. No token of an agent opens anything there,
//! and no page of the agent listener reaches it. What is decided is `approval`'s matter; here it is shown and asked for:
//! `approvals` shows, `decision` takes what a form says, `api` does both in JSON.

mod api;
mod approvals;
mod credentials;
mod decision;
mod door;
mod events;
mod health;
mod login;
mod operator;
mod shown;
mod standing;
mod status;
mod webhooks;

pub use door::Door;
pub use health::{Readiness, router as health_router};
pub use operator::{Answer, router as operator_router};
pub use standing::{
    AuditStanding, CertificateStanding, Configuration, Refused, Standing, TracesStanding, UpstreamStanding,
};
pub use webhooks::router as webhooks_router;

use crate::approval::{Approvals, People};
use crate::audit::Audit;
use crate::browser::{self, Plane};
use crate::clock::Clock;
use crate::pages;
use crate::snapshot::Snapshot;
use crate::store::Store;
use arc_swap::ArcSwap;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// People at the admin listener. Their sessions are shorter than those on the agent listener: what is decided here cannot be
/// taken back.
pub const PLANE: browser::Kind = browser::Kind {
    name: "admin",
    place: Some("at the approvals page"),
    apart: Some("admin"),
    session: "portcullis-approver",
    browser: "portcullis-approver-browser",
    device: "portcullis-approver-device",
    session_domain: b"portcullis/admin/session/v1\0",
    idle_ms: 30 * 60 * 1000,
    longest_ms: 8 * 60 * 60 * 1000,
    url: |snapshot| snapshot.admin.as_ref().map_or(&*snapshot.public_url, |admin| &*admin.url),
};

/// Lists that are kept up to date at the same time.
const MAX_WATCHERS: usize = 256;

/// What the pages are given.
#[derive(Clone)]
pub struct Given {
    /// The configuration in force. A page loads it once.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Sessions, and what became of notices.
    pub store: Store,
    /// Now.
    pub clock: Clock,
    /// The record of who did what.
    pub audit: Audit,
    /// Held calls.
    pub approvals: Approvals,
    /// The gateway's key, from which those of the pages are derived.
    pub key: [u8; 32],
    /// How it is with the whole gateway.
    pub standing: Arc<dyn Fn() -> Standing + Send + Sync>,
}

/// What the pages work with. Clones share all of it.
#[derive(Clone)]
struct Shared {
    plane: Plane,
    store: Store,
    approvals: Approvals,
    standing: Arc<dyn Fn() -> Standing + Send + Sync>,
    /// Limits the lists that are kept up to date.
    watchers: Arc<Semaphore>,
    /// Says when the listener stops.
    stopping: watch::Receiver<bool>,
}

// === impl Shared ===

impl Shared {
    fn new(given: Given, stopping: watch::Receiver<bool>) -> Shared {
        let store = given.store.clone();
        Shared {
            plane: Plane::new(&PLANE, &given.key, given.snapshots, given.store, given.clock, given.audit),
            store,
            approvals: given.approvals,
            standing: given.standing,
            watchers: Arc::new(Semaphore::new(MAX_WATCHERS)),
            stopping,
        }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.plane.snapshots.load_full()
    }

    fn now_ms(&self) -> i64 {
        self.plane.clock.unix_ms()
    }
}

/// What anybody is in under this configuration.
fn people(snapshot: &Arc<Snapshot>) -> People {
    let snapshot = Arc::clone(snapshot);
    Arc::new(move |name| snapshot.users.get(name).map(|person| Arc::clone(&person.groups)))
}

/// Whether every decision asks for the password: over plain HTTP, which is for this machine only, a cookie proves little.
fn is_plain(snapshot: &Snapshot) -> bool {
    snapshot.admin.as_ref().is_none_or(crate::snapshot::Admin::is_plain)
}

/// Every page and endpoint of the admin listener.
fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", get(approvals::list))
        .route("/approvals/{id}", get(approvals::one).post(decision::post))
        .route("/login", get(login::get).post(login::post))
        .route("/logout", post(login::log_out))
        .route("/events", get(events::get))
        .route(status::STATUS, get(status::get))
        .route("/api/status", get(status::api))
        .route("/api/approvals", get(api::list))
        .route("/api/approvals/{id}", get(api::one))
        .route("/api/approvals/{id}/{verb}", post(api::decide))
        .route(pages::STYLE_PATH, get(|| async { pages::style() }))
        .route(pages::ICON_PATH, get(|| async { pages::icon() }))
        .route(pages::LIVE_PATH, get(|| async { pages::live() }))
        .merge(webhooks::router(Arc::clone(&shared.plane.snapshots), shared.approvals.clone()))
        .fallback(|| async { approvals::not_found() })
        .method_not_allowed_fallback(|| async { method_not_allowed() })
        .layer(from_fn(credentials::only_people))
        .layer(from_fn_with_state(shared.plane.clone(), browser::write_down))
        .with_state(shared)
}

fn method_not_allowed() -> Response {
    let page = pages::Message {
        title: "That is not done here".to_owned(),
        text: vec!["This address does not take requests of this kind.".to_owned()],
        details: Vec::new(),
        link: Some(("/".to_owned(), "To the approvals".to_owned())),
        is_error: true,
    };
    pages::answer(StatusCode::METHOD_NOT_ALLOWED, &page, None)
}
