//! From what is written to what holds: everything that can be wrong with an actions file is found here, with its line.

use super::file::{self, File};
use super::{
    ACTIONS_MAX, ARGUMENTS_MAX, Action, Actions, Argument, COMMAND_MAX, Fault, Kind, Need, WORD_MAX, Word, is_word,
};
use regex::RegexBuilder;
use serde_saphyr::Spanned;
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest name of a tool or an argument, in bytes.
const NAME_MAX: usize = 64;
/// The longest title, and the longest description, in bytes.
const TITLE_MAX: usize = 128;
const DESCRIPTION_MAX: usize = 4096;
/// Values of one `one_of`.
const VALUES_MAX: usize = 256;
/// The longest pattern, in bytes, and what it may become when it is compiled.
const PATTERN_MAX: usize = 256;
const COMPILED_MAX: usize = 256 * 1024;
/// 2^53 - 1: above it, JSON's numbers are not the same everywhere.
const INTEGER_MAX: u64 = (1 << 53) - 1;
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUT_MAX: Duration = Duration::from_secs(60 * 60);
const OUTPUT: u64 = 256 * 1024;
const OUTPUT_MIN: u64 = 1024;
/// An answer holds two outputs, each twice, and a byte may take six characters: below the gateway's usual limit of an answer.
const OUTPUT_MAX: u64 = 512 * 1024;

pub(super) fn checked(file: &File) -> Result<Actions, Fault> {
    let written = &file.actions;
    if written.value.is_empty() || written.value.len() > ACTIONS_MAX {
        return Err(at(written, format!("`actions` has {} actions; 1 to {ACTIONS_MAX} can be", written.value.len())));
    }
    let mut list: Vec<Action> = Vec::new();
    for written in &written.value {
        let action = action(&written.value)?;
        if list.iter().any(|other| other.name == action.name) {
            return Err(at(&written.value.name, format!("a second action is called `{}`", action.name)));
        }
        list.push(action);
    }
    let check = &file.check.value;
    let changes_nothing = |action: &&Action| action.hints.read_only_hint == Some(true);
    if !list.iter().filter(changes_nothing).any(|action| action.makes(check)) {
        let message = format!(
            "`check` is `{}`, which no action with `annotations: {{ readOnlyHint: true }}` makes; write an action string \
             that changes nothing on the host, word by word, as one of them makes it",
            check.escape_debug()
        );
        return Err(at(&file.check, message));
    }
    Ok(Actions { list, check: check.clone() })
}

fn action(written: &file::Action) -> Result<Action, Fault> {
    let name = &written.name;
    if !is_name(&name.value, "-.") {
        let message =
            format!("`{}` is no name of a tool: 1 to {NAME_MAX} of `A-Za-z0-9_.-`", name.value.escape_debug());
        return Err(at(name, message));
    }
    if let Some(title) = &written.title {
        text(title, "title", TITLE_MAX)?;
    }
    text(&written.description, "description", DESCRIPTION_MAX)?;
    let hints = written.annotations.as_ref().map(|hints| hints.value).unwrap_or_default();
    if let (Some(written), Some(true), Some(true)) =
        (&written.annotations, hints.read_only_hint, hints.destructive_hint)
    {
        return Err(at(written, format!("`{}` cannot change nothing and be destructive", name.value)));
    }
    if written.arguments.len() > ARGUMENTS_MAX {
        let message = format!("`{}` has more than {ARGUMENTS_MAX} arguments", name.value);
        return Err(at(name, message));
    }
    let mut arguments = Vec::new();
    for (name, written) in &written.arguments {
        arguments.push(argument(name, written)?);
    }
    let words = words(&written.run, &arguments)?;
    for (place, (name, written)) in written.arguments.iter().enumerate() {
        if !words.iter().any(|word| matches!(word, Word::Argument(at) if *at == place)) {
            return Err(at(written, format!("`run` does not use the argument `{name}`; write `{{{name}}}` in it")));
        }
    }
    Ok(Action {
        name: name.value.clone(),
        title: written.title.as_ref().map(|title| title.value.clone()),
        description: written.description.value.clone(),
        hints,
        timeout: written.timeout.as_ref().map_or(Ok(TIMEOUT), timeout)?,
        output: written.output.as_ref().map_or(Ok(OUTPUT), output)?,
        finishes: written.finishes,
        words,
        arguments,
    })
}

