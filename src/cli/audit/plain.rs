//! Values for a terminal.

use crate::audit::escaped;
use serde_json::Value;

/// A value without quotes, safe for a terminal.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => escaped(text),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| format!("{} {}", escaped(key), plain(value)))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}
