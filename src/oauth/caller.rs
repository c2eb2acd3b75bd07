//! The address a request came from, for what is done deep inside on a stranger's behalf: fetching a document.
//!
//! It is kept with the task, so that no endpoint has to hand it down and none can forget to.

use crate::web::Caller;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use std::net::IpAddr;

tokio::task_local! {
    static ADDRESS: Option<IpAddr>;
}

/// Answers a request as whoever it came from.
pub(super) async fn remember(request: Request, next: Next) -> Response {
    let address = request.extensions().get::<Caller>().and_then(|caller| caller.address);
    ADDRESS.scope(address, next.run(request)).await
}

/// Where the request came from that is being answered.
pub(super) fn address() -> Option<IpAddr> {
    ADDRESS.try_with(|address| *address).ok().flatten()
}
