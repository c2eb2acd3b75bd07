//! A JSON string as it is written, compared and read as it is meant.
//!
//! `"\u0061"` and `"a"` are the same name. Only a string that has escapes is ever copied, and only when someone wants
//! to keep it.

use std::borrow::Cow;
use std::str::Chars;

/// A string between its quotes, found well formed by the scanner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quoted<'a> {
    /// Without the quotes.
    pub(super) raw: &'a str,
    /// Where the opening quote stands.
    pub(super) at: usize,
    pub(super) has_escapes: bool,
}

/// The characters of a string, escapes resolved. Half a surrogate pair or a broken escape, which no accepted text
/// has, is read as U+FFFD.
pub(super) struct Unescaped<'a>(Chars<'a>);

/// What stands between two quotes, escapes resolved; copied only if there are any.
pub(super) fn unescape(raw: &str) -> Cow<'_, str> {
    if raw.contains('\\') { Cow::Owned(Unescaped(raw.chars()).collect()) } else { Cow::Borrowed(raw) }
}

/// How many bytes from the start of `text` may stand in a string as they are: no quote, no backslash, no control
/// character. Names and short values end within the first words; what most of a large message is made of does not.
// Inlined, since for the short ones the call would cost as much as the work.
#[inline(always)]
pub(super) fn plain_len(text: &[u8]) -> usize {
    let Some((start, rest)) = text.split_at_checked(SHORT) else {
        return plain_len_by_words(text);
    };
    let len = plain_len_by_words(start);
    if len < SHORT { len } else { SHORT.saturating_add(plain_len_by_blocks(rest)) }
}

/// A string that is longer is worth the look at whole blocks.
const SHORT: usize = 32;
const BLOCK: usize = 64;

/// Without a branch for each byte, so that the compiler compares many at once.
#[inline(never)]
fn plain_len_by_blocks(text: &[u8]) -> usize {
    // Gathered in a byte: of a `bool` the compiler makes twice as many instructions.
    let found = |found: u8, byte: &u8| found | u8::from(is_special(*byte));
    let is_plain = |block: &[u8; BLOCK]| block.iter().fold(0, found) == 0;
    let (blocks, _) = text.as_chunks::<BLOCK>();
    let len = blocks.iter().take_while(|block| is_plain(block)).count().saturating_mul(BLOCK);
    len.saturating_add(plain_len_by_words(text.get(len..).unwrap_or_default()))
}

/// Eight bytes at a time.
#[inline(always)]
fn plain_len_by_words(text: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // Sets the highest bit of the first byte below `n` (and perhaps of later ones, which do not matter).
    let below = |word: u64, n: u64| word.wrapping_sub(ONES.wrapping_mul(n)) & !word & HIGHS;
    let equals = |word: u64, byte: u8| below(word ^ ONES.wrapping_mul(u64::from(byte)), 1);

    let (words, rest) = text.as_chunks::<8>();
    let mut len: usize = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        let special = below(word, 0x20) | equals(word, b'"') | equals(word, b'\\');
        if special != 0 {
            return len.saturating_add((special.trailing_zeros() / 8) as usize);
        }
        len = len.saturating_add(8);
    }
    let tail = rest.iter().take_while(|byte| !is_special(**byte)).count();
    len.saturating_add(tail)
}

fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

// === impl Quoted ===

impl<'a> Quoted<'a> {
    pub(super) fn decoded(self) -> Cow<'a, str> {
        unescape(self.raw)
    }

    pub(super) fn starts_with(self, prefix: &str) -> bool {
        if !self.has_escapes {
            return self.raw.starts_with(prefix);
        }
        let mut chars = self.chars();
        prefix.chars().all(|c| chars.next() == Some(c))
    }

    pub(super) fn is_same(self, other: Self) -> bool {
        if self.has_escapes || other.has_escapes { self.chars().eq(other.chars()) } else { self.raw == other.raw }
    }

    fn chars(self) -> Unescaped<'a> {
        Unescaped(self.raw.chars())
    }
}

// === impl Unescaped ===

impl Iterator for Unescaped<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self.0.next()? {
            '\\' => Some(self.escape().unwrap_or(char::REPLACEMENT_CHARACTER)),
            c => Some(c),
        }
    }
}

impl Unescaped<'_> {
    fn escape(&mut self) -> Option<char> {
        match self.0.next()? {
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            'n' => Some('\n'),
            'r' => Some('\r'),
            't' => Some('\t'),
            'u' => self.unicode(),
            c => Some(c),
        }
    }

    fn unicode(&mut self) -> Option<char> {
        let high = self.unit()?;
        if !(0xD800..=0xDBFF).contains(&high) {
            return char::from_u32(u32::from(high));
        }
        if self.0.next()? != '\\' || self.0.next()? != 'u' {
            return None;
        }
        let low = self.unit()?;
        char::decode_utf16([high, low]).next()?.ok()
    }

    fn unit(&mut self) -> Option<u16> {
        let (digits, rest) = self.0.as_str().split_at_checked(4)?;
        self.0 = rest.chars();
        u16::from_str_radix(digits, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_bytes_are_counted_alike_in_blocks_in_words_and_one_by_one() {
        for special in 0..=255 {
            for at in (0..20).chain([31, 32, 33, 95, 96, 97, 103, 150, 159]) {
                for filler in [b' ', b'!', b'#', b'[', b']', b'a', 0x7f, 0x80, 0xff] {
                    let mut text = [filler; 160];
                    text[at] = special;

                    let expected = text.iter().take_while(|byte| !is_special(**byte)).count();
                    assert_eq!(plain_len(&text), expected, "{special:#x} at {at}");
                    assert_eq!(plain_len(&text[..at]), at);
                }
            }
        }
    }

    #[test]
    fn only_a_string_with_escapes_is_copied() {
        assert!(matches!(unescape("é€😀"), Cow::Borrowed("é€😀")));
        assert!(matches!(unescape(r"\u00e9"), Cow::Owned(text) if text == "é"));
    }

    #[test]
    fn broken_escapes_are_read_as_something() {
        for raw in
            [r"\", r"\u", r"\u12", r"\uzzzz", r"\ud800", r"\ud800\", r"\ud800\u", r"\ud800\u0061", r"\udc00", "\\u00é"]
        {
            assert!(unescape(raw).contains('\u{fffd}'), "{raw}");
        }
    }
}
