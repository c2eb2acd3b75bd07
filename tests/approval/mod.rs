//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod admin_doors;
mod api;
mod attacked;
mod beside;
mod bridge;
mod cli;
mod clients;
pub(crate) mod decide;
mod demo;
mod exactly_once;
mod exactly_this;
pub(crate) mod held;
/// Webhooks for tests.
pub(crate) mod hooks;
mod inert;
mod kills;
mod looks;
mod memory;
mod notices;
mod operator;
mod page;
mod people;
mod people_attacked;
mod runs;
mod sessions;
mod speed;
mod start;
mod waiting;
mod webhook_in;
mod webhook_out;
