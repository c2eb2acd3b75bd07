//! What a kind of secret looks like: how it begins, and which characters follow. Each is looked at once, from left to right.

use std::fmt;

/// One kind of secret that is known by how it is written.
pub struct Shape {
    /// Its name in the documentation.
    pub id: &'static str,
    /// What it is.
    pub what: &'static str,
    /// How it begins, or where it has a mark in the middle, that mark.
    pub starts: &'static [&'static str],
    /// What stands before the mark: at least so many characters of these.
    pub before: Option<(Set, usize)>,
    /// What follows.
    pub then: &'static [Part],
    /// Whether it may not stand in the middle of a word: its beginning is so short that words have it, too.
    pub has_edge: bool,
}

/// What follows the beginning of a secret.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// These characters.
    Text(&'static str),
    /// At least so many characters of a set, and all that follow.
    Run(Set, usize),
    /// So many and no more: one more, and it is something else.
    Exactly(Set, usize),
    /// Any number of further pieces, each behind a full stop.
    Pieces(Set),
}

/// Characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// `0-9`
    Digit,
    /// `0-9a-f`
    Hex,
    /// `0-9A-Z`
    Upper,
    /// `0-9A-Za-z`
    Alnum,
    /// The alphabet of base64url, without padding.
    Url64,
    /// The alphabet of Base64, with padding.
    Base64,
    /// Base64url and the full stop.
    Dotted,
    /// `0-9A-Z-`
    UpperDash,
    /// Base64url, full stop and tilde.
    DottedTilde,
    /// Base64url, full stop, and what is percent-encoded.
    DottedPercent,
    /// Base64url with padding.
    Padded,
    /// What a path is written with.
    Path,
    /// Base64, with underscores between its pieces.
    Under64,
    /// What hashes of passwords are written with.
    Hash,
    /// Any printable character, and the ends of lines.
    Text,
}

// === impl Set ===

impl Set {
    /// Whether a character is one of them.
    pub fn has(self, byte: u8) -> bool {
        match self {
            Set::Digit => byte.is_ascii_digit(),
            Set::Hex => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            Set::Upper => byte.is_ascii_digit() || byte.is_ascii_uppercase(),
            Set::Alnum => byte.is_ascii_alphanumeric(),
            Set::Url64 => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'),
            Set::Base64 => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='),
            Set::Dotted => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
            Set::UpperDash => byte.is_ascii_digit() || byte.is_ascii_uppercase() || byte == b'-',
            Set::DottedTilde => Set::Dotted.has(byte) || byte == b'~',
            Set::DottedPercent => Set::Dotted.has(byte) || byte == b'%',
            Set::Padded => Set::Url64.has(byte) || byte == b'=',
            Set::Path => Set::Dotted.has(byte) || byte == b'/',
            Set::Under64 => Set::Base64.has(byte) || byte == b'_',
            Set::Hash => byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'$' | b'.' | b','),
            Set::Text => matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'),
        }
    }

    fn class(self) -> &'static str {
        match self {
            Set::Digit => "[0-9]",
            Set::Hex => "[0-9a-f]",
            Set::Upper => "[0-9A-Z]",
            Set::Alnum => "[0-9A-Za-z]",
            Set::Url64 => "[0-9A-Za-z_-]",
            Set::Base64 => "[0-9A-Za-z+/=]",
            Set::Dotted => "[0-9A-Za-z_.-]",
            Set::UpperDash => "[0-9A-Z-]",
            Set::DottedTilde => "[0-9A-Za-z_.~-]",
            Set::DottedPercent => "[0-9A-Za-z_.%-]",
            Set::Padded => "[0-9A-Za-z_=-]",
            Set::Path => "[0-9A-Za-z_./-]",
            Set::Under64 => "[0-9A-Za-z+/=_]",
            Set::Hash => "[0-9A-Za-z+/=$.,]",
            Set::Text => "[\\x20-~\\s]",
        }
    }

    /// A character that any of them has, for an example.
    fn sample(self, draw: u8) -> char {
        let of: &[u8] = match self {
            Set::Digit => b"0123456789",
            Set::Hex => b"0123456789abcdef",
            Set::Upper | Set::UpperDash => b"0123456789ABCDEFGHJKLMNPQRSTUVWXYZ",
            _ => b"0123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
        };
        char::from(of[usize::from(draw) % of.len()])
    }
}

