//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod cli;
mod decide;
/// Held calls made beside a gateway.
pub(crate) mod held;
mod memory;
mod waiting;
