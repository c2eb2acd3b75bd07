//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod decide;
mod exactly_once;
mod exactly_this;
mod kills;
mod memory;
mod runs;
mod waiting;
