//! What can be asked for: tools, their arguments, and the action string they make.
//!
//! A tool makes one literal string, word by word: words that stand in the file, and values that a closed set, bounds or a
//! pattern let through. That keeps mistakes away from the host; the boundary is the script there.

/// From what is written to what holds.
mod check;
/// The actions file, as written.
mod file;
/// What an action is made of.
mod parts;
/// What a caller may write for an argument.
mod values;

pub use file::Hints;
pub(crate) use parts::{Part, Slot};

use regex::Regex;
use serde_json::{Map, Value, json};
use std::time::Duration;
use thiserror::Error;

/// Actions in one file.
pub const ACTIONS_MAX: usize = 64;
/// Arguments of one action.
pub const ARGUMENTS_MAX: usize = 16;
/// The longest word, in bytes.
pub const WORD_MAX: usize = 128;
/// The longest action string, in bytes.
pub const COMMAND_MAX: usize = 512;

/// The actions file, checked.
#[derive(Clone, Debug)]
pub struct Actions {
    list: Vec<Action>,
    check: String,
}

/// What is wrong with an actions file, for the person who wrote it.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct Fault {
    /// What, and what to do; with a snippet where it is about YAML.
    pub message: String,
    /// The line it is about, counted from 1, where there is one.
    pub line: Option<u64>,
}

/// One tool, and what it makes the host do.
#[derive(Clone, Debug)]
pub struct Action {
    /// The tool's name.
    pub name: String,
    /// The tool's title, where it has one.
    pub title: Option<String>,
    /// What a model is told of it.
    pub description: String,
    /// What a client is told of its effects.
    pub hints: Hints,
    /// After this we end it, and say so.
    pub timeout: Duration,
    /// What is kept of each of stdout and stderr, in bytes.
    pub output: u64,
    /// Whether it runs to its end, whoever leaves meanwhile.
    pub finishes: bool,
    words: Vec<Word>,
    arguments: Vec<Argument>,
}

/// A word of `run`.
#[derive(Clone, Debug)]
enum Word {
    Literal(String),
    /// The argument at this place.
    Argument(usize),
}

/// An argument of an action.
#[derive(Clone, Debug)]
struct Argument {
    name: String,
    description: Option<String>,
    kind: Kind,
    need: Need,
}

/// What its values are.
#[derive(Clone, Debug)]
enum Kind {
    OneOf(Vec<String>),
    Integer { min: u64, max: u64 },
    Matches { pattern: String, whole: Regex },
}

/// What it means to leave it out.
#[derive(Clone, Debug)]
enum Need {
    /// That is an error.
    Required,
    /// The action has a word less.
    Optional,
    /// The same as this, which is a value and a word.
    Default(Value),
}

// === impl Actions ===

impl Actions {
    /// Reads the text of an actions file.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn parse(text: &str) -> Result<Actions, Fault> {
        check::checked(&file::read(text)?)
    }

    /// The longest time that an action may take.
    pub fn longest(&self) -> Duration {
        self.list.iter().map(|action| action.timeout).max().unwrap_or_default()
    }

    /// An action string that changes nothing: who wants to see that what is allowed works sends it.
    pub fn check(&self) -> &str {
        &self.check
    }

    /// Whether an action of this file makes `command`.
    pub fn makes(&self, command: &str) -> bool {
        self.list.iter().any(|action| action.makes(command))
    }

    /// All of them, as they stand in the file.
    pub fn iter(&self) -> impl Iterator<Item = &Action> {
        self.list.iter()
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Action> {
        self.list.iter().find(|action| action.name == name)
    }
}

// === impl Action ===

impl Action {
    /// The action string that these arguments make.
    ///
    /// # Errors
    /// What is wrong with an argument and what to write instead, for whoever asked.
    pub fn command(&self, given: &Map<String, Value>) -> Result<String, String> {
        if let Some(unknown) = given.keys().find(|name| self.arguments.iter().all(|known| known.name != **name)) {
            return Err(self.unknown(unknown));
        }
        let mut words = Vec::new();
        for word in &self.words {
            match word {
                Word::Literal(word) => words.push(word.clone()),
                Word::Argument(at) => {
                    let argument = &self.arguments[*at];
                    words.extend(argument.word(given.get(&argument.name))?);
                }
            }
        }
        let command = words.join(" ");
        if command.len() > COMMAND_MAX {
            return Err(format!(
                "the action has {} bytes with these arguments, and {COMMAND_MAX} are the most; shorten one of them",
                command.len()
            ));
        }
        Ok(command)
    }

    /// The JSON Schema (2020-12) of its arguments.
    pub fn input_schema(&self) -> Map<String, Value> {
        let properties: Map<String, Value> =
            self.arguments.iter().map(|argument| (argument.name.clone(), argument.schema())).collect();
        let required: Vec<&str> = self
            .arguments
            .iter()
            .filter(|argument| matches!(argument.need, Need::Required))
            .map(|argument| argument.name.as_str())
            .collect();
        let mut schema = Map::new();
        schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            schema.insert("required".to_owned(), json!(required));
        }
        schema.insert("additionalProperties".to_owned(), json!(false));
        schema
    }

    /// Whether it makes `command`.
    pub(crate) fn makes(&self, command: &str) -> bool {
        let mut given = command.split(' ');
        let is_made = self.words.iter().all(|word| match (word, given.next()) {
            (Word::Literal(word), given) => given == Some(word),
            (Word::Argument(at), Some(given)) => self.arguments[*at].kind.has(given),
            (Word::Argument(at), None) => matches!(self.arguments[*at].need, Need::Optional),
        });
        is_made && given.next().is_none()
    }

    fn unknown(&self, name: &str) -> String {
        let names: Vec<String> = self.arguments.iter().map(|argument| format!("`{}`", argument.name)).collect();
        let known = match names.as_slice() {
            [] => "it takes none".to_owned(),
            names => format!("it takes {}", names.join(", ")),
        };
        format!("`{}` has no argument `{}`; {known}", self.name, values::cut(&name.escape_debug().to_string()))
    }
}

/// Whether `text` can be a word of an action: 1 to 128 bytes of `A-Za-z0-9._/-`, not beginning with `-`.
pub fn is_word(text: &str) -> bool {
    (1..=WORD_MAX).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._/-".contains(&b))
}

#[cfg(test)]
mod tests;
