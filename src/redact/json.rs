//! Values of JSON without their secrets: by rule, by the key they stand under, by their shape.

use super::{Redactor, names};
use serde_json::{Map, Value};

/// A pointer of RFC 6901, where `*` stands for any key or index.
type Pointer<'p> = Vec<&'p str>;

/// What a rule says of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Mask,
    Tag,
}

/// A value on its way through.
pub(super) struct Walk<'r> {
    pub(super) redactor: &'r Redactor,
    rules: Vec<(Pointer<'r>, Rule)>,
}

// === impl Walk ===

impl<'r> Walk<'r> {
    pub(super) fn new(redactor: &'r Redactor, masked: &'r [String], tagged: &'r [String]) -> Self {
        let of = |rule: Rule| move |pointer: &'r String| (pointer.split('/').skip(1).collect(), rule);
        Walk { redactor, rules: masked.iter().map(of(Rule::Mask)).chain(tagged.iter().map(of(Rule::Tag))).collect() }
    }

    pub(super) fn value(&self, value: &Value) -> Value {
        self.at(value, &mut Vec::new(), false)
    }

    /// `path` leads here; `is_secret` where a key above names a secret.
    fn at<'v>(&self, value: &'v Value, path: &mut Vec<Step<'v>>, is_secret: bool) -> Value {
        match self.rule(path) {
            Some(Rule::Mask) => return MASKED.into(),
            Some(Rule::Tag) => return self.tag(value),
            // Nobody has read it from that deep; what is written without a limit is no record.
            None if path.len() > DEEPEST => return MASKED.into(),
            None => {}
        }
        match value {
            Value::Object(members) => Value::Object(self.object(members, path, is_secret)),
            Value::Array(elements) => {
                let mut before = None;
                let elements = elements.iter().enumerate().map(|(n, element)| {
                    // `["--token", "…"]`, `["Cookie", "…"]`
                    let is_named = before.replace(element).and_then(Value::as_str).is_some_and(names_the_next);
                    self.step(Step::Index(n), element, path, is_secret || is_named)
                });
                Value::Array(elements.collect())
            }
            Value::String(text) if is_secret && !text.is_empty() && !super::is_tag(text) && text != MASKED => {
                self.tag(value)
            }
            Value::Number(number) if is_secret && number.to_string().len() > 3 => self.tag(value),
            Value::String(text) => self.redactor.text(text).into_owned().into(),
            other => other.clone(),
        }
    }

    fn object<'v>(
        &self,
        members: &'v Map<String, Value>,
        path: &mut Vec<Step<'v>>,
        is_secret: bool,
    ) -> Map<String, Value> {
        // `{"name": "Authorization", "value": "…"}`
        let named = ["name", "key", "header"].iter().find_map(|key| members.get(*key)?.as_str());
        let is_named = named.is_some_and(names::is_secret);
        let is_jwk = members.contains_key("kty");
        let member = |(key, value): (&'v String, &'v Value)| {
            let is_private = is_jwk && ["d", "p", "q", "dp", "dq", "qi", "k", "oth"].contains(&key.as_str());
            let is_secret = is_secret || is_private || names::is_secret(key) || is_named && key == "value";
            let value = self.step(Step::Key(key), value, path, is_secret);
            (self.redactor.text(key).into_owned(), value)
        };
        members.iter().map(member).collect()
    }

    fn step<'v>(&self, step: Step<'v>, value: &'v Value, path: &mut Vec<Step<'v>>, is_secret: bool) -> Value {
        path.push(step);
        let value = self.at(value, path, is_secret);
        path.pop();
        value
    }

    fn tag(&self, value: &Value) -> Value {
        let tag = match value {
            Value::String(text) => self.redactor.tag(text.as_bytes()),
            other => self.redactor.tag(other.to_string().as_bytes()),
        };
        tag.0.into()
    }

    /// What is left out is not tagged: the first rule that leaves it out counts.
    fn rule(&self, path: &[Step<'_>]) -> Option<Rule> {
        let mut rules = self.rules.iter().filter(|(pointer, _)| is_at(pointer, path));
        let first = rules.next()?.1;
        Some(if rules.any(|(_, rule)| *rule == Rule::Mask) { Rule::Mask } else { first })
    }
}

/// One step down.
enum Step<'v> {
    Key(&'v str),
    Index(usize),
}

fn is_at(pointer: &[&str], path: &[Step<'_>]) -> bool {
    pointer.len() == path.len()
        && pointer.iter().zip(path).all(|(token, step)| {
            *token == "*"
                || match step {
                    Step::Key(key) => token.replace("~1", "/").replace("~0", "~") == *key,
                    Step::Index(n) => token.parse() == Ok(*n),
                }
        })
}

fn names_the_next(text: &str) -> bool {
    // A flag, or a header's name in a pair: one word, and no more.
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).unwrap_or(text);
    name.len() <= 64 && !name.contains([' ', '=', ':']) && names::is_secret(name.trim_end_matches(':'))
        || ["-u", "--user", "-p"].contains(&text)
}

pub(super) const MASKED: &str = "[masked]";
const DEEPEST: usize = 128;
