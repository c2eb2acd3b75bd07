//! `audit verify` on the log of a real gateway: what it finds, what it says, and what an auditor elsewhere needs for it.

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::process::Finished;
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const RULES: &str = r#"
- { name: writes, tools: ["up/*"], allow: {} }
"#;

/// A gateway that has answered three calls and stopped; a command wrote beside it.
fn after_a_run(recorder: &Recorder, audit: &str) -> Gateway {
    let mut gateway = Gateway::start(&format!("{}{audit}", in_front_of(&recorder.url(), RULES)));
    let agent = gateway.agent("alice", "up");
    (0..3).for_each(|n| drop(agent.tool("add", json!({ "n": n })).result()));
    // It opens a file of its own, beside the gateway's.
    gateway.token("bob", "up");
    assert!(gateway.stop().success());
    gateway
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there").flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    files.sort();
    files
}

/// The gateway's own file, which has the most records.
fn longest(folder: &Path) -> PathBuf {
    let len = |path: &PathBuf| fs::metadata(path).expect("it is there").len();
    segments(folder).into_iter().max_by_key(len).expect("a segment")
}

#[track_caller]
fn fails(finished: &Finished, with: &str) {
    assert_eq!(finished.status.code(), Some(1), "{finished:#?}");
    assert!(finished.stderr.contains(with), "{with:?} in {finished:#?}");
}

#[test]
fn an_end_that_was_cut_off_is_found_by_the_checkpoint_that_names_it() {
    let recorder = Recorder::start();
    let gateway = after_a_run(&recorder, "");
    let sound = gateway.cli(&["audit", "verify"]).success().stdout;
    assert!(sound.contains("\nsigned: ") && !sound.contains("unsigned: "), "{sound}");
    assert!(sound.contains("not known: whether records that came after the last checkpoint"), "{sound}");

    let file = longest(&gateway.path("data/audit"));
    let text = fs::read_to_string(&file).expect("ASCII");
    let whole: Vec<_> = text.split_inclusive('\n').collect();
    fs::write(&file, whole[..whole.len() - 1].concat()).expect("the file is ours");

    let found = gateway.cli(&["audit", "verify"]);
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    fails(&found, &format!("error: {name}:{}: is missing: checkpoint ", whole.len()));
    assert!(found.stderr.contains("(audit-checkpoints.jsonl:"), "{found:#?}");
    // The hashes alone do not show it, and say so.
    gateway.cli(&["audit", "verify", "--no-checkpoints"]).success();
    let json = gateway.cli(&["audit", "verify", "--json"]);
    assert_eq!(json.status.code(), Some(1), "{json:#?}");
    let report: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((&report["sound"], &report["fault"]["file"]), (&json!(false), &json!(name)), "{report}");
    assert_eq!(report["fault"]["line"], whole.len(), "{report}");

    fs::write(&file, text).expect("the file is ours");
    let json = gateway.cli(&["audit", "verify", "--json"]).success();
    let report: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((&report["sound"], &report["fault"]), (&json!(true), &Value::Null), "{report}");
    assert_eq!(report["unsigned"], json!([]), "{report}");
}

#[test]
fn an_auditor_needs_the_log_the_checkpoints_and_the_public_key_and_no_configuration() {
    let recorder = Recorder::start();
    let gateway = after_a_run(&recorder, "audit: { checkpoints: { file: second/checkpoints.jsonl } }\n");
    // Its folder was not there: nothing is made where a disk may be missing.
    assert!(!gateway.path("second").exists());
    let unsigned = gateway.cli(&["audit", "verify"]);
    fails(&unsigned, "is missing: the log is signed from ");

    fs::create_dir(gateway.path("second")).expect("the folder is ours");
    let mut gateway = gateway.restart_after_death();
    assert!(gateway.stop().success());
    let key = gateway.cli(&["audit", "key"]).success();
    assert!(key.stdout.starts_with("-----BEGIN PUBLIC KEY-----\n") && key.stderr.starts_with("key "), "{key:#?}");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let at = |name: &str| elsewhere.path().join(name).to_str().expect("UTF-8").to_owned();
    fs::create_dir(at("log")).expect("the folder is ours");
    for file in segments(&gateway.path("data/audit")) {
        fs::copy(&file, Path::new(&at("log")).join(file.file_name().expect("a name"))).expect("copied");
    }
    fs::copy(gateway.path("second/checkpoints.jsonl"), at("checkpoints.jsonl")).expect("copied");
    fs::write(at("key.pem"), &key.stdout).expect("written");

    let (log, checkpoints, pem) = (at("log"), at("checkpoints.jsonl"), at("key.pem"));
    let arguments = ["audit", "verify", "--log", &log, "--checkpoints", &checkpoints, "--key", &pem];
    let verified = gateway.cli(&arguments).success().stdout;
    assert!(verified.contains("\nsigned: "), "{verified}");
    let no_key = gateway.cli(&arguments[..6]);
    assert_eq!(no_key.status.code(), Some(2), "{no_key:#?}");
    let other = portcullis::audit::Signer::new(&[1; 32]).public().pem();
    fs::write(at("key.pem"), other).expect("written");
    fails(&gateway.cli(&arguments), "checkpoints.jsonl:1: is signed with key ");
}

