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
    assert_eq!(n_codes_given(&gateway), 1, "one decision, one record");
    assert_eq!(browser.get(&page.target).status(), 400, "back: it says that it was answered");
    let tokens = Tokens::of(&token(&gateway, &client.redeem(&parameter(&one, "code").unwrap(), &asked.verifier)));
    assert_eq!(browser.post(&action, &allow).status(), 400, "a used code is not given again");
    assert_eq!(status_with(&gateway, &tokens.access), 200);
}

#[test]
fn as_35_who_said_yes_is_asked_again_only_for_something_new() {
    let rules = "- { name: base, tools: [\"up/*\"], allow: {} }\n- { name: more, tools: [\"up/wipe\"], who: { scopes: [wipe] }, allow: {} }";
    let Gate { gateway, .. } = Gate::with_rules(rules);
    let about = json!({ "redirect_uris": ["https://app.example/cb", "https://other.example/cb"] });
    let client = Client::register_as(&gateway, &about);
    let mut browser = Browser::new(gateway.agent);
    client.let_in(&gateway, &mut browser, "alice", &client.ask(&gateway, "up"));
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

/// A client at an address of its own, which alice has let in, and her browser.
fn let_in(gateway: &Gateway) -> (Client, Browser, Tokens) {
    let client = Client::register_as(gateway, &json!({ "redirect_uris": ["https://app.example/cb"] }));
    let mut browser = Browser::new(gateway.agent);
    let tokens = client.let_in(gateway, &mut browser, "alice", &client.ask(gateway, "up"));
    assert!(browser.get(&client.ask(gateway, "up").url()).left_for.is_some(), "she is not asked again");
    (client, browser, tokens)
}

#[test]
fn a_yes_is_over_with_its_grant_however_that_ended() {
    let Gate { gateway, .. } = gate("");
    let file = gateway.password_file("alice");
    let file = file.to_str().expect("temporary paths are UTF-8");
    for way in ["by the client", "at the terminal"] {
        let (client, mut browser, tokens) = let_in(&gateway);
        match way {
            "by the client" => {
                let form = client.form(&[("token", tokens.refresh.as_deref().expect("it has one"))]);
                assert_eq!(crate::support::oauth::post_form(&gateway, "/revoke", &form).status, 200);
            }
            _ => {
                let revoke = ["token", "revoke", &tokens.access, "--as", "alice", "--password-file", file];
                gateway.cli(&revoke).success();
            }
        }
        // The code that was given when she was not asked again was never used.
        assert!(browser.get(&client.ask(&gateway, "up").url()).has_field("flow"), "{way}: she is asked");
    }
}

#[test]
fn a_yes_is_over_with_the_password_it_was_given_under() {
    let recorder = crate::support::recorder::Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, super::RULES);
    let (client, mut browser, _) = let_in(&gateway);
    let identity = crate::support::gateway::IDENTITY;
    let hash_of = |name: &str| {
        let user = identity.split("name: ").find(|user| user.starts_with(name)).unwrap();
        user.split('"').find(|part| part.starts_with("$argon2id")).unwrap()
    };
    let changed = identity.replace(hash_of("alice"), hash_of("bob"));
    let base = crate::support::gateway::in_front_of(&recorder.url(), super::RULES);
    gateway.rewrite(&format!("{changed}{base}"));
    gateway.reload().success();

    let login = browser.get(&client.ask(&gateway, "up").url());
    let page = browser.submit(&login, &[("username", "alice"), ("password", &password("bob"))]);

    assert!(page.has_field("flow"), "she is asked: {}", page.text());
}

#[test]
fn a_no_takes_back_an_earlier_yes() {
    let Gate { gateway, .. } = gate("");
    let (client, mut browser, _) = let_in(&gateway);
    let page = browser.get(&client.ask(&gateway, "up").with("prompt", "consent").url());
    browser.submit(&page, &[("decision", "deny")]);

    assert!(browser.get(&client.ask(&gateway, "up").url()).has_field("flow"));
}

#[test]
fn tabs_that_were_opened_at_the_same_moment_all_get_there() {
    let Gate { gateway, .. } = gate("");
    let client = Client::register(&gateway);
    let (one, two) = (client.ask(&gateway, "up"), client.ask(&gateway, "up"));
    // Neither has the other's cookie yet.
    let mut browser = Browser::new(gateway.agent);
    let mut elsewhere = Browser::new(gateway.agent);
    let (login_one, login_two) = (browser.get(&one.url()), elsewhere.get(&two.url()));
    for (name, value) in elsewhere.cookies() {
        browser.set_cookie(name, value);
    }
    let right = [("username", "alice"), ("password", &*password("alice"))];

    let (page_one, page_two) = (browser.submit(&login_one, &right), browser.submit(&login_two, &right));

    for (page, asked) in [(page_two, two), (page_one, one)] {
        let back = browser.submit(&page, &[("decision", "allow")]).callback();
        Tokens::of(&token(&gateway, &client.redeem(&parameter(&back, "code").unwrap(), &asked.verifier)));
    }
}
