//! What is written down: the decision before a call is forwarded, and how the exchange ended, for every ending.

use super::accept::Accepts;
use super::exchange::Exchange;
use super::receive::Received;
use super::refuse::{Code, Refusal};
use super::{Gateway, arguments, traced};
use crate::audit::{self, Arguments, Durability, Event, Kind, Unavailable, Who};
use crate::identity::{Principal, Subject};
use crate::mcp::Verb;
use crate::policy::Decision;
use crate::redact::Tag;
use crate::snapshot::Route;
use crate::trace::Stage;
use std::sync::Arc;

/// What has been found out about an exchange, for its records.
#[derive(Debug)]
pub(super) struct Facts {
    /// The address the request came from.
    pub(super) peer: Option<String>,
    pub(super) route: Option<Arc<str>>,
    pub(super) principal: Option<Principal>,
    pub(super) method: Option<&'static str>,
    pub(super) object: Option<Arc<str>>,
    pub(super) accepts: Accepts,
    /// Whether a decision was recorded: then the ending is the result of a call, not a refused request.
    pub(super) is_decided: bool,
    /// The held call it is about, and what that is bound to.
    pub(super) approval: Option<Arc<str>>,
    pub(super) digest: Option<[u8; 32]>,
    /// The code of the refusal, where we answered instead of the upstream.
    pub(super) code: Option<&'static str>,
    pub(super) status: u16,
    pub(super) bytes_in: usize,
    pub(super) bytes_out: usize,
}

impl Default for Facts {
    fn default() -> Self {
        Facts {
            peer: None,
            route: None,
            principal: None,
            method: None,
            object: None,
            accepts: Accepts { json: true, stream: true },
            is_decided: false,
            approval: None,
            digest: None,
            code: None,
            status: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The upstream's answer was passed on whole.
    Completed,
    /// We answered.
    Refused,
    /// One of our own documents or pages, or a preflight.
    Page,
    /// The messages of a batch, each recorded on its own.
    Batch,
    /// We ended a stream that lasts: its client may no longer have it, or the gateway stops.
    Closed,
    /// The upstream was lost in mid-stream; the client can take it up again.
    UpstreamLost,
    /// The client left before its answer was complete.
    ClientGone,
    /// A bug of ours ended the work on it.
    Broken,
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Refused => "refused",
            Outcome::Page => "page",
            Outcome::Batch => "batch",
            Outcome::Closed => "closed",
            Outcome::UpstreamLost => "upstream_lost",
            Outcome::ClientGone => "client_gone",
            Outcome::Broken => "broken",
        }
    }
}

/// Writes the decision down. A tool call goes on only when its record is on the disk.
///
/// # Errors
/// The log cannot be written: then a tool call is refused, except where the rule says that it only reads.
pub(super) async fn decided(
    gateway: &Gateway,
    exchange: &mut Exchange,
    route: &Route,
    received: &Received,
    decision: &Decision,
) -> Result<(), Refusal> {
    exchange.trace.enter(Stage::Record);
    let (word, rules) = described(decision);
    let is_call = received.call.method.verb == Verb::CallTool;
    let durability = if is_call { Durability::Synced } else { Durability::Written };
    let Err(why) = write_decision(gateway, exchange, route, received, (word, rules), durability).await else {
        return Ok(());
    };
    unrecorded(received, decision, &why)
}

/// Writes down that a call is held. Nothing of it goes on unless the log has more to say of it.
pub(super) async fn held(
    gateway: &Gateway,
    exchange: &mut Exchange,
    route: &Route,
    received: &Received,
    rules: &[Arc<str>],
) {
    let decision = (audit::Decision::Held, rules);
    let written = write_decision(gateway, exchange, route, received, decision, Durability::Written).await;
    if let Err(why) = written {
        tracing::error!(error = %why, "the audit log cannot be written");
    }
}

/// What cannot be written now is kept until the log can be written again.
async fn write_decision(
    gateway: &Gateway,
    exchange: &mut Exchange,
    route: &Route,
    received: &Received,
    (word, rules): (audit::Decision, &[Arc<str>]),
    durability: Durability,
) -> Result<(), Unavailable> {
    let call = &received.call;
    let hash = arguments::hash(gateway, received);
    let recorded = arguments::recorded(gateway, exchange, route, received);
    gateway.metrics.decision(&route.name, call.method.name, word.as_str());
    exchange.facts.is_decided = true;
    traced::decided(exchange, word.as_str(), rules);
    let event = Event {
        decision: Some(word),
        rules,
        arguments_hash: hash.as_ref().map(Tag::as_str),
        arguments: recorded.as_ref().map(|(json, bytes)| Arguments { json: json.as_deref(), bytes: *bytes }),
        body_bytes: Some(received.body.len() as u64),
        ..judged(exchange)
    };
    let written = gateway.audit.record(event, durability).await;
    if written.is_err() {
        gateway.audit.record_later(event);
    }
    written.map(drop)
}

fn described(decision: &Decision) -> (audit::Decision, &[Arc<str>]) {
    match decision {
        Decision::Allowed(allowed) => (audit::Decision::Allowed, allowed.rules()),
        Decision::Denied(denied) => (audit::Decision::Denied, denied.rule.as_slice()),
        Decision::Held(held) => (audit::Decision::Held, &held.rules),
    }
}

