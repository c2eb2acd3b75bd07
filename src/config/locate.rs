//! From a path or a span to a line, a column, and the line itself as people see it.
//!
//! A snippet ends up on terminals and in logs, so values that look like secrets are blotted out, and nothing that is
//! not printable is printed.

use super::problem::{Location, Part, Path, Problem, Problems, Segment};
use super::sensitive;
use super::tree::{Entry, Node, Value};
use std::ops::Range;
use std::sync::Arc;

/// A file's text and, once it could be read, its tree.
#[derive(Clone, Debug)]
pub(super) struct Source {
    file: Arc<str>,
    text: Arc<str>,
    root: Option<Node>,
    /// Where secrets stand, in order.
    secrets: Vec<Range<usize>>,
}

/// Columns of a line that a snippet shows.
const WIDTH_MAX: usize = 100;

impl Source {
    /// A text that could not be read as a tree (yet).
    pub(super) fn new(file: Arc<str>, text: Arc<str>) -> Self {
        Source { file, text, root: None, secrets: Vec::new() }
    }

    /// With its tree.
    pub(super) fn with_root(self, root: Node) -> Self {
        let mut secrets = Vec::new();
        sensitive::collect(&root, false, &mut secrets);
        Source { root: Some(root), secrets, ..self }
    }

    /// The text.
    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// The same problems with their places, in the order of the file.
    pub(super) fn locate_all(&self, problems: Vec<Problem>) -> Problems {
        Problems::located(problems, |problem| self.locate(problem))
    }

    /// The same problem with its place and its line.
    pub(super) fn locate(&self, problem: Problem) -> Problem {
        if problem.location.is_some() {
            return problem;
        }
        match self.find(&problem.path, problem.part) {
            Some(span) => self.mark(problem, span),
            None => {
                Problem { location: Some(Location { file: Arc::clone(&self.file), line: 0, column: 0 }), ..problem }
            }
        }
    }

    /// As [`Source::locate`]; what has no place of its own stands at the end of the text.
    pub(super) fn locate_or_end(&self, problem: Problem) -> Problem {
        let end = self.text.len()..self.text.len();
        let span = self.find(&problem.path, problem.part).unwrap_or(end);
        self.mark(problem, span)
    }

    /// The same problem, standing at `span`.
    pub(super) fn mark(&self, problem: Problem, span: Range<usize>) -> Problem {
        let (location, snippet) = self.place(span);
        Problem { location: Some(location), snippet, ..problem }
    }

    /// Where the value (or key) stands; for one that is not written, the nearest thing around it that is.
    fn find(&self, path: &Path, part: Part) -> Option<Range<usize>> {
        let root = self.root.as_ref()?;
        let mut node = root;
        let mut key: Option<&Entry> = None;
        for segment in path.segments() {
            let next = match (segment, &node.value) {
                (Segment::Key(name), _) => node.entry(name).map(|entry| (&entry.value, Some(entry))),
                (Segment::Index(index), Value::List(elements)) => elements.get(*index).map(|element| (element, None)),
                (Segment::Index(_), _) => None,
            };
            let Some((value, entry)) = next else {
                // A section that is missing altogether has no place but the file.
                if std::ptr::eq(node, root) {
                    return None;
                }
                return Some(whole(node, key, Part::Key));
            };
            node = value;
            key = entry;
        }
        Some(whole(node, key, part))
    }

    fn place(&self, span: Range<usize>) -> (Location, Option<String>) {
        let before = self.text.get(..span.start).unwrap_or_default();
        let begin = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
        let rest = self.text.get(begin..).unwrap_or_default();
        let line = rest.split('\n').next().unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let end = begin.saturating_add(line.len());
        let prefix = self.text.get(begin..span.start.min(end)).unwrap_or_default();
        let marked = self.text.get(span.start..span.end.min(end)).unwrap_or_default();
        let location = Location {
            file: Arc::clone(&self.file),
            line: before.matches('\n').count().saturating_add(1),
            column: prefix.chars().count().saturating_add(1),
        };
        let shown = self.blotted(begin, line);
        let snippet = snippet(&location, &shown, marked.chars().count());
        (location, snippet)
    }

