//! A call that comes back because we asked its client to (`hold::rounds`): our own state is taken off it, and what is
//! left is the call as it was made at first.
//!
//! That is done before anything is judged, so that nothing after it knows the difference: the same arguments make the
//! same call, and no upstream ever sees a state or an answer that was meant for us.

use crate::jsonrpc::{Edits, Node, Span};
use crate::upstream::HoldState;
use bytes::Bytes;

/// The name of our question among a round's `inputRequests`.
pub(super) const QUESTION: &str = "portcullis-approval";

/// What a client brought back.
pub(super) struct Retry {
    /// What it kept for us.
    pub(super) state: HoldState,
    /// Whether its person did not want to see the page, or the client did not show it.
    pub(super) is_declined: bool,
}

/// The message in `body` without what belongs to `state`, and with what the call had before.
pub(super) fn peel(body: &Bytes, state: HoldState) -> (Bytes, Retry) {
    let Some(params) = Node::of(body, Span::whole(body)).get("params") else {
        return (body.clone(), Retry { state, is_declined: false });
    };
    let answer = params.get("inputResponses").and_then(|responses| responses.get(QUESTION)?.get("action"));
    let is_declined = answer.and_then(Node::as_str).is_some_and(|action| action != "accept");
    let mut members: Vec<String> = params
        .members()
        .filter(|(key, _)| key != "inputResponses" && key != "requestState")
        .map(|(key, value)| format!("{}:{}", serde_json::Value::from(&*key), value.text()))
        .collect();
    members.extend(state.input_responses.iter().map(|json| format!(r#""inputResponses":{json}"#)));
    let earlier = state.request_state.as_deref().map(serde_json::Value::from);
    members.extend(earlier.iter().map(|earlier| format!(r#""requestState":{earlier}"#)));
    let mut edits = Edits::of(body);
    edits.replace(params, format!("{{{}}}", members.join(",")));
    (edits.apply().into(), Retry { state, is_declined })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peeled(params: &str, state: HoldState) -> (String, bool) {
        let body = Bytes::from(format!(r#"{{"id":1, "params":{params}}}"#));
        let (left, retry) = peel(&body, state);
        let text = String::from_utf8(left.to_vec()).unwrap();
        (text.strip_prefix(r#"{"id":1, "params":"#).unwrap().strip_suffix('}').unwrap().to_owned(), retry.is_declined)
    }

    fn state() -> HoldState {
        HoldState { approval: "h_1".into(), n_rounds: 1, input_responses: None, request_state: None }
    }

    #[test]
    fn what_was_meant_for_us_is_taken_off_and_the_rest_stays_as_it_was() {
        let params = r#"{"requestState":"ours","name":"e\u0063ho", "arguments":{ "inputResponses":1.0 },"inputResponses":{"portcullis-approval":{"action":"accept"}}}"#;
        let (left, is_declined) = peeled(params, state());
        assert_eq!(left, r#"{"name":"e\u0063ho","arguments":{ "inputResponses":1.0 }}"#);
        assert!(!is_declined);
        for action in ["decline", "cancel", "no"] {
            let answer = format!(r#"{{"inputResponses":{{"portcullis-approval":{{"action":"{action}"}}}}}}"#);
            assert!(peeled(&answer, state()).1, "{action}");
        }
    }

    #[test]
    fn what_the_call_had_for_its_server_is_put_back() {
        let state = HoldState {
            input_responses: Some(r#"{"q":{"action":"accept"}}"#.into()),
            request_state: Some("sealed".into()),
            ..state()
        };
        let (left, _) = peeled(r#"{"name":"echo","requestState":"ours"}"#, state);
        assert_eq!(left, r#"{"name":"echo","inputResponses":{"q":{"action":"accept"}},"requestState":"sealed"}"#);
    }
}
