//! How an end is told.

use super::*;
use serde_json::{Value, json};
use std::time::Duration;

fn order() -> Order {
    Order {
        tool: "biscuit_status".to_owned(),
        command: "status project-a".to_owned(),
        finishes: false,
        timeout: Duration::from_secs(30),
        output: 1024,
        begin: Duration::from_secs(5),
    }
}

fn ran(end: End, stdout: &[u8], stderr: &[u8]) -> Ran {
    let captured = |bytes: &[u8]| Captured { head: bytes.to_vec(), tail: Vec::new(), total: bytes.len() as u64 };
    Ran { end, stdout: captured(stdout), stderr: captured(stderr), elapsed: Duration::from_micros(1_234_567) }
}

/// For programs, in words, and whether it is an error.
fn told(ran: &Ran) -> (Value, String, bool) {
    let result = serde_json::to_value(result(ran, &order())).expect("JSON");
    let blocks = result["content"].as_array().expect("blocks").iter();
    let text = blocks.map(|block| block["text"].as_str().expect("text")).collect::<Vec<_>>().join("\n");
    (result["structuredContent"].clone(), text, result["isError"].as_bool().expect("a bool"))
}

#[test]
fn b74_the_status_decides_and_never_stderr() {
    let (answer, said, is_error) = told(&ran(End::Exited(0), b"out\n", b"warning\n"));

    assert_eq!(
        answer,
        json!({
            "action": "status project-a", "ended": "exited", "exit_code": 0, "stdout": "out\n", "stderr": "warning\n",
            "stdout_bytes": 4, "stderr_bytes": 8, "stdout_truncated": false, "stderr_truncated": false,
            "stdout_replaced": false, "stderr_replaced": false, "seconds": 1.235,
        })
    );
    assert_eq!(
        said,
        "`status project-a`: exit code 0 after 1.235 s. stdout: 4 bytes. stderr: 8 bytes.\nstdout:\nout\n\nstderr:\nwarning\n"
    );
    assert!(!is_error);
    let (answer, said, is_error) = told(&ran(End::Exited(3), b"", b""));
    assert_eq!((&answer["ended"], &answer["exit_code"]), (&json!("exited"), &json!(3)));
    assert_eq!(said, "`status project-a`: failed with exit code 3 after 1.235 s. It wrote nothing.");
    assert!(is_error);
    // OpenSSH's own status for its own failures: here it is the action's.
    let (answer, ..) = told(&ran(End::Exited(255), b"", b""));
    assert_eq!((&answer["ended"], &answer["exit_code"]), (&json!("exited"), &json!(255)));
}

#[test]
fn every_end_says_what_is_known_of_it() {
    for (end, ended, words) in [
        (End::Signalled("KILL".to_owned()), "signal", "ended by signal KILL after 1.235 s."),
        (End::TimedOut(Then::Ended), "timed_out", "its time of 30 s was over. It was told to end, and has ended."),
        (End::TimedOut(Then::Unknown), "timed_out", "whether it has is not known"),
        (End::TimedOut(Then::RunsOn), "timed_out", "it runs on on the host"),
        (End::Cancelled(Then::Ended), "cancelled", "cancelled after 1.235 s. It was told to end, and has ended."),
        (End::NotRun, "not_run", "Nothing has happened."),
        (
            End::Lost("the line is dead".to_owned()),
            "lost",
            "it is not known how it ended, nor whether it was done: the line",
        ),
    ] {
        let (answer, said, is_error) = told(&ran(end, b"so far", b""));

        assert_eq!(answer["ended"], ended);
        assert!(said.contains(words) && said.ends_with("\nstdout:\nso far"), "{said}");
        assert!(is_error, "{ended}");
        assert!(answer.get("exit_code").is_none(), "{answer}");
        assert_eq!(answer.get("signal").is_some(), ended == "signal", "{answer}");
    }
}

#[test]
fn a_refusal_of_the_script_is_told_by_its_mark_and_not_by_its_status() {
    let denied = b"portcullis-gate: denied: unknown action\n";

    let (answer, said, is_error) = told(&ran(End::Exited(77), b"", denied));

    assert_eq!((&answer["ended"], &answer["exit_code"]), (&json!("refused"), &json!(77)));
    assert!(said.starts_with("the host refused `status project-a`: unknown action. Nothing was run."), "{said}");
    assert!(is_error);
    for other in [
        ran(End::Exited(77), b"", b"no permission\n"),
        ran(End::Exited(77), b"x", denied),
        ran(End::Exited(1), b"", denied),
        ran(End::Exited(77), b"", b"portcullis-gate: denied: a\nb\n"),
        ran(End::Exited(77), b"", b"portcullis-gate: denied: a"),
    ] {
        let (answer, _, is_error) = told(&other);
        assert_eq!(answer["ended"], "exited");
        assert!(is_error);
    }
    let (_, said, _) = told(&ran(End::Exited(77), b"", b"portcullis-gate: denied: \x1b[2J\n"));
    assert!(said.starts_with(r"the host refused `status project-a`: \u{1b}[2J."), "{said}");
}

#[test]
fn the_hosts_own_limit_is_a_limit() {
    let (answer, said, is_error) =
        told(&ran(End::Exited(124), b"", b"x\nportcullis-gate: ended after 60 s: its time was over\n"));

    assert_eq!((&answer["ended"], &answer["exit_code"]), (&json!("timed_out"), &json!(124)));
    assert!(said.contains("ended by the host after 1.235 s: its time there was over."), "{said}");
    assert!(is_error);
    assert_eq!(told(&ran(End::Exited(124), b"", b"")).0["ended"], "exited");
}

#[test]
fn u_19_escape_sequences_and_bytes_are_data_and_what_is_left_out_is_said() {
    let (answer, said, _) = told(&ran(End::Exited(0), b"\x1b[31mred\x1b[0m\r\n\0\xff", b""));
    assert_eq!(answer["stdout"], "\u{1b}[31mred\u{1b}[0m\r\n\0\u{fffd}");
    assert_eq!(answer["stdout_replaced"], true);
    assert!(said.contains("not all of it UTF-8"), "{said}");

    let mut cut = ran(End::Exited(0), b"begin", b"");
    cut.stdout.tail = b"end".to_vec();
    cut.stdout.total = 5_000_000;
    let (answer, said, _) = told(&cut);
    assert_eq!(answer["stdout"], "begin\n… 4,999,992 bytes left out …\nend");
    assert_eq!((&answer["stdout_truncated"], &answer["stdout_bytes"]), (&json!(true), &json!(5_000_000)));
    assert!(said.contains("stdout: 5,000,000 bytes, the middle left out (8 bytes kept)."), "{said}");
}

#[test]
fn the_answer_fits_its_schema_in_every_end() {
    let schema = Value::Object((*schema()).clone());
    let properties = schema["properties"].as_object().expect("properties");
    let ends = [
        End::Exited(0),
        End::Signalled("TERM".to_owned()),
        End::TimedOut(Then::Ended),
        End::Cancelled(Then::Unknown),
        End::NotRun,
        End::Lost(String::new()),
    ];
    for end in ends {
        let (answer, ..) = told(&ran(end, b"x", b""));

        let answer = answer.as_object().expect("an object");
        assert!(answer.keys().all(|key| properties.contains_key(key)), "{answer:?}");
        let required = schema["required"].as_array().expect("required").iter();
        assert!(required.map(|key| key.as_str().expect("a name")).all(|key| answer.contains_key(key)), "{schema}");
        assert!(properties["ended"]["enum"].as_array().expect("values").contains(&answer["ended"]), "{schema}");
    }
    assert_eq!(schema["type"], "object");
}
