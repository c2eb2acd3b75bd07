//! Server-sent events, as MCP servers stream their messages (WHATWG HTML, "Server-sent events"; MCP, Streamable HTTP).
//!
//! Reading is tolerant where the standard is (CR, LF or CRLF, a leading BOM, fields in any order) and bounded where it
//! is not. Writing puts one message into one event, so that no byte of a message can become a field of its own.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// One event as it was dispatched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its type; `None` where the stream named none, which means `message`.
    pub name: Option<String>,
    /// Its data lines, joined by LF.
    pub data: Bytes,
    /// The last `id` seen up to here, where this event set one.
    pub id: Option<String>,
    /// A reconnection time in milliseconds, where this event set one.
    pub retry_ms: Option<u64>,
}

impl Event {
    /// Whether clients would take it for a message: no name, or `message`.
    pub fn is_message(&self) -> bool {
        self.name.as_deref().is_none_or(|name| name == "message")
    }
}

/// An event grew over the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an event of more than {limit} bytes")]
pub struct TooLarge {
    /// In bytes.
    pub limit: usize,
}

/// Splits bytes, in whatever pieces they come, into events. Holds at most one event of `limit` bytes.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    line: BytesMut,
    data: BytesMut,
    has_data: bool,
    event: Event,
    is_after_cr: bool,
    is_first_line: bool,
}

impl Decoder {
    /// A decoder for a new stream.
    pub fn new(limit: usize) -> Self {
        Decoder {
            limit,
            line: BytesMut::new(),
            data: BytesMut::new(),
            has_data: false,
            event: Event::default(),
            is_after_cr: false,
            is_first_line: true,
        }
    }

