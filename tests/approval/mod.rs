//! Held calls: what waits for a person runs exactly once, exactly as approved, by the word of the right one.

mod admin_doors;
mod api;
mod decide;
mod held;
mod inert;
mod looks;
mod memory;
mod page;
mod people;
mod speed;
mod waiting;
