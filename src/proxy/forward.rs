//! From a permit to the head of the upstream's answer. The upstream's request is built from nothing: of the client's
//! headers only those that MCP needs are passed on, and those that mirror the body are made anew from the judged call.

use super::Gateway;
use super::exchange::{End, Exchange, SESSION_ID};
use super::hold::Permit;
use super::ids::Ticket;
use super::receive::Received;
use super::refuse::{Code, Refusal};
use super::traced;
use crate::identity::Principal;
use crate::jsonrpc::{Edits, Id, Node, Span};
use crate::mcp::{Call, Era, Object, Verb, encode_value};
use crate::snapshot::Route;
use crate::trace::{Onward, Stage};
use crate::upstream::{Answer, Error, Request, Send};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use std::pin::pin;

/// A call that is at the upstream.
pub(super) struct Sent {
    /// The head of the answer; `None` where there was nothing to send.
    pub(super) answer: Option<Answer>,
    /// Keeps its id from being given to another call.
    pub(super) ticket: Option<Ticket>,
}

/// Sends the call that `permit` is for. The permit is used up by it.
///
/// # Errors
/// The upstream's failure as a refusal, or the client's leaving.
pub(super) async fn send(
    gateway: &Gateway,
    exchange: &mut Exchange,
    route: &Route,
    received: &Received,
    permit: Permit,
) -> Result<Sent, End> {
    exchange.trace.enter(Stage::Forward);
    let onward = exchange.trace.onward();
    let ticket = ticket(gateway, exchange, route, received);
    let Some(body) = body(gateway, route, received, ticket.as_ref(), onward.as_ref()) else {
        gateway.metrics.dropped_message(&route.name, "unattributable");
        return Ok(Sent { answer: None, ticket });
    };
    let verb = received.call.method.verb;
    let request = Request {
        method: match verb {
            Verb::Stream => Method::GET,
            Verb::EndSession => Method::DELETE,
            _ => Method::POST,
        },
        body,
        headers: all_headers(exchange, route, received, onward.as_ref()),
        is_repeatable: received.call.method.repeatable,
        is_lasting: matches!(verb, Verb::Stream | Verb::Listen),
        follows_redirects: true,
    };
    gateway.metrics.decided_after(exchange.started.elapsed().as_secs_f64());
    let answer = exchange.while_there(pin!(dispatch(gateway, route, &request, permit))).await?;
    let answer = answer.map_err(|error| failed(gateway, route, received.call.id.as_ref(), &error))?;
    Ok(Sent { answer: Some(answer), ticket })
}

/// Sends `request`, for which `permit` is given up, and waits for the head of its answer.
///
/// # Errors
/// The upstream's failure.
pub(super) async fn dispatch(
    gateway: &Gateway,
    route: &Route,
    request: &Request,
    permit: Permit,
) -> Result<Answer, Error> {
    drop(permit);
    Send { upstream: &route.upstream, shared: &gateway.shared }.send(request).await
}

/// An upstream's failure, as a client gets to see it.
pub(super) fn failed(gateway: &Gateway, route: &Route, id: Option<&Id>, error: &Error) -> Refusal {
    gateway.metrics.upstream_error(&route.name, error.code());
    tracing::warn!(upstream = %route.name, %error, "upstream failed");
    let refusal = Refusal::error(Code::Upstream(error.code()), id, error.public(&route.name)).because(error);
    // What has no id has no answer that could carry the error.
    if id.is_none() { refusal.status(http::StatusCode::BAD_GATEWAY) } else { refusal }
}

/// Requests of the newer era stand alone at the upstream, each on its own stream.
fn ticket(gateway: &Gateway, exchange: &Exchange, route: &Route, received: &Received) -> Option<Ticket> {
    let id = received.call.id.as_ref().filter(|_| received.call.era == Era::Legacy)?;
    let session = received.session.as_ref().map(|session| &session.id);
    Some(gateway.ids.enter(&route.name, session, id, &exchange.id))
}

