//! portcullis: a gateway in front of MCP servers that lets an AI agent do exactly what its people allow.
//!
//! This file is the table of contents. The modules stand in reading order for the one who follows a call;
//! the floors they stand on (who may use whom) are in `ARCHITECTURE.md` and held by `tests/tidy.rs`.

/// Health, metrics and the operator's socket.
pub mod admin;
/// Calls held for a person: what is asked, who may decide, and that it runs once.
pub mod approval;
/// The record of what was decided and how it ended.
pub mod audit;
/// Logins, sessions and forms that the pages of both planes share.
pub mod browser;
/// The command line.
pub mod cli;
/// Now, passed in.
pub mod clock;
/// `gateway.yaml`, as written.
pub mod config;
/// Where a test may end the process.
pub mod fault;
/// One small, bounded HTTP GET.
pub mod fetch;
/// A look at a future.
pub mod glance;
/// Names for requests, grants and keys.
pub mod id;
/// Who asks: users, passwords, signing keys, access tokens.
pub mod identity;
/// Strict, bounded reading of one JSON-RPC message.
pub mod jsonrpc;
/// Connections: accepted, counted, given TLS and a version of HTTP.
pub mod listener;
/// What an MCP message asks for: methods, eras, headers.
pub mod mcp;
/// Every metric, listed once.
pub mod metrics;
/// OAuth documents and endpoints.
pub mod oauth;
/// What is told to an OpenTelemetry collector.
pub mod otlp;
/// Pages for people: templates and the headers that go with them.
pub mod pages;
/// Rules, and the decision they give on one call.
pub mod policy;
/// The data path: one call, from the socket to the upstream and back.
pub mod proxy;
/// What must not be written down, and the tag in its place.
pub mod redact;
/// Which redirect URIs a client may have, and which one counts as which.
pub mod redirect_uri;
/// From a changed file to a new snapshot.
pub mod reload;
/// Values that must not be shown.
pub mod secret;
/// Listeners, start and stop.
pub mod server;
/// The configuration in force, compiled and swapped whole.
pub mod snapshot;
/// What must survive a restart: grants, login failures.
pub mod store;
/// Where a request stands in a trace, and the spans of its stages.
pub mod trace;
/// MCP servers behind us: peers, connections, their sessions and tool definitions.
pub mod upstream;
/// An axum router answered on a pingora session.
pub mod web;