// === impl Shape ===

impl Shape {
    /// Where it ends, when `starts[…]` ends at `at`. `looked_at` counts the characters that were looked at.
    pub(super) fn end(&self, text: &[u8], at: usize, looked_at: &mut usize) -> Option<usize> {
        let mut end = at;
        for part in self.then {
            let next = part.end(text, end);
            *looked_at += next.unwrap_or(end).saturating_sub(end) + 1;
            end = next?;
        }
        Some(end)
    }

    /// Where it begins, when its mark begins at `at`.
    pub(super) fn begin(&self, text: &[u8], at: usize) -> Option<usize> {
        let Some((set, least)) = self.before else {
            return Some(at);
        };
        // No more than a secret can have: what stands before is looked at for each mark anew.
        let n = text[..at].iter().rev().take(MOST_BEFORE).take_while(|byte| set.has(**byte)).count();
        (n >= least).then_some(at - n)
    }

    /// One of this kind that is nobody's. `draw` gives random numbers.
    pub fn example(&self, mut draw: impl FnMut() -> u8) -> String {
        let mut text = String::new();
        let (set, least) = self.before.unwrap_or((Set::Alnum, 0));
        (0..least).for_each(|_| text.push(set.sample(draw())));
        text.push_str(self.starts[usize::from(draw()) % self.starts.len()]);
        for part in self.then {
            match *part {
                Part::Text(piece) => text.push_str(piece),
                Part::Exactly(set, n) | Part::Run(set, n) => (0..n).for_each(|_| text.push(set.sample(draw()))),
                Part::Pieces(set) => {
                    text.push('.');
                    (0..24).for_each(|_| text.push(set.sample(draw())));
                }
            }
        }
        text
    }
}

impl fmt::Display for Shape {
    /// As a regular expression.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((set, least)) = self.before {
            write!(f, "{}{{{least},}}", set.class())?;
        }
        let escaped = |text: &str| text.replace('.', "\\.").replace('$', "\\$");
        match self.starts {
            [one] => f.write_str(&escaped(one))?,
            several => write!(f, "({})", escaped(&several.join("|")))?,
        }
        for part in self.then {
            match part {
                Part::Text(piece) => f.write_str(&escaped(piece))?,
                Part::Run(set, 0) => write!(f, "{}*", set.class())?,
                Part::Run(set, n) => write!(f, "{}{{{n},}}", set.class())?,
                Part::Exactly(set, n) => write!(f, "{}{{{n}}}", set.class())?,
                Part::Pieces(set) => write!(f, "(\\.{}*)*", set.class())?,
            }
        }
        Ok(())
    }
}

// === impl Part ===

impl Part {
    fn end(self, text: &[u8], at: usize) -> Option<usize> {
        let rest = &text[at..];
        let run = |set: Set| rest.iter().take_while(|byte| set.has(**byte)).count();
        match self {
            Part::Text(piece) => rest.starts_with(piece.as_bytes()).then_some(at + piece.len()),
            Part::Run(set, least) => Some(run(set)).filter(|n| *n >= least).map(|n| at + n),
            Part::Exactly(set, n) => {
                let is_exact = rest.iter().take(n + 1).take_while(|byte| set.has(**byte)).count() == n;
                is_exact.then_some(at + n)
            }
            Part::Pieces(set) => {
                let mut end = at;
                while text.get(end) == Some(&b'.') {
                    end += 1 + text[end + 1..].iter().take_while(|byte| set.has(**byte)).count();
                }
                Some(end)
            }
        }
    }
}

/// As far as is looked back from a mark.
const MOST_BEFORE: usize = 128;
