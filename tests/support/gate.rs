//! The scene of the tests that show what does not get through: a gateway, a recorder behind it as upstream `up`, and a
//! good token in hand. Whoever shows that something is refused here also shows what is let through, by the same means.

use super::PATIENCE;
use super::gateway::{Gateway, Launch, in_front_of};
use super::http::{Connection, Request, Response};
use super::invariants;
use super::recorder::{Recorded, Recorder};
use super::reply::Reply;
use serde_json::Value;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// A gateway in front of a recorder. The gateway has asked for the tool definitions already, and will not again for a while.
pub(crate) struct Gate {
    /// The upstream `up`.
    pub(crate) recorder: Recorder,
    /// The gateway.
    pub(crate) gateway: Gateway,
    /// A token of alice for `/mcp/up`.
    pub(crate) token: String,
}

/// How a request is refused.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    /// With a JSON-RPC error.
    Error {
        /// The HTTP status.
        status: u16,
        /// The error's code.
        number: i64,
        /// `data.code`.
        code: &'static str,
        /// The id, as JSON.
        id: String,
    },
    /// With a tool result that says `isError`, whose text holds this.
    Result {
        /// A part of the text.
        text: &'static str,
        /// The id, as JSON.
        id: String,
    },
}

/// With a JSON-RPC error for no known id.
pub(crate) fn error(status: u16, number: i64, code: &'static str) -> Refused {
    Refused::Error { status, number, code, id: "null".to_owned() }
}

/// With a tool result that says this, for the request 7.
pub(crate) fn result(text: &'static str) -> Refused {
    Refused::Result { text, id: "7".to_owned() }
}

impl Refused {
    /// For the request with this id, as JSON.
    pub(crate) fn id(mut self, json: &str) -> Refused {
        let (Refused::Error { id, .. } | Refused::Result { id, .. }) = &mut self;
        json.clone_into(id);
        self
    }

    #[track_caller]
    fn check(&self, response: &Response) {
        let (Refused::Error { id, .. } | Refused::Result { id, .. }) = self;
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},""#);
        assert!(response.text().starts_with(&head), "{} does not begin with {head}", response.text());
        let id = serde_json::from_str(id).expect("an id is JSON");
        invariants::check(response, Some(&id).filter(|id: &&Value| !id.is_null()));
        let message = response.json();
        match self {
            Refused::Error { status, number, code, .. } => {
                let error = &message["error"];
                let seen = (response.status, error["code"].as_i64(), error["data"]["code"].as_str());
                assert_eq!(seen, (*status, Some(*number), Some(*code)), "{}", response.text());
            }
            Refused::Result { text, .. } => {
                assert_eq!((response.status, &message["result"]["isError"]), (200, &Value::Bool(true)), "{message}");
                let said = message["result"]["content"][0]["text"].as_str().unwrap_or_default();
                assert!(said.contains(text), "{said:?} does not say {text:?}");
            }
        }
        let is_challenged = response.header("www-authenticate").is_some();
        assert_eq!(is_challenged, matches!(response.status, 401), "a challenge goes with 401 only: {response:?}");
    }
}

/// Says which case of a table failed.
struct Case<'a>(&'a str);

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("in the case: {}", self.0);
        }
    }
}

// === impl Gate ===

impl Gate {
    /// With these rules (the list under `policy.rules`).
    #[track_caller]
    pub(crate) fn with_rules(rules: &str) -> Gate {
        Gate::with(|url| in_front_of(url, rules))
    }

    /// With this configuration, made for the URL of the recorder.
    #[track_caller]
    pub(crate) fn with(yaml: impl FnOnce(&str) -> String) -> Gate {
        Gate::with_env(yaml, &[])
    }

    /// The same with these environment variables.
    #[track_caller]
    pub(crate) fn with_env(yaml: impl FnOnce(&str) -> String, env: &[(&str, &str)]) -> Gate {
        let recorder = Recorder::start();
        let launch =
            env.iter().fold(Launch::new(&yaml(&recorder.url())), |launch, (name, value)| launch.env(name, value));
        let gateway = launch.start();
        let token = gateway.token("alice", "up");
        let gate = Gate { recorder, gateway, token };
        gate.wait_until_asked("up");
        gate
    }

    /// Waits until the gateway has fetched the tool definitions of this upstream, so that nothing but calls comes there.
    #[track_caller]
    pub(crate) fn wait_until_asked(&self, upstream: &str) {
        let sample = format!("portcullis_upstream_up{{upstream=\"{upstream}\"}}");
        let is_up = eventually(PATIENCE, || (self.gateway.metric(&sample) > 0.5).then_some(()));
        assert!(is_up.is_some(), "`{upstream}` was not asked for its tools\n{}", self.gateway.log());
    }

