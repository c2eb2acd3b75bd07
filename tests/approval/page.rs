//! The page of approvals, as people use it: in a real browser, and in one without scripts.

use super::held::{Holder, Wish, decide, gateway, logged_in, password_of, path};
use crate::support::chromium::{Look, Window};
use portcullis::store::ApprovalState;

const COMMAND: &str = r#"{"command":"cd /srv/app/build && rm -rf -- *\nmake install","timeout":30}"#;

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
    window.shot("approval-desk");
    for text in ["up/run_command", "user:bob", "recursive delete", "rm -rf -- *", "0 of 1", "deletes are looked at"] {
        assert!(page.text.contains(text), "{text} is in {}", page.text);
    }
    assert_eq!(page.focused, "", "nothing has the keyboard");
    window.fill("Your password", &password_of("alice"));
    let page = window.press("Approve, once");
    assert!(page.heading.starts_with("Approved"), "{page:?}");
    assert_eq!(holder.state(&held), ApprovalState::Approved);
    window.shot("approval-approved-desk");
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
}
