//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod decide;
mod held;
mod memory;
mod page;
mod waiting;
