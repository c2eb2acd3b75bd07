//! nobody to decide, nobody to tell, or no way to find them is a configuration that does not start, and does not come
//! into force.

use super::hooks::{config, hook, make_private, with_secret};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::recorder::Recorder;

const ADMIN: &str = "admin: { listen: 127.0.0.1:0 }\n";

#[track_caller]
fn refuses_to_start(yaml: &str, says: &str) {
    let launch = with_secret(Launch::new(yaml));
    let checked = launch.cli(&["check"]);
    assert_eq!(checked.status.code(), Some(2), "{checked:#?}");
    assert!(checked.stderr.contains(says), "{says:?} is not said: {}", checked.stderr);
    let said = launch.try_start().err().expect("it must not start");
    assert!(said.contains(says), "{says:?} is not said: {said}");
}

fn held(who: &str, hold: &str) -> String {
    in_front_of("http://127.0.0.1:1/mcp", &format!("- {{ name: risky, tools: [\"up/*\"], {who} hold: {hold} }}"))
}

#[test]
fn a_13_a_hold_that_nobody_could_approve_does_not_start() {
    refuses_to_start(
        &held("", "{ approvers: { groups: [nobody] } }"),
        "nobody known here could approve what rule `risky` holds",
    );
    refuses_to_start(
        &held("who: { users: [alice] },", "{ approvers: { users: [alice] } }"),
        "only `alice` could approve what rule `risky` holds, and only `alice` can ask for it",
    );
    refuses_to_start(
        &held("", "{ approvers: { groups: [admins] }, quorum: 2 }"),
        "rule `risky` needs 2 people, and 1 could approve",
    );
    refuses_to_start(&held("", "{ approvers: { groups: [ops] }, quorum: 2 }"), "only `alice`, `bob` could approve");

    for good in [
        held("", "{ approvers: { groups: [admins] } }"),
        held("who: { users: [alice] },", "{ approvers: { users: [alice] }, self: true }"),
        held("", "{ approvers: { groups: [ops] }, quorum: 2, self: true }"),
    ] {
        drop(Launch::new(&good).start());
    }
}

#[test]
fn a_13_a_hold_that_nobody_could_approve_does_not_come_into_force() {
    let recorder = Recorder::start();
    let gateway = Gateway::in_front_of(&recorder, "- { name: rest, tools: [\"up/*\"], allow: {} }");
    let before = gateway.snapshot();
    gateway.rewrite(&held("who: { users: [bob] },", "{ approvers: { users: [bob] } }"));

    let reloaded = gateway.reload();

    assert!(!reloaded.status.success(), "{reloaded:#?}");
    assert!(reloaded.stdout.contains("only `bob` could approve"), "{reloaded:#?}");
    assert_eq!(gateway.snapshot(), before);
}

#[test]
fn webhooks_that_could_not_work_do_not_start() {
    let url = "http://127.0.0.1:1/hook";
    let with = |hooks: &[String]| config("http://127.0.0.1:1/mcp", hooks);
    let chat = |more: &str| hook("chat", url, more);

    refuses_to_start(&with(&[chat("")]).replace(ADMIN, ""), "there is no `admin` listener");
    refuses_to_start(&with(&[chat(""), chat("")]), "webhook `chat` stands twice");
    refuses_to_start(&with(&[hook("Chat!", url, "")]), "`Chat!` is no name of a webhook");
    refuses_to_start(
        &with(&[hook("chat", "http://chat.example.com/hook", "")]),
        "could be read and changed on the way",
    );
    refuses_to_start(&with(&[hook("chat", "ftp://chat.example.com", "")]), "neither `https` nor `http`");
    refuses_to_start(&with(&[chat(", timeout: 0s")]), "is not between");
    refuses_to_start(&with(&[chat(", decides_as: { user: mallory }")]), "there is no user `mallory`");
    refuses_to_start(&with(&[chat(", decides_as: { groups: [nobody] }")]), "nobody is in this group");
    refuses_to_start(&with(&[chat(", decides_as: { groups: [] }")]), "decides as nobody");
    refuses_to_start(&with(&[chat(", decides_as: { user: bob }")]), "no rule lets webhook `chat` decide");
    refuses_to_start(
        &with(&[chat("")]).replace("wait: 1s", "wait: 1s, expires: 500ms"),
        "a caller would wait for `1s`, and the call is over after `500ms`",
    );
    refuses_to_start(&with(&[chat("")]).replace("[/pin]", "[pin]"), "`pin` is no JSON Pointer");
    refuses_to_start(&with(&[chat("")]).replace("hook-secret", "no-secret"), "no-secret");
    let launch = Launch::new(&with(&[chat("")])).file("hook-secret", "whsec_c2hvcnQ=");
    make_private(&launch.path("hook-secret"));
    let said = launch.try_start().err().expect("it must not start");
    assert!(said.contains("`whsec_` and base64 of 24 to 64 bytes"), "{said}");
    assert!(!said.contains("c2hvcnQ"), "{said}");

    let good =
        [chat(", arguments: true, decides_as: { groups: [admins] }"), hook("pager", "https://pager.example.com/", "")];
    drop(with_secret(Launch::new(&with(&good))).start());
}
