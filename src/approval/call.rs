//! What exactly is held: one call in its canonical form, and the digest that everything else is bound to.
//!
//! The canonical bytes are what is hashed, what approvers see, and what is forwarded; there is no second form of a held
//! call that could differ. A call is the same call if everything here is the same: who asks, by which client, of which
//! server (by its address, not only its name), which tool as it is defined now, with which arguments, and in a call of
//! several rounds (MCP 2026-07-28) with which answers.

use crate::jsonrpc::{Node, NotIJson, Span};
use crate::store::{Requester, Subject};
use bytes::Bytes;
use ring::digest;

/// What stands before the bytes that are hashed, so that a digest is of nothing else.
const DOMAIN: &[u8] = b"portcullis/approval/v1\0";

/// What a call is made of, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    /// Who asks.
    pub requester: &'a Requester,
    /// The route, which has the upstream's name.
    pub upstream: &'a str,
    /// SHA-256 over where and how the upstream is reached.
    pub endpoint: &'a [u8; 32],
    /// SHA-256 over the tool's definition.
    pub definition: &'a [u8; 32],
    /// The tool.
    pub tool: &'a str,
    /// Its arguments; none where the message has none.
    pub arguments: Option<Node<'a>>,
    /// What the client answers to the upstream's questions.
    pub input_responses: Option<Node<'a>>,
    /// The upstream's own state, unsealed.
    pub request_state: Option<&'a str>,
}

/// A call in its canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    text: Bytes,
    digest: [u8; 32],
}

impl Call {
    /// The canonical form of a call.
    ///
    /// # Errors
    /// [`NotIJson`]: a number that would not survive; such a call cannot be held.
    pub fn of(parts: &Parts<'_>) -> Result<Call, NotIJson> {
        let mut out = Vec::with_capacity(512);
        let mut member = |name: &str, value: Value<'_>| -> Result<(), NotIJson> {
            out.extend_from_slice(if out.is_empty() { b"{\"" } else { b",\"" });
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            match value {
                Value::Node(node) => node.canonical(&mut out),
                Value::Text(text) => {
                    let quoted = serde_json::Value::from(text).to_string();
                    Node::of(quoted.as_bytes(), Span::whole(quoted.as_bytes())).canonical(&mut out)
                }
            }
        };
        let Requester { issuer, subject, client, .. } = parts.requester;
        // In the order of RFC 8785, so that the whole is canonical as well.
        if let Some(arguments) = parts.arguments {
            member("arguments", Value::Node(arguments))?;
        }
        member("client", Value::Text(client))?;
        member("definition", Value::Text(&hex(parts.definition)))?;
        member("endpoint", Value::Text(&hex(parts.endpoint)))?;
        if let Some(responses) = parts.input_responses {
            member("inputResponses", Value::Node(responses))?;
        }
        member("issuer", Value::Text(issuer))?;
        member("method", Value::Text("tools/call"))?;
        member("name", Value::Text(parts.tool))?;
        if let Some(state) = parts.request_state {
            member("requestState", Value::Text(state))?;
        }
        let subject: &Subject = subject;
        member("subject", Value::Text(&subject.to_string()))?;
        member("upstream", Value::Text(parts.upstream))?;
        out.extend_from_slice(b",\"version\":1}");
        Ok(Call::read(out.into()))
    }

    /// A call in the form that [`Call::of`] wrote.
    pub(super) fn read(text: Bytes) -> Call {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(DOMAIN);
        context.update(&text);
        let digest = context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
        Call { text, digest }
    }

    /// What it is bound to.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The canonical bytes.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The tool's own name.
    pub fn tool(&self) -> String {
        self.member("name").and_then(Node::as_str).unwrap_or_default().into_owned()
    }

    /// Its arguments, canonical: as approvers see them and as they are forwarded.
    pub fn arguments(&self) -> Option<Node<'_>> {
        self.member("arguments")
    }

    /// The client's answers to questions of the upstream.
    pub fn input_responses(&self) -> Option<Node<'_>> {
        self.member("inputResponses")
    }

    /// The upstream's own state.
    pub fn request_state(&self) -> Option<String> {
        self.member("requestState").and_then(Node::as_str).map(std::borrow::Cow::into_owned)
    }

    pub(super) fn member(&self, name: &str) -> Option<Node<'_>> {
        Node::of(&self.text, Span::whole(&self.text)).get(name)
    }
}

