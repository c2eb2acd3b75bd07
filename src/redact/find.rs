//! Where secrets stand in a text. One look over the text finds all beginnings, marks and names at once; only there is it read
//! more closely. What is read closely is counted: a text made so that it would be read again and again is hidden from there on.

use super::names;
use super::pattern::Shape;
use super::places;
use super::shapes::SHAPES;
use super::value;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use std::ops::Range;
use std::sync::LazyLock;

/// What was found at a place.
#[derive(Clone, Copy)]
enum Mark {
    /// The beginning of a shape, or its middle.
    Shape(&'static Shape, &'static str),
    /// A part of names of secrets.
    Name,
    /// What is known by more than its beginning.
    Place(places::Place),
    /// What the Base64 of any of these looks like.
    Encoded(usize),
}

struct Finder {
    marks: AhoCorasick,
    kinds: Vec<Mark>,
    /// The Base64 of beginnings, by the number in [`Mark::Encoded`].
    encoded: Vec<String>,
}

static FINDER: LazyLock<Finder> = LazyLock::new(Finder::new);

/// Where secrets stand, in order and apart from each other. Empty for most texts.
pub(super) fn find(text: &str) -> Vec<Range<usize>> {
    find_within(text, 0)
}

fn find_within(text: &str, depth: usize) -> Vec<Range<usize>> {
    if text.len() < SHORTEST {
        return Vec::new();
    }
    let mut search = Search {
        text,
        looked_at: 0,
        most: text.len().saturating_mul(LOOKS).saturating_add(ROOM),
        name_end: 0,
        found: Vec::new(),
        depth,
    };
    search.run(&FINDER);
    joined(search.found)
}

/// A search in one text.
pub(super) struct Search<'t> {
    pub(super) text: &'t str,
    /// Characters that were read closely.
    pub(super) looked_at: usize,
    most: usize,
    /// Where the last name that was judged ends.
    name_end: usize,
    found: Vec<Range<usize>>,
    /// How often what is searched was decoded.
    depth: usize,
}

// === impl Finder ===

impl Finder {
    fn new() -> Self {
        let (mut words, mut kinds): (Vec<String>, Vec<Mark>) = (Vec::new(), Vec::new());
        let mut add = |word: &str, kind: Mark| {
            words.push(word.to_owned());
            kinds.push(kind);
        };
        for shape in SHAPES {
            shape.starts.iter().for_each(|start| add(start, Mark::Shape(shape, start)));
        }
        names::MARKS.iter().for_each(|mark| add(mark, Mark::Name));
        places::MARKS.iter().for_each(|(mark, place)| add(mark, Mark::Place(*place)));
        places::discord_beginnings().iter().for_each(|mark| add(mark, Mark::Place(places::Place::Discord)));
        let encoded = encoded();
        encoded.iter().enumerate().for_each(|(n, mark)| add(mark, Mark::Encoded(n)));
        // Without regard to capitals: names are written in any; what is not is compared again.
        let marks = AhoCorasick::builder().ascii_case_insensitive(true).kind(Some(AhoCorasickKind::DFA)).build(&words);
        Finder { marks: marks.expect("a few hundred short words"), kinds, encoded }
    }
}

/// What the Base64 of beginnings of secrets has in it, wherever they stand in what was encoded.
fn encoded() -> Vec<String> {
    let starts = SHAPES.iter().flat_map(|shape| shape.starts).copied().filter(|start| start.len() >= 3);
    let mut all: Vec<String> =
        starts.chain(ENCODED.iter().copied()).flat_map(|start| phases(start.as_bytes())).collect();
    all.sort();
    all.dedup();
    all
}

/// The characters of the Base64 of `bytes` that are the same whatever stands around them.
fn phases(bytes: &[u8]) -> impl Iterator<Item = String> {
    (0..3).map(move |before| {
        let padded = [&vec![0; before][..], bytes].concat();
        let text = super::base64::encode(&padded);
        let (from, to) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        text[from..to].to_owned()
    })
}

