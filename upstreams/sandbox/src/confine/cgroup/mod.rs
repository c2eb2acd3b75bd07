//! A cgroup of its own for every command: how much memory, how many processes and how much processor time it may have,
//! and who belongs to it, whatever they did to hide.
//!
//! A leaf is a folder below one that was made for this process. It is entered before the confined program begins, and
//! is gone when the command has ended; what a crash left is found by its name ([`sweep`]).

mod v1;
mod v2;

use super::gvisor;
use crate::settings::{Backend, Cgroup, Settings};
use portcullis_local::descriptors::Begin;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What leaves are called, before a number.
pub const PREFIX: &str = "command-";
/// Processes of ours in each leaf, which the command does not have to share its number with: bwrap, and the two threads
/// of the inner stage.
const OURS: u64 = 4;
/// How often a leaf that is not empty yet is tried again, and how long between.
const TRIES: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(20);

/// What a leaf allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In bytes; no swap beside it.
    memory: u64,
    /// Processes and threads.
    processes: u64,
    /// Thousandths of a processor.
    cpu_millis: u64,
}

/// Where leaves are made.
pub(super) struct Cgroups {
    place: Cgroup,
    limits: Limits,
    next: AtomicU64,
}

/// The cgroup of one command. Dropped, it is emptied and removed as far as that goes at once.
pub(super) struct Leaf {
    /// In every hierarchy, the one that counts memory first. Empty where there are no cgroups.
    folders: Vec<PathBuf>,
    is_v2: bool,
}

/// Ends whatever is left in the leaves of `cgroup`, and removes them. For whoever begins where a crash may have left
/// something: no other process may be making leaves there at the same time. Waits for up to two seconds.
///
/// # Errors
/// A leaf could not be emptied or removed.
pub fn sweep(cgroup: &Cgroup) -> io::Result<()> {
    let mut result = Ok(());
    for root in roots(cgroup) {
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) {
                result = portcullis_local::cgroup::sweep(&entry.path()).and(result);
            }
        }
    }
    result
}

// === impl Cgroups ===

impl Cgroups {
    /// Removes what an earlier process has left, and tries that leaves can be made.
    pub(super) fn open(settings: &Settings) -> Result<Cgroups, String> {
        let ours = match settings.backend {
            Backend::Bubblewrap { .. } => OURS,
            Backend::Gvisor { .. } => OURS + gvisor::own_processes(settings),
        };
        let limits = Limits {
            memory: settings.memory,
            processes: u64::from(settings.processes) + ours,
            cpu_millis: u64::from(settings.cpu_millis),
        };
        let cgroups = Cgroups { place: settings.cgroup.clone(), limits, next: AtomicU64::new(0) };
        sweep(&cgroups.place).map_err(|why| cgroups.explain(&why))?;
        if let Cgroup::V2(root) = &cgroups.place {
            v2::delegate(root).map_err(|why| cgroups.explain(&why))?;
        }
        let leaf = cgroups.leaf().map_err(|why| cgroups.explain(&why))?;
        leaf.begin().map_err(|why| cgroups.explain(&why))?;
        Ok(cgroups)
    }

