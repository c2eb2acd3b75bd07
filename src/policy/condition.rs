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
    /// A value that this key cannot be asked of.
    WrongType(&'static str),
    /// The pointer leads into a value that has no such inside, which is a wrong type as well.
    Astray,
    Absent,
}

/// A JSON Pointer (RFC 6901), unescaped.
#[derive(Debug)]
pub(super) struct Pointer {
    /// As written.
    pub(super) text: Box<str>,
    pub(super) tokens: Box<[Box<str>]>,
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
            Place::Astray => Finding::Astray,
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
    let mut kinds = literals.iter().map(Literal::kind).filter(|kind| *kind != Kind::Null).peekable();
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
        Ok(Pointer { text: text.into(), tokens })
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
pub(super) fn index(token: &str) -> Option<usize> {
    let is_digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    match token {
        "-" => Some(usize::MAX),
        "0" => Some(0),
        _ if is_digits && !token.starts_with('0') => Some(token.parse().unwrap_or(usize::MAX)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::testing::{decide, policy, user, word};

    /// One condition on `/x`, in an allow alone and in a deny beside an allow of everything.
    /// `takes` says for the allow and for the deny whether the rule matches.
    #[track_caller]
    fn check(condition: &str, arguments: &str, takes: (bool, bool)) {
        let allow = format!("rules: [{{ name: a, tools: ['u/t'], when: {{ /x: {condition} }}, allow: {{}} }}]");
        let deny = format!(
            "rules: [{{ name: d, tools: ['u/t'], when: {{ /x: {condition} }}, deny: {{}} }}, \
             {{ name: a, tools: ['u/t'], allow: {{}} }}]"
        );
        let alice = user("alice", &[]);

        if !condition.contains("or_absent") {
            let decision = decide(&policy(&allow), &alice, "u/t", arguments);
            assert_eq!(word(&decision) == "allowed", takes.0, "allow {condition} on {arguments}");
        }
        let decision = decide(&policy(&deny), &alice, "u/t", arguments);
        assert_eq!(word(&decision) == "arguments", takes.1, "deny {condition} on {arguments}");
    }

    const BOTH: (bool, bool) = (true, true);
    const NEITHER: (bool, bool) = (false, false);
    /// What a wrong type gives.
    const ONLY_DENY: (bool, bool) = (false, true);

    #[test]
    fn equals_compares_json_values() {
        for (condition, argument) in [
            ("{ equals: 100 }", "1e2"),
            ("{ equals: 100 }", "100.0"),
            ("{ equals: -1.5 }", "-15e-1"),
            ("{ equals: 18446744073709551615 }", "18446744073709551615"),
            (r#"{ equals: "é\n" }"#, r#""\u00e9\n""#),
            ("{ equals: true }", "true"),
            ("{ equals: null }", "null"),
            ("{ equals: [1, 'a', [true]] }", r#"[ 1.0, "a" , [true] ]"#),
            ("{ equals: { a: 1, b: { c: null } } }", r#"{"b":{"c":null},"\u0061":1e0}"#),
            ("{ equals: [] }", "[ ]"),
            ("{ equals: {} }", "{ }"),
            ("{ in: ['a', 'b', 3] }", "3"),
        ] {
            check(condition, &format!(r#"{{"x":{argument}}}"#), BOTH);
        }
    }

    #[test]
    fn another_value_of_the_same_type_is_not_equal() {
        for (condition, argument) in [
            ("{ equals: 100 }", "100.0000000000000001"),
            ("{ equals: 9007199254740992 }", "9007199254740993"),
            ("{ equals: 'a' }", r#""A""#),
            ("{ equals: 'a' }", r#""a ""#),
            ("{ equals: true }", "false"),
            ("{ equals: [1, 2] }", "[2, 1]"),
            ("{ equals: [1, 2] }", "[1, 2, 3]"),
            ("{ equals: [1, 2] }", "[1]"),
            ("{ equals: { a: 1 } }", r#"{"a":1,"b":2}"#),
            ("{ equals: { a: 1 } }", "{}"),
            ("{ in: ['a', 'b'] }", r#""c""#),
        ] {
            check(condition, &format!(r#"{{"x":{argument}}}"#), NEITHER);
        }
    }

    #[test]
    fn a_wrong_type_is_taken_by_a_deny_and_never_by_an_allow() {
        for (condition, argument) in [
            ("{ equals: 100 }", r#""100""#),
            ("{ equals: 'a' }", r#"["a"]"#),
            ("{ equals: 'a' }", "null"),
            ("{ equals: true }", r#""true""#),
            ("{ in: ['a', null] }", "5"),
            ("{ matches: '.*' }", "5"),
            ("{ matches: '.*' }", r#"["a"]"#),
            ("{ not_matches: 'a' }", "null"),
            ("{ min: 1 }", r#""5""#),
            ("{ max: 1 }", "{}"),
            ("{ max_length: 3 }", "3"),
            ("{ max_length: 3 }", "{}"),
            ("{ matches: 'a', max_length: 1 }", "[1, 2, 3]"),
        ] {
            check(condition, &format!(r#"{{"x":{argument}}}"#), ONLY_DENY);
        }
    }

    #[test]
    fn only_null_is_asked_of_a_value_of_any_type() {
        check("{ equals: null }", r#"{"x":5}"#, NEITHER);
        check("{ in: [null] }", r#"{"x":"a"}"#, NEITHER);
    }

    #[test]
    fn an_absent_argument_is_taken_only_where_the_rule_says_so() {
        for arguments in ["", "{}", r#"{"y":1}"#, r#"{"X":1}"#] {
            check("{ equals: 1 }", arguments, NEITHER);
            check("{ not_matches: 'a' }", arguments, NEITHER);
            check("{ present: true }", arguments, NEITHER);
            check("{ equals: 1, or_absent: true }", arguments, ONLY_DENY);
            check("{ present: false }", arguments, BOTH);
        }
    }

    #[test]
    fn null_is_there() {
        check("{ present: true }", r#"{"x":null}"#, BOTH);
        check("{ present: false }", r#"{"x":null}"#, NEITHER);
        check("{ equals: 1, or_absent: true }", r#"{"x":null}"#, ONLY_DENY);
    }

    #[test]
    fn a_pattern_is_asked_of_the_whole_text() {
        check("{ matches: 'rm' }", r#"{"x":"rm"}"#, BOTH);
        check("{ matches: 'rm' }", r#"{"x":"rm -rf"}"#, NEITHER);
        check("{ matches: 'a|b' }", r#"{"x":"ab"}"#, NEITHER);
        check("{ matches: '(?x) a b # two letters' }", r#"{"x":"ab"}"#, BOTH);
        check("{ matches: '(?m)^a$' }", r#"{"x":"a\nb"}"#, NEITHER);
        check("{ not_matches: 'a.*' }", r#"{"x":"b"}"#, BOTH);
        check("{ not_matches: 'a.*' }", r#"{"x":"ab"}"#, NEITHER);
    }

    #[test]
    fn dot_takes_newlines_where_the_rule_closes() {
        check("{ matches: '.*rm.*' }", r#"{"x":"\nrm\n"}"#, ONLY_DENY);
        check("{ matches: 'a$' }", r#"{"x":"a\n"}"#, NEITHER);
    }

    #[test]
    fn limits_are_inclusive_and_exact() {
        check("{ min: 1, max: 100 }", r#"{"x":100.0}"#, BOTH);
        check("{ min: 1, max: 100 }", r#"{"x":1e0}"#, BOTH);
        check("{ min: 1, max: 100 }", r#"{"x":100.0000000000000001}"#, NEITHER);
        check("{ min: 1, max: 100 }", r#"{"x":0.9999999999999999999}"#, NEITHER);
        check("{ max: 100 }", r#"{"x":1e999999999}"#, NEITHER);
        check("{ min: 0 }", r#"{"x":-0.0}"#, BOTH);
    }

    #[test]
    fn length_counts_characters_and_elements() {
        check("{ max_length: 2 }", r#"{"x":"\u00e9\ud83d\ude00"}"#, BOTH);
        check("{ max_length: 2 }", r#"{"x":"abc"}"#, NEITHER);
        check("{ max_length: 2 }", r#"{"x":[[1,2],{"a":3}]}"#, BOTH);
        check("{ max_length: 2 }", r#"{"x":[1,2,3]}"#, NEITHER);
    }

    /// The same as `check`, with the pointer of interest.
    #[track_caller]
    fn check_at(pointer: &str, arguments: &str, takes: (bool, bool)) {
        let allow =
            format!("rules: [{{ name: a, tools: ['u/t'], when: {{ '{pointer}': {{ equals: 1 }} }}, allow: {{}} }}]");
        let deny = format!(
            "rules: [{{ name: d, tools: ['u/t'], when: {{ '{pointer}': {{ equals: 1 }} }}, deny: {{}} }}, \
             {{ name: a, tools: ['u/t'], allow: {{}} }}]"
        );
        let alice = user("alice", &[]);
        let allow = decide(&policy(&allow), &alice, "u/t", arguments);
        let deny = decide(&policy(&deny), &alice, "u/t", arguments);
        assert_eq!((word(&allow) == "allowed", word(&deny) == "arguments"), takes, "{pointer} on {arguments}");
    }

    #[test]
    fn pointers_lead_through_objects_and_arrays() {
        check_at("/a/b", r#"{"a":{"b":1}}"#, BOTH);
        check_at("/a/1", r#"{"a":[0,1]}"#, BOTH);
        check_at("/a~1b/~0", r#"{"a/b":{"~":1}}"#, BOTH);
        check_at("/", r#"{"":1}"#, BOTH);
        check_at("/~01", r#"{"~1":1}"#, BOTH);
        check_at("/é", r#"{"\u00e9":1}"#, BOTH);
        check_at("/a/b", r#"{"a":{"c":1}}"#, NEITHER);
        check_at("/a/2", r#"{"a":[0,1]}"#, NEITHER);
        check_at("/a/-", r#"{"a":[1]}"#, NEITHER);
    }

    #[test]
    fn a_pointer_into_what_has_no_inside_is_a_wrong_type() {
        check_at("/a/b", r#"{"a":null}"#, ONLY_DENY);
        check_at("/a/b", r#"{"a":"{\"b\":1}"}"#, ONLY_DENY);
        check_at("/a/b", r#"{"a":[{"b":1}]}"#, ONLY_DENY);
        check_at("/a/01", r#"{"a":[0,1]}"#, ONLY_DENY);
    }
}
