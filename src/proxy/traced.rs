//! What traces say of a request, in the terms of MCP (OpenTelemetry, semantic conventions for Model Context Protocol), and
//! how trace context crosses to the upstream.
//!
//! Arguments and results never stand in a span. With traces off, nothing here does anything, and the client's own
//! `traceparent`, `tracestate` and `baggage` cross as they came.

use super::Gateway;
use super::exchange::Exchange;
use super::receive::Received;
use super::record::Outcome;
use crate::jsonrpc::{self, Edits, Id, Node, Span};
use crate::mcp::{Object, Verb};
use crate::otlp::{AnyValue, ArrayValue, KeyValue, Value};
use crate::trace::{About, Fault, Onward, Trace};
use http::{HeaderMap, HeaderName, HeaderValue, Version};
use std::sync::Arc;

const PARENT: HeaderName = HeaderName::from_static("traceparent");
const STATE: HeaderName = HeaderName::from_static("tracestate");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// A request on a route begins.
pub(super) fn begin(gateway: &Gateway, exchange: &mut Exchange) {
    if let Some(tracing) = &exchange.snapshot.tracing {
        let headers = &exchange.session.req_header().headers;
        exchange.trace = Trace::begin(&gateway.tracer, tracing, headers, exchange.started);
    }
}

/// Its message is understood.
pub(super) fn received(exchange: &mut Exchange, received: &Received) {
    if !exchange.trace.is_on() {
        return;
    }
    let meta = meta(&received.body);
    let text = |key| meta.and_then(|meta: Node<'_>| meta.get(key)).and_then(Node::as_str);
    let (trace, call) = (&mut exchange.trace, &received.call);
    trace.told(text("traceparent").as_deref(), text("tracestate").as_deref());
    trace.note(|| KeyValue::text("mcp.method.name", call.method.name));
    if let Some(id) = &call.id {
        trace.note(|| KeyValue::text("jsonrpc.request.id", plain(id)));
    }
    if let Some(version) = &call.version {
        trace.note(|| KeyValue::text("mcp.protocol.version", version.as_str()));
    }
    if call.method.verb == Verb::CallTool {
        trace.note(|| KeyValue::text("gen_ai.operation.name", "execute_tool"));
    }
    match &call.object {
        Object::Tool(name) => trace.note(|| KeyValue::text("gen_ai.tool.name", name.as_str())),
        Object::Prompt(name) => trace.note(|| KeyValue::text("gen_ai.prompt.name", name.as_str())),
        Object::Resources(uris) => {
            if let Some(first) = uris.first() {
                trace.note(|| KeyValue::text("mcp.resource.uri", first.as_str()));
            }
        }
        Object::Task(_) | Object::None => {}
    }
}

/// Policy has said something.
pub(super) fn decided(exchange: &mut Exchange, word: &'static str, rules: &[Arc<str>]) {
    exchange.trace.note(|| KeyValue::text("portcullis.decision", word));
    exchange.trace.note(|| {
        let text = |rule: &Arc<str>| AnyValue { value: Some(Value::String(rule.to_string())) };
        KeyValue::of("portcullis.rules", Value::Array(ArrayValue { values: rules.iter().map(text).collect() }))
    });
}

/// The request, or one message of several, has ended like this.
pub(super) fn ended(gateway: &Gateway, exchange: &mut Exchange, outcome: Outcome) {
    let mut trace = std::mem::take(&mut exchange.trace);
    trace.end(&gateway.tracer, || about(exchange, outcome));
    exchange.trace = trace;
}

fn about(exchange: &Exchange, outcome: Outcome) -> About {
    let facts = &exchange.facts;
    let route = facts.route.as_deref().unwrap_or_default();
    let mut of_request = vec![
        KeyValue::text("portcullis.request.id", exchange.id.as_str()),
        KeyValue::text("portcullis.route", route),
        KeyValue::text("network.transport", "tcp"),
        KeyValue::text("network.protocol.name", "http"),
        KeyValue::text("network.protocol.version", version(exchange.session.req_header().version)),
    ];
    if facts.status != 0 {
        of_request.push(KeyValue::number("http.response.status_code", facts.status.into()));
    }
    of_request.extend(facts.peer.as_deref().map(|peer| {
        let address = peer.rsplit_once(':').map_or(peer, |(address, _)| address);
        KeyValue::text("client.address", address.trim_matches(['[', ']']))
    }));
    of_request.extend(facts.principal.as_ref().map(|who| KeyValue::text("enduser.id", who.subject.to_string())));
    of_request.extend(facts.approval.as_deref().map(|id| KeyValue::text("portcullis.approval.id", id)));
    About {
        name: name(exchange, route),
        of_request,
        of_forward: of_forward(route, facts.method.unwrap_or_default(), facts.object.as_deref()),
        error: facts.code.or(cut_short(outcome)),
        is_known: facts.principal.is_some(),
    }
}

/// What is said of a call that is forwarded.
pub(super) fn of_forward(route: &str, method: &str, object: Option<&str>) -> Vec<KeyValue> {
    let mut said = vec![KeyValue::text("mcp.method.name", method), KeyValue::text("portcullis.upstream", route)];
    if let (Some(key), Some(object)) = (key_of(method), object) {
        said.push(KeyValue::text(key, object));
    }
    said
}

/// Where the object of a method is a name, and one of few.
fn key_of(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" => Some("gen_ai.tool.name"),
        "prompts/get" => Some("gen_ai.prompt.name"),
        _ => None,
    }
}