/// The judged bytes; only an id that would be mistaken for another, a state of the upstream's own, and the span that the
/// message names as its parent are exchanged.
/// `None`: a message about a call that cannot be told from another client's.
fn body(
    gateway: &Gateway,
    route: &Route,
    received: &Received,
    ticket: Option<&Ticket>,
    onward: Option<&Onward>,
) -> Option<Bytes> {
    let whole = || Node::of(&received.body, Span::whole(&received.body));
    let mut edits = Edits::of(&received.body);
    if let Some(ours) = ticket.and_then(Ticket::ours)
        && let Some(theirs) = whole().get("id")
    {
        edits.replace(theirs, ours.as_json());
    }
    if let (Some(state), Some(span)) = (&received.state, received.call.state) {
        edits.replace_span(span, serde_json::Value::from(state.as_str()).to_string());
    }
    traced::splice(&received.body, onward, &mut edits);
    let is_about_a_call = matches!(received.call.method.name, "notifications/cancelled" | "notifications/progress");
    if is_about_a_call {
        // Without sessions, as always in the newer era, all clients of an upstream share one space of ids: this could hit
        // anybody's call. (There a call is cancelled by closing the stream of its answer.)
        let session = received.session.as_ref()?;
        if let Some(named) = whole().get("params").and_then(|params| params.get("requestId"))
            && let Some(ours) = Id::of(named).and_then(|id| gateway.ids.known_as(&route.name, &session.id, &id))
        {
            edits.replace(named, ours.as_json());
        }
    }
    Some(if edits.is_empty() { received.body.clone() } else { edits.apply().into() })
}

fn all_headers(
    exchange: &Exchange,
    route: &Route,
    received: &Received,
    onward: Option<&Onward>,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = headers(exchange, route, received, onward);
    let resume = received.resume.as_ref().and_then(|place| HeaderValue::try_from(&place.id).ok());
    headers.extend(resume.map(|id| (HeaderName::from_static("last-event-id"), id)));
    if received.call.era == Era::Modern {
        headers.extend(received.parameters.iter().cloned());
    }
    headers
}

/// What a call needs beside its body, without what mirrors its arguments.
pub(super) fn headers(
    exchange: &Exchange,
    route: &Route,
    received: &Received,
    onward: Option<&Onward>,
) -> Vec<(HeaderName, HeaderValue)> {
    let (client, call) = (&exchange.session.req_header().headers, &received.call);
    let mut headers = Vec::with_capacity(8);
    let about = exchange.facts.principal.as_ref().map(|who| route.upstream.about(who, exchange.id.as_str()));
    headers.extend(about.into_iter().flatten());
    let version = call.version.as_ref().and_then(|version| HeaderValue::try_from(version).ok());
    headers.extend(version.map(|version| (HeaderName::from_static("mcp-protocol-version"), version)));
    headers.extend(received.session.as_ref().map(|session| (SESSION_ID, session.id.clone())));
    traced::add_headers(client, onward, &mut headers);
    if call.era == Era::Modern {
        mirror(call, &mut headers);
    }
    headers
}

/// The same for a call whose client is not there, of the newer era.
pub(super) fn headers_alone(
    principal: &Principal,
    request: &str,
    route: &Route,
    call: &Call,
) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<(HeaderName, HeaderValue)> = route.upstream.about(principal, request).collect();
    let version = call.version.as_ref().and_then(|version| HeaderValue::try_from(version).ok());
    headers.extend(version.map(|version| (HeaderName::from_static("mcp-protocol-version"), version)));
    mirror(call, &mut headers);
    headers
}

/// MCP 2026-07-28, Streamable HTTP, "Standard MCP Request Headers".
fn mirror(call: &Call, headers: &mut Vec<(HeaderName, HeaderValue)>) {
    headers.push((HeaderName::from_static("mcp-method"), HeaderValue::from_static(call.method.name)));
    let name = match &call.object {
        Object::Tool(name) | Object::Prompt(name) => Some(name),
        Object::Resources(uris) => uris.first(),
        // A task is never passed on.
        Object::Task(_) | Object::None => None,
    };
    if crate::mcp::may_take_rounds(call.method.name) {
        headers.extend(name.map(|name| (HeaderName::from_static("mcp-name"), encode_value(name))));
    }
}
