//! `portcullis approvals`: held calls at the terminal.

use super::beside::{Beside, call};
use crate::support::gateway::{Launch, in_front_of, password};
use crate::support::process::Finished;
use portcullis::approval::{Verdict, hex};
use serde_json::{Value, json};
use std::fs;

const RULES: &str = r#"- { name: risky, tools: ["up/danger"], hold: { approvers: { groups: [admins] } } }"#;

fn launch() -> Launch {
    let launch = Launch::new(&format!("listen: 127.0.0.1:8399\n{}", in_front_of("http://127.0.0.1:1/mcp", RULES)));
    for user in ["alice", "bob"] {
        fs::write(launch.path(user), password(user)).expect("the folder is ours");
    }
    fs::write(launch.path("wrong"), "not the password").expect("the folder is ours");
    launch
}

/// A command, as this person with this password.
#[track_caller]
fn as_person(launch: &Launch, person: &str, password: &str, arguments: &[&str]) -> Finished {
    let file = launch.path(password);
    let by = ["--as", person, "--password-file", file.to_str().expect("temporary paths are UTF-8")];
    launch.cli(&[&["approvals"], arguments, &by].concat())
}

#[track_caller]
fn refused(finished: &Finished, code: i32, says: &str) {
    assert_eq!(finished.status.code(), Some(code), "{finished:#?}");
    assert!(finished.stderr.contains(says), "{says:?} is not said: {finished:#?}");
}

/// The records of the audit log that are about held calls.
fn audited(launch: &Launch) -> Vec<Value> {
    let segments = fs::read_dir(launch.path("data/audit")).expect("there is a log");
    let mut files: Vec<_> = segments.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "jsonl"));
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).expect("readable")).collect();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    records.filter(|record| record["approval"].is_string()).collect()
}

