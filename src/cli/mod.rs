//! The command line.

/// What a command works on.
pub mod context;
mod password;
/// `portcullis token`.
pub mod token;
/// `portcullis user`.
pub mod user;
