//! How far a sink has come, and where that is kept.

use crate::store::files;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cursor {
    /// All of this file and of those before it is sent, unless they are named below.
    #[serde(default)]
    pub(super) upto: Option<String>,
    /// Bytes of other files that are sent.
    #[serde(default)]
    pub(super) files: BTreeMap<String, u64>,
    /// Bytes of the checkpoints that are sent.
    #[serde(default)]
    pub(super) checkpoints: u64,
}

impl Cursor {
    /// `None` where none was kept yet.
    pub(super) fn load(path: &Path) -> io::Result<Option<Cursor>> {
        match std::fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
        }
    }

    pub(super) fn save(&self, path: &Path) -> io::Result<()> {
        files::replace(path, &serde_json::to_vec(self)?)
    }
}
