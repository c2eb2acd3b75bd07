//! One start of a local upstream: its user, its folder, its cgroup, and the hand-over (DESIGN §8).

use super::cgroup::{self, Stem};
use super::user::{self, Account};
use crate::config::SandboxCgroup;
use crate::upstream::Fingerprint;
use nix::unistd::{Gid, Uid, getegid, geteuid};
use portcullis_local::handover::{SECRET_LEN, Start};
use portcullis_sandbox::Settings;
use portcullis_sandbox::settings::Cgroup;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::{Child, Command};

/// What a local upstream gets of our environment, where it is set.
const ENVIRONMENT: [&str; 4] = ["RUST_LOG", "RUST_BACKTRACE", "NO_COLOR", "TZ"];
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// What a local upstream is started with, each time anew.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The configured user.
    pub(super) user: Option<String>,
    /// Where its cgroups are, where it needs any.
    pub(super) cgroup: Option<SandboxCgroup>,
    /// Memory of all that it starts, in bytes; `None` for half of this host's.
    pub(super) memory_total: Option<u64>,
    /// The folder it works in, where it has one.
    pub(super) folder: Option<Folder>,
}

/// Which of our upstreams it is, with its settings.
pub(super) enum Kind {
    Sandbox(Box<Settings>),
    Ssh(Box<portcullis_ssh::Settings>),
}

/// Where its files are.
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

/// What was started.
pub(super) struct Started {
    pub(super) child: Child,
    /// It says here that it is ready, or why it cannot be.
    pub(super) ready: OwnedFd,
    /// What is to be swept when it has ended.
    pub(super) left: Left,
}

/// What a process leaves on the host.
#[derive(Clone, Default)]
pub(super) struct Left {
    pub(super) cgroups: Vec<PathBuf>,
}

// === impl Plan ===

impl Plan {
    /// One that works in no folder and starts no processes itself.
    pub(super) fn of(name: &str, kind: Kind) -> Plan {
        Plan { name: name.to_owned(), kind, user: None, cgroup: None, memory_total: None, folder: None }
    }

    /// Starts it, to answer on `listener` whoever shows `secret`.
    ///
    /// # Errors
    /// For the person who runs the gateway: what stands in the way, and what to do.
    pub(super) fn start(&self, listener: &UnixListener, secret: [u8; SECRET_LEN]) -> Result<Started, String> {
        let account = user::account(&self.name, self.user.as_deref())?;
        let folder = self.folder.as_ref().map(|folder| folder.open(account)).transpose()?;
        let wanted = self.cgroup.as_ref().unwrap_or(&SandboxCgroup::None);
        let Stem { settings: cgroups, folders, entered } =
            cgroup::make(wanted, &self.name, account, self.memory_total)?;
        let left = Left { cgroups: folders };
        match self.spawn(listener, secret, account, folder, cgroups, entered) {
            Ok((child, ready)) => Ok(Started { child, ready, left }),
            Err(why) => {
                left.sweep();
                Err(why)
            }
        }
    }

    fn spawn(
        &self,
        listener: &UnixListener,
        secret: [u8; SECRET_LEN],
        account: Option<Account>,
        folder: Option<OwnedFd>,
        cgroup: Cgroup,
        entered: Vec<OwnedFd>,
    ) -> Result<(Child, OwnedFd), String> {
        let (kind, settings) = match &self.kind {
            Kind::Sandbox(settings) => ("sandbox", serde_json::to_vec(&Settings { cgroup, ..(**settings).clone() })),
            Kind::Ssh(settings) => ("ssh", serde_json::to_vec(settings)),
        };
        let start = Start {
            arguments: vec!["upstream".into(), kind.into()],
            environment: environment(),
            listener: listener.try_clone().map_err(|why| format!("cannot share its socket: {why}"))?.into(),
            settings: settings.expect("settings are always JSON"),
            folder,
            user: account.map(|account| (account.uid, account.gid)),
            entered,
        };
        let prepared = start.prepare(secret).map_err(|why| format!("cannot hand over its settings: {why}"))?;
        let child = Command::from(prepared.command).kill_on_drop(true).spawn();
        Ok((child.map_err(|why| format!("its process cannot be started: {why}"))?, prepared.ready))
    }
}

fn environment() -> Vec<(String, OsString)> {
    let passed = ENVIRONMENT.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var_os(name)?)));
    passed.chain([("PATH".to_owned(), PATH.into())]).collect()
}

// === impl Kind ===

impl Kind {
    /// The longest time that one call may take.
    pub(super) fn longest(&self) -> Duration {
        match self {
            Kind::Sandbox(settings) => settings.longest,
            Kind::Ssh(settings) => settings.longest(),
        }
    }

    /// SHA-256 over all settings, secrets included.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let settings = match self {
            Kind::Sandbox(settings) => serde_json::to_vec(settings),
            Kind::Ssh(settings) => serde_json::to_vec(settings),
        };
        let mut fingerprint = Fingerprint::new("local");
        fingerprint.add(&settings.expect("settings are always JSON"));
        fingerprint.finish()
    }
}

// === impl Folder ===

impl Folder {
    /// Opens it, made and given to `account` where that is needed.
    fn open(&self, account: Option<Account>) -> Result<OwnedFd, String> {
        let path = self.path.as_path();
        let fault = |why: std::io::Error| format!("cannot use the workspace {}: {why}", path.display());
        let is_new = match DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Ok(()) => fs::read_dir(path).map_err(fault)?.next().is_none(),
            Err(why) => return Err(fault(why)),
        };
        let opened = File::open(path).map_err(fault)?;
        let about = opened.metadata().map_err(fault)?;
        if !about.is_dir() {
            return Err(fault(std::io::Error::other("not a folder")));
        }
        let (uid, gid) = account.map_or((geteuid(), getegid()), |it| (Uid::from_raw(it.uid), Gid::from_raw(it.gid)));
        if about.uid() == uid.as_raw() {
            return Ok(opened.into());
        }
        // What is in it already belongs to somebody, who is asked before it is given away.
        if !is_new {
            return Err(belongs_to_another(path, about.uid(), uid));
        }
        chown(path, Some(uid.as_raw()), Some(gid.as_raw())).map_err(fault)?;
        Ok(opened.into())
    }
}

fn belongs_to_another(path: &Path, theirs: u32, ours: Uid) -> String {
    let path = path.display();
    format!(
        "the workspace {path} belongs to user {theirs}, and the sandbox runs as user {ours}: \
         `chown -R {ours}:{ours} {path}`, or name that user with `user`"
    )
}

// === impl Left ===

impl Left {
    /// Ends and removes all of it. Blocks for a moment.
    pub(super) fn sweep(&self) {
        for folder in &self.cgroups {
            if let Err(why) = portcullis_local::cgroup::sweep(folder) {
                tracing::warn!(folder = %folder.display(), error = %why, "a cgroup could not be removed");
            }
        }
    }
}
