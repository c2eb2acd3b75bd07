//! What clients get for a held call, each by what it says that it can; and that whatever time a client gives a call, the
//! call runs once and its result arrives.

mod emulator;
mod page;
mod rounds;
mod sdks;
mod tasks;
mod timings;

use super::decide::config;
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::recorder::Recorder;
use serde_json::{Value, json};

/// A gateway that has asked its upstream for the tools; `up/danger` is held for `bob`.
fn start(recorder: &Recorder, more: &str) -> Gateway {
    start_before(&recorder.url(), more)
}

/// The same before another server.
fn start_before(url: &str, more: &str) -> Gateway {
    let gateway = Gateway::start(&config(url, more));
    gateway.wait_until_asked("up");
    gateway
}

/// A client of alice that can show a page.
fn shows_pages(gateway: &Gateway) -> Agent {
    gateway.agent("alice", "up").modern().with_capabilities(json!({ "elicitation": { "form": {}, "url": {} } }))
}

/// A client of alice that takes tasks.
fn takes_tasks(gateway: &Gateway) -> Agent {
    gateway.agent("alice", "up").modern().with_capabilities(tasks_extension())
}

fn tasks_extension() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })
}