enum Value<'a> {
    Node(Node<'a>),
    Text(&'a str),
}

/// In lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester() -> Requester {
        Requester {
            issuer: "https://mcp.example.com".into(),
            subject: Subject::User("alice".into()),
            client: "cli".into(),
            person: Some("alice".into()),
            grant: None,
        }
    }

    fn call(arguments: &str) -> Call {
        with(arguments, |_| {})
    }

    fn with<'a>(arguments: &'a str, change: impl FnOnce(&mut Parts<'a>)) -> Call {
        let mut parts = Parts {
            requester: Box::leak(Box::new(requester())),
            upstream: "up",
            endpoint: &[1; 32],
            definition: &[2; 32],
            tool: "echo",
            arguments: Some(Node::of(arguments.as_bytes(), Span::whole(arguments.as_bytes()))),
            input_responses: None,
            request_state: None,
        };
        change(&mut parts);
        Call::of(&parts).unwrap()
    }

    #[test]
    fn order_and_space_make_no_other_call_and_everything_else_does() {
        let one = call(r#"{"a":1,"b":[2]}"#);
        assert_eq!(one, call(" { \"b\" : [ 2.0 ],\n\"a\":1 } "));
        let bob = Requester { subject: Subject::User("bob".into()), ..requester() };
        let machine = Requester { subject: Subject::Client("alice".into()), ..requester() };
        let app = Requester { client: "app".into(), ..requester() };
        let elsewhere = Requester { issuer: "https://idp.test".into(), ..requester() };
        let a = r#"{"a":1,"b":[2]}"#;
        let others = [
            call(r#"{"a":"1","b":[2]}"#),
            call(r#"{"a":1,"b":[2],"c":null}"#),
            call(r#"{"a":1,"b":[2,2]}"#),
            with(a, |parts| parts.upstream = "down"),
            with(a, |parts| parts.endpoint = &[3; 32]),
            with(a, |parts| parts.definition = &[3; 32]),
            with(a, |parts| parts.tool = "Echo"),
            with(a, |parts| parts.request_state = Some("")),
            with(a, |parts| parts.input_responses = parts.arguments),
            with(a, |parts| parts.requester = &bob),
            with(a, |parts| parts.requester = &machine),
            with(a, |parts| parts.requester = &app),
            with(a, |parts| parts.requester = &elsewhere),
        ];
        let mut digests: Vec<_> = others.iter().map(|call| *call.digest()).collect();
        digests.push(*one.digest());
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), others.len() + 1);
        // What makes no other call: a new token of the same grant, or of another one.
        let refreshed = Requester { grant: Some("g_2".into()), ..requester() };
        assert_eq!(one, with(a, |parts| parts.requester = &refreshed));
    }

    #[test]
    fn the_text_is_canonical_as_a_whole_and_reads_back() {
        let call = with(r#"{"z":"<&>","a":1e0}"#, |parts| parts.request_state = Some("s\"t"));
        let mut again = Vec::new();
        Node::of(call.text(), Span::whole(call.text())).canonical(&mut again).unwrap();
        assert_eq!(call.text(), &again);
        assert_eq!(call.arguments().unwrap().text(), r#"{"a":1,"z":"<&>"}"#);
        assert_eq!((call.tool(), call.request_state()), ("echo".to_owned(), Some("s\"t".to_owned())));
        assert_eq!(Call::read(call.text().clone()), call);
    }
}