/// The words of `run`.
fn words(run: &Spanned<String>, arguments: &[Argument]) -> Result<Vec<Word>, Fault> {
    let mut words: Vec<Word> = Vec::new();
    let mut used = BTreeSet::new();
    let mut n_literal = 0;
    for text in run.value.split(' ') {
        if matches!(words.last(), Some(Word::Argument(place)) if matches!(arguments[*place].need, Need::Optional)) {
            return Err(at(run, "after an optional argument there is no further word: write it last".to_owned()));
        }
        if let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            let place = arguments.iter().position(|argument| argument.name == name);
            let unknown = || format!("`run` uses `{text}`, and there is no argument `{}`", name.escape_debug());
            let place = place.ok_or_else(|| at(run, unknown()))?;
            if !used.insert(place) {
                return Err(at(run, format!("`run` uses `{text}` twice")));
            }
            words.push(Word::Argument(place));
        } else if is_word(text) {
            n_literal += text.len() + 1;
            words.push(Word::Literal(text.to_owned()));
        } else {
            let message = format!(
                "`run` has the word `{}`; a word is `{{an argument}}` as a whole, or 1 to {WORD_MAX} of `A-Za-z0-9._/-`, \
                 not beginning with `-`; one space stands between two",
                text.escape_debug()
            );
            return Err(at(run, message));
        }
    }
    if !matches!(words.first(), Some(Word::Literal(_))) {
        return Err(at(run, "`run` begins with a word that is always the same, never with an argument".to_owned()));
    }
    if n_literal + 2 * used.len() > COMMAND_MAX {
        return Err(at(run, format!("`run` makes more than {COMMAND_MAX} bytes")));
    }
    Ok(words)
}

fn argument(name: &str, written: &Spanned<file::Argument>) -> Result<Argument, Fault> {
    let fault = |message: String| Err(at(written, format!("argument `{name}`: {message}")));
    if !is_name(name, "") {
        return fault(format!("a name has 1 to {NAME_MAX} of `A-Za-z0-9_`"));
    }
    let from = &written.value;
    let kind = match (&from.one_of, &from.integer, &from.matches) {
        (Some(values), None, None) => one_of(values),
        (None, Some(bounds), None) => integer(bounds),
        (None, None, Some(pattern)) => matches(pattern),
        _ => Err("exactly one of `one_of`, `integer` and `matches` says what its values are".to_owned()),
    };
    let kind = match kind {
        Ok(kind) => kind,
        Err(message) => return fault(message),
    };
    if let Some(description) = &from.description
        && !is_text(description, DESCRIPTION_MAX)
    {
        return fault(format!("`description` has 1 to {DESCRIPTION_MAX} bytes, and no control characters"));
    }
    let need = match (&from.default, from.optional) {
        (Some(_), true) => return fault("what has a `default` is never left out; leave out `optional`".to_owned()),
        (Some(value), false) => {
            if let Err(why) = kind.word(value) {
                return fault(format!("`default` {why}"));
            }
            Need::Default(value.clone())
        }
        (None, true) => Need::Optional,
        (None, false) => Need::Required,
    };
    Ok(Argument { name: name.to_owned(), description: from.description.clone(), kind, need })
}

fn one_of(values: &[String]) -> Result<Kind, String> {
    if values.is_empty() || values.len() > VALUES_MAX {
        return Err(format!("`one_of` has {} values; 1 to {VALUES_MAX} can be", values.len()));
    }
    let mut seen = BTreeSet::new();
    for value in values {
        if !is_word(value) {
            return Err(format!(
                "`{}` cannot be a word of an action: 1 to {WORD_MAX} of `A-Za-z0-9._/-`, not beginning with `-`",
                value.escape_debug()
            ));
        }
        if !seen.insert(value) {
            return Err(format!("`one_of` has `{value}` twice"));
        }
    }
    Ok(Kind::OneOf(values.to_vec()))
}

fn integer(bounds: &file::Bounds) -> Result<Kind, String> {
    let (min, max) = (bounds.min, bounds.max);
    if min > max || max > INTEGER_MAX {
        return Err(format!(
            "`integer` goes from `min` up to `max`, and to {INTEGER_MAX} at most; this is {min} to {max}"
        ));
    }
    Ok(Kind::Integer { min, max })
}