// === impl Search ===

impl Search<'_> {
    fn run(&mut self, finder: &Finder) {
        for hit in finder.marks.find_overlapping_iter(self.text) {
            let at = hit.start();
            if self.looked_at > self.most {
                self.found.push(at..self.text.len());
                return;
            }
            if self.found.last().is_some_and(|last| last.contains(&at)) {
                continue;
            }
            let found = match finder.kinds[hit.pattern().as_usize()] {
                Mark::Shape(shape, start) => self.shape(shape, start, at),
                Mark::Name => self.name(at, hit.end()),
                Mark::Place(place) => places::find(self, place, at..hit.end()),
                Mark::Encoded(n) => self.encoded(&finder.encoded[n], at),
            };
            let is_new = |found: &Range<usize>| !found.is_empty() && !super::is_tag(&self.text[found.clone()]);
            self.found.extend(found.filter(is_new));
        }
        if self.depth == 0 {
            self.encoded_texts();
        }
    }

    /// Beginnings of two letters have no Base64 to be known by. What is Base64 of a text is read as that text.
    fn encoded_texts(&mut self) {
        let bytes = self.text.as_bytes();
        let mut end = if bytes.len() < SHORTEST_TEXT { bytes.len() } else { 0 };
        while let Some(begin) = bytes[end..].iter().position(is_base64).map(|n| end + n) {
            end = begin + bytes[begin..].iter().take_while(|byte| is_base64(byte)).count();
            if end - begin < SHORTEST_TEXT || self.found.iter().any(|found| found.contains(&begin)) {
                continue;
            }
            let is_text = |from: &usize| begins_a_text(&super::base64::decode(&bytes[*from..from + SHORTEST_TEXT - 4]));
            // Where a group of four begins is not known, as above.
            let holds_secret = (begin..begin + 4).filter(is_text).any(|from| {
                let decoded = super::base64::decode(&bytes[from..end]);
                !find_within(&String::from_utf8_lossy(&decoded), self.depth + 1).is_empty()
            });
            if holds_secret {
                self.found.push(begin..with_padding(bytes, end));
            }
        }
    }

    fn shape(&mut self, shape: &Shape, start: &str, at: usize) -> Option<Range<usize>> {
        let bytes = self.text.as_bytes();
        if !bytes[at..].starts_with(start.as_bytes()) {
            return None;
        }
        let begin = shape.begin(bytes, at)?;
        if shape.has_edge && !is_edge(bytes, begin) {
            return None;
        }
        shape.end(bytes, at + start.len(), &mut self.looked_at).map(|end| begin..end)
    }

    fn name(&mut self, at: usize, end: usize) -> Option<Range<usize>> {
        if end <= self.name_end {
            return None;
        }
        let bytes = self.text.as_bytes();
        let is_word = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let begin = at - bytes[..at].iter().rev().take(LONGEST_NAME).take_while(is_word).count();
        let end = end + bytes[end..].iter().take(LONGEST_NAME).take_while(is_word).count();
        self.name_end = end;
        self.looked_at += end - begin;
        // `\npassword`, where the end of a line is written so.
        let is_escape = begin > 0 && bytes[begin - 1] == b'\\' && matches!(bytes[begin], b'n' | b'r' | b't');
        let is_coloured = bytes[..begin].ends_with(b"\x1b[");
        let colour =
            bytes[begin..at].iter().position(|byte| *byte == b'm').filter(|_| is_coloured).map_or(0, |n| n + 1);
        value::of(self, begin + usize::from(is_escape).max(colour)..end)
    }

    /// What is Base64 of something that holds a secret is one as a whole.
    fn encoded(&mut self, mark: &str, at: usize) -> Option<Range<usize>> {
        let bytes = self.text.as_bytes();
        if self.depth > 0 || !bytes[at..].starts_with(mark.as_bytes()) {
            return None;
        }
        let before = bytes[..at].iter().rev().take(NEAR).take_while(|byte| is_base64(byte)).count();
        let after = bytes[at..].iter().take(FAR).take_while(|byte| is_base64(byte)).count();
        self.looked_at += before + after;
        // Where a group of four begins is not known: the run may begin before what was encoded, as in `x-` and then Base64. What is
        // found must have to do with the mark: in what is no text, much looks like something.
        let holds_secret = (0..before.min(3) + 1).any(|skip| {
            let from = at - before + skip;
            let place = (at - from) * 3 / 4;
            let decoded = super::base64::decode(&bytes[from..at + after]);
            let text = String::from_utf8_lossy(&decoded);
            // Characters that are none took more room in the text than in what was decoded.
            let place = String::from_utf8_lossy(&decoded[..place.min(decoded.len())]).len();
            let is_of_mark = |found: &Range<usize>| found.end > place && found.start < place + 2 * LONGEST_NAME;
            find_within(&text, self.depth + 1).iter().any(is_of_mark)
        });
        if !holds_secret {
            return None;
        }
        let begin = at - bytes[..at].iter().rev().take_while(|byte| is_base64(byte)).count();
        let end = at + bytes[at..].iter().take_while(|byte| is_base64(byte)).count();
        Some(begin..with_padding(bytes, end))
    }
}

