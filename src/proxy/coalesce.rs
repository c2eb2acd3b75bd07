//! Word that a list has changed, passed on at once and then no more often than once a second.
//!
//! Every such notification makes every client fetch the list again, and some servers send one per entry. Which of a
//! hundred the client gets makes no difference, as long as one comes after the last change.

use crate::mcp::sse;
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tokio::time::Instant;

/// Between two of a kind.
const PAUSE: Duration = Duration::from_secs(1);
const KINDS: [&str; 3] =
    ["notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"];

/// What was passed on lately, and what waits; kept once there is anything to keep.
#[derive(Default)]
pub(super) struct Coalesced(Option<Box<[Lately; 3]>>);

#[derive(Default)]
struct Lately {
    passed: Option<Instant>,
    waiting: Option<Bytes>,
}

impl Coalesced {
    /// Adds the event of `message`, a notification of this method, to `out`, or keeps it until it is due.
    pub(super) fn pass(&mut self, method: &str, message: &Bytes, place: &sse::Place, out: &mut BytesMut) {
        let Some(kind) = KINDS.iter().position(|kind| *kind == method) else {
            return sse::write(out, message, place);
        };
        let Some(lately) = self.0.get_or_insert_default().get_mut(kind) else {
            return;
        };
        if lately.passed.is_some_and(|at| at.elapsed() < PAUSE) {
            lately.waiting = Some(message.clone());
        } else {
            lately.passed = Some(Instant::now());
            sse::write(out, message, place);
        }
    }

    /// When the first of those that wait is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let lately = self.0.iter().flat_map(|all| all.iter());
        lately.filter(|one| one.waiting.is_some()).filter_map(|one| Some(one.passed? + PAUSE)).min()
    }

    /// Adds all that wait to `out`. Without their place in the stream: what came after them has gone out before.
    pub(super) fn flush(&mut self, out: &mut BytesMut) {
        for lately in self.0.iter_mut().flat_map(|all| all.iter_mut()) {
            if let Some(message) = lately.waiting.take() {
                lately.passed = Some(Instant::now());
                out.extend_from_slice(&sse::encode(&message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGED: &str = "notifications/tools/list_changed";

    #[tokio::test(start_paused = true)]
    async fn a_hundred_changes_are_told_at_once_and_once_more() {
        let (mut coalesced, mut out) = (Coalesced::default(), BytesMut::new());
        let pass = |coalesced: &mut Coalesced, out: &mut BytesMut, n: usize| {
            let message = Bytes::from(format!("{{\"n\":{n}}}"));
            coalesced.pass(CHANGED, &message, &sse::Place::default(), out);
        };
        for n in 0..100 {
            pass(&mut coalesced, &mut out, n);
        }
        assert_eq!(out.split(), sse::encode(b"{\"n\":0}"));

        tokio::time::sleep_until(coalesced.due().expect("one waits")).await;
        coalesced.flush(&mut out);

        assert_eq!(out.split(), sse::encode(b"{\"n\":99}"));
        assert_eq!(coalesced.due(), None);
        tokio::time::sleep(PAUSE).await;
        pass(&mut coalesced, &mut out, 100);
        assert_eq!(out, sse::encode(b"{\"n\":100}"));
    }

    #[tokio::test]
    async fn everything_else_passes_as_it_comes() {
        let (mut coalesced, mut out) = (Coalesced::default(), BytesMut::new());
        for _ in 0..2 {
            coalesced.pass("notifications/progress", &Bytes::from("{}"), &sse::Place::default(), &mut out);
        }
        assert_eq!(out, [sse::encode(b"{}"), sse::encode(b"{}")].concat());
    }
}
