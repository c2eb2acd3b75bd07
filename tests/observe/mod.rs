//! What operators see: dashboards and alerts in a real Prometheus, traces, the status page.

mod alerts;
mod board;
mod draw;
mod endings;
mod names;
mod prometheus;
mod scene;
mod shown;
mod traces;