fn is_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_')
}

/// Whether these are characters, the last of which may be cut off, and none that no text has.
fn begins_a_text(bytes: &[u8]) -> bool {
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        Err(_) => return false,
    };
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'))
}

fn with_padding(text: &[u8], end: usize) -> usize {
    end + text[end..].iter().take(2).take_while(|byte| **byte == b'=').count()
}

/// Whether no word goes on here. What is percent-encoded or escaped is no part of a word.
pub(super) fn is_edge(text: &[u8], at: usize) -> bool {
    let before = &text[..at];
    match before {
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [.., b'\\', b'n' | b'r' | b't'] => true,
        // The end of what sets a colour of a terminal.
        [.., b'm'] if ends_colour(before) => true,
        [.., b'\\', b'u', a, b, c, d] => [a, b, c, d].iter().all(|byte| byte.is_ascii_hexdigit()),
        [.., last] => !last.is_ascii_alphanumeric(),
        [] => true,
    }
}

fn ends_colour(text: &[u8]) -> bool {
    let digits = text.iter().rev().skip(1).take(6).take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    text[..text.len() - 1 - digits].ends_with(b"\x1b[")
}

/// In order, and those that touch each other as one.
fn joined(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_by_key(|range| (range.start, range.end));
    let mut apart: Vec<Range<usize>> = Vec::with_capacity(found.len());
    for range in found {
        match apart.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// No secret is shorter than its name and one character.
const SHORTEST: usize = 4;
const LONGEST_NAME: usize = 64;
/// No secret with a beginning of two letters takes less Base64; and by chance nothing so long is a text.
const SHORTEST_TEXT: usize = 36;
/// As much of what may be Base64 is decoded: before the mark, and from it on.
const NEAR: usize = 192;
const FAR: usize = 1400;
/// How often each character may be read closely, on the average.
const LOOKS: usize = 8;
const ROOM: usize = 64 * 1024;
/// What is looked for in Base64 beside the beginnings of shapes.
const ENCODED: &[&str] = &[
    "-----BEGIN",
    "Bearer ",
    "bearer ",
    "Basic ",
    "password",
    "Password",
    "PASSWORD",
    "passwd",
    "secret",
    "Secret",
    "SECRET",
    "token",
    "Token",
    "TOKEN",
    "api_key",
    "apikey",
    "apiKey",
    "API_KEY",
    "api-key",
    "Authorization",
    "authorization",
    "AccountKey=",
    "SharedAccessKey=",
];
