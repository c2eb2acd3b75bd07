//! Clients as they are in the field, by how long they give a call and what makes them give it longer; times are a twelfth.
//!
//! Each makes its call again as its pending answer tells it, and after it has given up.

use crate::support::PATIENCE;
use crate::support::agent::{Agent, Era};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// One kind of client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emulator {
    /// What it is called here, and its client id.
    pub(super) name: &'static str,
    era: Era,
    /// What it declares.
    capabilities: fn() -> Value,
    /// How long it gives a request.
    limit: Option<Duration>,
    /// What makes it begin to count anew.
    renewed_by: Renewal,
    /// Whether it says so when it gives up.
    cancels: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Renewal {
    Nothing,
    Progress,
    AnyByte,
}

/// What a client has seen on its way to a result.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// Requests it gave up.
    pub(super) n_given_up: usize,
    /// Answers that told it to call again.
    pub(super) n_told: usize,
    /// Answers that asked it to come back.
    pub(super) n_rounds: usize,
    /// Times it asked about a task.
    pub(super) n_polls: usize,
    /// The result, at last.
    pub(super) result: Value,
}

/// A minute.
const MINUTE: Duration = Duration::from_secs(5);
/// SDKs give up after so many rounds.
const MAX_ROUNDS: usize = 10;

fn nothing() -> Value {
    json!({})
}

fn pages() -> Value {
    json!({ "elicitation": { "form": {}, "url": {} } })
}

const BASE: Emulator = Emulator {
    name: "none",
    era: Era::Modern,
    capabilities: nothing,
    limit: None,
    renewed_by: Renewal::Nothing,
    cancels: false,
};

/// All of them.
pub(super) const EMULATORS: [Emulator; 7] = [
    Emulator { name: "hard-60", era: Era::Legacy, limit: Some(MINUTE), ..BASE },
    Emulator {
        name: "hard-30-cancels",
        era: Era::Legacy,
        limit: Some(MINUTE.checked_div(2).unwrap()),
        cancels: true,
        ..BASE
    },
    Emulator { name: "progress-60", era: Era::Legacy, limit: Some(MINUTE), renewed_by: Renewal::Progress, ..BASE },
    Emulator {
        name: "idle-300",
        era: Era::Legacy,
        limit: Some(MINUTE.saturating_mul(5)),
        renewed_by: Renewal::AnyByte,
        ..BASE
    },
    Emulator { name: "rounds", capabilities: pages, limit: Some(MINUTE), ..BASE },
    Emulator { name: "tasks", capabilities: super::tasks_extension, limit: Some(MINUTE), ..BASE },
    BASE,
];

enum Heard {
    Answer(Value),
    GaveUp,
}

// === impl Emulator ===

impl Emulator {
    /// It, with this token; with a session where its era has one.
    #[track_caller]
    pub(super) fn connect(&self, address: std::net::SocketAddr, token: &str) -> Agent {
        let agent = Agent::new(address, "up", token.to_owned()).with_capabilities((self.capabilities)());
        match self.era {
            Era::Modern => agent.modern(),
            Era::Legacy => {
                let mut agent = agent;
                agent.initialize();
                agent
            }
        }
    }

    /// Calls until it has a result that is none of ours, for as long as `goes_on`.
    #[track_caller]
    pub(super) fn call(&self, agent: &Agent, arguments: &Value, goes_on: impl Fn() -> bool) -> Story {
        let mut story = Story::default();
        let first = json!({ "name": "danger", "arguments": arguments });
        let (mut params, mut n_rounds) = (first.clone(), 0);
        while goes_on() {
            let Heard::Answer(message) = self.ask(agent, &params) else {
                story.n_given_up += 1;
                (params, n_rounds) = (first.clone(), 0);
                continue;
            };
            let result = &message["result"];
            match result["resultType"].as_str() {
                Some("input_required") => {
                    (story.n_rounds, n_rounds) = (story.n_rounds + 1, n_rounds + 1);
                    assert!(n_rounds <= MAX_ROUNDS, "{}: its SDK would give up", self.name);
                    params = retry(&first, result);
                }
                Some("task") => {
                    story.result = poll(agent, result, &mut story.n_polls, &goes_on);
                    return story;
                }
                _ if result["isError"] == true => {
                    let text = result["content"][0]["text"].as_str().unwrap_or_default();
                    if !text.contains("call again with exactly the same arguments") {
                        story.result = result.clone();
                        return story;
                    }
                    story.n_told += 1;
                    (params, n_rounds) = (first.clone(), 0);
                    // What a model needs to read it.
                    thread::sleep(Duration::from_millis(200));
                }
                _ => {
                    story.result = result.clone();
                    assert!(story.result.is_object(), "{}: {message}", self.name);
                    return story;
                }
            }
        }
        story
    }

    /// One request, for as long as this client gives it.
    #[track_caller]
    fn ask(&self, agent: &Agent, params: &Value) -> Heard {
        let mut params = params.clone();
        if self.renewed_by != Renewal::Nothing {
            params["_meta"] = json!({ "progressToken": 7 });
        }
        let (request, id) = agent.request("tools/call", params);
        let mut stream = TcpStream::connect(agent.address).expect("the gateway listens");
        stream.write_all(&request.to_bytes(&agent.address.to_string())).expect("it takes the request");
        let patience = self.limit.unwrap_or(4 * PATIENCE);
        let (mut text, mut until) = (Vec::new(), Instant::now() + patience);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stream.set_read_timeout(Some(left)).expect("it is not zero");
            let mut piece = [0; 8192];
            let n = match stream.read(&mut piece) {
                Ok(0) => panic!("{}: the answer was cut: {}", self.name, String::from_utf8_lossy(&text)),
                Ok(n) => n,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => panic!("{}: {error}", self.name),
            };
            text.extend_from_slice(piece.get(..n).expect("so much was read"));
            for message in messages(&text) {
                if message["id"] == id {
                    return Heard::Answer(message);
                }
            }
            let is_progress = String::from_utf8_lossy(&piece[..n]).contains("notifications/progress");
            if self.renewed_by == Renewal::AnyByte || self.renewed_by == Renewal::Progress && is_progress {
                until = Instant::now() + patience;
            }
        }
        assert!(self.limit.is_some(), "{}: it was kept waiting for ever", self.name);
        if self.cancels {
            // As the SDKs do it: the stream is still open.
            agent.notify("notifications/cancelled", json!({ "requestId": id, "reason": "Request timed out" }));
        }
        Heard::GaveUp
    }
}

/// Every message that is whole: events of a stream, or one body.
fn messages(text: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines.filter(|line| line.starts_with('{')).filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The same call once more, as the SDKs build it.
fn retry(first: &Value, result: &Value) -> Value {
    let mut params = first.clone();
    params["requestState"] = result["requestState"].clone();
    if let Some(questions) = result["inputRequests"].as_object() {
        params["inputResponses"] = questions.keys().map(|key| (key.clone(), json!({ "action": "accept" }))).collect();
    }
    params
}

/// Asks about a task until it is over.
#[track_caller]
fn poll(agent: &Agent, task: &Value, n_polls: &mut usize, goes_on: &impl Fn() -> bool) -> Value {
    while goes_on() {
        *n_polls += 1;
        let seen = agent.call("tasks/get", json!({ "taskId": task["taskId"] })).result();
        if seen["status"] != "working" {
            return seen["result"].clone();
        }
        thread::sleep(Duration::from_millis(100));
    }
    Value::Null
}
