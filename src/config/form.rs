//! Whether the tree has the form of `gateway.yaml`: its keys, types and ranges, all mistakes at once.
//!
//! Walks tree and schema side by side. It knows the part of JSON Schema that our own structs produce, and no more: a
//! keyword it does not know is not checked here, and serde, which builds the structs afterwards, still says so.

use super::nearest::{did_you_mean, nearest};
use super::problem::{Malformed, Path, Problem, Segment};
use super::schema;
use super::sensitive::{holds_secret, names_secret};
use super::tree::{Entry, Node, Value};
use super::units::{ByteSize, Period};
use serde_json::{Map, Value as Json};

/// Everything about `root` that is not as the schema wants it.
pub(super) fn check(root: &Node) -> Vec<Problem> {
    let mut form = Form { problems: Vec::new() };
    form.value(root, schema::value(), &Path::root());
    form.problems
}

struct Form {
    problems: Vec<Problem>,
}

impl Form {
    fn value(&mut self, node: &Node, part: &'static Json, path: &Path) {
        if let Some(name) = schema::reference(part)
            && let Some(unit) = Unit::named(name)
        {
            return self.unit(node, &unit, path);
        }
        let part = schema::follow(part);
        if let Some(branches) = part.get("oneOf").and_then(Json::as_array) {
            return self.one_of(node, branches, path);
        }
        match (part.get("type").and_then(Json::as_str), &node.value) {
            (Some("object"), Value::Map(entries)) => self.object(entries, part, path),
            (Some("array"), Value::List(elements)) => self.array(elements, part, path),
            (Some("string"), Value::String(_)) | (Some("boolean"), Value::Bool(_)) => {}
            (Some("integer" | "number"), Value::Number(number)) => {
                self.number(number, part, path);
            }
            (Some(kind), found) => self.wrong_type(wanted(kind), found, path),
            // A free value: `equals`, `in`, `arguments`.
            (None, _) => {}
        }
    }

    fn object(&mut self, entries: &[Entry], part: &'static Json, path: &Path) {
        let properties = part.get("properties").and_then(Json::as_object);
        let mut meant = Vec::new();
        for entry in entries {
            let inner = path.key(&entry.key);
            if let Some(property) = properties.and_then(|all| all.get(&entry.key)) {
                self.value(&entry.value, property, &inner);
            } else if let Some(Json::Bool(false)) = part.get("additionalProperties") {
                let known = properties.into_iter().flat_map(Map::keys);
                meant.extend(self.unknown_key(inner, &entry.key, known.map(String::as_str).collect()));
            } else if let Some(property) = part.get("additionalProperties") {
                self.value(&entry.value, property, &inner);
            }
        }
        for name in part.get("required").and_then(Json::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            // A key that was only mistyped is not missing besides.
            if !meant.contains(&name) && !entries.iter().any(|entry| entry.key == name) {
                self.missing(name, path);
            }
        }
        self.at_least_one(part.get("minProperties"), entries.len(), path);
    }

    fn array(&mut self, elements: &[Node], part: &'static Json, path: &Path) {
        if let Some(items) = part.get("items") {
            for (at, element) in elements.iter().enumerate() {
                self.value(element, items, &path.index(at));
            }
        }
        self.at_least_one(part.get("minItems"), elements.len(), path);
    }

    /// One word of a list, or the forms of an enum: a plain text, or a mapping whose one key names the form; or both.
    fn one_of(&mut self, node: &Node, branches: &'static [Json], path: &Path) {
        let mut words = branches.iter().filter_map(|branch| branch.get("const")?.as_str()).peekable();
        let is_form = matches!(node.value, Value::Map(_)) && tags(branches).next().is_some();
        if words.peek().is_some() && !is_form {
            return self.word(node, &words.collect::<Vec<_>>(), path);
        }
        let is_text = |branch: &Json| branch.get("type").is_some_and(|kind| kind == "string");
        let takes_text = branches.iter().any(is_text);
        match &node.value {
            Value::String(_) if takes_text => {}
            Value::Map(entries) => self.tagged(entries, branches, path),
            found => {
                let mut forms: Vec<String> = tags(branches).map(|(tag, _)| format!("`{{ {tag}: … }}`")).collect();
                if takes_text {
                    forms.insert(0, "a text".to_owned());
                }
                self.wrong_type(&forms.join(" or "), found, path);
            }
        }
    }

    fn word(&mut self, node: &Node, words: &[&str], path: &Path) {
        let Value::String(word) = &node.value else {
            let words = listed(words.iter().copied());
            return self.wrong_type(&format!("one of {words}"), &node.value, path);
        };
        if !words.contains(&word.as_str()) {
            let hint = did_you_mean(word, words.iter().copied())
                .unwrap_or_else(|| format!("one of {}", listed(words.iter().copied())));
            self.problems.push(Problem::new(path, format!("unknown word `{word}`")).hint(hint));
        }
    }

