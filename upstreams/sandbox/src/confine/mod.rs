//! Running a command so that it cannot get out: read the host, reach the network, see or signal what is not its own,
//! fill memory or disk, or outlive its time.
//!
//! [`Confinement::establish`] tries the whole of it once, and says what stands in the way; without it there is no
//! upstream. Each command then runs in a confinement of its own, of which nothing is left when it ends.

mod bubblewrap;
mod cgroup;
mod environment;
mod gvisor;
mod inner;
mod landlock;
mod process;
mod protocol;
mod quota;
mod root;
mod running;
mod seccomp;
mod writes;

pub use cgroup::{PREFIX as LEAF, sweep};
pub use inner::inner;
pub use portcullis_local::output::{Captured, Progress};

use crate::network::Places;
use crate::settings::{Backend, Network, Settings};
use bubblewrap::Bubblewrap;
use cgroup::Cgroups;
use gvisor::Gvisor;
use portcullis_local::descriptors;
use quota::Folders;
use running::{Done, Job};
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Where a principal's folder is, as commands see it.
pub const WORKSPACE: &str = "/workspace";

/// Our own program, as commands see it: it has the probes of `verify`.
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
    /// Its principal's folder was full.
    OverQuota,
    /// The file system was nearly full, whoever filled it, and the command wrote to it.
    DiskFull,
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
    /// What was asked for cannot be run: there is no such folder, or the line is too long. Nothing ran.
    #[error("the command could not be started: {0}")]
    Refused(String),
    /// Too many others were running for too long; nothing ran.
    #[error("too many commands are running")]
    Busy,
}

/// The confinement that was tried and found to hold.
pub struct Confinement {
    shared: Arc<Shared>,
    turns: Arc<Semaphore>,
    stopping: CancellationToken,
}

/// How long a command waits for its turn.
const TURN: Duration = Duration::from_secs(30);

/// What all commands have in common.
struct Shared {
    settings: Settings,
    backend: Built,
    cgroups: Cgroups,
    folders: Arc<Folders>,
    /// What may be reached, if anything.
    places: Option<Arc<Places>>,
}

/// A backend that was found. It says how the confined program is started, and no more: everything before and after is the
/// same for all of them.
enum Built {
    Bubblewrap(Bubblewrap),
    Gvisor(Gvisor),
}

/// A program that is to be started, with nothing but this.
struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    passed: Vec<OwnedFd>,
}

// === impl Confinement ===

impl Confinement {
    /// Sets everything up once, with a command that looks at its own confinement from inside.
    ///
    /// # Errors
    /// [`CannotConfine`]: a program is missing, a setting of this host forbids it, or what was looked at does not hold.
    pub async fn establish(settings: &Settings) -> Result<Confinement, CannotConfine> {
        let why = |why: String| CannotConfine(format!("commands cannot be confined here: {why}"));
        if rustix::process::geteuid().is_root() {
            return Err(why("this process is root, and what it confines would be root's, too".to_owned()));
        }
        let cgroups = Cgroups::open(settings).map_err(why)?;
        let backend = Built::find(settings).await.map_err(why)?;
        let folders = Arc::new(Folders::new(settings.quota, settings.reserve));
        let places = match &settings.network {
            Network::None => None,
            Network::Allow(listed) => Some(Arc::new(Places::new(listed).map_err(why)?)),
        };
        let shared = Shared { settings: settings.clone(), backend, cgroups, folders, places };
        let job = Job {
            command: Command {
                line: String::new(),
                cwd: String::new(),
                environment: Vec::new(),
                stdin: Vec::new(),
                timeout: TURN,
            },
            workspace: None,
            progress: watch::Sender::default(),
            cancelled: CancellationToken::new(),
            abandoned: CancellationToken::new(),
        };
        match running::run(&shared, job).await {
            Ok(Done::Looked(landlock)) => tracing::info!(landlock, "commands are confined"),
            Ok(Done::Ran(_)) => return Err(why("nothing was looked at".to_owned())),
            Err(Error::Confine(what)) => return Err(why(what)),
            Err(other) => return Err(why(other.to_string())),
        }
        let turns = Arc::new(Semaphore::new(settings.at_once as usize));
        Ok(Confinement { shared: Arc::new(shared), turns, stopping: CancellationToken::new() })
    }

