//! What is handed over at a start, seen from both ends (DESIGN §8): 3 the listener, 4 the secret of this start, 5 the
//! settings as JSON, 6 where the child says that it is ready, 7 a folder, where the kind has one.

use crate::descriptors;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use std::ffi::OsString;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// The header in which the gateway shows the secret of this start.
pub const SECRET_HEADER: &str = "portcullis-upstream-secret";
/// What a child writes once it answers.
pub const READY: &[u8] = b"ready\n";
/// Bytes of a start's secret.
pub const SECRET_LEN: usize = 32;
/// What settings may take.
pub const SETTINGS_MAX: usize = 1024 * 1024;

/// How a child is to be started.
pub struct Start {
    /// `upstream <kind>` and what else belongs on the command line; nothing secret.
    pub arguments: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(String, OsString)>,
    /// The listening socket.
    pub listener: OwnedFd,
    /// Read by the child as JSON.
    pub settings: Vec<u8>,
    /// The folder it works in.
    pub folder: Option<OwnedFd>,
    /// User and group it runs as; `None` for our own.
    pub user: Option<(u32, u32)>,
    /// The `cgroup.procs` files of the cgroups it begins in.
    pub entered: Vec<OwnedFd>,
}

/// A child that is about to be started.
pub struct Prepared {
    /// To be spawned once. Its stderr is ours.
    pub command: Command,
    /// What requests to it must show.
    pub secret: [u8; SECRET_LEN],
    /// The child writes [`READY`] here; it takes the end of this pipe for the end of the gateway.
    pub ready: OwnedFd,
}

/// What a child was handed over.
pub struct Handover {
    /// Where to answer.
    pub listener: UnixListener,
    /// What requests must show.
    pub secret: [u8; SECRET_LEN],
    /// JSON.
    pub settings: Vec<u8>,
    /// Where to say that it is ready.
    pub ready: OwnedFd,
    /// The folder it works in.
    pub folder: Option<OwnedFd>,
}

// === impl Start ===

impl Start {
    /// Puts the hand-over together.
    ///
    /// # Errors
    /// No pipe can be made, or the settings are larger than [`SETTINGS_MAX`].
    pub fn prepare(self, secret: [u8; SECRET_LEN]) -> io::Result<Prepared> {
        if self.settings.len() > SETTINGS_MAX {
            return Err(io::Error::other(format!("settings of more than {SETTINGS_MAX} bytes")));
        }
        let (ready, says_ready) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut passed = vec![self.listener, filled(&secret)?, filled(&self.settings)?, says_ready];
        // The very file that runs here, even if another stands at its path by now.
        #[expect(clippy::disallowed_methods, reason = "this is where local upstreams are started")]
        let mut command = Command::new("/proc/self/exe");
        command.arg0("portcullis").args(self.arguments).env_clear().envs(self.environment).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        match (self.user, &self.folder) {
            (Some(user), Some(folder)) => descriptors::apart(&mut command, user, folder.as_fd()),
            (Some((uid, gid)), None) => drop(command.uid(uid).gid(gid)),
            (None, _) => {}
        }
        passed.extend(self.folder);
        descriptors::pass(&mut command, passed, self.entered);
        Ok(Prepared { command, secret, ready })
    }
}

/// A file in memory that holds `bytes`. Not a pipe: one takes no more than two pages where its user has many already
/// (`fs.pipe-user-pages-soft`), and then waits for a reader.
///
/// # Errors
/// There are no descriptors left, or no memory.
pub fn filled(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create(c"portcullis", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

// === impl Handover ===

impl Handover {
    /// Takes over what this process was started with. Once, before anything else is opened.
    ///
    /// # Errors
    /// A part is missing: nobody but the gateway starts this.
    pub fn take() -> io::Result<Handover> {
        let mut taken = descriptors::take_all(5).into_iter();
        let mut next = || taken.next().unwrap_or_else(|| Err(io::Error::other("missing")));
        let (listener, secret, settings, ready) = (next()?, next()?, next()?, next()?);
        let mut read = [0; SECRET_LEN];
        std::fs::File::from(secret).read_exact(&mut read)?;
        let mut json = Vec::new();
        std::fs::File::from(settings).take(SETTINGS_MAX as u64 + 1).read_to_end(&mut json)?;
        Ok(Handover { listener: listener.into(), secret: read, settings: json, ready, folder: next().ok() })
    }
}
