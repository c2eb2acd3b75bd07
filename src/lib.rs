//! portcullis: a gateway in front of MCP servers that lets an AI agent do exactly what its people allow.
//!
//! This file is the table of contents. The modules stand in reading order for the one who follows a call;
//! the floors they stand on (who may use whom) are in `ARCHITECTURE.md` and held by `tests/tidy.rs`.

/// Who asked for what, what was decided, how it ended.
pub mod audit;
/// The commands of the program.
pub mod cli;
/// Now, passed in.
pub mod clock;
/// `gateway.yaml`, as written.
pub mod config;
/// Names for requests, grants and keys.
pub mod id;
/// Who asks.
pub mod identity;
/// Strict, bounded reading of one JSON-RPC message.
pub mod jsonrpc;
/// Rules, and the decision they give on one call.
pub mod policy;
/// Values that must not be shown.
pub mod secret;
