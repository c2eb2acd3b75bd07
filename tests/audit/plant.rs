//! Secrets that are planted, each once, and a scanner that finds any of them in any spelling.

use aho_corasick::AhoCorasick;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use portcullis::redact::SHAPES;
use std::collections::{BTreeMap, BTreeSet};

/// Makes secrets, and keeps what was made.
pub(crate) struct Plant {
    state: u64,
    n_made: usize,
    /// Where each was planted, its kind, and what is looked for of it.
    pub(crate) planted: Vec<Planted>,
}

/// One secret.
pub(crate) struct Planted {
    pub(crate) place: &'static str,
    pub(crate) kind: &'static str,
    /// Pieces of it that are nobody else's: a secret that was cut is not gone.
    pieces: Vec<String>,
}

/// A piece is so long: nothing has it by chance.
const PIECE: usize = 12;

// === impl Plant ===

impl Plant {
    /// From a seed, which is printed: the same one makes the same secrets.
    pub(crate) fn new() -> Plant {
        let given = std::env::var("PORTCULLIS_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from_be_bytes(portcullis::id::random_bytes()));
        eprintln!("PORTCULLIS_TEST_SEED={seed}");
        Plant { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, n_made: 0, planted: Vec::new() }
    }

    fn draw(&mut self) -> u8 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.to_be_bytes()[3]
    }

    fn random(&mut self, n: usize) -> String {
        const LETTERS: &[u8] = b"0123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
        (0..n).map(|_| char::from(LETTERS[usize::from(self.draw()) % LETTERS.len()])).collect()
    }

    fn keep(&mut self, place: &'static str, kind: &'static str, pieces: Vec<String>) {
        self.planted.push(Planted { place, kind, pieces });
    }

    /// One without a shape of its own: for where a secret is known by its place.
    pub(crate) fn word(&mut self, place: &'static str) -> String {
        let word = self.random(24);
        self.keep(place, "a password", vec![word[..PIECE].to_owned(), word[PIECE..].to_owned()]);
        word
    }

    /// One that is known by its shape; each time another shape.
    pub(crate) fn shape(&mut self, place: &'static str) -> String {
        let shape = &SHAPES[self.n_made % SHAPES.len()];
        self.n_made += 1;
        let secret = shape.example(|| self.draw());
        // Behind what all of its kind begin with, and at the end.
        let begin = shape.starts.iter().find(|start| secret.starts_with(**start)).map_or(0, |start| start.len());
        let (head, tail) = (begin.min(secret.len() - PIECE), secret.len() - PIECE);
        self.keep(place, shape.id, vec![secret[head..head + PIECE].to_owned(), secret[tail..].to_owned()]);
        secret
    }

    /// Any, on one line, in what is around it where it is found.
    pub(crate) fn line(&mut self, place: &'static str) -> String {
        match self.draw() % 16 {
            0 => format!("postgres://app:{}@db.example:5432/app", self.word(place)),
            1 => format!("https://{}@git.example/x.git", self.word(place)),
            2 => format!("https://a.example/x?api_key={}&page=2", self.word(place)),
            3 => format!("cb%3Fcode%3D{}%26state%3Dx", self.word(place)),
            4 => format!("password={}", self.word(place)),
            5 => format!("run --token {} --verbose", self.word(place)),
            6 => format!("curl -u admin:{} https://a.example/", self.word(place)),
            7 => format!("Authorization: Bearer {}", self.word(place)),
            8 => format!("{{\"client_secret\":\"{}\"}}", self.word(place)),
            9 => {
                let word = self.word(place);
                format!("Basic {}", STANDARD.encode(format!("admin:{word}")))
            }
            10 => {
                let secret = self.shape(place);
                format!("data {}", STANDARD.encode(format!("key is {secret} here")))
            }
            _ => self.shape(place),
        }
    }

    /// Any, of one line or several.
    pub(crate) fn text(&mut self, place: &'static str) -> String {
        if self.draw().is_multiple_of(8) {
            let (one, two) = (self.random(64), self.random(64));
            let pieces = [&one[..PIECE], &one[32..32 + PIECE], &two[..PIECE], &two[64 - PIECE..]];
            self.keep(place, "a private key", pieces.map(str::to_owned).to_vec());
            let kind = ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY"][usize::from(self.draw()) % 3];
            return format!("-----BEGIN {kind}-----\n{one}\n{two}\n-----END {kind}-----");
        }
        self.line(place)
    }

    /// How many kinds were planted.
    pub(crate) fn n_kinds(&self) -> usize {
        self.planted.iter().map(|planted| planted.kind).collect::<BTreeSet<_>>().len()
    }

    /// Finds all that was planted.
    pub(crate) fn scanner(&self) -> Scanner<'_> {
        let (mut needles, mut whose) = (Vec::new(), Vec::new());
        for planted in &self.planted {
            for needle in planted.pieces.iter().flat_map(|piece| spellings(piece)) {
                needles.push(needle);
                whose.push(planted);
            }
        }
        Scanner { needles: AhoCorasick::new(&needles).expect("short words"), whose }
    }
}

/// As it is, in hexadecimal, percent-encoded where that differs, and in Base64 wherever it begins.
fn spellings(piece: &str) -> Vec<String> {
    let bytes = piece.as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let form: String = url::form_urlencoded::byte_serialize(bytes).collect();
    let json = serde_json::to_string(piece).expect("a text").trim_matches('"').to_owned();
    let mut all = vec![piece.to_owned(), form, json, hex.to_uppercase(), hex];
    for skip in 0..3 {
        let rest = &bytes[skip..];
        let whole = &rest[..rest.len() - rest.len() % 3];
        all.extend([STANDARD_NO_PAD.encode(whole), URL_SAFE_NO_PAD.encode(whole)]);
    }
    all.sort();
    all.dedup();
    all
}

/// Looks for everything at once.
pub(crate) struct Scanner<'p> {
    needles: AhoCorasick,
    whose: Vec<&'p Planted>,
}

impl Scanner<'_> {
    /// What was found in a text: one line for each secret, with what is around it.
    pub(crate) fn hits(&self, place: &str, text: &str) -> Vec<String> {
        let mut seen: BTreeMap<*const Planted, String> = BTreeMap::new();
        for hit in self.needles.find_iter(text) {
            let planted = self.whose[hit.pattern().as_usize()];
            seen.entry(std::ptr::from_ref(planted)).or_insert_with(|| {
                let from = text.floor_char_boundary(hit.start().saturating_sub(120));
                let to = text.ceil_char_boundary((hit.end() + 40).min(text.len()));
                format!("{} planted as {} stands in {place}: …{}…", planted.kind, planted.place, &text[from..to])
            });
        }
        seen.into_values().collect()
    }
}

#[test]
fn a_scanner_finds_what_was_planted_in_any_spelling_and_nothing_else() {
    let mut plant = Plant::new();
    let secrets: Vec<String> =
        (0..200).map(|n| if n % 2 == 0 { plant.shape("here") } else { plant.word("here") }).collect();
    let scanner = plant.scanner();

    assert_eq!(scanner.hits("there", "an ordinary text of nobody"), Vec::<String>::new());
    for secret in &secrets {
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        let form: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        for text in [secret.clone(), hex, form, STANDARD.encode(secret), STANDARD.encode(format!("a{secret}"))] {
            assert!(!scanner.hits("there", &text).is_empty(), "{secret} as {text}");
        }
    }
}
