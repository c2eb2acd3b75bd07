//! The agent listener with `tls`: the gateway ends TLS itself.

use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::Connection;
use crate::support::http2::Client;
use crate::support::invariants;
use crate::support::recorder::Recorder;
use crate::support::tls::{self, Identity};
use crate::support::{PATIENCE, wait_for};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use tokio::time::Instant;

const RULES: &str = r#"- { name: everything, tools: ["up/*"], allow: {} }"#;

/// What a client offers by ALPN, and what it gets.
type Offer<'a> = (&'a [&'a [u8]], Option<&'a [u8]>);

fn launch(recorder: &Recorder, ca: &Identity) -> Launch {
    let identity = ca.sign(&["localhost"]);
    let own = "public_url: https://localhost:8443\ntls: { cert: own.pem, key: own.key }\n";
    let launch = Launch::new(&format!("{own}{}", in_front_of(&recorder.url(), RULES)))
        .file("own.pem", identity.cert)
        .file("own.key", identity.key);
    fs::set_permissions(launch.path("own.key"), Permissions::from_mode(0o600)).expect("the file is ours");
    launch
}

#[test]
fn a_client_that_trusts_the_certificate_calls_over_tls() {
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let gateway: Gateway = launch(&recorder, &ca).start();
    let agent = gateway.agent("alice", "up");
    let stream = tls::connect(gateway.agent, "localhost", &ca).expect("the certificate is good");
    let mut connection = Connection::on(stream);

    // Two on one connection.
    for n in 0..2 {
        let (request, id) = agent.request("tools/call", json!({ "name": "echo", "arguments": { "n": n } }));
        connection.send(&request.to_bytes("localhost:8443"));
        let answer = connection.response();

        invariants::check(&answer, Some(&id));
        assert_eq!(answer.json()["result"]["structuredContent"], json!({ "n": n }));
    }
    let (request, _) = agent.with_token(None).request("tools/call", json!({ "name": "echo" }));
    connection.send(&request.to_bytes("localhost:8443"));
    let challenged = connection.response();
    let challenge = challenged.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains("https://localhost:8443/.well-known/"), "{challenge}");
    assert_eq!(recorder.calls().len(), 2);
}

#[test]
fn a_client_that_does_not_trust_it_and_one_without_tls_get_nothing() {
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let gateway: Gateway = launch(&recorder, &ca).start();
    let agent = gateway.agent("alice", "up");

    assert!(tls::connect(gateway.agent, "localhost", &Identity::authority("theirs")).is_err());
    assert!(tls::connect(gateway.agent, "other.test", &ca).is_err());
    let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
    let mut plain = agent.open(&request);
    assert!(plain.try_response().is_err(), "nothing is answered in plain");

    assert!(recorder.calls().is_empty());
    assert!(tls::connect(gateway.agent, "localhost", &ca).is_ok());
}

#[test]
fn a_certificate_that_cannot_be_used_refuses_the_start() {
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let cases = [
        ("own.pem", "rubbish"),
        ("own.key", "rubbish"),
        ("own.key", ca.key.as_str()),
        ("own.pem", ""),
        ("own.key", ""),
    ];

    for (file, contents) in cases {
        let launch = launch(&recorder, &ca);
        fs::write(launch.path(file), contents).expect("the file is ours");

        let said = launch.try_start().err().unwrap_or_else(|| panic!("{file} {contents:?}: it started"));

        assert!(said.contains("exit status: "), "{file} {contents:?}: {said}");
        assert!(said.contains("tls") && !said.contains("panicked"), "{file} {contents:?}: {said}");
    }
}

#[test]
fn a_key_that_others_can_read_refuses_the_start() {
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let launch = launch(&recorder, &ca);
    fs::set_permissions(launch.path("own.key"), Permissions::from_mode(0o644)).expect("the file is ours");

    let said = launch.try_start().err().expect("the key is no secret");

    assert!(said.contains("exit status: 2") && said.contains("own.key"), "{said}");
    assert!(said.contains("can be opened by others"), "{said}");
}

#[test]
fn over_tls_the_client_chooses_the_version_of_http() {
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let gateway: Gateway = launch(&recorder, &ca).start();
    let agent = gateway.agent("alice", "up");
    let (request, id) = agent.request("tools/call", json!({ "name": "echo", "arguments": { "a": 1 } }));
    let offers = ["h2,http/1.1 h2", "http/1.1,h2 h2", "http/1.1 http/1.1", " "];

    for offer in offers {
        let (offered, chosen) = offer.split_once(' ').expect("both are written");
        let offered: Vec<&[u8]> = offered.split(',').filter(|name| !name.is_empty()).map(str::as_bytes).collect();
        let connected =
            tls::connect_offering(gateway.agent, "localhost", &ca, &offered).expect("the certificate is good");
        assert_eq!(String::from_utf8(connected.protocol.unwrap_or_default()).as_deref(), Ok(chosen), "{offer}");
        let answer = if chosen == "h2" {
            Client::on(connected.stream, "localhost:8443").send(&request)
        } else {
            let mut connection = Connection::on(connected.stream);
            connection.send(&request.to_bytes("localhost:8443"));
            connection.response()
        };
        invariants::check(&answer, Some(&id));
        assert_eq!(answer.json()["result"]["structuredContent"], json!({ "a": 1 }));
    }
    assert!(tls::connect_offering(gateway.agent, "localhost", &ca, &[b"http/0.9"]).is_err());
    assert_eq!(recorder.calls().len(), 4);
}

#[test]
fn no_handshake_fails_while_certificates_are_swapped() {
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let gateway: Gateway = launch(&recorder, &ca).start();
    let mut shown = std::collections::BTreeSet::new();
    let is_over = std::sync::atomic::AtomicBool::new(false);

    std::thread::scope(|scope| {
        let handshakes = scope.spawn(|| {
            let mut shown = std::collections::BTreeSet::new();
            // Not for ever: a test that fails must end.
            let start = Instant::now();
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) && start.elapsed() < 5 * PATIENCE {
                let connected = tls::connect_offering(gateway.agent, "localhost", &ca, &[]);
                shown.insert(connected.expect("every handshake succeeds").certificate);
            }
            shown
        });
        for _ in 0..5 {
            let next = ca.sign(&["localhost"]);
            fs::write(gateway.path("own.pem"), &next.cert).expect("the folder is ours");
            fs::write(gateway.path("own.key"), &next.key).expect("the folder is ours");
            wait_for("the new certificate", || {
                let connected = tls::connect_offering(gateway.agent, "localhost", &ca, &[]);
                connected.expect("every handshake succeeds").certificate == next.der.to_vec()
            });
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        shown.extend(handshakes.join().expect("no handshake failed"));
    });

    assert!(shown.len() >= 5, "{} different certificates", shown.len());
    assert!(gateway.metric("portcullis_connections_refused_total{listener=\"agent\",reason=\"tls\"}") < 0.5);
}
