//! Laws over generated texts. serde_json is the other opinion; [`fuzz_parse`] asks it.

use super::*;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

/// Spells a value in one of the many ways JSON allows. The choices come from proptest, and so shrink.
struct Speller<'c> {
    choices: std::iter::Cycle<std::slice::Iter<'c, u8>>,
    out: String,
}

impl Speller<'_> {
    fn choose(&mut self, n: u8) -> u8 {
        self.choices.next().map_or(0, |choice| choice % n)
    }

    fn space(&mut self) {
        let space = ["", "", "", " ", "\n\t", "\r\n  "];
        let choice = self.choose(6);
        self.out.push_str(space[usize::from(choice)]);
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            let must = matches!(c, '"' | '\\' | '\0'..='\x1f');
            if must || self.choose(4) == 0 {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let spelled = match self.choose(2) {
                        0 => format!("\\u{unit:04x}"),
                        _ => format!("\\u{unit:04X}"),
                    };
                    self.out.push_str(&spelled);
                }
            } else {
                self.out.push(c);
            }
        }
        self.out.push('"');
    }

    fn value(&mut self, value: &Value) {
        self.space();
        match value {
            Value::String(text) => self.string(text),
            Value::Array(values) => {
                self.out.push('[');
                for (n, value) in values.iter().enumerate() {
                    self.comma(n);
                    self.value(value);
                }
                self.space();
                self.out.push(']');
            }
            Value::Object(members) => {
                self.out.push('{');
                for (n, (name, value)) in members.iter().enumerate() {
                    self.comma(n);
                    self.space();
                    self.string(name);
                    self.space();
                    self.out.push(':');
                    self.value(value);
                }
                self.space();
                self.out.push('}');
            }
            scalar => self.out.push_str(&scalar.to_string()),
        }
        self.space();
    }

    fn comma(&mut self, n: usize) {
        if n > 0 {
            self.out.push(',');
        }
    }
}

fn spelled(value: &Value, choices: &[u8]) -> String {
    let mut speller = Speller { choices: choices.iter().cycle(), out: String::new() };
    speller.value(value);
    speller.out
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,2}", vec(any::<char>(), 0..12).prop_map(String::from_iter)]
        .prop_filter("reserved", |name| !name.starts_with("$serde_json::private::"))
}

fn value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name().prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 20, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            btree_map(name(), inner, 0..5).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn message() -> impl Strategy<Value = Value> {
    let id = prop_oneof![any::<i64>().prop_map(Value::from), "\\PC{0,20}".prop_map(Value::from)];
    let params = btree_map(name(), value(), 0..6);
    (id, "\\PC{1,20}", params, value(), 0..5).prop_map(|(id, method, params, value, kind)| {
        let params: Value = params.into_iter().collect();
        match kind {
            0 => json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}),
            1 => json!({"jsonrpc": "2.0", "method": method, "params": params}),
            2 => json!({"jsonrpc": "2.0", "id": id, "method": method}),
            3 => json!({"jsonrpc": "2.0", "id": id, "result": value}),
            _ => json!({"jsonrpc": "2.0", "id": id,
                        "error": {"code": -1, "message": method, "data": value}}),
        }
    })
}

fn choices() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..100)
}

/// Not the value the text was made from: serde_json reads some floats back one bit off.
fn theirs(text: &str) -> Value {
    serde_json::from_str(text).expect("what is spelled is JSON")
}

const ROOMY: Limits = Limits { depth: 64, nodes: 100_000 };

/// Asks a node everything there is to ask.
fn look_at_all_of(node: Node<'_>, text: &[u8], depth: usize) {
    let _ = (node.kind(), node.as_str(), node.as_bool(), node.as_number());
    let _ = (node.get("a"), node.pointer("/a/0/~01"), Id::of(node));
    if !node.text().is_empty() {
        assert!(node.span_in(text).is_some());
    }
    if depth > 0 {
        for inner in node.elements().chain(node.members().map(|it| it.1)) {
            look_at_all_of(inner, text, depth - 1);
        }
    }
}

