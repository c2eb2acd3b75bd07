//! cgroup v2: one hierarchy (Linux `Documentation/admin-guide/cgroup-v2.rst`).

use super::{Limits, write};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Microseconds after which processor time is given out anew.
const PERIOD_US: u64 = 100_000;

/// Passes the controllers on to what is made below `root`. No process may be in `root` itself then: those who make
/// leaves are in a folder beside them, or elsewhere.
pub(super) fn delegate(root: &Path) -> io::Result<()> {
    let passed_on = fs::read_to_string(root.join("cgroup.subtree_control"))?;
    if ["memory", "pids", "cpu"].iter().all(|controller| passed_on.split_whitespace().any(|it| it == *controller)) {
        return Ok(());
    }
    write(root, "cgroup.subtree_control", "+memory +pids +cpu")
}

pub(super) fn limit(folder: &Path, limits: Limits) -> io::Result<()> {
    write(folder, "memory.max", &limits.memory.to_string())?;
    // There where the kernel has swap.
    match write(folder, "memory.swap.max", "0") {
        Err(why) if why.kind() != io::ErrorKind::NotFound && why.kind() != io::ErrorKind::PermissionDenied => {
            return Err(why);
        }
        _ => {}
    }
    write(folder, "memory.oom.group", "1")?;
    write(folder, "pids.max", &limits.processes.to_string())?;
    write(folder, "cpu.max", &format!("{} {PERIOD_US}", (limits.cpu_millis * PERIOD_US / 1000).max(1000)))
}

/// Kills everything in the leaf at once, what is being forked meanwhile too (Linux 5.14).
pub(super) fn kill(folders: &[PathBuf]) -> io::Result<()> {
    folders.iter().try_for_each(|folder| write(folder, "cgroup.kill", "1"))
}

pub(super) fn n_oom(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("memory.events")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
}
