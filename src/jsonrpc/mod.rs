//! Reads one JSON-RPC 2.0 message, within the limits it is given. Knows nothing of MCP: that is `mcp`.
//!
//! Between an agent and an upstream stand at least two JSON parsers, and every difference between them is a way past
//! the policy. So whatever two honest parsers may read differently is refused here: a name given twice (also spelled
//! with escapes), half a surrogate pair, a byte order mark, names that JSON libraries keep for themselves, a message
//! that is both a request and an answer. What is left has one meaning, and is forwarded byte for byte.
//!
//! The text is scanned once and nothing is built from it. [`parse`] says where the parts stand ([`Span`]), and
//! [`Node`] looks into a part when a rule asks. Numbers keep every digit, since they are never made into floats:
//! `1e400` is a number here, and whoever reads it into an `f64` must be ready to fail.
//!
//! Limits bound time and memory: nesting costs no stack (containers are counted, not recursed into), and the names of
//! one object are compared in linear time, whoever chose them. The length of the text is the caller's to bound, who
//! read it from a socket.
//!
//! Refused as well, where JSON-RPC would allow it, because MCP has no use for it: batches, positional `params`,
//! members of the envelope that the specification does not name.
#![deny(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
// clippy has no setting that excuses tests from this one.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod canonical;
mod edit;
mod error;
mod fuzz;
mod id;
mod message;
mod node;
mod quoted;
mod scan;

pub use canonical::NotIJson;
pub use edit::Edits;
pub use error::{Error, Fault};
#[doc(hidden)]
pub use fuzz::fuzz_parse;
pub use id::Id;
pub use node::{Elements, Kind, Members, Node};

/// How much one message may hold. Its length in bytes is bounded by whoever reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects and arrays inside one another; the message itself is the first.
    pub depth: usize,
    /// Values in all: objects, arrays, strings, numbers, literals. Names of members come with their value.
    pub nodes: usize,
}

/// A part of the scanned text, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Of its first byte.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
}

/// What one text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Answers a request.
    Response(Response),
}

/// A call that is answered under its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the sender, repeated in the answer.
    pub id: Id,
    /// Unescaped, 1 to 256 bytes.
    pub method: String,
    /// What the method is given, if anything.
    pub params: Option<Params>,
}

/// A call without an id: nothing answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Unescaped, 1 to 256 bytes.
    pub method: String,
    /// What the method is given, if anything.
    pub params: Option<Params>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Of the request; `None` for `null`, which only an error may carry: its sender could not read the request's id.
    pub id: Option<Id>,
    /// How it went.
    pub outcome: Outcome,
}

/// Where the answer stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Any value; what it must look like is the method's matter.
    Result(Span),
    /// An object with an integer `code` and a string `message`.
    Error(Span),
}

/// The object a method is given. MCP has no positional parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Of the whole object, braces included.
    pub span: Span,
    /// In the order they were written; no name stands twice.
    pub members: Vec<Member>,
}

/// One member of `params`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Unescaped.
    pub key: String,
    /// Where its value stands.
    pub value: Span,
}

/// Reads one message, in one pass over `text`.
///
/// # Errors
/// The first fault found, with the id of the message if that had been read by then.
pub fn parse(text: &[u8], limits: Limits) -> Result<Message, Error> {
    message::read(text, limits, scan::Halves::Refused)
}

/// Reads what an upstream answered: as [`parse`], but half a surrogate pair in an escape passes. Tools cut texts in the
/// middle of a character, nothing is decided on what they say, and refusing the whole answer would help nobody.
///
/// # Errors
/// The first fault found, with the id of the message if that had been read by then.
pub fn parse_answer(text: &[u8], limits: Limits) -> Result<Message, Error> {
    message::read(text, limits, scan::Halves::Passed)
}

/// The messages of a batch: where each of them stands in `text`. The text is read strictly as a whole; each message is
/// then read by [`parse`] like any other.
///
/// # Errors
/// Not an array, an empty one, or any fault of the text.
pub fn batch(text: &[u8], limits: Limits) -> Result<Vec<Span>, Error> {
    message::batch(text, limits)
}

/// Checks that `text` is one JSON object, as strictly as a message is read: no name twice at any depth, nothing behind it.
/// What stands in it is the caller's to read, with whatever reader: all of them read the same.
///
/// # Errors
/// The first fault found.
pub fn check_object(text: &[u8], limits: Limits) -> Result<(), Fault> {
    let mut scanner = scan::Scanner::new(text, limits, scan::Halves::Refused)?;
    scanner.space();
    if scanner.peek() != Some(b'{') {
        return Err(scanner.unexpected("an object"));
    }
    scanner.value()?;
    scanner.finish()
}

// === impl Span ===

impl Span {
    /// Of the whole of `text`.
    pub fn whole(text: &[u8]) -> Span {
        Span { start: 0, end: text.len() }
    }

    /// The bytes it stands for; nothing, if `text` is too short to be the text it was found in.
    pub fn cut(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

// === impl Params ===

impl Params {
    /// Where the value of `key` stands.
    pub fn get(&self, key: &str) -> Option<Span> {
        self.members.iter().find(|member| member.key == key).map(|member| member.value)
    }
}

#[cfg(test)]
mod tests;