fn unrecorded(received: &Received, decision: &Decision, why: &Unavailable) -> Result<(), Refusal> {
    let call = &received.call;
    let may_go_on = match decision {
        Decision::Allowed(allowed) => call.method.verb != Verb::CallTool || allowed.reads(),
        // It is refused in any case.
        Decision::Denied(_) | Decision::Held(_) => true,
    };
    // The writer has said so once; every call saying it again would bury the rest of the log.
    tracing::debug!(error = %why, may_go_on, "the audit log cannot be written");
    if may_go_on {
        return Ok(());
    }
    let text = "This call did not run: the gateway's audit log cannot be written at the moment. Try again later.";
    Err(Refusal::tool_result(Code::AuditUnavailable, call.id.as_ref(), call.era, text).because(why))
}

/// Writes down how the exchange ended.
pub(super) fn ended(gateway: &Gateway, exchange: &mut Exchange, outcome: Outcome) {
    written(gateway, exchange, outcome);
    // Cut within a batch, there are two: the message's and the request's.
    while exchange.trace.is_on() {
        traced::ended(gateway, exchange, outcome);
    }
}

fn written(gateway: &Gateway, exchange: &Exchange, outcome: Outcome) {
    let facts = &exchange.facts;
    let took = exchange.started.elapsed();
    let route = facts.route.as_deref().unwrap_or("none");
    let method = facts.method.unwrap_or("none");
    gateway.metrics.request(route, method, facts.status, took.as_secs_f64(), (facts.bytes_in, facts.bytes_out));
    if let Some(code) = facts.code {
        gateway.metrics.refusal(route, code);
    }
    tracing::debug!(
        target: "portcullis::access",
        request = %exchange.id, trace = exchange.trace.id(), route, method, status = facts.status, outcome = outcome.as_str(),
        ms = took.as_millis(), "request ended"
    );
    if outcome == Outcome::Batch {
        return;
    }
    let event = Event {
        code: facts.code,
        outcome: Some(outcome.as_str()),
        status: Some(facts.status),
        duration_us: u64::try_from(took.as_micros()).ok(),
        bytes_in: Some(facts.bytes_in as u64),
        bytes_out: Some(facts.bytes_out as u64),
        ..event(if facts.is_decided { Kind::Result } else { Kind::Refused }, exchange)
    };
    match facts.principal {
        Some(_) => gateway.audit.record_later(event),
        // Their number is limited, so that the disk is not theirs to fill; the metrics count them all.
        None if facts.code.is_some() => gateway.audit.record_stranger(event),
        None => {}
    }
}

/// Writes down how one message of a batch ended, and makes room for the next.
pub(super) fn ended_in_batch(gateway: &Gateway, exchange: &mut Exchange, outcome: Outcome) {
    let facts = &exchange.facts;
    let route = facts.route.as_deref().unwrap_or("none");
    if let Some(code) = facts.code {
        gateway.metrics.refusal(route, code);
    }
    let kind = if facts.is_decided { Kind::Result } else { Kind::Refused };
    let event = Event { code: facts.code, outcome: Some(outcome.as_str()), ..event(kind, exchange) };
    gateway.audit.record_later(event);
    traced::ended(gateway, exchange, outcome);
    let facts = &mut exchange.facts;
    (facts.code, facts.is_decided, facts.object) = (None, false, None);
    (facts.approval, facts.digest) = (None, None);
    facts.method = Some("(batch)");
}

/// Writes down what a server asked of its client, and whether it was passed on.
pub(super) fn asked(gateway: &Gateway, exchange: &Exchange, method: &str, is_passed: bool) {
    let decision = if is_passed { audit::Decision::Allowed } else { audit::Decision::Denied };
    // Only what the specification knows: what a server calls a method is its own text.
    let method = crate::mcp::Ask::of_method(method).map(|_| method);
    gateway.audit.record_later(Event { method, decision: Some(decision), ..event(Kind::Asked, exchange) });
}

/// A decision, with all of the principal that it was made by: `audit replay` makes it again under other rules.
fn judged(exchange: &Exchange) -> Event<'_> {
    let principal = exchange.facts.principal.as_ref();
    let is_also_somebody = principal.is_some_and(|principal| !principal.is_local && principal.person.is_some());
    Event {
        groups: principal.map_or(&[], |principal| &*principal.groups),
        claimed: principal.filter(|_| is_also_somebody).map_or(&[], |principal| &*principal.claimed),
        scopes: principal.map_or(&[], |principal| &*principal.scopes),
        ..event(Kind::Decision, exchange)
    }
}

fn event(kind: Kind, exchange: &Exchange) -> Event<'_> {
    let facts = &exchange.facts;
    Event {
        request: Some(exchange.id.as_str()),
        trace: exchange.trace.id(),
        principal: facts.principal.as_ref().map(who),
        peer: facts.peer.as_deref(),
        route: facts.route.as_deref(),
        upstream: facts.route.as_deref(),
        method: facts.method,
        object: facts.object.as_deref(),
        snapshot: Some(&exchange.snapshot.hash),
        approval: facts.approval.as_deref(),
        digest: facts.digest.as_ref(),
        ..Event::new(kind)
    }
}

fn who(principal: &Principal) -> Who<'_> {
    Who {
        issuer: &principal.issuer,
        subject: match &principal.subject {
            Subject::User(name) => audit::Subject::User(name),
            Subject::Client(id) => audit::Subject::Client(id),
        },
        client: &principal.client,
        grant: principal.grant.as_deref(),
        // For a principal of ours the subject has said it.
        person: principal.person.as_deref().filter(|_| !principal.is_local),
    }
}
