//! The YAML text as a tree in which every key and value knows where it stands.
//!
//! Built from the parser's events rather than through serde, for three reasons: all duplicate keys can be reported, not
//! only the first; a later check can find the place of any value; and YAML's riskier half can be refused by name:
//! anchors and aliases (a page that expands to gigabytes), tags, directives, a second document, and words that YAML 1.1
//! and YAML 1.2 read differently (`no`, `0755`).

use serde_json::Number;
use serde_saphyr::granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput};
use std::collections::HashSet;
use std::ops::Range;

/// A value and where it stands: byte offsets into the text.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// What YAML can say, as far as we let it.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One `key: value` of a mapping.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Range<usize>,
    pub(super) value: Node,
}

/// Something in the text that is not YAML, or not the YAML we take.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) hint: Option<&'static str>,
}

/// Deeper than any sensible file, and far from the end of the stack.
const DEPTH_MAX: usize = 32;
/// Values in one file.
const NODES_MAX: usize = 100_000;
/// Nobody reads on after this many, and finding the line of each costs a walk over the text.
const FAULTS_MAX: usize = 100;

/// Reads `text`. With no faults there is a tree.
pub(super) fn parse(text: &str) -> Result<Node, Vec<Fault>> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.disallow_directives = true;
    // An unknown alias is refused by us like a known one, instead of ending the parse.
    options.emit_unresolved_aliases = true;
    let mut reader =
        Reader { events: Parser::new_from_str_with_options(text, options), faults: Vec::new(), n_nodes: 0 };
    let root = reader.document();
    match root {
        Ok(Some(root)) if reader.faults.is_empty() => Ok(root),
        Ok(Some(_)) => Err(reader.faults),
        Ok(None) => {
            reader.fault(0..0, "the file is empty", Some(EMPTY));
            Err(reader.faults)
        }
        Err(Stop) => Err(reader.faults),
    }
}

struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
    faults: Vec<Fault>,
    n_nodes: usize,
}

/// The text cannot be read further; why is among the faults.
struct Stop;

