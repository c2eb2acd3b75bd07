//! Patterns for names: `upstream/name`, where `*` stands for any characters and everything else for its exact bytes.
//!
//! Nothing is folded: other case, other spaces and other Unicode spellings are other names, since an upstream may know
//! them as such. A pattern is a pair and never a joined text, so that no slash in a name moves the border between the two.

/// Which upstreams, and which names there.
#[derive(Debug)]
pub(super) struct Pattern {
    /// The half before the first `/`.
    pub(super) upstream: Glob,
    /// The half after it.
    pub(super) name: Glob,
}

/// A text with `*` for any characters, none included.
#[derive(Debug)]
pub enum Glob {
    /// Without a `*`.
    Exact(Box<str>),
    /// The pieces around the `*`s.
    Wild {
        /// Before the first.
        first: Box<str>,
        /// Between them; none is empty.
        middle: Box<[Box<str>]>,
        /// After the last.
        last: Box<str>,
    },
}

// === impl Pattern ===

impl Pattern {
    /// Splits at the first `/`: an upstream's name has none, a tool's name or a URI may.
    pub(super) fn parse(text: &str) -> Result<Pattern, &'static str> {
        match text.split_once('/') {
            None => Err("has no `/` between the upstream and the name"),
            Some(("", _)) => Err("names no upstream before its first `/`"),
            Some((_, "")) => Err("names nothing after its first `/`"),
            Some((upstream, name)) => Ok(Pattern { upstream: Glob::parse(upstream), name: Glob::parse(name) }),
        }
    }

    pub(super) fn matches(&self, upstream: &str, name: &str) -> bool {
        self.upstream.matches(upstream) && self.name.matches(name)
    }
}

// === impl Glob ===

impl Glob {
    /// Every text is one.
    pub fn parse(text: &str) -> Glob {
        let Some((first, rest)) = text.split_once('*') else {
            return Glob::Exact(text.into());
        };
        let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        Glob::Wild {
            first: first.into(),
            middle: middle.split('*').filter(|piece| !piece.is_empty()).map(Box::from).collect(),
            last: last.into(),
        }
    }

    /// Takes each middle piece at the first place it fits, which leaves most to the rest: no backtracking, linear time.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Glob::Exact(exact) => **exact == *text,
            Glob::Wild { first, middle, last } => {
                let inner = text.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last));
                inner
                    .and_then(|inner| {
                        middle.iter().try_fold(inner, |rest, piece| rest.split_once(&**piece).map(|(_, after)| after))
                    })
                    .is_some()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, upstream: &str, name: &str, expected: bool) {
        let compiled = Pattern::parse(pattern).expect("the pattern is well formed");
        assert_eq!(compiled.matches(upstream, name), expected, "{pattern} on {upstream} and {name:?}");
    }

    #[test]
    fn star_stands_for_any_characters_also_slashes_and_none() {
        check("sandbox/*", "sandbox", "run_command", true);
        check("sandbox/*", "sandbox", "a/b\nc", true);
        check("sandbox/run*", "sandbox", "run", true);
        check("*/status", "prod", "status", true);
        check("*/*", "prod", "anything at all", true);
        check("prod/*_status", "prod", "biscuit_status", true);
        check("prod/*_status", "prod", "biscuit_status2", false);
        check("files/file:///srv/*", "files", "file:///srv/docs/a", true);
        check("files/file:///srv/*", "files", "file:///etc/passwd", false);
    }

    #[test]
    fn pieces_do_not_overlap_and_keep_their_order() {
        check("u/ab*ba", "u", "aba", false);
        check("u/ab*ba", "u", "abba", true);
        check("u/*a*b*", "u", "xbxa", false);
        check("u/*a*b*", "u", "xaxb", true);
        check("u/a**b", "u", "ab", true);
        check("u/*aa*aa*", "u", "aaa", false);
    }

    #[test]
    fn everything_but_star_is_its_exact_bytes() {
        check("u/a.b", "u", "aXb", false);
        check("u/a?b", "u", "aXb", false);
        check("u/[ab]", "u", "a", false);
        check("u/a\\*", "u", "a*", false);
    }

    #[test]
    fn the_first_slash_ends_the_upstream() {
        check("a/b/c", "a", "b/c", true);
        check("a/b/c", "a/b", "c", false);
        check("a*/c", "a/b", "c", true);
    }

    #[test]
    fn half_a_pattern_is_refused() {
        for text in ["", "*", "tool", "/", "/tool", "upstream/"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn many_stars_on_a_long_name_stay_linear() {
        let pattern = format!("u/{}b", "*a".repeat(1000));

        check(&pattern, "u", &"a".repeat(1_000_000), false);
    }
}
