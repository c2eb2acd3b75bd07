//! Parts of a text exchanged for others, every other byte left as it is.

use super::{Node, Span};

/// Replacements in one text. They may be made in any order and must not overlap.
#[derive(Debug)]
pub struct Edits<'a> {
    text: &'a [u8],
    edits: Vec<(Span, Vec<u8>)>,
}

impl<'a> Edits<'a> {
    /// None yet.
    pub fn of(text: &'a [u8]) -> Self {
        Edits { text, edits: Vec::new() }
    }

    /// Exchanges `value`, a part of this text; a part of another text is left alone.
    pub fn replace(&mut self, value: Node<'_>, with: impl Into<Vec<u8>>) {
        if let Some(span) = value.span_in(self.text) {
            self.replace_span(span, with);
        }
    }

    /// Exchanges the bytes of `span`.
    pub fn replace_span(&mut self, span: Span, with: impl Into<Vec<u8>>) {
        self.edits.push((span, with.into()));
    }

    /// Whether there is anything to do.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The text as it is with them.
    pub fn apply(mut self) -> Vec<u8> {
        self.edits.sort_unstable_by_key(|(span, _)| span.start);
        let added: usize = self.edits.iter().map(|(_, with)| with.len()).sum();
        let mut out = Vec::with_capacity(self.text.len().saturating_add(added));
        let mut from = 0;
        for (span, with) in self.edits {
            out.extend_from_slice(self.text.get(from..span.start).unwrap_or_default());
            out.extend_from_slice(&with);
            from = span.end;
        }
        out.extend_from_slice(self.text.get(from..).unwrap_or_default());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_exchanged_in_whatever_order_they_are_named() {
        let text = br#"{"a":1,"b":[2]}"#;
        let whole = Node::of(text, Span { start: 0, end: text.len() });
        let mut edits = Edits::of(text);

        edits.replace(whole.get("b").unwrap(), "null");
        edits.replace(whole.get("a").unwrap(), "\"one\"");

        assert_eq!(edits.apply(), br#"{"a":"one","b":null}"#);
    }

    #[test]
    fn without_edits_a_text_stays_as_it_is() {
        assert!(Edits::of(b"x").is_empty());
        assert_eq!(Edits::of(b" [1] ").apply(), b" [1] ");
    }
}