    fn tagged(&mut self, entries: &[Entry], branches: &'static [Json], path: &Path) {
        let names = || listed(tags(branches).map(|(tag, _)| tag));
        let mut n_known: usize = 0;
        for entry in entries {
            let inner = path.key(&entry.key);
            let Some((_, part)) = tags(branches).find(|(tag, _)| *tag == entry.key) else {
                let known = tags(branches).map(|(tag, _)| tag).collect();
                self.unknown_key(inner, &entry.key, known);
                continue;
            };
            n_known = n_known.saturating_add(1);
            if n_known > 1 {
                let message = format!("`{}` cannot stand beside the key before it", entry.key);
                let hint = format!("exactly one of: {}", names());
                self.problems.push(Problem::new(inner, message).at_key().hint(hint));
            } else {
                self.value(&entry.value, part, &inner);
            }
        }
        if entries.is_empty() {
            let message = "nothing is written here".to_owned();
            let hint = format!("exactly one of: {}", names());
            self.problems.push(Problem::new(path, message).hint(hint));
        }
    }

    /// Returns the key that was probably meant.
    fn unknown_key<'a>(&mut self, path: Path, key: &str, known: Vec<&'a str>) -> Option<&'a str> {
        let meant = nearest(key, known.iter().copied());
        let hint = match meant {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("known here: {}", listed(known.into_iter())),
        };
        let problem = Problem::new(path, format!("unknown key `{key}`"));
        self.problems.push(problem.at_key().hint(hint));
        meant
    }

    fn number(&mut self, number: &serde_json::Number, part: &Json, path: &Path) {
        let is_integer = part.get("type").is_some_and(|kind| kind == "integer");
        if is_integer && number.is_f64() {
            return self.problems.push(Problem::new(path, format!("`{number}` is not a whole number")));
        }
        let bound = |name: &str| part.get(name).and_then(Json::as_f64);
        // A `u32` says its range by its format only.
        let max = match part.get("format").and_then(Json::as_str) {
            Some("uint32") => Some(f64::from(u32::MAX)),
            _ => bound("maximum"),
        };
        let value = number.as_f64().unwrap_or(f64::NAN);
        if bound("minimum").is_some_and(|min| value < min) {
            self.problems.push(Problem::new(path, format!("`{number}` is too small")));
        } else if max.is_some_and(|max| value > max) {
            self.problems.push(Problem::new(path, format!("`{number}` is too large")));
        }
    }

    fn unit(&mut self, node: &Node, unit: &Unit, path: &Path) {
        let text = match &node.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            found => return self.wrong_type(unit.what, found, path),
        };
        if let Some(malformed) = (unit.error)(&text) {
            self.problems.push(malformed.at(path));
        }
    }

    fn missing(&mut self, name: &str, path: &Path) {
        let message = match path.is_root() {
            true => format!("section `{name}` is missing"),
            false => format!("key `{name}` is missing"),
        };
        self.problems.push(Problem::new(path.key(name), message));
    }

    fn at_least_one(&mut self, min: Option<&Json>, n: usize, path: &Path) {
        if min.is_some() && n == 0 {
            self.problems.push(Problem::new(path, "at least one is needed here"));
        }
    }

    fn wrong_type(&mut self, wanted: &str, found: &Value, path: &Path) {
        let is_secret = |segment: &Segment| matches!(segment, Segment::Key(key) if names_secret(key));
        let described = match path.segments().iter().any(is_secret) {
            // Someone wrote the secret itself: it is not repeated into logs.
            true if !matches!(found, Value::List(_) | Value::Map(_)) => "a plain value".to_owned(),
            _ => described(found),
        };
        let problem = match found {
            Value::Null => Problem::new(path, format!("nothing is written here, expected {wanted}"))
                .hint("write a value, or remove the key"),
            Value::Number(_) | Value::Bool(_) if wanted == "a text" => {
                Problem::new(path, format!("expected {wanted}, found {described}")).hint("put it in quotes")
            }
            _ => Problem::new(path, format!("expected {wanted}, found {described}")),
        };
        self.problems.push(problem);
    }
}

// === Words ===

/// The types that are texts with a grammar of their own.
struct Unit {
    what: &'static str,
    error: fn(&str) -> Option<Malformed>,
}

impl Unit {
    fn named(name: &str) -> Option<Unit> {
        match name {
            "Period" => Some(Unit { what: "a length of time", error: |text| text.parse::<Period>().err() }),
            "ByteSize" => Some(Unit { what: "a size", error: |text| text.parse::<ByteSize>().err() }),
            _ => None,
        }
    }
}

/// The keys that name a form, each with the schema of its value.
fn tags(branches: &'static [Json]) -> impl Iterator<Item = (&'static str, &'static Json)> {
    branches
        .iter()
        .filter_map(|branch| branch.get("properties")?.as_object())
        .flatten()
        .map(|(tag, part)| (tag.as_str(), part))
}

fn wanted(kind: &'static str) -> &'static str {
    match kind {
        "object" => "a mapping",
        "array" => "a list",
        "string" => "a text",
        "boolean" => "`true` or `false`",
        "integer" => "a whole number",
        "number" => "a number",
        other => other,
    }
}

fn described(found: &Value) -> String {
    match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(is) => format!("`{is}`"),
        Value::Number(number) => format!("the number `{number}`"),
        Value::String(text) if text.chars().count() <= 40 && !holds_secret(text) => {
            format!("the text `{text}`")
        }
        Value::String(_) => "a text".to_owned(),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}
