//! Why a text is no message we take. The texts go back to the sender, so they show where the fault is and little of
//! what was sent: at most a name or a character of it, escaped.

use super::Id;
use std::fmt::Write as _;

/// A refused text: what is wrong with it, and whom to tell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct Error {
    /// What is wrong.
    pub fault: Fault,
    id: Option<Id>,
}

/// What is wrong with a text. Offsets count bytes from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not JSON (RFC 8259), or not UTF-8.
    #[error("not valid JSON at byte {at}: {what}")]
    Syntax {
        /// Of the first byte that is out of place.
        at: usize,
        /// What was expected or found there.
        what: String,
    },
    /// An array of messages. MCP took batches out of the protocol again (2025-06-18).
    #[error("batches are only accepted in a session of revision 2025-03-26: send one message at a time")]
    Batch,
    /// JSON, but not a JSON-RPC 2.0 message.
    #[error("not a JSON-RPC 2.0 message: {what}")]
    Invalid {
        /// Which of its rules is broken, and where.
        what: String,
    },
    /// One object has two members of this name. Parsers differ in which of them they keep.
    #[error("name given twice in one object, at byte {at}: `{name}`")]
    Duplicate {
        /// Of the later of the two.
        at: usize,
        /// Escaped and cut for showing.
        name: String,
    },
    /// A name that a JSON library may take as an order to itself.
    #[error("reserved name at byte {at}: `{name}`")]
    Reserved {
        /// Where it stands.
        at: usize,
        /// Escaped and cut for showing.
        name: String,
    },
    /// Objects and arrays inside one another, more than we count.
    #[error("nested deeper than the limit of {limit}")]
    TooDeep {
        /// [`super::Limits::depth`].
        limit: usize,
    },
    /// More values than we count.
    #[error("more values than the limit of {limit}")]
    TooManyNodes {
        /// [`super::Limits::nodes`].
        limit: usize,
    },
}

// === impl Error ===

impl Error {
    pub(super) fn new(fault: Fault, id: Option<Id>) -> Self {
        Error { fault, id }
    }

    /// For the `code` of the answer (JSON-RPC 2.0 §5.1): -32700 for what is no JSON, -32600 for all else.
    pub fn code(&self) -> i64 {
        match self.fault {
            Fault::Syntax { .. } => -32700,
            Fault::Batch
            | Fault::Invalid { .. }
            | Fault::Duplicate { .. }
            | Fault::Reserved { .. }
            | Fault::TooDeep { .. }
            | Fault::TooManyNodes { .. } => -32600,
        }
    }

    /// For the `id` of the answer, if the message had given a good one before the fault was found.
    pub fn id(&self) -> Option<&Id> {
        self.id.as_ref()
    }
}

// === impl Fault ===

impl Fault {
    pub(super) fn syntax(at: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Fault::Syntax { at, what }
    }

    pub(super) fn invalid(what: impl Into<String>) -> Self {
        Fault::Invalid { what: what.into() }
    }
}

/// `text` for an error: printable ASCII and at most 40 characters of it, so that it can neither fill a log nor draw
/// on a terminal.
pub(super) fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let mut shown = String::with_capacity(LONGEST);
    for c in text.chars() {
        let start = shown.len();
        match c {
            '`' | '\\' => write!(shown, "{}", c.escape_unicode()),
            ' '..='~' => write!(shown, "{c}"),
            _ => write!(shown, "{}", c.escape_unicode()),
        }
        .expect("a String takes all that is written to it");
        if shown.len() > LONGEST {
            shown.truncate(start);
            shown.push('…');
            break;
        }
    }
    shown
}
