//! An OpenTelemetry collector: a recorder that understands OTLP, alone or behind the real `rotel` (PyPI), which then takes what
//! the gateway sends, and hands on what it has understood.

use super::process::{Server, command};
use super::recorder::{Recorded, Recorder};
use super::reply::Reply;
use super::tls::Identity;
use super::{sdk, wait_for};
use flate2::read::GzDecoder;
use portcullis::otlp::{ExportTraceServiceRequest, KeyValue, Span, Value};
use prost::Message as _;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A collector.
pub(crate) struct Collector {
    /// What came in the end.
    pub(crate) recorder: Recorder,
    /// Where the gateway sends spans.
    pub(crate) url: String,
    _rotel: Option<Server>,
}

impl Collector {
    /// One that takes everything.
    pub(crate) fn start() -> Collector {
        Collector::of(Recorder::start())
    }

    /// The same on this address.
    pub(crate) fn start_on(address: SocketAddr) -> Collector {
        Collector::of(Recorder::start_on(address))
    }

    /// The same behind TLS.
    pub(crate) fn start_tls(identity: &Identity) -> Collector {
        Collector::of(Recorder::start_tls(identity, None))
    }

    fn of(recorder: Recorder) -> Collector {
        recorder.answer_with(|_: &Recorded| Reply::new(200, "").header("Content-Type", "application/x-protobuf"));
        let url = recorder.url().replace("/mcp", "/v1/traces");
        Collector { recorder, url, _rotel: None }
    }

    /// `rotel`, and behind it one that takes everything.
    pub(crate) fn rotel() -> Collector {
        let behind = Collector::of(Recorder::start());
        let to = behind.url.replace("/v1/traces", "");
        for _ in 0..5 {
            // It takes no port 0; between two moments another process could take these.
            let [grpc, http] = [(); 2].map(|()| free_address());
            let mut rotel = command(sdk::rotel());
            rotel.args(["start", "--otlp-grpc-endpoint", &grpc, "--otlp-http-endpoint", &http]);
            rotel.args(["--exporter", "otlp", "--otlp-exporter-protocol", "http", "--otlp-exporter-endpoint", &to]);
            rotel.args(["--batch-timeout", "50ms", "--log-file", "/dev/null"]);
            let mut server = Server::spawn("rotel", &mut rotel);
            let mut has_ended = false;
            wait_for("rotel", || {
                has_ended = server.ended().is_some();
                has_ended || TcpStream::connect(&http).is_ok()
            });
            if !has_ended {
                return Collector { url: format!("http://{http}/v1/traces"), _rotel: Some(server), ..behind };
            }
        }
        panic!("rotel does not start");
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Seen> {
        let requests = self.recorder.requests().into_iter().map(|request| decoded(&request));
        let of_us = requests.flat_map(|request| request.resource_spans);
        let spans = of_us.flat_map(|of_us| of_us.scope_spans).flat_map(|of_us| of_us.spans);
        spans.map(Seen).collect()
    }

    /// The spans of this trace, as soon as there are so many.
    #[track_caller]
    pub(crate) fn wait_for(&self, trace: &str, n: usize) -> Vec<Seen> {
        let mut of_trace = Vec::new();
        wait_for(&format!("{n} spans of {trace}"), || {
            of_trace = self.spans().into_iter().filter(|span| span.trace() == trace).collect();
            of_trace.len() >= n
        });
        assert_eq!(of_trace.len(), n, "{of_trace:#?}");
        of_trace
    }
}

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").to_string()
}

/// What one request to a collector holds.
#[track_caller]
pub(crate) fn decoded(request: &Recorded) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(&*message_of(request)).expect("it is OTLP")
}

/// The message in one request to a collector.
#[track_caller]
pub(crate) fn message_of(request: &Recorded) -> Vec<u8> {
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    let mut body = request.body.clone();
    if request.header("content-encoding") == Some("gzip") {
        body.clear();
        GzDecoder::new(&*request.body).read_to_end(&mut body).expect("it is gzip");
    }
    body
}

/// A span as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen(pub(crate) Span);

impl Seen {
    /// Its trace.
    pub(crate) fn trace(&self) -> String {
        hex(&self.0.trace_id)
    }

    /// Its id.
    pub(crate) fn id(&self) -> String {
        hex(&self.0.span_id)
    }

    /// The id of its parent; empty where it has none.
    pub(crate) fn parent(&self) -> String {
        hex(&self.0.parent_span_id)
    }

    /// An attribute, as text.
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        let found = self.0.attributes.iter().filter(|attribute| attribute.key == key).collect::<Vec<&KeyValue>>();
        assert!(found.len() <= 1, "{key} stands twice: {found:#?}");
        match found.first()?.value.clone()?.value? {
            Value::String(text) => Some(text),
            Value::Int(n) => Some(n.to_string()),
            other => Some(format!("{other:?}")),
        }
    }

    /// Whether its status says that it failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.status.as_ref().is_some_and(|status| status.code == 2)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
