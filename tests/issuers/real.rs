//! Against npm `oidc-provider`: its metadata, its keys (RSA and EC), its tokens, a whole login.

use super::{config, echo, entry, invalid, wait_for_keys};
use crate::support::gate::{Gate, error};
use crate::support::sdk::{Client, Idp};
use serde_json::json;

fn gate(idp: &Idp, more: &str) -> Gate {
    let gate = Gate::with(|url| config(url, &entry(&idp.issuer, more)));
    wait_for_keys(&gate, &idp.issuer);
    gate
}

#[test]
fn a_person_who_logged_in_at_oidc_provider_may_do_what_their_group_may() {
    let idp = Idp::start();
    let gate = gate(&idp, "");
    let resource = gate.gateway.url("up");

    let tokens = idp.login("alice", &resource);
    let token = tokens["access_token"].as_str().expect("a token");
    gate.passes("alice is an operator there", &echo(token));
    let response = echo(token).send(gate.gateway.agent);
    let who = gate.decision(&response)["principal"].clone();
    assert_eq!(who, json!({ "issuer": idp.issuer, "subject": "user:alice", "client": "app" }));

    let unlisted = error(200, -32602, "policy.unlisted").id("7");
    let visitor = idp.login("bob", &resource);
    gate.refuses("bob is a visitor", &echo(visitor["access_token"].as_str().expect("a token")), &unlisted);
    let elsewhere = idp.login("alice", &resource.replace("/up", "/other"));
    gate.refuses("for another route", &echo(elsewhere["access_token"].as_str().expect("a token")), &invalid());
    gate.refuses("her ID token", &echo(tokens["id_token"].as_str().expect("a token")), &invalid());
    let mut forged = token.to_owned();
    let at = forged.len() - 20;
    let other = if forged.as_bytes()[at] == b'A' { "B" } else { "A" };
    forged.replace_range(at..=at, other);
    gate.refuses("her token with another signature", &echo(&forged), &invalid());
}

#[test]
fn an_id_token_of_oidc_provider_is_refused_also_where_its_audience_and_type_would_fit() {
    let idp = Idp::start();
    // As lenient as it can be configured: the ID token's own audience, and tokens without a type.
    let gate = gate(&idp, ", audience: [app, \"api://gateway\"], token_types: [\"at+jwt\", JWT, none]");

    let tokens = idp.login("alice", "api://gateway");

    gate.passes("the access token", &echo(tokens["access_token"].as_str().expect("a token")));
    gate.refuses("the ID token", &echo(tokens["id_token"].as_str().expect("a token")), &invalid());
}

#[test]
fn a_machine_of_oidc_provider_talks_through_an_official_client() {
    let idp = Idp::start();
    let gate = gate(&idp, "");
    let url = gate.gateway.url("up");
    let token = idp.machine_token(&url);

    let steps = json!([{ "list": "tools" }]);
    let outcomes = Client::TypeScriptV2.run(&url, Some(&token), &steps);

    assert!(outcomes.iter().all(|outcome| outcome.get("error").is_none()), "{outcomes:#?}");
    let response = echo(&token).send(gate.gateway.agent);
    let who = gate.decision(&response)["principal"].clone();
    assert_eq!(who, json!({ "issuer": idp.issuer, "subject": "client:machine", "client": "machine" }));
}
