//! Official SDK clients through the gateway.
