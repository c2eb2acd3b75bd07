//! The scanner: JSON by the letter of RFC 8259, within limits, without recursion.
//!
//! It knows values and members, not messages. [`Scanner::value`] passes over one value of any depth; open containers
//! are kept in a list, so that a million brackets cost a million list entries at most (and the depth limit far fewer),
//! never stack. The names of every open object are kept beside it until the object ends, for the sake of duplicates.

use super::error::{Fault, shown};
use super::quoted::{Quoted, plain_len};
use super::{Limits, Span};
use std::collections::HashSet;

/// Where we are in one text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    limits: Limits,
    nodes: usize,
    open: Vec<Container>,
    /// Of the members of every open object, outermost object first.
    names: Vec<Quoted<'a>>,
}

/// An object or array that has begun and not ended.
#[derive(Clone, Copy)]
enum Container {
    Array,
    /// Its own names start here in [`Scanner::names`].
    Object(usize),
}

/// What follows a value that has ended.
enum Next {
    /// Another value, of the container that is open.
    Value,
    /// Nothing: the value we were asked for has ended.
    Done,
}

/// serde_json takes an object with one of these as a number or as JSON text of its own, when some crate in the build
/// has switched on `arbitrary_precision` or `raw_value`. An upstream written in Rust may have.
const RESERVED: &str = "$serde_json::private::";

/// Up to here names are compared with each other as they come; longer lists go through a set once, when their object
/// ends. Most objects are this small, and their names differ in length or in the first bytes.
const COMPARED_IN_PAIRS: usize = 16;

// === impl Scanner: values ===

impl<'a> Scanner<'a> {
    /// Starts at the first byte of `text`, which has to be UTF-8 without a byte order mark (RFC 8259 §8.1).
    pub(super) fn new(text: &'a [u8], limits: Limits) -> Result<Self, Fault> {
        let text = std::str::from_utf8(text).map_err(|error| Fault::syntax(error.valid_up_to(), "not UTF-8"))?;
        if text.starts_with('\u{feff}') {
            return Err(Fault::syntax(0, "byte order mark"));
        }
        Ok(Scanner { text, at: 0, limits, nodes: 0, open: Vec::with_capacity(16), names: Vec::with_capacity(32) })
    }

    /// Passes over one value. Space before it must have been passed.
    pub(super) fn value(&mut self) -> Result<Span, Fault> {
        let start = self.at;
        let floor = self.open.len();
        loop {
            let has_ended = match self.peek() {
                Some(b'{') => self.begin_object()?,
                Some(b'[') => self.begin_array()?,
                _ => {
                    self.scalar()?;
                    true
                }
            };
            if !has_ended {
                continue;
            }
            if let Next::Done = self.after_value(floor)? {
                let end = self.at;
                return Ok(Span { start, end });
            }
        }
    }

    /// Passes over one object, leaving the value of each member to `member`, who must pass over it.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Quoted<'a>) -> Result<(), Fault>,
    ) -> Result<Span, Fault> {
        let start = self.at;
        self.enter(Container::Object(self.names.len()))?;
        self.space();
        if self.peek() != Some(b'}') {
            self.member_of_object(&mut member)?;
            while self.comma_or(b'}')? {
                self.member_of_object(&mut member)?;
            }
        }
        self.leave()?;
        let end = self.at;
        Ok(Span { start, end })
    }

    fn member_of_object(
        &mut self,
        member: &mut impl FnMut(&mut Self, Quoted<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let name = self.name()?;
        member(self, name)
    }

    /// Passes over an opening brace and the first name, if there is one. Says whether the object has ended already.
    fn begin_object(&mut self) -> Result<bool, Fault> {
        self.enter(Container::Object(self.names.len()))?;
        self.space();
        if self.peek() == Some(b'}') {
            self.leave()?;
            return Ok(true);
        }
        self.name()?;
        Ok(false)
    }

    /// Passes over an opening bracket. Says whether the array has ended already.
    fn begin_array(&mut self) -> Result<bool, Fault> {
        self.enter(Container::Array)?;
        self.space();
        if self.peek() == Some(b']') {
            self.leave()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Passes over what may follow a value: ends of containers down to `floor`, or a comma and what must come before
    /// the next value.
    fn after_value(&mut self, floor: usize) -> Result<Next, Fault> {
        while self.open.len() > floor {
            match self.open.last() {
                Some(Container::Object(_)) => {
                    if self.comma_or(b'}')? {
                        self.name()?;
                        return Ok(Next::Value);
                    }
                }
                Some(Container::Array) => {
                    if self.comma_or(b']')? {
                        return Ok(Next::Value);
                    }
                }
                None => break,
            }
            self.leave()?;
        }
        Ok(Next::Done)
    }

    /// Passes over a comma, or stops before `end`. Says whether it was a comma.
    fn comma_or(&mut self, end: u8) -> Result<bool, Fault> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.bump();
                self.space();
                Ok(true)
            }
            Some(byte) if byte == end => Ok(false),
            _ if end == b'}' => Err(self.unexpected("`,` or `}`")),
            _ => Err(self.unexpected("`,` or `]`")),
        }
    }

    /// Passes over an opening bracket, which stands here.
    fn enter(&mut self, container: Container) -> Result<(), Fault> {
        self.count()?;
        if self.open.len() >= self.limits.depth {
            let limit = self.limits.depth;
            return Err(Fault::TooDeep { limit });
        }
        self.open.push(container);
        self.bump();
        Ok(())
    }

    /// Passes over a closing bracket, which stands here and is the right one.
    fn leave(&mut self) -> Result<(), Fault> {
        self.bump();
        if let Some(Container::Object(first)) = self.open.last().copied() {
            self.check_names(first)?;
            self.names.truncate(first);
        }
        self.open.pop();
        Ok(())
    }

    fn count(&mut self) -> Result<(), Fault> {
        if self.nodes >= self.limits.nodes {
            let limit = self.limits.nodes;
            return Err(Fault::TooManyNodes { limit });
        }
        self.nodes = self.nodes.saturating_add(1);
        Ok(())
    }

    /// Containers that are open here.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }
}

