//! Looks into one value of a text that was accepted, without building anything.
//!
//! Nothing is checked twice: the scanner has found the text well formed, so here a value is passed over by counting
//! its brackets, byte by byte; only what is taken out as text is looked at as UTF-8 once more. On a text that was not accepted the answers make no sense, but there is always one, in linear time
//! and without a panic.

use super::Span;
use super::quoted::{plain_len, unescape};
use std::borrow::Cow;

/// One value inside a text that [`super::parse`] accepted.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// No space around it.
    text: &'a [u8],
}

/// The six kinds of JSON values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`; also what stands nowhere.
    Null,
    /// `true` or `false`.
    Bool,
    /// Digits, perhaps with sign, fraction and exponent.
    Number,
    /// Text in quotes.
    String,
    /// Values in order.
    Array,
    /// Values by name.
    Object,
}

/// The members of an object, in the order they were written.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    /// From the next name on; empty when there is none.
    rest: &'a [u8],
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    /// From the next element on; empty when there is none.
    rest: &'a [u8],
}

// === impl Node ===

impl<'a> Node<'a> {
    /// The value at `span`; nothing (a `null`) if `span` is not inside `text`.
    pub fn of(text: &'a [u8], span: Span) -> Node<'a> {
        Node::of_bytes(span.cut(text))
    }

    pub(super) fn of_text(text: &'a str) -> Node<'a> {
        Node::of_bytes(text.as_bytes())
    }

    fn of_bytes(text: &'a [u8]) -> Node<'a> {
        let end = text.iter().rposition(|byte| !is_space(*byte)).map_or(0, |last| last.saturating_add(1));
        Node { text: after_space(text.get(..end).unwrap_or_default()) }
    }

    /// Told by the first character, since the text was accepted.
    pub fn kind(self) -> Kind {
        match self.text.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'-' | b'0'..=b'9') => Kind::Number,
            _ => Kind::Null,
        }
    }

    /// As it was written, without space around it.
    pub fn text(self) -> &'a str {
        std::str::from_utf8(self.text).unwrap_or_default()
    }

    /// Name and value of each member; none if this is not an object.
    pub fn members(self) -> Members<'a> {
        Members { rest: inside(self.text, b'{') }
    }

    /// Each element; none if this is not an array.
    pub fn elements(self) -> Elements<'a> {
        Elements { rest: inside(self.text, b'[') }
    }

    /// The member of this name.
    pub fn get(self, key: &str) -> Option<Node<'a>> {
        self.members().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value that a JSON Pointer (RFC 6901) leads to: `""` is this one, `/a/0` the first element of its member `a`.
    pub fn pointer(self, pointer: &str) -> Option<Node<'a>> {
        if pointer.is_empty() {
            return Some(self);
        }
        pointer.strip_prefix('/')?.split('/').try_fold(self, Node::step)
    }

    /// One token of a pointer.
    fn step(self, token: &str) -> Option<Node<'a>> {
        match self.kind() {
            Kind::Object => self.get(&pointer_token(token)?),
            Kind::Array => self.elements().nth(pointer_index(token)?),
            Kind::Null | Kind::Bool | Kind::Number | Kind::String => None,
        }
    }

    /// The string, unescaped, if this is one.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let raw = self.text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        std::str::from_utf8(raw).ok().map(unescape)
    }

    /// The truth value, if this is one.
    pub fn as_bool(self) -> Option<bool> {
        match self.text {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// The number as it was written, if this is one.
    pub fn as_number(self) -> Option<&'a str> {
        (self.kind() == Kind::Number).then(|| self.text())
    }

    /// Whether this is `null`.
    pub fn is_null(self) -> bool {
        self.text == b"null"
    }

    /// Where it stands in the text it was made from; `None` in any other.
    pub fn span_in(self, text: &[u8]) -> Option<Span> {
        let offset = |pointer: *const u8| pointer.addr().checked_sub(text.as_ptr().addr());
        let start = offset(self.text.as_ptr())?;
        let end = start.checked_add(self.text.len())?;
        (end <= text.len()).then_some(Span { start, end })
    }
}

// === impl Members ===

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, rest) = split_value(self.rest)?;
        let name = Node { text: name }.as_str()?;
        let (value, rest) = split_value(after_space(rest).strip_prefix(b":")?)?;
        self.rest = after_comma(rest);
        Some((name, Node { text: value }))
    }
}

// === impl Elements ===

impl<'a> Iterator for Elements<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        let (value, rest) = split_value(self.rest)?;
        self.rest = after_comma(rest);
        Some(Node { text: value })
    }
}

// === Passing over text ===

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn after_space(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|byte| is_space(**byte)).count();
    text.get(spaces..).unwrap_or_default()
}

