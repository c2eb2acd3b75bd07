//! Other processes: seeing, signalling, reading them.
//!
//! Those of the host are named by their number there and by a mark in their arguments, since a process inside may have
//! the same number.

use super::{Attempt, Stop, at, blocked, end_with_parent, name_of, number, pause, text, untried};
use crate::syscall::raw;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// `processes <how many>`: sees more than that.
pub(super) fn count(arguments: &[String]) -> Attempt {
    let at_most = number(arguments, 0, "number of processes")?;
    let n = all().count() as u64;
    if n > at_most { Ok(format!("sees {n} processes")) } else { Err(blocked(format!("sees {n} processes"))) }
}

fn all() -> impl Iterator<Item = u64> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// `<number> <mark>`: the process of the host that is meant.
struct Target<'a> {
    pid: i64,
    mark: &'a str,
}

impl Target<'_> {
    fn of(arguments: &[String]) -> Result<Target<'_>, Stop> {
        let pid = i64::try_from(number(arguments, 0, "process")?).map_err(|_| untried("no such number"))?;
        Ok(Target { pid, mark: text(arguments, 1, "mark")? })
    }

    /// What was done was done to it, and not to another of the same number.
    fn was_it(&self, what: &str) -> Attempt {
        if is_marked(self.pid.unsigned_abs(), self.mark) {
            return Ok(format!("{what} process {} of the host", self.pid));
        }
        Err(blocked(format!("process {} is another one here", self.pid)))
    }
}

fn is_marked(pid: u64, mark: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    contains(&line, mark)
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len().max(1)).any(|window| window == part.as_bytes())
}

/// `signal <process> <mark>`: may signal it.
pub(super) fn signal(arguments: &[String]) -> Attempt {
    let target = Target::of(arguments)?;
    at("kill", raw(libc::SYS_kill, [target.pid.into(), 0.into()]))?;
    target.was_it("may signal")
}

/// `ptrace <process> <mark>`: traces it, until this process ends.
pub(super) fn ptrace(arguments: &[String]) -> Attempt {
    let target = Target::of(arguments)?;
    at("ptrace", raw(libc::SYS_ptrace, [i64::from(libc::PTRACE_SEIZE).into(), target.pid.into()]))?;
    target.was_it("traced")
}

/// `ptrace-own`: has itself traced, which is the beginning of most ways to use the call.
pub(super) fn ptrace_own(_: &[String]) -> Attempt {
    at("ptrace", raw(libc::SYS_ptrace, [i64::from(libc::PTRACE_TRACEME).into()]))?;
    Ok("was traced by its parent".to_owned())
}

/// `vm-read <process> <mark>`: reads its memory by process_vm_readv.
pub(super) fn vm_read(arguments: &[String]) -> Attempt {
    let target = Target::of(arguments)?;
    // Nothing is at this address, in no process: whoever is told so was allowed to ask.
    let (mut here, mut there) = (iovec(8), iovec(8));
    let read = raw(
        libc::SYS_process_vm_readv,
        [target.pid.into(), (&mut here[..]).into(), 1.into(), (&mut there[..]).into(), 1.into(), 0.into()],
    );
    match read {
        Ok(_) | Err(Errno::FAULT) => target.was_it("may read the memory of"),
        Err(errno) => Err(blocked(format!("process_vm_readv: {}", name_of(errno)))),
    }
}

/// struct iovec: an address, and eight bytes from it.
fn iovec(address: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_ne_bytes());
    bytes[8] = 8;
    bytes
}

/// `mem <process> <mark>`: reads its memory through /proc.
pub(super) fn mem(arguments: &[String]) -> Attempt {
    let target = Target::of(arguments)?;
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", target.pid))?;
    let start = maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
    let start = start.ok_or_else(|| blocked("its maps are empty"))?;
    File::open(format!("/proc/{}/mem", target.pid))?.read_exact_at(&mut [0; 8], start)?;
    target.was_it("read the memory of")
}

/// `take-descriptor <process> <mark>`: takes its stdin.
pub(super) fn take_descriptor(arguments: &[String]) -> Attempt {
    let target = Target::of(arguments)?;
    let pidfd = at("pidfd_open", raw(libc::SYS_pidfd_open, [target.pid.into()]))?;
    at("pidfd_getfd", raw(libc::SYS_pidfd_getfd, [pidfd.into(), 0.into()]))?;
    target.was_it("took a descriptor of")
}

/// `environ <text>`: finds the text in its own environment, or in that of any process it sees.
pub(super) fn environ(arguments: &[String]) -> Attempt {
    let wanted = text(arguments, 0, "text")?;
    if std::env::vars_os().any(|(_, value)| contains(value.as_encoded_bytes(), wanted)) {
        return Ok("it stands in the command's own environment".to_owned());
    }
    let mut n_read = 0;
    for pid in all() {
        let Ok(bytes) = std::fs::read(format!("/proc/{pid}/environ")) else { continue };
        n_read += 1;
        if contains(&bytes, wanted) {
            return Ok(format!("it stands in the environment of process {pid}"));
        }
    }
    Err(blocked(format!("not in its own environment, nor in {n_read} others")))
}

/// `named <mark>`: sees a process with the mark among its arguments, beside those that look for it.
pub(super) fn named(arguments: &[String]) -> Attempt {
    let mark = text(arguments, 0, "mark")?;
    match marked(mark) {
        Some(pid) => Ok(format!("sees it as process {pid}")),
        None => Err(blocked("sees no such process")),
    }
}

/// A process with the mark among its arguments, that is not one that looks for it.
pub(super) fn marked(mark: &str) -> Option<u64> {
    let is_it = |pid: &u64| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        contains(&line, mark) && !contains(&line, "named")
    };
    all().find(is_it)
}

/// `victim <mark> <seconds>`: does nothing, and can be found. It is told to end by the end of its stdin.
pub(super) fn victim(arguments: &[String]) -> Attempt {
    let seconds = number(arguments, 1, "seconds")?;
    // Its parent waits for it and has the same mark: one that goes away takes the other with it.
    end_with_parent();
    pause(Duration::from_secs(seconds));
    Ok("it was left alone".to_owned())
}
