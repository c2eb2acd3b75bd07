//! Our own conversation with an upstream: which era it speaks, and what tools it has.
//!
//! The era is probed as MCP 2026-07-28 tells dual-era clients to: `server/discover` first, `initialize` on any answer
//! that is not a modern one.

use super::{Answer, Definition, Definitions, Error, Request, Send, Shared, Upstream};
use crate::jsonrpc::{self, Id, Limits, Message, Node, Outcome, Span};
use crate::mcp::{Era, LATEST, sse};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use tracing::warn;

const LEGACY_VERSION: &str = "2025-11-25";
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 10_000;
/// One answer of an upstream to us.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
const LIMITS: Limits = Limits { depth: 128, nodes: 2_000_000 };

/// Every tool the upstream lists, page by page.
pub(super) async fn fetch(upstream: &Upstream, shared: &Shared) -> Result<Definitions, Error> {
    let mut conversation = Conversation { upstream, shared, headers: Vec::new(), next_id: 0, meta: None };
    let era = conversation.open().await?;
    let tools = conversation.tools().await;
    conversation.close().await;
    Ok(Definitions { era: Some(era), tools: tools? })
}

/// One call of a tool in the newer era, with these headers beside those of the era. The result as it came.
pub(super) async fn call(
    upstream: &Upstream,
    shared: &Shared,
    headers: Vec<(HeaderName, HeaderValue)>,
    tool: &str,
    arguments: Value,
) -> Result<Value, Error> {
    let mut conversation = Conversation { upstream, shared, headers, next_id: 0, meta: None };
    conversation.use_latest();
    conversation.headers.push((HeaderName::from_static("mcp-name"), crate::mcp::encode_value(tool)));
    let reply = conversation.request("tools/call", json!({ "name": tool, "arguments": arguments })).await?;
    let result = match reply.outcome {
        Outcome::Result(span) => Node::of(&reply.text, span),
        Outcome::Error(span) => {
            return Err(Error::Malformed(format!("an error: {}", Node::of(&reply.text, span).text())));
        }
    };
    serde_json::from_str(result.text()).map_err(|why| Error::Malformed(why.to_string()))
}

struct Conversation<'a> {
    upstream: &'a Upstream,
    shared: &'a Shared,
    /// What the era wants on every request.
    headers: Vec<(HeaderName, HeaderValue)>,
    next_id: u64,
    meta: Option<Value>,
}

/// An accepted answer: its text, and where the result stands in it.
struct Reply {
    text: Bytes,
    outcome: Outcome,
    session: Option<HeaderValue>,
}

