//! What an action is made of, for whoever gets it wrong on purpose.

use super::{Action, Argument, Kind, Need, Word};

/// A word of `run`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part<'a> {
    /// It stands there.
    Literal(&'a str),
    /// It is a value.
    Argument(Slot<'a>),
}

/// Where a value stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a>(&'a Argument);

/// Values that many patterns take.
const PLAIN: [&str; 6] = ["a", "1", "A", "a-a", "main", "1.0.0"];

impl Action {
    /// Its words, in their order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.words.iter().map(|word| match word {
            Word::Literal(word) => Part::Literal(word),
            Word::Argument(at) => Part::Argument(Slot(&self.arguments[*at])),
        })
    }

    /// Whether it says of itself that it changes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        self.hints.read_only_hint == Some(true)
    }
}

impl Slot<'_> {
    /// Whether this is one of its values.
    pub(crate) fn has(self, word: &str) -> bool {
        self.0.kind.has(word)
    }

    /// Whether the action can do without.
    pub(crate) fn is_optional(self) -> bool {
        matches!(self.0.need, Need::Optional)
    }

    /// Whether its values are numbers.
    pub(crate) fn is_number(self) -> bool {
        matches!(self.0.kind, Kind::Integer { .. })
    }

    /// One of its values, where one is known.
    pub(crate) fn some(self) -> Option<String> {
        match &self.0.kind {
            Kind::OneOf(values) => values.first().cloned(),
            Kind::Integer { min, .. } => Some(min.to_string()),
            Kind::Matches { .. } => {
                let default = match &self.0.need {
                    Need::Default(value) => value.as_str().map(str::to_owned),
                    Need::Required | Need::Optional => None,
                };
                default.or_else(|| PLAIN.into_iter().find(|word| self.has(word)).map(str::to_owned))
            }
        }
    }
}
