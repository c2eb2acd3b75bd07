//! What an MCP message asks for: its method, its object, the era it belongs to, and whether its headers tell the truth.
//!
//! Reads what `jsonrpc` found; decides nothing. Only what policy and routing need is looked at: everything else in a
//! body passes as the bytes it came in, since typed models of MCP drop fields that they do not know.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod ask;
mod call;
mod declared;
mod era;
mod error;
mod headers;
mod list;
mod method;
mod parameters;
/// Server-sent events, read and written.
pub mod sse;

pub use ask::{Abilities, Ask};
pub use call::{Call, Object, may_take_rounds};
pub use declared::{Declared, TASKS, with_tasks, without_tasks};
pub use era::{Era, LATEST, LATEST_LEGACY, SUPPORTED};
pub use error::Error;
pub use headers::{MirroredHeaders, decode_value, encode_value};
pub use list::{Listing, filter};
pub use method::{METHODS, Method, Verb, table};
pub use parameters::Parameters;
