//! What the stub answers, as the bytes of HTTP/1.1.

use memchr::memmem;
use std::io::Write as _;
use std::time::Duration;

/// What remains to be done once the first bytes of an answer are there.
pub(crate) enum Answer {
    /// Nothing.
    Whole,
    /// Events, one at a time; then the answer to request `id`.
    Paced { every: Duration, events: usize, id: Vec<u8> },
}

/// The body of an answer, for the one who frames it.
pub(crate) enum Body {
    Json(Vec<u8>),
    /// A notification is only accepted.
    Accepted,
    /// Events, and whether an answer to request `id` ends them at once.
    Stream {
        events: usize,
        every: Option<Duration>,
        is_idle: bool,
        id: Vec<u8>,
    },
}

/// Events are made once.
pub(crate) struct Answers {
    /// `data: …\n\n`, without the framing of any version of HTTP.
    events: Vec<Vec<u8>>,
    /// The same as chunks, one after the other, and where each begins.
    chunks: Vec<u8>,
    starts: Vec<usize>,
}

const MAX_EVENTS: usize = 1000;
const STREAM_HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
                             Transfer-Encoding: chunked\r\n\r\n";
const DISCOVERED: &str = concat!(
    r#""result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"#,
    r#""capabilities":{"tools":{}},"serverInfo":{"name":"bench-stub","version":"1"}}"#
);
const INITIALIZED: &str = concat!(
    r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"#,
    r#""serverInfo":{"name":"bench-stub","version":"1"}}"#
);

impl Answers {
    pub(crate) fn new() -> Answers {
        let event = |n: usize| {
            format!(
                concat!(
                    "event: message\ndata: ",
                    r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"b","#,
                    r#""progress":{n},"total":1000,"message":"The gate has seen {n} of them."}}}}"#,
                    "\n\n"
                ),
                n = n
            )
            .into_bytes()
        };
        let events: Vec<Vec<u8>> = (1..=MAX_EVENTS).map(event).collect();
        let (mut chunks, mut starts) = (Vec::new(), Vec::new());
        for event in &events {
            starts.push(chunks.len());
            chunk(event, &mut chunks);
        }
        starts.push(chunks.len());
        Answers { events, chunks, starts }
    }

    /// Answers one request of HTTP/1.1 into `out`.
    pub(crate) fn answer(&self, head: &[u8], body: &[u8], out: &mut Vec<u8>) -> Answer {
        match self.body(&head[..head.len().min(8)], body) {
            Body::Accepted => out.extend_from_slice(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
            Body::Json(json) => {
                let session = if memmem::find(&json, b"protocolVersion").is_some() {
                    "Mcp-Session-Id: bench-session\r\n"
                } else {
                    ""
                };
                let length = json.len();
                // Writing to a Vec does not fail.
                let _ = write!(
                    out,
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{session}Content-Length: {length}\r\n\r\n"
                );
                out.extend_from_slice(&json);
            }
            Body::Stream { events, every, is_idle, id } => {
                out.extend_from_slice(STREAM_HEAD);
                if let Some(every) = every {
                    return Answer::Paced { every, events, id };
                }
                out.extend_from_slice(&self.chunks[..self.starts[events]]);
                if !is_idle {
                    self.end_stream(&id, out);
                }
            }
        }
        Answer::Whole
    }

    /// Adds event number `n` as a chunk.
    pub(crate) fn event(&self, n: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.chunks[self.starts[n]..self.starts[n + 1]]);
    }

    /// Adds the answer to request `id` as the last event, and the end of the body.
    pub(crate) fn end_stream(&self, id: &[u8], out: &mut Vec<u8>) {
        chunk(&last_event(id), out);
        out.extend_from_slice(b"0\r\n\r\n");
    }

    /// The text of the first `n` events.
    pub(crate) fn events(&self, n: usize) -> &[Vec<u8>] {
        &self.events[..n]
    }

