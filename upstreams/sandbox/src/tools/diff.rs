//! What changed, line by line, as a unified diff (POSIX diff -u): short, for a reader; not to be applied.

use crate::words::count;
use std::fmt::Write as _;

/// Lines around a change.
const CONTEXT: usize = 3;
/// Lines of a diff; more are left out.
const LONGEST: usize = 200;
/// Characters of a line that are shown.
const WIDEST: usize = 400;
/// Changes up to which the shortest diff is looked for; memory grows with its square.
const HARDEST: usize = 400;

/// One line of the diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line<'a> {
    Kept(&'a str),
    Gone(&'a str),
    New(&'a str),
}

/// What makes `before` to `after`.
pub(super) fn unified(path: &str, before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let lines = compare(&before, &after);
    let mut text = format!("--- a/{path}\n+++ b/{path}\n");
    let mut n_shown = 0;
    let mut n_left_out = 0;
    for (from, to) in hunks(&lines) {
        let hunk = &lines[from..to];
        if n_shown + hunk.len() > LONGEST && n_shown > 0 {
            n_left_out += hunk.len() as u64;
            continue;
        }
        let old = |lines: &[Line<'_>]| lines.iter().filter(|line| !matches!(line, Line::New(_))).count();
        let new = |lines: &[Line<'_>]| lines.iter().filter(|line| !matches!(line, Line::Gone(_))).count();
        let (old_from, new_from) = (old(&lines[..from]), new(&lines[..from]));
        let _ = writeln!(text, "@@ -{} +{} @@", span(old_from, old(hunk)), span(new_from, new(hunk)));
        for line in hunk.iter().take(LONGEST) {
            show(&mut text, *line);
        }
        n_shown += hunk.len();
        n_left_out += hunk.len().saturating_sub(LONGEST) as u64;
    }
    if n_left_out > 0 {
        let _ = writeln!(text, "… {} left out …", count(n_left_out, "line", "lines"));
    }
    text
}

fn span(before: usize, n: usize) -> String {
    let first = if n == 0 { before } else { before + 1 };
    if n == 1 { first.to_string() } else { format!("{first},{n}") }
}

fn show(text: &mut String, line: Line<'_>) {
    let (sign, line) = match line {
        Line::Kept(line) => (' ', line),
        Line::Gone(line) => ('-', line),
        Line::New(line) => ('+', line),
    };
    let whole = line.strip_suffix('\n');
    let shown: String = whole.unwrap_or(line).chars().take(WIDEST).collect();
    let is_cut = shown.len() < whole.unwrap_or(line).len();
    let _ = writeln!(text, "{sign}{shown}{}", if is_cut { "…" } else { "" });
    if whole.is_none() {
        text.push_str("\\ No newline at end of file\n");
    }
}

/// Which lines belong together: changes, and what is around them.
fn hunks(lines: &[Line<'_>]) -> Vec<(usize, usize)> {
    let mut hunks: Vec<(usize, usize)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if matches!(line, Line::Kept(_)) {
            continue;
        }
        let (from, to) = (at.saturating_sub(CONTEXT), (at + 1 + CONTEXT).min(lines.len()));
        match hunks.last_mut() {
            Some(last) if last.1 >= from => last.1 = to,
            _ => hunks.push((from, to)),
        }
    }
    hunks
}

fn compare<'a>(before: &[&'a str], after: &[&'a str]) -> Vec<Line<'a>> {
    let n_same = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let (old, new) = (&before[n_same..], &after[n_same..]);
    let n_end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, end) = old.split_at(old.len() - n_end);
    let new = &new[..new.len() - n_end];
    let mut lines: Vec<Line<'a>> = before[..n_same].iter().map(|line| Line::Kept(line)).collect();
    lines.extend(shortest(old, new).unwrap_or_else(|| {
        let gone = old.iter().map(|line| Line::Gone(line));
        gone.chain(new.iter().map(|line| Line::New(line))).collect()
    }));
    lines.extend(end.iter().map(|line| Line::Kept(line)));
    lines
}

/// The shortest way from `old` to `new` (E. W. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986); `None`
/// where that takes more than [`HARDEST`] changes.
fn shortest<'a>(old: &[&'a str], new: &[&'a str]) -> Option<Vec<Line<'a>>> {
    // On diagonal k (lines of old minus lines of new), how many lines of old are behind us. Of each number of changes,
    // since the way is read backwards.
    let mut steps: Vec<Vec<usize>> = Vec::new();
    let at = |reached: &[usize], d: usize, k: isize| reached[(k + d as isize) as usize];
    for d in 0..=HARDEST.min(old.len() + new.len()) {
        let mut reached = vec![0; 2 * d + 1];
        for k in (-(d as isize)..=d as isize).step_by(2) {
            let mut x = match steps.last() {
                None => 0,
                Some(last) if is_down(last, d, k) => at(last, d - 1, k + 1),
                Some(last) => at(last, d - 1, k - 1) + 1,
            };
            let mut y = (x as isize - k) as usize;
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            reached[(k + d as isize) as usize] = x;
            if x >= old.len() && y >= new.len() {
                return Some(back(&steps, old, new, d));
            }
        }
        steps.push(reached);
    }
    None
}

/// Whether the `d`th change, onto diagonal `k`, takes a line of new rather than of old.
fn is_down(last: &[usize], d: usize, k: isize) -> bool {
    let d = d as isize;
    let at = |k: isize| last[(k + d - 1) as usize];
    k == -d || (k != d && at(k - 1) < at(k + 1))
}

fn back<'a>(steps: &[Vec<usize>], old: &[&'a str], new: &[&'a str], d: usize) -> Vec<Line<'a>> {
    let (mut x, mut y) = (old.len(), new.len());
    let mut lines = Vec::new();
    for d in (1..=d).rev() {
        let last = &steps[d - 1];
        let k = x as isize - y as isize;
        let down = is_down(last, d, k);
        let from_k = if down { k + 1 } else { k - 1 };
        let from_x = last[(from_k + d as isize - 1) as usize];
        let from_y = (from_x as isize - from_k) as usize;
        let (to_x, to_y) = if down { (from_x, from_y + 1) } else { (from_x + 1, from_y) };
        while x > to_x && y > to_y {
            (x, y) = (x - 1, y - 1);
            lines.push(Line::Kept(old[x]));
        }
        lines.push(if down { Line::New(new[from_y]) } else { Line::Gone(old[from_x]) });
        (x, y) = (from_x, from_y);
    }
    lines.extend(old[..x].iter().rev().map(|line| Line::Kept(line)));
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let before: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let after = before.replace("\n10\n", "\nten\nelf\n");

        let diff = unified("a", &before, &after);

        assert_eq!(diff, "--- a/a\n+++ b/a\n@@ -7,7 +7,8 @@\n 7\n 8\n 9\n-10\n+ten\n+elf\n 11\n 12\n 13\n");
    }

    #[test]
    fn a_new_end_and_a_missing_one_are_shown() {
        assert_eq!(unified("a", "", "x\n"), "--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(unified("a", "x", "x\n"), "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+x\n");
    }

    #[test]
    fn a_long_diff_is_cut_and_says_so() {
        let before: String = (0..5000).map(|n| format!("{n}\n")).collect();
        let after: String = (0..5000).map(|n| format!("x{n}{}\n", "y".repeat(1000))).collect();

        let diff = unified("a", &before, &after);

        assert!(diff.lines().count() < 210 && diff.ends_with("… 9,800 lines left out …\n"), "{diff:.300}");
    }

    /// Whatever the texts are, the lines that are kept or gone make the old one, those kept or new the new one.
    #[test]
    fn every_diff_tells_the_old_text_and_the_new_one() {
        let words = ["a\n", "b\n", "c\n", "d\n"];
        let mut state = 1u32;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as usize % below
        };
        for _ in 0..500 {
            let (n_old, n_new) = (random(12), random(12));
            let old: Vec<&str> = (0..n_old).map(|_| words[random(4)]).collect();
            let new: Vec<&str> = (0..n_new).map(|_| words[random(4)]).collect();

            let lines = compare(&old, &new);

            let of = |wanted: fn(&Line<'_>) -> bool| -> Vec<&str> {
                let text = |line: &Line<'static>| match *line {
                    Line::Kept(text) | Line::Gone(text) | Line::New(text) => text,
                };
                lines.iter().filter(|line| wanted(line)).map(text).collect()
            };
            assert_eq!(of(|line| !matches!(line, Line::New(_))), old);
            assert_eq!(of(|line| !matches!(line, Line::Gone(_))), new);
        }
    }
}
