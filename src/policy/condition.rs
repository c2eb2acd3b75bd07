//! Conditions on arguments: where to look (a JSON Pointer) and what must be found there.
//!
//! What is found is one of four things, and the rule's effect decides what each of them means: an allow takes only what
//! holds; a deny or hold also takes a value of the wrong type, since an upstream may read `"5"` where the rule said 5.

use super::literal::Literal;
use super::number;
use crate::jsonrpc::{Kind, Node};
use regex::Regex;
use std::cmp::Ordering;

/// One entry of a rule's `when`.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) pointer: Pointer,
    /// Never empty.
    pub(super) tests: Vec<Test>,
    pub(super) or_absent: bool,
}

/// What must be found. `Absent` stands alone.
#[derive(Debug)]
pub(super) enum Test {
    /// `equals`, or `in`: one of these.
    OneOf(&'static str, Box<[Literal]>),
    Matches(Regex),
    NotMatches(Regex),
    Min(Box<str>),
    Max(Box<str>),
    Present,
    Absent,
    MaxLength(u64),
}

/// How an argument stands to a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Holds,
    /// The right type, and this key is not fulfilled.
    Fails(&'static str),
    /// This key, or the pointer on its way, met a value it cannot be asked of.
    WrongType(&'static str),
    Absent,
}

/// A JSON Pointer (RFC 6901), unescaped.
#[derive(Debug)]
pub(super) struct Pointer {
    /// As written.
    pub(super) text: Box<str>,
    tokens: Box<[Box<str>]>,
}

/// Where a pointer leads.
enum Place<'a> {
    At(Node<'a>),
    Nowhere,
    /// Into a value that has no such inside: a text, a number, `null`, or an array asked for a name.
    Astray,
}

// === impl Condition ===

impl Condition {
    pub(super) fn find(&self, arguments: Option<Node<'_>>) -> Finding {
        match self.pointer.follow(arguments) {
            Place::At(node) => self.find_at(node),
            Place::Astray => Finding::WrongType("pointer"),
            Place::Nowhere if self.wants_absence() => Finding::Holds,
            Place::Nowhere => Finding::Absent,
        }
    }

    /// One wrong type outweighs all else: otherwise a value could slip past a deny by failing another key of it.
    fn find_at(&self, node: Node<'_>) -> Finding {
        let mut worst = Finding::Holds;
        for test in &self.tests {
            match test.find(node) {
                wrong @ Finding::WrongType(_) => return wrong,
                failed @ Finding::Fails(_) if worst == Finding::Holds => worst = failed,
                _ => {}
            }
        }
        worst
    }

    fn wants_absence(&self) -> bool {
        self.tests.iter().any(|test| matches!(test, Test::Absent))
    }
}

// === impl Test ===

impl Test {
    /// The key in the configuration.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Test::OneOf(key, _) => key,
            Test::Matches(_) => "matches",
            Test::NotMatches(_) => "not_matches",
            Test::Min(_) => "min",
            Test::Max(_) => "max",
            Test::Present | Test::Absent => "present",
            Test::MaxLength(_) => "max_length",
        }
    }

    fn find(&self, node: Node<'_>) -> Finding {
        let answer = match self {
            Test::Present => Some(true),
            Test::Absent => Some(false),
            Test::OneOf(_, literals) => one_of(literals, node),
            Test::Matches(regex) => node.as_str().map(|text| regex.is_match(&text)),
            Test::NotMatches(regex) => node.as_str().map(|text| !regex.is_match(&text)),
            Test::Min(limit) => compare(node, limit).map(Ordering::is_ge),
            Test::Max(limit) => compare(node, limit).map(Ordering::is_le),
            Test::MaxLength(limit) => length(node).map(|n| n <= *limit),
        };
        match answer {
            Some(true) => Finding::Holds,
            Some(false) => Finding::Fails(self.key()),
            None => Finding::WrongType(self.key()),
        }
    }
}

/// `None` when the value has the type of none of them. `null` has no type of its own to miss: a rule that names only
/// `null` asks whether something is `null`, of a value of any type.
fn one_of(literals: &[Literal], node: Node<'_>) -> Option<bool> {
    if literals.iter().any(|literal| literal.equals(node)) {
        return Some(true);
    }
    let mut kinds = literals
        .iter()
        .map(Literal::kind)
        .filter(|kind| *kind != Kind::Null)
        .peekable();
    let is_of_a_kind = kinds.peek().is_none() || kinds.any(|kind| kind == node.kind());
    is_of_a_kind.then_some(false)
}

fn compare(node: Node<'_>, limit: &str) -> Option<Ordering> {
    number::compare(node.as_number()?, limit)
}

/// Characters of a string, elements of an array.
fn length(node: Node<'_>) -> Option<u64> {
    let n = match node.kind() {
        Kind::String => node.as_str()?.chars().count(),
        Kind::Array => node.elements().count(),
        _ => return None,
    };
    Some(u64::try_from(n).unwrap_or(u64::MAX))
}

// === impl Pointer ===

impl Pointer {
    pub(super) fn parse(text: &str) -> Result<Pointer, &'static str> {
        let tokens = match text.strip_prefix('/') {
            None if text.is_empty() => Box::default(),
            None => return Err("does not begin with `/`"),
            Some(path) => path.split('/').map(unescape).collect::<Result<_, _>>()?,
        };
        Ok(Pointer {
            text: text.into(),
            tokens,
        })
    }

    /// The last name on the way, which says what the argument is called.
    pub(super) fn last(&self) -> Option<&str> {
        self.tokens.last().map(AsRef::as_ref)
    }

    fn follow<'a>(&self, arguments: Option<Node<'a>>) -> Place<'a> {
        let Some(mut node) = arguments else {
            return Place::Nowhere;
        };
        for token in &self.tokens {
            let inside = match node.kind() {
                Kind::Object => node.get(token),
                Kind::Array => match index(token) {
                    Some(at) => node.elements().nth(at),
                    None => return Place::Astray,
                },
                _ => return Place::Astray,
            };
            match inside {
                Some(inside) => node = inside,
                None => return Place::Nowhere,
            }
        }
        Place::At(node)
    }
}

/// `~1` is `/`, `~0` is `~`, and no other `~` may stand.
fn unescape(token: &str) -> Result<Box<str>, &'static str> {
    let mut pieces = token.split('~');
    let mut name = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (meant, rest) = match (piece.strip_prefix('0'), piece.strip_prefix('1')) {
            (Some(rest), _) => ('~', rest),
            (_, Some(rest)) => ('/', rest),
            _ => return Err("has a `~` that is neither `~0` (for `~`) nor `~1` (for `/`)"),
        };
        name.push(meant);
        name.push_str(rest);
    }
    Ok(name.into())
}

/// Without leading zeros, so that one element has one name. `-` names the element after the last: there is none.
fn index(token: &str) -> Option<usize> {
    let is_digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    match token {
        "-" => Some(usize::MAX),
        "0" => Some(0),
        _ if is_digits && !token.starts_with('0') => Some(token.parse().unwrap_or(usize::MAX)),
        _ => None,
    }
}
