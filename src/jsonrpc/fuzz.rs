//! What must hold for any bytes at all: called by `fuzz/` and by the tests beside this file.
//!
//! The oracle is serde_json, a reader with another author and other habits: where we accept, it must accept and see
//! the same; where we say "not JSON", so must it.

use super::{Fault, Kind, Limits, Message, Node, Outcome, Params, Span, parse};
use serde_json::Value;

/// Small, so that a fuzzer gets to the far side of them.
const LIMITS: Limits = Limits { depth: 16, nodes: 500 };

/// Reads `data` and checks what came of it.
///
/// # Panics
/// When the parser and serde_json disagree, or an accepted message breaks a limit: a finding.
pub fn fuzz_parse(data: &[u8]) {
    let theirs = serde_json::from_slice::<Value>(data);
    match parse(data, LIMITS) {
        Ok(message) => match theirs {
            Ok(value) => assert_same(&message, data, &value),
            Err(error) => assert!(is_too_large(&error), "accepted, but: {error}"),
        },
        Err(error) => {
            assert!(error.to_string().len() < 300, "{error}");
            let is_syntax = matches!(error.fault, Fault::Syntax { .. });
            assert!(!(is_syntax && theirs.is_ok()), "{error}");
        }
    }
}

/// serde_json makes floats of large numbers, and has no float for `1e400`. We only read digits.
pub(super) fn is_too_large(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("number out of range")
}

fn assert_same(message: &Message, text: &[u8], value: &Value) {
    let whole = Span { start: 0, end: text.len() };
    let (nodes, depth) = assert_agrees(Node::of(text, whole), value);
    assert!(nodes <= LIMITS.nodes && depth <= LIMITS.depth);

    assert_eq!(value.get("jsonrpc").and_then(Value::as_str), Some("2.0"));
    let (id, method, params) = match message {
        Message::Request(it) => (Some(&it.id), Some(&it.method), it.params.as_ref()),
        Message::Notification(it) => (None, Some(&it.method), it.params.as_ref()),
        Message::Response(it) => {
            let (name, span) = match it.outcome {
                Outcome::Result(span) => ("result", span),
                Outcome::Error(span) => ("error", span),
            };
            assert_agrees(Node::of(text, span), member(value, name));
            (it.id.as_ref(), None, None)
        }
    };
    let json = id.map_or("null", |id| id.as_json());
    let id: Value = serde_json::from_str(json).expect("an id is JSON");
    assert_eq!(value.get("id").unwrap_or(&Value::Null), &id);
    let theirs = value.get("method").and_then(Value::as_str);
    assert_eq!(theirs, method.map(String::as_str));
    assert_eq!(value.get("params").is_some(), params.is_some());
    if let Some(params) = params {
        assert_same_params(params, text, member(value, "params"));
    }
}

fn assert_same_params(params: &Params, text: &[u8], value: &Value) {
    assert_agrees(Node::of(text, params.span), value);
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(params.members.len()));
    for it in &params.members {
        assert_agrees(Node::of(text, it.value), member(value, &it.key));
    }
}

#[track_caller]
fn member<'v>(value: &'v Value, name: &str) -> &'v Value {
    let found = value.get(name);
    assert!(found.is_some(), "serde_json sees no `{name}`");
    found.unwrap_or(&Value::Null)
}

/// Compares all of `node` with `value`; counts its values and its depth.
#[track_caller]
pub(super) fn assert_agrees(node: Node<'_>, value: &Value) -> (usize, usize) {
    let inner: Vec<(usize, usize)> = match (node.kind(), value) {
        (Kind::Array, Value::Array(values)) => {
            assert_eq!(node.elements().count(), values.len());
            node.elements().zip(values).map(|(node, value)| assert_agrees(node, value)).collect()
        }
        (Kind::Object, Value::Object(values)) => {
            assert_eq!(node.members().count(), values.len());
            node.members().map(|(name, node)| assert_agrees(node, member(value, &name))).collect()
        }
        _ => {
            assert_scalar_agrees(node, value);
            return (1, 0);
        }
    };
    let nodes = inner.iter().fold(1, |sum: usize, it| sum.saturating_add(it.0));
    let depth = inner.iter().map(|it| it.1).max().unwrap_or(0);
    (nodes, depth.saturating_add(1))
}

#[track_caller]
fn assert_scalar_agrees(node: Node<'_>, value: &Value) {
    let kind = match value {
        Value::Null => Kind::Null,
        Value::Bool(_) => Kind::Bool,
        Value::Number(_) => Kind::Number,
        Value::String(_) => Kind::String,
        Value::Array(_) => Kind::Array,
        Value::Object(_) => Kind::Object,
    };
    assert_eq!(node.kind(), kind);
    assert_eq!(node.is_null(), value.is_null());
    assert_eq!(node.as_bool(), value.as_bool());
    assert_eq!(node.as_str().as_deref(), value.as_str());
    let number = node.as_number().map(|text| serde_json::from_str(text).expect("a number is JSON"));
    assert_eq!(number.as_ref(), Some(value).filter(|it| it.is_number()));
}