    /// Makes a leaf.
    pub(super) fn leaf(&self) -> io::Result<Leaf> {
        let name = format!("{PREFIX}{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut leaf = Leaf { folders: Vec::new(), is_v2: matches!(self.place, Cgroup::V2(_)) };
        for root in roots(&self.place) {
            let folder = root.join(&name);
            fs::create_dir(&folder).map_err(|why| at(&folder, &why))?;
            leaf.folders.push(folder);
        }
        match (&self.place, leaf.folders.as_slice()) {
            (Cgroup::V1 { .. }, [memory, pids, cpu]) => v1::limit(memory, pids, cpu, self.limits)?,
            (Cgroup::V2(_), [folder]) => v2::limit(folder, self.limits)?,
            _ => {}
        }
        Ok(leaf)
    }

    fn explain(&self, why: &io::Error) -> String {
        let place = roots(&self.place).map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
        format!(
            "no cgroup can be made for a command ({place}): {why}. The gateway makes these folders where it is root, or \
             where systemd passes controllers on (Delegate=memory pids cpu); `cgroup: none` does without, and then \
             limits the memory of each process only"
        )
    }
}

// === impl Leaf ===

impl Leaf {
    /// How a process begins in it.
    pub(super) fn begin(&self) -> io::Result<Begin> {
        let open = |folder: &PathBuf| {
            // Through `tasks`, the kernel moves the thread that writes, and does not stop all forks of the whole host
            // for it, which takes milliseconds.
            let procs = folder.join(if self.is_v2 { "cgroup.procs" } else { "tasks" });
            fs::OpenOptions::new().write(true).open(&procs).map(OwnedFd::from).map_err(|why| at(&procs, &why))
        };
        match self.folders.as_slice() {
            [folder] if self.is_v2 => Ok(Begin::Into { folder: fs::File::open(folder)?.into(), procs: open(folder)? }),
            folders => Ok(Begin::Entered(folders.iter().map(open).collect::<io::Result<_>>()?)),
        }
    }

    /// Kills all that is in it but `spared`; all at once where the kernel can. Returns whether something was there.
    pub(super) fn kill(&self, spared: Option<Pid>) -> bool {
        if self.is_v2 && spared.is_none() && v2::kill(&self.folders).is_ok() {
            return self.folders.iter().any(|folder| !members(folder).is_empty());
        }
        self.folders.iter().filter(|folder| kill_each(folder, spared)).count() > 0
    }

    /// What is in it; `None` where there are no cgroups.
    pub(super) fn processes(&self) -> Option<Vec<Pid>> {
        self.folders.first().map(|folder| members(folder).into_iter().collect())
    }

    /// How often the kernel has ended something in it for its memory.
    pub(super) fn n_oom(&self) -> u64 {
        let Some(memory) = self.folders.first() else { return 0 };
        if self.is_v2 { v2::n_oom(memory) } else { v1::n_oom(memory) }
    }

    /// Empties and removes it.
    ///
    /// # Errors
    /// After [`TRIES`], something is still in it.
    pub(super) async fn remove(mut self) -> io::Result<()> {
        for _ in 0..TRIES {
            if self.try_remove().is_ok() {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN).await;
        }
        self.try_remove()
    }

    fn try_remove(&mut self) -> io::Result<()> {
        self.kill(None);
        let mut result = Ok(());
        self.folders.retain(|folder| match fs::remove_dir(folder) {
            Ok(()) => false,
            Err(why) if why.kind() == io::ErrorKind::NotFound => false,
            Err(why) => {
                result = Err(at(folder, &why));
                true
            }
        });
        result
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        let _ = self.try_remove();
    }
}

fn roots(cgroup: &Cgroup) -> impl Iterator<Item = &PathBuf> {
    match cgroup {
        Cgroup::V2(root) => vec![root],
        // Memory first: `n_oom` looks there.
        Cgroup::V1 { memory, pids, cpu } => vec![memory, pids, cpu],
        Cgroup::Off => Vec::new(),
    }
    .into_iter()
}

fn members(folder: &Path) -> HashSet<Pid> {
    let listed = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    listed.lines().filter_map(|line| line.parse().ok().and_then(Pid::from_raw)).collect()
}

/// Kills what is in `folder` one by one. A number may belong to another process by the time it is used: so each is held
/// by a pidfd first, and killed if it is still listed then.
fn kill_each(folder: &Path, spared: Option<Pid>) -> bool {
    let held: Vec<_> = members(folder)
        .into_iter()
        .filter(|pid| Some(*pid) != spared)
        .filter_map(|pid| pidfd_open(pid, PidfdFlags::empty()).ok().map(|pidfd| (pid, pidfd)))
        .collect();
    let still = members(folder);
    for (_, pidfd) in held.iter().filter(|(pid, _)| still.contains(pid)) {
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }
    !held.is_empty()
}

fn write(folder: &Path, file: &str, value: &str) -> io::Result<()> {
    let path = folder.join(file);
    fs::write(&path, value).map_err(|why| at(&path, &why))
}

fn at(path: &Path, why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.display()))
}
