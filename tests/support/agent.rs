//! An MCP client that checks every answer: what holds for all of them (`invariants`) and that its own id came back.

use super::http::{Connection, Request, Response};
use super::invariants;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which of the two worlds a client lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// `initialize`, sessions: 2025-11-25.
    Legacy,
    /// Everything in each request: 2026-07-28.
    Modern,
}

impl Era {
    /// Its protocol version.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Era::Legacy => "2025-11-25",
            Era::Modern => "2026-07-28",
        }
    }
}

/// A client of one route.
#[derive(Debug)]
pub(crate) struct Agent {
    /// The gateway's agent listener.
    pub(crate) address: SocketAddr,
    /// The path of the route.
    pub(crate) path: String,
    /// Its bearer token.
    pub(crate) token: Option<String>,
    /// Its world.
    pub(crate) era: Era,
    /// Its revision of MCP.
    pub(crate) revision: &'static str,
    /// What it declares that it can be asked for.
    pub(crate) capabilities: Value,
    /// The session it has, in the older one.
    pub(crate) session: Option<String>,
    next_id: AtomicU64,
}

/// An answer, with the message in it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The HTTP response.
    pub(crate) response: Response,
    /// The JSON-RPC response in it; `null` when its body was empty.
    pub(crate) message: Value,
    /// The notifications that came before it on its stream.
    pub(crate) notifications: Vec<Value>,
}

// === impl Agent ===

impl Agent {
    /// A client of `/mcp/<route>` of the older era.
    pub(crate) fn new(address: SocketAddr, route: &str, token: impl Into<Option<String>>) -> Agent {
        let path = format!("/mcp/{route}");
        Agent {
            address,
            path,
            token: token.into(),
            era: Era::Legacy,
            revision: Era::Legacy.version(),
            capabilities: json!({}),
            session: None,
            next_id: AtomicU64::new(1),
        }
    }

    /// The same client in the newer era.
    pub(crate) fn modern(mut self) -> Agent {
        self.era = Era::Modern;
        self.revision = Era::Modern.version();
        self
    }

    /// The same client of an older revision.
    pub(crate) fn of_revision(mut self, revision: &'static str) -> Agent {
        self.revision = revision;
        self
    }

    /// The same client, which can be asked for this.
    pub(crate) fn with_capabilities(mut self, capabilities: Value) -> Agent {
        self.capabilities = capabilities;
        self
    }

    /// Opens the stream of its session, or takes one up again after this event.
    #[track_caller]
    pub(crate) fn stream(&self, last_event: Option<&str>) -> Connection {
        let request = self.bare("GET").header("Accept", "text/event-stream");
        self.open(&match last_event {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        })
    }

    /// Ends its session.
    #[track_caller]
    pub(crate) fn end_session(&self) -> Answer {
        self.send(&self.bare("DELETE"), None)
    }

    /// A request without a body, with the headers this client sends.
    pub(crate) fn bare(&self, method: &str) -> Request {
        self.headers(Request::new(method, &self.path), &Value::Null)
    }

    /// The same client with another token, or none.
    pub(crate) fn with_token(mut self, token: Option<&str>) -> Agent {
        self.token = token.map(str::to_owned);
        self
    }

    /// Makes a session: `initialize` and `notifications/initialized`.
    #[track_caller]
    pub(crate) fn initialize(&mut self) -> Value {
        let answer = self.call(
            "initialize",
            json!({
                "protocolVersion": self.revision,
                "capabilities": self.capabilities,
                "clientInfo": { "name": "agent", "version": "1.0.0" },
            }),
        );
        self.session = answer.response.header("mcp-session-id").map(str::to_owned);
        self.notify("notifications/initialized", json!({}));
        answer.result()
    }

