//! The messages of OTLP, as far as they are sent here. Names and field numbers are those of `opentelemetry-proto` 1.x; what
//! is never sent (span events, dropped counts) is left out, which protobuf allows.

use prost::{Message, Oneof};

/// `opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest`
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    /// Spans by the process they come from.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Spans of one process.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// Its spans by the code that made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
    /// Which semantic conventions the attributes follow.
    #[prost(string, tag = "3")]
    pub schema_url: String,
}

/// Spans of one instrumentation.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// What made them.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// Something that took time.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes, not all zero.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes, not all zero.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// W3C `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// 8 bytes; empty for the first of a trace.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// What it was.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Where it stands between two processes.
    #[prost(enumeration = "SpanKind", tag = "6")]
    pub kind: i32,
    /// Nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Nanoseconds since the Unix epoch; not before the start.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is known of it; each key once.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Other spans it has to do with.
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<Link>,
    /// How it ended.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// The eight trace flags of W3C; 0x100: it is known whether the parent is of another process; 0x200: it is.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Another span.
#[derive(Clone, PartialEq, Message)]
pub struct Link {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// What it has to do with it.
    #[prost(message, repeated, tag = "4")]
    pub attributes: Vec<KeyValue>,
    /// As those of a span.
    #[prost(fixed32, tag = "6")]
    pub flags: u32,
}

/// How a span ended.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// For people; only with an error.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Whether it failed.
    #[prost(enumeration = "StatusCode", tag = "3")]
    pub code: i32,
}

/// Where a span stands between two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum SpanKind {
    /// Never sent.
    Unspecified = 0,
    /// Within one.
    Internal = 1,
    /// It answers a request.
    Server = 2,
    /// It makes one.
    Client = 3,
}

/// Whether a span failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum StatusCode {
    /// Not that we know.
    Unset = 0,
    /// Somebody looked and found it good.
    Ok = 1,
    /// It did.
    Error = 2,
}

/// `opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest`
#[derive(Clone, PartialEq, Message)]
pub struct ExportLogsServiceRequest {
    /// Records by the process they come from.
    #[prost(message, repeated, tag = "1")]
    pub resource_logs: Vec<ResourceLogs>,
}

/// Records of one process.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceLogs {
    /// The process.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// Its records by the code that made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_logs: Vec<ScopeLogs>,
}

/// Records of one instrumentation.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeLogs {
    /// What made them.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The records.
    #[prost(message, repeated, tag = "2")]
    pub log_records: Vec<LogRecord>,
}

/// One record.
#[derive(Clone, PartialEq, Message)]
pub struct LogRecord {
    /// When it happened, in nanoseconds since the Unix epoch; 0: not known.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// 9 is `INFO`, 13 `WARN`, 17 `ERROR`.
    #[prost(int32, tag = "2")]
    pub severity_number: i32,
    /// The same in words.
    #[prost(string, tag = "3")]
    pub severity_text: String,
    /// What it says.
    #[prost(message, optional, tag = "5")]
    pub body: Option<AnyValue>,
    /// What is known of it; each key once.
    #[prost(message, repeated, tag = "6")]
    pub attributes: Vec<KeyValue>,
    /// The eight trace flags of W3C.
    #[prost(fixed32, tag = "8")]
    pub flags: u32,
    /// The trace it belongs to: 16 bytes or none.
    #[prost(bytes = "vec", tag = "9")]
    pub trace_id: Vec<u8>,
    /// The span it belongs to: 8 bytes or none.
    #[prost(bytes = "vec", tag = "10")]
    pub span_id: Vec<u8>,
    /// When it was written down, in nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "11")]
    pub observed_time_unix_nano: u64,
    /// What kind of event it is.
    #[prost(string, tag = "12")]
    pub event_name: String,
}

/// A process that tells something.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Which one; each key once.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The code that makes spans or records.
#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// One attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// What it is.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// A value of one of several types.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// The value.
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5, 7")]
    pub value: Option<Value>,
}

/// The types.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// Text.
    #[prost(string, tag = "1")]
    String(String),
    /// Yes or no.
    #[prost(bool, tag = "2")]
    Bool(bool),
    /// A whole number.
    #[prost(int64, tag = "3")]
    Int(i64),
    /// Another number.
    #[prost(double, tag = "4")]
    Double(f64),
    /// Several.
    #[prost(message, tag = "5")]
    Array(ArrayValue),
    /// Bytes.
    #[prost(bytes, tag = "7")]
    Bytes(Vec<u8>),
}

/// Several values.
#[derive(Clone, PartialEq, Message)]
pub struct ArrayValue {
    /// In their order.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

/// `ExportTraceServiceResponse` and `ExportLogsServiceResponse`, which have the same shape.
#[derive(Clone, PartialEq, Message)]
pub struct ExportServiceResponse {
    /// There where not everything was taken, or something is to be said.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What was not taken.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// So many spans or records.
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// `google.rpc.Status`, which is the body of an error; its details are not read.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// For people.
    #[prost(string, tag = "2")]
    pub message: String,
}

impl KeyValue {
    /// An attribute that is text.
    pub fn text(key: &str, value: impl Into<String>) -> KeyValue {
        KeyValue::of(key, Value::String(value.into()))
    }

    /// An attribute that is a whole number.
    pub fn number(key: &str, value: i64) -> KeyValue {
        KeyValue::of(key, Value::Int(value))
    }

    /// An attribute.
    pub fn of(key: &str, value: Value) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}

impl Resource {
    /// This process, as OpenTelemetry's conventions name services.
    pub fn of_this_process(instance: &str) -> Resource {
        Resource {
            attributes: vec![
                KeyValue::text("service.name", "portcullis"),
                KeyValue::text("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::text("service.instance.id", instance),
            ],
        }
    }
}

impl InstrumentationScope {
    /// This program.
    pub fn ours() -> InstrumentationScope {
        InstrumentationScope { name: "portcullis".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}
