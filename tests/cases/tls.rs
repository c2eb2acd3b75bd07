//! TLS towards upstreams: whom each one trusts, under which name, and what a client is told when that fails.

use super::{wait_until, wait_until_up};
use crate::support::gateway::{Gateway, Launch};
use crate::support::recorder::Recorder;
use crate::support::tls::Identity;
use serde_json::json;

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
