//! Answering on the socket that was handed over, to the gateway alone, for as long as the gateway lives.

use crate::handover::{READY, SECRET_HEADER, SECRET_LEN};
use crate::principal::{self, Principal};
use crate::request;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing::{info, warn};

/// Where the gateway asks whether this process still answers.
pub const HEALTH: &str = "/healthz";

/// Answers with `router` until the gateway ends or asks this process to (SIGTERM). Every request must show `secret`; who
/// asks and what it is called there are extensions of it, [`Principal`] and
/// [`request::Request`], where the gateway says so.
///
/// # Errors
/// The socket cannot be used.
pub async fn serve(
    listener: UnixListener,
    secret: [u8; SECRET_LEN],
    ready: OwnedFd,
    router: Router,
    stopping: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let router = router.route(HEALTH, get(async || "answers"));
    let router = router.layer(middleware::from_fn_with_state(secret, only_the_gateway));
    // The socket has been listening since before this process began: nothing that was sent meanwhile is lost.
    rustix::io::write(&ready, READY)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let gone = Gone::watch(ready);
    let server = axum::serve(listener, router);
    tokio::select! {
        ended = server => return ended,
        () = gone.wait() => warn!("the gateway has gone; ending"),
        _ = terminate.recv() => info!("asked to stop"),
    }
    stopping.await;
    Ok(())
}

async fn only_the_gateway(State(secret): State<[u8; SECRET_LEN]>, mut request: Request, next: Next) -> Response<Body> {
    let shown = request.headers_mut().remove(SECRET_HEADER);
    let shown = shown.and_then(|value| URL_SAFE_NO_PAD.decode(value.as_bytes()).ok()).unwrap_or_default();
    if !is_equal(&shown, &secret) {
        return (StatusCode::FORBIDDEN, "only the gateway may ask here").into_response();
    }
    if let Some(value) = request.headers_mut().remove(principal::HEADER) {
        let Some(principal) = Principal::of_header(value.as_bytes()) else {
            return (StatusCode::BAD_REQUEST, "who asks cannot be read").into_response();
        };
        request.extensions_mut().insert(principal);
    }
    if let Some(value) = request.headers_mut().remove(request::HEADER) {
        let Some(name) = request::Request::of_header(value.as_bytes()) else {
            return (StatusCode::BAD_REQUEST, "the name of the request cannot be read").into_response();
        };
        request.extensions_mut().insert(name);
    }
    next.run(request).await
}

/// In constant time, as far as the length is right.
#[expect(deprecated, reason = "ring has no other comparison in constant time, and this one is not going away")]
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    ring::constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// The end of the gateway, however it ended.
pub struct Gone(oneshot::Receiver<()>);

impl Gone {
    /// Watches `ready`, whose other end the gateway holds for as long as it lives.
    pub fn watch(ready: OwnedFd) -> Gone {
        let (tell, told) = oneshot::channel();
        // A thread of its own: it needs nothing, and waits for the whole life of this process.
        std::thread::spawn(move || {
            let mut watched = [PollFd::new(&ready, PollFlags::empty())];
            while poll(&mut watched, None).is_err() {}
            let _ = tell.send(());
        });
        Gone(told)
    }

    /// Returns once it has gone.
    pub async fn wait(self) {
        // An error is the end of the thread, which means the same.
        drop(self.0.await);
    }
}
