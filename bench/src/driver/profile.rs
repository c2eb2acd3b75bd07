//! Where instructions go, by the functions that took them: a target that was missed is explained by this.

use std::collections::BTreeMap;

/// Kinds of work, told by words in the names of functions; the first that fits.
const KINDS: [(&str, &[&str]); 12] = [
    ("SHA-256", &["sha256_block"]),
    ("copies", &["memcpy", "memmove", "memset"]),
    ("memory", &["mi_"]),
    ("audit", &["portcullis::audit"]),
    ("JSON", &["portcullis::jsonrpc"]),
    ("MCP, policy, tokens", &["portcullis::mcp", "portcullis::policy", "portcullis::identity"]),
    ("our data path", &["portcullis::"]),
    ("headers", &["http::header::", "httparse", "pingora_http"]),
    ("pingora", &["pingora"]),
    ("tokio", &["tokio"]),
    ("clock", &["clock_gettime", "Timespec", "Instant"]),
    (OTHER, &[]),
];
const OTHER: &str = "other";

/// Instructions by kind of work.
pub(crate) type Profile = BTreeMap<&'static str, f64>;

/// The kinds in the order in which they are shown.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(kind, _)| *kind)
}

/// Reads a dump of callgrind; `scale` is applied to what SHA-256 took in its slow form.
pub(crate) fn of(dump: &str, scale: f64) -> Profile {
    let mut names = BTreeMap::new();
    let mut profile = Profile::new();
    let (mut function, mut is_call) = ("", false);
    for line in dump.lines() {
        // A name is given once, `fn=(12) name` or `cfn=(12) name`, and after that by its number.
        if let Some(name) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (number, text) = name.split_once(' ').unwrap_or((name, ""));
            if !text.is_empty() {
                names.insert(number, text);
            }
            if line.starts_with("fn=") {
                function = names.get(number).copied().unwrap_or_default();
            }
        } else if line.starts_with("calls=") {
            // The line after it is what the callee took.
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok());
            if let Some(cost) = cost.filter(|_| !is_call) {
                let scale = if function.contains("sha256_block_data_order_avx") { scale } else { 1.0 };
                *profile.entry(kind(function)).or_default() += cost * scale;
            }
            is_call = false;
        }
    }
    profile
}

fn kind(function: &str) -> &'static str {
    let fits = |words: &&[&str]| words.iter().any(|word| function.contains(word));
    KINDS.iter().find(|(_, words)| fits(words)).map_or(OTHER, |(kind, _)| kind)
}