// === impl Scanner: names ===

impl<'a> Scanner<'a> {
    /// Passes over the name of a member, its colon, and the space around that.
    fn name(&mut self) -> Result<Quoted<'a>, Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a name in quotes"));
        }
        let name = self.string()?;
        if name.starts_with(RESERVED) {
            let (at, name) = (name.at, shown(&name.decoded()));
            return Err(Fault::Reserved { at, name });
        }
        self.keep_name(name)?;
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("`:`"));
        }
        self.bump();
        self.space();
        Ok(name)
    }

    fn keep_name(&mut self, name: Quoted<'a>) -> Result<(), Fault> {
        let first = match self.open.last() {
            Some(Container::Object(first)) => *first,
            Some(Container::Array) | None => self.names.len(),
        };
        let siblings = self.names.get(first..).unwrap_or_default();
        if siblings.len() < COMPARED_IN_PAIRS && siblings.iter().any(|sibling| sibling.is_same(name)) {
            return Err(duplicate(name));
        }
        self.names.push(name);
        Ok(())
    }

    /// Looks for duplicates among the names from `first` on, unless they are so few that all were compared before.
    /// The set hashes with random keys (SipHash), so that nobody can choose names that fall together.
    fn check_names(&self, first: usize) -> Result<(), Fault> {
        let names = self.names.get(first..).unwrap_or_default();
        if names.len() <= COMPARED_IN_PAIRS {
            return Ok(());
        }
        let mut seen = HashSet::with_capacity(names.len());
        match names.iter().find(|name| !seen.insert(name.decoded())) {
            Some(name) => Err(duplicate(*name)),
            None => Ok(()),
        }
    }
}

fn duplicate(name: Quoted<'_>) -> Fault {
    Fault::Duplicate { at: name.at, name: shown(&name.decoded()) }
}

// === impl Scanner: scalars ===

impl<'a> Scanner<'a> {
    fn scalar(&mut self) -> Result<(), Fault> {
        self.count()?;
        match self.peek() {
            Some(b'"') => self.string().map(|_| ()),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), Fault> {
        if !self.rest().starts_with(literal.as_bytes()) {
            return Err(Fault::syntax(self.at, format!("expected `{literal}`")));
        }
        self.at = self.at.saturating_add(literal.len());
        Ok(())
    }

    /// RFC 8259 §6. What may not follow (a digit after a leading zero, say) is found by whoever expects a comma there.
    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.bump();
        }
        if self.peek() == Some(b'0') {
            self.bump();
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.bump();
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.bump();
            if let Some(b'+' | b'-') = self.peek() {
                self.bump();
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.bump();
        }
        if self.at == start {
            return Err(self.unexpected("a digit"));
        }
        Ok(())
    }

    /// RFC 8259 §7, less the strings that mean no Unicode text (§8.2).
    // Inlined into both callers: as a call, moving its result costs a fifth of all the time a tool call takes here.
    #[inline(always)]
    fn string(&mut self) -> Result<Quoted<'a>, Fault> {
        let at = self.at;
        self.bump();
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at = self.at.saturating_add(plain_len(self.rest()));
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.unexpected("control characters as escapes")),
                None => return Err(Fault::syntax(at, "string without an end")),
            }
        }
        let raw = self.text.get(start..self.at).unwrap_or_default();
        self.bump();
        Ok(Quoted { raw, at, has_escapes })
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let at = self.at;
        self.bump();
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.bump(),
            Some(b'u') => {
                self.bump();
                self.unicode_escape(at)?;
            }
            _ => return Err(self.unexpected("an escape")),
        }
        Ok(())
    }

    /// The digits of one escape, or of the two that make a character outside the Basic Multilingual Plane. Half of
    /// such a pair is a string to some parsers, an error or U+FFFD to others.
    fn unicode_escape(&mut self, at: usize) -> Result<(), Fault> {
        const UNPAIRED: &str = "half a surrogate pair";
        match self.unit()? {
            0xDC00..=0xDFFF => Err(Fault::syntax(at, UNPAIRED)),
            0xD800..=0xDBFF => {
                if !self.rest().starts_with(b"\\u") {
                    return Err(Fault::syntax(at, UNPAIRED));
                }
                self.bump();
                self.bump();
                match self.unit()? {
                    0xDC00..=0xDFFF => Ok(()),
                    _ => Err(Fault::syntax(at, UNPAIRED)),
                }
            }
            _ => Ok(()),
        }
    }

    fn unit(&mut self) -> Result<u32, Fault> {
        let mut unit: u32 = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("four hex digits"));
            };
            unit = unit << 4 | digit;
            self.bump();
        }
        Ok(unit)
    }
}

// === impl Scanner: bytes ===

impl<'a> Scanner<'a> {
    /// The byte that stands here.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn bump(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Passes over the four characters JSON calls white space.
    pub(super) fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.bump();
        }
    }

    /// The text of a value that was passed over.
    pub(super) fn cut(&self, span: Span) -> &'a str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// Nothing but space may follow.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end")),
        }
    }

    /// Something else than `expected` stands here.
    pub(super) fn unexpected(&self, expected: &str) -> Fault {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let what = match rest.chars().next() {
            Some(found) => format!("expected {expected}, found `{}`", shown(found.encode_utf8(&mut [0; 4]))),
            None => format!("expected {expected}, found the end"),
        };
        Fault::syntax(self.at, what)
    }
}
