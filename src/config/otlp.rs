//! Where OpenTelemetry data is sent, as written: one form for traces and for the audit log.

use super::Text;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An OpenTelemetry collector (OTLP over HTTP with protobuf).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Otlp {
    /// The whole URL, path included: `https://`, or `http://` on loopback. No redirect is followed.
    pub url: String,
    /// Headers sent along: a text, `{ env: NAME }` or `{ file: path }`.
    #[serde(default)]
    pub headers: BTreeMap<String, Text>,
    /// Trust only these certificates (PEM) there instead of the system's roots.
    #[serde(default)]
    pub ca: Option<PathBuf>,
}
