//! One line of the log and how it holds on to the line before it.
//!
//! `{"seq":…,"at":…,"mono_ms":…,"segment":…` members `,"prev":"…","hash":"…"}`. `hash` is the SHA-256 of the line's bytes
//! without `,"hash":"…"`, so that it can be checked with `sed` and `sha256sum`; `prev` is the `hash` of the record before.

use crate::clock;
use ring::digest;
use serde::{Deserialize, Serialize};
use std::fmt;

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

/// A hash, written in lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct Hash(pub(super) [u8; 32]);

/// The end of a chain: the last record that is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Its number; 0 before the first.
    pub(super) seq: u64,
    /// Its hash; zeros before the first.
    pub(super) hash: Hash,
}

/// When something happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    /// By the clock, which may be set back.
    pub(super) at_ms: i64,
    /// Since this log was opened, which never goes back.
    pub(super) mono_ms: u64,
}

/// What a line says of its place in the chain. Its hash is right, or there would be none of this.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) head: Head,
    pub(super) prev: Hash,
}

/// Adds the record after `head` to `out` and moves `head` to it.
pub(super) fn seal(out: &mut Vec<u8>, head: &mut Head, stamp: Stamp, segment: &str, members: &[u8]) {
    let start = out.len();
    let seq = head.seq + 1;
    out.extend_from_slice(b"{\"seq\":");
    push_number(out, seq);
    out.extend_from_slice(b",\"at\":\"");
    out.extend_from_slice(clock::rfc3339(stamp.at_ms).as_bytes());
    out.extend_from_slice(b"\",\"mono_ms\":");
    push_number(out, stamp.mono_ms);
    out.extend_from_slice(b",\"segment\":\"");
    out.extend_from_slice(segment.as_bytes());
    out.push(b'"');
    out.extend_from_slice(members);
    out.extend_from_slice(PREV);
    push_hex(out, &head.hash.0);
    out.extend_from_slice(b"\"");

    let hash = hash_of(&out[start..]);
    out.extend_from_slice(HASH);
    push_hex(out, &hash.0);
    out.extend_from_slice(b"\"}\n");
    *head = Head { seq, hash };
}

/// Reads a line (without its line break) and checks its hash. The error says what is wrong with it.
pub(super) fn unseal(line: &[u8]) -> Result<Sealed, &'static str> {
    let (rest, hash) = split_hex(line, HASH, b"\"}").ok_or("is not a record")?;
    if hash_of(rest) != hash {
        return Err("does not have the hash it states: it was changed");
    }
    let (rest, prev) = split_hex(rest, PREV, b"\"").ok_or("does not name the record before it")?;
    let seq = rest
        .strip_prefix(b"{\"seq\":")
        .and_then(|rest| rest.split(|b| *b == b',').next())
        .and_then(|digits| str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .ok_or("has no number")?;
    let head = Head { seq, hash };
    Ok(Sealed { head, prev })
}

/// Splits `…<key><64 hexadecimal digits><end>` into what is before the key, and the hash.
fn split_hex<'a>(text: &'a [u8], key: &[u8], end: &[u8]) -> Option<(&'a [u8], Hash)> {
    let text = text.strip_suffix(end)?;
    let (text, hex) = text.split_at_checked(text.len().checked_sub(64)?)?;
    Some((text.strip_suffix(key)?, Hash::parse(hex)?))
}

fn hash_of(line_without_hash: &[u8]) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(line_without_hash);
    context.update(b"}");
    let mut hash = [0; 32];
    hash.copy_from_slice(context.finish().as_ref());
    Hash(hash)
}

/// Adds `value` in decimal.
pub(super) fn push_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Adds `hash` in lower-case hexadecimal.
pub(super) fn push_hex(out: &mut Vec<u8>, hash: &[u8; 32]) {
    let mut digits = [0; 64];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(hash) {
        *pair = [hex_digit(byte >> 4), hex_digit(byte & 15)];
    }
    out.extend_from_slice(&digits);
}

/// By arithmetic, which the compiler does for many digits at once; it does not look up many in a table.
fn hex_digit(value: u8) -> u8 {
    value + b'0' + u8::from(value > 9) * (b'a' - b'0' - 10)
}

// === impl Hash ===

impl Hash {
    /// Only what we write ourselves: an upper-case digit would be a change no hash covers.
    fn parse(hex: &[u8]) -> Option<Hash> {
        let mut hash = [0; 32];
        let (pairs, rest) = hex.as_chunks::<2>();
        if pairs.len() != hash.len() || !rest.is_empty() {
            return None;
        }
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Hash(hash))
    }
}

fn digit(hex: u8) -> Option<u8> {
    match hex {
        b'0'..=b'9' => Some(hex - b'0'),
        b'a'..=b'f' => Some(hex - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for Hash {
    type Error = &'static str;

    fn try_from(hex: String) -> Result<Hash, &'static str> {
        Hash::parse(hex.as_bytes()).ok_or("not a SHA-256 in lower-case hexadecimal")
    }
}

// === impl Head ===

impl Head {
    /// Before the first record.
    pub(super) const NONE: Head = Head { seq: 0, hash: Hash([0; 32]) };
}

/// A line, its line break included, is never longer.
pub(super) const LINE_MAX: usize = 16 * 1024;
const PREV: &[u8] = b",\"prev\":\"";
const HASH: &[u8] = b",\"hash\":\"";

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Vec<u8> {
        let mut out = Vec::new();
        let stamp = Stamp { at_ms: 1_700_000_000_500, mono_ms: 7 };
        let mut head = Head { seq: 41, hash: Hash([0xab; 32]) };
        seal(&mut out, &mut head, stamp, "b1", b",\"event\":\"stop\"");
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn a_line_has_its_keys_in_order_and_says_its_place() {
        let line = line();

        let text = str::from_utf8(&line).expect("ASCII");
        assert!(
            text.starts_with(
                r#"{"seq":42,"at":"2023-11-14T22:13:20.500Z","mono_ms":7,"segment":"b1","event":"stop","prev":"abab"#
            ),
            "{text}"
        );
        let sealed = unseal(&line).expect("as sealed");
        assert_eq!(sealed.head.seq, 42);
        assert_eq!(sealed.prev, Hash([0xab; 32]));
    }

    #[test]
    fn the_hash_is_that_of_the_line_without_it() {
        let text = String::from_utf8(line()).expect("ASCII");
        let (before, hash) = text.split_once(",\"hash\":\"").expect("has a hash");

        let expected = Hash(sha256(format!("{before}}}").as_bytes()));

        assert_eq!(hash, format!("{expected}\"}}"));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let line = line();
        for at in 0..line.len() * 8 {
            let mut changed = line.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(unseal(&changed).is_err(), "bit {at}");
        }
    }

    #[test]
    fn any_cut_is_noticed() {
        let line = line();
        for end in 0..line.len() {
            assert!(unseal(&line[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn numbers_are_decimal() {
        for value in [0, 9, 10, 1_234_567, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, value);
            assert_eq!(out, value.to_string().into_bytes());
        }
    }
}
