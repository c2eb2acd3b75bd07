//! Ending everything in a cgroup, of v1 or v2: what is left of a command, or of a process that was killed.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How often it is tried: a killed process needs a moment to be gone, and a fork bomb a few rounds.
const ROUNDS: usize = 400;
const PAUSE: Duration = Duration::from_millis(5);

/// Kills every process in `folder` and in the cgroups below it, and removes them all. Blocks, for 2 s at most.
///
/// # Errors
/// Something is still in it.
pub fn sweep(folder: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..ROUNDS {
        kill_all(folder);
        last = remove(folder);
        match &last {
            Ok(()) => return Ok(()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    last
}

/// Kills every process in `folder` and below, as far as that goes in one round.
pub fn kill_all(folder: &Path) {
    // cgroup v2 does it at once, for all below as well.
    if fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    for below in below(folder) {
        kill_all(&below);
    }
    for pid in processes(folder) {
        // It may have ended by now.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The processes in `folder` itself.
pub fn processes(folder: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect()
}

fn below(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn remove(folder: &Path) -> io::Result<()> {
    for below in below(folder) {
        remove(&below)?;
    }
    fs::remove_dir(folder)
}
