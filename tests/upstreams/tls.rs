//! TLS to upstreams: who is let in, and that no pooled connection serves an upstream that would not have accepted it.

use super::config;
use crate::support::agent::Answer;
use crate::support::gateway::{Gateway, Launch};
use crate::support::recorder::Recorder;
use crate::support::tls::Identity;
use serde_json::json;

/// Our authority and somebody else's.
struct Authorities {
    ours: Identity,
    theirs: Identity,
}

impl Authorities {
    fn new() -> Authorities {
        Authorities { ours: Identity::authority("ours"), theirs: Identity::authority("theirs") }
    }

    /// A gateway with `ours.pem`, `theirs.pem`, and clients `alice`, `bob` (signed by ours) and `mallory` (by theirs).
    fn launch(&self, upstreams: &[(&str, String)]) -> Launch {
        let mut launch =
            Launch::new(&config(upstreams)).file("ours.pem", &self.ours.cert).file("theirs.pem", &self.theirs.cert);
        for (name, signer) in [("alice", &self.ours), ("bob", &self.ours), ("mallory", &self.theirs)] {
            let client = signer.sign(&[name]);
            launch = launch.file(&format!("{name}.pem"), client.cert).file(&format!("{name}.key"), client.key);
        }
        launch
    }
}

fn call(gateway: &Gateway, upstream: &str) -> Answer {
    gateway.agent("alice", upstream).tool("echo", json!({ "to": upstream }))
}

#[track_caller]
fn assert_reached(gateway: &Gateway, recorder: &Recorder, upstream: &str) {
    let answer = call(gateway, upstream);
    assert!(answer.message.get("result").is_some(), "{upstream}: {answer:#?}\n{}", gateway.log());
    // The gateway asks a new upstream for its tools in the meantime: not the last request, but the last call.
    let call = recorder.calls().pop().expect("the call arrived");
    assert_eq!(call.json()["params"]["arguments"], json!({ "to": upstream }));
}

#[track_caller]
fn assert_kept_out(gateway: &Gateway, recorder: &Recorder, upstream: &str, codes: &[&str]) {
    let mark = recorder.mark();
    let answer = call(gateway, upstream);
    let code = super::code(&answer);
    assert!(codes.contains(&code), "{upstream}: {answer:#?}");
    assert!(!answer.error().1.contains("127.0.0.1"), "{upstream}: {answer:#?}");
    recorder.assert_untouched(mark);
}

#[test]
fn an_upstream_is_who_its_certificate_says_or_is_not_talked_to() {
    let authorities = Authorities::new();
    let server = Recorder::start_tls(&authorities.ours.sign(&["up.test", "127.0.0.1"]), None);
    let nameless = Recorder::start_tls(&authorities.ours.sign(&["up.test"]), None);
    let expired = Recorder::start_tls(&authorities.ours.sign_expired(&["up.test"]), None);
    let upstreams = |tls: &str, recorder: &Recorder| format!("url: \"{}\", tls: {{ {tls} }}", recorder.url());
    let good = [
        ("by-name", upstreams("ca: ours.pem, server_name: up.test", &server)),
        ("by-address", upstreams("ca: ours.pem", &server)),
    ];
    let bad = [
        ("wrong-ca", upstreams("ca: theirs.pem, server_name: up.test", &server)),
        ("system-roots", upstreams("server_name: up.test", &server)),
        ("wrong-name", upstreams("ca: ours.pem, server_name: other.test", &server)),
        ("no-name", upstreams("ca: ours.pem", &nameless)),
        ("expired", upstreams("ca: ours.pem, server_name: up.test", &expired)),
    ];
    let gateway = authorities.launch(&[&good[..], &bad[..]].concat()).start();
    good.iter().chain(&bad).for_each(|(name, _)| gateway.wait_until_asked(name));

    // The bad ones come after a good one has left its connection in the pool, and before it is used again.
    for (name, _) in &good {
        assert_reached(&gateway, &server, name);
    }
    for (name, _) in &bad {
        let recorder = match *name {
            "no-name" => &nameless,
            "expired" => &expired,
            _ => &server,
        };
        assert_kept_out(&gateway, recorder, name, &["upstream.tls"]);
    }
    for (name, _) in &good {
        assert_reached(&gateway, &server, name);
    }
    assert_eq!((nameless.n_connections(), expired.n_connections()), (0, 0));
}

