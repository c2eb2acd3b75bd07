//! How the text of strangers is shown: what cannot be seen is named, what is too long is cut. Escaping is not done here
//! but by the templates, for every value.
//!
//! A client chooses its name, its id and its scopes. A character that turns the direction of writing, that hides or that
//! piles up could make them, or our own words around them, read as something else (UTS #36 and #55).

use super::unicode::{is_mark, is_unseen};

/// In characters. A name that needs more is no name.
const LONGEST_NAME: usize = 60;
/// Of a long id or URL, so much is shown of its beginning, where the host is.
const HEAD: usize = 200;
/// And so much of its end.
const TAIL: usize = 40;
/// Accents on one letter; Vietnamese and Hebrew have two or three.
const MOST_MARKS: usize = 3;

/// Spaces in a row that are shown as such; more could push what follows out of sight.
const MOST_SPACES: usize = 40;

/// `text` with every character that cannot be seen written as `⟦U+202E⟧`, and every space as a plain one.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut marks = Marks::at_start();
    let mut before = ' ';
    for c in text.chars() {
        match c {
            // Makes a picture of the symbol before it, as emoji keyboards write it.
            '\u{fe0f}' if marks.0 > 0 && !before.is_ascii() && !before.is_alphanumeric() && !is_mark(before) => {
                out.push(c);
            }
            c if is_unseen(c) || !marks.take(c) => {
                out.push_str(&named(c));
                marks.none();
            }
            c if c.is_whitespace() => {
                out.push(' ');
                marks.none();
            }
            c => out.push(c),
        }
        before = c;
    }
    out
}

/// What something calls itself, short enough to stand in a sentence.
pub(crate) fn name(text: &str) -> String {
    // The rest would be cut anyway, and may be long.
    let text: String = text.trim().chars().take(LONGEST_NAME + 1).collect();
    if text.is_empty() {
        return "an app without a name".to_owned();
    }
    let is_cut = text.chars().count() > LONGEST_NAME;
    let mut out = shown(&text.chars().take(LONGEST_NAME).collect::<String>());
    if is_cut {
        out.push('…');
    }
    out
}

/// An id, a URL, a scope: of a long one, its beginning and its end.
pub(crate) fn address(text: &str) -> String {
    let n = text.chars().count();
    if n <= HEAD + TAIL {
        return shown(text);
    }
    let head: String = text.chars().take(HEAD).collect();
    let tail: String = text.chars().skip(n - TAIL).collect();
    format!("{} … {}", shown(&head), shown(&tail))
}

/// `text` so that nothing else could be shown like it, in lines: as [`shown`], and what could stand for something else is
/// named as well: the bracket of such names, spaces that are no plain ones, and plain ones where nobody sees how many there
/// are. Each line break is named before it breaks the line.
pub(crate) fn exact(text: &str) -> String {
    exactly(text, "⟦U+000A⟧\n")
}

/// Of a long id, name or URL that others chose, its beginning and its end, exactly; with the length of what is between.
pub(crate) fn exact_address(text: &str) -> String {
    let n = text.chars().count();
    if n <= HEAD + TAIL {
        return exact_line(text);
    }
    let head: String = text.chars().take(HEAD).collect();
    let tail: String = text.chars().skip(n - TAIL).collect();
    format!("{} … ({} characters) … {}", exact_line(&head), n - HEAD - TAIL, exact_line(&tail))
}

/// [`exact`], in one line.
pub(crate) fn exact_line(text: &str) -> String {
    exactly(text, "⟦U+000A⟧")
}

fn exactly(text: &str, line_break: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut marks = Marks::at_start();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\n' => {
                out.push_str(line_break);
                marks.none();
            }
            ' ' => {
                marks.none();
                let mut n: usize = 1;
                while rest.next_if_eq(&' ').is_some() {
                    n = n.saturating_add(1);
                }
                let is_at_an_end = rest.peek().is_none_or(|next| *next == '\n');
                push_spaces(&mut out, n, is_at_an_end);
            }
            c if is_unseen(c) || c.is_whitespace() || c == '⟦' || !marks.take(c) => {
                out.push_str(&named(c));
                marks.none();
            }
            c => out.push(c),
        }
    }
    out
}

fn push_spaces(out: &mut String, n: usize, is_at_an_end: bool) {
    match n {
        n if n > MOST_SPACES => out.push_str(&format!("⟦U+0020 ×{n}⟧")),
        1 if is_at_an_end => out.push_str(&named(' ')),
        n if is_at_an_end => out.push_str(&format!("⟦U+0020 ×{n}⟧")),
        n => out.extend(std::iter::repeat_n(' ', n)),
    }
}

/// Whether a word in `text` has letters of Latin beside letters of an alphabet that looks like it: Greek, Cyrillic,
/// Armenian, Cherokee and others (UTS #39 §5.2). Most such words mean to be read as another one.
pub(crate) fn mixes_scripts(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphabetic());
    words.filter(|word| !word.is_ascii()).any(|word| word.chars().any(is_latin) && word.chars().any(is_lookalike))
}

fn is_latin(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}')
}

fn is_lookalike(c: char) -> bool {
    matches!(c,
        '\u{250}'..='\u{2af}' | '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}' | '\u{530}'..='\u{58f}'
        | '\u{10a0}'..='\u{10ff}' | '\u{13a0}'..='\u{13ff}' | '\u{1d00}'..='\u{1d7f}' | '\u{1f00}'..='\u{1fff}'
        | '\u{2100}'..='\u{214f}' | '\u{2c80}'..='\u{2cff}' | '\u{a640}'..='\u{a69f}' | '\u{ab70}'..='\u{abbf}'
        | '\u{ff21}'..='\u{ff5a}' | '\u{1d400}'..='\u{1d7ff}')
}

