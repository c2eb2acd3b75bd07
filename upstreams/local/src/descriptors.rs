//! Which descriptors a new process has, which cgroups it begins in, and as whom: exactly those that are named here.
//!
//! Rust opens files with CLOEXEC, but a gateway also has what its own parent left open. What runs between fork and exec
//! is here alone, since nothing but system calls may be made there; with it, all `unsafe` of starting processes.

#![expect(unsafe_code, reason = "between fork and exec, and for descriptors that are known by number only")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
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
    let mut aside: Vec<RawFd> = passed.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
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

/// Where a process that was started by [`apart`] finds its folder: a place that every Linux has, and that nothing of ours
/// uses otherwise.
const REACHABLE: &CStr = c"/dev/shm";

/// Makes `command` start as `user`, in a mount namespace of its own, in which `folder` stands at a place that this user
/// can reach: what the folder lies in may be root's alone, and a program that mounts it must find it by a path. What
/// `folder` then is, also where it is passed on ([`pass`], to be called after this), is the folder at that place.
///
/// Root may do this, unless it is the root of a container that may not: then the folder stays where it is.
pub fn apart(command: &mut Command, (uid, gid): (u32, u32), folder: BorrowedFd<'_>) {
    let folder = folder.as_raw_fd();
    let go = move || {
        // SAFETY: no memory is touched but paths that live as long as the program. `folder` is held open by whoever
        // passes it on.
        unsafe {
            // The descriptor is of the mounts of before; the working directory goes over to the new ones.
            check(libc::fchdir(folder) == 0)?;
            if libc::unshare(libc::CLONE_NEWNS) == 0 {
                let none = std::ptr::null();
                // Nothing goes back to the host; what it unmounts goes here too.
                check(libc::mount(none, c"/".as_ptr(), none, libc::MS_SLAVE | libc::MS_REC, none.cast()) == 0)?;
                let (here, there) = (c".".as_ptr(), REACHABLE.as_ptr());
                check(libc::mount(here, there, none, libc::MS_BIND | libc::MS_REC, none.cast()) == 0)?;
                let opened = libc::open(there, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
                check(opened >= 0)?;
                check(libc::dup3(opened, folder, libc::O_CLOEXEC) == folder)?;
            }
            check(libc::chdir(c"/".as_ptr()) == 0)?;
            check(libc::setgroups(0, std::ptr::null()) == 0)?;
            check(libc::setgid(gid) == 0)?;
            check(libc::setuid(uid) == 0)
        }
    };
    // SAFETY: `go` makes system calls only: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(go) };
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
/// The kernel has no call for it (Linux before 5.11, gVisor), and no /proc to see which there are.
pub fn close_on_exec() -> io::Result<()> {
    let (first, last) = (FIRST as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: no memory is touched, and nothing is closed.
    let at_once = check(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } == 0);
    match at_once {
        Err(why) if [Some(libc::EINVAL), Some(libc::ENOSYS)].contains(&why.raw_os_error()) => one_by_one(),
        done => done,
    }
}

fn one_by_one() -> io::Result<()> {
    let numbers =
        std::fs::read_dir("/proc/self/fd")?.map(|entry| Ok(entry?.file_name().to_string_lossy().parse().ok()));
    let numbers: Vec<Option<RawFd>> = numbers.collect::<io::Result<_>>()?;
    for number in numbers.into_iter().flatten().filter(|number| *number >= FIRST) {
        // SAFETY: no memory is touched. The one that the folder was read with is not there any more, and said so.
        match check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0) {
            Err(why) if why.raw_os_error() != Some(libc::EBADF) => return Err(why),
            _ => {}
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    #[test]
    fn a_folder_within_roots_own_is_reachable_for_whom_it_is_passed_to() {
        if !rustix::process::geteuid().is_root() {
            return; // Whoever is not root passes folders to themselves only.
        }
        let closed = tempfile::tempdir().expect("a folder");
        fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).expect("closed");
        let folder = closed.path().join("folder");
        fs::create_dir(&folder).expect("a folder");
        chown(&folder, Some(70_007), Some(70_007)).expect("given away");
        let folder = OwnedFd::from(File::open(folder).expect("opened"));
        #[expect(clippy::disallowed_methods, reason = "to look at the process that was started")]
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"at=$(readlink /proc/self/fd/3) && cd "$at" && id -u && id -G && echo kept > file"#]);
        apart(&mut command, (70_007, 70_007), folder.as_fd());
        pass(&mut command, vec![folder], Vec::new());

        let output = command.output().expect("started");

        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "70007\n70007\n", "{}", String::from_utf8_lossy(&output.stderr));
        let kept = closed.path().join("folder/file");
        assert_eq!(fs::read_to_string(&kept).expect("kept"), "kept\n");
        assert_eq!(fs::metadata(&kept).expect("kept").uid(), 70_007);
    }
}
