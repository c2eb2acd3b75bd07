//! `portcullis check`: everything that is wrong with a configuration, before it is put in force.

use crate::snapshot;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(file: &Path) -> anyhow::Result<ExitCode> {
    let (loaded, snapshot) = snapshot::compile_file(file)?;
    let found = loaded.locate(snapshot.warnings.into_iter().chain(snapshot.dead_ends).collect());
    if found.has_errors() {
        return Err(found.into());
    }
    if !found.is_empty() {
        eprintln!("{found}");
    }
    println!(
        "{}: good: {} upstreams, {} rules, {} policy tests passed (configuration {})",
        file.display(),
        snapshot.config.upstreams.len(),
        snapshot.config.policy.rules.len(),
        snapshot.config.policy.tests.len(),
        snapshot.hash,
    );
    Ok(ExitCode::SUCCESS)
}
