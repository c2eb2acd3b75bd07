//! What a command has written to disks, by the kernel's own count of pages that it made dirty (`write_bytes` of
//! proc_pid_io(5)): also what went to files that have no name any more. An upper bound: what was overwritten or removed
//! is in it. What is written to memory, as to `/tmp`, is not.
//!
//! The count of a process for which nobody waits is lost with it (SIGCHLD ignored), and a short one is never seen. So
//! there is a second look, at the files themselves that are open and have no name ([`held`]).

use rustix::process::Pid;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// Those of one command, and what those have written, in bytes, that its inner stage has collected.
pub(super) type Processes<'a> = &'a (dyn Fn() -> (Vec<Pid>, u64) + Sync);

/// Open files that are looked at, at most.
const FILES: u32 = 20_000;

/// Of one command.
#[derive(Default)]
pub(super) struct Writes {
    /// Of all its processes when they were looked at last, with those that these have waited for.
    seen: u64,
    /// Of processes that ended and that nobody has waited for.
    lost: u64,
}

impl Writes {
    /// Takes another look, at these processes. In bytes.
    pub(super) fn look(&mut self, processes: Processes<'_>) -> u64 {
        let mut now = all(processes());
        if now < self.seen {
            // One may have ended between two looks, and be in its parent's count by now.
            now = now.max(all(processes()));
        }
        self.lost = self.lost.saturating_add(self.seen.saturating_sub(now));
        self.seen = now;
        self.total()
    }

    /// As of the last look.
    pub(super) fn total(&self) -> u64 {
        self.seen.saturating_add(self.lost)
    }
}

fn all((processes, collected): (Vec<Pid>, u64)) -> u64 {
    processes.into_iter().map(of).fold(collected, u64::saturating_add)
}

/// More than anybody may write where a process that is there does not let itself be looked at.
fn of(pid: Pid) -> u64 {
    match fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero())) {
        Ok(text) => text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap_or(u64::MAX),
        // Ended, or a kernel that does not count (CONFIG_TASK_IO_ACCOUNTING): then there is nothing to go by.
        Err(why) if why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH) => 0,
        Err(_) => u64::MAX,
    }
}

/// What these processes hold of a disk in open files that have no name, in bytes; more than anybody may where that
/// cannot be seen, or they hold more files than are looked at.
pub(super) fn held(processes: Processes<'_>, device: u64) -> u64 {
    let (mut files, mut left) = (HashMap::new(), FILES);
    for pid in processes().0 {
        let opened = match fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())) {
            Ok(opened) => opened,
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            Err(_) => return u64::MAX,
        };
        for one in opened.flatten() {
            left -= 1;
            if left == 0 {
                return u64::MAX;
            }
            // Followed: it is the very file, and not whatever has its name by now.
            let Ok(found) = fs::metadata(one.path()) else { continue };
            if found.dev() == device && found.nlink() == 0 {
                files.insert(found.ino(), found.blocks().saturating_mul(512));
            }
        }
    }
    files.into_values().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_was_written_to_a_file_without_a_name_counts() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let ourselves = || (vec![rustix::process::getpid()], 0);
        let mut writes = Writes::default();
        let before = writes.look(&ourselves);

        let mut file = tempfile::tempfile_in(folder.path()).unwrap();
        file.write_all(&vec![1; 4 << 20]).unwrap();

        assert!(writes.look(&ourselves) >= before + (4 << 20));
    }

    #[test]
    fn what_is_open_and_has_no_name_is_found() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let device = folder.path().metadata().unwrap().dev();
        let ourselves = || (vec![rustix::process::getpid()], 0);
        let before = held(&ourselves, device);

        let mut file = tempfile::tempfile_in(folder.path()).unwrap();
        file.write_all(&vec![1; 4 << 20]).unwrap();
        let mut named = tempfile::NamedTempFile::new_in(folder.path()).unwrap();
        named.write_all(&vec![1; 4 << 20]).unwrap();

        assert!((4 << 20..6 << 20).contains(&(held(&ourselves, device) - before)));
        assert_eq!(held(&ourselves, device + 1), 0);
    }

    #[test]
    fn what_ended_and_was_waited_for_by_nobody_still_counts() {
        let mut writes = Writes { seen: 100, lost: 0 };

        assert_eq!(writes.look(&|| (Vec::new(), 0)), 100);
        assert_eq!(writes.look(&|| (Vec::new(), 20)), 120);
    }
}
