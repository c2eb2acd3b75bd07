//! Issuers whose documents cannot be used: each is refused, says so in the log, and keeps nobody else from working.

use super::{config, echo, entry, token, unavailable, wait_for_keys};
use crate::support::gate::Gate;
use crate::support::issuer::Issuer;
use crate::support::recorder::Recorded;
use crate::support::reply::Reply;
use crate::support::tls::Identity;
use crate::support::{gateway::Launch, recorder::Recorder, wait_for};
use serde_json::json;

/// An issuer that gives this answer to requests for this document, and is right in everything else.
fn broken(document: &'static str, answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Issuer {
    let issuer = Issuer::start();
    let (name, jwk) = (issuer.name.clone(), issuer.key.jwk());
    issuer.recorder.answer_with(move |request: &Recorded| match request.target.as_str() {
        target if target == document => answer(&name),
        "/.well-known/openid-configuration" => {
            Reply::json(json!({ "issuer": name, "jwks_uri": format!("{name}/jwks") }).to_string())
        }
        "/jwks" => Reply::json(json!({ "keys": [jwk] }).to_string()),
        _ => Reply::new(404, ""),
    });
    issuer
}

const METADATA: &str = "/.well-known/openid-configuration";

/// RS-16, RS-18.
#[test]
fn documents_that_cannot_be_used_are_refused_and_keep_nobody_else_from_working() {
    let (good, lure) = (Issuer::start(), Issuer::start());
    let (to_keys, of_lure) = (format!("{}/jwks", lure.name), lure.name.clone());
    let elsewhere = to_keys.clone();
    let spread = |size: usize| format!(r#"{{"keys":[],"pad":"{}"}}"#, "x".repeat(size));
    let many = json!({ "keys": vec![good.key.jwk(); 101] }).to_string();
    let twice = format!(r#"{{"keys":[],"keys":[{}]}}"#, good.key.jwk());
    let cases: Vec<(&str, Issuer, &str)> = vec![
        (
            "metadata of another issuer",
            broken(METADATA, move |_| {
                Reply::json(json!({ "issuer": of_lure, "jwks_uri": format!("{of_lure}/jwks") }).to_string())
            }),
            "is of another issuer",
        ),
        (
            "metadata of a path of it",
            broken(METADATA, |name| {
                Reply::json(json!({ "issuer": format!("{name}/a"), "jwks_uri": format!("{name}/jwks") }).to_string())
            }),
            "is of another issuer",
        ),
        (
            "keys elsewhere",
            broken(METADATA, move |name| Reply::json(json!({ "issuer": name, "jwks_uri": elsewhere }).to_string())),
            "is not on the host of the issuer",
        ),
        (
            "no jwks_uri",
            broken(METADATA, |name| Reply::json(json!({ "issuer": name }).to_string())),
            "no usable `jwks_uri`",
        ),
        ("metadata in HTML", broken(METADATA, |_| Reply::new(200, "<html>log in</html>")), "is not JSON"),
        (
            "metadata redirected",
            broken(METADATA, {
                let to = to_keys.clone();
                move |_| Reply::redirect(302, &to)
            }),
            "status 302",
        ),
        ("keys redirected", broken("/jwks", move |_| Reply::redirect(307, &to_keys)), "status 307"),
        ("keys that fail", broken("/jwks", |_| Reply::new(500, "")), "status 500"),
        ("keys in HTML", broken("/jwks", |_| Reply::new(200, "<html></html>")), "not JSON"),
        ("too large", broken("/jwks", move |_| Reply::json(spread(300_000))), "larger than"),
        ("too many", broken("/jwks", move |_| Reply::json(many.clone())), "101 keys"),
        ("a name twice", broken("/jwks", move |_| Reply::json(twice.clone())), "not JSON"),
        (
            "cut",
            broken("/jwks", |_| Reply::raw(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec()])),
            "no whole answer",
        ),
        ("never answered", broken("/jwks", |_| Reply::hang()), "took longer than"),
    ];
    let entries: String = cases.iter().map(|(_, issuer, _)| entry(&issuer.name, "")).collect();
    let gate = Gate::with(|url| config(url, &(entries + &entry(&good.name, ""))));
    wait_for_keys(&gate, &good.name);
    for (case, issuer, said) in &cases {
        // In the words of the log, which tell the operator where to look.
        let is_of_it = |line: &str| line.contains("cannot be fetched") && line.contains(&issuer.name);
        wait_for(&format!("{case}: {said}"), || {
            gate.gateway.log().lines().any(|line| is_of_it(line) && line.contains(said))
        });
        gate.refuses(case, &echo(&token(&gate, issuer)), &unavailable());
    }
    gate.passes("the good one", &echo(&token(&gate, &good)));
    assert_eq!(lure.recorder.n_connections(), 0, "a document led us elsewhere");
}

#[test]
fn a_slash_that_a_url_library_put_behind_an_empty_path_is_let_through_in_metadata() {
    let issuer = broken(METADATA, |name| {
        Reply::json(json!({ "issuer": format!("{name}/"), "jwks_uri": format!("{name}/jwks") }).to_string())
    });
    let gate = super::gate(&issuer, "");

    gate.passes("the name as configured", &echo(&token(&gate, &issuer)));
    let slashed = issuer.token(&gate.gateway.url("up"), &json!({ "iss": format!("{}/", issuer.name) }));
    gate.refuses("a token is compared byte for byte", &echo(&slashed), &super::invalid());
}

#[test]
fn an_issuer_with_a_path_is_found_in_either_form() {
    for oauth in [true, false] {
        let issuer = Issuer::start();
        let (origin, jwk) = (issuer.name.clone(), issuer.key.jwk());
        let name = format!("{origin}/realms/one");
        let (of_document, metadata) = (
            name.clone(),
            if oauth {
                "/.well-known/oauth-authorization-server/realms/one"
            } else {
                "/realms/one/.well-known/openid-configuration"
            },
        );
        issuer.recorder.answer_with(move |request: &Recorded| match request.target.as_str() {
            target if target == metadata => {
                Reply::json(json!({ "issuer": of_document, "jwks_uri": format!("{origin}/certs") }).to_string())
            }
            "/certs" => Reply::json(json!({ "keys": [jwk] }).to_string()),
            _ => Reply::new(404, ""),
        });
        let gate = Gate::with(|url| config(url, &entry(&name, "")));
        wait_for_keys(&gate, &name);

        let token = issuer.token(&gate.gateway.url("up"), &json!({ "iss": name }));
        gate.passes(metadata, &echo(&token));
        let realm_of_others = issuer.token(&gate.gateway.url("up"), &json!({ "iss": name.replace("one", "two") }));
        gate.refuses("another realm of the same host", &echo(&realm_of_others), &super::invalid());
    }
}

#[test]
fn an_issuer_behind_a_private_authority_is_trusted_by_that_one_only() {
    let authority = Identity::authority("Our IdP CA");
    let trusted = Issuer::start_tls(&authority.sign(&["127.0.0.1"]));
    let untrusted = Issuer::start_tls(&Identity::authority("Another CA").sign(&["127.0.0.1"]));
    let unnamed = Issuer::start_tls(&authority.sign(&["idp.example.com"]));
    let recorder = Recorder::start();
    let with_ca = |issuer: &Issuer| entry(&issuer.name, ", tls: { ca: idp-ca.pem }");
    let entries = with_ca(&trusted) + &with_ca(&untrusted) + &with_ca(&unnamed);
    let gateway = Launch::new(&config(&recorder.url(), &entries)).file("idp-ca.pem", &authority.cert).start();
    let token_of_alice = gateway.token("alice", "up");
    let gate = Gate { recorder, gateway, token: token_of_alice };
    gate.wait_until_asked("up");
    wait_for_keys(&gate, &trusted.name);

    gate.passes("its own authority", &echo(&token(&gate, &trusted)));
    for (case, issuer) in [("another authority", &untrusted), ("another name", &unnamed)] {
        let failed = format!("portcullis_issuer_fetches_total{{issuer=\"{}\",result=\"failed\"}}", issuer.name);
        wait_for(&failed, || gate.gateway.metric(&failed) > 0.5);
        gate.refuses(case, &echo(&token(&gate, issuer)), &unavailable());
        assert_eq!(issuer.recorder.n_connections(), 0, "{case}");
    }
}
