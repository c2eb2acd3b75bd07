//! TLS on both sides: whom each upstream trusts, under which name, and what a client is told when that fails; and
//! certificates that are renewed while the gateway runs.

use super::{wait_until, wait_until_up};
use crate::support::gateway::{Gateway, Launch};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use crate::support::tls::{self, Identity};
use serde_json::json;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

const NAME: &str = "up.internal.test";

/// A gateway with these upstreams: their names, URLs and TLS settings.
fn launch(upstreams: &[(&str, String, &str)], files: &[(&str, &str)]) -> Launch {
    let mut yaml = "hosts: [gw.example.test]\nupstreams:\n".to_owned();
    for (name, url, tls) in upstreams {
        yaml.push_str(&format!("  {name}: {{ http: {{ url: \"{url}\", tls: {{ {tls} }} }} }}\n"));
    }
    let tools: Vec<String> = upstreams.iter().map(|(name, ..)| format!("\"{name}/*\"")).collect();
    yaml.push_str(&format!("policy:\n  rules:\n    - {{ name: all, tools: [{}], allow: {{}} }}\n", tools.join(", ")));
    files.iter().fold(Launch::new(&yaml), |launch, (name, text)| launch.file(name, text))
}

#[track_caller]
fn assert_fails(gateway: &Gateway, upstream: &str) {
    let refused = gateway.agent("alice", upstream).tool("echo", json!({}));
    assert_eq!((refused.status(), refused.error().0), (200, -32603), "{upstream}");
    assert_eq!(refused.message["error"]["data"]["code"], "upstream.tls", "{upstream}: {refused:?}");
    assert!(refused.error().1.contains(&format!("upstream `{upstream}`")), "{upstream}: {refused:?}");
    let sample = format!("portcullis_upstream_up{{upstream=\"{upstream}\"}} 0");
    wait_until(&format!("{upstream} to be down"), || gateway.observe("/metrics").text().contains(&sample));
}

#[track_caller]
fn assert_works(gateway: &Gateway, upstream: &str) {
    wait_until_up(gateway, upstream);
    let agent = gateway.agent("alice", upstream);
    // The client's own idea of our name has nothing to do with the upstream's.
    let (request, id) = agent.request("tools/call", json!({ "name": "echo", "arguments": { "to": upstream } }));
    let answer = agent.send(&request.header("Host", "gw.example.test"), Some(&id));
    assert_eq!(answer.result()["structuredContent"], json!({ "to": upstream }), "{upstream}");
}

// B65: mcpjungle/MCPJungle#273, higress-group/higress#3709, IBM/mcp-context-forge#1383, pomerium/pomerium#4366.
#[test]
fn each_upstream_is_verified_by_its_own_authority_and_name() {
    let (ours, theirs) = (Identity::authority("ours"), Identity::authority("theirs"));
    let good = Recorder::start_tls(&ours.sign(&[NAME]), None);
    let expired = Recorder::start_tls(&ours.sign_expired(&[NAME]), None);
    let by_address = format!("https://127.0.0.1:{}/mcp", good.address().port());
    let expired_url = format!("https://127.0.0.1:{}/mcp", expired.address().port());
    let upstreams = [
        ("named", by_address.clone(), "ca: ca.pem, server_name: up.internal.test"),
        ("no-ca", by_address.clone(), "server_name: up.internal.test"),
        ("other-ca", by_address.clone(), "ca: other.pem, server_name: up.internal.test"),
        ("both", by_address.clone(), "ca: both.pem, server_name: up.internal.test"),
        ("wrong-name", by_address.clone(), "ca: ca.pem, server_name: other.internal.test"),
        ("its-address", by_address, "ca: ca.pem"),
        ("expired", expired_url, "ca: ca.pem, server_name: up.internal.test"),
    ];
    let both = format!("{}{}", theirs.cert, ours.cert);
    let files = [("ca.pem", ours.cert.as_str()), ("other.pem", &theirs.cert), ("both.pem", &both)];

    // None of the failing ones keeps it from starting.
    let gateway = launch(&upstreams, &files).start();

    assert_works(&gateway, "named");
    assert_works(&gateway, "both");
    let n_calls = good.calls().len();
    // Also right after a verified connection to the same address went back into the pool.
    for failing in ["no-ca", "other-ca", "wrong-name", "its-address", "expired"] {
        assert_works(&gateway, "named");
        assert_fails(&gateway, failing);
    }
    assert_eq!(good.calls().len(), n_calls + 5, "a call went to a server that was not verified");
    assert_eq!(expired.n_connections(), 0);
    for call in good.calls() {
        assert_eq!(call.header("host"), Some(format!("127.0.0.1:{}", good.address().port()).as_str()));
    }
    let names = good.server_names();
    assert!(names.iter().any(|name| name == NAME), "{names:?}");
    assert!(names.iter().all(|name| name != "gw.example.test"), "{names:?}");
    assert!(gateway.log().contains("TLS failed"), "the reason is in the log");
}

