//! What the integration tests stand on. A test is a configuration and a conversation: `Gateway` runs the real binary,
//! `Recorder` is the upstream that saw every byte, `Agent` and `http::Connection` are the clients.
//!
//! All of it blocks: a test reads from top to bottom, and what it sends is what goes out. Nothing waits a fixed time; every wait is
//! for an event and has a limit, after which the test fails with what was seen.

/// Clients of the gateway that check every answer.
pub(crate) mod agent;
/// A browser without JavaScript.
pub(crate) mod browser;
/// Secrets that must not be found.
pub(crate) mod canary;
/// A real browser.
pub(crate) mod chromium;
/// An OpenTelemetry collector.
pub(crate) mod collector;
/// A program that is talked with.
pub(crate) mod dialogue;
/// A gateway, a recorder behind it, and a good token.
pub(crate) mod gate;
/// The gateway: the real binary in a folder of its own.
pub(crate) mod gateway;
/// A raw HTTP/1.1 client.
pub(crate) mod http;
/// HTTP/2 on both sides.
pub(crate) mod http2;
/// What holds for every answer of the gateway.
pub(crate) mod invariants;
/// An authorization server that signs whatever a test wants.
pub(crate) mod issuer;
/// A TCP link that can fail.
pub(crate) mod link;
/// An OAuth client of a test.
pub(crate) mod oauth;
/// A user at their browser.
pub(crate) mod person;
/// Child processes that end with the test.
pub(crate) mod process;
/// The upstream that records.
pub(crate) mod recorder;
/// What the recorder answers.
pub(crate) mod reply;
/// Servers and clients built on the official SDKs.
pub(crate) mod sdk;
/// A host with a real OpenSSH server.
pub(crate) mod sshd;
/// A listener between clients and the gateway that keeps every byte.
pub(crate) mod tap;
/// Certificates and TLS on either side.
pub(crate) mod tls;
/// HTTP/1.1 messages as bytes.
pub(crate) mod wire;

mod selftest;

use std::time::Duration;
use tokio::time::Instant;

/// How long anything may take before the test gives up: far above what a busy machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until this is so.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