#[test]
fn a_client_certificate_is_shown_where_it_is_asked_for() {
    let authorities = Authorities::new();
    let server = Recorder::start_tls(&authorities.ours.sign(&["up.test"]), Some(&authorities.ours));
    let upstream =
        |more: &str| format!("url: \"{}\", tls: {{ ca: ours.pem, server_name: up.test{more} }}", server.url());
    let gateway = authorities
        .launch(&[
            ("alice", upstream(", cert: alice.pem, key: alice.key")),
            ("bob", upstream(", cert: bob.pem, key: bob.key")),
            ("mallory", upstream(", cert: mallory.pem, key: mallory.key")),
            ("nobody", upstream("")),
        ])
        .start();
    ["alice", "bob", "mallory", "nobody"].iter().for_each(|name| gateway.wait_until_asked(name));

    assert_reached(&gateway, &server, "alice");
    let of_alice = server.last().connection;
    // With TLS 1.3 the server's verdict on us comes after our handshake is done: then the connection is lost.
    assert_kept_out(&gateway, &server, "nobody", &["upstream.tls", "upstream.lost"]);
    assert_kept_out(&gateway, &server, "mallory", &["upstream.tls", "upstream.lost"]);
    assert_reached(&gateway, &server, "bob");

    assert_ne!(server.last().connection, of_alice, "bob's call went over alice's connection");
    assert_reached(&gateway, &server, "alice");
    assert_eq!(server.last().connection, of_alice, "alice's own connection is kept");
}

#[test]
fn a_replaced_authority_leaves_no_old_connection_in_use() {
    let authorities = Authorities::new();
    let server = Recorder::start_tls(&authorities.ours.sign(&["up.test"]), None);
    let settings = format!("url: \"{}\", tls: {{ ca: trusted.pem, server_name: up.test }}", server.url());
    let gateway = authorities.launch(&[("up", settings)]).file("trusted.pem", &authorities.ours.cert).start();
    gateway.wait_until_asked("up");
    assert_reached(&gateway, &server, "up");

    std::fs::write(gateway.path("trusted.pem"), &authorities.theirs.cert).expect("the folder is ours");
    gateway.reload().success();
    assert_kept_out(&gateway, &server, "up", &["upstream.tls"]);

    std::fs::write(gateway.path("trusted.pem"), &authorities.ours.cert).expect("the folder is ours");
    gateway.reload().success();
    assert_reached(&gateway, &server, "up");
}

#[test]
fn a_certificate_or_key_that_cannot_be_used_is_found_before_the_start() {
    let authorities = Authorities::new();
    let server = Recorder::start_tls(&authorities.ours.sign(&["up.test"]), None);
    let cases = [
        ("ca: nowhere.pem", "cannot read nowhere.pem"),
        ("ca: rubbish.pem", "no certificate in the file"),
        ("ca: broken.pem", "no usable certificate"),
        ("cert: alice.pem, key: rubbish.pem", "no usable private key"),
        ("cert: alice.pem", "`key`"),
    ];
    let launch = |tls: &str| {
        let settings = format!("url: \"{}\", tls: {{ {tls} }}", server.url());
        authorities
            .launch(&[("up", settings)])
            .file("rubbish.pem", "rubbish")
            .file("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    };

    for (tls, says) in cases {
        let checked = launch(tls).cli(&["check"]);

        assert_eq!(checked.status.code(), Some(2), "{tls}: {checked:#?}");
        assert!(checked.stderr.contains("gateway.yaml:2:"), "{tls}: {}", checked.stderr);
        assert!(checked.stderr.contains(says), "{tls}: {}", checked.stderr);
    }
    launch("ca: ours.pem, cert: alice.pem, key: alice.key").cli(&["check"]).success();
}
