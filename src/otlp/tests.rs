//! Exporting over a real socket: what a collector gets, what it is spared, and what is counted.

use super::*;
use crate::fetch::Fetcher;
use pingora::connectors::http::Connector;
use prost::Message as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);

/// A collector that answers each request with the next of `answers` (the last one for all that follow), and hands over what
/// it got: head and body.
async fn collector(answers: Vec<&'static str>) -> (Arc<Collector>, mpsc::UnboundedReceiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap()).parse().unwrap();
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for n in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = read_request(&mut stream).await;
            let answer = answers[n.min(answers.len() - 1)];
            stream.write_all(answer.as_bytes()).await.unwrap();
            let _ = sender.send(request);
        }
    });
    let headers = vec![(http::HeaderName::from_static("x-tenant"), http::HeaderValue::from_static("t1"))];
    (Arc::new(Collector { url, authorities: None, headers, limit: LONG }), requests)
}

async fn read_request(stream: &mut tokio::net::TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).await.unwrap();
        bytes.extend_from_slice(&piece[..n]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
        let length: usize = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        if bytes.len() >= end + 4 + length {
            return (head, bytes[end + 4..].to_vec());
        }
    }
}

const TAKEN: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
const BAD: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

fn span(n: u8) -> Span {
    Span { trace_id: vec![n; 16], span_id: vec![n; 8], name: format!("span {n}"), ..Span::default() }
}

struct Running {
    exporter: Exporter,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

fn run(collector: Arc<Collector>) -> Running {
    let (exporter, exporting) = Exporter::new("i");
    let (stop, stopping) = watch::channel(false);
    let fetcher = Fetcher::new(Arc::new(Connector::new(None)));
    let task = tokio::spawn(exporting.run(fetcher, move || Some(Arc::clone(&collector)), stopping));
    Running { exporter, stop, task }
}

fn names(body: &[u8]) -> Vec<String> {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let spans = request.resource_spans.into_iter().flat_map(|of| of.scope_spans).flat_map(|of| of.spans);
    spans.map(|span| span.name).collect()
}

#[tokio::test]
async fn spans_arrive_as_one_protobuf_message_with_the_headers_of_the_configuration() {
    let (to, mut requests) = collector(vec![TAKEN]).await;
    let running = run(to);

    running.exporter.take(vec![span(1), span(2)]);
    let (head, body) = timeout(LONG, requests.recv()).await.unwrap().unwrap();

    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    assert!(head.contains("x-tenant: t1"), "{head}");
    assert_eq!(names(&body), ["span 1", "span 2"]);
    let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
    let resource = request.resource_spans[0].resource.clone().unwrap();
    assert_eq!(resource.attributes[0], KeyValue::text("service.name", "portcullis"));
}

#[tokio::test]
async fn a_batch_that_is_not_taken_yet_is_sent_again_and_one_that_is_refused_is_not() {
    let (to, mut requests) = collector(vec![BUSY, TAKEN, BAD, TAKEN]).await;
    let running = run(to);

    running.exporter.take(vec![span(1)]);
    let first = timeout(LONG, requests.recv()).await.unwrap().unwrap().1;
    let second = timeout(LONG, requests.recv()).await.unwrap().unwrap().1;
    running.exporter.take(vec![span(2)]);
    let refused = timeout(LONG, requests.recv()).await.unwrap().unwrap().1;
    running.exporter.take(vec![span(3)]);
    let last = timeout(LONG, requests.recv()).await.unwrap().unwrap().1;

    assert_eq!([names(&first), names(&second)], [["span 1"], ["span 1"]]);
    assert_eq!([names(&refused), names(&last)], [["span 2"], ["span 3"]]);
    let counts = running.exporter.counts();
    assert_eq!((counts.failures(), counts.dropped()), (1, [("full", 0), ("refused", 1), ("stopped", 0)]));
}

#[tokio::test]
async fn what_does_not_fit_is_dropped_whole_and_counted_and_nobody_waits() {
    let (exporter, _exporting) = Exporter::new("i");

    for _ in 0..8_192 / 4 {
        exporter.take(vec![span(1), span(1), span(1), span(1)]);
    }
    exporter.take(vec![span(2), span(2), span(2)]);

    assert_eq!(exporter.n_waiting(), 8_192);
    assert_eq!(exporter.counts().dropped()[0], ("full", 3));
}

#[tokio::test]
async fn what_is_left_at_the_end_goes_out() {
    let (to, mut requests) = collector(vec![TAKEN]).await;
    let running = run(to);
    for n in 0..3 {
        running.exporter.take(vec![span(n); 400]);
    }

    running.stop.send_replace(true);
    timeout(LONG, running.task).await.unwrap().unwrap();

    let mut n = 0;
    while let Ok((_, body)) = requests.try_recv() {
        n += names(&body).len();
    }
    assert_eq!(n, 1_200);
    assert_eq!(running.exporter.counts().exported(), 1_200);
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_collector_that_is_not_there() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", nobody.local_addr().unwrap()).parse().unwrap();
    drop(nobody);
    let running = run(Arc::new(Collector { url, authorities: None, headers: Vec::new(), limit: LONG }));
    running.exporter.take(vec![span(1); 700]);

    running.stop.send_replace(true);
    timeout(LONG, running.task).await.unwrap().unwrap();

    assert_eq!(running.exporter.counts().dropped()[2], ("stopped", 700));
}

#[tokio::test]
async fn log_records_are_sent_by_whoever_keeps_them() {
    let (to, mut requests) = collector(vec![BUSY, TAKEN]).await;
    let fetcher = Fetcher::new(Arc::new(Connector::new(None)));
    let resource = Resource::of_this_process("i");
    let body = Some(AnyValue { value: Some(Value::String("{}".to_owned())) });
    let record = LogRecord { severity_number: 9, body, event_name: "decision".to_owned(), ..LogRecord::default() };

    let first = to.send_logs(&fetcher, &resource, vec![record.clone()]).await;
    let second = to.send_logs(&fetcher, &resource, vec![record.clone()]).await;

    assert!(matches!(first, Err(NotTaken::Yet { .. })), "{first:?}");
    assert_eq!(second, Ok(Taken::default()));
    let (_, bytes) = requests.recv().await.unwrap();
    let request = ExportLogsServiceRequest::decode(&bytes[..]).unwrap();
    assert_eq!(request.resource_logs[0].scope_logs[0].log_records, [record]);
}
