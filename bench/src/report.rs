//! What the loader reports to the driver.

use serde::{Deserialize, Serialize};

/// One line of JSON; times in microseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// Calls that were answered as they should be.
    pub ok: u64,
    /// Answers with another status than 200.
    pub not_200: u64,
    /// Answers to nobody's request, or with events missing.
    pub wrong: u64,
    /// Connections that broke.
    pub broken: u64,
    /// Requests without an answer at the end.
    pub unanswered: u64,
    /// The first thing that went wrong.
    pub first_fault: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// `ok` a second.
    pub per_second: f64,
    /// From when a request was due to the end of its answer.
    pub p50: f64,
    /// The same.
    pub p99: f64,
    /// The same.
    pub p999: f64,
    /// The same.
    pub max: f64,
    /// From when a request was sent to the end of its answer.
    pub service_p50: f64,
    /// From when a request was due to its first event.
    pub first_event_p50: Option<f64>,
    /// The same.
    pub first_event_p99: Option<f64>,
}

impl Report {
    /// Calls that went wrong, whatever it was.
    pub fn faults(&self) -> u64 {
        self.not_200 + self.wrong + self.broken + self.unanswered
    }
}
