//! Secrets that must not be found where they do not belong, in whatever spelling.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use std::path::Path;

/// A value that must not be found anywhere, and what it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Canary {
    /// What it is.
    pub(crate) what: String,
    /// Itself.
    pub(crate) value: String,
}

/// As much of a line as is shown: a store has no lines.
const SHOWN: usize = 300;

impl Canary {
    /// A value, and what it is.
    pub(crate) fn new(what: impl Into<String>, value: impl Into<String>) -> Canary {
        Canary { what: what.into(), value: value.into() }
    }

    /// As it is, as a form has it, in hex, and in Base64 whatever stands before it.
    fn spellings(&self) -> Vec<String> {
        let bytes = self.value.as_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let form = url::form_urlencoded::byte_serialize(bytes).collect();
        let mut spellings = vec![self.value.clone(), form, hex.to_uppercase(), hex];
        for skip in 0..3 {
            // The whole groups of three bytes look the same wherever the value stands in what was encoded.
            let rest = &bytes[skip..];
            let whole = &rest[..rest.len() - rest.len() % 3];
            spellings.extend([STANDARD_NO_PAD.encode(whole), URL_SAFE_NO_PAD.encode(whole)]);
        }
        spellings
    }

    /// Fails when it stands in this text.
    #[track_caller]
    pub(crate) fn assert_absent(&self, place: &str, text: &str) {
        for spelling in self.spellings() {
            if let Some(at) = text.find(&spelling) {
                let line = text[..at].rfind('\n').map_or(0, |at| at + 1);
                let shown: String = text[line..].chars().take_while(|c| *c != '\n').take(SHOWN).collect();
                panic!("{} stands in {place} as {spelling}: {shown}", self.what);
            }
        }
    }
}

/// Every file under a folder, with its name.
pub(crate) fn texts(folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            texts(&path, into);
        } else if path.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
            into.push((path.display().to_string(), text));
        }
    }
}
