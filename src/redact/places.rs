//! Secrets that are known by where they stand: behind `Bearer `, before the host of a URL, in a PEM frame, behind `curl -u`.

use super::base64;
use super::find::{Search, is_edge};
use super::value::looks_random;
use std::ops::Range;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Bearer,
    Basic,
    /// `://` of a URL, plain or percent-encoded.
    Url,
    Pem,
    /// `-u user:password` of curl and others.
    User,
    /// `"d":"…"`, the private part of a JSON Web Key.
    Jwk,
    Discord,
}

/// What begins each, in lower case.
pub(super) const MARKS: &[(&str, Place)] = &[
    ("bearer", Place::Bearer),
    ("basic", Place::Basic),
    ("://", Place::Url),
    ("%3a%2f%2f", Place::Url),
    (":\\/\\/", Place::Url),
    ("-----begin", Place::Pem),
    ("-u ", Place::User),
    ("--user ", Place::User),
    ("--user=", Place::User),
    ("--proxy-user ", Place::User),
    ("\"d\"", Place::Jwk),
];

/// For the documentation: what stands where.
pub(super) const TABLE: &[(&str, &str)] = &[
    ("Bearer credentials (RFC 6750), in any header or text", "`Bearer …`"),
    ("Basic credentials (RFC 7617)", "`Basic …`, where it is the Base64 of something with a colon"),
    ("user name and password of a URL, such as of a database", "`scheme://…@host`"),
    ("parameter of a URL or form that names a secret", "`?api_key=…`, `&code=…`, `&X-Amz-Signature=…`"),
    ("private key in a PEM frame (RFC 7468)", "`-----BEGIN … PRIVATE KEY-----`, with line ends of any kind"),
    ("private part of a JSON Web Key (RFC 7517)", "`\"d\": \"…\"`"),
    ("user and password of a command", "`-u user:password`, `--user user:password`"),
    ("flag that names a secret", "`--token …`, `--password=…`"),
    ("header of credentials", "`Authorization: …`, `Proxy-Authorization: …`, `Cookie: …`, `Set-Cookie: …`"),
    (
        "value under a name of a secret",
        "`password=…`, `\"client_secret\": \"…\"`, `api_key: …`, `AccountKey=…`, `<password>…</password>`",
    ),
    ("Discord bot token", "three pieces of base64url, of which the first is a number"),
    (
        "any of these in Base64",
        "in the Base64 of a text, which is read as that text; in that of anything else by how the Base64 of their beginnings looks, decoded to make sure",
    ),
];

/// What stands at such a place.
pub(super) fn find(search: &mut Search<'_>, place: Place, mark: Range<usize>) -> Option<Range<usize>> {
    match place {
        Place::Bearer => bearer(search, &mark),
        Place::Basic => basic(search, &mark),
        Place::Url => user_info(search, mark),
        Place::Pem => pem(search, mark.start),
        Place::User => user(search, &mark),
        Place::Jwk => jwk(search, mark.end),
        Place::Discord => discord(search, mark.start),
    }
}

/// Where the word behind a scheme begins.
fn behind(text: &[u8], at: usize) -> Option<usize> {
    let mut begin = at;
    for _ in 0..4 {
        begin += match &text[begin..] {
            [b' ' | b'+' | b'\t', ..] => 1,
            [b'%', b'2', b'0', ..] => 3,
            _ => break,
        };
    }
    (begin > at).then_some(begin)
}

fn bearer(search: &mut Search<'_>, mark: &Range<usize>) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    let begin = behind(text, mark.end)?;
    let is_token = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-._~+/%:".contains(byte);
    let end = begin + text[begin..].iter().take_while(is_token).count();
    let end = begin + text[begin..end].iter().rposition(|byte| !b".,:".contains(byte)).map_or(0, |n| n + 1);
    search.looked_at += end - begin;
    let token = search.text.get(begin..end)?;
    // `Bearer realm="…"` is a challenge.
    let is_parameter = matches!(text[end..], [b'=', b'"' | b'\\', ..]);
    let padding = text[end..].iter().take(2).take_while(|byte| **byte == b'=').count();
    (!is_parameter && looks_random(token)).then_some(begin..end + padding)
}

fn basic(search: &mut Search<'_>, mark: &Range<usize>) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    let begin = behind(text, mark.end)?;
    let is_base64 = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let end = begin + text[begin..].iter().take_while(is_base64).count();
    search.looked_at += end - begin;
    let decoded = base64::decode(&text[begin..end]);
    let is_pair = decoded.contains(&b':')
        && decoded.iter().filter(|byte| byte.is_ascii_graphic()).count() * 4 >= decoded.len() * 3;
    let padding = text[end..].iter().take(2).take_while(|byte| **byte == b'=').count();
    is_pair.then_some(begin..end + padding)
}