// B65: (g) a server that wants to know who we are.
#[test]
fn client_certificate_is_shown_where_it_is_configured_and_nowhere_else() {
    let (ours, clients) = (Identity::authority("ours"), Identity::authority("clients"));
    let (us, stranger) = (clients.sign(&["portcullis"]), ours.sign(&["portcullis"]));
    let recorder = Recorder::start_tls(&ours.sign(&[NAME]), Some(&clients));
    let url = format!("https://127.0.0.1:{}/mcp", recorder.address().port());
    let upstreams = [
        ("known", url.clone(), "ca: ca.pem, server_name: up.internal.test, cert: us.pem, key: us.key"),
        ("nobody", url.clone(), "ca: ca.pem, server_name: up.internal.test"),
        ("stranger", url, "ca: ca.pem, server_name: up.internal.test, cert: stranger.pem, key: stranger.key"),
    ];
    let files = [
        ("ca.pem", ours.cert.as_str()),
        ("us.pem", &us.cert),
        ("us.key", &us.key),
        ("stranger.pem", &stranger.cert),
        ("stranger.key", &stranger.key),
    ];

    let gateway = launch(&upstreams, &files).start();

    for refused in ["nobody", "stranger"] {
        assert_works(&gateway, "known");
        let n_calls = recorder.calls().len();
        assert_fails(&gateway, refused);
        assert_eq!(recorder.calls().len(), n_calls, "{refused}");
    }
}