    /// Takes the next bytes of the stream; the events they complete are appended to `events`.
    ///
    /// # Errors
    /// [`TooLarge`]: what has gathered is over the limit; the stream is of no further use.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        let mut rest = bytes;
        if self.is_after_cr && !rest.is_empty() {
            self.is_after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(end);
            self.gather(line)?;
            self.end_line(events);
            rest = match tail {
                [b'\r', b'\n', after @ ..] => after,
                [b'\r'] => {
                    // The LF that belongs to this CR may be the first byte of the next piece.
                    self.is_after_cr = true;
                    &[]
                }
                [_, after @ ..] => after,
                [] => &[],
            };
        }
        self.gather(rest)
    }

    /// The stream has ended cleanly. What the last event had gathered is returned, although no blank line ended it:
    /// the caller passes it on when it is a whole message. (The standard drops it; some servers leave the line out.)
    pub fn finish(mut self) -> Option<Event> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events);
        }
        self.end_event(&mut events);
        events.pop()
    }

    fn gather(&mut self, bytes: &[u8]) -> Result<(), TooLarge> {
        let gathered = self.line.len().saturating_add(self.data.len()).saturating_add(bytes.len());
        if gathered > self.limit {
            return Err(TooLarge { limit: self.limit });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) {
        let line = self.line.split();
        let mut line = line.as_ref();
        if std::mem::take(&mut self.is_first_line) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event(events);
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            // A comment.
            Some(0) => return,
            Some(colon) => {
                let (field, value) = line.split_at(colon);
                let value = value.get(1..).unwrap_or_default();
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        self.field(field, value);
    }

    fn field(&mut self, field: &[u8], value: &[u8]) {
        match field {
            b"data" => {
                if self.has_data {
                    self.data.extend_from_slice(b"\n");
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.event.name = Some(String::from_utf8_lossy(value).into_owned()),
            b"id" if !value.contains(&0) => self.event.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                self.event.retry_ms = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            _ => {}
        }
    }

    fn end_event(&mut self, events: &mut Vec<Event>) {
        let mut event = std::mem::take(&mut self.event);
        event.data = self.data.split().freeze();
        let is_something = std::mem::take(&mut self.has_data) || event.id.is_some() || event.retry_ms.is_some();
        if is_something {
            events.push(event);
        }
    }
}

/// `message` (valid JSON) as one event of type `message`.
pub fn encode(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len().saturating_add(32));
    write(&mut out, message, &Place::default());
    out.freeze()
}

/// What an event says about its place in the stream, beside its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The id to resume after it. Without line ends, which no id of ours has.
    pub id: Option<String>,
    /// How long a client should wait before it reconnects, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// Appends `message` (valid JSON, or nothing: then the event only marks a place) as one event to `out`.
pub fn write(out: &mut BytesMut, message: &[u8], place: &Place) {
    out.reserve(message.len().saturating_add(64));
    if !message.is_empty() {
        out.extend_from_slice(b"event: message\n");
    }
    if let Some(id) = &place.id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(b"\n");
    }
    if let Some(ms) = place.retry_ms {
        out.extend_from_slice(format!("retry: {ms}\n").as_bytes());
    }
    // In valid JSON a line end is only ever space between tokens, so every line can be a data line of its own.
    let mut rest = message;
    loop {
        let end = memchr::memchr2(b'\n', b'\r', rest);
        let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.extend_from_slice(b"\n");
        match after.split_first() {
            Some((_, after)) => rest = after,
            None => break,
        }
    }
    out.extend_from_slice(b"\n");
}

/// A comment: keeps proxies from closing an idle stream, and means nothing to clients.
pub const COMMENT: &[u8] = b": portcullis\n\n";

/// For the fuzzer: the first byte says where the rest is cut in two.
#[doc(hidden)]
pub fn fuzz_frames(data: &[u8]) {
    const LIMIT: usize = 4096;
    let Some((cut, stream)) = data.split_first() else {
        return;
    };
    let read = |pieces: &[&[u8]]| {
        let mut decoder = Decoder::new(LIMIT);
        let mut events = Vec::new();
        for piece in pieces {
            if decoder.push(piece, &mut events).is_err() {
                return None;
            }
        }
        events.extend(decoder.finish());
        Some(events)
    };
    let (head, tail) = stream.split_at(usize::from(*cut).min(stream.len()));
    let (whole, parts) = (read(&[stream]), read(&[head, tail]));
    // Both are within the limit or both are not, and then they are the same.
    assert_eq!(whole, parts, "the pieces of a stream changed its events");
    for event in whole.into_iter().flatten() {
        assert!(event.data.len() <= LIMIT, "an event of more than its limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::new(1024);
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(piece, &mut events).expect("small events");
        }
        events.extend(decoder.finish());
        events
    }

    fn data(text: &str) -> Event {
        Event { data: Bytes::copy_from_slice(text.as_bytes()), ..Event::default() }
    }

    #[test]
    fn every_way_to_end_a_line_gives_the_same_events() {
        for text in
            ["data: {}\n\n", "data: {}\r\n\r\n", "data: {}\r\r", "data:{}\n\n", "\u{feff}data: {}\n\n", "data: {}"]
        {
            assert_eq!(decode(&[text.as_bytes()]), [data("{}")], "{text:?}");
        }
    }

    #[test]
    fn data_lines_are_joined_and_comments_are_not_events() {
        assert_eq!(decode(&[b": hi\n\ndata: {\ndata: }\n\n"]), [data("{\n}")]);
    }

    #[test]
    fn names_ids_and_retry_are_kept_with_their_event() {
        let events = decode(&[b"event: ping\nid: 7\nretry: 300\ndata\n\nid: 8\n\n"]);

        assert_eq!(events[0].name.as_deref(), Some("ping"));
        assert!(!events[0].is_message());
        assert_eq!((events[0].id.as_deref(), events[0].retry_ms), (Some("7"), Some(300)));
        assert_eq!(events[1].id.as_deref(), Some("8"));
    }

    #[test]
    fn an_event_over_the_limit_ends_the_stream() {
        let mut decoder = Decoder::new(16);
        let mut events = Vec::new();
        assert_eq!(decoder.push(b"data: 12345678\n\n", &mut events), Ok(()));
        assert_eq!(decoder.push(b"data: 12345678901", &mut events), Err(TooLarge { limit: 16 }));
    }

    #[test]
    fn what_is_encoded_holds_no_field_of_its_own() {
        let message = b"{\r\"a\":\n1}\n";
        let events = decode(&[&encode(message)]);
        assert_eq!(events.len(), 1);
        assert!(events[0].is_message() && events[0].id.is_none());
        assert_eq!(events[0].data.as_ref(), b"{\n\"a\":\n1}\n");
    }

    proptest! {
        #[test]
        fn the_pieces_a_stream_comes_in_do_not_matter(
            lines in proptest::collection::vec("(data: ?|id: |event: |: |)[a-zé😀]{0,6}(\r\n|\n|\r)", 0..12),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let text = lines.concat().into_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in at {
                pieces.push(&text[from..cut]);
                from = cut;
            }
            pieces.push(&text[from..]);

            prop_assert_eq!(decode(&pieces), decode(&[&text]));
        }
    }
}
