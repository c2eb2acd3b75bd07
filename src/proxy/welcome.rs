//! Whether a client may go on having a stream that lasts, asked again whenever the answer may have changed.
//!
//! A stream outlives the token it was opened with, as every HTTP response does; but not its grant, its person, its
//! route, or the gateway. A token of an external issuer has no grant that could be revoked: with it the stream ends. And when a new configuration shows its client other tools, it is told so.

use super::exchange::Exchange;
use super::reply::Reply;
use super::stream::{Next, at};
use crate::identity::{Issuer, Principal};
use crate::mcp::{Verb, sse};
use crate::policy::Object;
use crate::snapshot::Snapshot;
use bytes::Bytes;
use pingora::server::ShutdownWatch;
use serde_json::json;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What the stream was opened under, and what says that it changed.
pub(super) struct Welcome {
    stopping: ShutdownWatch,
    snapshots: watch::Receiver<()>,
    revocations: watch::Receiver<()>,
    /// Of a principal that is not ours: once its settings change, what it vouched for is asked anew.
    issuer: Option<Arc<Issuer>>,
    /// When a token that nobody can revoke ends.
    until: Option<Instant>,
    /// A hash of the names of the tools the client may see.
    tools: u64,
}

impl Welcome {
    pub(super) fn new(reply: &Reply<'_>, exchange: &Exchange) -> Welcome {
        let mut snapshots = reply.gateway.reloads.clone();
        let mut revocations = reply.gateway.verifier.revocations();
        // What changed since the request came in is looked at at once.
        snapshots.mark_changed();
        revocations.mark_changed();
        let issuer = exchange.snapshot.issuers.get(&reply.principal.issuer).cloned();
        let tools = visible_tools(reply, &exchange.snapshot, reply.principal);
        let until = reply.principal.until.map(|until| {
            let seconds = until.saturating_sub(reply.gateway.fetching.clock.unix_seconds());
            Instant::now() + Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
        });
        Welcome { stopping: exchange.stopping.clone(), issuer, until, snapshots, revocations, tools }
    }

    /// Resolves when the stream is to end, or something changed.
    pub(super) async fn news(&mut self) -> Next {
        tokio::select! {
            biased;
            () = stopped(&mut self.stopping) => Next::Ending,
            () = at(self.until) => Next::Ending,
            Ok(()) = self.snapshots.changed() => Next::Changed,
            Ok(()) = self.revocations.changed() => Next::Changed,
            // Nobody is left who could say anything.
            else => std::future::pending().await,
        }
    }

    /// What the client has to hear of the change; `None`: that this is the end.
    pub(super) fn look_again(&mut self, reply: &Reply<'_>) -> Option<Bytes> {
        let snapshot = reply.gateway.snapshots.load_full();
        let route = snapshot.routes.get(&*reply.route.name)?;
        if !Arc::ptr_eq(&route.upstream, &reply.route.upstream) || reply.gateway.verifier.is_revoked(reply.principal) {
            return None;
        }
        let issuer = snapshot.issuers.get(&reply.principal.issuer);
        if issuer.map(Arc::as_ptr) != self.issuer.as_ref().map(Arc::as_ptr) {
            return None;
        }
        let principal = reply.principal.renewed(&snapshot.users, &snapshot.clients)?;
        let tools = visible_tools(reply, &snapshot, &principal);
        let is_same = std::mem::replace(&mut self.tools, tools) == tools;
        if is_same { Some(Bytes::new()) } else { Some(list_changed(reply)) }
    }
}

/// Resolves when the gateway stops.
pub(super) async fn stopped(stopping: &mut ShutdownWatch) {
    if stopping.wait_for(|is_stopping| *is_stopping).await.is_err() {
        // Nobody is left who could say so.
        std::future::pending::<()>().await;
    }
}

fn visible_tools(reply: &Reply<'_>, snapshot: &Snapshot, principal: &Principal) -> u64 {
    let mut hasher = DefaultHasher::new();
    let name = &reply.route.name;
    for tool in reply.route.upstream.definitions().tools.keys() {
        if snapshot.policy.is_listed(principal, name, Object::Tool(tool)) {
            tool.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Nothing, where the client did not ask for it.
fn list_changed(reply: &Reply<'_>) -> Bytes {
    const METHOD: &str = "notifications/tools/list_changed";
    let message = match reply.received.call.method.verb {
        Verb::Stream => json!({ "jsonrpc": "2.0", "method": METHOD }).to_string(),
        _ if reply.received.listens_to_tools() => {
            let id = reply.received.call.id.as_ref().map_or("null", crate::jsonrpc::Id::as_json);
            let meta = format!(r#"{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
            format!(r#"{{"jsonrpc":"2.0","method":"{METHOD}","params":{{"_meta":{meta}}}}}"#)
        }
        _ => return Bytes::new(),
    };
    sse::encode(message.as_bytes())
}
