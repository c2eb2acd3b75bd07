//! A held call for people's eyes: one row a value, the same rows on the page, at the terminal and in messages.
//!
//! Made from the canonical bytes and from nothing else, so that what is shown is what would run. Nothing is left out and
//! nothing is cut; how much of it stands on one screen is the matter of whoever shows it. Escaping for HTML or JSON is,
//! too: the texts here are safe for a terminal, and hide nothing.

use super::{Approvals, Call, View};
use crate::jsonrpc::{Kind, Node};
use crate::pages::text::{exact, exact_line, mixes_scripts};
use std::collections::BTreeSet;
use std::fmt;

/// All that a held call consists of, apart from who asks and where it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The arguments; none where the call has none.
    pub arguments: Vec<Row>,
    /// What the client answers to questions of the upstream; none where nothing was asked.
    pub input_responses: Vec<Row>,
    /// The upstream's own state; none where it gave none.
    pub request_state: Vec<Row>,
}

/// One value. Those inside an object or array follow it, one deeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Objects and arrays around it.
    pub depth: usize,
    /// What it is called there.
    pub key: Key,
    /// What it is.
    pub kind: Kind,
    /// Of a string, its length in UTF-8; of anything else, that of its JSON.
    pub bytes: usize,
    /// Of an object or array: how many values stand in it.
    pub items: usize,
    /// Of a string: its lines.
    pub lines: usize,
    /// The value, all of it: what cannot be seen is named (`⟦U+202E⟧`), and so is a line break before it breaks the line.
    /// Empty for an object or array, whose values follow. In place of a masked value: its length and a name that is the same for
    /// the same value.
    pub text: String,
    /// Whether a rule keeps the value from approvers. What stands in it does not follow.
    pub is_masked: bool,
    /// Whether a word in it mixes alphabets that look alike.
    pub mixes_scripts: bool,
}

/// What a value is called by what it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// It stands in nothing.
    Whole,
    /// A member of an object: its name in one line, safe to show, in quotes where it is no plain word.
    Name(String),
    /// An element of an array, from 0.
    Index(usize),
}

impl Approvals {
    /// What `view` is about, with the values left out that a rule masks; `None` once it was erased.
    pub fn rendered(&self, view: &View) -> Option<Rendered> {
        Some(Rendered::of(view.call.as_ref()?, &view.terms.mask, &|value| self.mask(value)))
    }

    /// The arguments of `view` as JSON, with a note in place of each value that a rule masks; `None` where there are none.
    pub fn masked_arguments(&self, view: &View) -> Option<String> {
        let arguments = view.call.as_ref()?.arguments()?;
        let (mut out, tag) = (String::new(), |value: &str| self.mask(value));
        Masking::new(&view.terms.mask, &tag).write(arguments, &mut out);
        Some(out)
    }
}

impl Rendered {
    /// The rows of `call`. `mask` are JSON Pointers into the arguments; `tag` names a value without telling it.
    pub(super) fn of(call: &Call, mask: &BTreeSet<String>, tag: &dyn Fn(&str) -> String) -> Rendered {
        let nothing = BTreeSet::new();
        let rows = |node: Option<Node<'_>>, mask| {
            let mut rows = Vec::new();
            if let Some(node) = node {
                Masking::new(mask, tag).rows(node, Key::Whole, 0, &mut rows);
            }
            rows
        };
        Rendered {
            arguments: rows(call.arguments(), mask),
            input_responses: rows(call.input_responses(), &nothing),
            request_state: rows(call.member("requestState"), &nothing),
        }
    }

    /// Every row, with the name of its part before the first one of each.
    pub fn parts(&self) -> [(&'static str, &[Row]); 3] {
        [
            ("arguments", &self.arguments),
            ("answers to the server's questions", &self.input_responses),
            ("the server's own state", &self.request_state),
        ]
    }
}

/// A walk through values, with the place it has come to.
struct Masking<'a> {
    mask: &'a BTreeSet<String>,
    tag: &'a dyn Fn(&str) -> String,
    /// A JSON Pointer (RFC 6901).
    at: String,
}