#[test]
fn a_checkpoint_can_be_checked_without_us() {
    let recorder = Recorder::start();
    let gateway = after_a_run(&recorder, "");
    let pem = gateway.cli(&["audit", "key"]).success().stdout;
    let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let der = STANDARD.decode(base64).expect("base64");
    let key = UnparsedPublicKey::new(&ED25519, &der[der.len() - 32..]);

    let text = fs::read_to_string(gateway.path("data/audit-checkpoints.jsonl")).expect("ASCII");
    let mut prev = "0".repeat(64);
    for line in text.lines() {
        let checkpoint: Value = serde_json::from_str(line).expect("JSON");
        let signature = checkpoint["signature"].as_str().expect("a signature");
        let signed = line.replace(&format!(",\"signature\":\"{signature}\""), "");
        let message = format!("portcullis/audit/checkpoint/v1\n{signed}");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        key.verify(message.as_bytes(), &signature).unwrap_or_else(|_| panic!("the signature of {line}"));
        assert_eq!(checkpoint["prev"], prev.as_str());
        prev = digest(&SHA256, line.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let file = gateway.path("data/audit").join(checkpoint["file"].as_str().expect("a name"));
        let log = fs::read_to_string(file).expect("it is there");
        let record = format!("\"hash\":{}}}", checkpoint["hash"]);
        assert_eq!(log.lines().filter(|line| line.ends_with(&record)).count(), 1, "{line}");
    }
    assert!(text.lines().count() >= 2, "{text}");
}

#[test]
fn checkpoints_that_cannot_be_written_refuse_no_call_and_are_tried_again() {
    let recorder = Recorder::start();
    let audit = "audit: { checkpoints: { file: second/checkpoints.jsonl } }\nmetrics: { listen: 127.0.0.1:0 }\n";
    let yaml = format!("{}{audit}", in_front_of(&recorder.url(), RULES));
    let mut gateway = Gateway::start(&yaml);
    gateway.wait_for_metric("portcullis_audit_checkpoints_total{result=\"failed\"}", 1.0);
    gateway.agent("alice", "up").tool("add", json!({})).result();
    gateway.wait_for_log("an audit checkpoint cannot be written");

    fs::create_dir(gateway.path("second")).expect("the folder is ours");

    gateway.wait_for_metric("portcullis_audit_checkpoints_total{result=\"written\"}", 1.0);
    gateway.wait_for_log("audit checkpoints can be written again");
    assert!(gateway.stop().success());
    let verified = gateway.cli(&["audit", "verify"]).success().stdout;
    assert!(verified.contains("\nsigned: "), "{verified}");
}

#[test]
fn what_a_kill_left_unsigned_is_said_and_signed_by_the_next_start() {
    let recorder = Recorder::start();
    let yaml = format!("public_url: http://localhost:8080\n{}", in_front_of(&recorder.url(), RULES));
    let gateway = Gateway::start(&yaml);
    let agent = gateway.agent("alice", "up");
    (0..3).for_each(|n| drop(agent.tool("add", json!({ "n": n })).result()));
    let verified = gateway.cli(&["audit", "verify"]).success().stdout;
    assert!(verified.contains("unsigned: records 2 to "), "{verified}");

    let mut gateway = gateway.crash_and_restart();

    wait_for("a checkpoint of the new process", || {
        !gateway.cli(&["audit", "verify"]).success().stdout.contains("unsigned: records 2 to ")
    });
    assert!(gateway.stop().success());
    let verified = gateway.cli(&["audit", "verify"]).success().stdout;
    assert!(!verified.contains("unsigned: "), "{verified}");
}
