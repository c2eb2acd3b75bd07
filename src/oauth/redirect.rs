//! Sending a browser on: within this gateway, or back to a client (RFC 6749 §4.1.2, RFC 9207).

use super::request::{RedirectError, Request};
use crate::browser;
use crate::snapshot::Snapshot;
use axum::response::Response;
use url::form_urlencoded;

/// To another page of ours.
pub(super) fn within(path: &str) -> Response {
    browser::go_to(path)
}

/// To a client.
pub(super) fn to_client(url: &str) -> Response {
    browser::go_to(url)
}

/// The client's URL with a code in it.
pub(super) fn succeeded(snapshot: &Snapshot, request: &Request, code: &str) -> String {
    url(snapshot, &request.redirect_uri, request.state.as_deref(), &[("code", code)])
}

/// The client's URL with an error in it.
pub(super) fn failed(snapshot: &Snapshot, error: &RedirectError) -> String {
    let more = [("error", error.code), ("error_description", &*error.description)];
    url(snapshot, &error.redirect_uri, error.state.as_deref(), &more)
}

/// To a client, with an error that nobody has been asked about.
pub(super) fn refused(snapshot: &Snapshot, error: &RedirectError) -> Response {
    error.refusal().mark(to_client(&failed(snapshot, error)))
}

/// What the URI has already stays as it is; `state` and `iss` go along each time.
fn url(snapshot: &Snapshot, redirect_uri: &str, state: Option<&str>, more: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(more);
    query.extend_pairs(state.map(|state| ("state", state)));
    query.append_pair("iss", &snapshot.public_url);
    let joint = match redirect_uri.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    // `+` is a space in forms only; in a URI's query not every client takes it for one.
    format!("{redirect_uri}{joint}{}", query.finish().replace('+', "%20"))
}
