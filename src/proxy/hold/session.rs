//! Whether a server still knows its client's session, asked before an approval is used up in it.
//!
//! A server that has forgotten the session would refuse the call, and the approval would be spent on nothing. A client
//! begins a new session once it is told so (MCP 2025-11-25, Streamable HTTP, "Session Management"), and calls again.

use super::super::exchange::{End, Exchange, SESSION_ID};
use super::super::forward::failed;
use super::super::refuse::{Code, Refusal};
use super::super::reply::is_about_sessions;
use super::{Caller, say};
use crate::snapshot::Route;
use crate::upstream::{Answer, Error, Request, Send, Session};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};

/// The longest complaint that is read, in bytes.
const MAX_COMPLAINT: usize = 4096;

impl Caller<'_> {
    /// Pings the server in the session of this caller, where it has one.
    ///
    /// # Errors
    /// The session is over, or the server cannot be reached; the approval stays.
    pub(super) async fn ping(&self, exchange: &mut Exchange, route: &Route) -> Result<(), End> {
        let Some(session) = &self.received.session else {
            return Ok(());
        };
        let mut request = ping(session);
        // A server of ours knows its sessions by whose they are.
        request.headers.extend(route.upstream.about(self.principal, exchange.id.as_str()));
        let sender = Send { upstream: &route.upstream, shared: &self.gateway.shared };
        let id = self.received.call.id.as_ref();
        let is_known = async { is_known(sender.send(&request).await?).await };
        match exchange.while_there(Box::pin(is_known)).await? {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(Refusal::error(Code::Session, id, "unknown session; initialize a new one, then call again").into())
            }
            Err(error) => Err(failed(self.gateway, route, id, &error).say_first(say::NOT_RELEASED).into()),
        }
    }
}

/// Every server answers it, if only to say that it does not know how.
async fn is_known(mut answer: Answer) -> Result<bool, Error> {
    let is_known = match answer.status {
        StatusCode::NOT_FOUND => false,
        StatusCode::BAD_REQUEST => !is_about_sessions(&answer.read_all(MAX_COMPLAINT).await.unwrap_or_default()),
        _ => true,
    };
    answer.cut().await;
    Ok(is_known)
}

fn ping(session: &Session) -> Request {
    let id = serde_json::Value::from(crate::id::unguessable("portcullis-"));
    let version = HeaderValue::from_static(session.version);
    Request {
        method: Method::POST,
        body: Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)),
        headers: vec![(SESSION_ID, session.id.clone()), (HeaderName::from_static("mcp-protocol-version"), version)],
        is_repeatable: true,
        is_lasting: false,
        follows_redirects: true,
    }
}
