//! Which route a client means by `resource` (RFC 8707).
//!
//! What goes into a token is always the route's own URL, byte for byte as its metadata say it. What a client writes may
//! differ from that only in ways in which no two routes can: the case of scheme and host, a default port, one slash at
//! the end. Clients that take the URL a person typed do differ like that.

use super::error::{ErrorCode, OAuthError};
use crate::snapshot::{Route, Snapshot};
use std::sync::Arc;
use url::Url;

/// The resource is not one route of this gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidTarget {
    /// A sentence for people, which names the routes there are. Nothing of it is the client's.
    pub(super) description: String,
}

/// The route that `resource` names. None, or the bare origin (clients of the revision 2025-03-26 know no resources), is
/// the only route there is.
///
/// # Errors
/// [`InvalidTarget`]: it names no route, or none is named and there are several.
pub(super) fn route_for(snapshot: &Snapshot, resource: Option<&str>) -> Result<Arc<Route>, InvalidTarget> {
    let Some(resource) = resource else {
        return only_route(snapshot);
    };
    let mut routes = snapshot.routes.values();
    if let Some(route) = routes.find(|route| is_same(resource, &route.resource)) {
        return Ok(Arc::clone(route));
    }
    if is_same(resource, &snapshot.public_url) { only_route(snapshot) } else { Err(InvalidTarget::of(snapshot)) }
}

fn only_route(snapshot: &Snapshot) -> Result<Arc<Route>, InvalidTarget> {
    let mut routes = snapshot.routes.values();
    match (routes.next(), routes.next()) {
        (Some(route), None) => Ok(Arc::clone(route)),
        _ => Err(InvalidTarget::of(snapshot)),
    }
}

/// Whether `sent` means `ours`, a URL without a slash at its end.
pub(super) fn is_same(sent: &str, ours: &str) -> bool {
    sent == ours || canonical(sent).is_some_and(|sent| sent == ours)
}

/// The URL as the URL standard writes it, without one slash at its end; `None` for what is no URL without a fragment.
fn canonical(sent: &str) -> Option<String> {
    // The standard drops line breaks and tabs, and takes `\` for `/`: nothing an honest client sends.
    if !sent.bytes().all(|c| c.is_ascii_graphic() && c != b'\\') {
        return None;
    }
    //= RFC 8707 §2
    //# Its value MUST be an absolute URI […]. The URI MUST NOT include a fragment component.
    let url = Url::parse(sent).ok().filter(|url| url.fragment().is_none())?;
    let text = url.as_str();
    Some(text.strip_suffix('/').unwrap_or(text).to_owned())
}

// === impl InvalidTarget ===

/// So many routes are named; a sentence is no list.
const MAX_NAMED: usize = 10;

impl InvalidTarget {
    fn of(snapshot: &Snapshot) -> Self {
        let named: Vec<_> = snapshot.routes.values().take(MAX_NAMED).map(|route| &*route.resource).collect();
        let more = if snapshot.routes.len() > MAX_NAMED { " and others" } else { "" };
        InvalidTarget { description: format!("resource must be one of {}{more}", named.join(", ")) }
    }
}

impl From<InvalidTarget> for OAuthError {
    fn from(_: InvalidTarget) -> Self {
        OAuthError::new(ErrorCode::InvalidTarget, "resource is not the URL of one route of this gateway")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "https://gw.example.com/mcp/up";

    #[test]
    fn a_resource_may_differ_where_no_two_routes_can() {
        for sent in [
            OURS,
            "https://gw.example.com/mcp/up/",
            "HTTPS://GW.example.COM/mcp/up",
            "https://gw.example.com:443/mcp/up/",
        ] {
            assert!(is_same(sent, OURS), "{sent}");
        }
        assert!(is_same("https://gw.example.com/", "https://gw.example.com"));
    }

    #[test]
    fn a_resource_that_differs_otherwise_is_another_one() {
        for sent in [
            "",
            "up",
            "/mcp/up",
            "gw.example.com/mcp/up",
            "http://gw.example.com/mcp/up",
            "https://gw.example.com:444/mcp/up",
            "https://gw.example.com/mcp/up//",
            "https://gw.example.com/mcp/UP",
            "https://gw.example.com/mcp/u%70",
            "https://gw.example.com/mcp/up?",
            "https://gw.example.com/mcp/up?a=b",
            "https://gw.example.com/mcp/up#",
            "https://gw.example.com/mcp/up#x",
            "https://gw.example.com\\mcp\\up",
            "https://gw.example.com/mcp/u\tp",
            "https://user@gw.example.com/mcp/up",
            "https://gw.example.com.evil.test/mcp/up",
            "https://gw.example.com/mcp",
            "https://gw.example.com",
        ] {
            assert!(!is_same(sent, OURS), "{sent}");
        }
    }
}
