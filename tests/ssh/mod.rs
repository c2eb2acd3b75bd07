//! The SSH upstream: real calls through the gateway to a real OpenSSH server, and what happens when that is not itself.

mod configuration;
mod host;
mod verify;
