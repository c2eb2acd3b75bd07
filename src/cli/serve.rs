//! `portcullis serve`: runs the gateway until it is told to stop.

use super::log;
use crate::clock::Clock;
use crate::server;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

pub(super) fn run(file: &Path) -> anyhow::Result<ExitCode> {
    log::start();
    close_to_others();
    use_small_pages();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        server::run(file, Clock::System, stop, announce).await.map_err(|error| match error {
            server::Error::Config(problems) => anyhow::Error::new(problems),
            error => anyhow::Error::new(error),
        })
    });
    // Tasks that still run belong to connections that were cut.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

/// No core file of this process, no debugger of the same user, no reading of its memory through `/proc`: it holds keys.
pub(super) fn close_to_others() {
    #[cfg(target_os = "linux")]
    if let Err(why) = nix::sys::prctl::set_dumpable(false) {
        tracing::warn!(error = %why, "other processes of this user may read the memory of this one");
    }
}

/// Most of an idle stream's memory is buffers that nothing has been written to yet. With huge pages, which the allocator
/// asks for, all of it would be resident: more than twice as much a stream (docs/performance.md).
fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(why) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(error = %why, "huge pages stay on");
    }
}

/// The one line on standard output, for scripts that wait for it; and on standard error, for the one who started a gateway
/// that has nobody yet, the link that makes them its first admin. Not in the log: logs are kept, and read by others.
fn announce(started: server::Started) {
    let server::Started { addresses, approvals_url, setup_link } = started;
    if let Some(link) = setup_link {
        let link = link.expose();
        let _ = writeln!(
            std::io::stderr(),
            "\nThere is nobody yet. Within 15 minutes, make the first admin here (the link works once):\n\n    {link}\n"
        );
    }
    if let Some(url) = approvals_url {
        let _ = writeln!(std::io::stderr(), "approvals page: {url}");
    }
    let mut line = format!("ready agent=http://{}", addresses.agent);
    if let Some(metrics) = addresses.metrics {
        line.push_str(&format!(" metrics=http://{metrics}"));
    }
    if let Some(admin) = addresses.admin {
        line.push_str(&format!(" admin=http://{admin}"));
    }
    let mut out = std::io::stdout();
    // A closed standard output is no reason not to serve.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