    /// A POST of this body to `/mcp/up`, with the token.
    pub(crate) fn post(&self, body: impl Into<Vec<u8>>) -> Request {
        Request::mcp("/mcp/up", body).bearer(&self.token)
    }

    /// The same as a client of 2026-07-28 sends it, with the headers that say again what its body says.
    pub(crate) fn modern(&self, method: &str, name: Option<&str>, body: impl Into<Vec<u8>>) -> Request {
        let request = self.post(body).header("MCP-Protocol-Version", "2026-07-28").header("Mcp-Method", method);
        match name {
            Some(name) => request.header("Mcp-Name", name),
            None => request,
        }
    }

    /// Sends a request that must be refused in this way, without a byte for the upstream.
    #[track_caller]
    pub(crate) fn refuses(&self, case: &str, request: &Request, how: &Refused) -> Response {
        let shown = Case(case);
        let mark = self.recorder.mark();

        let response = request.send(self.gateway.agent);

        how.check(&response);
        self.recorder.assert_untouched(mark);
        drop(shown);
        response
    }

    /// Sends a request that must be refused with one of these statuses, whatever the form, without a byte for the upstream.
    #[track_caller]
    pub(crate) fn refuses_with(&self, case: &str, bytes: &[u8], statuses: &[u16]) -> Response {
        let shown = Case(case);
        let mark = self.recorder.mark();
        let mut connection = Connection::open(self.gateway.agent);
        // Refused early, it may close before it has taken all.
        drop(connection.try_send(bytes));

        let response = connection.response();

        assert!(statuses.contains(&response.status), "{response:?}: {}", response.text());
        self.recorder.assert_untouched(mark);
        drop(shown);
        response
    }

    /// Sends a request that must arrive at the upstream, once and byte for byte; the upstream answers with an empty result.
    #[track_caller]
    pub(crate) fn passes(&self, case: &str, request: &Request) -> Recorded {
        let shown = Case(case);
        let mark = self.recorder.mark();
        self.recorder.answer_next(empty_result(request.body_bytes()));

        let response = request.send(self.gateway.agent);

        assert!(matches!(response.status, 200 | 202), "{response:?}: {}", response.text());
        invariants::check_headers(&response);
        assert!(!response.text().contains("\"error\""), "{}", response.text());
        let arrived = self.recorder.requests_since(mark);
        assert_eq!(arrived.len(), 1, "it arrives once: {arrived:#?}");
        assert!(arrived[0].body == request.body_bytes(), "it does not arrive as it was sent: {:?}", arrived[0]);
        drop(shown);
        arrived.into_iter().next().expect("there is one")
    }

    /// The one decision record that this answer's request left.
    #[track_caller]
    pub(crate) fn decision(&self, response: &Response) -> Value {
        let request = response.header("x-request-id").expect("every answer has one");
        let is_its = |record: &Value| record["event"] == "decision" && record["request"] == request;
        let mut records: Vec<Value> = self.gateway.audit().into_iter().filter(is_its).collect();
        assert_eq!(records.len(), 1, "one decision for {request}: {records:#?}");
        records.remove(0)
    }
}

/// An empty result for the id in `body`, as it was written there. Found as text: no JSON library of ours keeps all numbers.
fn empty_result(body: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(body);
    let id = text.split_once(r#""id":"#).and_then(|(_, rest)| rest.split([',', '}']).next());
    match id {
        Some(id) => Reply::json(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, id.trim())),
        None => Reply::new(202, ""),
    }
}

/// Asks until there is an answer, or the limit is over.
pub(crate) fn eventually<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() >= deadline {
            return None;
        }
        // A poll, not a pause that something depends on.
        thread::sleep(Duration::from_millis(5));
    }
}

/// A JSON string of this text, with nothing escaped but what must be.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A `tools/call` with the id 7 and these arguments, as JSON.
pub(crate) fn call(tool: &str, arguments: &str) -> String {
    let tool = quoted(tool);
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":{tool},"arguments":{arguments}}}}}"#)
}

/// The `_meta` that each request of 2026-07-28 carries, as a member with its name.
pub(crate) const META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"agent","version":"1.0.0"}}"#,
);

/// The same `tools/call` as a client of 2026-07-28 sends it.
pub(crate) fn modern_call(tool: &str, arguments: &str) -> String {
    let tool = quoted(tool);
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":{tool},"arguments":{arguments},{META}}}}}"#
    )
}
