//! cgroup v1: a hierarchy for each controller (Linux `Documentation/admin-guide/cgroup-v1`).

use super::{Limits, write};
use std::fs;
use std::io;
use std::path::Path;

/// Microseconds after which processor time is given out anew.
const PERIOD_US: u64 = 100_000;

/// Bytes in buffers of sockets, at most.
const SOCKETS: u64 = 64 * 1024 * 1024;

pub(super) fn limit(memory: &Path, pids: &Path, cpu: &Path, limits: Limits) -> io::Result<()> {
    write(memory, "memory.limit_in_bytes", &limits.memory.to_string())?;
    // There where swap is counted: memory and swap together may not be more.
    match write(memory, "memory.memsw.limit_in_bytes", &limits.memory.to_string()) {
        Err(why) if why.kind() != io::ErrorKind::NotFound && why.kind() != io::ErrorKind::PermissionDenied => {
            return Err(why);
        }
        _ => {}
    }
    // What lies in buffers of TCP and UDP is counted apart here, and of all namespaces together it is one pool of the
    // host's: those who send wait then. Other memory of the kernel's is in the limit above.
    match write(memory, "memory.kmem.tcp.limit_in_bytes", &sockets(limits).to_string()) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    write(pids, "pids.max", &limits.processes.to_string())?;
    write(cpu, "cpu.cfs_period_us", &PERIOD_US.to_string())?;
    write(cpu, "cpu.cfs_quota_us", &quota_us(limits).to_string())
}

pub(super) fn n_oom(memory: &Path) -> u64 {
    let text = fs::read_to_string(memory.join("memory.oom_control")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).unwrap_or(0)
}

/// What a server and its clients in a test do with.
fn sockets(limits: Limits) -> u64 {
    (limits.memory / 8).min(SOCKETS)
}

/// At least a thousandth of a second: the kernel takes no less.
fn quota_us(limits: Limits) -> u64 {
    (limits.cpu_millis * PERIOD_US / 1000).max(1000)
}