fn named(c: char) -> String {
    format!("⟦U+{:04X}⟧", u32::from(c))
}

/// How many marks may still be put on what was shown last. None on anything of ours: they would change how it reads.
struct Marks(usize);

impl Marks {
    /// Where nothing was shown yet.
    fn at_start() -> Marks {
        Marks(0)
    }

    /// Whether `c`, which is the next, may be shown as it is.
    fn take(&mut self, c: char) -> bool {
        if !is_mark(c) {
            self.0 = MOST_MARKS;
            return true;
        }
        let may_stay = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        may_stay
    }

    /// What was shown last is ours, or a space.
    fn none(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_named_and_what_can_stays() {
        let cases = [
            ("Claude Code", "Claude Code"),
            ("Łódź · 北京 · कक्षा · שלום · تطبيق", "Łódź · 北京 · कक्षा · שלום · تطبيق"),
            ("Tools \u{1f6e0}\u{fe0f}", "Tools \u{1f6e0}\u{fe0f}"),
            ("evil\u{202e}txt.exe", "evil⟦U+202E⟧txt.exe"),
            ("\u{2066}a\u{2069}", "⟦U+2066⟧a⟦U+2069⟧"),
            ("Cla\u{200b}ude\u{fe0f}", "Cla⟦U+200B⟧ude⟦U+FE0F⟧"),
            ("a\0b\tc\u{85}", "a⟦U+0000⟧b⟦U+0009⟧c⟦U+0085⟧"),
            ("a\nb\u{2028}c", "a⟦U+000A⟧b⟦U+2028⟧c"),
            ("tag\u{e0041}\u{e007f}", "tag⟦U+E0041⟧⟦U+E007F⟧"),
            ("wide\u{3000}\u{a0}space", "wide  space"),
            ("e\u{301}", "e\u{301}"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text:?}");
        }
        assert_eq!(shown(&format!("Z{}", "\u{336}".repeat(5))), format!("Z{}⟦U+0336⟧⟦U+0336⟧", "\u{336}".repeat(3)));
    }

    #[test]
    fn what_is_shown_exactly_could_be_nothing_else() {
        let cases = [
            ("rm -rf /", "rm -rf /"),
            ("a\nb", "a⟦U+000A⟧\nb"),
            ("a\r\nb", "a⟦U+000D⟧⟦U+000A⟧\nb"),
            ("⟦U+202E⟧", "⟦U+27E6⟧U+202E⟧"),
            ("end \nend  ", "end⟦U+0020⟧⟦U+000A⟧\nend⟦U+0020 ×2⟧"),
            ("\u{a0}\u{3000}", "⟦U+00A0⟧⟦U+3000⟧"),
            ("    indented", "    indented"),
            ("\u{1b}[2J", "⟦U+001B⟧[2J"),
            ("Łódź", "Łódź"),
        ];
        for (text, expected) in cases {
            assert_eq!(exact(text), expected, "{text:?}");
            assert_eq!(exact_line(text), expected.replace('\n', ""), "{text:?}");
        }
        assert_eq!(exact(&format!("a{}b", " ".repeat(2000))), "a⟦U+0020 ×2000⟧b");
    }

    #[test]
    fn marks_of_any_script_stack_three_high_and_never_on_what_is_ours() {
        for mark in ['\u{301}', '\u{8f0}', '\u{a8e0}', '\u{11366}', '\u{1e8d0}'] {
            let name = named(mark);
            for (text, expected) in [
                (format!("a{}b{mark}", mark.to_string().repeat(5)), format!("a{mark}{mark}{mark}{name}{name}b{mark}")),
                (format!("{mark}a"), format!("{name}a")),
                (format!("a {mark}"), format!("a {name}")),
                (format!("a\u{200d}{mark}"), format!("a⟦U+200D⟧{name}")),
            ] {
                assert_eq!((shown(&text), exact(&text)), (expected.clone(), expected), "{text:?}");
            }
            assert_eq!(exact(&format!("a\n{mark}b")), format!("a⟦U+000A⟧\n{name}b"));
            assert_eq!(exact(&format!("⟦{mark}")), format!("⟦U+27E6⟧{name}"));
        }
        assert_eq!(exact("\u{e000}\u{f8ff}\u{fffc}\u{1d159}"), "⟦U+E000⟧⟦U+F8FF⟧⟦U+FFFC⟧⟦U+1D159⟧");
        let pictures = format!("\u{1f6e0}{}", "\u{fe0f}".repeat(3));
        assert_eq!(shown(&pictures), "\u{1f6e0}\u{fe0f}⟦U+FE0F⟧⟦U+FE0F⟧");
    }

    #[test]
    fn a_word_of_two_alphabets_is_seen() {
        for text in ["p\u{430}ypal", "/home/\u{3bf}ps", "\u{ff52}m x\u{ff52}"] {
            assert!(mixes_scripts(text), "{text:?}");
        }
        for text in ["paypal", "Łódź", "Привет world", "北京 x", "α and b", ""] {
            assert!(!mixes_scripts(text), "{text:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_and_an_empty_one_said_to_be_none() {
        assert_eq!(name(" Codex "), "Codex");
        assert_eq!(name("  "), "an app without a name");
        assert_eq!(name(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(name(&"é".repeat(61)), "é".repeat(60) + "…");
    }

    #[test]
    fn of_a_long_url_the_host_and_the_end_are_shown() {
        let url = format!("https://client.example/{}/end", "a".repeat(3000));

        let shown = address(&url);

        assert!(shown.starts_with("https://client.example/aaa") && shown.ends_with("aaa/end"), "{shown}");
        assert!(shown.chars().count() < 260, "{shown}");
        assert_eq!(address("https://client.example/"), "https://client.example/");
    }
}
