//! `portcullis upstream …`: what the gateway starts itself, with everything they need in descriptors.

use super::{log, serve};
use clap::Subcommand;
use portcullis_local::Handover;
use std::io::{BufReader, Write as _};
use std::process::ExitCode;

/// A process that the gateway starts.
#[derive(Subcommand)]
pub(super) enum UpstreamCommand {
    /// The sandbox: a shell and files for agents.
    Sandbox,
    /// A few actions on one host, by SSH.
    Ssh,
    /// Waits for the end of the gateway, and clears up after it.
    Keep,
}

/// The configuration or the host is such that starting it again would not help (`EX_CONFIG` of sysexits.h).
const CANNOT: u8 = 78;

pub(super) fn run(command: &UpstreamCommand) -> ExitCode {
    match command {
        UpstreamCommand::Sandbox => serve_with("sandbox", portcullis_sandbox::run),
        UpstreamCommand::Ssh => serve_with("ssh", portcullis_ssh::run),
        UpstreamCommand::Keep => {
            crate::upstream::local::keep(BufReader::new(std::io::stdin()));
            ExitCode::SUCCESS
        }
    }
}

/// Takes over what was handed over, and serves with it.
fn serve_with<E: std::fmt::Display>(kind: &str, server: impl AsyncFnOnce(Handover) -> Result<(), E>) -> ExitCode {
    // First of all: the numbers of what was handed over must be nobody else's.
    let handover = Handover::take();
    log::start();
    serve::close_to_others();
    let Ok(handover) = handover else {
        eprintln!("error: the gateway starts this; write an upstream of kind `{kind}` in gateway.yaml");
        return ExitCode::from(2);
    };
    let tell = handover.ready.try_clone();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let Err(error) = runtime.block_on(server(handover)) else {
        return ExitCode::SUCCESS;
    };
    // The gateway reads why where it waits for `ready`, and once more when this has ended.
    if let Ok(tell) = tell {
        let line = error.to_string().replace('\n', " ");
        let _ = writeln!(std::fs::File::from(tell), "{line}");
    }
    ExitCode::from(CANNOT)
}
