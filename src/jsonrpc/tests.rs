//! What is taken, what is refused, and in which words.

use super::*;

mod laws;
mod limits;
mod minefield;

const LIMITS: Limits = Limits { depth: 64, nodes: 10_000 };

#[track_caller]
fn accepted(text: &str) -> Message {
    fuzz_parse(text.as_bytes());
    match parse(text.as_bytes(), LIMITS) {
        Ok(message) => message,
        Err(error) => panic!("refused: {text}\n{error}"),
    }
}

#[track_caller]
fn refused(text: impl AsRef<[u8]>) -> Error {
    let text = text.as_ref();
    fuzz_parse(text);
    match parse(text, LIMITS) {
        Ok(_) => panic!("accepted: {}", String::from_utf8_lossy(text)),
        Err(error) => error,
    }
}

#[track_caller]
fn request(text: &str) -> Request {
    match accepted(text) {
        Message::Request(request) => request,
        other => panic!("no request: {other:?}"),
    }
}

#[test]
fn half_a_surrogate_pair_passes_in_an_answer_only() {
    let answer = br#"{"jsonrpc":"2.0","id":1,"result":{"text":"cut \ud83d"}}"#;
    let limits = Limits { depth: 8, nodes: 100 };

    assert!(matches!(parse_answer(answer, limits), Ok(Message::Response(_))));
    assert!(parse(answer, limits).is_err());
}

