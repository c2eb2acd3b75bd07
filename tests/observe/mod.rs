//! What operators see: dashboards and alerts in a real Prometheus, traces, the status page.

mod alerts;
mod board;
mod draw;
mod endings;
mod names;
pub(crate) mod prometheus;
mod scene;
mod shown;
pub(crate) mod status;
mod traces;

/// Now, in seconds since the Unix epoch, as Prometheus has it.
fn now() -> f64 {
    portcullis::clock::Clock::System.unix_ms() as f64 / 1000.0
}