/// What stands before the host.
fn user_info(search: &mut Search<'_>, mark: Range<usize>) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    let begin = mark.end;
    let is_percent = text[mark.start] == b'%';
    let ends_text = |byte: &u8| byte.is_ascii_whitespace() || byte.is_ascii_control() || b"\"'`<>\\".contains(byte);
    let ends_host = |byte: &u8| ends_text(byte) || b"/?#".contains(byte);
    let rest = &text[begin..];
    // Most URLs have no such sign, and are done with here.
    let sign = if is_percent { b'%' } else { b'@' };
    if rest.starts_with(b"[") || memchr::memchr(sign, &rest[..rest.len().min(MOST_HOST)]).is_none() {
        return None;
    }
    let (at_sign, slash): (&[u8], _) = if is_percent { (b"%40", text_end(rest, b"%2F")) } else { (b"@", None) };
    let authority = rest.iter().position(ends_host).unwrap_or(rest.len()).min(slash.unwrap_or(usize::MAX));
    search.looked_at += authority;
    let last_at = |within: &[u8]| memchr::memmem::rfind(within, at_sign);
    let n = last_at(&rest[..authority]).or_else(|| {
        // A password with a slash in it: what follows the colon is no port.
        let (_, port) = split(&rest[..authority], b':')?;
        if port.is_empty() || port.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let end = rest.iter().position(ends_text).unwrap_or(rest.len());
        search.looked_at += end;
        last_at(&rest[..end])
    })?;
    let scheme = text[..mark.start].iter().rev().take(12).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let is_web = text[mark.start - scheme..mark.start].to_ascii_lowercase().starts_with(b"http");
    let has_password = rest[..n].contains(&b':') || memchr::memmem::find(&rest[..n], b"%3A").is_some();
    // `ssh://git@host` names a user of whom everybody knows.
    (n > 0 && (is_web || has_password)).then_some(begin..begin + n)
}

fn text_end(text: &[u8], sign: &[u8]) -> Option<usize> {
    memchr::memmem::find(&text[..text.len().min(MOST_HOST)], sign)
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let n = text.iter().position(|byte| *byte == at)?;
    Some((&text[..n], &text[n + 1..]))
}

/// From the first line of the frame to its last, or as far as what follows can be a key.
fn pem(search: &mut Search<'_>, at: usize) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    let first = text[at..].iter().take(MOST_LABEL).position(|byte| matches!(byte, b'\n' | b'\\')).unwrap_or(MOST_LABEL);
    let line = &text[at..(at + first).min(text.len())];
    let spaced = |word: &str| memchr::memmem::rfind(line, word.as_bytes()).map(|n| n + word.len());
    let label = ["PRIVATE KEY", "PRIVATE+KEY", "PRIVATE%20KEY"].into_iter().find_map(spaced)?;
    let begin = at + label;
    let is_key = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/=-:,. \n\r\t\\%_".contains(byte);
    let end = begin + text[begin..].iter().take_while(is_key).count();
    search.looked_at += end - begin;
    let frame = b"-----END";
    let end = memchr::memmem::find(&text[begin..end], frame).map_or(end, |n| {
        let last = begin + n + frame.len();
        let dashes = memchr::memmem::find(&text[last..end], b"-----").map_or(end, |n| last + n + 5);
        dashes.min(last + MOST_LABEL).min(end)
    });
    Some(at..end)
}

fn user(search: &mut Search<'_>, mark: &Range<usize>) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    if !is_edge(text, mark.start) || text[..mark.start].ends_with(b"-") {
        return None;
    }
    let quotes = text[mark.end..].iter().take(4).take_while(|byte| b" \"'\\".contains(byte)).count();
    let begin = mark.end + quotes;
    let end =
        begin + text[begin..].iter().take_while(|byte| !byte.is_ascii_whitespace() && !b"\"'".contains(byte)).count();
    search.looked_at += end - begin;
    let (user, password) = split(&text[begin..end], b':')?;
    let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
    // `docker run -u 1000:1000`
    let is_pair = !(user.is_empty() || password.is_empty() || is_number(user) && is_number(password));
    (is_pair && !password.starts_with(b"//")).then_some(begin..end)
}

fn jwk(search: &mut Search<'_>, at: usize) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    let begin = at + text[at..].iter().take(4).take_while(|byte| b": \"".contains(byte)).count();
    let n = text[begin..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte)).count();
    search.looked_at += n;
    (begin > at && n >= 40).then_some(begin..begin + n)
}

/// Three pieces; the first is the Base64 of a number of 17 to 20 digits.
fn discord(search: &mut Search<'_>, at: usize) -> Option<Range<usize>> {
    let text = search.text.as_bytes();
    if !is_edge(text, at) {
        return None;
    }
    let piece = |from: usize| {
        text[from..].iter().take(48).take_while(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)).count()
    };
    let first = piece(at);
    search.looked_at += first;
    if !(22..=28).contains(&first) || text.get(at + first) != Some(&b'.') {
        return None;
    }
    let second = piece(at + first + 1);
    let begin = at + first + 1 + second;
    if !(5..=7).contains(&second) || text.get(begin) != Some(&b'.') {
        return None;
    }
    let third = piece(begin + 1);
    let is_number = base64::decode(&text[at..at + first]).iter().take(16).all(u8::is_ascii_digit);
    (third >= 25 && is_number).then_some(at..begin + 1 + third)
}

/// How the Base64 of three digits and more begins.
pub(super) fn discord_beginnings() -> Vec<String> {
    let mut all: Vec<String> =
        (100..1000).map(|n: u32| base64::encode(n.to_string().as_bytes())[..3].to_owned()).collect();
    all.dedup();
    all
}

const MOST_HOST: usize = 4096;
const MOST_LABEL: usize = 80;
