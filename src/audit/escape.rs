//! Text of strangers as printable ASCII: for JSON strings in the log, and for terminals that show it.
//!
//! Everything outside U+0020..U+007E is written `\uXXXX`. A line then cannot be broken by any reader's idea of a
//! line break, and a terminal that prints it is told nothing.

use super::chain::{self, Hash};

/// A value that did not fit: which, how long it was, and its hash, so that it can still be recognised.
pub(super) struct Cut {
    key: &'static str,
    bytes: usize,
    /// None for what must not be guessed at.
    sha256: Option<[u8; 32]>,
}

impl Cut {
    pub(super) fn new(key: &'static str, value: &str) -> Self {
        Cut { key, bytes: value.len(), sha256: Some(chain::sha256(value.as_bytes())) }
    }

    /// Of a value that is left out whole, and of which nothing else is to be known.
    pub(super) fn whole(key: &'static str, bytes: usize) -> Self {
        Cut { key, bytes, sha256: None }
    }

    pub(super) fn push(&self, out: &mut Vec<u8>) {
        let (key, bytes) = (self.key, self.bytes);
        let mut text = format!(r#"{{"key":"{key}","bytes":{bytes}"#);
        if let Some(sha256) = self.sha256.map(Hash) {
            text.push_str(&format!(r#","sha256":"{sha256}""#));
        }
        text.push('}');
        out.extend_from_slice(text.as_bytes());
    }
}

/// Adds `text` as the inside of a JSON string, at most `max` bytes of it. Returns how many bytes of `text` that took.
pub(super) fn push(out: &mut Vec<u8>, text: &str, max: usize) -> usize {
    if text.len() <= max && text.bytes().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
        return text.len();
    }
    let start = out.len();
    for (at, c) in text.char_indices() {
        let before = out.len();
        push_char(out, c);
        if out.len() - start > max {
            out.truncate(before);
            return at;
        }
    }
    text.len()
}

/// `text` with everything a terminal could obey or a reader mistake written as `\uXXXX`.
pub fn escaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    push(&mut out, text, usize::MAX);
    String::from_utf8(out).expect("only ASCII was written")
}

/// Compact JSON with everything outside printable ASCII written as `\\uXXXX`, which can only stand inside its strings.
pub fn ascii(json: String) -> String {
    if json.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + json.len() / 2);
    for c in json.chars() {
        match c {
            ' '..='~' => out.push(c as u8),
            _ => push_char(&mut out, c),
        }
    }
    String::from_utf8(out).expect("only ASCII was written")
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\'
}

fn push_char(out: &mut Vec<u8>, c: char) {
    match c {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        ' '..='~' => out.push(c as u8),
        _ => {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_becomes_printable_ascii_and_reads_back(text in any::<String>(), max in 0usize..200) {
            let mut out = Vec::new();
            let taken = push(&mut out, &text, max);

            prop_assert!(out.len() <= max);
            prop_assert!(out.iter().all(|b| (0x20..0x7f).contains(b)));
            let json = format!("\"{}\"", String::from_utf8(out).expect("ASCII"));
            let back: String = serde_json::from_str(&json).expect("a JSON string");
            prop_assert_eq!(back.as_str(), &text[..taken]);
        }
    }

    #[test]
    fn json_keeps_its_meaning_as_ascii() {
        let value = serde_json::json!({ "é\u{7f}": ["\u{1b}[2J\u{202e}\"\\", 1.5, null, "😀\u{2028}"] });
        let text = ascii(value.to_string());
        assert!(text.bytes().all(|b| (0x20..0x7f).contains(&b)), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), value);
    }

    #[test]
    fn a_terminal_is_told_nothing() {
        assert_eq!(escaped("a\u{1b}[2J\u{202e}\n"), r"a\u001b[2J\u202e\u000a");
    }
}
