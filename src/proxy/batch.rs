//! Several messages in one request (MCP 2025-03-26, "Batching"): each is judged, recorded and answered alone, one
//! after another, and their answers go out together.

use super::Gateway;
use super::exchange::{End, Exchange};
use super::receive::Received;
use super::record::{self, Outcome};
use super::refuse::{self, Code, Refusal};
use crate::identity::Principal;
use crate::snapshot::Route;
use std::sync::Arc;

/// Passes each of them as if it had come alone.
///
/// # Errors
/// The client's leaving. A refusal is the answer to one message, and the others go on.
pub(super) async fn pass(
    gateway: &Arc<Gateway>,
    exchange: &mut Exchange,
    route: &Route,
    principal: &Principal,
    batch: Vec<Received>,
) -> Result<Outcome, End> {
    exchange.begin_batch();
    for received in batch {
        received.note(exchange);
        exchange.trace.begin_message();
        let passed = match make_room(exchange, &received).await {
            Ok(()) => gateway.pass_one(exchange, route, principal, &received).await,
            Err(end) => Err(end),
        };
        let outcome = match passed {
            Ok(outcome) => outcome,
            // A notification has no answer that could carry the refusal.
            Err(End::Refused(refusal)) if received.call.id.is_none() => refuse::note(exchange, &refusal),
            Err(End::Refused(refusal)) => refuse::answer(exchange, refusal).await,
            Err(End::Gone) => return Err(End::Gone),
        };
        record::ended_in_batch(gateway, exchange, outcome);
    }
    exchange.end_batch().await?;
    Ok(Outcome::Batch)
}

/// Together the answers may take as much memory as one, and the last one more. Events go out as they come and take none.
async fn make_room(exchange: &mut Exchange, received: &Received) -> Result<(), End> {
    if exchange.gathered_bytes() <= exchange.snapshot.config.limits.answer.bytes() {
        return Ok(());
    }
    if exchange.facts.accepts.stream {
        return Ok(exchange.begin_stream(None).await?);
    }
    let why = "the answers before it leave no room in this batch; send it alone, or accept text/event-stream";
    Err(Refusal::error(Code::Batch, received.call.id.as_ref(), why).into())
}
