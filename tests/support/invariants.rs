//! What holds for every answer of the gateway, whatever was asked. `Agent` checks it by itself; tests with a raw
//! connection call `check`.

use super::http::Response;
use serde_json::Value;

/// Every header field an answer of the agent listener may carry. A new one is a decision: add it here with it.
const ALLOWED: &[&str] = &[
    "allow",
    "cache-control",
    "connection",
    "content-length",
    "content-type",
    "date",
    "mcp-protocol-version",
    "mcp-session-id",
    "retry-after",
    "strict-transport-security",
    "transfer-encoding",
    "vary",
    "www-authenticate",
    "x-accel-buffering",
    "x-content-type-options",
    "x-request-id",
    // Only where the request came from a web page of an allowed origin.
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
];

/// Checks an answer of an MCP endpoint to the message with this id (`None`: no id was sent, or none could be read).
#[track_caller]
pub(crate) fn check(response: &Response, id: Option<&Value>) {
    check_headers(response);
    if response.is_stream() {
        check_stream(response, id);
    } else if response.body.is_empty() {
        assert!(matches!(response.status, 202 | 204) || response.status >= 400, "an empty answer: {response:?}");
    } else {
        let kind = response.header("content-type").unwrap_or_default();
        assert!(
            kind == "application/json" || kind.starts_with("application/json;"),
            "content-type {kind:?}: {response:?}"
        );
        check_message(&response.json(), id, response);
    }
}

/// Checks the header fields alone, for answers that are not of MCP (documents, health).
#[track_caller]
pub(crate) fn check_headers(response: &Response) {
    let request_ids = response.headers.all("x-request-id");
    assert!(matches!(request_ids[..], [one] if !one.is_empty()), "not one x-request-id: {response:?}");
    for (name, _) in &response.headers.0 {
        assert!(ALLOWED.contains(&name.to_ascii_lowercase().as_str()), "header {name} must not go out: {response:?}");
    }
    for name in ["content-type", "content-length", "mcp-session-id", "www-authenticate", "cache-control"] {
        assert!(response.headers.all(name).len() <= 1, "{name} stands there twice: {response:?}");
    }
    if response.status == 401 {
        let challenge = response.header("www-authenticate").unwrap_or_default();
        assert!(
            challenge.starts_with("Bearer ") && challenge.contains("resource_metadata=\""),
            "challenge {challenge:?}"
        );
    }
    if response.status == 405 {
        assert!(response.header("allow").is_some(), "405 must say what is allowed: {response:?}");
    }
}

#[track_caller]
fn check_stream(response: &Response, id: Option<&Value>) {
    assert_eq!(response.header("x-accel-buffering"), Some("no"), "a proxy in front may hold events back: {response:?}");
    let mut n_answers = 0;
    for event in response.events() {
        if event.data.is_empty() {
            continue;
        }
        assert!(event.event.is_empty() || event.event == "message", "an event of kind {:?}", event.event);
        let message = event.json();
        if message.get("method").is_none() {
            n_answers += 1;
            check_message(&message, id, response);
        }
    }
    assert_eq!(n_answers, 1, "a stream answers its request once: {}", response.text());
}

#[track_caller]
fn check_message(message: &Value, id: Option<&Value>, response: &Response) {
    assert_eq!(message["jsonrpc"], "2.0", "not JSON-RPC: {}", response.text());
    let is_result = message.get("result").is_some();
    assert_ne!(is_result, message.get("error").is_some(), "one of result and error: {}", response.text());
    if is_result {
        assert_eq!(message.get("id"), id, "the id comes back as it was sent");
        assert_eq!(response.status, 200, "a result goes out with 200");
        return;
    }
    let answered = message.get("id").filter(|id| !id.is_null());
    // Refused before its body was read (401, 403, 413 …), a request's id is not known.
    assert!(answered == id || (answered.is_none() && response.status >= 400), "id {answered:?} instead of {id:?}");
    assert!(message["error"]["code"].is_i64(), "an error has a code: {}", response.text());
    let text = message["error"]["message"].as_str().unwrap_or_default();
    assert!(!text.is_empty(), "an error says what happened: {}", response.text());
}
