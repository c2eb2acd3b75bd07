//! Setuid and setgid files, by every call that could make one. Such a file in the workspace would be one of the gateway's
//! own user on the host, for everybody there who can reach it.

use super::{Attempt, Stop, blocked, c_text, name_of, scratch, text, untried};
use crate::syscall::raw;
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;

const MODE: i32 = 0o4755;
const CREATE: i32 = libc::O_CREAT | libc::O_WRONLY | libc::O_CLOEXEC;
const BITS: u32 = 0o6000;

/// `setuid <call>`: makes a file with the bit in the working directory, looks whether it has it, and removes it.
pub(super) fn make(arguments: &[String]) -> Attempt {
    let call = text(arguments, 0, "call")?;
    let name = scratch("setuid");
    let path = c_text(&name)?;
    let made = with(call, &name, &path);
    let mode = std::fs::symlink_metadata(&name).map(|found| found.permissions().mode());
    drop(std::fs::remove_file(&name));
    drop(std::fs::remove_dir(&name));
    match (made?, mode) {
        (Err(errno), Ok(mode)) if mode & BITS != 0 => {
            Ok(format!("{call} said {} and still left mode {mode:o}", name_of(errno)))
        }
        (_, Ok(mode)) if mode & BITS != 0 => Ok(format!("{call} left mode {mode:o}")),
        (Err(errno), _) => Err(errno.into()),
        (Ok(_), Ok(mode)) => Err(blocked(format!("mode is {mode:o} afterwards"))),
        (Ok(_), Err(error)) => Err(error.into()),
    }
}

/// The outer error: this could not be tried.
fn with(call: &str, name: &str, path: &CStr) -> Result<Result<i64, Errno>, Stop> {
    let here = libc::AT_FDCWD;
    let file = || File::create(name).map_err(|error| untried(format!("no file could be made: {error}")));
    Ok(match call {
        "fchmod" => raw(libc::SYS_fchmod, [file()?.as_raw_fd().into(), MODE.into()]),
        "fchmodat" => file().map(|_| raw(libc::SYS_fchmodat, [here.into(), path.into(), MODE.into()]))?,
        "fchmodat2" => file().map(|_| raw(libc::SYS_fchmodat2, [here.into(), path.into(), MODE.into(), 0.into()]))?,
        "openat" => raw(libc::SYS_openat, [here.into(), path.into(), CREATE.into(), MODE.into()]),
        "openat2" => {
            // struct open_how: flags, mode, resolve.
            let mut how = [0_u8; 24];
            how[..8].copy_from_slice(&i64::from(CREATE).to_ne_bytes());
            how[8..16].copy_from_slice(&i64::from(MODE).to_ne_bytes());
            raw(libc::SYS_openat2, [here.into(), path.into(), (&mut how[..]).into(), 24.into()])
        }
        "mknodat" => raw(libc::SYS_mknodat, [here.into(), path.into(), (libc::S_IFREG | 0o4755).into(), 0.into()]),
        "setgid" => file().map(|_| raw(libc::SYS_fchmodat, [here.into(), path.into(), 0o2755.into()]))?,
        "folder" => {
            std::fs::create_dir(name).map_err(|error| untried(format!("no folder could be made: {error}")))?;
            raw(libc::SYS_fchmodat, [here.into(), path.into(), 0o2755.into()])
        }
        other => return of_old(other, path, &file),
    })
}

/// Calls that only older platforms have.
#[cfg(target_arch = "x86_64")]
fn of_old(call: &str, path: &CStr, file: &dyn Fn() -> Result<File, Stop>) -> Result<Result<i64, Errno>, Stop> {
    Ok(match call {
        "chmod" => file().map(|_| raw(libc::SYS_chmod, [path.into(), MODE.into()]))?,
        "open" => raw(libc::SYS_open, [path.into(), CREATE.into(), MODE.into()]),
        "creat" => raw(libc::SYS_creat, [path.into(), MODE.into()]),
        "mknod" => raw(libc::SYS_mknod, [path.into(), (libc::S_IFREG | 0o4755).into(), 0.into()]),
        other => return Err(untried(format!("`{other}` is no such call"))),
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn of_old(call: &str, _: &CStr, _: &dyn Fn() -> Result<File, Stop>) -> Result<Result<i64, Errno>, Stop> {
    Err(untried(format!("`{call}` is no call of this platform")))
}