/// A pattern that means the same to us and, as JSON Schema, to clients (ECMA-262), whole words and nothing else.
fn matches(pattern: &str) -> Result<Kind, String> {
    let fault = |why: &str| Err(format!("`matches` cannot be `{}`: {why}", pattern.escape_debug()));
    if pattern.is_empty() || pattern.len() > PATTERN_MAX {
        return fault(&format!("it has 1 to {PATTERN_MAX} bytes"));
    }
    if let Some(why) = strange(pattern) {
        return fault(why);
    }
    let compiled = |pattern: &str| RegexBuilder::new(pattern).size_limit(COMPILED_MAX).build();
    // Alone first: `a)|(b` makes sense in our brackets only, and would not be anchored there.
    if let Err(why) = compiled(pattern) {
        return fault(&why.to_string());
    }
    match compiled(&format!(r"\A(?:{pattern})\z")) {
        Ok(whole) => Ok(Kind::Matches { pattern: pattern.to_owned(), whole }),
        Err(why) => fault(&why.to_string()),
    }
}

/// What regular expressions of Rust and of ECMA-262 read differently, or no word can hold.
fn strange(pattern: &str) -> Option<&'static str> {
    const ONLY: &str = "letters, digits, `. _ / -`, `[ ] ^ ( ) | ? * + { } , $`, `(?:` and, after `\\`, `d w . - /` are \
                        what patterns of words need";
    let bytes = pattern.as_bytes();
    let mut in_class = false;
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        match rest[0] {
            b'\\' if rest.get(1).is_some_and(|b| b"dw.-/".contains(b)) => at += 1,
            b'[' if in_class => return Some("a class in a class means something else in JSON Schema"),
            b'[' => in_class = true,
            b']' => in_class = false,
            b'-' if in_class && rest.get(1) == Some(&b'-') => {
                return Some("`--` in a class means something else in JSON Schema");
            }
            b'(' if rest.get(1) == Some(&b'?') && rest.get(2) != Some(&b':') => {
                return Some(
                    "flags and names of groups mean something else in JSON Schema; of `(?…` only `(?:` can be used",
                );
            }
            b if b.is_ascii_alphanumeric() || b"._/-^()|?*+{},:$".contains(&b) => {}
            _ => return Some(ONLY),
        }
        at += 1;
    }
    None
}

fn timeout(written: &Spanned<String>) -> Result<Duration, Fault> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];
    let timeout = amount(&written.value, &UNITS).map(Duration::from_millis);
    timeout.filter(|timeout| !timeout.is_zero() && *timeout <= TIMEOUT_MAX).ok_or_else(|| {
        let message = format!(
            "`timeout` is `{}`; write a whole number with its unit (`ms`, `s`, `m`, `h`), like `30s`, up to 1h",
            written.value.escape_debug()
        );
        at(written, message)
    })
}

fn output(written: &Spanned<String>) -> Result<u64, Fault> {
    const UNITS: [(&str, u64); 3] = [("KiB", 1024), ("MiB", 1024 * 1024), ("B", 1)];
    let output = amount(&written.value, &UNITS);
    output.filter(|output| (OUTPUT_MIN..=OUTPUT_MAX).contains(output)).ok_or_else(|| {
        let message = format!(
            "`output` is `{}`; write a whole number with its unit (`B`, `KiB`, `MiB`), like `256KiB`, from 1KiB to 512KiB",
            written.value.escape_debug()
        );
        at(written, message)
    })
}

/// A whole number with one of these units, the longer ones first, as `gateway.yaml` has them.
fn amount(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, of) = units.iter().find_map(|(unit, of)| Some((text.strip_suffix(unit)?, of)))?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    if is_number { number.parse::<u64>().ok()?.checked_mul(*of) } else { None }
}

fn is_name(name: &str, also: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || also.as_bytes().contains(&b))
}

fn text(written: &Spanned<String>, what: &str, longest: usize) -> Result<(), Fault> {
    if is_text(&written.value, longest) {
        return Ok(());
    }
    Err(at(written, format!("`{what}` has 1 to {longest} bytes, and no control characters but line breaks")))
}

fn is_text(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.trim().len())
        && text.len() <= longest
        && text.chars().all(|c| c == '\n' || !c.is_control())
}

fn at<T>(written: &Spanned<T>, message: String) -> Fault {
    let line = written.referenced.line();
    Fault { message, line: (line > 0).then_some(line) }
}