impl<'t> Reader<'t> {
    fn document(&mut self) -> Result<Option<Node>, Stop> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    self.fault(range(span), "a second document begins here", Some(ONE));
                    return Err(Stop);
                }
                Event::DocumentStart(..) => {}
                event => root = Some(self.node(event, span, 0)?),
            }
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Stop> {
        let at = range(span);
        self.within_limits(&at, depth)?;
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_properties(anchor, tag.is_some(), &span);
                let value = match style {
                    ScalarStyle::Plain => self.plain(&text, &at),
                    _ => Value::String(text.into_owned()),
                };
                Ok(Node { span: at, value })
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_properties(anchor, tag.is_some(), &span);
                self.list(at, depth)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_properties(anchor, tag.is_some(), &span);
                self.map(at, depth)
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.fault(at.clone(), "YAML aliases are not read", Some(ALIAS));
                Ok(Node { span: at, value: Value::Null })
            }
            _ => {
                self.fault(at, "not readable as YAML here", None);
                Err(Stop)
            }
        }
    }

    fn list(&mut self, start: Range<usize>, depth: usize) -> Result<Node, Stop> {
        let mut elements = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Ok(Node { span: start.start..range(span).end, value: Value::List(elements) });
            }
            elements.push(self.node(event, span, depth.saturating_add(1))?);
        }
    }

    fn map(&mut self, start: Range<usize>, depth: usize) -> Result<Node, Stop> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(Node { span: start.start..range(span).end, value: Value::Map(entries) });
            }
            let (key, key_span) = self.key(event, span, depth)?;
            if !seen.insert(key.clone()) {
                self.fault(key_span.clone(), format!("key `{key}` stands twice"), Some(TWICE));
            }
            let (event, span) = self.next()?;
            entries.push(Entry { key, key_span, value: self.node(event, span, depth.saturating_add(1))? });
        }
    }

    /// Keys are texts, also where they look like numbers (`42:`); only scalars can be keys.
    fn key(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<(String, Range<usize>), Stop> {
        let at = range(span);
        if let Event::Scalar(text, style, anchor, tag) = event {
            self.refuse_properties(anchor, tag.is_some(), &span);
            if text.is_empty() && style == ScalarStyle::Plain {
                self.fault(at.clone(), "a key is missing here", None);
            }
            return Ok((text.into_owned(), at));
        }
        self.node(event, span, depth.saturating_add(1))?;
        self.fault(at.clone(), "a key must be a text", None);
        Ok((String::new(), at))
    }

    fn plain(&mut self, text: &str, at: &Range<usize>) -> Value {
        if is_ambiguous(text) {
            self.fault(at.clone(), format!("`{text}` is read differently by different versions of YAML"), Some(QUOTE));
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            _ if !is_number(text) => Value::String(text.to_owned()),
            _ => number(text).map_or_else(
                || {
                    let message = format!("`{text}` is too large to be kept exactly");
                    self.fault(at.clone(), message, None);
                    Value::Null
                },
                Value::Number,
            ),
        }
    }

    fn within_limits(&mut self, at: &Range<usize>, depth: usize) -> Result<(), Stop> {
        self.n_nodes = self.n_nodes.saturating_add(1);
        let message = if depth > DEPTH_MAX {
            format!("nested more than {DEPTH_MAX} deep")
        } else if self.n_nodes > NODES_MAX {
            format!("more than {NODES_MAX} values in one file")
        } else if self.faults.len() >= FAULTS_MAX {
            return Err(Stop);
        } else {
            return Ok(());
        };
        self.fault(at.clone(), message, None);
        Err(Stop)
    }

    fn refuse_properties(&mut self, anchor: usize, tagged: bool, span: &Span) {
        if anchor != 0 {
            self.fault(range(*span), "YAML anchors are not read", Some(ANCHOR));
        }
        if tagged {
            let at = span.tag_span().unwrap_or(*span);
            self.fault(range(at), "YAML tags are not read", Some(TAG));
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Stop> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                self.syntax(&error);
                Err(Stop)
            }
            None => {
                self.fault(0..0, "the file ends too early", None);
                Err(Stop)
            }
        }
    }

    fn syntax(&mut self, error: &ScanError) {
        let at = error.marker().byte_offset().unwrap_or(0);
        let hint = match error.kind() {
            ErrorKind::MissingAnchorOrAliasName | ErrorKind::UnexpectedCharacter { .. } => Some(SPECIAL),
            _ => None,
        };
        self.fault(at..at, format!("not YAML: {}", error.info()), hint);
    }

    fn fault(&mut self, span: Range<usize>, message: impl Into<String>, hint: Option<&'static str>) {
        self.faults.push(Fault { span, message: message.into(), hint });
    }
}

fn range(span: Span) -> Range<usize> {
    span.byte_range().unwrap_or(0..0)
}

// === impl Node ===

impl Node {
    /// The same value without places, for serde.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(is) => serde_json::Value::Bool(*is),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::String(text) => serde_json::Value::String(text.clone()),
            Value::List(elements) => elements.iter().map(Node::to_json).collect(),
            Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect(),
        }
    }

    /// The entry under `key`, where this is a mapping that has one.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }
}

// === Scalars ===

/// YAML 1.1 has more words for true and false, octal numbers with a leading zero, and digits with `_`; YAML 1.2 has
/// not. Whoever writes them means one of the two, and a gateway must not guess which.
fn is_ambiguous(text: &str) -> bool {
    let word = text.to_ascii_lowercase();
    if matches!(word.as_str(), "yes" | "no" | "on" | "off") {
        return true;
    }
    let digits = word.trim_start_matches(['+', '-']);
    let mut bytes = digits.bytes();
    match (bytes.next(), bytes.next()) {
        (Some(b'0'), Some(b'0'..=b'9' | b'_' | b'x' | b'o' | b'b')) => {
            digits.bytes().all(|b| b.is_ascii_hexdigit() || b"_xo".contains(&b))
        }
        (Some(b'0'..=b'9'), Some(_)) => digits.contains('_') && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_'),
        _ => matches!(digits, ".inf" | ".nan"),
    }
}

