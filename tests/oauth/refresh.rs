//! Staying logged in: what a client keeps through time, restarts and changes, and what ends it.

use super::app::{Codes, app, configuration, gate, of};
use crate::support::PATIENCE;
use crate::support::gate::{Gate, eventually};
use crate::support::gateway::{Gateway, IDENTITY, Launch};
use crate::support::oauth::{Client, Tokens, status_with, token};
use crate::support::recorder::Recorder;

fn codes(gateway: &Gateway) -> Codes {
    Codes::of(gateway, &format!("http://{}", gateway.agent))
}

#[test]
fn as_59_as_61_a_client_refreshes_and_one_that_lost_the_answer_gets_it_again() {
    let Gate { gateway, .. } = gate("");
    let first = codes(&gateway).log_in(&gateway);
    let refresh = app().refresh(first.refresh.as_deref().unwrap());

    let second = Tokens::of(&token(&gateway, &refresh));
    let again = Tokens::of(&token(&gateway, &refresh));

    assert!(second.refresh.is_some() && second.refresh != first.refresh);
    assert_eq!(again.refresh, second.refresh);
    for tokens in [&first, &second, &again] {
        assert_eq!(status_with(&gateway, &tokens.access), 200);
    }
    let third = Tokens::of(&token(&gateway, &app().refresh(second.refresh.as_deref().unwrap())));
    assert_eq!(status_with(&gateway, &third.access), 200);
}

#[test]
fn as_60_as_62_a_token_in_two_hands_ends_the_login_within_a_second_and_is_an_alarm_in_the_log() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let codes = codes(gateway);
    let (stolen, bystander) = (codes.log_in(gateway), codes.log_in(gateway));
    let first = stolen.refresh.unwrap();
    let second = Tokens::of(&token(gateway, &app().refresh(&first)));
    let third = Tokens::of(&token(gateway, &app().refresh(second.refresh.as_deref().unwrap())));
    assert_eq!(status_with(gateway, &third.access), 200);

    let replay = token(gateway, &app().refresh(&first));

    assert_eq!((replay.status, replay.json()["error"].as_str()), (400, Some("invalid_grant")));
    let is_out = || (status_with(gateway, &third.access) == 401).then_some(());
    eventually(PATIENCE, is_out).expect("its access token is refused");
    let n_before = gate.recorder.requests().len();
    assert_eq!(status_with(gateway, &third.access), 401);
    assert_eq!(gate.recorder.requests().len(), n_before, "nothing reaches the upstream");
    assert_eq!(token(gateway, &app().refresh(third.refresh.as_deref().unwrap())).status, 400);
    let alarm = gateway.audit().into_iter().find(|record| record["event"] == "token.replayed").expect("an alarm");
    assert_eq!((alarm["principal"]["subject"].as_str(), alarm["route"].as_str()), (Some("user:alice"), Some("up")));
    // Nobody else is logged out.
    assert_eq!(status_with(gateway, &bystander.access), 200);
    assert_eq!(token(gateway, &app().refresh(bystander.refresh.as_deref().unwrap())).status, 200);
}

#[test]
fn as_66_a_refresh_token_is_of_no_use_to_another_client_and_its_own_goes_on() {
    let Gate { gateway, .. } = gate("");
    let refresh = codes(&gateway).log_in(&gateway).refresh.unwrap();

    let other = token(&gateway, &of("other", None).refresh(&refresh));

    assert_eq!((other.status, other.json()["error"].as_str()), (400, Some("invalid_grant")));
    assert_eq!(token(&gateway, &app().refresh(&refresh)).status, 200);
}

#[test]
fn b13_a_client_goes_on_after_a_restart() {
    let recorder = Recorder::start();
    let name = "https://gw.example.test";
    let top = format!("public_url: {name}\nbehind_proxy: {{ from: [127.0.0.1/32] }}");
    let gateway = Launch::new(&configuration(&recorder.url(), &top)).start();
    let tokens = Codes::of(&gateway, name).log_in(&gateway);
    let before = Tokens::of(&token(&gateway, &app().refresh(tokens.refresh.as_deref().unwrap())));

    let gateway = gateway.crash_and_restart();

    assert_eq!(status_with(&gateway, &before.access), 200);
    let after = Tokens::of(&token(&gateway, &app().refresh(before.refresh.as_deref().unwrap())));
    assert_eq!(status_with(&gateway, &after.access), 200);
}

#[test]
fn as_68_a_person_who_leaves_takes_their_clients_with_them_and_the_others_stay() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let tokens = codes(gateway).log_in(gateway);
    assert_eq!(status_with(gateway, &tokens.access), 200);
    let yaml = configuration(&gate.recorder.url(), "");
    let without = yaml.lines().filter(|line| !line.contains("name: alice")).collect::<Vec<_>>().join("\n");
    // Machines need an owner who is there.
    gateway.rewrite(&without.replace("owner: alice", "owner: bob"));
    gateway.reload().success();

    assert_eq!(status_with(gateway, &tokens.access), 401);
    let refused = token(gateway, &app().refresh(tokens.refresh.as_deref().unwrap()));
    assert_eq!((refused.status, refused.json()["error"].as_str()), (400, Some("invalid_grant")));

    // Whoever comes back under the name logs in anew.
    gateway.rewrite(&yaml);
    gateway.reload().success();
    assert_eq!(token(gateway, &app().refresh(tokens.refresh.as_deref().unwrap())).status, 400);
    assert!(IDENTITY.contains("name: alice"));
}

#[test]
fn as_68_a_client_that_is_taken_out_of_the_configuration_is_unknown() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let refresh = codes(gateway).log_in(gateway).refresh.unwrap();
    let yaml = configuration(&gate.recorder.url(), "");
    gateway.rewrite(&yaml.replace("id: app,", "id: renamed,"));
    gateway.reload().success();

    let refused = token(gateway, &app().refresh(&refresh));

    assert_eq!((refused.status, refused.json()["error"].as_str()), (401, Some("invalid_client")));
}

#[test]
fn a_client_that_registered_itself_counts_as_used_when_it_gets_tokens() {
    let Gate { gateway, .. } = gate("");
    let (used, unused) = (Client::register(&gateway), Client::register(&gateway));
    used.log_in(&gateway, "alice", "up");

    let listed = gateway.cli(&["clients", "list"]).success().stdout;

    let says = |id: &str, what: &str| listed.lines().any(|line| line.starts_with(id) && line.contains(what));
    assert!(says(&used.id, "\tused 2"), "{listed}");
    assert!(says(&unused.id, "\tnever used"), "{listed}");
}
