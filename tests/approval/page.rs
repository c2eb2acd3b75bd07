//! The page of approvals, as people use it: in a real browser, and in one without scripts.

use super::decide::{id, only, wait_for_held};
use super::held::{Holder, Wish, decide, gateway, logged_in, password_of, path};
use crate::support::browser::Browser;
use crate::support::chromium::{Look, Window};
use crate::support::gateway::{Gateway, in_front_of, password};
use crate::support::recorder::Recorder;
use portcullis::store::ApprovalState;
use serde_json::json;
use std::thread;

/// What a command looks like that somebody should look at.
pub(crate) const COMMAND: &str = r#"{"command":"cd /srv/app/build && rm -rf -- *\nmake install","timeout":30}"#;

#[test]
fn a_person_logs_in_sees_what_would_run_and_approves_it() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND).found("recursive delete", "/command"));
    let origin = format!("http://{}", gateway.admin.unwrap());
    let Some(window) = Window::open(Look::DESK, &[&origin]) else {
        return;
    };

    window.goto(&format!("{origin}{}", path(&held)));
    window.fill("User name", "alice");
    window.fill("Password", &password_of("alice"));
    let page = window.press("Log in");

    assert!(page.url.ends_with(&path(&held)), "the login leads to the call: {}", page.url);
    for text in ["up/run_command", "user:bob", "recursive delete", "rm -rf -- *", "0 of 1", "deletes are looked at"] {
        assert!(page.text.contains(text), "{text} is in {}", page.text);
    }
    assert_eq!(page.focused, "", "nothing has the keyboard");
    window.fill("Your password", &password_of("alice"));
    let page = window.press("Approve, once");
    assert!(page.heading.starts_with("Approved"), "{page:?}");
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn enter_in_a_field_decides_nothing_and_a_button_reached_by_keyboard_does() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let origin = format!("http://{}", gateway.admin.unwrap());
    let Some(window) = Window::open(Look::DESK, &[&origin]) else {
        return;
    };
    window.goto(&format!("{origin}{}", path(&held)));
    window.fill("User name", "alice");
    window.fill("Password", &password_of("alice"));
    window.press("Log in");

    window.fill("Your password", &password_of("alice"));
    window.keys(&["Enter", "Enter"]);

    assert_eq!(holder.state(&held), ApprovalState::Pending);
    window.wait_for_button("Deny");
    let page = window.keys(&["Tab"]);
    assert_eq!(page.focused, "Deny");
    let page = window.keys(&["Tab"]);
    assert_eq!(page.focused, "Approve, once");
    window.keys_lead_on(&["Enter"]);
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn an_agents_call_is_approved_on_the_page_and_runs() {
    let recorder = Recorder::start();
    let rules = "- { name: risky, tools: [up/danger], hold: { approvers: { users: [bob] } } }";
    let text = format!(
        "admin: {{ listen: 127.0.0.1:0 }}\n{}approvals: {{ wait: 30s }}\n",
        in_front_of(&recorder.url(), rules)
    );
    let gateway = Gateway::start(&text);
    gateway.wait_until_asked("up");
    let agent = gateway.agent("alice", "up");
    let mut browser = Browser::new(gateway.admin.unwrap());
    let login = browser.get("/");
    let list = browser.submit(&login, &[("username", "bob"), ("password", &password("bob"))]);
    assert!(list.text().contains("No call waits for you"), "{}", list.text());
    let mark = recorder.mark();

    let answer = thread::scope(|scope| {
        let call = scope.spawn(|| agent.tool("danger", json!({ "path": "/tmp/a" })));
        let held = wait_for_held(&gateway, 1);
        recorder.assert_untouched(mark);
        let page = browser.get(&format!("/approvals/{}", id(&held)));
        assert!(page.text().contains("approved, it runs at once"), "{}", page.text());
        browser.submit(&page, &[("decision", "approve"), ("password", &password("bob"))]);
        call.join().expect("it is answered")
    });

    assert_eq!(answer.result()["structuredContent"], json!({ "path": "/tmp/a" }));
    assert_eq!((recorder.calls().len(), &*only(&gateway)["state"].to_string()), (1, "\"completed\""));
}

#[test]
fn the_page_works_without_a_script_and_a_denial_has_its_reason() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let mut browser = logged_in(&gateway, "alice");

    let list = browser.get("/");
    assert!(list.text().contains(&path(&held)), "{}", list.text());
    let page = browser.get(&path(&held));
    let page = browser
        .submit(&page, &[("decision", "deny"), ("reason", "use the trash"), ("password", &password_of("alice"))]);

    assert!(page.text().contains("use the trash"), "{}", page.text());
    assert_eq!(holder.state(&held), ApprovalState::Denied);
    let page = decide(&mut browser, &held, "alice", "reopen");
    assert_eq!((page.status(), holder.state(&held)), (200, ApprovalState::Pending));
    decide(&mut browser, &held, "alice", "withdraw");
    assert_eq!(holder.state(&held), ApprovalState::Withdrawn);
}

#[test]
fn the_list_shows_a_new_call_by_itself_and_reloads_where_scripts_are_off() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let origin = format!("http://{}", gateway.admin.unwrap());
    let Some(window) = Window::open(Look::DESK, &[&origin]) else {
        return;
    };
    window.goto(&origin);
    window.fill("User name", "alice");
    window.fill("Password", &password_of("alice"));
    let page = window.press("Log in");
    assert!(page.text.contains("No call waits for you"), "{}", page.text);

    holder.hold(&Wish::of(COMMAND));

    window.wait_for_link("up/run_command");
    let mut browser = logged_in(&gateway, "alice");
    let page = browser.get("/");
    assert!(page.text().contains("<noscript><meta http-equiv=\"refresh\""), "{}", page.text());
}