/// Names of what nobody knows could be as many as there are words: those do not stand in the name.
fn name(exchange: &Exchange, route: &str) -> String {
    let facts = &exchange.facts;
    let is_known = facts.is_decided && facts.code != Some("policy.unlisted");
    match (facts.method, facts.object.as_deref()) {
        (Some(method), Some(object)) if is_known && key_of(method).is_some() => format!("{method} {object}"),
        (Some(method), _) => method.to_owned(),
        (None, _) => format!("{} /mcp/{route}", http_method(&exchange.session.req_header().method)),
    }
}

fn http_method(method: &http::Method) -> &str {
    let known = [http::Method::POST, http::Method::GET, http::Method::DELETE].contains(method);
    if known { method.as_str() } else { "HTTP" }
}

fn version(version: Version) -> &'static str {
    if version == Version::HTTP_2 { "2" } else { "1.1" }
}

/// An ending that is no answer of ours, and not the whole one of the upstream.
fn cut_short(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::ClientGone | Outcome::UpstreamLost | Outcome::Broken => Some(outcome.as_str()),
        Outcome::Completed | Outcome::Refused | Outcome::Page | Outcome::Batch | Outcome::Closed => None,
    }
}

fn plain(id: &Id) -> String {
    let json = id.as_json().as_bytes();
    Node::of(json, Span::whole(json)).as_str().map_or_else(|| id.as_json().to_owned(), std::borrow::Cow::into_owned)
}

// === what an answer says ===

/// What an upstream's response in `text` says went wrong.
pub(super) fn fault(text: &[u8], response: &jsonrpc::Response) -> Option<Fault> {
    match response.outcome {
        jsonrpc::Outcome::Result(span) => failed(Node::of(text, span)),
        jsonrpc::Outcome::Error(span) => code(Node::of(text, span)),
    }
}

/// The same of the member `"result":…` or `"error":…` of one.
pub(super) fn fault_of_member(member: &[u8]) -> Option<Fault> {
    let text = [b"{", member, b"}"].concat();
    let whole = Node::of(&text, Span::whole(&text));
    whole.get("result").and_then(failed).or_else(|| whole.get("error").and_then(code))
}

fn failed(result: Node<'_>) -> Option<Fault> {
    (result.get("isError").and_then(Node::as_bool) == Some(true)).then_some(Fault::Tool)
}

fn code(error: Node<'_>) -> Option<Fault> {
    error.get("code")?.as_number()?.parse().ok().map(Fault::Rpc)
}

// === to the upstream ===

/// Adds the headers of trace context: ours where there is a trace, and otherwise the client's.
pub(super) fn add_headers(client: &HeaderMap, onward: Option<&Onward>, headers: &mut Vec<(HeaderName, HeaderValue)>) {
    let theirs: &[HeaderName] = match onward {
        Some(onward) => {
            headers.extend(of(onward));
            &[BAGGAGE]
        }
        None => &[PARENT, STATE, BAGGAGE],
    };
    for name in theirs {
        headers.extend(client.get(name).cloned().map(|value| (name.clone(), value)));
    }
}

/// Those of ours.
pub(super) fn of(onward: &Onward) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    let parent = HeaderValue::try_from(onward.traceparent.as_str()).ok().map(|value| (PARENT, value));
    let state = onward.tracestate.as_ref().map(|state| (STATE, state.value().clone()));
    parent.into_iter().chain(state)
}

/// Where the message has a `traceparent` of its own, it says the same as the header: 55 characters for 55.
pub(super) fn splice(body: &[u8], onward: Option<&Onward>, edits: &mut Edits<'_>) {
    if let Some(onward) = onward
        && let Some(theirs) = meta(body).and_then(|meta| meta.get("traceparent"))
        && theirs.as_str().is_some()
    {
        edits.replace(theirs, format!("\"{}\"", onward.traceparent));
    }
}

fn meta(body: &[u8]) -> Option<Node<'_>> {
    Node::of(body, Span::whole(body)).get("params")?.get("_meta")
}
