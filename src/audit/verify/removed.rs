//! Files that were removed by retention: what the records say of them, and whether that agrees with what others say.

use super::Fault;
use crate::audit::directory::Link;
use crate::audit::keeper::RETENTION;
use memchr::memmem::Finder;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What the `retention` records say.
#[derive(Default)]
pub(super) struct Removed {
    exactly: HashMap<String, Link>,
    /// The latest file that one names, and the files before it that were to stay: all others before it are gone.
    upto: Option<(String, Vec<String>)>,
}

#[derive(Deserialize)]
struct Retention {
    event: String,
    removed: Link,
    #[serde(default)]
    kept: Vec<String>,
}

impl Removed {
    /// Takes note of a record, if it is one of these.
    pub(super) fn look_at(&mut self, line: &[u8]) {
        static EVENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"event\":\"retention\""));
        // A quote inside a value is escaped, so that most lines need not be read as JSON.
        if EVENT.find(line).is_none() {
            return;
        }
        let Ok(Retention { event, removed, kept }) = serde_json::from_slice(line) else {
            return;
        };
        if event != RETENTION {
            return;
        }
        if self.upto.as_ref().is_none_or(|(upto, _)| *upto <= removed.file) {
            self.upto = Some((removed.file.clone(), kept));
        }
        self.exactly.insert(removed.file.clone(), removed);
    }

    /// How many files the records that are left name.
    pub(super) fn count(&self) -> usize {
        self.exactly.len()
    }

    /// A file that is not there, and what `by` says of its end.
    pub(super) fn account_for(&self, file: &str, seq: u64, said: Option<&Link>, by: &Fault) -> Result<(), Fault> {
        let before =
            self.upto.as_ref().is_some_and(|(upto, kept)| file < upto.as_str() && !kept.iter().any(|k| k == file));
        let disagrees = |what: String| Err(Fault { what, file: by.file.clone(), line: by.line });
        match self.exactly.get(file) {
            Some(end) if end.seq < seq => {
                disagrees(format!("names record {seq} of {file}, which had {} when it was removed", end.seq))
            }
            Some(end) if said.is_some_and(|said| said.seq == end.seq && said.hash != end.hash) => {
                disagrees(format!("names another end of {file} than the record of its removal"))
            }
            Some(_) => Ok(()),
            None if before => Ok(()),
            None => Err(Fault { what: by.what.clone(), file: by.file.clone(), line: by.line }),
        }
    }
}
