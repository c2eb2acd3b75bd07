//! What Unicode says of a character, as far as it matters to whoever reads it: whether it stacks on the one before, and
//! whether it leaves a trace. From tables of the whole standard, since a list of ours would end where an attacker begins.

use regex_syntax::hir::{Class, HirKind};
use std::cmp::Ordering;
use std::sync::LazyLock;

/// Whether it is a mark on the letter before it (Unicode's M).
pub(super) fn is_mark(c: char) -> bool {
    !c.is_ascii() && MARKS.contains(c)
}

/// Whether it cannot be seen, or nobody knows how it looks: controls and characters of format (Cc, Cf), what standard and
/// fonts leave out (default ignorable), what is unassigned or private, and further ones that are blank by design.
pub(super) fn is_unseen(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_control() } else { UNSEEN.contains(c) }
}

static MARKS: LazyLock<Ranges> = LazyLock::new(|| Ranges::of(r"\p{M}"));
// The blank ones: of Braille, Khitan, Egyptian and of notes; and what stands for an object that is not there.
static UNSEEN: LazyLock<Ranges> = LazyLock::new(|| {
    Ranges::of(concat!(
        r"[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}",
        r"\x{2800}\x{16fe4}\x{13441}\x{13442}\x{1d159}\x{fffc}]"
    ))
});

/// Characters of a class, as ranges in order.
struct Ranges(Vec<(char, char)>);

impl Ranges {
    fn of(class: &str) -> Ranges {
        let parsed = regex_syntax::parse(class).expect("the classes above are Unicode's");
        match parsed.into_kind() {
            HirKind::Class(Class::Unicode(class)) => {
                Ranges(class.ranges().iter().map(|range| (range.start(), range.end())).collect())
            }
            // It cannot be; and if it were, nothing would be shown as it is.
            _ => Ranges(vec![('\0', char::MAX)]),
        }
    }

    fn contains(&self, c: char) -> bool {
        let place = |(from, to): &(char, char)| match () {
            () if *to < c => Ordering::Less,
            () if *from > c => Ordering::Greater,
            () => Ordering::Equal,
        };
        self.0.binary_search_by(place).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_every_script_are_known_and_letters_are_none() {
        for c in concat!(
            "\u{301}\u{8f0}\u{730}\u{a8e0}\u{1cd0}\u{816}\u{1b6b}\u{135f}\u{a66f}\u{2cef}\u{17d3}\u{1a75}",
            "\u{7eb}\u{bcd}\u{11366}\u{1e8d0}\u{20dd}\u{93e}"
        )
        .chars()
        {
            assert!(is_mark(c), "U+{:04X}", u32::from(c));
        }
        for c in "aé北कש⟦ \n".chars() {
            assert!(!is_mark(c), "{c:?}");
        }
    }

    #[test]
    fn what_is_blank_private_or_unassigned_cannot_be_seen() {
        for c in concat!(
            "\0\u{7f}\u{85}\u{ad}\u{34f}\u{61c}\u{115f}\u{180e}\u{200b}\u{200d}\u{2028}\u{202e}\u{2066}\u{2800}\u{3164}",
            "\u{378}\u{e000}\u{f8ff}\u{fe0f}\u{feff}\u{ffa0}\u{fffc}\u{ffff}\u{13441}\u{16fe4}\u{1d159}\u{1d173}",
            "\u{e0041}\u{f0000}\u{10fffd}"
        )
        .chars()
        {
            assert!(is_unseen(c), "U+{:04X}", u32::from(c));
        }
        for c in "aé北कש⟦ \u{301}\u{1f6e0}\u{fffd}".chars() {
            assert!(!is_unseen(c), "{c:?}");
        }
    }
}
