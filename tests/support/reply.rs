//! What the recorder answers: a whole response, a stream driven by the test, or bytes that are no HTTP at all.

use super::recorder::Recorded;
use super::wire;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};

/// One answer.
#[derive(Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    after: After,
}

#[derive(Debug)]
enum Body {
    /// With a `Content-Length`.
    Whole(Vec<u8>),
    /// Chunked, each written and flushed on its own.
    Chunks(Vec<Vec<u8>>),
    /// Chunked, as the test feeds it.
    Fed(Receiver<Fed>),
    /// Chunked, the same piece again and again, as fast as it is taken, until the peer leaves.
    Endless(Vec<u8>),
    /// No head, no framing: these bytes, each flushed on its own.
    Raw(Vec<Vec<u8>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    KeepAlive,
    Close,
    /// Say nothing more and wait for the peer to leave.
    Hang,
}

#[derive(Debug)]
enum Fed {
    Piece(Vec<u8>),
    Cut,
}

/// The test's end of a fed answer. Dropped, the answer ends properly.
#[derive(Debug)]
pub(crate) struct Feed(Sender<Fed>);

// === impl Reply ===

impl Reply {
    /// A response with this status and body.
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply { status, headers: Vec::new(), body: Body::Whole(body.into()), after: After::KeepAlive }
    }

    /// A JSON body, with status 200.
    pub(crate) fn json(body: impl Into<Vec<u8>>) -> Reply {
        Reply::new(200, body).header("Content-Type", "application/json")
    }

