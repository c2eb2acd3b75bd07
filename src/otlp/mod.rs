//! OTLP over HTTP with protobuf bodies: what is told to an OpenTelemetry collector, and how it gets there.
//!
//! `message` has the messages of the protocol, as far as they are sent here; `send` brings one batch to a collector, once, and
//! says whether it was taken; `exporter` is a bounded queue in front of it for what may be lost (spans). Who has records
//! that must not be lost calls [`Collector::send_logs`] and tries again after a [`Backoff`] until they are taken.
//!
//! It goes out through `fetch`, as everything that is told to servers of the operator's choice does: no second HTTP stack, one
//! set of roots. Source: the OTLP specification 1.x, "OTLP/HTTP".

mod exporter;
mod message;
mod send;

pub use exporter::{Counts, Exporter, Exporting};
pub use message::{
    AnyValue, ArrayValue, ExportLogsServiceRequest, ExportServiceResponse, ExportTraceServiceRequest,
    InstrumentationScope, KeyValue, Link, LogRecord, PartialSuccess, Resource, ResourceLogs, ResourceSpans, RpcStatus,
    ScopeLogs, ScopeSpans, Span, SpanKind, Status, StatusCode, Value,
};
pub use send::{Backoff, Collector, NotTaken, Taken};

#[cfg(test)]
mod tests;