fn whole(text: &[u8]) -> Node<'_> {
    let span = Span { start: 0, end: text.len() };
    Node::of(text, span)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_spelling_of_a_message_is_read_as_serde_json_reads_it(
        message in message(),
        choices in choices(),
    ) {
        let text = spelled(&message, &choices);

        fuzz_parse(text.as_bytes());
        let read = parse(text.as_bytes(), ROOMY);

        prop_assert!(read.is_ok(), "{}\n{:?}", text, read);
        fuzz::assert_agrees(whole(text.as_bytes()), &theirs(&text));
        look_at_all_of(whole(text.as_bytes()), text.as_bytes(), 8);
    }

    #[test]
    fn spans_cut_out_the_text_of_a_member_to_the_byte(
        members in btree_map(name(), value(), 0..6),
        choices in choices(),
    ) {
        let mut text = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"#.to_owned();
        let mut expected = Vec::new();
        let start = text.len();
        text.push('{');
        for (n, (name, value)) in members.iter().enumerate() {
            let value = spelled(value, &choices);
            text.push_str(if n > 0 { " ,\n" } else { " " });
            text.push_str(&format!("{} :", Value::from(name.as_str())));
            text.push_str(&value);
            expected.push((name.clone(), value.trim().to_owned()));
        }
        text.push('}');
        let end = text.len();
        text.push('}');

        let Ok(Message::Request(request)) = parse(text.as_bytes(), ROOMY) else {
            panic!("refused: {text}");
        };

        let params = request.params.expect("params");
        prop_assert_eq!(params.span, Span { start, end });
        let cut: Vec<(String, String)> = params
            .members
            .iter()
            .map(|it| {
                let node = Node::of(text.as_bytes(), it.value);
                assert_eq!(node.span_in(text.as_bytes()), Some(it.value));
                (it.key.clone(), node.text().to_owned())
            })
            .collect();
        prop_assert_eq!(cut, expected);
    }

    #[test]
    fn a_pointer_leads_where_serde_jsons_leads(
        value in value(),
        choices in choices(),
        path in vec(prop_oneof!["[a-c]{0,2}", "[0-9]{1,2}", "[-+~/ ]{1,2}"], 0..4),
    ) {
        let text = spelled(&value, &choices);
        let pointer: String = path.iter().map(|token| format!("/{token}")).collect();
        // serde_json takes `~2` for itself; RFC 6901 §3 has no such token.
        let is_a_pointer = !pointer.replace("~0", "").replace("~1", "").contains('~');

        let ours = whole(text.as_bytes()).pointer(&pointer);
        let value = theirs(&text);
        let theirs = value.pointer(&pointer).filter(|_| is_a_pointer);

        prop_assert_eq!(ours.is_some(), theirs.is_some(), "{} in {}", pointer, text);
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            fuzz::assert_agrees(ours, theirs);
        }
    }

    #[test]
    fn a_name_given_twice_is_refused_at_any_depth_in_any_spelling(
        name in name(),
        others in btree_map(name(), any::<u8>(), 0..40),
        path in vec(any::<bool>(), 0..20),
        (one, other) in (choices(), choices()),
        at in any::<prop::sample::Index>(),
    ) {
        let mut members: Vec<String> = others
            .iter()
            .filter(|it| *it.0 != name)
            .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
            .collect();
        let twin = |choices: &[u8]| format!("{}:0", spelled(&json!(name), choices));
        members.insert(at.index(members.len() + 1), twin(&one));
        let alone = members.join(",");
        members.insert(at.index(members.len() + 1), twin(&other));
        let twice = members.join(",");

        let body = |members: &str| {
            let nested = path.iter().fold(format!("{{{members}}}"), |inner, is_array| {
                if *is_array { format!("[1,{inner},2]") } else { format!("{{\"a\":{inner},\"b\":1}}") }
            });
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{{"a":{nested}}}}}"#)
        };

        prop_assert!(parse(body(&alone).as_bytes(), ROOMY).is_ok());
        let fault = parse(body(&twice).as_bytes(), ROOMY).map_err(|error| error.fault);
        prop_assert!(matches!(fault, Err(Fault::Duplicate { .. })), "{:?}", fault);
        fuzz_parse(body(&twice).as_bytes());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        fuzz_parse(&bytes);
        look_at_all_of(whole(&bytes), &bytes, 8);
    }

    #[test]
    fn any_run_of_json_tokens_is_read_or_refused(
        tokens in vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"", "\\", "\"a\"", "\"id\"", "\"jsonrpc\"", "\"2.0\"", "\"method\"",
            "\"params\"", "\"\\u0061\"", "\\ud800", "0", "-1", "1.5", "e9", "true", "null", " ", "\n", "é",
        ]), 0..40),
    ) {
        let text = tokens.concat();

        fuzz_parse(text.as_bytes());
        look_at_all_of(whole(text.as_bytes()), text.as_bytes(), 8);
    }

    #[test]
    fn a_damaged_message_is_read_or_refused(
        message in message(),
        choices in choices(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 1..6),
    ) {
        let mut text = spelled(&message, &choices).into_bytes();
        for (at, byte, kind) in damage {
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                2 => text.truncate(at.max(1)),
                _ => text.extend_from_within(at..),
            }
        }

        fuzz_parse(&text);
        look_at_all_of(whole(&text), &text, 8);
    }

    #[test]
    fn ids_are_equal_if_they_mean_the_same(
        (one, other) in (any::<i64>(), any::<i64>()),
        text in "\\PC{0,20}",
        (spelling, another) in (choices(), choices()),
    ) {
        let id = |json: &str| Id::of(whole(json.trim().as_bytes())).expect("an id");

        prop_assert_eq!(one == other, id(&one.to_string()) == id(&other.to_string()));
        let text = json!(text);
        prop_assert_eq!(id(&spelled(&text, &spelling)), id(&spelled(&text, &another)));
        prop_assert_ne!(id(&one.to_string()), id(&format!("\"{one}\"")));
    }
}