    /// Sends a request and reads its answer.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, params: Value) -> Answer {
        let (request, id) = self.request(method, params);
        self.send(&request, Some(&id))
    }

    /// Calls a tool.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tests write `json!` in place")]
    pub(crate) fn tool(&self, name: &str, arguments: Value) -> Answer {
        self.call("tools/call", json!({ "name": name, "arguments": arguments }))
    }

    /// The names of the tools it sees, sorted.
    #[track_caller]
    pub(crate) fn tools(&self) -> Vec<String> {
        let result = self.call("tools/list", json!({})).result();
        let tools = result["tools"].as_array().expect("a list of tools");
        let mut names: Vec<String> =
            tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    }

    /// Sends a notification.
    #[track_caller]
    pub(crate) fn notify(&self, method: &str, params: Value) -> Answer {
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": self.params(params) });
        let request = self.headers(Request::mcp(&self.path, body.to_string()), &body);
        self.send(&request, None)
    }

    /// Sends this body as it is, with the headers this client sends.
    #[track_caller]
    pub(crate) fn post(&self, body: impl Into<Vec<u8>>) -> Answer {
        let body = body.into();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let request = self.headers(Request::mcp(&self.path, body), &message);
        self.send(&request, message.get("id"))
    }

    /// A request of this client and its id, to be changed before it is sent.
    pub(crate) fn request(&self, method: &str, params: Value) -> (Request, Value) {
        let id = json!(self.next_id.fetch_add(1, Ordering::Relaxed));
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": self.params(params) });
        (self.headers(Request::mcp(&self.path, body.to_string()), &body), id)
    }

    /// Sends a request of whatever make; the answer is checked against this id.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request, id: Option<&Value>) -> Answer {
        let response = request.send(self.address);
        invariants::check(&response, id);
        Answer::of(response)
    }

    /// Sends a request and leaves its answer to be read as it comes.
    #[track_caller]
    pub(crate) fn open(&self, request: &Request) -> Connection {
        let mut connection = Connection::open(self.address);
        connection.send(&request.to_bytes(&self.address.to_string()));
        connection
    }

    fn params(&self, mut params: Value) -> Value {
        if self.era == Era::Modern {
            let meta =
                params.as_object_mut().expect("params are an object").entry("_meta").or_insert_with(|| json!({}));
            let meta = meta.as_object_mut().expect("_meta is an object");
            meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!(self.revision));
            meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), self.capabilities.clone());
            meta.insert(
                "io.modelcontextprotocol/clientInfo".to_owned(),
                json!({ "name": "agent", "version": "1.0.0" }),
            );
        }
        params
    }

    fn headers(&self, mut request: Request, message: &Value) -> Request {
        if let Some(token) = &self.token {
            request = request.bearer(token);
        }
        if let Some(session) = &self.session {
            request = request.header("Mcp-Session-Id", session);
        }
        let method = message["method"].as_str().unwrap_or_default();
        // The oldest revision has no such header.
        if method != "initialize" && self.revision != "2025-03-26" {
            request = request.header("MCP-Protocol-Version", self.revision);
        }
        if self.era == Era::Modern && !method.is_empty() {
            request = request.header("Mcp-Method", method);
            let params = &message["params"];
            if let Some(name) = params["name"].as_str().or(params["uri"].as_str()).or(params["taskId"].as_str()) {
                request = request.header("Mcp-Name", name);
            }
        }
        request
    }
}

// === impl Answer ===

impl Answer {
    /// Reads the message of a response.
    #[track_caller]
    pub(crate) fn of(response: Response) -> Answer {
        let (mut message, mut notifications) = (Value::Null, Vec::new());
        if response.is_stream() {
            for event in response.events().iter().filter(|event| !event.data.is_empty()) {
                let one = event.json();
                if one.get("method").is_some() {
                    notifications.push(one);
                } else {
                    message = one;
                }
            }
        } else if !response.body.is_empty() {
            message = response.json();
        }
        Answer { response, message, notifications }
    }

    /// Its HTTP status.
    pub(crate) fn status(&self) -> u16 {
        self.response.status
    }

    /// The result, which must be there.
    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        self.message.get("result").cloned().unwrap_or_else(|| panic!("no result: {self:#?}"))
    }

    /// The error's code and message, which must be there.
    #[track_caller]
    pub(crate) fn error(&self) -> (i64, String) {
        let error = self.message.get("error").unwrap_or_else(|| panic!("no error: {self:#?}"));
        let code = error["code"].as_i64().expect("an error has a code");
        (code, error["message"].as_str().expect("an error has a message").to_owned())
    }

    /// The text of a tool result that says `isError`, which it must.
    #[track_caller]
    pub(crate) fn refusal(&self) -> String {
        let result = self.result();
        assert_eq!(result["isError"], true, "the tool ran: {result}");
        result["content"][0]["text"].as_str().expect("a refusal has a text").to_owned()
    }
}
