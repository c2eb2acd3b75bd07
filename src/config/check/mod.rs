//! Whether what the file says makes sense: names that exist, addresses that parse, doors that are not left open.
//!
//! Looks at the file alone: nothing is opened, resolved or connected to. Form (keys, types, ranges) was `form`'s;
//! what a policy decides is `policy`'s; whether files and variables are there shows when the snapshot is built.

mod approvals;
mod audit;
mod clients;
mod issuers;
mod limits;
mod listeners;
mod names;
mod oauth;
mod otlp;
mod sandbox;
mod ssh;
mod traces;
mod upstreams;

pub use sandbox::destination;

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

/// Everything in `config` that makes no sense, and (as warnings) what looks forgotten or opens more than usual.
pub fn check(config: &Config, known: Known<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    listeners::check(config, &mut problems);
    names::check(config, known, &mut problems);
    clients::check(config, &mut problems);
    issuers::check(config, &mut problems);
    upstreams::check(config, &mut problems);
    approvals::check(config, known, &mut problems);
    limits::check(config, &mut problems);
    oauth::check(config, &mut problems);
    traces::check(config, &mut problems);
    audit::check(config, &mut problems);
    problems
}
