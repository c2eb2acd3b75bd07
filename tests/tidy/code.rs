//! Just enough of Rust's grammar for the rules: what is code and what is comment or text, and where functions end.

/// `text` with the insides of comments, strings and characters turned into spaces. Lines and columns stay.
pub(super) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = end_of_token(bytes, at);
        if end > at + 1 {
            out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
        at = end;
    }
    String::from_utf8(out).expect("whole characters were blanked")
}

/// Where the comment or literal that begins at `at` ends; `at + 1` when none begins there.
fn end_of_token(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => at + block_comment(rest),
        [b'r', b'"' | b'#', ..] if !is_in_word(bytes, at) => at + raw_string(rest).unwrap_or(1),
        [b'"', ..] => at + string(rest),
        [b'\'', ..] => at + character(rest).unwrap_or(1),
        _ => at + 1,
    }
}

/// Whether the byte at `at` goes on with a word; the `r` of `br` does not, since it begins a literal.
fn is_in_word(bytes: &[u8], at: usize) -> bool {
    let before = |n: usize| at.checked_sub(n).map_or(b' ', |at| bytes[at]);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match (before(2), before(1)) {
        (first, b'b') => is_word(first),
        (_, last) => is_word(last),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < rest.len() {
        match (rest[at], rest[at + 1]) {
            (b'/', b'*') => (depth, at) = (depth + 1, at + 2),
            (b'*', b'/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8]) -> Option<usize> {
    let n_hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + n_hashes) != Some(&b'"') {
        // A raw identifier: `r#in`.
        return None;
    }
    let close = [b"\"".as_slice(), &b"#".repeat(n_hashes)].concat();
    let from = n_hashes + 2;
    let inside = rest[from..].windows(close.len()).position(|window| window == close);
    Some(inside.map_or(rest.len(), |inside| from + inside + close.len()))
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// A character, and not a lifetime: it ends with a quote.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let close = rest.iter().skip(3).position(|byte| *byte == b'\'')?;
        return Some(3 + close + 1);
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(6)])
        .or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]));
    let first = text.ok()?.chars().next()?;
    let close = 1 + first.len_utf8();
    (rest.get(close) == Some(&b'\'')).then_some(close + 1)
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Counted from 1.
    pub(super) line: usize,
    /// From the one with its name to the one with its last brace.
    pub(super) n_lines: usize,
}

/// The functions in what [`code`] left.
pub(super) fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if is_in_word(code.as_bytes(), at) {
            continue;
        }
        let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if let (false, Some(end)) = (name.is_empty(), end_of_body(&code[at..])) {
            let n_lines = code[at..at + end].lines().count();
            found.push(Function { name, line: line_of(code, at), n_lines });
        }
    }
    found
}

/// The line, counted from 1, of a byte.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Where the body ends; `None` for a declaration without one.
fn end_of_body(from_fn: &str) -> Option<usize> {
    let mut depth_of_brackets = 0;
    let mut depth = 0;
    for (at, byte) in from_fn.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth_of_brackets += 1,
            b')' | b']' => depth_of_brackets -= 1,
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            b';' if depth == 0 && depth_of_brackets == 0 => return None,
            _ => {}
        }
    }
    None
}

#[test]
fn comments_and_literals_are_blanked_and_code_stays() {
    let cases = [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        (r#"f("x\"y", 'z', '"', '\'', b"w")"#, "f(      ,    ,    ,     , b   )"),
        ("r\"a\" r#\"b\"c\"# br\"d\" r#in", "              b     r#in"),
        ("for<'a> &'a str", "for<'a> &'a str"),
        ("'é' + 'a'", "     +    "),
    ];
    for (text, expected) in cases {
        assert_eq!(code(text), expected, "{text}");
    }
}

#[test]
fn functions_are_measured_from_name_to_last_brace() {
    let text = "trait T { fn declared(&self) -> [u8; 2]; }\nimpl T {\n    fn one() {}\n    fn two(x: fn(u8)) {\n        if x {\n        }\n    }\n}\n";
    let found: Vec<_> = functions(text).into_iter().map(|f| (f.name, f.line, f.n_lines)).collect();
    assert_eq!(found, [("one".to_owned(), 3, 1), ("two".to_owned(), 4, 4)]);
}
