//! The actions file, as written (YAML), with the line of everything that may be wrong.

use super::Fault;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::options::MergeKeyPolicy;
use serde_saphyr::{DuplicateKeyPolicy, Spanned};
use std::collections::BTreeMap;

/// The largest file, in bytes.
const FILE_MAX: usize = 256 * 1024;

/// All of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) check: Spanned<String>,
    pub(super) actions: Spanned<Vec<Spanned<Action>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Action {
    pub(super) name: Spanned<String>,
    pub(super) title: Option<Spanned<String>>,
    pub(super) description: Spanned<String>,
    pub(super) annotations: Option<Spanned<Hints>>,
    #[serde(default)]
    pub(super) arguments: BTreeMap<String, Spanned<Argument>>,
    pub(super) run: Spanned<String>,
    pub(super) timeout: Option<Spanned<String>>,
    pub(super) output: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) finishes: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Argument {
    pub(super) one_of: Option<Vec<String>>,
    pub(super) integer: Option<Bounds>,
    pub(super) matches: Option<String>,
    pub(super) default: Option<Value>,
    #[serde(default)]
    pub(super) optional: bool,
    pub(super) description: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bounds {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// What a client is told of an action's effects (MCP 2025-11-25, `ToolAnnotations`). They bind nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Hints {
    /// It changes nothing.
    pub read_only_hint: Option<bool>,
    /// It may destroy something.
    pub destructive_hint: Option<bool>,
    /// Twice is the same as once.
    pub idempotent_hint: Option<bool>,
    /// It reaches further than the host.
    pub open_world_hint: Option<bool>,
}

/// Reads the text.
///
/// # Errors
/// It is no YAML, or says what no actions file says, with a snippet of it.
pub(super) fn read(text: &str) -> Result<File, Fault> {
    if text.len() > FILE_MAX {
        return Err(Fault { message: format!("it has more than {FILE_MAX} bytes"), line: None });
    }
    let mut options = serde_saphyr::Options::default();
    // What YAML 1.1 and 1.2 read differently (`no`, `0755`) is put in quotes or is an error.
    options.strict_booleans = true;
    options.no_schema = true;
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.merge_keys = MergeKeyPolicy::Error;
    if let Some(budget) = options.budget.as_mut() {
        budget.max_anchors = 0;
        budget.max_aliases = 0;
    }
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Fault { line: error.location().map(|at| at.line()), message: error.to_string() })
}
