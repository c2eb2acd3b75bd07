//! Who gets to the pages at all: the guard of the admin listener, before any of them is asked.
//!
//! Connections come from anywhere, or with `behind_proxy` from there only. `Host` must be one of this listener's own names
//! (DNS rebinding). `Origin`, where a browser sends one, must be this listener's own and nothing else: pages here send their
//! forms with it, so `null` is a stranger's. Who is not let in is written down, as far as strangers may fill the log.

use super::{Given, Shared, router};
use crate::audit::{Audit, Event, Kind};
use crate::browser;
use crate::id::RequestId;
use crate::snapshot::{Admin, Snapshot};
use crate::web::{self, Caller};
use arc_swap::ArcSwap;
use async_trait::async_trait;
use axum::Router;
use http::header::{HOST, ORIGIN, STRICT_TRANSPORT_SECURITY};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pingora::apps::{HttpServerApp, ReusedHttpStream};
use pingora::http::RequestHeader;
use pingora::protocols::http::ServerSession;
use pingora::server::ShutdownWatch;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::sync::watch;
use tracing::warn;

/// Where a form of another site would come from, as browsers say (Fetch metadata).
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// A year; what browsers take for granted.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The admin listener's application.
pub struct Door {
    router: Router,
    snapshots: Arc<ArcSwap<Snapshot>>,
    audit: Audit,
}

/// Why a request is not let in: the stable code, as on the agent listener, and a sentence for the operator.
type Reason = (&'static str, &'static str);

impl Door {
    /// The pages behind it. `stopping` says when the listener stops.
    pub fn new(given: Given, stopping: watch::Receiver<bool>) -> Door {
        let (snapshots, audit) = (Arc::clone(&given.snapshots), given.audit.clone());
        Door { router: router(Shared::new(given, stopping)), snapshots, audit }
    }

    /// Writes down what no page has seen.
    fn refused(&self, session: &ServerSession, snapshot: &Snapshot, caller: &Caller, (code, why): Reason) {
        let (method, address) = (session.req_header().method.to_string(), browser::address(caller));
        warn!(address, code, "a request for the approvals page was refused: {why}");
        self.audit.record_stranger(Event {
            code: Some(code),
            detail: Some(why),
            method: Some(&method),
            ..browser::event(Kind::Refused, snapshot, caller, address.as_deref())
        });
    }
}

#[async_trait]
impl HttpServerApp for Door {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        // The listener gives sessions whose head is whole.
        match session.read_request().await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(_) => {
                let _ = session.respond_error(400).await;
                return None;
            }
        }
        let snapshot = self.snapshots.load_full();
        session.set_write_timeout(Some(snapshot.config.timeouts.write.duration()));
        // What pingora turned off for doubtful framing stays off.
        if session.get_keepalive().is_some() {
            let idle_s = snapshot.keep_alive().as_secs().max(1);
            session.set_keepalive((!*shutdown.borrow()).then_some(idle_s));
        }
        let peer = session.client_addr().and_then(|address| address.as_inet()).map(SocketAddr::ip);
        // A reload can change neither that there is one nor where.
        let admin = snapshot.admin.as_ref()?;
        let caller = caller(admin, peer, &session.req_header().headers);
        if let Err(reason) = let_in(admin, peer, session.req_header()) {
            self.refused(&session, &snapshot, &caller, reason);
            let _ = session.respond_error(403).await;
            return None;
        }
        let mut extra = vec![(HeaderName::from_static("x-request-id"), header_value(&caller.request))];
        if !admin.is_plain() {
            extra.push((STRICT_TRANSPORT_SECURITY, HSTS));
        }
        let answered = web::answer(&self.router, &mut session, caller.clone(), &extra).await.ok()?;
        if let Some(code) = answered.unread {
            self.refused(
                &session,
                &snapshot,
                &caller,
                (code, "its body did not come whole, or a fault of ours ended it"),
            );
        }
        web::give_back(session).await
    }
}

fn header_value(text: &str) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("-"))
}

fn caller(admin: &Admin, peer: Option<IpAddr>, headers: &HeaderMap) -> Caller {
    let forwarded = headers.get_all("x-forwarded-for").iter().filter_map(|line| line.to_str().ok());
    let address = peer.map(|peer| admin.guard.client_address(peer, forwarded));
    Caller { address, request: RequestId::next().as_str().to_owned() }
}

/// Whether a request may be answered.
fn let_in(admin: &Admin, peer: Option<IpAddr>, head: &RequestHeader) -> Result<(), Reason> {
    if !admin.guard.is_peer(peer) {
        return Err(("request.peer", "it does not come from a proxy named in `admin.behind_proxy`"));
    }
    let host = only(&head.headers, &HOST).or_else(|| head.uri.authority().map(http::uri::Authority::as_str));
    let n_hosts = head.headers.get_all(HOST).iter().count();
    if n_hosts > 1 || !host.is_some_and(|host| admin.guard.is_host(host)) {
        return Err(("request.host", "its Host is not that of `admin.public_url`"));
    }
    let is_ours = |origin: &str| admin.guard.is_origin(origin);
    // Where people come by TLS, a page that came without it is somebody else's.
    let host = host.filter(|_| admin.is_plain());
    if head.headers.contains_key(ORIGIN) && !only(&head.headers, &ORIGIN).is_some_and(is_own_origin(is_ours, host)) {
        return Err(("request.origin", "it comes from a page of another origin"));
    }
    // Browsers say it of every request; a link from elsewhere may lead here, a form or script of elsewhere may not.
    let is_safe = head.method == Method::GET || head.method == Method::HEAD;
    let site = head.headers.get(SEC_FETCH_SITE).and_then(|site| site.to_str().ok());
    if !is_safe && site.is_some_and(|site| !["same-origin", "none"].contains(&site)) {
        return Err(("request.origin", "it is a form or script of another site"));
    }
    Ok(())
}

/// On loopback the page has several names (`localhost`, `127.0.0.1`), and sends its forms from the one it was opened under.
fn is_own_origin<'a>(is_ours: impl Fn(&str) -> bool + 'a, host: Option<&'a str>) -> impl Fn(&str) -> bool + 'a {
    move |origin| is_ours(origin) || host.is_some_and(|host| origin.strip_prefix("http://") == Some(host))
}

/// The value of a header that is there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}
