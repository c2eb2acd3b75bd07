//! What a held call is known by at a moment, without what it holds: the same for pages, programs and the command line.

use super::hex;
use crate::clock::rfc3339;
use crate::store::{Approval, ApprovalState as State};
use serde_json::{Value, json};

/// Where it stands at the moment: that its time has run out may not have been written down yet.
pub fn state_at(held: &Approval, now_ms: i64) -> State {
    let is_over = match held.state {
        State::Pending => now_ms >= held.expires_at_ms,
        State::Approved => held.usable_until_ms.is_some_and(|until_ms| now_ms >= until_ms),
        _ => false,
    };
    if is_over { State::Expired } else { held.state }
}

/// Whether an approval would run it at once.
pub fn is_waited_for(held: &Approval, now_ms: i64) -> bool {
    held.waited_for_until_ms > now_ms || held.task_until_ms.is_some_and(|until_ms| until_ms > now_ms)
}

/// What programs are told of it: an object, to which they may add what only they know.
pub fn facts(held: &Approval, now_ms: i64) -> Value {
    let requester = &held.requester;
    let time = |ms: Option<i64>| ms.map(rfc3339);
    json!({
        "id": &*held.id,
        "state": state_at(held, now_ms).as_str(),
        "digest": hex(&held.digest),
        "upstream": &*held.upstream,
        "tool": &*held.tool,
        "requester": {
            "issuer": &*requester.issuer,
            "subject": requester.subject.to_string(),
            "client": &*requester.client,
            "person": requester.person.as_deref(),
        },
        "rules": held.rules.iter().map(|rule| &**rule).collect::<Vec<_>>(),
        "created_at": rfc3339(held.created_at_ms),
        "expires_at": rfc3339(held.expires_at_ms),
        "valid_for_s": held.valid_for_ms / 1000,
        "decided_at": time(held.decided_at_ms),
        "usable_until": time(held.usable_until_ms),
        "consumed_at": time(held.consumed_at_ms),
        "ended_at": time(held.ended_at_ms),
        "is_caller_waiting": is_waited_for(held, now_ms),
        "note": held.note,
    })
}