impl<'a> Masking<'a> {
    fn new(mask: &'a BTreeSet<String>, tag: &'a dyn Fn(&str) -> String) -> Masking<'a> {
        Masking { mask, tag, at: String::new() }
    }

    fn rows(&mut self, node: Node<'_>, key: Key, depth: usize, rows: &mut Vec<Row>) {
        let mut row = plain_row(node, key, depth);
        if let Some(note) = self.masked(node) {
            (row.text, row.is_masked, row.lines, row.mixes_scripts) = (note, true, 1, false);
            rows.push(row);
            return;
        }
        let (place, deeper) = (rows.len(), depth.saturating_add(1));
        rows.push(row);
        let mut items: usize = 0;
        for (index, element) in node.elements().enumerate() {
            self.inside(&index.to_string(), |this| this.rows(element, Key::Index(index), deeper, rows));
            items = items.saturating_add(1);
        }
        for (name, value) in node.members() {
            self.inside(&token(&name), |this| this.rows(value, Key::name(&name), deeper, rows));
            items = items.saturating_add(1);
        }
        if let Some(row) = rows.get_mut(place) {
            row.items = items;
        }
    }

    /// The value as canonical JSON, masked values replaced.
    fn write(&mut self, node: Node<'_>, out: &mut String) {
        if let Some(note) = self.masked(node) {
            out.push_str(&serde_json::Value::from(note).to_string());
            return;
        }
        match node.kind() {
            Kind::Array => {
                out.push('[');
                for (index, element) in node.elements().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    self.inside(&index.to_string(), |this| this.write(element, out));
                }
                out.push(']');
            }
            Kind::Object => {
                out.push('{');
                for (index, (name, value)) in node.members().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    out.push_str(&serde_json::Value::from(&*name).to_string());
                    out.push(':');
                    self.inside(&token(&name), |this| this.write(value, out));
                }
                out.push('}');
            }
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => out.push_str(node.text()),
        }
    }

    /// What stands in place of the value here; `None` where it may be seen.
    fn masked(&self, node: Node<'_>) -> Option<String> {
        self.mask.contains(&self.at).then(|| {
            let tag = (self.tag)(node.text());
            format!("[masked, {} bytes, tag {tag}]", bytes(node))
        })
    }

    fn inside(&mut self, token: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.at.len();
        self.at.push('/');
        self.at.push_str(token);
        walk(self);
        self.at.truncate(length);
    }
}

