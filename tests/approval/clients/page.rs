//! The page of a held call, for the person it was asked for.

use super::super::decide::{approve, id, only, wait_for_state};
use super::{PUBLIC_URL, start};
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, password};
use crate::support::http::Connection;
use crate::support::recorder::Recorder;
use serde_json::{Value, json};

/// A browser that knows the gateway by its public URL.
fn browser(gateway: &Gateway) -> Browser {
    let address = gateway.agent;
    Browser::at(PUBLIC_URL, move || Connection::open(address))
}

/// Logs in on the way to this page.
#[track_caller]
fn visit(browser: &mut Browser, path: &str, user: &str) -> crate::support::browser::Page {
    let page = browser.get(path);
    assert!(page.has_field("password"), "{}", page.text());
    browser.submit(&page, &[("username", user), ("password", &password(user))])
}

fn held(gateway: &Gateway) -> Value {
    gateway.agent("alice", "up").modern().tool("danger", json!({ "secret": "rosebud" })).refusal();
    only(gateway)
}

#[test]
fn the_requester_sees_where_the_call_stands_and_can_withdraw_it() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 1s");
    let held = held(&gateway);
    let path = format!("/holds/{}", id(&held));
    let mut browser = browser(&gateway);

    let page = visit(&mut browser, &path, "alice");

    let text = page.text();
    for said in ["Waits for approval", "danger", "bob", id(&held), "cli"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("rosebud"), "its arguments are for who decides");
    assert!(page.response.header("refresh").is_some());
    let page = browser.submit(&page, &[("decision", "withdraw")]);
    assert!(page.text().contains("Withdrawn") && !page.has_field("decision"), "{}", page.text());
    let ended = wait_for_state(&gateway, id(&held), "withdrawn");
    assert_eq!(ended["note"], "withdrawn by alice");
    assert!(gateway.audit().iter().any(|record| record["via"] == "status page" && record["outcome"] == "withdrawn"));
    assert!(recorder.calls().is_empty());
}

#[test]
fn to_everybody_else_there_is_no_such_page_and_looking_changes_nothing() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 1s");
    let held = held(&gateway);
    let path = format!("/holds/{}", id(&held));
    let mut bob = browser(&gateway);

    // An approver, even: this is not where that is done.
    let foreign = visit(&mut bob, &path, "bob");
    let unknown = bob.get("/holds/h_5nOqRk3s0cVvIwYQe7cH3g");

    let plain = |text: String, id: &str| text.replace(id, "");
    assert_eq!((foreign.status(), unknown.status()), (404, 404));
    let cut = |page: &crate::support::browser::Page| {
        let text = page.text();
        text.split("request").next().unwrap_or_default().to_owned()
    };
    assert_eq!(plain(cut(&foreign), id(&held)), cut(&unknown));
    assert_eq!(bob.get("/holds/..%2fgrants").status(), 404);
    // With nobody logged in, every id looks the same.
    let mut nobody = browser(&gateway);
    assert!(nobody.get(&path).has_field("password") && nobody.get("/holds/h_none").has_field("password"));

    // A form without the session's mark, or of somebody else.
    let mut alice = browser(&gateway);
    let page = visit(&mut alice, &path, "alice");
    let forged = [("csrf".to_owned(), "x".to_owned()), ("decision".to_owned(), "withdraw".to_owned())];
    assert_eq!(alice.post(&path, &forged).status(), 400);
    let (_, fields) = page.filled(&[("decision", "withdraw")]);
    assert_eq!(bob.post(&path, &fields).status(), 400);
    for _ in 0..20 {
        alice.get(&path);
    }
    assert_eq!(only(&gateway)["state"], "pending");
}

#[test]
fn what_was_decided_can_be_read_and_not_be_taken_back() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "wait: 1s");
    let held = held(&gateway);
    let path = format!("/holds/{}", id(&held));
    approve(&gateway, &held);
    gateway.agent("alice", "up").modern().tool("danger", json!({ "secret": "rosebud" })).result();
    let mut browser = browser(&gateway);

    let page = visit(&mut browser, &path, "alice");

    assert!(page.text().contains("Done") && page.text().contains("It was approved and ran"), "{}", page.text());
    assert!(page.response.header("refresh").is_none());
}
