//! Held calls in JSON, for programs of approvers.

use super::held::{Holder, Wish, gateway, logged_in, password_of, path, recorded};
use super::page::COMMAND;
use crate::support::browser::Browser;
use crate::support::gateway::Gateway;
use crate::support::http::{Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis::store::{Approval, ApprovalState};
use serde_json::{Value, json};

fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

fn digest(held: &Approval) -> String {
    held.digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn say(gateway: &Gateway, held: &Approval, verb: &str, headers: &[(&str, &str)], body: &Value) -> Response {
    let request = Request::post(&format!("/api{}/{verb}", path(held))).header("Content-Type", "application/json");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
    request.body(body.to_string()).send(gateway.admin.expect("there is an admin listener"))
}

fn cookies(browser: &Browser) -> String {
    browser.cookies().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_program_with_a_persons_password_lists_reads_and_decides() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let mut wish = Wish::of(COMMAND).found("recursive delete", "/command");
    wish.terms.mask.insert("/timeout".to_owned());
    let held = holder.hold(&wish);
    let auth = basic("alice", &password_of("alice"));
    let get = |target: &str| Request::get(target).header("Authorization", &auth).send(gateway.admin.unwrap()).json();

    let list = get("/api/approvals");
    assert_eq!(list["approvals"][0]["id"], *held.id);
    assert_eq!(list["approvals"][0]["digest"], digest(&held));
    let one = get(&format!("/api{}", path(&held)));
    let arguments: Value = serde_json::from_str(one["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["command"], "cd /srv/app/build && rm -rf -- *\nmake install");
    assert!(arguments["timeout"].as_str().unwrap().starts_with("[masked, 2 bytes, tag "), "{arguments}");
    assert_eq!(one["signals"], json!([{ "signal": "recursive delete", "at": "/command" }]));

    let body = json!({ "digest": digest(&held), "reason": "use the trash" });
    let denied = say(&gateway, &held, "deny", &[("Authorization", &auth)], &body);
    assert_eq!((denied.status, denied.json()["state"].as_str()), (200, Some("denied")), "{}", denied.text());
    assert_eq!(denied.json()["note"], "use the trash");
    let body = json!({ "digest": digest(&held) });
    assert_eq!(say(&gateway, &held, "reopen", &[("Authorization", &auth)], &body).status, 200);
    let approved = say(&gateway, &held, "approve", &[("Authorization", &auth)], &body);
    assert_eq!(approved.json()["decisions"][0]["via"], "api");
    assert_eq!(holder.state(&held), ApprovalState::Approved);
    assert_eq!(say(&gateway, &held, "withdraw", &[("Authorization", &auth)], &body).status, 200);
    assert_eq!(holder.state(&held), ApprovalState::Withdrawn);
}

#[test]
fn a_wrong_password_is_refused_at_the_pace_of_a_login_and_written_down() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let body = json!({ "digest": digest(&held) });

    let wrong = basic("alice", "wrong");
    let statuses: Vec<u16> =
        (0..7).map(|_| say(&gateway, &held, "approve", &[("Authorization", &wrong)], &body).status).collect();

    assert_eq!((statuses.first(), statuses.last()), (Some(&401), Some(&429)), "{statuses:?}");
    recorded(&gateway, "login.failed", "login.wrong");
    for bad in ["Basic", "Basic %%%", "Basic YWxpY2U="] {
        assert_eq!(say(&gateway, &held, "approve", &[("Authorization", bad)], &body).status, 401, "{bad}");
    }
    assert_eq!(say(&gateway, &held, "approve", &[], &body).status, 401);
    assert_eq!(holder.state(&held), ApprovalState::Pending);
    let right = basic("carol", &password_of("carol"));
    assert_eq!(say(&gateway, &held, "approve", &[("Authorization", &right)], &body).status, 200);
}

#[test]
fn a_session_needs_its_mark_and_over_plain_http_the_password() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let cookie = cookies(&logged_in(&gateway, "alice"));
    let csrf =
        Request::get("/api/approvals").header("Cookie", &cookie).send(gateway.admin.unwrap()).json()["csrf"].clone();
    let csrf = csrf.as_str().expect("a mark");
    let (bare, full) =
        (json!({ "digest": digest(&held) }), json!({ "digest": digest(&held), "password": password_of("alice") }));
    let of_session = [("Cookie", &*cookie), ("X-CSRF-Token", csrf)];

    assert_eq!(say(&gateway, &held, "approve", &[("Cookie", &cookie)], &full).status, 403);
    assert_eq!(say(&gateway, &held, "approve", &[("Cookie", &cookie), ("X-CSRF-Token", "x")], &full).status, 403);
    let needs = say(&gateway, &held, "approve", &of_session, &bare);
    assert_eq!((needs.status, needs.json()["error"].as_str()), (403, Some("approval.needs_password")));
    recorded(&gateway, "approval.refused", "approval.needs_password");
    let typed = Request::post(&format!("/api{}/approve", path(&held))).header("Content-Type", "text/plain");
    let typed = of_session.iter().fold(typed, |request, (name, value)| request.header(name, value));
    assert_eq!(typed.body(full.to_string()).send(gateway.admin.unwrap()).status, 400);
    assert_eq!(holder.state(&held), ApprovalState::Pending);
    assert_eq!(say(&gateway, &held, "approve", &of_session, &full).status, 200);
    assert_eq!(holder.state(&held), ApprovalState::Approved);
}

#[test]
fn what_does_not_fit_is_said_with_a_code_and_changes_nothing() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let held = holder.hold(&Wish::of(COMMAND));
    let alice = basic("alice", &password_of("alice"));
    let bob = basic("bob", &password_of("bob"));
    let of = |auth: &str, verb: &str, body: Value| {
        let response = say(&gateway, &held, verb, &[("Authorization", auth)], &body);
        (response.status, response.json()["error"].as_str().unwrap_or_default().to_owned())
    };
    let good = json!({ "digest": digest(&held) });

    for (auth, verb, body, expected) in [
        (&alice, "approve", json!({ "digest": "00" }), (400, "invalid_request")),
        (&alice, "approve", json!({ "digest": "0".repeat(64) }), (409, "approval.digest")),
        (&alice, "approve", json!({ "digest": digest(&held), "approved": true }), (400, "invalid_request")),
        (&alice, "explode", good.clone(), (404, "approval.unknown")),
        (&alice, "resolve", good.clone(), (400, "invalid_request")),
        (&alice, "resolve", json!({ "digest": digest(&held), "ran": true }), (409, "approval.decided")),
        (&alice, "reopen", good.clone(), (409, "approval.decided")),
        (&bob, "approve", good.clone(), (403, "approval.not_entitled")),
    ] {
        assert_eq!(of(auth, verb, body), (expected.0, expected.1.to_owned()), "{verb}");
    }
    assert_eq!(holder.state(&held), ApprovalState::Pending);
    assert_eq!(of(&alice, "approve", good), (200, String::new()));
}

#[test]
fn changes_are_told_to_an_open_list_and_a_session_that_ends_ends_it() {
    let gateway = gateway("");
    let holder = Holder::of(&gateway);
    let admin = gateway.admin.unwrap();
    let mut browser = logged_in(&gateway, "alice");
    let cookie = cookies(&browser);
    let stranger = Request::get("/events").send(admin);
    assert_eq!(stranger.status, 204);

    let mut connection = crate::support::http::Connection::open(admin);
    connection.send(&Request::get("/events").header("Cookie", &cookie).to_bytes(&admin.to_string()));
    let mut stream = connection.streaming();
    assert_eq!(stream.event().expect("a first word").event, "changed");
    holder.hold(&Wish::of(COMMAND));
    assert_eq!(stream.event().expect("a change").event, "changed");
    let (logout, fields) = browser.get("/").logout();
    browser.post(&logout, &fields);
    holder.hold(&Wish::of(r#"{"command":"rm other"}"#));
    while stream.event().is_some() {}
}
