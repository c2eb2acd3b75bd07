//! What the request in hand declares of its client (MCP 2026-07-28, `_meta`), and what the answer to `server/discover`
//! declares of the gateway beside the server.
//!
//! "Servers MUST NOT infer capabilities from prior requests": nothing here is kept.

use crate::jsonrpc::{Edits, Kind, Node, Span};

/// The Tasks extension (SEP-2663).
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// What a client of the newer era can do, as far as it matters to a call that waits for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// It takes a task instead of a result.
    pub tasks: bool,
    /// It can be asked to show its person a page (`elicitation/create` with `mode: url`).
    pub url_elicitation: bool,
}

impl Declared {
    /// As the request in `body` declares it. A member counts when it is an object, whatever is in it.
    pub fn of(body: &[u8]) -> Declared {
        let meta = Node::of(body, Span::whole(body)).get("params").and_then(|params| params.get("_meta"));
        let capabilities = meta.and_then(|meta| meta.get(CAPABILITIES));
        let has = |within: &str, name: &str| {
            let member = capabilities.and_then(|capabilities| capabilities.get(within)?.get(name));
            member.is_some_and(|member| member.kind() == Kind::Object)
        };
        Declared { tasks: has("extensions", TASKS), url_elicitation: has("elicitation", "url") }
    }
}

/// `capabilities`, as a client declares them, without the Tasks extension: the gateway passes no task of a server on, so no
/// server is to make one.
pub fn without_tasks(capabilities: Node<'_>) -> String {
    let without = |object: Node<'_>, name: &str, instead: Option<String>| {
        let mut kept: Vec<String> = object
            .members()
            .filter(|(key, _)| key != name)
            .map(|(key, value)| format!("{}:{}", serde_json::Value::from(&*key), value.text()))
            .collect();
        kept.extend(instead.map(|json| format!(r#""{name}":{json}"#)));
        format!("{{{}}}", kept.join(","))
    };
    match capabilities.get("extensions").filter(|extensions| extensions.get(TASKS).is_some()) {
        Some(extensions) => without(capabilities, "extensions", Some(without(extensions, TASKS, None))),
        None => capabilities.text().to_owned(),
    }
}

/// `text`, an answer to `server/discover`, with the Tasks extension among the capabilities; `None` where it is there
/// already, or where the answer has none that it could be added to.
pub fn with_tasks(text: &[u8]) -> Option<Vec<u8>> {
    let capabilities = Node::of(text, Span::whole(text)).get("result")?.get("capabilities")?;
    let (object, added) = match capabilities.get("extensions") {
        Some(extensions) if extensions.get(TASKS).is_some() => return None,
        Some(extensions) => (extensions, format!(r#""{TASKS}":{{}}"#)),
        None => (capabilities, format!(r#""extensions":{{"{TASKS}":{{}}}}"#)),
    };
    let span = object.span_in(text).filter(|_| object.kind() == Kind::Object)?;
    let first = span.start.saturating_add(1);
    let comma = if object.members().next().is_some() { "," } else { "" };
    let mut edits = Edits::of(text);
    edits.replace_span(Span { start: first, end: first }, format!("{added}{comma}"));
    Some(edits.apply())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(capabilities: &str) -> Declared {
        Declared::of(format!(r#"{{"params":{{"_meta":{{"{CAPABILITIES}":{capabilities}}}}}}}"#).as_bytes())
    }

    #[test]
    fn what_is_declared_is_an_object_at_its_place() {
        let both = declared(r#"{"elicitation":{"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#);
        assert_eq!(both, Declared { tasks: true, url_elicitation: true });
        for nothing in [
            "{}",
            "null",
            r#"{"elicitation":{}}"#,
            r#"{"elicitation":{"form":{}},"extensions":{}}"#,
            r#"{"elicitation":{"url":true},"extensions":{"io.modelcontextprotocol/tasks":null}}"#,
            r#"{"io.modelcontextprotocol/tasks":{},"tasks":{},"url":{}}"#,
        ] {
            assert_eq!(declared(nothing), Declared::default(), "{nothing}");
        }
        assert_eq!(Declared::of(b"{}"), Declared::default());
    }

    #[test]
    fn tasks_are_taken_out_of_what_a_client_declares_and_the_rest_stays() {
        let check = |declared: &str, expected: &str| {
            let node = Node::of(declared.as_bytes(), Span::whole(declared.as_bytes()));
            assert_eq!(without_tasks(node), expected);
        };
        check(
            r#"{"extensions":{"a/b":{},"io.modelcontextprotocol/tasks":{}},"roots":{ }}"#,
            r#"{"roots":{ },"extensions":{"a/b":{}}}"#,
        );
        check(r#"{ "extensions":{} }"#, r#"{ "extensions":{} }"#);
        check("{}", "{}");
    }

    #[test]
    fn tasks_are_added_to_what_the_server_says_and_the_rest_stays() {
        let check = |capabilities: &str, expected: Option<&str>| {
            let text = |capabilities: &str| format!(r#"{{"id":1,"result":{{"capabilities":{capabilities},"x":1.0}}}}"#);
            let added = with_tasks(text(capabilities).as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(added, expected.map(text), "{capabilities}");
        };
        check("{}", Some(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#));
        check(r#"{"tools":{}}"#, Some(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}},"tools":{}}"#));
        check(r#"{"extensions":{ }}"#, Some(r#"{"extensions":{"io.modelcontextprotocol/tasks":{} }}"#));
        check(r#"{"extensions":{"a/b":{}}}"#, Some(r#"{"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}}"#));
        check(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, None);
        check("null", None);
        check(r#"{"extensions":7}"#, None);
        assert_eq!(with_tasks(br#"{"error":{}}"#), None);
    }
}