    /// The line, with each character of a secret replaced by `*`.
    fn blotted(&self, begin: usize, line: &str) -> String {
        let end = begin.saturating_add(line.len());
        let is_here = |span: &&Range<usize>| span.start < end && begin < span.end;
        let mut secrets: Vec<_> = self.secrets.iter().filter(is_here).cloned().collect();
        if self.root.is_none() {
            secrets.extend(
                sensitive::guess(line).map(|span| span.start.saturating_add(begin)..span.end.saturating_add(begin)),
            );
        }
        let blot = |(at, c): (usize, char)| {
            let at = at.saturating_add(begin);
            match c {
                _ if secrets.iter().any(|span| span.contains(&at)) => '*',
                c if c.is_control() => ' ',
                c => c,
            }
        };
        line.char_indices().map(blot).collect()
    }
}

/// A mapping or list is marked by its key, because its own span may go over many lines.
fn whole(node: &Node, key: Option<&Entry>, part: Part) -> Range<usize> {
    let is_container = matches!(node.value, Value::Map(_) | Value::List(_));
    match key {
        Some(entry) if part == Part::Key || is_container || node.span.is_empty() => entry.key_span.clone(),
        _ => match &node.value {
            Value::Map(entries) => entries.first().map_or_else(|| node.span.clone(), |entry| entry.key_span.clone()),
            _ => node.span.clone(),
        },
    }
}

fn snippet(location: &Location, line: &str, marked: usize) -> Option<String> {
    if line.trim().is_empty() {
        return None;
    }
    let column = location.column.saturating_sub(1);
    // A long line is shown from a little before the mark.
    let skip = if column > WIDTH_MAX.saturating_sub(20) { column.saturating_sub(20) } else { 0 };
    let mut shown: String = line.chars().skip(skip).take(WIDTH_MAX).collect();
    if skip > 0 {
        shown = format!("…{}", shown.chars().skip(1).collect::<String>());
    }
    let n_shown = shown.chars().count();
    let indent = column.saturating_sub(skip);
    let carets = marked.clamp(1, n_shown.saturating_sub(indent).max(1));
    let number = location.line.to_string();
    Some(format!(
        "  {number} | {}\n  {} | {}{}",
        shown.trim_end(),
        " ".repeat(number.len()),
        " ".repeat(indent),
        "^".repeat(carets)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tree;

    #[track_caller]
    fn printed(text: &str, path: Path) -> String {
        let root = tree::parse(text).expect("a tree");
        let source = Source::new("g.yaml".into(), text.into()).with_root(root);
        source.locate(Problem::new(path, "wrong")).to_string()
    }

    #[test]
    fn a_value_is_marked_from_its_first_to_its_last_character() {
        let text = "a:\n  - ü: { 'b c': \"d\" }\n";

        assert_eq!(
            printed(text, Path::root().key("a").index(0).key("ü").key("b c")),
            "error: wrong (g.yaml:2:17)\n  2 |   - ü: { 'b c': \"d\" }\n    |                 ^^^"
        );
    }

    #[test]
    fn a_key_that_is_not_there_is_marked_at_what_should_hold_it() {
        let text = "a:\n  b: { c: 1 }\n";

        assert_eq!(
            printed(text, Path::root().key("a").key("b").key("d").key("e")),
            "error: wrong (g.yaml:2:3)\n  2 |   b: { c: 1 }\n    |   ^"
        );
    }

    #[test]
    fn secrets_on_the_line_are_blotted_out() {
        let text = "h: { Authorization: 'Bearer xyz', X-Key: { env: NAME }, b: 1 }\n";

        assert_eq!(
            printed(text, Path::root().key("h").key("b")),
            "error: wrong (g.yaml:1:60)\n  \
             1 | h: { Authorization: ************, X-Key: { env: NAME }, b: 1 }\n    \
             |                                                            ^"
        );
    }

    #[test]
    fn secrets_in_an_unreadable_file_are_blotted_out_too() {
        let text = "h: { Authorization: \"Bearer xyz, b: 1 }";
        let source = Source::new("g.yaml".into(), text.into());
        let problem = source.mark(Problem::new(Path::root(), "wrong"), 20..20);

        assert!(!problem.to_string().contains("xyz"), "{problem}");
    }
}
