//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod bridge;
mod cli;
mod decide;
/// Held calls made beside a gateway.
pub(crate) mod held;
/// Webhooks for tests.
pub(crate) mod hooks;
mod memory;
mod start;
mod waiting;
mod webhook_in;
mod webhook_out;
