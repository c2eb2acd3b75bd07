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
    if text.len() <= max && are_plain(text.as_bytes()) {
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

/// Nearly every text is plain, and to see that is most of the work on a record: eight bytes are looked at at a time.
fn are_plain(bytes: &[u8]) -> bool {
    let (eights, rest) = bytes.as_chunks::<8>();
    let rest_is_plain = match bytes.last_chunk::<8>() {
        Some(last) => are_eight_plain(*last),
        None => rest.iter().all(|byte| is_plain(*byte)),
    };
    rest_is_plain && eights.iter().all(|eight| are_eight_plain(*eight))
}

/// Each test leaves the highest bit set in a byte that it is about. Borrows and carries run only out of bytes that are not
/// plain themselves.
fn are_eight_plain(bytes: [u8; 8]) -> bool {
    const HIGHEST: u64 = every(0x80);
    let word = u64::from_le_bytes(bytes);
    let holds = |byte: u8| {
        let zero_where_it_is = word ^ every(byte);
        zero_where_it_is.wrapping_sub(every(1)) & !zero_where_it_is
    };
    let (below_space, delete) = (word.wrapping_sub(every(b' ')), word.wrapping_add(every(1)));
    (word | below_space | delete | holds(b'"') | holds(b'\\')) & HIGHEST == 0
}

const fn every(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
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
    fn every_byte_is_judged_alike_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for (len, at) in (1..20).flat_map(|len| (0..len).map(move |at| (len, at))) {
                let mut text = vec![b'a'; len];
                text[at] = byte;
                assert_eq!(are_plain(&text), is_plain(byte), "{byte:#x} at {at} of {len}");
            }
            assert_eq!(are_plain(&[byte; 16]), is_plain(byte), "{byte:#x} everywhere");
        }
        assert!(are_plain(b""));
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