/// Past the comma that must follow for there to be more; nothing if there is none.
fn after_comma(text: &[u8]) -> &[u8] {
    after_space(text).strip_prefix(b",").unwrap_or_default()
}

/// What follows the opening bracket; nothing if `text` does not start with it.
fn inside(text: &[u8], bracket: u8) -> &[u8] {
    text.strip_prefix(&[bracket]).unwrap_or_default()
}

/// The value `text` starts with, and what follows; `None` where no value starts.
fn split_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = after_space(text);
    let len = match text.first()? {
        b'"' => string_len(text),
        b'{' | b'[' => container_len(text),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b':' | b']' | b'}') || is_space(*byte);
            text.iter().position(ends).unwrap_or(text.len())
        }
    };
    if len == 0 {
        return None;
    }
    text.split_at_checked(len)
}

/// From the opening quote to the closing one.
fn string_len(text: &[u8]) -> usize {
    let mut len: usize = 1;
    loop {
        let rest = text.get(len..).unwrap_or_default();
        len = len.saturating_add(plain_len(rest));
        match text.get(len) {
            Some(b'"') => return len.saturating_add(1),
            Some(b'\\') => len = len.saturating_add(2),
            Some(_) => len = len.saturating_add(1),
            None => return text.len(),
        }
    }
}

/// From the opening bracket to its partner. Which of the two kinds a bracket is of was checked by the scanner.
fn container_len(text: &[u8]) -> usize {
    let mut open: usize = 0;
    let mut at: usize = 0;
    while let Some(byte) = text.get(at) {
        let mut step = 1;
        match byte {
            b'"' => step = string_len(text.get(at..).unwrap_or_default()),
            b'{' | b'[' => open = open.saturating_add(1),
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        at = at.saturating_add(step);
        if open == 0 {
            return at;
        }
    }
    text.len()
}

// === RFC 6901 ===

/// `~1` is a slash and `~0` a tilde; a tilde before anything else is no pointer (§3).
fn pointer_token(token: &str) -> Option<Cow<'_, str>> {
    let mut parts = token.split('~');
    let first = parts.next()?;
    if first.len() == token.len() {
        return Some(Cow::Borrowed(token));
    }
    let mut name = first.to_owned();
    for part in parts {
        let rest = match part.strip_prefix('1') {
            Some(rest) => {
                name.push('/');
                rest
            }
            None => {
                name.push('~');
                part.strip_prefix('0')?
            }
        };
        name.push_str(rest);
    }
    Some(Cow::Owned(name))
}

/// Digits without leading zeros (§4).
fn pointer_index(token: &str) -> Option<usize> {
    let has_one_spelling = token == "0" || !token.starts_with(['0', '+']);
    has_one_spelling.then(|| token.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    //= RFC 6901 §5
    //# For example, given the JSON document … the following JSON strings evaluate to the accompanying values
    #[test]
    fn pointers_lead_where_rfc_6901_says() {
        let text = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#;
        for (pointer, value) in [
            ("", Some(text)),
            ("/foo", Some(r#"["bar","baz"]"#)),
            ("/foo/0", Some(r#""bar""#)),
            ("/", Some("0")),
            ("/a~1b", Some("1")),
            ("/c%d", Some("2")),
            ("/e^f", Some("3")),
            ("/g|h", Some("4")),
            (r"/i\j", Some("5")),
            (r#"/k"l"#, Some("6")),
            ("/ ", Some("7")),
            ("/m~0n", Some("8")),
            ("foo", None),
            ("/foo/2", None),
            ("/foo/-", None),
            ("/foo/00", None),
            ("/foo/+1", None),
            ("/foo/", None),
            ("/foo/0/0", None),
            ("/foo/99999999999999999999999999", None),
            ("/m~n", None),
            ("/m~2n", None),
            ("/m~", None),
            ("/m~~0n", None),
            ("/m~01n", None),
        ] {
            let found = Node::of_text(text).pointer(pointer).map(Node::text);
            assert_eq!(found, value, "{pointer}");
        }
    }

    #[test]
    fn a_node_of_nothing_answers_nothing() {
        let nowhere = Node::of(b"{}", Span { start: 1, end: 9 });

        assert_eq!(nowhere.kind(), Kind::Null);
        assert_eq!(nowhere.text(), "");
        assert!(!nowhere.is_null());
        assert_eq!(nowhere.members().count() + nowhere.elements().count(), 0);
    }

    #[test]
    fn a_node_stands_only_in_its_own_text() {
        let (text, other) = (b" [1] ".to_vec(), b" [1] ".to_vec());
        let node = Node::of(&text, Span { start: 0, end: 5 });

        assert_eq!(node.span_in(&text), Some(Span { start: 1, end: 4 }));
        assert_eq!(node.span_in(&other), None);
    }
}