    /// What to answer to `body`; `verb` is the beginning of the HTTP method.
    pub(crate) fn body(&self, verb: &[u8], body: &[u8]) -> Body {
        if verb.starts_with(b"GET") {
            return Body::Stream { events: 1, every: None, is_idle: true, id: Vec::new() };
        }
        if verb.starts_with(b"DELETE") {
            return Body::Accepted;
        }
        let id = raw(body, b"\"id\":").unwrap_or_default();
        let result = |text: &str| {
            let id = String::from_utf8_lossy(id);
            Body::Json(format!(r#"{{"jsonrpc":"2.0","id":{id},{text}}}"#).into_bytes())
        };
        match text(body, b"\"method\":\"").unwrap_or_default() {
            b"tools/call" => self.call(id, body),
            b"server/discover" => result(DISCOVERED),
            b"initialize" => result(INITIALIZED),
            b"tools/list" => result(&tools()),
            method if method.starts_with(b"notifications/") => Body::Accepted,
            _ => result(r#""result":{}"#),
        }
    }

    fn call(&self, id: &[u8], body: &[u8]) -> Body {
        let tool = text(body, b"\"name\":\"").unwrap_or_default();
        if tool == b"echo" {
            return Body::Json(echo(id, body));
        }
        if tool == b"take" {
            return Body::Json(echo(id, &[&b"\"payload\":\""[..], &[b'x'; 900], b"\"}}}"].concat()));
        }
        let every = number(body, b"\"every_ms\":").filter(|_| tool == b"paced");
        Body::Stream {
            events: number(body, b"\"events\":").unwrap_or(1).min(MAX_EVENTS),
            every: every.map(|ms| Duration::from_millis(ms as u64)),
            is_idle: tool == b"idle",
            id: id.to_vec(),
        }
    }
}

/// The answer of a stream, as an event.
pub(crate) fn last_event(id: &[u8]) -> Vec<u8> {
    let mut event = b"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":".to_vec();
    event.extend_from_slice(id);
    event.extend_from_slice(br#","result":{"resultType":"complete","content":[{"type":"text","text":"done"}]}}"#);
    event.extend_from_slice(b"\n\n");
    event
}

/// A result with the call's payload: text where it is a string, structured content otherwise. The payload is the last
/// member of `arguments`, which is the last of `params`, which is the last of the message: the loader writes it so.
fn echo(id: &[u8], body: &[u8]) -> Vec<u8> {
    let key = b"\"payload\":";
    let start = memmem::find(body, key).map_or(body.len(), |at| at + key.len());
    let payload = body.get(start..body.len().saturating_sub(3)).unwrap_or_default();
    let (before, after): (&[u8], &[u8]) = match payload.first() {
        Some(b'"') => (br#"[{"type":"text","text":"#, b"}]}}"),
        _ => (br#"[],"structuredContent":{"rows":"#, b"}}}"),
    };
    let parts: [&[u8]; 6] =
        [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":{"resultType":"complete","content":"#, before, payload, after];
    parts.concat()
}

fn tools() -> String {
    let tool = |name: &str| {
        format!(
            r#"{{"name":"{name}","description":"A tool of the bench","inputSchema":{{"type":"object","properties":{{"path":{{"type":"string"}}}}}}}}"#
        )
    };
    let tools = ["echo", "take", "burst", "paced", "idle"].map(tool).join(",");
    format!(r#""result":{{"resultType":"complete","tools":[{tools}]}}"#)
}

fn chunk(data: &[u8], out: &mut Vec<u8>) {
    // Writing to a Vec does not fail.
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// What stands behind the first `key`, up to the next quotation mark.
fn text<'a>(body: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = &body[memmem::find(body, key)? + key.len()..];
    Some(&rest[..memchr::memchr(b'"', rest)?])
}

/// What stands behind the first `key`, up to the next comma or brace.
fn raw<'a>(body: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let rest = &body[memmem::find(body, key)? + key.len()..];
    Some(&rest[..memchr::memchr2(b',', b'}', rest)?])
}

fn number(body: &[u8], key: &[u8]) -> Option<usize> {
    str::from_utf8(raw(body, key)?).ok()?.trim().parse().ok()
}
