//! The server over a real socket, as the gateway talks to it: raw HTTP and JSON-RPC, in both eras.

/// What becomes of commands: progress, cancelling, the end.
mod commands;
/// Every file tool, and what it refuses.
mod files;
/// One house: a socket, a workspace, and those who ask.
pub(crate) mod house;
/// Who asks, eras, sessions, schemas.
mod protocol;

pub(crate) use house::{Script, settings};
