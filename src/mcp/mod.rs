//! What an MCP message asks for: its method, its object, the era it belongs to, and whether its headers tell the truth.
//!
//! Reads what `jsonrpc` found; decides nothing. Only what policy and routing need is looked at: everything else in a
//! body passes as the bytes it came in, since typed models of MCP drop fields that they do not know.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod call;
mod era;
mod error;
mod headers;
mod list;
mod method;
/// Server-sent events, read and written.
pub mod sse;

pub use call::{Call, Object};
pub use era::{Era, LATEST, SUPPORTED};
pub use error::Error;
pub use headers::{MirroredHeaders, decode_value, encode_value};
pub use list::{Listing, filter};
pub use method::{METHODS, Method, Verb, table};