#[test]
fn a_held_call_is_listed_shown_and_approved_at_the_terminal() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let held = beside.hold(&call(r#"{"path":"/tmp/a","n":1}"#));
    let digest = hex(&held.digest);

    let listed = launch.cli(&["approvals", "list"]).success().stdout;
    let shown = launch.cli(&["approvals", "show", &held.id]).success().stdout;
    let approved = as_person(&launch, "alice", "alice", &["approve", &held.id, "--digest", &digest]).success();

    assert!(listed.starts_with(&format!("{}\tpending\tuntil ", held.id)), "{listed}");
    assert!(listed.ends_with("\tuser:bob\tcli\tup/danger\trisky\n"), "{listed}");
    for line in [
        "  calls     up/danger",
        "  who       user:bob of http://127.0.0.1:1",
        "  held by   rule risky",
        "  approvers 1 of group admins",
        "arguments: object, 2 members",
        "  n: number\n    | 1\n",
        "  path: string, 6 bytes\n    | /tmp/a\n",
    ] {
        assert!(shown.contains(line), "{line:?} is not in {shown}");
    }
    assert!(shown.replace([' ', '\n'], "").contains(&format!("digest{digest}")), "{shown}");
    assert!(approved.stdout.contains("    | /tmp/a\n"), "what is approved is shown: {}", approved.stdout);
    assert!(approved.stdout.ends_with(&format!("\n{} approved by alice\n", held.id)), "{}", approved.stdout);
    assert_eq!(beside.state(&held), "approved");
    let said = &audited(&launch).into_iter().find(|record| record["event"] == "approval.decided").expect("recorded");
    assert_eq!((&said["via"], &said["digest"]), (&json!("cli"), &json!(digest)));

    let records = launch.cli(&["audit", "show", &held.id]).success().stdout;
    for word in ["approval.requested", "approval.decided", "subject user:alice", "via               cli"] {
        assert!(records.contains(word), "{word:?} is not in {records}");
    }
}

#[test]
fn nobody_approves_without_the_whole_digest_or_by_part_of_an_id_or_all_at_once() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let held = beside.hold(&call(r#"{"path":"/tmp/a"}"#));
    let digest = hex(&held.digest);
    let approve = |more: &[&str]| as_person(&launch, "alice", "alice", &[&["approve"], more].concat());

    refused(&approve(&[&held.id]), 2, "no terminal to ask at: write --digest");
    refused(&approve(&[&held.id, "--digest", &digest[..12]]), 2, "all 64 digits");
    refused(
        &approve(&[&held.id, "--digest", &digest.replace(|c: char| c.is_ascii_digit(), "e")]),
        1,
        "look at it again",
    );
    refused(&approve(&[&held.id[..8], "--digest", &digest]), 1, "there is no held call");
    refused(&approve(&["--all", "--digest", &digest]), 2, "--all");
    refused(&approve(&[&held.id, &held.id, "--digest", &digest]), 2, "");
    assert_eq!(beside.state(&held), "pending");

    approve(&[&held.id, "--digest", &digest]).success();
    assert_eq!(beside.state(&held), "approved");
}

#[test]
fn a_change_takes_the_password_of_a_person_who_may_and_refusals_are_recorded() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let held = beside.hold(&call(r#"{"path":"/tmp/a"}"#));
    let digest = hex(&held.digest);
    let approve = |person, password| as_person(&launch, person, password, &["approve", &held.id, "--digest", &digest]);

    refused(&launch.cli(&["approvals", "deny", &held.id]), 2, "--as");
    refused(&launch.cli(&["approvals", "deny", &held.id, "--as", "alice"]), 2, "--password-file");
    refused(&approve("alice", "wrong"), 1, "wrong");
    refused(&approve("nobody", "alice"), 1, "wrong");
    refused(&approve("bob", "bob"), 1, "not among its approvers");
    assert_eq!(beside.state(&held), "pending");
    let words: Vec<_> = audited(&launch).iter().filter_map(|it| it["code"].as_str().map(str::to_owned)).collect();
    assert_eq!(words, ["approval.not_entitled"]);

    let denied = as_person(&launch, "alice", "alice", &["deny", &held.id, "--reason", "not on a friday"]);
    assert_eq!(denied.success().stdout, format!("{} denied by alice\n", held.id));
    assert_eq!(beside.now(&held).note.as_deref(), Some("not on a friday"));
    refused(&approve("alice", "alice"), 1, "it is denied already");
    as_person(&launch, "alice", "alice", &["reopen", &held.id]).success();
    assert_eq!(beside.state(&held), "pending");
    as_person(&launch, "bob", "bob", &["withdraw", &held.id]).success();
    assert_eq!(beside.state(&held), "withdrawn", "the requester may");
}

#[test]
fn a_lost_call_is_resolved_by_a_persons_word() {
    let launch = launch();
    let held = {
        let beside = Beside::of(&launch);
        let held = beside.hold(&call("{}"));
        beside.decide(&held, Verdict::Approve);
        beside.consume(&held);
        held
    };
    let beside = Beside::of(&launch);
    let watching = beside.runtime.spawn(beside.approvals.clone().watch());
    crate::support::wait_for("it to be found lost", || beside.state(&held) == "indeterminate");
    watching.abort();

    refused(&as_person(&launch, "alice", "alice", &["resolve", &held.id]), 2, "--ran");
    refused(&as_person(&launch, "bob", "bob", &["resolve", &held.id, "--ran"]), 1, "not among its approvers");
    let resolved = as_person(&launch, "alice", "alice", &["resolve", &held.id, "--did-not-run"]).success();

    assert_eq!(resolved.stdout, format!("{} failed: alice says that it did not run\n", held.id));
    assert_eq!(beside.state(&held), "failed");
}

/// A-19, A-18, A-27: what strangers write speaks to no terminal, hides nothing, and is whole.
#[test]
fn what_is_shown_is_inert_and_whole_and_masked_values_are_not_shown() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let evil = "\\u001b[2J\\r\\u202e\\u200b\\u009b31m";
    let long = "x".repeat(300_000);
    let arguments =
        format!(r#"{{"k\u001b\u202ey":"{evil}","long":"{long}END","pin":"hunter2","deep":{{"pin":["hunter3"]}}}}"#);
    let mut wish = call(&arguments);
    wish.tool = "danger";
    wish.terms.mask = ["/pin".to_owned(), "/deep/pin".to_owned()].into();
    let held = beside.hold(&wish);

    let shown = launch.cli(&["approvals", "show", &held.id]).success().stdout;
    let json = launch.cli(&["approvals", "show", &held.id, "--json"]).success().stdout;
    let listed = launch.cli(&["approvals", "list", "--json"]).success().stdout;

    let is_inert = |text: &str| !text.chars().any(|c| c.is_control() && c != '\n' || "\u{202e}\u{200b}".contains(c));
    assert!(is_inert(&shown) && json.is_ascii() && is_inert(&json) && listed.is_ascii());
    assert!(shown.contains("| ⟦U+001B⟧[2J⟦U+000D⟧⟦U+202E⟧⟦U+200B⟧⟦U+009B⟧31m\n"), "{}", &shown[..2000]);
    assert!(shown.contains("\"k⟦U+001B⟧⟦U+202E⟧y\": string"), "{}", &shown[..2000]);
    let x_and_end: usize = shown.matches('x').count();
    assert!(x_and_end >= 300_000 && shown.contains("END"), "{x_and_end}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "no line is left to the terminal to break");
    for text in [&shown, &json] {
        assert!(!text.contains("hunter") && text.contains("[masked, 7 bytes, tag "), "{}", &text[..2000]);
    }
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["arguments"]["long"].as_str().map(str::len), Some(300_003));
    assert_eq!(json["masked"], json!(["/deep/pin", "/pin"]));
    assert_eq!((&json["id"], &json["state"]), (&json!(&*held.id), &json!("pending")));
}

#[test]
fn watch_prints_what_waits_and_what_becomes_of_it() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let first = beside.hold(&call(r#"{"n":1}"#));
    let mut watching = launch.spawn("the watcher", &["approvals", "watch"]);
    assert_eq!(watching.line(&format!("{}\t", first.id)).map(|it| it.starts_with("pending\t")), Ok(true));

    let second = beside.hold(&call(r#"{"n":2}"#));
    assert_eq!(watching.line(&format!("{}\t", second.id)).map(|it| it.starts_with("pending\t")), Ok(true));
    beside.decide(&second, Verdict::Deny);
    assert_eq!(watching.line(&format!("{}\t", second.id)).map(|it| it.starts_with("denied\t")), Ok(true));
}

/// A-26, with a terminal: what would run is shown, and the end of its digest is typed.
#[test]
fn at_a_terminal_the_last_six_digits_are_typed() {
    let launch = launch();
    let beside = Beside::of(&launch);
    let held = beside.hold(&call(r#"{"path":"/tmp/a"}"#));
    let digest = hex(&held.digest);
    let typed = |text: &str| {
        let words = ["approvals", "approve", &held.id, "--as", "alice", "--password-file", "alice"];
        launch.at_terminal(&words, &format!("{text}\n"))
    };

    let refused = typed("000000");
    assert_ne!(refused.status.code(), Some(0), "{refused:#?}");
    assert!(refused.stdout.contains("these are not its last 6 digits"), "{refused:#?}");
    assert_eq!(beside.state(&held), "pending");

    let approved = typed(&digest[58..]);
    assert!(approved.status.success(), "{approved:#?}");
    let (shown, asked) = approved.stdout.split_once("To let this run, type the last 6 digits").expect("it asks");
    assert!(shown.contains("| /tmp/a") && asked.contains("approved by alice"), "{}", approved.stdout);
    assert_eq!(beside.state(&held), "approved");
}
