//! A program that is talked with, a line of JSON each way: a client that a test leads step by step.

use super::PATIENCE;
use super::process::Server;
use serde_json::{Value, json};
use std::process::Command;
use tokio::time::Instant;

/// The running program. It ends with the test.
pub(crate) struct Dialogue {
    server: Server,
    n_requests: u64,
}

impl Dialogue {
    /// Starts it.
    #[track_caller]
    pub(crate) fn start(name: &str, command: &mut Command) -> Dialogue {
        Dialogue { server: Server::spawn_listening(name, command), n_requests: 0 }
    }

    /// Says something, and gives what it answers.
    #[track_caller]
    pub(crate) fn step(&mut self, said: &Value) -> Value {
        self.say(said);
        self.hear(|_| true)
    }

    /// A JSON-RPC request: gives the whole response to it, whatever else comes in between.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Value {
        self.n_requests += 1;
        let id = self.n_requests;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.hear(|message| message["id"] == id && message["method"].is_null())
    }

    /// A JSON-RPC notification.
    #[track_caller]
    pub(crate) fn notify(&mut self, method: &str) {
        self.say(&json!({ "jsonrpc": "2.0", "method": method }));
    }

    /// The next thing it says that is this.
    #[track_caller]
    pub(crate) fn hear(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.server.next_line(left).unwrap_or_else(|said| panic!("{said}"));
            let message = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
            if is_it(&message) {
                return message;
            }
        }
    }

    /// Everything it has said so far.
    pub(crate) fn log(&self) -> String {
        self.server.log()
    }

    #[track_caller]
    fn say(&mut self, message: &Value) {
        self.server.say(&format!("{message}\n"));
    }
}
