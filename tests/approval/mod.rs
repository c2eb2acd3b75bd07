//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod beside;
mod bridge;
mod cli;
mod clients;
mod decide;
mod exactly_once;
mod exactly_this;
mod held;
/// Webhooks for tests.
pub(crate) mod hooks;
mod kills;
mod memory;
mod page;
mod runs;
mod start;
mod waiting;
mod webhook_in;
mod webhook_out;