/// `[-+]? digits [. digits] [e [-+]? digits]`, with a digit on at least one side of the point.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let is_exponent = |text: &str| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        !digits.is_empty() && is_digits(digits)
    };
    is_digits(whole) && is_digits(part) && !(whole.is_empty() && part.is_empty()) && exponent.is_none_or(is_exponent)
}

fn number(text: &str) -> Option<Number> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    // A whole number that fits neither would silently lose digits as a float.
    if text.contains(['.', 'e', 'E']) { Number::from_f64(text.parse().ok()?) } else { None }
}

const EMPTY: &str = "the smallest file names one upstream and one rule; see docs/configuration.md";
const ONE: &str = "remove the `---` and what follows it: a configuration is one YAML document";
const ANCHOR: &str = "write the value out where it is meant";
const ALIAS: &str = "put a pattern that begins with `*` in quotes";
const SPECIAL: &str = "put a text that begins with a special character in quotes";
const TAG: &str = "remove it, or put a text that begins with `!` in quotes";
const TWICE: &str = "keep one of the two";
const QUOTE: &str = "put it in quotes if it is a text; else write `true`, `false` or a plain decimal number";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn faults(text: &str) -> Vec<String> {
        match parse(text) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.into_iter().map(|fault| fault.message).collect(),
        }
    }

    #[track_caller]
    fn json(text: &str) -> String {
        parse(text).expect("a tree").to_json().to_string()
    }

    #[test]
    fn scalars_are_read_by_the_core_schema() {
        assert_eq!(
            json("[1, -2, 1.5, 1e3, true, null, ~, a b, '1', 30s, 127.0.0.1:80, '', .5, 1.2.3]"),
            r#"[1,-2,1.5,1000.0,true,null,null,"a b","1","30s","127.0.0.1:80","",0.5,"1.2.3"]"#
        );
    }

    #[test]
    fn words_that_versions_of_yaml_disagree_on_are_refused() {
        for word in ["yes", "No", "ON", "off", "0755", "0x1f", "0o17", "1_000", "-012", ".inf", "-.nan"] {
            let text = format!("a: {word}");
            assert_eq!(faults(&text), [format!("`{word}` is read differently by different versions of YAML")],);
            assert_eq!(faults(&format!("a: '{word}'")), [""; 0]);
        }
        for word in ["0", "0.5", "10", "0a", "00ff-ff", "node", "0b-c"] {
            assert_eq!(faults(&format!("a: {word}")), [""; 0], "{word}");
        }
    }

    #[test]
    fn a_whole_number_beyond_64_bits_is_refused() {
        assert_eq!(faults("a: 18446744073709551616"), ["`18446744073709551616` is too large to be kept exactly"]);
    }

    #[test]
    fn anchors_aliases_tags_and_duplicates_are_all_reported() {
        let text = "a: &x 1\nb: *x\nc: *unknown\nd: !!str 5\na: 2\n? [k]\n: v\n";

        assert_eq!(
            faults(text),
            [
                "YAML anchors are not read",
                "YAML aliases are not read",
                "YAML aliases are not read",
                "YAML tags are not read",
                "key `a` stands twice",
                "a key must be a text",
            ]
        );
    }

    #[test]
    fn a_deep_file_is_refused_before_the_stack_ends() {
        let flow = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let block: String = (0..200).map(|n| format!("{}a:\n", " ".repeat(n))).collect();

        assert_eq!(faults(&flow), ["nested more than 32 deep"]);
        assert_eq!(faults(&block), ["nested more than 32 deep"]);
    }
}