impl Conversation<'_> {
    async fn open(&mut self) -> Result<Era, Error> {
        self.use_latest();
        match self.request("server/discover", json!({})).await {
            Ok(Reply { outcome: Outcome::Result(_), .. }) => return Ok(Era::Modern),
            // Not there at all: a second question would only fail the same way.
            Err(
                error @ (Error::Resolve { .. }
                | Error::Connect(_)
                | Error::Tls(_)
                | Error::Timeout { .. }
                | Error::Down(_)),
            ) => {
                return Err(error);
            }
            Ok(_) | Err(_) => {}
        }
        self.meta = None;
        self.headers.clear();
        let params = json!({
            "protocolVersion": LEGACY_VERSION,
            "capabilities": {},
            "clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
        });
        let reply = self.request("initialize", params).await?;
        let version = reply.result("initialize")?.get("protocolVersion").and_then(Node::as_str);
        let version = version.ok_or_else(|| Error::Malformed("no protocolVersion in `initialize`".to_owned()))?;
        let version =
            HeaderValue::try_from(&*version).map_err(|_| Error::Malformed("an odd protocolVersion".to_owned()))?;
        self.headers.push((HeaderName::from_static("mcp-protocol-version"), version));
        self.headers.extend(reply.session.map(|id| (HeaderName::from_static("mcp-session-id"), id)));
        self.post(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }), "notifications/initialized")
            .await?;
        Ok(Era::Legacy)
    }

    fn use_latest(&mut self) {
        self.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": LATEST,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
        }));
        self.headers.push((HeaderName::from_static("mcp-protocol-version"), HeaderValue::from_static(LATEST)));
    }

    async fn tools(&mut self) -> Result<std::collections::BTreeMap<String, Definition>, Error> {
        let mut tools = std::collections::BTreeMap::new();
        let mut cursors: Vec<String> = Vec::new();
        for _ in 0..MAX_PAGES {
            let params = cursors.last().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let reply = self.request("tools/list", params).await?;
            if matches!(reply.outcome, Outcome::Error(_)) {
                // At the first page, a server without tools.
                if !cursors.is_empty() {
                    warn!(upstream = %self.upstream.name, "the list of tools broke off; kept what it gave so far");
                }
                return Ok(tools);
            }
            let result = reply.result("tools/list")?;
            for tool in result.get("tools").into_iter().flat_map(Node::elements).take(MAX_TOOLS) {
                if let Some(name) = tool.get("name").and_then(Node::as_str) {
                    tools.insert(name.into_owned(), Definition::new(Bytes::copy_from_slice(tool.text().as_bytes())));
                }
            }
            let Some(next) = result.get("nextCursor").and_then(Node::as_str) else {
                return Ok(tools);
            };
            if cursors.iter().any(|seen| *seen == next) || tools.len() >= MAX_TOOLS {
                warn!(upstream = %self.upstream.name, "the list of tools does not end; kept what it gave so far");
                return Ok(tools);
            }
            cursors.push(next.into_owned());
        }
        Ok(tools)
    }

    /// Ends the session we opened; servers that do not know how answer 405, which is fine.
    async fn close(&self) {
        if self.headers.iter().any(|(name, _)| name == "mcp-session-id") {
            let request = Request {
                method: Method::DELETE,
                body: Bytes::new(),
                headers: self.headers.clone(),
                is_repeatable: false,
                is_lasting: false,
                follows_redirects: true,
            };
            if let Ok(answer) = self.sender().send(&request).await {
                answer.cut().await;
            }
        }
    }

    async fn request(&mut self, method: &str, mut params: Value) -> Result<Reply, Error> {
        self.next_id += 1;
        if let (Some(meta), Some(members)) = (&self.meta, params.as_object_mut()) {
            members.insert("_meta".to_owned(), meta.clone());
        }
        let message = json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params });
        let mut answer = self.post(message, method).await?;
        let session = answer.session.clone();
        let text = read_message(&mut answer, &Id::from(self.next_id)).await?;
        answer.release().await;
        match jsonrpc::parse_answer(&text, LIMITS) {
            Ok(Message::Response(response)) => Ok(Reply { text, outcome: response.outcome, session }),
            Ok(_) => Err(Error::Malformed("not a response".to_owned())),
            Err(error) => Err(Error::Malformed(error.to_string())),
        }
    }

    async fn post(&self, message: Value, method: &str) -> Result<Answer, Error> {
        let mut headers = self.headers.clone();
        if self.meta.is_some() {
            let method = HeaderValue::try_from(method).map_err(|_| Error::Malformed("an odd method".to_owned()))?;
            headers.push((HeaderName::from_static("mcp-method"), method));
        }
        let body = Bytes::from(message.to_string());
        let request = Request {
            method: Method::POST,
            body,
            headers,
            is_repeatable: true,
            is_lasting: false,
            follows_redirects: true,
        };
        self.sender().send(&request).await
    }

    fn sender(&self) -> Send<'_> {
        Send { upstream: self.upstream, shared: self.shared }
    }
}

impl Reply {
    fn result(&self, method: &str) -> Result<Node<'_>, Error> {
        match self.outcome {
            Outcome::Result(span) => Ok(Node::of(&self.text, span)),
            Outcome::Error(Span { .. }) => Err(Error::Malformed(format!("an error in answer to `{method}`"))),
        }
    }
}

/// The one message that answers our request `id`, out of a JSON body or an event stream.
async fn read_message(answer: &mut Answer, id: &Id) -> Result<Bytes, Error> {
    let is_answer = |event: &sse::Event| {
        let message = event.is_message().then(|| jsonrpc::parse_answer(&event.data, LIMITS));
        matches!(message, Some(Ok(Message::Response(response))) if response.id.as_ref().is_none_or(|of| of == id))
    };
    if !is_stream(answer.content_type.as_ref()) {
        return answer.read_all(MAX_ANSWER).await;
    }
    let mut decoder = sse::Decoder::new(MAX_ANSWER);
    let mut events = Vec::new();
    while let Some(piece) = answer.read().await? {
        decoder.push(&piece, &mut events).map_err(|over| Error::TooLarge { limit: over.limit })?;
        if let Some(event) = events.drain(..).find(is_answer) {
            return Ok(event.data);
        }
    }
    let last = decoder.finish().filter(is_answer);
    last.map(|event| event.data).ok_or_else(|| Error::Malformed("a stream without an answer".to_owned()))
}

fn is_stream(content_type: Option<&HeaderValue>) -> bool {
    let value = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
}
