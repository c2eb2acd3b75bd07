//! Whether what the file says makes sense: names that exist, addresses that parse, doors that are not left open.
//!
//! Form (keys, types, ranges) is `form`'s; what a policy means is `policy`'s.

use super::Config;
use super::problem::Problem;

/// Names that stand outside the file and may be used in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// Users of `data_dir/users.yaml`.
    pub users: &'a [&'a str],
    /// Groups they are in.
    pub groups: &'a [&'a str],
}

/// Everything in `config` that makes no sense, and (as warnings) what looks forgotten.
pub fn check(_config: &Config, _known: Known<'_>) -> Vec<Problem> {
    Vec::new()
}