/// A name as one token of a JSON Pointer (RFC 6901 §3).
fn token(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn plain_row(node: Node<'_>, key: Key, depth: usize) -> Row {
    let (kind, string) = (node.kind(), node.as_str());
    let text = match (kind, &string) {
        (Kind::String, Some(text)) => exact(text),
        (Kind::Object | Kind::Array, _) => String::new(),
        _ => node.text().to_owned(),
    };
    let string = string.unwrap_or_default();
    Row {
        depth,
        key,
        kind,
        bytes: bytes(node),
        items: 0,
        lines: string.split('\n').count(),
        text,
        is_masked: false,
        mixes_scripts: mixes_scripts(&string),
    }
}

fn bytes(node: Node<'_>) -> usize {
    node.as_str().map_or(node.text().len(), |text| text.len())
}

impl Row {
    /// What it is and how large, for people: `string, 12 bytes, 2 lines`.
    pub fn size(&self) -> String {
        let lines = if self.lines > 1 { format!(", {} lines", self.lines) } else { String::new() };
        match self.kind {
            Kind::Null => "null".to_owned(),
            Kind::Bool => "boolean".to_owned(),
            Kind::Number => "number".to_owned(),
            Kind::String => format!("string, {}{lines}", counted(self.bytes, "byte")),
            Kind::Array => format!("array, {}", counted(self.items, "element")),
            Kind::Object => format!("object, {}", counted(self.items, "member")),
        }
    }
}

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

impl Key {
    fn name(name: &str) -> Key {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.$".contains(c);
        if !name.is_empty() && name.chars().all(is_plain) {
            return Key::Name(name.to_owned());
        }
        // A quote of its own could seem to end it.
        Key::Name(format!("\"{}\"", exact_line(name).replace('"', "⟦U+0022⟧")))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Whole => Ok(()),
            Key::Name(name) => f.write_str(name),
            Key::Index(index) => write!(f, "[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval::Parts;
    use crate::jsonrpc::Span;
    use crate::store::{Requester, Subject};
    use std::time::Duration;
    use tokio::time::Instant;

    fn call(arguments: &str) -> Call {
        let requester = Requester {
            issuer: "https://mcp.example.com".into(),
            subject: Subject::User("alice".into()),
            client: "cli".into(),
            person: Some("alice".into()),
            grant: None,
        };
        let parts = Parts {
            requester: &requester,
            upstream: "up",
            endpoint: &[1; 32],
            definition: &[2; 32],
            tool: "echo",
            arguments: Some(Node::of(arguments.as_bytes(), Span::whole(arguments.as_bytes()))),
            input_responses: None,
            request_state: Some("st\u{202e}ate"),
        };
        Call::of(&parts).unwrap()
    }

    fn rows(arguments: &str, mask: &[&str]) -> Vec<Row> {
        let mask = mask.iter().map(ToString::to_string).collect();
        Rendered::of(&call(arguments), &mask, &|value| format!("t{}", value.len())).arguments
    }

    fn lines(rows: &[Row]) -> Vec<String> {
        rows.iter().map(|row| format!("{}{}|{}|{}", " ".repeat(row.depth), row.key, row.size(), row.text)).collect()
    }

    #[test]
    fn every_value_is_a_row_with_its_type_and_length() {
        let rows = rows(r#"{"b":[1,"x",null,{}],"a":{"command":"rm -rf /\nls"},"c":true}"#, &[]);
        assert_eq!(
            lines(&rows),
            [
                "|object, 3 members|",
                " a|object, 1 member|",
                "  command|string, 11 bytes, 2 lines|rm -rf /⟦U+000A⟧\nls",
                " b|array, 4 elements|",
                "  [0]|number|1",
                "  [1]|string, 1 byte|x",
                "  [2]|null|null",
                "  [3]|object, 0 members|",
                " c|boolean|true",
            ]
        );
    }

    #[test]
    fn names_and_texts_tell_the_terminal_nothing_and_pass_for_nothing_else() {
        let rows = rows(r#"{"[0]":1,"":2,"a\" : string\n":"\u001b[2J\r\u202e","p\u0430y":"p\u0430y"}"#, &[]);
        assert_eq!(
            lines(&rows[1..]),
            [
                " \"\"|number|2",
                " \"[0]\"|number|1",
                " \"a⟦U+0022⟧ : string⟦U+000A⟧\"|string, 8 bytes|⟦U+001B⟧[2J⟦U+000D⟧⟦U+202E⟧",
                " \"pаy\"|string, 4 bytes|pаy",
            ]
        );
        assert!(rows[4].mixes_scripts && !rows[3].mixes_scripts);
        let state = Rendered::of(&call("{}"), &BTreeSet::new(), &|_| String::new()).request_state;
        assert_eq!(lines(&state), ["|string, 8 bytes|st⟦U+202E⟧ate"]);
    }

    #[test]
    fn a_masked_value_shows_its_length_and_a_tag_and_nothing_inside() {
        let text = r#"{"a/b":{"~":["hunter2",{"deep":"hunter2"}]},"free":"text"}"#;
        let masked = rows(text, &["/a~1b/~0/1", "/a~1b/~0/0", "/nowhere"]);
        assert_eq!(
            lines(&masked[3..]),
            [
                "   [0]|string, 7 bytes|[masked, 7 bytes, tag t9]",
                "   [1]|object, 0 members|[masked, 18 bytes, tag t18]",
                " free|string, 4 bytes|text",
            ]
        );
        assert!(masked[3].is_masked && masked[4].is_masked && !masked[5].is_masked);
        assert_eq!(rows(text, &[""]).len(), 1);

        let mask = ["/a~1b/~0".to_owned()].into();
        let (call, mut out) = (call(text), String::new());
        Masking::new(&mask, &|_| "t".to_owned()).write(call.arguments().unwrap(), &mut out);
        assert_eq!(out, r#"{"a/b":{"~":"[masked, 30 bytes, tag t]"},"free":"text"}"#);
    }

    #[test]
    fn large_arguments_are_rendered_whole_and_in_time() {
        let many = format!(r#"{{"list":[{}1]}}"#, "1,".repeat(200_000));
        let long = format!(r#"{{"text":"{}"}}"#, "\\u202e".repeat(200_000));
        let began = Instant::now();
        assert_eq!(rows(&many, &["/list/7"]).len(), 200_003);
        assert_eq!(rows(&long, &[])[1].text.matches("⟦U+202E⟧").count(), 200_000);
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
}
