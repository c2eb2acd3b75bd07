//! `traces`, as written: where spans go, and of which requests.

use super::Otlp;
use schemars::JsonSchema;
use serde::Deserialize;

/// Traces of requests (OpenTelemetry, W3C Trace Context). Left out, none are made, and trace context passes through as it
/// came.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// Where spans are sent, such as `http://127.0.0.1:4318/v1/traces`.
    pub otlp: Otlp,
    /// The share of requests that are traced where their client has not decided it (0 to 1). A client that sends a
    /// `traceparent` decides with its sampled flag.
    #[serde(default = "all")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample: f64,
}

fn all() -> f64 {
    1.0
}