#[test]
fn an_object_is_checked_as_strictly_as_a_message() {
    let check = |text: &str| super::check_object(text.as_bytes(), Limits { depth: 3, nodes: 9 });
    for good in ["{}", " {\"a\":[1,{}]} ", "{\"jsonrpc\":1,\"a\":null}"] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "[]",
        "1",
        "{}{}",
        "{} x",
        "{\"a\":1,\"a\":2}",
        "{\"x\":{\"a\":1,\"\\u0061\":2}}",
        "{\"a\":[[[]]]}",
        "{\"a\":[1,2,3,4,5,6,7,8,9]}",
        "{\"a\":\"\\ud800\"}",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_request_is_taken_apart() {
    let text = r#" {"jsonrpc":"2.0","id":7,"method":"tools/call","params": {"name":"a", "arguments": {"x":[1,{"y":"\u00e9"}]} } } "#;

    let request = request(text);

    assert_eq!(request.id.as_json(), "7");
    assert_eq!(request.method, "tools/call");
    let params = request.params.expect("params");
    let names: Vec<&str> = params.members.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(names, ["name", "arguments"]);
    let arguments = params.get("arguments").expect("arguments");
    assert_eq!(arguments.cut(text.as_bytes()), br#"{"x":[1,{"y":"\u00e9"}]}"#);
    assert_eq!(params.get("_meta"), None);
}

#[test]
fn the_order_of_members_does_not_matter() {
    let one = r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#;
    let other = r#"{"method":"m","id":"a","jsonrpc":"2.0"}"#;

    assert_eq!(accepted(one), accepted(other));
}

#[test]
fn a_call_without_an_id_is_a_notification() {
    let message = accepted(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);

    assert_eq!(
        message,
        Message::Notification(Notification { method: "notifications/initialized".into(), params: None })
    );
}

#[test]
fn an_answer_points_at_its_result_or_error() {
    for (text, id, outcome) in [
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#, "1", r#"{"a":1}"#),
        (r#"{"jsonrpc":"2.0","result":null,"id":"x"}"#, "\"x\"", "null"),
        (
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#,
            "",
            r#"{"code":-32700,"message":"no"}"#,
        ),
    ] {
        let Message::Response(response) = accepted(text) else {
            panic!("no response: {text}");
        };

        assert_eq!(response.id.as_ref().map_or("", Id::as_json), id);
        let (Outcome::Result(span) | Outcome::Error(span)) = response.outcome;
        assert_eq!(span.cut(text.as_bytes()), outcome.as_bytes());
    }
}

#[test]
fn names_and_values_of_the_envelope_are_read_unescaped() {
    let request = request(
        r#"{"jsonrpc":"2\u002e0","\u0069d":"\ud83d\ude00","\u006dethod":"tools\/call","params":{"n\u0061me":1}}"#,
    );

    assert_eq!(request.method, "tools/call");
    assert_eq!(request.id.as_json(), r#""\ud83d\ude00""#);
    assert!(request.params.expect("params").get("name").is_some());
}

#[test]
fn a_refusal_says_what_and_where() {
    for (text, said) in [
        ("", "not valid JSON at byte 0: expected a message, found the end"),
        ("hello", "not valid JSON at byte 0: expected a value, found `h`"),
        (r#"{"id":1,}"#, "not valid JSON at byte 8: expected a name in quotes, found `}`"),
        (r#"{"id":01}"#, "not valid JSON at byte 7: expected `,` or `}`, found `1`"),
        ("{\"id\":\"\u{1}\"}", "not valid JSON at byte 7: expected control characters as escapes, found `\\u{1}`"),
        (r#"{"id":"\ud800"}"#, "not valid JSON at byte 7: half a surrogate pair"),
        ("\u{feff}{}", "not valid JSON at byte 0: byte order mark"),
        ("[]", "batches are only accepted in a session of revision 2025-03-26: send one message at a time"),
        ("null", "not a JSON-RPC 2.0 message: null instead of an object"),
        ("{}", "not a JSON-RPC 2.0 message: `jsonrpc` is missing"),
        (r#"{"jsonrpc":2.0}"#, "not a JSON-RPC 2.0 message: `jsonrpc` must be \"2.0\"; at byte 11 found `2.0`"),
        (r#"{"Method":"m"}"#, "not a JSON-RPC 2.0 message: unknown member at byte 1: `Method`"),
        (r#"{"params":[1]}"#, "not a JSON-RPC 2.0 message: `params` must be an object; at byte 10 found an array"),
        (r#"{"params":{"a":1,"\u0061":2}}"#, "name given twice in one object, at byte 17: `a`"),
        (
            r#"{"params":{"$serde_json::private::Number":"1"}}"#,
            "reserved name at byte 11: `$serde_json::private::Number`",
        ),
    ] {
        assert_eq!(refused(text).to_string(), said);
    }
}

#[test]
fn a_refusal_shows_little_and_escaped() {
    let long = "\u{202e}\u{1b}[31m`".repeat(100);

    let error = refused(format!(r#"{{"jsonrpc":"2.0","{}":1}}"#, long.replace('\u{1b}', "")));
    let shown = error.to_string();

    assert_eq!(
        shown,
        "not a JSON-RPC 2.0 message: unknown member at byte 17: `\\u{202e}[31m\\u{60}\\u{202e}[31m\\u{60}…`"
    );
}

#[test]
fn a_refusal_carries_the_id_that_was_read_before_the_fault() {
    for (text, id) in [
        (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[]}"#, Some("7")),
        (r#"{"id":"x","method":3}"#, Some("\"x\"")),
        (r#"{"id":7,"method":"m"}"#, Some("7")),
        (r#"{"id":7,"method":"m","params":{"a":1,"a":2}}"#, Some("7")),
        (r#"{"id":7,"params":{"id":1,"id":2}}"#, Some("7")),
        (r#"{"id":7,"params":{"a":tru"#, Some("7")),
        (r#"{"id":7,"#, Some("7")),
        // Not yet read, no good, or said twice.
        (r#"{"params":[],"id":7}"#, None),
        (r#"{"id":7"#, Some("7")),
        (r#"{"id":1.5,"method":"m"}"#, None),
        (r#"{"id":null,"method":"m","jsonrpc":"2.0"}"#, None),
        (r#"{"id":7,"id":8}"#, None),
        (r#"{"id":7,"\u0069d":7}"#, None),
        (r#"{"id":7,"method":"a","method":"b"}"#, None),
        (r#"[{"id":7}]"#, None),
    ] {
        let error = refused(text);

        assert_eq!(error.id().map(Id::as_json), id, "{text}");
    }
}

#[test]
fn a_duplicate_among_many_names_keeps_the_id() {
    let names: String = (0..100).map(|n| format!("\"k{n}\":0,")).collect();

    let error = refused(format!(r#"{{"id":7,"params":{{{names}"k50":1}}}}"#));

    assert!(matches!(&error.fault, Fault::Duplicate { name, .. } if name == "k50"));
    assert_eq!(error.id().map(Id::as_json), Some("7"));
}
