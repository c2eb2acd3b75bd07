//! `/consent`: who may answer, once, and what comes of it.

use super::gate;
use crate::support::browser::{Browser, Page, parameter};
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, password};
use crate::support::oauth::{Client, Tokens, status_with, token};
use serde_json::json;

/// Alice in front of the question, and the request it is about.
fn asked(gateway: &Gateway, client: &Client) -> (Browser, Page, crate::support::oauth::Asked) {
    let asked = client.ask(gateway, "up");
    let mut browser = Browser::new(gateway.agent);
    let login = browser.get(&asked.url());
    let page = browser.submit(&login, &[("username", "alice"), ("password", &password("alice"))]);
    assert!(page.has_field("flow"), "{}", page.text());
    (browser, page, asked)
}

fn n_codes_given(gateway: &Gateway) -> usize {
    gateway.audit().iter().filter(|record| record["event"] == "consent.given").count()
}

#[test]
fn who_says_yes_gets_the_client_its_tokens_and_who_says_no_an_error() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let (mut browser, page, asked) = asked(&gateway, &client);
    let back = browser.submit(&page, &[("decision", "deny")]).callback();
    assert_eq!(parameter(&back, "error").as_deref(), Some("access_denied"));
    assert_eq!(parameter(&back, "code"), None);
    assert_eq!(n_codes_given(&gateway), 0);

    let again = browser.get(&asked.url());
    let back = browser.submit(&again, &[("decision", "allow")]).callback();
    let code = parameter(&back, "code").unwrap();
    let tokens = Tokens::of(&token(&gateway, &client.redeem(&code, &asked.verifier)));
    assert_eq!(status_with(&gateway, &tokens.access), 200);
}

#[test]
fn o_13_as_34_the_question_counts_in_the_session_it_was_shown_in_only() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let (mut browser, page, _) = asked(&gateway, &client);
    let (action, allow) = page.filled(&[("decision", "allow")]);
    let own = |name: &str| allow.iter().find(|(key, _)| key == name).unwrap().1.clone();

    // Another browser, nobody logged in.
    assert_eq!(Browser::new(gateway.agent).get(&page.target).status(), 400);
    assert_eq!(Browser::new(gateway.agent).post(&action, &allow).status(), 400);
    // Another person, and the same person in another browser.
    for user in ["bob", "alice"] {
        let mut other = Browser::new(gateway.agent);
        let login = other.get("/login");
        other.submit(&login, &[("username", user), ("password", &password(user))]);
        assert_eq!(other.get(&page.target).status(), 400, "{user}");
        assert_eq!(other.post(&action, &allow).status(), 400, "{user}");
    }
    // Without the form's own mark, or with another one.
    for csrf in ["", "x", &own("flow")] {
        let fields: Vec<(String, String)> = allow
            .iter()
            .map(|(name, value)| (name.clone(), if name == "csrf" { csrf.to_owned() } else { value.clone() }))
            .collect();
        assert_eq!(browser.post(&action, &fields).status(), 400, "{csrf}");
    }
    // Another answer than the two there are, another request than the one that waits.
    for (name, value) in [("decision", "maybe"), ("flow", "f_unknown")] {
        let fields: Vec<(String, String)> = allow
            .iter()
            .map(|(key, old)| (key.clone(), if key == name { value.to_owned() } else { old.clone() }))
            .collect();
        assert_eq!(browser.post(&action, &fields).status(), 400, "{name}");
    }
    assert_eq!(n_codes_given(&gateway), 0, "nothing came of all that");
    assert!(browser.post(&action, &allow).left_for.is_some(), "and the true form still counts");
}

#[test]
fn as_34_what_the_form_adds_of_its_own_is_not_looked_at() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let (mut browser, page, asked) = asked(&gateway, &client);
    let (action, mut allow) = page.filled(&[("decision", "allow")]);
    for (name, value) in
        [("redirect_uri", "https://evil.test/"), ("scope", "everything"), ("client_id", "other"), ("user", "bob")]
    {
        allow.push((name.to_owned(), value.to_owned()));
    }

    let back = browser.post(&action, &allow).callback();

    assert!(back.starts_with(&client.redirect_uri), "{back}");
    let tokens = Tokens::of(&token(&gateway, &client.redeem(&parameter(&back, "code").unwrap(), &asked.verifier)));
    assert_eq!(tokens.answer["scope"], json!("mcp"));
}

#[test]
fn a_form_that_is_sent_twice_gives_one_code_and_another_answer_afterwards_none() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let (mut browser, page, asked) = asked(&gateway, &client);
    let (action, allow) = page.filled(&[("decision", "allow")]);
    let deny: Vec<(String, String)> = allow
        .iter()
        .map(|(name, value)| (name.clone(), if name == "decision" { "deny".to_owned() } else { value.clone() }))
        .collect();

    let (one, two) = (browser.post(&action, &allow).callback(), browser.post(&action, &allow).callback());

    assert_eq!(one, two);
    assert_eq!(browser.post(&action, &deny).status(), 400);
    assert_eq!(browser.get(&page.target).status(), 400, "back: it says that it was answered");
    Tokens::of(&token(&gateway, &client.redeem(&parameter(&one, "code").unwrap(), &asked.verifier)));
}

#[test]
fn as_35_who_said_yes_is_asked_again_only_for_something_new() {
    let rules = "- { name: base, tools: [\"up/*\"], allow: {} }\n- { name: more, tools: [\"up/wipe\"], who: { scopes: [wipe] }, allow: {} }";
    let Gate { gateway, .. } = Gate::with_rules(rules);
    let about = json!({ "redirect_uris": ["https://app.example/cb", "https://other.example/cb"] });
    let client = Client::register_as(&gateway, &about);
    let mut browser = Browser::new(gateway.agent);
    browser.authorize(&client.ask(&gateway, "up").url(), "alice", &password("alice"), "allow");
    let mut is_asked = |asked: crate::support::oauth::Asked| browser.get(&asked.url()).left_for.is_none();

    assert!(!is_asked(client.ask(&gateway, "up")));
    assert!(is_asked(client.ask(&gateway, "up").with("scope", "mcp wipe")), "a further scope");
    assert!(is_asked(client.ask(&gateway, "up").with("redirect_uri", "https://other.example/cb")), "another host");
    assert!(is_asked(client.ask(&gateway, "up").with("prompt", "consent")), "the client wants it");
    assert!(!is_asked(client.ask(&gateway, "up")));
}

#[test]
fn the_question_can_be_answered_as_somebody_else() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let (mut browser, page, asked) = asked(&gateway, &client);
    let link = page.text().split("href=\"").find_map(|rest| {
        rest.split_once('"').map(|(href, _)| href.to_owned()).filter(|href| href.starts_with("/login?flow="))
    });

    let login = browser.get(&link.expect("there is a link"));
    let question = browser.submit(&login, &[("username", "bob"), ("password", &password("bob"))]);

    assert!(question.text().contains("bob") && !question.text().contains("alice"));
    let back = browser.submit(&question, &[("decision", "allow")]).callback();
    Tokens::of(&token(&gateway, &client.redeem(&parameter(&back, "code").unwrap(), &asked.verifier)));
    let given = gateway.audit().into_iter().find(|record| record["event"] == "consent.given").unwrap();
    assert_eq!(given["principal"]["subject"], json!("user:bob"), "{given}");
}