// B65: a certificate or key that cannot be used is found at the start, with its place.
#[test]
fn file_that_is_no_certificate_is_named_with_its_place_in_the_configuration() {
    let ours = Identity::authority("ours");
    let upstreams = [("up", "https://127.0.0.1:1/mcp".to_owned(), "ca: ca.pem, cert: cert.pem, key: key.pem")];
    for (broken, text) in [
        ("ca", ""),
        ("ca", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("key", "x"),
        ("cert", "x"),
    ] {
        let mut files =
            vec![("ca.pem", ours.cert.as_str()), ("cert.pem", ours.cert.as_str()), ("key.pem", ours.key.as_str())];
        let name = format!("{broken}.pem");
        files.iter_mut().filter(|(file, _)| *file == name).for_each(|file| file.1 = text);

        let said = launch(&upstreams, &files).try_start().err().expect("it must not start");

        assert!(said.contains("gateway.yaml:3:"), "{broken}: {said}");
        assert!(!said.contains(&ours.key[40..80]), "the key is shown: {said}");
    }
}

/// A gateway that ends TLS itself; its certificate and key are `live/tls.crt` and `live/tls.key`, and `live` is a symlink.
fn ending_tls(recorder: &Recorder, own: &Identity) -> Gateway {
    let yaml = format!(
        "public_url: https://gw.example.test:8443\ntls: {{ cert: live/tls.crt, key: live/tls.key }}\n{}",
        crate::support::gateway::in_front_of(&recorder.url(), super::EVERYTHING)
    );
    let launch = Launch::new(&yaml).file("v1/tls.crt", &own.cert).file("v1/tls.key", &own.key);
    fs::set_permissions(launch.path("v1/tls.key"), Permissions::from_mode(0o600)).expect("the file is ours");
    symlink("v1", launch.path("live")).expect("the folder is ours");
    let gateway = launch.start();
    wait_until_up(&gateway, "up");
    gateway
}

/// Writes a file and puts it in the place of another, as renewers do.
fn put(gateway: &Gateway, name: &str, contents: &str) {
    let (new, place) = (gateway.path("new"), gateway.path(name));
    fs::write(&new, contents).expect("the folder is ours");
    fs::set_permissions(&new, Permissions::from_mode(0o600)).expect("the file is ours");
    fs::rename(new, place).expect("the folder is ours");
}

/// Which certificate a new connection is shown.
fn shown(gateway: &Gateway, ca: &Identity) -> Vec<u8> {
    tls::connect_offering(gateway.agent, "gw.example.test", ca, &[]).expect("it is good").certificate
}

// B64: NVIDIA/OpenShell#1836, ferro-labs/ferrotunnel#161, praxis-proxy/praxis#39.
#[test]
fn renewed_certificate_is_served_to_new_connections_and_the_open_stream_goes_on() {
    const FAILED: &str = "portcullis_certificate_reload_failed{used_by=\"listener\"}";
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let versions: Vec<Identity> = (0..4).map(|_| ca.sign(&["gw.example.test"])).collect();
    let gateway = ending_tls(&recorder, &versions[0]);
    let (reply, feed) = Reply::sse_fed();
    recorder.answer_next(reply);
    let agent = gateway.agent("alice", "up");
    let (request, _) = agent.request("tools/call", json!({ "name": "echo" }));
    let stream = tls::connect(gateway.agent, "gw.example.test", &ca).expect("it is good");
    let mut open = crate::support::http::Connection::on(stream);
    open.send(&request.to_bytes("gw.example.test:8443"));
    let mut open = open.streaming();
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progress": 1 } });
    let mut goes_on = |case: &str| {
        feed.message(&progress);
        assert_eq!(open.message().as_ref(), Some(&progress), "{case}");
    };
    assert_eq!(shown(&gateway, &ca), versions[0].der.to_vec());

    // (a) Renamed over the old ones.
    put(&gateway, "live/tls.crt", &versions[1].cert);
    put(&gateway, "live/tls.key", &versions[1].key);
    wait_until("the second", || shown(&gateway, &ca) == versions[1].der.to_vec());
    goes_on("renamed");

    // (b) A symlink that is swapped, as Kubernetes mounts secrets.
    for (name, contents) in [("tls.crt", &versions[2].cert), ("tls.key", &versions[2].key)] {
        fs::create_dir_all(gateway.path("v2")).expect("the folder is ours");
        put(&gateway, &format!("v2/{name}"), contents);
    }
    symlink("v2", gateway.path("next")).expect("the folder is ours");
    fs::rename(gateway.path("next"), gateway.path("live")).expect("the folder is ours");
    wait_until("the third", || shown(&gateway, &ca) == versions[2].der.to_vec());
    goes_on("symlink");

    // (c) The certificate first: until the key is there the old pair stays, and it is said.
    put(&gateway, "live/tls.crt", &versions[3].cert);
    wait_until("the mismatch to be seen", || gateway.metric(FAILED) > 0.5);
    gateway.wait_for_log("the old ones stay in use");
    assert_eq!(shown(&gateway, &ca), versions[2].der.to_vec());
    put(&gateway, "live/tls.key", &versions[3].key);
    wait_until("the fourth", || shown(&gateway, &ca) == versions[3].der.to_vec());
    wait_until("nothing to be amiss", || gateway.metric(FAILED) < 0.5);
    goes_on("one after the other");

    // (d) Rubbish, nothing, and a key that others could read.
    for (name, contents) in [("live/tls.crt", "rubbish"), ("live/tls.crt", ""), ("live/tls.key", "rubbish")] {
        put(&gateway, name, contents);
        wait_until("the rubbish to be seen", || gateway.metric(FAILED) > 0.5);
        assert_eq!(shown(&gateway, &ca), versions[3].der.to_vec(), "{name} {contents:?}");
        put(&gateway, "live/tls.crt", &versions[3].cert);
        put(&gateway, "live/tls.key", &versions[3].key);
        wait_until("nothing to be amiss", || gateway.metric(FAILED) < 0.5);
    }
    fs::remove_file(gateway.path("live/tls.key")).expect("the folder is ours");
    wait_until("the loss to be seen", || gateway.metric(FAILED) > 0.5);
    assert_eq!(shown(&gateway, &ca), versions[3].der.to_vec());
    goes_on("whatever happens");
}

// B64: when it runs out is exported, and said while there is time.
#[test]
fn certificate_that_runs_out_soon_is_warned_of_and_its_end_is_exported() {
    const EXPIRES: &str = "portcullis_certificate_expiry_timestamp_seconds{used_by=\"listener\"}";
    let (recorder, ca) = (Recorder::start(), Identity::authority("ours"));
    let gateway = ending_tls(&recorder, &ca.sign(&["gw.example.test"]));
    let far = gateway.metric(EXPIRES);
    assert!(far > 2e9, "rcgen's own end is far away: {far}");
    assert!(!gateway.log().contains("runs out"));

    let old = ca.sign_expired(&["gw.example.test"]);
    put(&gateway, "live/tls.crt", &old.cert);
    put(&gateway, "live/tls.key", &old.key);

    // 2020-02-01T00:00:00Z.
    wait_until("its end to be exported", || (gateway.metric(EXPIRES) - 1_580_515_200.0).abs() < 1.0);
    gateway.wait_for_log("the listener's certificate runs out");
}

// B64: the same for what upstreams are verified by and shown; without a word to the gateway.
#[test]
fn changed_certificates_of_an_upstream_are_noticed_and_a_pair_that_does_not_match_changes_nothing() {
    let (ours, clients) = (Identity::authority("ours"), Identity::authority("clients"));
    let recorder = Recorder::start_tls(&ours.sign(&[NAME]), Some(&clients));
    let url = format!("https://127.0.0.1:{}/mcp", recorder.address().port());
    let (us, stranger) = (clients.sign(&["portcullis"]), ours.sign(&["portcullis"]));
    let tls = "ca: ca.pem, server_name: up.internal.test, cert: us.pem, key: us.key";
    let files = [("ca.pem", ours.cert.as_str()), ("us.pem", &stranger.cert), ("us.key", &stranger.key)];
    let gateway = launch(&[("up", url, tls)], &files).start();
    assert_fails(&gateway, "up");
    let failed = || gateway.metric("portcullis_config_reload_failed") > 0.5;
    assert!(gateway.metric("portcullis_certificate_expiry_timestamp_seconds{used_by=\"upstream up\"}") > 2e9);

    put(&gateway, "us.pem", &us.cert);
    wait_until("the mismatch to be seen", failed);
    gateway.wait_for_log("cannot be used with this `cert`");
    put(&gateway, "us.key", &us.key);
    wait_until("the pair to be in force", || !failed());
    assert_works(&gateway, "up");

    put(&gateway, "ca.pem", &clients.cert);
    let refuses =
        || gateway.agent("alice", "up").tool("echo", json!({})).message["error"]["data"]["code"] == "upstream.tls";
    wait_until("the other authority to be in force", refuses);
    put(&gateway, "ca.pem", "rubbish");
    wait_until("the rubbish to be seen", failed);
    put(&gateway, "ca.pem", &ours.cert);
    wait_until("the pair to be in force", || !failed());
    assert_works(&gateway, "up");
}
