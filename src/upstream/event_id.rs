//! Event ids of legacy servers, sealed so that `Last-Event-ID` works end to end (MCP, Streamable HTTP, "Resumability
//! and Redelivery").
//!
//! An id names a place in one stream of one session. Ours carries the upstream's own, and which call that stream
//! answers: a stream that is taken up again may bring that call's answer and no other's, and a list in it is filtered
//! as it would have been.

use super::seal::{Purpose, Scope, Seal};
use crate::jsonrpc::{Id, Node};
use crate::mcp::Method;
use http::HeaderValue;

/// A place in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId {
    /// The upstream's own id of the event.
    pub id: String,
    /// The call whose answer the stream brings; `None` on a stream of its own.
    pub call: Option<Pending>,
}

/// A call that waits for its answer on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// What was called.
    pub method: &'static Method,
    /// The id the client gave it.
    pub id: Id,
    /// The id the upstream knows it by; the same, but where two calls of one session had the same id at once.
    pub upstream_id: Id,
}

/// The longest `Last-Event-ID` that is looked at, in bytes.
const MAX_SEALED: usize = 8192;
/// The longest id of an upstream's that is sealed, in bytes. Heads are limited on every hop, and this one has to go back.
const LONGEST: usize = 1024;

impl EventId {
    /// Whether an upstream's `id` can come back to it in a header.
    pub fn can_come_back(id: &str) -> bool {
        id.len() <= LONGEST && HeaderValue::from_str(id).is_ok()
    }
}

impl Seal {
    /// `event` of the session `session` (its upstream id), as the client gets to see it.
    pub fn event_id(&self, event: &EventId, session: Option<&HeaderValue>, scope: Scope<'_>) -> String {
        let mut payload = Vec::with_capacity(event.id.len().saturating_add(64));
        let (method, id, upstream_id) = match &event.call {
            Some(call) => (call.method.name, call.id.as_json(), call.upstream_id.as_json()),
            None => ("", "", ""),
        };
        for part in [method, id, upstream_id] {
            // A method and an id are of at most 258 bytes, as `jsonrpc` reads them.
            payload.extend_from_slice(&u16::try_from(part.len()).unwrap_or_default().to_be_bytes());
            payload.extend_from_slice(part.as_bytes());
        }
        payload.extend_from_slice(event.id.as_bytes());
        self.seal(Purpose::Event, scope, &[session_bytes(session)], payload)
    }

    /// The place that a client's `Last-Event-ID` names; `None` for one that is not of this session.
    pub fn open_event_id(
        &self,
        sealed: &HeaderValue,
        session: Option<&HeaderValue>,
        scope: Scope<'_>,
    ) -> Option<EventId> {
        if sealed.len() > MAX_SEALED {
            return None;
        }
        let payload = self.open(Purpose::Event, scope, &[session_bytes(session)], sealed.as_bytes())?;
        let mut rest = payload.as_slice();
        let (method, id, upstream_id) = (take(&mut rest)?, take(&mut rest)?, take(&mut rest)?);
        let call = match method {
            "" => None,
            name => Some(Pending { method: Method::named(name)?, id: as_id(id)?, upstream_id: as_id(upstream_id)? }),
        };
        Some(EventId { id: std::str::from_utf8(rest).ok()?.to_owned(), call })
    }
}

fn session_bytes(session: Option<&HeaderValue>) -> &[u8] {
    session.map(HeaderValue::as_bytes).unwrap_or_default()
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, after) = rest.split_first_chunk::<2>()?;
    let (part, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *rest = after;
    std::str::from_utf8(part).ok()
}

fn as_id(json: &str) -> Option<Id> {
    Id::of(Node::of(json.as_bytes(), crate::jsonrpc::Span { start: 0, end: json.len() }))
}
