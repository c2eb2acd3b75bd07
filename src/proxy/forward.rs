//! From a permit to the head of the upstream's answer. The upstream's request is built from nothing: of the client's
//! headers only those that MCP needs are passed on, and those that mirror the body are made anew from the judged call.

use super::Gateway;
use super::exchange::{End, Exchange};
use super::hold::Permit;
use super::receive::Received;
use super::refuse::{Code, Refusal};
use crate::jsonrpc::Id;
use crate::mcp::{Call, Era, Object, encode_value};
use crate::snapshot::Route;
use crate::upstream::{Answer, Error, Request, Send};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

/// Trace context (W3C) crosses every hop.
const TRACE: [HeaderName; 3] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate"), HeaderName::from_static("baggage")];

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
) -> Result<Answer, End> {
    let request = Request {
        method: Method::POST,
        body: received.body.clone(),
        headers: headers(&exchange.session.req_header().headers, received),
        is_repeatable: received.call.method.repeatable,
    };
    gateway.metrics.decided_after(exchange.started.elapsed().as_secs_f64());
    drop(permit);
    let sender = Send { upstream: &route.upstream, shared: &gateway.shared };
    let answer = exchange.while_there(sender.send(&request)).await?;
    answer.map_err(|error| failed(gateway, route, received.call.id.as_ref(), &error).into())
}

/// An upstream's failure, as a client gets to see it.
pub(super) fn failed(gateway: &Gateway, route: &Route, id: Option<&Id>, error: &Error) -> Refusal {
    gateway.metrics.upstream_error(&route.name, error.code());
    tracing::warn!(upstream = %route.name, %error, "upstream failed");
    let refusal = Refusal::error(Code::Upstream(error.code()), id, error.public(&route.name)).because(error);
    // A notification has no answer that could carry the error.
    if id.is_none() { refusal.status(http::StatusCode::BAD_GATEWAY) } else { refusal }
}

fn headers(client: &HeaderMap, received: &Received) -> Vec<(HeaderName, HeaderValue)> {
    let call = &received.call;
    let mut headers = Vec::with_capacity(8);
    let version = call.version.as_ref().and_then(|version| HeaderValue::try_from(version).ok());
    headers.extend(version.map(|version| (HeaderName::from_static("mcp-protocol-version"), version)));
    headers.extend(received.session.clone().map(|id| (HeaderName::from_static("mcp-session-id"), id)));
    for name in TRACE {
        headers.extend(client.get(&name).cloned().map(|value| (name, value)));
    }
    if call.era == Era::Modern {
        mirror(call, client, &mut headers);
    }
    headers
}

/// MCP 2026-07-28, Streamable HTTP, "Standard MCP Request Headers".
fn mirror(call: &Call, client: &HeaderMap, headers: &mut Vec<(HeaderName, HeaderValue)>) {
    headers.push((HeaderName::from_static("mcp-method"), HeaderValue::from_static(call.method.name)));
    let name = match &call.object {
        Object::Tool(name) | Object::Prompt(name) => Some(name),
        Object::Resources(uris) => uris.first(),
        Object::None => None,
    };
    if matches!(call.method.name, "tools/call" | "prompts/get" | "resources/read") {
        headers.extend(name.map(|name| (HeaderName::from_static("mcp-name"), encode_value(name))));
    }
    // Which arguments these mirror stands in the tool's schema, which the server has; it must validate them.
    let is_parameter = |name: &HeaderName| name.as_str().starts_with("mcp-param-");
    let parameters = client.iter().filter(|(name, _)| is_parameter(name));
    headers.extend(parameters.map(|(name, value)| (name.clone(), value.clone())));
}
