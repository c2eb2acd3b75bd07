//! The value that stands behind the name of a secret: `password=…`, `"token": "…"`, `X-Api-Key: …`, `--secret …`,
//! `<password>…</password>`, also where quotes are escaped and signs are percent-encoded.

use super::find::Search;
use super::names;
use std::ops::Range;

/// Where the value of `name` stands, if it names a secret and has one.
pub(super) fn of(search: &mut Search<'_>, name: Range<usize>) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    let begin = separated(text, &name)?;
    let word = search.text.get(name.clone())?.trim_start_matches('-');
    let is_parameter = matches!(text[..name.start], [.., b'?' | b'&' | b'#'])
        || ["%3F", "%3f", "%26", "%23"].iter().any(|sign| text[..name.start].ends_with(sign.as_bytes()));
    // `%26password`: what is read as the beginning of the word is a part of what is percent-encoded.
    let word = word.strip_prefix("26").or(word.strip_prefix("3F")).or(word.strip_prefix("3f")).unwrap_or(word);
    let is_percent_parameter = word.len() < name.len() && text[..name.start].ends_with(b"%");
    let how = How {
        is_secret: names::is_secret(word),
        is_parameter: (is_parameter || is_percent_parameter) && names::is_secret_parameter(word),
        is_session: names::is_session(word),
    };
    if !(how.is_secret || how.is_parameter || how.is_session) {
        return None;
    }
    let value = read(search, word, &name, &begin)?;
    let shown = search.text.get(value.clone())?;
    let is_secret = !is_plain(shown)
        && match how {
            How { is_secret: true, .. } => {
                !(word.eq_ignore_ascii_case("pwd") || word.eq_ignore_ascii_case("oldpwd")) || !shown.starts_with('/')
            }
            How { is_parameter: true, .. } => shown.len() >= 8,
            How { .. } => shown.len() >= 16 && looks_random(shown),
        };
    is_secret.then_some(value)
}

/// Why a name counts.
struct How {
    is_secret: bool,
    is_parameter: bool,
    is_session: bool,
}

/// Where a value begins, and what separates it from its name.
struct Beginning {
    at: usize,
    sign: Sign,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// `=`
    Equals,
    /// `:`
    Colon,
    /// Either, percent-encoded.
    Percent,
    /// A blank behind a flag.
    Flag,
    /// `>` of an element.
    Element,
}

/// What separates the name from a value, if anything does.
fn separated(text: &[u8], name: &Range<usize>) -> Option<Beginning> {
    let mut at = name.end;
    // Brackets and quotes that close the name.
    for _ in 0..MOST_SIGNS {
        at += match &text[at..] {
            [b'"' | b'\'' | b'\\' | b']' | b'`' | b'*', ..] => 1,
            [b'%', b'2', b'2' | b'7', ..] | [b'%', b'5', b'D' | b'd', ..] => 3,
            [0x1b, b'[', ..] => colour(&text[at..]),
            rest if rest.starts_with(b"&quot;") => 6,
            rest if rest.starts_with(b"&#34;") || rest.starts_with(b"&#39;") => 5,
            _ => break,
        };
    }
    let is_flag = text[name.start..].starts_with(b"-") && at == name.end;
    let blanks = blanks(&text[at..]);
    at += blanks;
    let (sign, n) = match &text[at..] {
        [b'=', b'=' | b'>', ..] => (Sign::Equals, 2),
        [b'=', ..] => (Sign::Equals, 1),
        [b':', b'=', ..] => (Sign::Equals, 2),
        // `Token::new`, `token://`
        [b':', b':', ..] | [b':', b'/', b'/', ..] => return None,
        [b':', ..] => (Sign::Colon, 1),
        [b'%', b'3', b'D' | b'd' | b'A' | b'a', ..] => (Sign::Percent, 3),
        [b'>', ..] if text[..name.start].ends_with(b"<") => (Sign::Element, 1),
        [_, ..] if is_flag && blanks > 0 => (Sign::Flag, 0),
        _ => return None,
    };
    Some(Beginning { at: at + n, sign })
}

fn blanks(text: &[u8]) -> usize {
    let mut n = 0;
    for _ in 0..MOST_SIGNS {
        n += match &text[n..] {
            [b' ' | b'\t', ..] => 1,
            [b'%', b'2', b'0', ..] => 3,
            [0x1b, b'[', ..] => colour(&text[n..]),
            _ => break,
        };
    }
    n
}

/// The length of what sets a colour of a terminal: the log has some between a name and its value.
fn colour(text: &[u8]) -> usize {
    text.iter().take(MOST_SIGNS).position(|byte| *byte == b'm').map_or(1, |n| n + 1)
}

