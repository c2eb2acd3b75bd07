//! The sandbox upstream: a shell and files that an agent may have, held in by the kernel.
//!
//! It runs as a process of its own (`portcullis upstream sandbox`), where the gateway is root as a user of its own, and
//! is an MCP server on the socket it was handed over. Modules in reading order.

/// Running a command so that it cannot get out.
pub mod confine;
/// How many files may be open.
mod descriptors;
/// The few places that commands may reach.
mod network;
/// What is tried inside a confinement.
pub mod probe;
/// The MCP server: tools, their schemas, who asks.
pub mod server;
/// What the gateway hands over.
pub mod settings;
/// System calls by their number; all `unsafe`.
mod syscall;
/// One file a tool: its arguments, what it does, its answer.
mod tools;
/// Whether the confinement holds, tried and not asserted.
pub mod verify;
/// Numbers as people and models read them.
mod words;
/// Each principal's folder, and the files in it.
pub mod workspace;

pub use server::run;
pub use settings::Settings;
