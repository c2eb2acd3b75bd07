//! The arguments of a call as they are written down: where the configuration wants it, and without what must not be.
//!
//! What a policy could read is written as exactly as it was sent, so that `audit replay` judges the same values. JSON
//! readers differ in the numbers they can keep; one that a double cannot carry is replaced by its tag instead of another
//! number.

use super::Gateway;
use super::exchange::Exchange;
use super::receive::Received;
use crate::audit;
use crate::jsonrpc::{Kind, Node, Span};
use crate::mcp::{Object, Verb};
use crate::redact::Redactor;
use crate::snapshot::Route;
use serde_json::{Map, Number, Value};

/// More is not looked at: a record has 16 KiB, and what is masked of a longer text is not worth the time of a call.
const LONGEST: usize = 256 * 1024;

/// The tag of the arguments as they were sent; `None` where there are none.
pub(super) fn hash(gateway: &Gateway, received: &Received) -> Option<crate::redact::Tag> {
    let span = received.call.arguments.filter(|_| !audit::is_left_out())?;
    Some(gateway.audit.redactor().tag(span.cut(&received.body)))
}

/// What of the arguments may be written down, and how long they were; `None` where nothing is to be.
pub(super) fn recorded(
    gateway: &Gateway,
    exchange: &Exchange,
    route: &Route,
    received: &Received,
) -> Option<(Option<String>, usize)> {
    let call = &received.call;
    let (Verb::CallTool, Object::Tool(tool), Some(span)) = (call.method.verb, &call.object, call.arguments) else {
        return None;
    };
    let hidden = exchange.snapshot.recording.of_tool(&route.name, tool)?;
    let bytes = span.cut(&received.body).len();
    if bytes > LONGEST {
        return Some((None, bytes));
    }
    let redactor = gateway.audit.redactor();
    let json = redactor.json(&value(&received.body, span, redactor), &hidden.mask, &hidden.tag);
    Some((Some(audit::ascii(json.to_string())), bytes))
}

fn value(body: &[u8], span: Span, redactor: &Redactor) -> Value {
    built(Node::of(body, span), redactor)
}

/// As deep as `limits.depth` lets a message be.
fn built(node: Node<'_>, redactor: &Redactor) -> Value {
    match node.kind() {
        Kind::Null => Value::Null,
        Kind::Bool => Value::Bool(node.as_bool() == Some(true)),
        Kind::Number => {
            let tag = || Value::String(redactor.tag(node.text().as_bytes()).as_str().to_owned());
            number(node).map_or_else(tag, Value::Number)
        }
        Kind::String => Value::String(node.as_str().unwrap_or_default().into_owned()),
        Kind::Array => node.elements().map(|element| built(element, redactor)).collect(),
        Kind::Object => {
            let members = node.members().map(|(name, member)| (name.into_owned(), built(member, redactor)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

/// The very number, or none.
fn number(node: Node<'_>) -> Option<Number> {
    let text = node.text();
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(number.into());
    }
    // Whatever has a canonical form survives a double.
    node.canonical(&mut Vec::new()).ok()?;
    Number::from_f64(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(arguments: &str) -> String {
        let value = value(arguments.as_bytes(), Span::whole(arguments.as_bytes()), &Redactor::new(&[7; 32]));
        audit::ascii(value.to_string())
    }

    #[test]
    fn what_a_rule_could_read_is_written_as_it_was_sent() {
        assert_eq!(
            written(r#" { "a" : [ 1, -2.50, 18446744073709551615, true, null ], "\u00e9": "x\n\ud83d\ude00" } "#),
            r#"{"a":[1,-2.5,18446744073709551615,true,null],"\u00e9":"x\n\ud83d\ude00"}"#
        );
    }

    #[test]
    fn a_number_that_would_not_survive_is_tagged_and_never_rounded() {
        let redactor = Redactor::new(&[7; 32]);
        for number in ["100.0000000000000001", "1e400", "18446744073709551616", "0.10000000000000000000001"] {
            let tag = redactor.tag(number.as_bytes());
            assert_eq!(written(&format!(r#"{{"n":{number}}}"#)), format!(r#"{{"n":"{}"}}"#, tag.as_str()), "{number}");
        }
    }
}