/// Reads the value that begins there.
fn read(search: &mut Search<'_>, word: &str, name: &Range<usize>, begin: &Beginning) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    let n_blanks = blanks(&text[begin.at..]);
    let at = begin.at + n_blanks;
    if is_blot(&text[at..]) {
        return None;
    }
    if let Some(opened) = quote(&text[at..]) {
        let start = at + opened.len;
        let end = opened.end(&text[start..]).map_or(text.len(), |n| start + n);
        search.looked_at += end - start;
        let value = credentials(search.text, word, start..end);
        // Another text that was quoted begins here, as in `token: "` at the end of a sentence: not on one line.
        return Some(value);
    }
    let is_line = names::is_header_of_credentials(word)
        || begin.sign == Sign::Colon && n_blanks > 0 && begins_line(&text[..name.start]) && names::is_password(word);
    let end = match begin.sign {
        Sign::Element => at + text[at..].iter().position(|byte| *byte == b'<').unwrap_or(text.len() - at),
        _ if is_line => line_end(text, at),
        Sign::Colon if matches!(text[at..], [b'[', ..]) => list_end(text, at),
        sign => word_end(text, at, sign == Sign::Percent),
    };
    search.looked_at += end - at;
    let shown = search.text.get(at..end)?;
    if begin.sign == Sign::Flag && shown.starts_with('-')
        || shown.starts_with(['{', '|', '>']) && begin.sign == Sign::Colon
    {
        return None;
    }
    // "token: expired" is a sentence; "password: swordfish" is not, nor is `client_secret: swordfish`.
    let is_sentence = begin.sign == Sign::Colon && !is_line && !word.contains(['_', '-']) && !names::is_password(word);
    let is_line_of_many = text[..name.start].contains(&b'\n') && begins_line(&text[..name.start]);
    if is_sentence && !looks_random(shown) && !is_line_of_many {
        return None;
    }
    Some(credentials(search.text, word, at..end))
}

/// Asterisks and nothing else: what stood there is blotted out already, as in the lines of a configuration that is shown.
fn is_blot(text: &[u8]) -> bool {
    let n = text.iter().take_while(|byte| **byte == b'*').count();
    n >= 3 && text.get(n).is_none_or(|byte| b" ,;}])\n\r\"'".contains(byte))
}

/// Without the scheme, where the value is that of `Authorization` or alike: `Bearer `, `Basic `, `token `.
fn credentials(text: &str, word: &str, value: Range<usize>) -> Range<usize> {
    let Some(shown) = text.get(value.clone()) else { return value };
    if !word.to_ascii_lowercase().contains("auth") {
        return value;
    }
    let scheme = shown.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'-').count();
    let behind = blanks(&shown.as_bytes()[scheme..]).max(usize::from(shown[scheme..].starts_with('+')));
    let is_scheme = SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(&shown[..scheme]));
    if is_scheme && behind > 0 { value.start + scheme + behind..value.end } else { value }
}

/// A quote that opens a value, as it is written: `"`, `\"`, `%22`, `&quot;`, `Some("`.
struct Quote {
    len: usize,
    sign: &'static [u8],
    /// Backslashes before it.
    escapes: usize,
}

