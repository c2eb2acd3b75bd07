//! Streams that last, opened with a token that nobody can revoke.

use super::{gate, token};
use crate::support::agent::Agent;
use crate::support::issuer::{Issuer, now};
use crate::support::reply::Reply;
use serde_json::json;

#[test]
fn a_stream_ends_with_the_token_it_was_opened_with() {
    let issuer = Issuer::start();
    let gate = gate(&issuer, "");
    let open = |token: String| {
        let (reply, feed) = Reply::sse_fed();
        gate.recorder.answer_next(reply);
        let mark = gate.recorder.mark();
        let connection = Agent::new(gate.gateway.agent, "up", token).stream(None);
        gate.recorder.wait_for_requests(mark, 1);
        (connection, feed)
    };
    let short = issuer.token(&gate.gateway.url("up"), &json!({ "exp": now() + 5 }));
    let (mut short, _fed) = open(short);
    let (mut long, feed) = open(token(&gate, &issuer));
    let (mut short, mut long) = (short.streaming(), long.streaming());
    assert_eq!((short.status, long.status), (200, 200));

    assert_eq!(short.message(), None, "a proper end");

    let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
    feed.message(&told);
    assert_eq!(long.message(), Some(told));
}
