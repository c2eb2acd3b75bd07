//! The commands of the `portcullis` program.

/// `portcullis audit`.
pub mod audit;