    /// Runs `command` in the folder `workspace`, tells how it comes along, and ends it when `cancelled` says so. When
    /// this returns, nothing of the command is left: no process, no cgroup, no mount. If it is dropped before, the
    /// command is killed, and its cgroup goes a moment later.
    ///
    /// To be called on the thread that lives as long as the process: commands end with the thread that started them.
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
        let turn = tokio::select! {
            biased;
            turn = timeout(TURN, Arc::clone(&self.turns).acquire_owned()) => turn.ok().and_then(Result::ok),
            () = cancelled.cancelled() => return Ok(Outcome::nothing()),
        };
        let turn = turn.ok_or(Error::Busy)?;
        let abandoned = self.stopping.child_token();
        let _guard = abandoned.clone().drop_guard();
        let workspace = workspace.try_clone_to_owned().map_err(|why| Error::Confine(why.to_string()))?;
        let job = Job {
            command: command.clone(),
            workspace: Some(workspace),
            progress: progress.clone(),
            cancelled: cancelled.clone(),
            abandoned,
        };
        let shared = Arc::clone(&self.shared);
        // A task of its own: what is dropped here must still be cleaned up. It ends with the command.
        let task = tokio::spawn(async move {
            let done = running::run(&shared, job).await;
            drop(turn);
            done
        });
        match task.await {
            Ok(Ok(Done::Ran(outcome))) => Ok(outcome),
            Ok(Ok(Done::Looked(_))) => Err(Error::Confine("nothing was run".to_owned())),
            Ok(Err(why)) => Err(why),
            Err(why) => Err(Error::Confine(why.to_string())),
        }
    }

    /// Ends all commands, and returns when they are gone, or after some seconds. Nothing is run any more.
    pub async fn stop(&self) {
        self.stopping.cancel();
        let all = self.turns.acquire_many(self.shared.settings.at_once);
        let _ = timeout(Duration::from_secs(5), all).await;
        self.turns.close();
    }
}

// === impl Outcome ===

impl Outcome {
    /// Of a command that was taken back before it began.
    fn nothing() -> Outcome {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        Outcome { end: End::Cancelled, stdout, stderr, elapsed: Duration::ZERO }
    }
}

// === impl Built ===

impl Built {
    async fn find(settings: &Settings) -> Result<Built, String> {
        match &settings.backend {
            Backend::Bubblewrap { program } => {
                Bubblewrap::find(program.as_deref(), settings).await.map(Built::Bubblewrap)
            }
            Backend::Gvisor { program } => Gvisor::find(program.as_deref(), settings).await.map(Built::Gvisor),
        }
    }

    /// How the inner stage is started in `workspace`, with a socket to talk to us, and another one where there is a proxy.
    fn launch(&self, workspace: Option<OwnedFd>, sockets: Vec<OwnedFd>) -> io::Result<Launch> {
        match self {
            Built::Bubblewrap(bubblewrap) => bubblewrap.launch(workspace, sockets),
            Built::Gvisor(gvisor) => match <[OwnedFd; 1]>::try_from(sockets) {
                Ok([socket]) => gvisor.launch(workspace, socket),
                Err(_) => Err(io::Error::other("gVisor has no way to a proxy")),
            },
        }
    }

    /// Whether what is inside talks to this very kernel.
    fn is_this_kernel(&self) -> bool {
        matches!(self, Built::Bubblewrap(_))
    }
}

// === impl Launch ===

impl Launch {
    fn new(program: PathBuf) -> Launch {
        Launch { program, arguments: Vec::new(), passed: Vec::new() }
    }

    /// Passes `fd` on, and says which number it will have.
    fn pass(&mut self, fd: OwnedFd) -> RawFd {
        self.passed.push(fd);
        descriptors::FIRST + RawFd::try_from(self.passed.len() - 1).expect("a handful")
    }
}
