//! The host's files, and what a file may be.

use super::{Attempt, at, blocked, c_text, number, scratch, text, untried};
use crate::syscall::raw;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;

/// `read <path>`: gets a byte of it.
pub(super) fn read(arguments: &[String]) -> Attempt {
    let path = text(arguments, 0, "path")?;
    let mut byte = [0; 1];
    let n = File::open(path)?.read(&mut byte)?;
    if n == 0 { Err(blocked("there is nothing in it")) } else { Ok(format!("read {path}")) }
}

/// `open-write <path>`: opens it for writing, and writes nothing.
pub(super) fn open_write(arguments: &[String]) -> Attempt {
    let path = text(arguments, 0, "path")?;
    OpenOptions::new().write(true).open(path)?;
    Ok(format!("opened {path} for writing"))
}

/// `list <path>`: finds something in a folder.
pub(super) fn list(arguments: &[String]) -> Attempt {
    let path = text(arguments, 0, "path")?;
    let n = std::fs::read_dir(path)?.count();
    if n == 0 { Err(blocked("there is nothing in it")) } else { Ok(format!("{path} has {n} entries")) }
}

/// `mknod char|block`: makes a device of a kind that every machine has, and removes it.
pub(super) fn mknod(arguments: &[String]) -> Attempt {
    // Memory itself, and the first loop device.
    let (kind, device) = match text(arguments, 0, "kind")? {
        "char" => (libc::S_IFCHR, libc::makedev(1, 1)),
        "block" => (libc::S_IFBLK, libc::makedev(7, 0)),
        other => return Err(untried(format!("`{other}` is no kind of device"))),
    };
    let name = scratch("device");
    let path = c_text(&name)?;
    let device = i64::try_from(device).map_err(|_| untried("a device number"))?;
    let made =
        raw(libc::SYS_mknodat, [libc::AT_FDCWD.into(), path.as_c_str().into(), (kind | 0o600).into(), device.into()]);
    drop(std::fs::remove_file(&name));
    at("mknodat", made)?;
    Ok("made a device node in the workspace".to_owned())
}

/// `file-capability`: gives a file a capability, which is as good as the setuid bit.
pub(super) fn file_capability(_: &[String]) -> Attempt {
    let name = scratch("capability");
    drop(File::create(&name)?);
    // VFS_CAP_REVISION_2 with the effective bit, CAP_SETUID (7) permitted.
    let mut value = [0_u8; 20];
    value[..8].copy_from_slice(&[1, 0, 0, 2, 1 << 7, 0, 0, 0]);
    let path = c_text(&name)?;
    let length = 20_i64;
    let set = raw(
        libc::SYS_setxattr,
        [path.as_c_str().into(), c"security.capability".into(), (&mut value[..]).into(), length.into(), 0.into()],
    );
    drop(std::fs::remove_file(&name));
    at("setxattr", set)?;
    Ok("gave a file CAP_SETUID".to_owned())
}

/// What every confinement has, and which gives nothing away.
const HARMLESS: &[&str] =
    &["null", "zero", "full", "random", "urandom", "tty", "ptmx", "console", "pts", "shm", "mqueue", "fd", "core"];

/// `devices <how many>`: looks for more devices than harmless ones.
pub(super) fn devices(arguments: &[String]) -> Attempt {
    let at_most = number(arguments, 0, "number of devices")?;
    let is_device = |entry: &std::fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_char_device() || kind.is_block_device())
            && !HARMLESS.iter().any(|name| entry.file_name() == *name)
    };
    let found: Vec<_> = std::fs::read_dir("/dev")?.flatten().filter(is_device).collect();
    if found.len() as u64 <= at_most {
        return Err(blocked(format!("{} devices beside the harmless ones", found.len())));
    }
    let names: Vec<_> = found.iter().take(5).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Ok(format!("{} devices: {} …", found.len(), names.join(", ")))
}
