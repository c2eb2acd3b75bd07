//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod beside;
mod cli;
mod clients;
mod decide;
mod exactly_once;
mod exactly_this;
mod held;
mod kills;
mod memory;
mod page;
mod runs;
mod waiting;
