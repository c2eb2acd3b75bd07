//! From the head of a request to what it is for. Nothing of the client is believed here but the path it asks for.
//!
//! First the guard: with `behind_proxy` only those proxies may connect; `Host` must be one of our names and `Origin`,
//! where a browser sends one, an allowed origin
//! (MCP, Streamable HTTP, "Security Warning": DNS rebinding). Then the path, compared byte for byte with the routes.

use super::exchange::Exchange;
use super::refuse::{Code, Refusal};
use crate::redact::Redactor;
use crate::snapshot::{Route, Snapshot};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Method};
use std::net::SocketAddr;
use std::sync::Arc;
use tracing::warn;

/// What a request is for.
pub(super) enum Found {
    /// An upstream behind `/mcp/<name>`.
    Route(Arc<Route>),
    /// One of our own documents or pages; a path that is neither is answered there, too, with 404.
    Page,
    /// A browser asking whether it may ask.
    Preflight,
}

/// Finds it.
///
/// # Errors
/// A peer, `Host` or `Origin` that is not ours; an unknown upstream.
pub(super) fn find(exchange: &mut Exchange, pages: &Pages) -> Result<Found, Refusal> {
    check_peer(exchange)?;
    let head = exchange.session.req_header();
    check_host(&head.headers, head.uri.authority().map(http::uri::Authority::as_str), &exchange.snapshot)?;
    let origin = match pages.audience(head.uri.path()) {
        Audience::Scripts => head.headers.contains_key(ORIGIN).then_some(ANY_ORIGIN),
        Audience::People if head.headers.get(ORIGIN).is_some_and(|origin| origin == "null") => None,
        _ => allowed_origin(&head.headers, &exchange.snapshot)?,
    };
    let is_preflight = head.method == Method::OPTIONS
        && origin.is_some()
        && head.headers.contains_key("access-control-request-method");
    let path = head.uri.path();
    let name = path.strip_prefix("/mcp/").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let route = name.and_then(|name| exchange.snapshot.routes.get(name)).cloned();
    let is_unknown = name.is_some() && route.is_none();
    exchange.origin = origin;
    if is_preflight {
        return Ok(Found::Preflight);
    }
    if is_unknown {
        return Err(Refusal::http(Code::UnknownRoute, "no upstream is served at this path"));
    }
    let Some(route) = route else {
        return Ok(Found::Page);
    };
    exchange.facts.route = Some(Arc::clone(&route.name));
    Ok(Found::Route(route))
}

/// The documents and pages of this listener, and for whom each is.
pub struct Pages {
    /// Answers every path that is no route.
    pub router: axum::Router,
    /// Paths that scripts of any web origin may use, since nothing there goes by a cookie. A `*` at the end stands for the
    /// rest of a path.
    pub open_to_scripts: &'static [&'static str],
}

/// For whom a path is.
enum Audience {
    /// MCP clients.
    Agents,
    /// OAuth clients, web pages of any origin among them.
    Scripts,
    /// People. A page with `Referrer-Policy: no-referrer` sends its own form with `Origin: null` (Fetch standard, "append a
    /// request `Origin` header"); what tells it from a foreign one stands in the form.
    People,
}

const ANY_ORIGIN: http::HeaderValue = http::HeaderValue::from_static("*");

impl Pages {
    fn audience(&self, path: &str) -> Audience {
        let is_open = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(start) => path.starts_with(start),
            None => path == *pattern,
        };
        if self.open_to_scripts.iter().any(is_open) {
            return Audience::Scripts;
        }
        if path == "/mcp" || path.starts_with("/mcp/") { Audience::Agents } else { Audience::People }
    }
}

/// Whoever goes around the proxy goes around what it does for us, TLS first of all.
fn check_peer(exchange: &Exchange) -> Result<(), Refusal> {
    let peer = exchange.session.client_addr().and_then(|address| address.as_inet()).map(SocketAddr::ip);
    if exchange.snapshot.guard.is_peer(peer) {
        return Ok(());
    }
    warn!(?peer, "refused a request that does not come from a proxy named in `behind_proxy`");
    Err(Refusal::http(Code::ForeignPeer, "this gateway is reached through its proxy only"))
}

fn check_host(headers: &HeaderMap, authority: Option<&str>, snapshot: &Snapshot) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        // HTTP/2 carries it as `:authority`.
        (None, _) => authority,
        (Some(_), Some(_)) => None,
    };
    if host.is_some_and(|host| snapshot.guard.is_host(host)) {
        return Ok(());
    }
    let shown = Redactor::of_process().text(host.unwrap_or("")).escape_default().take(100).collect::<String>();
    warn!(host = %shown, "refused a request for a host that is not ours; name it in `public_url` or `hosts` if it is");
    Err(Refusal::http(Code::ForeignHost, "this gateway does not answer to that Host"))
}

fn allowed_origin(headers: &HeaderMap, snapshot: &Snapshot) -> Result<Option<http::HeaderValue>, Refusal> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(None);
    };
    let is_allowed = origins.next().is_none() && origin.to_str().is_ok_and(|origin| snapshot.guard.is_origin(origin));
    if is_allowed {
        return Ok(Some(origin.clone()));
    }
    let shown = String::from_utf8_lossy(origin.as_bytes());
    let shown = Redactor::of_process().text(&shown).escape_default().take(100).collect::<String>();
    warn!(origin = %shown, "refused a request from a web origin that is not allowed; name it in `origins` if it should be");
    Err(Refusal::http(Code::ForeignOrigin, "pages of this origin may not call this gateway"))
}
