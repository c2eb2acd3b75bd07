//! Running a command so that it cannot get out: read the host, reach the network, see or signal what is not its own,
//! fill memory or disk, or outlive its time.
//!
//! [`Confinement::establish`] tries the whole of it once, and says what stands in the way; without it there is no
//! upstream. Each command then runs in a confinement of its own, of which nothing is left when it ends.

use crate::settings::Settings;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Where a principal's folder is, as commands see it.
pub const WORKSPACE: &str = "/workspace";

/// Our own program, as commands see it: the inner stage, and the probes of `verify`.
pub const INNER: &str = "/run/portcullis/portcullis";

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Command {
    /// A line for the shell.
    pub line: String,
    /// Where, below the principal's folder; empty for the folder itself.
    pub cwd: String,
    /// Variables beside those of the settings, which these replace.
    pub environment: Vec<(String, String)>,
    /// What it reads from stdin, before the end of it.
    pub stdin: Vec<u8>,
    /// After this long it is ended.
    pub timeout: Duration,
}

/// How far a command has come; the newest is enough.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Bytes that it has written to stdout and stderr.
    pub n_written: u64,
    /// The last line it wrote, whole or not, cut to 200 characters.
    pub last_line: String,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why.
    pub end: End,
    /// What it wrote to stdout.
    pub stdout: Captured,
    /// What it wrote to stderr.
    pub stderr: Captured,
    /// How long it ran.
    pub elapsed: Duration,
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal, which did not come from us.
    Signalled(i32),
    /// Its time was over.
    TimedOut,
    /// Whoever asked took it back.
    Cancelled,
    /// The kernel ended it, or a part of it, for its memory.
    OutOfMemory,
    /// Its principal's folder was full, or the file system nearly so.
    OverQuota,
}

/// What was kept of an output: its beginning and its end.
#[derive(Clone, Debug, Default)]
pub struct Captured {
    /// The beginning.
    pub head: Vec<u8>,
    /// The end, where something between was left out.
    pub tail: Vec<u8>,
    /// All that was written, in bytes.
    pub total: u64,
}

/// Why nothing can be run here. `Display` is for the person who runs the gateway: what stands in the way, and what to do.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct CannotConfine(pub String);

/// A command could not be run.
#[derive(Debug, Error)]
pub enum Error {
    /// A part of its confinement could not be set up; nothing ran.
    #[error("the confinement could not be set up: {0}")]
    Confine(String),
    /// Too many others were running for too long; nothing ran.
    #[error("too many commands are running")]
    Busy,
}

/// The confinement that was tried and found to hold.
pub struct Confinement {
    settings: Settings,
}

// === impl Confinement ===

impl Confinement {
    /// Sets everything up once, with a command that looks at its own confinement from inside.
    ///
    /// # Errors
    /// [`CannotConfine`]: a program is missing, a setting of this host forbids it, or what was looked at does not hold.
    pub async fn establish(settings: &Settings) -> Result<Confinement, CannotConfine> {
        let _ = Confinement { settings: settings.clone() }.settings;
        Err(CannotConfine("not built yet".to_owned()))
    }

    /// Runs `command` in the folder `workspace`, tells how it comes along, and ends it when `cancelled` says so. When
    /// this returns, or is dropped, nothing of the command is left: no process, no cgroup, no mount.
    ///
    /// # Errors
    /// [`Error`]: nothing ran.
    pub async fn run(
        &self,
        command: &Command,
        workspace: BorrowedFd<'_>,
        progress: &watch::Sender<Progress>,
        cancelled: &CancellationToken,
    ) -> Result<Outcome, Error> {
        let _ = (command, workspace, progress, cancelled, &self.settings);
        Err(Error::Busy)
    }
}