    /// The JSON-RPC result for this request; its id goes back as it was written.
    pub(crate) fn result(request: &Recorded, result: &Value) -> Reply {
        Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.json()["id"]))
    }

    /// The JSON-RPC error for this request.
    pub(crate) fn error(request: &Recorded, code: i64, message: &str) -> Reply {
        let error = json!({ "code": code, "message": message });
        Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, request.json()["id"]))
    }

    /// A stream of these messages, one event each, each flushed on its own.
    pub(crate) fn sse(messages: &[Value]) -> Reply {
        Reply::sse_raw(messages.iter().map(|message| event(message).into_bytes()).collect())
    }

    /// A stream of these bytes, each piece flushed on its own: events cut wherever the test likes.
    pub(crate) fn sse_raw(pieces: Vec<Vec<u8>>) -> Reply {
        let body = Body::Chunks(pieces);
        Reply { status: 200, headers: Vec::new(), body, after: After::KeepAlive }
            .header("Content-Type", "text/event-stream")
    }

    /// A stream that the test feeds while it runs.
    pub(crate) fn sse_fed() -> (Reply, Feed) {
        let (sender, receiver) = mpsc::channel();
        let reply = Reply { status: 200, headers: Vec::new(), body: Body::Fed(receiver), after: After::KeepAlive };
        (reply.header("Content-Type", "text/event-stream"), Feed(sender))
    }

    /// A stream of this piece again and again, as fast as it is taken, until the peer leaves.
    pub(crate) fn sse_endless(piece: impl Into<Vec<u8>>) -> Reply {
        let body = Body::Endless(piece.into());
        Reply { status: 200, headers: Vec::new(), body, after: After::Close }
            .header("Content-Type", "text/event-stream")
    }

    /// Bytes as they are, then the connection is closed.
    pub(crate) fn raw(pieces: Vec<Vec<u8>>) -> Reply {
        Reply { status: 0, headers: Vec::new(), body: Body::Raw(pieces), after: After::Close }
    }

    /// Closes the connection without a word.
    pub(crate) fn close() -> Reply {
        Reply::raw(Vec::new())
    }

    /// Never answers; the connection stays until the peer leaves.
    pub(crate) fn hang() -> Reply {
        Reply::raw(Vec::new()).then_hang()
    }

    /// Sends the client elsewhere.
    pub(crate) fn redirect(status: u16, location: &str) -> Reply {
        Reply::new(status, "").header("Location", location)
    }

    /// Status, header fields and body of a whole answer.
    #[track_caller]
    pub(crate) fn whole(&self) -> (u16, &[(String, String)], &[u8]) {
        match &self.body {
            Body::Whole(body) => (self.status, &self.headers, body),
            other => panic!("{other:?} is not whole"),
        }
    }

    /// With this header field, after those it already has.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With another status.
    pub(crate) fn status(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    /// Says nothing afterwards, and leaves the connection open.
    pub(crate) fn then_hang(mut self) -> Reply {
        self.after = After::Hang;
        self
    }

    /// The small MCP server a recorder is by default: three tools, one prompt, one resource; a call answers with its own
    /// arguments. It is of the older era: `server/discover` is unknown to it.
    pub(crate) fn mcp(request: &Recorded) -> Reply {
        if request.method != "POST" {
            return Reply::new(405, "").header("Allow", "POST");
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if message.get("id").is_none() {
            return Reply::new(202, "");
        }
        match mcp_result(&message) {
            Some(result) => Reply::result(request, &result),
            None => Reply::error(request, -32601, "Method not found"),
        }
    }

    /// Writes it; says whether the connection goes on. `hang` blocks until the peer has left.
    pub(crate) fn write(self, to: &mut impl Write, hang: impl FnOnce()) -> io::Result<bool> {
        let head = self.head();
        let mut is_cut = false;
        match self.body {
            Body::Whole(body) => {
                to.write_all(&[head, body].concat())?;
            }
            Body::Raw(pieces) => write_each(to, pieces)?,
            Body::Chunks(pieces) => {
                to.write_all(&head)?;
                write_each(to, pieces.iter().map(|piece| wire::chunk(piece)))?;
                if self.after != After::Hang {
                    to.write_all(&wire::chunk(b""))?;
                }
            }
            Body::Endless(piece) => {
                to.write_all(&head)?;
                write_each(to, std::iter::repeat_with(|| wire::chunk(&piece)))?;
            }
            Body::Fed(pieces) => {
                to.write_all(&head)?;
                is_cut = !write_fed(to, &pieces)?;
            }
        }
        to.flush()?;
        if self.after == After::Hang {
            hang();
        }
        Ok(self.after == After::KeepAlive && !is_cut)
    }

    fn head(&self) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} Answer\r\n", self.status);
        let framing = match &self.body {
            Body::Whole(_) if self.status == 204 => None,
            Body::Whole(body) => Some(("Content-Length".to_owned(), body.len().to_string())),
            Body::Chunks(_) | Body::Fed(_) | Body::Endless(_) => {
                Some(("Transfer-Encoding".to_owned(), "chunked".to_owned()))
            }
            Body::Raw(_) => None,
        };
        for (name, value) in self.headers.iter().chain(&framing) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.after == After::Close {
            head.push_str("Connection: close\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }
}

fn write_each(to: &mut impl Write, pieces: impl IntoIterator<Item = Vec<u8>>) -> io::Result<()> {
    for piece in pieces {
        to.write_all(&piece)?;
        to.flush()?;
    }
    Ok(())
}

/// Says whether the stream came to its proper end.
fn write_fed(to: &mut impl Write, pieces: &Receiver<Fed>) -> io::Result<bool> {
    for fed in pieces {
        match fed {
            Fed::Piece(piece) => write_each(to, [wire::chunk(&piece)])?,
            Fed::Cut => return Ok(false),
        }
    }
    to.write_all(&wire::chunk(b""))?;
    Ok(true)
}

// === impl Feed ===

impl Feed {
    /// Sends one message as an event.
    pub(crate) fn message(&self, message: &Value) {
        self.bytes(event(message));
    }

    /// Sends these bytes. Whether anybody still listens is not its business.
    pub(crate) fn bytes(&self, bytes: impl Into<Vec<u8>>) {
        drop(self.0.send(Fed::Piece(bytes.into())));
    }

    /// Cuts the connection in the middle of the answer.
    pub(crate) fn cut(self) {
        drop(self.0.send(Fed::Cut));
    }
}

/// A message as an event.
pub(crate) fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

fn mcp_result(message: &Value) -> Option<Value> {
    let params = &message["params"];
    Some(match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"].as_str().unwrap_or("2025-11-25"),
            "capabilities": { "tools": {}, "prompts": {}, "resources": {} },
            "serverInfo": { "name": "recorder", "version": "1.0.0" },
        }),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": [tool("echo"), tool("add"), tool("danger")] }),
        "tools/call" => json!({
            "content": [{ "type": "text", "text": params["name"] }],
            "structuredContent": params.get("arguments").cloned().unwrap_or_else(|| json!({})),
        }),
        "prompts/list" => json!({ "prompts": [{ "name": "greet" }] }),
        "prompts/get" => {
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": params["name"] } }] })
        }
        "resources/list" => json!({ "resources": [{ "uri": "note://one", "name": "one" }] }),
        "resources/templates/list" => {
            json!({ "resourceTemplates": [{ "uriTemplate": "note://{name}", "name": "note" }] })
        }
        "resources/read" => json!({ "contents": [{ "uri": params["uri"], "text": "a note" }] }),
        _ => return None,
    })
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "description": format!("The tool {name}."), "inputSchema": { "type": "object" } })
}
