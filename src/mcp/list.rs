//! Answers to list requests, filtered entry by entry without touching the bytes of what stays.

use crate::jsonrpc::{Edits, Kind, Node, Span};

/// What a list method lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
}

impl Listing {
    /// The result's member that holds the entries, and the member of an entry that names it.
    const fn keys(self) -> (&'static str, &'static str) {
        match self {
            Listing::Tools => ("tools", "name"),
            Listing::Prompts => ("prompts", "name"),
            Listing::Resources => ("resources", "uri"),
            Listing::ResourceTemplates => ("resourceTemplates", "uriTemplate"),
        }
    }
}

/// `text` (an accepted response) without the entries that `keep` does not want, and with `cacheScope` made `private`:
/// a list filtered for one principal must not be kept for others (MCP 2026-07-28, caching).
///
/// `listing` is `None` for results that are not lists but carry the hint too.
/// Entries without a readable name are dropped: nobody could call them, and nobody can tell what they are.
pub fn filter(text: &[u8], result: Span, listing: Option<Listing>, keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut edits = Edits::of(text);
    for (key, value) in Node::of(text, result).members() {
        if key == "cacheScope" {
            edits.replace(value, b"\"private\"".to_vec());
        } else if let Some((entries, name)) = listing.map(Listing::keys)
            && key == entries
            && value.kind() == Kind::Array
        {
            edits.replace(value, kept(value, name, &keep));
        }
    }
    edits.apply()
}

fn kept(entries: Node<'_>, name: &str, keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let mut list = vec![b'['];
    for entry in entries.elements() {
        let is_kept = entry.get(name).and_then(Node::as_str).is_some_and(|name| keep(&name));
        if is_kept {
            if list.len() > 1 {
                list.push(b',');
            }
            list.extend_from_slice(entry.text().as_bytes());
        }
    }
    list.push(b']');
    list
}
