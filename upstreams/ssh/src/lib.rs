//! The SSH upstream: a few actions on one host, each a literal string that a script there knows or refuses.
//!
//! It runs as a process of its own (`portcullis upstream ssh`), where the gateway is root as a user of its own, holds the
//! credential in memory, and is an MCP server on the socket it was handed over. The boundary is not here: it is a key or
//! a certificate that can run one script on the host, whatever is sent (`host/`). Modules in reading order.

/// What can be asked for: tools, their arguments, and the action string they make.
pub mod actions;
/// One connection: the key of the host, the login.
pub mod connection;
/// What opens the host: a key, or certificates.
pub mod credential;
/// Which host keys are trusted, out of `known_hosts`.
pub mod known_hosts;
/// How an action ended, for programs and in words.
mod outcome;
/// Channels over connections that are used again, or not.
pub mod pool;
/// One action on one channel.
pub mod run;
/// The MCP server: tools, their schemas, who asks.
pub mod server;
/// What the gateway hands over.
pub mod settings;
/// How many actions run at once.
mod turns;
/// Whether the boundary on the host holds, tried.
pub mod verify;

pub use server::run;
pub use settings::Settings;

#[cfg(test)]
mod tests;
