//! The body of a request: read whole, within its limits of size and time, before anything is made of it.

use super::exchange::Exchange;
use super::refuse::{Code, Refusal};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

/// Whether a request announces a body at all.
pub(super) fn is_announced(exchange: &Exchange) -> bool {
    let headers = &exchange.session.req_header().headers;
    let is_long = headers.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    is_long || headers.contains_key(TRANSFER_ENCODING)
}

/// Reads the body to its end, within its limits of size and time.
///
/// # Errors
/// It is too large, too slow, or cut.
pub(super) async fn whole(exchange: &mut Exchange) -> Result<Bytes, Refusal> {
    let limit = exchange.snapshot.config.limits.body.bytes();
    let until = Instant::now() + exchange.snapshot.config.timeouts.body.duration();
    let headers = &exchange.session.req_header().headers;
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    if headers.contains_key(EXPECT)
        && let pingora::protocols::http::ServerSession::H1(session) = &mut exchange.session
    {
        session.write_continue_response().await.map_err(|_| incomplete())?;
    }
    let mut pieces = Pieces { first: None, rest: BytesMut::new(), announced: announced.unwrap_or(0) };
    loop {
        let read = timeout_at(until, exchange.session.read_request_body()).await;
        if !matches!(read, Ok(Ok(_))) {
            // pingora takes a body that it could not read for one that has ended: what comes next must be no request.
            exchange.session.set_keepalive(None);
        }
        let slow = || Refusal::http(Code::TooSlow, "the request's body did not come in time");
        let Some(piece) = read.map_err(|_| slow())?.map_err(|_| incomplete())? else {
            break;
        };
        if pieces.len().saturating_add(piece.len()) > limit {
            return Err(too_large(limit));
        }
        pieces.add(piece);
    }
    let body = pieces.whole();
    exchange.facts.bytes_in = body.len();
    Ok(body)
}

/// Gathers a body; one that came in a single piece is not copied.
struct Pieces {
    first: Option<Bytes>,
    rest: BytesMut,
    announced: usize,
}

impl Pieces {
    fn len(&self) -> usize {
        self.first.as_ref().map_or(0, Bytes::len) + self.rest.len()
    }

    fn add(&mut self, piece: Bytes) {
        if self.first.is_none() && self.rest.is_empty() {
            self.first = Some(piece);
            return;
        }
        if let Some(first) = self.first.take() {
            self.rest.reserve(self.announced.max(first.len() + piece.len()));
            self.rest.extend_from_slice(&first);
        }
        self.rest.extend_from_slice(&piece);
    }

    fn whole(self) -> Bytes {
        self.first.unwrap_or_else(|| self.rest.freeze())
    }
}

fn too_large(limit: usize) -> Refusal {
    Refusal::http(Code::TooLarge, format!("the request's body is over the limit of {limit} bytes (`limits.body`)"))
        .data("limit", json!(limit))
}

fn incomplete() -> Refusal {
    Refusal::http(Code::Incomplete, "the request's body is not complete")
}
