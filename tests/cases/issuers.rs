//! Issuers that are not ours.

use super::{EVERYTHING, wait_until, wait_until_up};
use crate::support::gateway::{Gateway, IDENTITY, in_front_of};
use crate::support::http::{Request, Response};
use crate::support::issuer::{Issuer, SigningKey, now};
use crate::support::recorder::Recorder;
use crate::support::reply::Reply;
use serde_json::{Value, json};

/// A gateway that trusts this issuer, whose `operators` may do everything.
fn trusting(recorder: &Recorder, issuer: &str) -> Gateway {
    let rules = EVERYTHING.replace("allow: {}", "who: { groups: [ops] }, allow: {}");
    let entry = format!("  issuers:\n    - {{ issuer: \"{issuer}\", groups: {{ operators: ops }} }}\n");
    let gateway = Gateway::start(&format!("{IDENTITY}{entry}{}", in_front_of(&recorder.url(), &rules)));
    wait_until_up(&gateway, "up");
    gateway
}

fn wait_until_asked(gateway: &Gateway, issuer: &str) {
    let fetches = |result: &str| {
        gateway.metric(&format!("portcullis_issuer_fetches_total{{issuer=\"{issuer}\",result=\"{result}\"}}"))
    };
    wait_until("the issuer to be asked", || fetches("ok") + fetches("failed") > 0.5);
}

fn list(gateway: &Gateway, token: &str) -> Response {
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    Request::mcp("/mcp/up", body).bearer(token).send(gateway.agent)
}

// B03: SparkDevNetwork/Rock#6974, expo/expo#49054, vercel/ai#20236, modelcontextprotocol/python-sdk#1919.
#[test]
fn of_an_issuers_metadata_only_the_slash_of_an_empty_path_may_differ() {
    for (claimed, is_good) in [("", true), ("/", true), ("/auth", false), ("//", false), (".evil.test", false)] {
        let (recorder, issuer) = (Recorder::start(), Issuer::start());
        let (name, jwk) = (issuer.name.clone(), issuer.key.jwk());
        issuer.recorder.answer_with(move |request| {
            Reply::json(match request.target.as_str() {
                "/jwks" => json!({ "keys": [jwk] }).to_string(),
                _ => json!({ "issuer": format!("{name}{claimed}"), "jwks_uri": format!("{name}/jwks") }).to_string(),
            })
        });
        let gateway = trusting(&recorder, &issuer.name);
        wait_until_asked(&gateway, &issuer.name);
        let mark = recorder.mark();

        let answer = list(&gateway, &issuer.token(&gateway.url("up"), &json!({})));

        assert_eq!(answer.status, if is_good { 200 } else { 503 }, "{claimed}: {}", answer.text());
        if !is_good {
            recorder.assert_untouched(mark);
        }
    }
}

// B07: cloudflare/workers-oauth-provider#108, agentic-community/mcp-gateway-registry#1533, IBM/mcp-context-forge#4171,
// openai/codex#24890.
#[test]
fn a_local_issuers_tokens_are_for_the_route_they_name_and_for_nothing_like_it() {
    let (recorder, issuer) = (Recorder::start(), Issuer::start());
    let gateway = trusting(&recorder, &issuer.name);
    wait_until_asked(&gateway, &issuer.name);
    let resource = gateway.url("up");
    let origin = format!("http://{}", gateway.agent);
    let sign = |more: Value| issuer.token(&resource, &more);
    let new = SigningKey::new("published after the start");
    issuer.publish(&[new.jwk(), issuer.key.jwk()]);

    for (case, token) in [
        ("a", sign(json!({ "aud": resource }))),
        ("b", sign(json!({ "aud": [resource, "x"] }))),
        ("i", new.sign(&new.header(), &issuer.claims(&resource, &json!({})))),
    ] {
        let answer = list(&gateway, &token);
        assert_eq!(answer.status, 200, "{case}: {}", answer.text());
    }
    assert_eq!(issuer.n_fetches(), 2, "one fetch for the new key");
    let mark = recorder.mark();
    for (case, token) in [
        ("c", sign(json!({ "aud": "account" }))),
        ("d", sign(json!({ "aud": format!("{origin}/mcp/other") }))),
        // The bare origin is not the route: one rule, in docs/oauth.md.
        ("e", sign(json!({ "aud": origin }))),
        ("f", sign(json!({ "aud": null }))),
        ("g", sign(json!({ "iss": "https://idp.example.com" }))),
        ("h", sign(json!({ "exp": now() - 5 }))),
    ] {
        let answer = list(&gateway, &token);
        let challenge = answer.header("www-authenticate").unwrap_or_default();
        assert_eq!(answer.status, 401, "{case}: {}", answer.text());
        assert!(challenge.contains("error=\"invalid_token\""), "{case}: {challenge}");
        for hint in [issuer.name.as_str(), "aud", "iss"] {
            let said = answer.text().replace("issued", "");
            assert!(
                !said.contains(hint) && !challenge.replace("resource_metadata", "").contains(hint),
                "{case}: {said}"
            );
        }
    }
    recorder.assert_untouched(mark);
}
