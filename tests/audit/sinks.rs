//! Where records go beside the files, each with a receiver that is really there: what is in the files arrives as it stands.

use crate::support::collector::{Collector, message_of};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use portcullis::otlp::{ExportLogsServiceRequest, LogRecord, Value as OtlpValue};
use prost::Message as _;
use serde_json::json;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const RULES: &str = r#"
- { name: writes, tools: ["up/*"], allow: {} }
"#;

fn config(recorder: &Recorder, sink: &str) -> String {
    let around = in_front_of(&recorder.url(), RULES);
    format!("{around}metrics: {{ listen: 127.0.0.1:0 }}\naudit: {{ also: [{{ name: other, {sink} }}] }}\n")
}

fn call(gateway: &Gateway, n: usize) {
    let agent = gateway.agent("alice", "up");
    (0..n).for_each(|n| drop(agent.tool("add", json!({ "n": n })).result()));
}

/// The lines of the log that this process saw begin: from its `start` on. Commands before it belong to nobody's sink.
fn lines(gateway: &Gateway) -> Vec<String> {
    gateway.audit_text().lines().map(str::to_owned).collect()
}

#[test]
fn standard_output_has_every_record_as_it_stands_and_the_line_that_says_ready_first() {
    let recorder = Recorder::start();
    let mut gateway = Gateway::start(&config(&recorder, "stdout: {}"));
    call(&gateway, 5);
    assert!(gateway.stop().success());

    let log = gateway.log();
    let printed: Vec<_> = log.lines().filter(|line| line.starts_with("{\"seq\":")).collect();
    for line in lines(&gateway) {
        assert_eq!(printed.iter().filter(|printed| **printed == line).count(), 1, "{line}\nin\n{log}");
    }
    assert!(printed.last().expect("records").contains("\"event\":\"stop\""), "{printed:#?}");
    assert!(log.lines().any(|line| line.starts_with("{\"checkpoint\":")), "{log}");
    let ready = log.find("ready agent=").expect("it is ready");
    assert!(ready < log.find("{\"seq\":").expect("records"), "{log}");
}

#[test]
fn a_syslog_server_that_is_away_costs_no_call_and_gets_everything_later_in_order() {
    let recorder = Recorder::start();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let gateway = Gateway::start(&config(&recorder, &format!("syslog: {{ to: \"unix:{}\" }}", path.display())));
    call(&gateway, 5);
    gateway.wait_for_metric("portcullis_audit_sink_records_total{result=\"failed\",sink=\"other\"}", 1.0);
    assert_eq!(gateway.log().matches("the sink does not take audit records").count(), 1, "{}", gateway.log());

    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let (mut received, mut text) = (Vec::new(), vec![0; 64 * 1024]);
    let mut is_all = || {
        match socket.recv(&mut text) {
            Ok(n) => received.push(String::from_utf8_lossy(&text[..n]).into_owned()),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}"),
        }
        received.iter().filter(|message| message.contains("\"event\":\"result\"")).count() == 5
    };
    wait_for("the results", &mut is_all);

    gateway.wait_for_log("the sink takes audit records again");
    let sent: Vec<_> = received
        .iter()
        .filter_map(|message| {
            assert!(message.starts_with("<110>1 20"), "{message}");
            message.split_once(" - ").map(|(_, line)| line.to_owned())
        })
        .filter(|line| line.starts_with("{\"seq\":"))
        .collect();
    let mut of_file = lines(&gateway);
    of_file.retain(|line| sent.contains(line));
    assert_eq!(sent, of_file, "each once, in the order of the file");
    gateway.cli(&["audit", "verify"]).success();
}

fn logs(collector: &Collector) -> Vec<LogRecord> {
    let requests = collector.recorder.requests();
    let of_us = requests
        .iter()
        .flat_map(|request| ExportLogsServiceRequest::decode(&*message_of(request)).expect("it is OTLP").resource_logs);
    of_us.flat_map(|of_us| of_us.scope_logs).flat_map(|of_us| of_us.log_records).collect()
}

fn body(record: &LogRecord) -> String {
    match record.body.clone().and_then(|body| body.value) {
        Some(OtlpValue::String(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_real_collector_gets_every_record_as_a_log_record() {
    let recorder = Recorder::start();
    let collector = Collector::rotel();
    let url = collector.url.replace("/v1/traces", "/v1/logs");
    let mut gateway = Gateway::start(&config(&recorder, &format!("otlp: {{ url: \"{url}\" }}")));
    call(&gateway, 5);
    assert!(gateway.stop().success());

    let wanted = lines(&gateway);
    wait_for("every record", || {
        let bodies: Vec<_> = logs(&collector).iter().map(body).collect();
        wanted.iter().all(|line| bodies.contains(line))
    });
    let all = logs(&collector);
    let decision = all.iter().find(|record| record.event_name == "portcullis.audit.decision").expect("a decision");
    assert!(decision.time_unix_nano > 1_700_000_000_000_000_000, "{decision:?}");
    assert!(decision.attributes.iter().any(|attribute| attribute.key == "portcullis.request"), "{decision:?}");
    assert!(all.iter().any(|record| record.event_name == "portcullis.audit.checkpoint"));
}

#[test]
fn a_sink_whose_credential_is_not_there_stops_the_start_and_says_where() {
    let recorder = Recorder::start();
    let otlp = "otlp: { url: \"http://127.0.0.1:1/v1/logs\", headers: { x-key: { env: PORTCULLIS_TEST_NO_KEY } } }";
    let launch = Launch::new(&config(&recorder, otlp));

    let refused = launch.cli(&["check"]);

    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    assert!(refused.stderr.contains("environment variable `PORTCULLIS_TEST_NO_KEY` is not set"), "{refused:#?}");
    launch.env("PORTCULLIS_TEST_NO_KEY", "k").cli(&["check"]).success();
}
