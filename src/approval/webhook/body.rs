//! What a receiver is told of a held call.
//!
//! Texts of strangers are written as people see them everywhere else: what cannot be seen is named. The one sentence for a
//! chat has no character in it that chats take for markup, and no link but ours.

use super::{Hook, InForce};
use crate::approval::{Approvals, View, hex};
use crate::clock::rfc3339;
use crate::pages::text::exact_line;
use crate::redact::Redactor;
use crate::store::Notice;
use serde_json::{Value, json};

/// The `type` of what we send.
pub(super) const REQUESTED: &str = "approval.requested";
/// A summary is one line of a chat.
const LONGEST_SUMMARY: usize = 300;

/// The body of a notice, in JSON.
pub(super) fn of(notice: &Notice, view: &View, hook: &Hook, approvals: &Approvals, in_force: &InForce) -> Vec<u8> {
    let (held, terms) = (&view.approval, &view.terms);
    let redactor = approvals.0.audit.redactor();
    let shown = |text: &str| exact_line(&redactor.text(text));
    let rules: Vec<String> = held.rules.iter().map(|rule| exact_line(rule)).collect();
    // Where it was found names arguments.
    let signals = terms.findings.iter().map(|found| match hook.sends_arguments {
        true => json!({ "signal": exact_line(&found.signal), "at": shown(&found.at) }),
        false => json!({ "signal": exact_line(&found.signal) }),
    });
    let mut data = json!({
        "id": &*held.id,
        "digest": hex(&held.digest),
        "upstream": &*held.upstream,
        "tool": shown(&held.tool),
        "requester": shown(&held.requester.subject.to_string()),
        "client": shown(&held.requester.client),
        "rules": rules,
        "signals": signals.collect::<Vec<_>>(),
        "summary": summary(view, redactor),
        "link": format!("{}/approvals/{}", in_force.admin_url, held.id),
        "expires_at": rfc3339(held.expires_at_ms),
        "valid_for_s": held.valid_for_ms / 1000,
    });
    if hook.decides_as.is_some() {
        data["decision_url"] = format!("{}/webhooks/{}", in_force.admin_url, hook.name).into();
        data["nonce"] = notice.nonce.clone().into();
    }
    if !hook.sends_arguments {
        return message(held.created_at_ms, &data).into_bytes();
    }
    data["arguments"] = Value::Null;
    data["masked"] = terms.mask.iter().cloned().collect();
    let arguments = approvals.masked_arguments(view);
    let arguments = arguments.map_or_else(|| "null".to_owned(), |text| redacted(text, redactor));
    with_arguments(&message(held.created_at_ms, &data), &arguments).into_bytes()
}

/// Without what the rules do not mask and still has the name or the shape of a secret: a chat is read by many, and kept. As
/// they are where there is no such thing.
fn redacted(arguments: String, redactor: &Redactor) -> String {
    match serde_json::from_str::<Value>(&arguments) {
        Ok(value) => {
            let shown = redactor.json(&value, &[], &[]);
            if shown == value { arguments } else { shown.to_string() }
        }
        // Deeper than a parser goes.
        Err(_) if crate::redact::holds_secret(&arguments) => {
            Value::from(redactor.tag(arguments.as_bytes()).as_str()).to_string()
        }
        Err(_) => arguments,
    }
}

fn message(at_ms: i64, data: &Value) -> String {
    json!({ "type": REQUESTED, "timestamp": rfc3339(at_ms), "data": data }).to_string()
}

/// Puts the canonical text in as it is: parsed, it would have to fit the parser's depth. Within a text of JSON there is no
/// quote that is not escaped, so only the member itself reads like this.
fn with_arguments(message: &str, arguments: &str) -> String {
    message.replacen(r#""arguments":null"#, &format!(r#""arguments":{arguments}"#), 1)
}

/// Who wants what, in one sentence that no chat takes for more than that.
fn summary(view: &View, redactor: &Redactor) -> String {
    let held = &view.approval;
    let rules = held.rules.iter().map(|rule| quiet(rule)).collect::<Vec<_>>().join(", ");
    let said = |text: &str| quiet(&redactor.text(text));
    let (who, tool) = (said(&held.requester.subject.to_string()), said(&held.tool));
    let whole = format!("{who} asks to call {}/{tool}, which needs an approval ({rules})", held.upstream);
    if whole.chars().count() <= LONGEST_SUMMARY {
        return whole;
    }
    let start: String = whole.chars().take(LONGEST_SUMMARY).collect();
    format!("{start}…")
}

/// A text without anything that Slack, Discord, Markdown or HTML give a meaning to.
fn quiet(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in exact_line(text).chars() {
        match c {
            '<' | '>' | '&' | '[' | ']' | '`' | '*' | '~' | '|' | '\\' | '@' | '#' => {
                out.push_str(&format!("⟦U+{:04X}⟧", u32::from(c)));
            }
            // What looks like a URL is made one that can be clicked.
            '/' if out.ends_with(":/") => out.push_str("⟦U+002F⟧"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{message, quiet, with_arguments};
    use serde_json::json;

    #[test]
    fn arguments_of_any_depth_stand_in_the_message_as_they_are() {
        let deep = format!("{}1{}", "[".repeat(3_000), "]".repeat(3_000));
        let data = json!({ "a": "\"arguments\":null", "arguments": null, "masked": [] });

        let text = with_arguments(&message(0, &data), &deep);

        assert!(text.contains(&format!(r#""a":"\"arguments\":null","arguments":{deep},"masked":[]"#)), "{text}");
    }

    /// A-20, A-25.
    #[test]
    fn a_chat_finds_neither_markup_nor_links_nor_names_to_ring() {
        for (text, expected) in [
            ("delete_file", "delete_file"),
            ("user:alice", "user:alice"),
            ("<!channel> *now*", "⟦U+003C⟧!channel⟦U+003E⟧ ⟦U+002A⟧now⟦U+002A⟧"),
            ("[ok](https://evil)", "⟦U+005B⟧ok⟦U+005D⟧(https:/⟦U+002F⟧evil)"),
            ("@everyone `x`", "⟦U+0040⟧everyone ⟦U+0060⟧x⟦U+0060⟧"),
            ("a\u{202e}b\nc", "a⟦U+202E⟧b⟦U+000A⟧c"),
        ] {
            assert_eq!(quiet(text), expected, "{text:?}");
        }
    }
}