fn quote(text: &[u8]) -> Option<Quote> {
    let before = [&b"Some("[..], b"b"].into_iter().find(|word| {
        text.strip_prefix(*word).is_some_and(|rest| matches!(rest, [b'"' | b'\'', ..] | [b'\\', b'"', ..]))
    });
    let n_before = before.map_or(0, <[u8]>::len);
    let rest = &text[n_before..];
    let escapes = rest.iter().take(MOST_ESCAPES).take_while(|byte| **byte == b'\\').count();
    let rest = &rest[escapes..];
    let signs: [&'static [u8]; 8] = [b"\"", b"'", b"`", b"%22", b"%27", b"&quot;", b"&#34;", b"&#39;"];
    let sign = signs.into_iter().find(|sign| rest.starts_with(sign))?;
    Some(Quote { len: n_before + escapes + sign.len(), sign, escapes })
}

// === impl Quote ===

impl Quote {
    /// Where its counterpart begins. One that is escaped more deeply than this one belongs to the value.
    fn end(&self, text: &[u8]) -> Option<usize> {
        let group = (self.escapes + 1).next_power_of_two() * 2;
        let mut n_escapes = 0;
        for (at, byte) in text.iter().enumerate() {
            if text[at..].starts_with(self.sign) && (self.sign.len() > 1 || n_escapes % group == self.escapes) {
                return Some(at - self.escapes.min(n_escapes));
            }
            n_escapes = if *byte == b'\\' { n_escapes + 1 } else { 0 };
        }
        None
    }
}

fn begins_line(before: &[u8]) -> bool {
    let trimmed = before.trim_ascii_end();
    let trimmed = trimmed.strip_suffix(b"-").unwrap_or(trimmed);
    let between = &before[trimmed.trim_ascii_end().len()..];
    trimmed.trim_ascii_end().is_empty()
        || between.contains(&b'\n')
        || [&b"\\n"[..], b"\\r"].iter().any(|end| trimmed.ends_with(end))
}

fn line_end(text: &[u8], at: usize) -> usize {
    let rest = &text[at..];
    let (mut end, mut is_quoted) = (0, false);
    loop {
        end += match &rest[end..] {
            [] | [b'\n' | b'\r', ..] | [b'\\', b'n' | b'r', ..] | [b'%', b'0', b'A' | b'D' | b'a' | b'd', ..] => break,
            // `response="…"` is a part of the credentials; another quote is around all of them.
            [b'=', b'"', ..] => {
                is_quoted = true;
                2
            }
            [b'=', b'\\', b'"', ..] => {
                is_quoted = true;
                3
            }
            [b'\\', b'"', ..] if is_quoted => {
                is_quoted = false;
                2
            }
            [b'"', ..] if is_quoted => {
                is_quoted = false;
                1
            }
            [b'"', ..] | [b'\\', b'"', ..] => break,
            _ => 1,
        };
    }
    at + rest[..end].trim_ascii_end().len()
}

fn list_end(text: &[u8], at: usize) -> usize {
    at + text[at..].iter().position(|byte| *byte == b']').map_or(text.len() - at, |n| n + 1)
}

/// The end of a value without quotes. A sign that may belong to a value ends it only where something else begins behind it.
fn word_end(text: &[u8], start: usize, is_percent: bool) -> usize {
    let mut at = start;
    while let [byte, rest @ ..] = &text[at..] {
        let ends = match byte {
            b' ' | b'\t'..=b'\r' | 0x00..=0x08 | 0x7f | b'"' | b'\'' | b'`' | b'<' => true,
            b'\\' => matches!(rest, [b'n' | b'r' | b't' | b'"' | b'\'', ..]),
            b'&' => is_percent || begins_parameter(rest),
            b';' => matches!(rest, [] | [b' ' | b'\n' | b'"', ..]) || begins_parameter(rest),
            b',' | b')' | b'}' | b']' | b'>' | b'|' => {
                rest.first().is_none_or(|next| b" \t\r\n\"'`,;)}]>\\".contains(next))
            }
            b'%' if is_percent => {
                matches!(rest, [b'2', b'6' | b'0' | b'2', ..] | [b'0', b'A' | b'a' | b'D' | b'd', ..])
            }
            _ => false,
        };
        if ends {
            break;
        }
        at += 1;
    }
    at
}

/// `name=`, or the reference of HTML to such a sign.
fn begins_parameter(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"amp;").unwrap_or(text);
    let text = text.strip_prefix(b" ").unwrap_or(text);
    let n =
        text.iter().take(MOST_NAME).take_while(|byte| byte.is_ascii_alphanumeric() || b"_-.[] ".contains(byte)).count();
    n > 0 && (text[n..].starts_with(b"=") || text[n..].starts_with(b"%3D"))
}

/// What is no secret even behind the name of one: nothing, a word for nothing, what was hidden before, a reference, a short number.
fn is_plain(value: &str) -> bool {
    let is_word =
        ["null", "none", "nil", "true", "false", "undefined"].iter().any(|word| value.eq_ignore_ascii_case(word));
    let is_hidden = ["[masked", "[secret", "[redacted"].contains(&value.trim_end_matches(']'))
        || value.bytes().all(|byte| byte == b'*');
    let is_reference = ["${", "$("].iter().any(|sign| {
        let name = value.strip_prefix(sign).map(|rest| rest.trim_end_matches(['}', ')']));
        name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
    });
    is_word || is_hidden || is_reference || value.len() < 4 && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a word is more like a credential than like a word.
pub(super) fn looks_random(value: &str) -> bool {
    let has = |is: fn(&u8) -> bool| value.as_bytes().iter().skip(1).any(is);
    value.len() >= 20 && !value.contains(' ')
        || value.len() >= 6 && (has(u8::is_ascii_digit) || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase))
}

const SCHEMES: &[&str] = &[
    "bearer",
    "basic",
    "token",
    "bot",
    "dpop",
    "digest",
    "negotiate",
    "apikey",
    "hmac",
    "hoba",
    "mutual",
    "aws4-hmac-sha256",
    "key",
];
const MOST_SIGNS: usize = 8;
const MOST_ESCAPES: usize = 16;
const MOST_NAME: usize = 64;
