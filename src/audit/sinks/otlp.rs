//! An OpenTelemetry collector: each record is a log record, its line the body as it stands in the file.

use super::NotTaken;
use super::source::Batch;
use crate::fetch::Fetcher;
use crate::otlp::{self, AnyValue, Collector, KeyValue, LogRecord, Resource, Value};
use serde::Deserialize;

/// See the module.
pub(super) struct Otlp {
    pub(super) collector: Collector,
    pub(super) fetcher: Fetcher,
    pub(super) resource: Resource,
}

/// What of a line is said outside of it as well.
#[derive(Default, Deserialize)]
struct Outline {
    #[serde(default)]
    at: String,
    #[serde(default)]
    event: Option<String>,
    #[serde(default)]
    segment: String,
    #[serde(default)]
    seq: i64,
    #[serde(default)]
    request: Option<String>,
    #[serde(default)]
    trace: Option<String>,
    #[serde(default)]
    checkpoint: Option<u64>,
}

impl Otlp {
    /// Sends all lines. How many of them the collector will never want.
    pub(super) async fn send(&self, batch: &Batch) -> Result<u64, NotTaken> {
        let records = batch.lines.iter().map(|line| record(line)).collect();
        match self.collector.send_logs(&self.fetcher, &self.resource, records).await {
            Ok(taken) => Ok(taken.n_rejected),
            Err(otlp::NotTaken::Yet { why, after }) => Err(NotTaken { why, after, is_too_much: false }),
            // It may want fewer at once, or other headers; a record is not given up for that.
            Err(otlp::NotTaken::Ever(why)) => Err(NotTaken { why, after: None, is_too_much: true }),
        }
    }
}

fn record(line: &str) -> LogRecord {
    let outline: Outline = serde_json::from_str(line).unwrap_or_default();
    let at_ns = outline.at.parse::<jiff::Timestamp>().map_or(0, |at| u64::try_from(at.as_nanosecond()).unwrap_or(0));
    let event = match (&outline.event, outline.checkpoint) {
        (Some(event), _) => event.as_str(),
        (None, Some(_)) => "checkpoint",
        (None, None) => "unknown",
    };
    let mut attributes = vec![
        KeyValue::text("portcullis.audit.segment", outline.segment),
        KeyValue::number("portcullis.audit.seq", outline.seq),
    ];
    attributes.extend(outline.request.map(|request| KeyValue::text("portcullis.request", request)));
    LogRecord {
        time_unix_nano: at_ns,
        observed_time_unix_nano: at_ns,
        severity_number: INFO,
        severity_text: "INFO".to_owned(),
        body: Some(AnyValue { value: Some(Value::String(line.to_owned())) }),
        attributes,
        trace_id: outline.trace.as_deref().and_then(trace_id).unwrap_or_default(),
        event_name: format!("portcullis.audit.{event}"),
        ..LogRecord::default()
    }
}

fn trace_id(hex: &str) -> Option<Vec<u8>> {
    let value = u128::from_str_radix(hex, 16).ok().filter(|value| hex.len() == 32 && *value != 0)?;
    Some(value.to_be_bytes().to_vec())
}

const INFO: i32 = 9;
