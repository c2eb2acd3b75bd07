//! Values that may stand elsewhere: `{ env: NAME }` and `{ file: path }`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;

/// Where a secret stands.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// An environment variable.
    Env(String),
    /// A file.
    File(PathBuf),
}

/// A text, or where it stands.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Text {
    /// An environment variable.
    Env(String),
    /// A file.
    File(PathBuf),
}

/// Tells a written `null` from a key that is not there.
pub(super) fn present<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(from).map(Some)
}
