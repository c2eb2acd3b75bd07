//! Which names are meant by `*.rs`: `*` and `?` within a name, `**` over folders, `[a-z]`, `{a,b}`.

use regex::{Regex, RegexBuilder};

/// A pattern of names.
pub(super) struct Glob {
    pattern: Regex,
    /// Whether it is about whole paths, since it has a slash in it; otherwise about the last name only.
    is_path: bool,
}

/// The longest pattern, in bytes.
const LONGEST: usize = 1000;

impl Glob {
    /// # Errors
    /// What is wrong with it.
    pub(super) fn new(glob: &str) -> Result<Glob, String> {
        if glob.is_empty() || glob.len() > LONGEST {
            return Err(format!("`glob` has {} bytes; it is 1 to {LONGEST}", glob.len()));
        }
        let pattern =
            pattern(glob).ok_or_else(|| format!("`glob` is `{glob}`, with a `[` or `{{` that is not closed"))?;
        let pattern = RegexBuilder::new(&pattern).size_limit(1 << 20).build();
        let pattern = pattern.map_err(|_| format!("`glob` is `{glob}`, which is no pattern of names"))?;
        Ok(Glob { pattern, is_path: glob.contains('/') })
    }

    /// Whether `path`, relative to where the search began, is meant.
    pub(super) fn matches(&self, path: &str) -> bool {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        self.pattern.is_match(if self.is_path { path } else { name })
    }
}

/// As a regular expression; `None` where a bracket is not closed.
fn pattern(glob: &str) -> Option<String> {
    let mut pattern = String::from("(?s)^");
    let mut chars = glob.chars().peekable();
    let mut n_braces = 0;
    while let Some(c) = chars.next() {
        match c {
            '*' if chars.peek() == Some(&'*') => {
                chars.next();
                if chars.peek() == Some(&'/') {
                    chars.next();
                    pattern.push_str("(?:.*/)?");
                } else {
                    pattern.push_str(".*");
                }
            }
            '*' => pattern.push_str("[^/]*"),
            '?' => pattern.push_str("[^/]"),
            '[' => {
                let mut class = String::new();
                if chars.next_if(|c| ['!', '^'].contains(c)).is_some() {
                    class.push('^');
                }
                loop {
                    match chars.next()? {
                        ']' if !["", "^"].contains(&class.as_str()) => break,
                        c @ ('[' | ']' | '^' | '&' | '~' | '\\') => class.extend(['\\', c]),
                        c => class.push(c),
                    }
                }
                pattern.extend(["[", &class, "]"]);
            }
            '{' => {
                n_braces += 1;
                pattern.push_str("(?:");
            }
            '}' if n_braces > 0 => {
                n_braces -= 1;
                pattern.push(')');
            }
            ',' if n_braces > 0 => pattern.push('|'),
            c => pattern.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    pattern.push('$');
    (n_braces == 0).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_meant_as_a_shell_would() {
        for (glob, path, is_meant) in [
            ("*.rs", "main.rs", true),
            ("*.rs", "src/deep/main.rs", true),
            ("*.rs", "main.rsx", false),
            ("src/*.rs", "src/main.rs", true),
            ("src/*.rs", "src/deep/main.rs", false),
            ("src/**/*.rs", "src/main.rs", true),
            ("src/**/*.rs", "src/a/b/main.rs", true),
            ("src/**", "src/a/b", true),
            ("*.{c,h}", "a.h", true),
            ("*.{c,h}", "a.o", false),
            ("file?.[0-9]", "file1.7", true),
            ("file?.[!0-9]", "file1.7", false),
            ("a.b", "axb", false),
            ("a+(b)", "a+(b)", true),
            ("[]a]", "]", true),
        ] {
            assert_eq!(Glob::new(glob).map(|glob| glob.matches(path)), Ok(is_meant), "{glob} {path}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for glob in ["", "[a", "{a,b", "[z-a]", &"a".repeat(1001)] {
            assert!(Glob::new(glob).is_err(), "{glob}");
        }
    }
}
