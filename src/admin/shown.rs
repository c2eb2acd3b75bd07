//! A held call in parts that fit on a page, and the proof of which were shown.
//!
//! What would run may be a megabyte. It is cut into parts of bounded size, each a page of its own; a page carries a signed
//! note of how far its person has come, and hands it on with its links. Approving takes the note that names the last part.

use super::Shared;
use crate::approval::{Rendered, Row};
use crate::browser::{LoggedIn, Purpose};
use crate::jsonrpc::Kind;
use crate::pages::text::exact;
use crate::pages::{Line, Piece, Section, Value};
use crate::store::Approval;

/// What a part may cost: about so many bytes of the page.
const PART: usize = 96 * 1024;
/// What a value costs beside its text.
const VALUE: usize = 256;
/// What a line costs beside its text.
const LINE: usize = 64;
/// What a character costs that is marked or named.
const MARKED: usize = 24;
/// A longer line is taken in pieces of this many bytes.
const PIECE: usize = 4 * 1024;
/// How deep values are indented.
const DEEPEST: usize = 10;
/// A longer name of a tool does not stand whole in a heading.
const LONGEST_NAME: usize = 240;

/// One part of what would run.
pub(super) struct Part {
    /// Its values, under the name of what they belong to.
    pub(super) sections: Vec<Section>,
    /// Which, from 1.
    pub(super) number: usize,
    /// How many there are; at least one.
    pub(super) n_parts: usize,
}

/// Cuts what would run into parts and keeps the one that is wanted.
struct Cutter {
    wanted: usize,
    number: usize,
    spent: usize,
    sections: Vec<Section>,
}

impl Part {
    /// Part `wanted` of `rendered`, or the nearest there is. `tool` is its name, which stands here where it is too long for a
    /// heading.
    pub(super) fn of(tool: &str, rendered: &Rendered, wanted: usize) -> Part {
        let cut = |wanted: usize| {
            let mut cutter = Cutter { wanted, number: 1, spent: 0, sections: Vec::new() };
            if tool.chars().count() > LONGEST_NAME {
                cutter.row("the tool's name, whole", &long_name(tool));
            }
            for (title, rows) in rendered.parts() {
                rows.iter().for_each(|row| cutter.row(title, row));
            }
            cutter
        };
        let mut cutter = cut(wanted.max(1));
        let n_parts = cutter.number;
        if cutter.wanted > n_parts {
            cutter = cut(n_parts);
        }
        Part { number: cutter.wanted, n_parts, sections: cutter.sections }
    }
}

fn long_name(tool: &str) -> Row {
    Row {
        depth: 0,
        key: crate::approval::Key::Whole,
        kind: Kind::String,
        bytes: tool.len(),
        items: 0,
        lines: 1,
        text: exact(tool),
        is_masked: false,
        mixes_scripts: crate::pages::text::mixes_scripts(tool),
    }
}

impl Cutter {
    fn row(&mut self, title: &'static str, row: &Row) {
        let key = row.key.to_string();
        self.spend(VALUE + cost(&key));
        let mut value = begun(row, &key, false);
        let lines: Vec<&str> = if row.text.is_empty() { Vec::new() } else { row.text.split('\n').collect() };
        let n_lines = lines.len();
        for (at, line) in lines.into_iter().enumerate() {
            // The name of the line break stands at the end of a line that one ends.
            let is_broken = at + 1 < n_lines;
            let line = line.strip_suffix("⟦U+000A⟧").filter(|_| is_broken).unwrap_or(line);
            let mut rest = Some(line);
            let mut is_first = true;
            while let Some(text) = rest {
                let (piece, more) = first_piece(text);
                if self.is_full(LINE + cost(piece)) {
                    self.keep(title, value);
                    self.next_part();
                    value = begun(row, &key, true);
                    self.spent = VALUE + cost(&key);
                }
                self.spent += LINE + cost(piece);
                if self.number == self.wanted {
                    let number = is_first.then_some(at + 1);
                    let is_broken = is_broken && more.is_none();
                    value.lines.push(Line { number, pieces: marked(piece), is_broken });
                }
                value.has_foreign |= !piece.is_ascii();
                (rest, is_first) = (more, false);
            }
        }
        self.keep(title, value);
    }

    fn spend(&mut self, cost: usize) {
        if self.is_full(cost) {
            self.next_part();
        }
        self.spent += cost;
    }

    fn is_full(&self, more: usize) -> bool {
        self.spent > 0 && self.spent + more > PART
    }

    fn next_part(&mut self) {
        self.number += 1;
        self.spent = 0;
    }

    fn keep(&mut self, title: &'static str, value: Value) {
        if self.number != self.wanted {
            return;
        }
        match self.sections.last_mut().filter(|section| section.title == title) {
            Some(section) => section.values.push(value),
            None => self.sections.push(Section { title, values: vec![value] }),
        }
    }
}

fn begun(row: &Row, key: &str, is_continued: bool) -> Value {
    Value {
        indent: row.depth.min(DEEPEST),
        level: (row.depth > DEEPEST).then_some(row.depth),
        key: marked(key),
        size: row.size(),
        lines: Vec::new(),
        is_continued,
        is_long: row.lines > 1 || row.text.len() > PIECE,
        is_masked: row.is_masked,
        mixes_scripts: row.mixes_scripts,
        has_foreign: false,
    }
}

/// The sign for a line break is ours; one of theirs is named.
fn marked(text: &str) -> Vec<Piece> {
    if text.contains('⏎') { Piece::all_of(&text.replace('⏎', "⟦U+23CE⟧")) } else { Piece::all_of(text) }
}

fn cost(text: &str) -> usize {
    text.len() + MARKED * text.chars().filter(|c| !c.is_ascii()).count()
}

/// The beginning of a line, cut between characters and never within the name of one, and the rest of it.
fn first_piece(line: &str) -> (&str, Option<&str>) {
    if line.len() <= PIECE {
        return (line, None);
    }
    let mut end = line.floor_char_boundary(PIECE);
    let head = &line[..end];
    if let Some(open) = head.rfind('⟦')
        && !head[open..].contains('⟧')
    {
        end = open;
    }
    if end == 0 {
        return (line, None);
    }
    let (piece, rest) = line.split_at(end);
    (piece, Some(rest))
}

// === what was shown ===

impl Shared {
    /// The note that the first `n` parts of this call were shown in this session.
    pub(super) fn note_of(&self, who: &LoggedIn, approval: &Approval, n: usize, n_parts: usize) -> String {
        let n = n.to_string();
        self.plane.signing.sign(Purpose::Shown, &[&*bound(who, approval, n_parts), n.as_bytes()].concat())
    }

    /// How many parts were shown, as the note says; none where it is of another call or session.
    pub(super) fn n_shown(&self, who: &LoggedIn, approval: &Approval, n_parts: usize, note: &str) -> usize {
        let opened = self.plane.signing.open(Purpose::Shown, note);
        let number = opened.as_deref().and_then(|opened| opened.strip_prefix(&*bound(who, approval, n_parts)));
        number.and_then(|n| std::str::from_utf8(n).ok()?.parse().ok()).unwrap_or(0)
    }
}

fn bound(who: &LoggedIn, approval: &Approval, n_parts: usize) -> Vec<u8> {
    let head = format!("{} {n_parts} ", approval.id);
    [&who.session.digest[..], &approval.digest[..], head.as_bytes()].concat()
}
