//! What a caller may write for an argument: read strictly, refused with what to write instead.

use super::{Argument, Kind, Need, WORD_MAX, is_word};
use serde_json::{Value, json};

/// Characters of a value that an error repeats.
const SHOWN: usize = 80;

impl Argument {
    /// The word that `given` makes; `None` for one that is left out and may be. `null` is taken for left out.
    pub(super) fn word(&self, given: Option<&Value>) -> Result<Option<String>, String> {
        let given = given.filter(|value| !value.is_null());
        match (given, &self.need) {
            (Some(value), _) => self.kind.word(value).map(Some).map_err(|why| format!("`{}` {why}", self.name)),
            (None, Need::Optional) => Ok(None),
            (None, Need::Default(value)) => {
                Ok(Some(self.kind.word(value).expect("defaults are checked when the file is read")))
            }
            (None, Need::Required) => Err(format!("`{}` is missing; it is {}", self.name, self.kind.wanted())),
        }
    }

    /// Its JSON Schema.
    pub(super) fn schema(&self) -> Value {
        let mut schema = match &self.kind {
            Kind::OneOf(values) => json!({ "type": "string", "enum": values }),
            Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
            Kind::Matches { pattern, .. } => {
                json!({ "type": "string", "pattern": format!("^(?:{pattern})$"), "minLength": 1, "maxLength": WORD_MAX })
            }
        };
        if let Some(description) = &self.description {
            schema["description"] = json!(description);
        }
        if let Need::Default(value) = &self.need {
            schema["default"] = value.clone();
        }
        schema
    }
}

impl Kind {
    /// The word that `value` makes.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that begins with the argument's name.
    pub(super) fn word(&self, value: &Value) -> Result<String, String> {
        let word = match (self, value) {
            (Kind::Integer { .. }, Value::Number(_)) => whole(value).map(|number| number.to_string()),
            (Kind::OneOf(_) | Kind::Matches { .. }, Value::String(text)) => Some(text.clone()),
            _ => None,
        };
        let word = word.filter(|word| self.has(word));
        word.ok_or_else(|| format!("is {}, and that is not allowed; it is {}", shown(value), self.wanted()))
    }

    /// Whether `word` is one of its values, as the host gets them.
    pub(super) fn has(&self, word: &str) -> bool {
        is_word(word)
            && match self {
                Kind::OneOf(values) => values.iter().any(|value| value == word),
                Kind::Integer { min, max } => {
                    let number = word.parse::<u64>().ok().filter(|number| number.to_string() == word);
                    number.is_some_and(|number| (*min..=*max).contains(&number))
                }
                Kind::Matches { whole, .. } => whole.is_match(word),
            }
    }

    fn wanted(&self) -> String {
        match self {
            Kind::OneOf(values) => match values.as_slice() {
                [one] => format!("always `{one}`"),
                values => {
                    let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
                    format!("one of {}", values.join(", "))
                }
            },
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Matches { pattern, .. } => format!(
                "a text that matches `{pattern}` as a whole, 1 to {WORD_MAX} of `A-Z a-z 0-9 . _ / -`, not beginning with `-`"
            ),
        }
    }
}

/// JSON Schema takes `200.0` for an integer, too.
fn whole(value: &Value) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and below 2^53")]
    let of_float = |number: f64| (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(of_float))
}

/// A value as an error repeats it: escaped, and not all of a long one.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", cut(&text.escape_debug().to_string())),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => cut(&other.to_string()),
    }
}

pub(super) fn cut(text: &str) -> String {
    let mut cut: String = text.chars().take(SHOWN).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}
