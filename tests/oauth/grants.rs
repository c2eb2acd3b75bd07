//! `/grants`: a person sees what acts for them, and takes it back.

use super::gate;
use crate::support::PATIENCE;
use crate::support::browser::Browser;
use crate::support::gate::{Gate, eventually};
use crate::support::gateway::password;
use crate::support::oauth::{Client, status_with, token};

fn logged_in(gate: &Gate, user: &str) -> Browser {
    let mut browser = Browser::new(gate.gateway.agent);
    let page = browser.get("/login");
    browser.submit(&page, &[("username", user), ("password", &password(user))]);
    browser
}

#[test]
fn what_a_person_takes_back_opens_nothing_from_then_on_and_the_rest_goes_on() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let (one, two) = (Client::register(gateway), Client::register(gateway));
    let (of_one, of_two) = (one.log_in(gateway, "alice", "up"), two.log_in(gateway, "alice", "up"));
    let of_bob = one.log_in(gateway, "bob", "up");
    let mut browser = logged_in(&gate, "alice");
    let page = browser.get("/grants");
    assert!(page.text().contains("Test Client") && page.text().contains(&one.id));
    let grant = grant_of(&of_one.access);

    let page = browser.submit(&page, &[("grant", &grant)]);

    assert!(page.text().contains("Revoked") && !page.text().contains(&grant));
    let is_out = || (status_with(gateway, &of_one.access) == 401).then_some(());
    eventually(PATIENCE, is_out).expect("its token is refused within a moment");
    assert_eq!(token(gateway, &one.refresh(&of_one.refresh.unwrap())).status, 400);
    for tokens in [of_two, of_bob] {
        assert_eq!(status_with(gateway, &tokens.access), 200);
    }
    assert!(gateway.audit().iter().any(|record| record["event"] == "token.revoked"));
}

#[test]
fn nobody_takes_back_what_is_anothers_and_no_foreign_form_does() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let client = Client::register(gateway);
    let of_alice = client.log_in(gateway, "alice", "up");
    let of_bob = client.log_in(gateway, "bob", "up");
    let mut bob = logged_in(&gate, "bob");
    let page = bob.get("/grants");
    assert!(!page.text().contains(&grant_of(&of_alice.access)));

    bob.submit(&page, &[("grant", &grant_of(&of_alice.access))]);
    let forged = [("csrf", "x"), ("grant", &grant_of(&of_bob.access))];
    let forged = forged.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(bob.post("/grants", &forged).status(), 400);

    let refresh = |tokens: &crate::support::oauth::Tokens| {
        token(gateway, &client.refresh(tokens.refresh.as_deref().unwrap())).status
    };
    assert_eq!((refresh(&of_alice), refresh(&of_bob)), (200, 200));
}

#[test]
fn what_acts_for_a_person_stands_there_however_much_was_revoked_since() {
    let gate = gate("");
    let gateway = &gate.gateway;
    let hidden = Client::register(gateway);
    let tokens = hidden.log_in(gateway, "alice", "up");
    let db = gateway.path("data/portcullis.db");
    let store = rusqlite::Connection::open(db).expect("it is there");
    store
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
             INSERT INTO grants SELECT 'g_' || i, issuer, subject_kind, subject_name, client_id, resource, scopes,
             created_at + i, expires_at, made_by, created_at, 'user:alice', password_mark, longest_until FROM grants, n
             WHERE made_by = 'login'",
        )
        .expect("grants that were revoked");

    let page = logged_in(&gate, "alice").get("/grants");

    let grant = grant_of(&tokens.access);
    assert!(page.text().contains(&grant));
    assert!(gateway.cli(&["token", "list"]).success().stdout.contains(&grant));
}

/// The grant a token names.
fn grant_of(token: &str) -> String {
    super::desk::claims(token)["grant"].as_str().expect("every token names one").to_owned()
}
