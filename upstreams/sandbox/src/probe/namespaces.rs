//! Mounts and namespaces. What is mounted is mounted where nobody else sees it, so that the same probe may be run on the
//! host.

use super::{Attempt, Stop, at, blocked, c_text, name_of, scratch, text, untried};
use crate::syscall::{self, raw};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsRawFd as _;

/// `user-namespace unshare|clone|clone3`: makes one, and is root in it.
pub(super) fn user_namespace(arguments: &[String]) -> Attempt {
    let new_user = i64::from(libc::CLONE_NEWUSER);
    let call = text(arguments, 0, "call")?;
    match call {
        "unshare" => at(call, raw(libc::SYS_unshare, [new_user.into()]))?,
        "clone" => child(at(call, raw(libc::SYS_clone, [(new_user | i64::from(libc::SIGCHLD)).into()]))?),
        "clone3" => {
            // struct clone_args of its first version: flags first, the exit signal fifth.
            let mut arguments = [0_u8; 64];
            arguments[..8].copy_from_slice(&new_user.to_ne_bytes());
            arguments[32..40].copy_from_slice(&i64::from(libc::SIGCHLD).to_ne_bytes());
            child(at(call, raw(libc::SYS_clone3, [(&mut arguments[..]).into(), 64.into()]))?)
        }
        other => return Err(untried(format!("`{other}` makes no namespace"))),
    };
    Ok(format!("made a user namespace by {call}"))
}

/// The new process has nothing to do.
fn child(pid: i64) -> i64 {
    if pid == 0 {
        syscall::exit(0);
    }
    pid
}

/// `unshare <which>`: a namespace without a user namespace around it.
pub(super) fn unshare(arguments: &[String]) -> Attempt {
    let which = text(arguments, 0, "namespace")?;
    let flag = match which {
        "mount" => libc::CLONE_NEWNS,
        "network" => libc::CLONE_NEWNET,
        "pid" => libc::CLONE_NEWPID,
        "ipc" => libc::CLONE_NEWIPC,
        "uts" => libc::CLONE_NEWUTS,
        "cgroup" => libc::CLONE_NEWCGROUP,
        other => return Err(untried(format!("`{other}` is no namespace"))),
    };
    at("unshare", raw(libc::SYS_unshare, [flag.into()]))?;
    Ok(format!("made a {which} namespace"))
}

/// `setns`: enters a namespace.
pub(super) fn setns(_: &[String]) -> Attempt {
    let own = File::open("/proc/self/ns/uts")?;
    at("setns", raw(libc::SYS_setns, [own.as_raw_fd().into(), libc::CLONE_NEWUTS.into()]))?;
    Ok("entered a namespace".to_owned())
}

/// Goes where mounts are its own, if it may: as it is, or with a user namespace around it. What follows is tried in any
/// case, since a call may be allowed where the way to it is not.
fn go_apart() -> Result<&'static str, Stop> {
    let mounts = i64::from(libc::CLONE_NEWNS);
    let alone = raw(libc::SYS_unshare, [mounts.into()])
        .or_else(|_| raw(libc::SYS_unshare, [(mounts | i64::from(libc::CLONE_NEWUSER)).into()]));
    if let Err(errno) = alone {
        return Ok(if errno == Errno::NOSYS { "where it is (unshare: ENOSYS)" } else { "where it is" });
    }
    let private = i64::try_from(libc::MS_REC | libc::MS_PRIVATE).map_err(|_| untried("flags"))?;
    let made = raw(libc::SYS_mount, [c"none".into(), c"/".into(), 0.into(), private.into(), 0.into()]);
    made.map_err(|errno| untried(format!("mounts cannot be made private: {}", name_of(errno))))?;
    Ok("in a mount namespace of its own")
}

/// `mount`: a file system of its own, and failing that, one that is there.
pub(super) fn mount(_: &[String]) -> Attempt {
    let place = go_apart()?;
    let (name, path) = folder("mount")?;
    let fresh = raw(libc::SYS_mount, [c"none".into(), path.as_c_str().into(), c"tmpfs".into(), 0.into(), 0.into()]);
    let bound = || {
        let bind = i64::try_from(libc::MS_BIND).unwrap_or_default();
        raw(libc::SYS_mount, [c"/".into(), path.as_c_str().into(), 0.into(), bind.into(), 0.into()])
    };
    let mounted = fresh.or_else(|_| bound());
    if mounted.is_ok() {
        let _ = raw(libc::SYS_umount2, [path.as_c_str().into(), libc::MNT_DETACH.into()]);
    }
    drop(std::fs::remove_dir(&name));
    at("mount", mounted)?;
    Ok(format!("mounted {place}"))
}

/// `mount-api`: the same by the newer calls.
pub(super) fn mount_api(_: &[String]) -> Attempt {
    let place = go_apart()?;
    let fresh = raw(libc::SYS_fsopen, [c"tmpfs".into(), 0.into()]);
    let clone = || raw(libc::SYS_open_tree, [libc::AT_FDCWD.into(), c"/".into(), 1.into()]);
    let opened = fresh.map(|_| "fsopen").or_else(|first| clone().map(|_| "open_tree").map_err(|_| first));
    at("fsopen", opened).map(|call| format!("{call} {place}"))
}

/// `pivot-root`: another root. The folder for it is swept from outside.
pub(super) fn pivot_root(_: &[String]) -> Attempt {
    let (name, path) = folder("root")?;
    std::fs::create_dir(format!("{name}/old")).map_err(|error| blocked(format!("no folder: {error}")))?;
    let old = c_text(&format!("{name}/old"))?;
    let place = go_apart()?;
    let bind = i64::try_from(libc::MS_BIND).unwrap_or_default();
    let _ = raw(libc::SYS_mount, [path.as_c_str().into(), path.as_c_str().into(), 0.into(), bind.into(), 0.into()]);
    at("pivot_root", raw(libc::SYS_pivot_root, [path.as_c_str().into(), old.as_c_str().into()]))?;
    Ok(format!("changed the root {place}"))
}

/// `chroot`: the classical one, which needs a capability that a user namespace gives.
pub(super) fn chroot(_: &[String]) -> Attempt {
    let own = || raw(libc::SYS_chroot, [c".".into()]);
    if own().is_ok() {
        return Ok("changed the root by chroot".to_owned());
    }
    let _ = raw(libc::SYS_unshare, [libc::CLONE_NEWUSER.into()]);
    at("chroot", own())?;
    Ok("changed the root by chroot in a user namespace".to_owned())
}

fn folder(what: &str) -> Result<(String, std::ffi::CString), Stop> {
    // Of this probe's own, in a place where it may write.
    let name = scratch(what);
    std::fs::create_dir(&name).map_err(|error| blocked(format!("no folder: {error}")))?;
    let path = c_text(&name)?;
    Ok((name, path))
}
