//! `portcullis keys rotate` beside a running gateway: nobody is logged out.

use super::app::{Codes, app, gate};
use crate::support::gate::Gate;
use crate::support::gateway::Gateway;
use crate::support::http::Request;
use crate::support::oauth::{Tokens, status_with, token};
use crate::support::wait_for;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::fs::File;
use std::time::Duration;

/// The keys in the key set, newest first.
fn published(gateway: &Gateway) -> Vec<String> {
    let keys = Request::get("/jwks").send(gateway.agent).json();
    let ids = keys["keys"].as_array().expect("a key set").iter().map(|key| key["kid"].as_str().expect("an id"));
    ids.map(str::to_owned).collect()
}

/// The key that signed a token.
fn signer(access: &str) -> String {
    let header = URL_SAFE_NO_PAD.decode(access.split('.').next().expect("a header")).expect("base64url");
    let header: Value = serde_json::from_slice(&header).expect("JSON");
    header["kid"].as_str().expect("an id").to_owned()
}

/// Makes a key's file two minutes older, as if so much time had passed.
fn age(gateway: &Gateway, kid: &str) {
    let path = gateway.path(&format!("data/keys/{kid}.pem"));
    let made_at = std::fs::metadata(&path).and_then(|it| it.modified()).expect("the key is there");
    let earlier = made_at - Duration::from_secs(120);
    File::open(&path).and_then(|file| file.set_modified(earlier)).expect("the folder is ours");
}

#[test]
fn tokens_from_before_during_and_after_a_rotation_are_good_and_clients_go_on() {
    let Gate { gateway, .. } = gate("");
    let before = Codes::of(&gateway, &format!("http://{}", gateway.agent)).log_in(&gateway);
    let old = signer(&before.access);
    assert_eq!(published(&gateway), [&*old]);
    let file = gateway.password_file("alice");
    let rotate = ["keys", "rotate", "--as", "alice", "--password-file", file.to_str().unwrap()];

    gateway.cli(&rotate).success();

    wait_for("the new key to be shown", || published(&gateway).len() == 2);
    let new = published(&gateway).remove(0);
    let during = Tokens::of(&token(&gateway, &app().refresh(before.refresh.as_deref().unwrap())));
    assert_eq!(signer(&during.access), old, "it is shown before it signs");

    age(&gateway, &old);
    age(&gateway, &new);
    gateway.wait_for_log(&format!("signing key {new} signs from now on"));
    let after = Tokens::of(&token(&gateway, &app().refresh(during.refresh.as_deref().unwrap())));
    assert_eq!(signer(&after.access), new);
    // One that another process makes.
    let by_hand = gateway.token("alice", "up");
    assert_eq!(signer(&by_hand), new);

    for access in [&before.access, &during.access, &after.access, &by_hand] {
        assert_eq!(status_with(&gateway, access), 200);
    }
    assert_eq!(published(&gateway), [new.clone(), old.clone()]);
    let listed = gateway.cli(&["keys", "list"]).success().stdout;
    assert!(listed.lines().next().is_some_and(|line| line.starts_with(&new) && line.ends_with("signs")), "{listed}");
    assert!(listed.lines().nth(1).is_some_and(|line| line.contains("verifies until")), "{listed}");
    let rotated: Vec<_> = gateway.audit().into_iter().filter(|record| record["event"] == "key.rotated").collect();
    assert!(rotated.iter().any(|record| record["principal"]["subject"] == "user:alice"), "{rotated:?}");
}

#[test]
fn a_key_whose_file_is_deleted_opens_nothing_any_more_and_clients_get_on_without_a_login() {
    let Gate { gateway, .. } = gate("");
    let tokens = Codes::of(&gateway, &format!("http://{}", gateway.agent)).log_in(&gateway);
    assert_eq!(status_with(&gateway, &tokens.access), 200);
    let stolen = signer(&tokens.access);

    std::fs::remove_file(gateway.path(&format!("data/keys/{stolen}.pem"))).unwrap();

    wait_for("its tokens to be refused", || status_with(&gateway, &tokens.access) == 401);
    assert_eq!(published(&gateway).len(), 1);
    let refreshed = Tokens::of(&token(&gateway, &app().refresh(tokens.refresh.as_deref().unwrap())));
    assert_ne!(signer(&refreshed.access), stolen);
    assert_eq!(status_with(&gateway, &refreshed.access), 200);
}

#[test]
fn only_an_admin_rotates() {
    let Gate { gateway, .. } = gate("");
    let before = published(&gateway);
    let file = gateway.password_file("bob");
    let refused = gateway.cli(&["keys", "rotate", "--as", "bob", "--password-file", file.to_str().unwrap()]);

    assert!(
        !refused.status.success() && refused.stderr.contains("`bob` is not in group `admins`"),
        "{}",
        refused.stderr
    );
    assert_eq!(published(&gateway), before);
    assert_eq!(gateway.cli(&["keys", "list"]).success().stdout.lines().count(), 1);
}
