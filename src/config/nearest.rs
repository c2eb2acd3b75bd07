//! "Did you mean": the name that a mistyped one was probably meant to be.

/// The candidate nearest to `word`, where one is near enough that a person would see the slip.
///
/// Near enough is one slip in a short word and two from five letters on; a slip is a letter too many, too few,
/// wrong, or swapped with its neighbour. Letter case is no slip at all.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = word.to_lowercase();
    let slips_max = if wanted.chars().count() < 5 { 1 } else { 2 };
    candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(slips, candidate)| *slips <= slips_max && *slips < candidate.chars().count())
        .min()
        .map(|(_, candidate)| candidate)
}

/// The same as a sentence for a hint.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, candidates).map(|name| format!("did you mean `{name}`?"))
}

/// The slips between two words (optimal string alignment, the bounded form of Damerau-Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    // Words this different in length are never suggested; this also bounds the work on a very long word.
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    // Rows for the last two letters of `a` and the one at hand.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut previous_a = None;
    for (i, &letter) in a.iter().enumerate() {
        let row = next_row((i, previous_a, letter), &b, &before_last, &last);
        before_last = std::mem::replace(&mut last, row);
        previous_a = Some(letter);
    }
    last.last().copied().unwrap_or(usize::MAX)
}

fn next_row(
    (i, previous_a, letter): (usize, Option<char>, char),
    b: &[char],
    before_last: &[usize],
    last: &[usize],
) -> Vec<usize> {
    let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX);
    let mut row = vec![i.saturating_add(1)];
    let mut previous_b = None;
    for (j, &other) in b.iter().enumerate() {
        let replaced = cell(last, j).saturating_add(usize::from(letter != other));
        let removed = cell(last, j.saturating_add(1)).saturating_add(1);
        let added = cell(&row, j).saturating_add(1);
        let is_swap = previous_a == Some(other) && previous_b == Some(letter);
        let swapped = match j.checked_sub(1) {
            Some(at) if is_swap => cell(before_last, at).saturating_add(1),
            _ => usize::MAX,
        };
        row.push(replaced.min(removed).min(added).min(swapped));
        previous_b = Some(other);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_strangers_are_not() {
        let names = ["github", "sandbox", "prod", "url", "policy"];

        for (word, meant) in [
            ("githb", Some("github")),
            ("gihtub", Some("github")),
            ("GitHub", Some("github")),
            ("sanboxx", Some("sandbox")),
            ("urll", Some("url")),
            ("ulr", Some("url")),
            ("polcy", Some("policy")),
            ("p", None),
            ("upstreams", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, names), meant, "{word}");
        }
    }

    #[test]
    fn distance_counts_each_slip_once() {
        for (a, b, slips) in
            [("", "", 0), ("ab", "ab", 0), ("ab", "ba", 1), ("abc", "cab", 2), ("kitten", "sitten", 1), ("a", "abc", 2)]
        {
            assert_eq!(distance(a, b), slips, "{a} {b}");
        }
    }
}
