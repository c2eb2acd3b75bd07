//! One record on one line, for people: when, who, what, how it was decided, how it ended, how long it took.

use super::record::Record;
use crate::audit::escaped;

/// The record on one line, safe for a terminal.
pub(super) fn line(record: &Record) -> String {
    let when = record.text("at").unwrap_or("?");
    let event = record.text("event").unwrap_or("?");
    let parts = [short(when, 30), short(event, 20), who(record), what(record), how(record), short(id(record), 40)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("  ")
}

/// `user:alice via client-1`, or the address it came from.
pub(super) fn who(record: &Record) -> String {
    match (record.of_principal("subject"), record.of_principal("client")) {
        (Some(subject), Some(client)) if !client.is_empty() => {
            format!("{} via {}", short(subject, 40), short(client, 40))
        }
        (Some(subject), _) => short(subject, 40),
        (None, _) => record.text("peer").map_or_else(|| "-".to_owned(), |peer| format!("from {}", short(peer, 50))),
    }
}

/// `github/create_issue`; a method, where it is not the calling of a tool.
pub(super) fn what(record: &Record) -> String {
    let place = record.text("upstream").or_else(|| record.text("route"));
    let object = record.text("object").map(|object| short(object, 60));
    let thing = match (place, object) {
        (Some(place), Some(object)) => format!("{}/{object}", short(place, 40)),
        (Some(place), None) => short(place, 40),
        (None, Some(object)) => object,
        (None, None) => String::new(),
    };
    match record.text("method").filter(|method| *method != "tools/call") {
        Some(method) if thing.is_empty() => short(method, 40),
        Some(method) => format!("{} {thing}", short(method, 40)),
        None => thing,
    }
}

fn how(record: &Record) -> String {
    let mut parts = Vec::new();
    if let Some(decision) = record.text("decision") {
        let rules: Vec<String> = record.list("rules").iter().map(|rule| format!("`{}`", short(rule, 40))).collect();
        let by = if rules.is_empty() { String::new() } else { format!(" by {}", rules.join(", ")) };
        parts.push(short(&format!("{}{by}", escaped(decision)), 120));
    }
    parts.extend(record.text("outcome").map(|outcome| short(outcome, 30)));
    // Where it was refused, the code says it better.
    parts.extend(record.text("code").map(|code| short(code, 40)));
    parts.extend(record.get("status").as_u64().filter(|status| *status != 0).map(|status| status.to_string()));
    parts.extend(record.get("duration_us").as_u64().map(duration));
    parts.extend(record.text("via").map(|via| format!("via {}", short(via, 40))));
    parts.extend(record.text("detail").map(|detail| format!("({})", short(detail, 80))));
    parts.join(" ")
}

/// What `show` takes.
pub(super) fn id(record: &Record) -> &str {
    record.text("request").or_else(|| record.text("approval")).unwrap_or_default()
}

/// In the unit that people would say it in.
pub(super) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        _ => format!("{}.{:02} s", us / 1_000_000, us % 1_000_000 / 10_000),
    }
}

/// Escaped, and not longer than a place on the screen: a line is to be read at a glance.
pub(super) fn short(text: &str, max: usize) -> String {
    let text = escaped(text);
    if text.len() <= max {
        return text;
    }
    let kept = text.get(..max.saturating_sub(3)).unwrap_or_default();
    format!("{kept}...")
}
