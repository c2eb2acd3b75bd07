//! `portcullis verify`: whether what is claimed of this very configuration holds, tried and not asserted.

mod sandbox;
mod ssh;

use super::context::usage;
use clap::Subcommand;
use portcullis_local::verify::Finding;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// What is verified.
#[derive(Subcommand)]
pub(super) enum VerifyCommand {
    /// Attack the commands of a sandbox from inside, and do the same outside as a control.
    Sandbox(sandbox::Sandbox),
    /// Attack the host of an SSH upstream with its credential: nothing but the actions of its script may run.
    Ssh(ssh::Ssh),
}

pub(super) fn run(command: &VerifyCommand, file: &Path) -> anyhow::Result<ExitCode> {
    match command {
        VerifyCommand::Sandbox(sandbox) => sandbox::run(sandbox, file),
        VerifyCommand::Ssh(ssh) => ssh::run(ssh, file),
    }
}

/// There is no upstream of this kind, or none of this name.
fn unknown_upstream(kind: &str, name: Option<&str>) -> anyhow::Error {
    usage(match name {
        Some(name) => format!("the configuration has no {kind} `{name}`"),
        None => format!("the configuration has no {kind}"),
    })
}

/// As soon as it is known: all of them take a while.
fn write(finding: &Finding) {
    println!("{finding}");
    drop(std::io::stdout().flush());
}
