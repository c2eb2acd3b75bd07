//! The audit log of a running gateway: what is in it, that no edit of it goes unnoticed, and where else it goes.

mod chain;
mod log;
mod rotating;
mod sinks;
