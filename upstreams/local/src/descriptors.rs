//! Which descriptors a new process has, and which cgroups it begins in: exactly those that are named here.
//!
//! Rust opens files with CLOEXEC, but a gateway also has what its own parent left open. What runs between fork and exec
//! is here alone, since nothing but system calls may be made there; with it, all `unsafe` of starting processes.

#![expect(unsafe_code, reason = "between fork and exec, and for descriptors that are known by number only")]

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The number of the first descriptor that is passed on; 0, 1 and 2 are `Command`'s own business.
pub const FIRST: RawFd = 3;
/// Where descriptors are put aside, so that none is overwritten before it was passed on.
const ASIDE: RawFd = 64;

/// Makes `command` start with `passed` as 3, 4, 5, …, and with no further descriptor. Before it runs anything, the new
/// process enters the cgroups whose `cgroup.procs` files are `entered`.
///
/// A command that this was called for can be started once.
pub fn pass(command: &mut Command, passed: Vec<OwnedFd>, entered: Vec<OwnedFd>) {
    let mut aside: Vec<RawFd> = passed.iter().map(|fd| fd.as_raw_fd()).collect();
    let arrange = move || {
        for procs in &entered {
            // "0" is whoever writes it.
            // SAFETY: a write of one byte that lives as long as the program, to a descriptor that is owned here.
            check(unsafe { libc::write(procs.as_raw_fd(), b"0".as_ptr().cast(), 1) } == 1)?;
        }
        for (fd, owned) in aside.iter_mut().zip(&passed) {
            // SAFETY: no memory is touched; the descriptor is owned here.
            *fd = unsafe { libc::fcntl(owned.as_raw_fd(), libc::F_DUPFD_CLOEXEC, ASIDE) };
            check(*fd >= 0)?;
        }
        let mut next = FIRST;
        for fd in &aside {
            // SAFETY: no memory is touched. What had this number before is not used any more by this process, which
            // will be another program in a moment.
            check(unsafe { libc::dup2(*fd, next) } == next)?;
            next += 1;
        }
        // Not closed at once: std still tells its parent through one of them whether the program could be run.
        // SAFETY: no memory is touched.
        check(
            unsafe {
                libc::syscall(libc::SYS_close_range, next as libc::c_uint, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
            } == 0,
        )
    };
    // SAFETY: `arrange` makes system calls only: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(arrange) };
}

/// A descriptor that was passed on to this process and is known by its number: another one for the same file. From now on
/// both are closed where a program is started.
///
/// # Errors
/// There is no such descriptor.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0)?;
    // SAFETY: no memory is touched.
    let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST) };
    check(fd >= 0)?;
    // SAFETY: it was made just now, so it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes all descriptors but 0, 1 and 2 close where a program is started, whoever opened them.
///
/// # Errors
/// The kernel is older than Linux 5.11.
pub fn close_on_exec() -> io::Result<()> {
    let (first, last) = (FIRST as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: no memory is touched, and nothing is closed.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } == 0)
}

fn check(is_done: bool) -> io::Result<()> {
    if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes over descriptor `number`, which was passed on to this process. From now on it is closed where a program is
/// started.
///
/// # Errors
/// There is no such descriptor: whoever started this program did not pass it.
///
/// # Safety
/// Nobody else in this process may own it, or take it over again.
pub(crate) unsafe fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0)?;
    // SAFETY: it is open, and by the contract of this function nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Takes over all of `FIRST..FIRST + n` that are there. Once in the life of a process, before it opens anything.
pub(crate) fn take_all(n: RawFd) -> Vec<io::Result<OwnedFd>> {
    // SAFETY: nothing was opened yet by contract, so what has these numbers was passed to us.
    (FIRST..FIRST + n).map(|number| unsafe { take(number) }).collect()
}
