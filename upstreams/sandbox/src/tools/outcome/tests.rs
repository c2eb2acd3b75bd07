//! How an outcome is told.

use super::*;
use crate::confine::Captured;
use serde_json::{Value, json};

const LIMITS: Limits = Limits { timeout: Duration::from_secs(60), memory: 1 << 30, quota: 2 << 30 };

fn outcome(end: End, stdout: Captured, stderr: &str) -> Outcome {
    let stderr = captured(stderr.as_bytes());
    Outcome { end, stdout, stderr, elapsed: Duration::from_micros(1_234_567) }
}

fn captured(bytes: &[u8]) -> Captured {
    Captured { head: bytes.to_vec(), tail: Vec::new(), total: bytes.len() as u64 }
}

/// For programs, in words, and whether it is an error.
fn told(outcome: &Outcome) -> (Value, String, bool) {
    let result = serde_json::to_value(result(outcome, &LIMITS)).unwrap();
    let blocks = result["content"].as_array().unwrap().iter();
    let text = blocks.map(|block| block["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n");
    (result["structuredContent"].clone(), text, result["isError"].as_bool().unwrap())
}

#[test]
fn a_command_that_ends_by_itself_is_no_error_whatever_its_status() {
    let (answer, said, is_error) = told(&outcome(End::Exited(2), captured(b"out\n"), "no rule\n"));

    assert_eq!(
        answer,
        json!({
            "ended": "exited", "exit_code": 2, "stdout": "out\n", "stderr": "no rule\n", "stdout_bytes": 4,
            "stderr_bytes": 8, "stdout_truncated": false, "stderr_truncated": false, "stdout_replaced": false,
            "stderr_replaced": false, "seconds": 1.235,
        })
    );
    assert_eq!(
        said,
        "exit code 2 after 1.235 s. stdout: 4 bytes. stderr: 8 bytes.\nstdout:\nout\n\nstderr:\nno rule\n"
    );
    assert!(!is_error);
    let (_, said, _) = told(&outcome(End::Exited(0), Captured::default(), ""));
    assert_eq!(said, "exit code 0 after 1.235 s. It wrote nothing.");
}

#[test]
fn a_command_that_was_ended_says_by_what_and_keeps_what_it_wrote() {
    for (end, ended, words, error) in [
        (End::Signalled(11), "signal", "ended by signal 11 (SIGSEGV) after", false),
        (End::Signalled(63), "signal", "ended by signal 63 after", false),
        (End::TimedOut, "timed_out", "its time of 60 s was over", true),
        (End::Cancelled, "cancelled", "cancelled after", true),
        (End::OutOfMemory, "out_of_memory", "more than 1 GiB of memory", true),
        (End::OverQuota, "over_quota", "It may hold 2 GiB", true),
        (End::DiskFull, "disk_full", "the disk of this host is nearly full", true),
    ] {
        let (answer, said, is_error) = told(&outcome(end, captured(b"so far"), ""));

        assert_eq!(answer["ended"], ended);
        assert!(said.contains(words) && said.ends_with("\nstdout:\nso far"), "{said}");
        assert_eq!(is_error, error, "{ended}");
        assert!(answer.get("exit_code").is_none(), "{answer}");
        assert_eq!(answer.get("signal").is_some(), ended == "signal", "{answer}");
    }
}

#[test]
fn what_was_left_out_is_said_where_it_is_missing() {
    let cut = Captured { head: b"begin".to_vec(), tail: b"end".to_vec(), total: 12_345_686 };

    let (answer, said, _) = told(&outcome(End::Exited(0), cut, ""));

    assert_eq!(answer["stdout"], "begin\n… 12,345,678 bytes left out …\nend");
    assert_eq!((&answer["stdout_truncated"], &answer["stdout_bytes"]), (&json!(true), &json!(12_345_686)));
    assert!(said.contains("stdout: 12,345,686 bytes, the middle left out."), "{said}");
}

#[test]
fn a_character_that_was_cut_in_two_is_left_out_whole() {
    let euro = "€".as_bytes();
    let cut = Captured { head: [b"a", &euro[..2]].concat(), tail: [&euro[1..], b"z"].concat(), total: 100 };

    let (answer, ..) = told(&outcome(End::Exited(0), cut, ""));

    assert_eq!(answer["stdout"], "a\n… 98 bytes left out …\nz");
    assert_eq!(answer["stdout_replaced"], json!(false));
}

#[test]
fn what_is_not_utf_8_is_replaced_and_said_and_nothing_else_is_changed() {
    let output = b"\x1b[31mred\x1b[0m\r\n\0</stdout>\xff";

    let (answer, said, _) = told(&outcome(End::Exited(0), captured(output), ""));

    assert_eq!(answer["stdout"], "\u{1b}[31mred\u{1b}[0m\r\n\0</stdout>\u{fffd}");
    assert_eq!(answer["stdout_replaced"], json!(true));
    assert!(said.contains("not all of it UTF-8"), "{said}");
}

#[test]
fn the_answer_fits_its_schema_in_every_end() {
    let definition = super::super::run_command::definition(&crate::server::tests::settings());
    let schema = serde_json::to_value(definition.output_schema).unwrap();
    let properties = schema["properties"].as_object().unwrap();
    let ours = [End::TimedOut, End::Cancelled, End::OutOfMemory, End::OverQuota, End::DiskFull];
    for end in [End::Exited(0), End::Signalled(9)].into_iter().chain(ours) {
        let (answer, ..) = told(&outcome(end, captured(b"x"), ""));

        let answer = answer.as_object().unwrap();
        assert!(answer.keys().all(|key| properties.contains_key(key)), "{answer:?}");
        let required = schema["required"].as_array().unwrap().iter();
        assert!(required.map(|key| key.as_str().unwrap()).all(|key| answer.contains_key(key)), "{schema}");
        assert!(properties["ended"]["enum"].as_array().unwrap().contains(&answer["ended"]), "{schema}");
    }
}
