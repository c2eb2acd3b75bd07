//! What a process is allowed by its identity: capabilities, other users, open descriptors, a terminal.

use super::{Attempt, at, blocked, number, text, untried};
use crate::syscall::raw;
use std::os::unix::fs::FileTypeExt as _;

/// `status <field> <value>`: has another value in /proc/self/status. Numbers are compared as numbers: `0000` is `0`.
pub(super) fn status(arguments: &[String]) -> Attempt {
    let (field, wanted) = (text(arguments, 0, "field")?, text(arguments, 1, "value")?);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = line.ok_or_else(|| untried(format!("/proc/self/status has no {field}")))?.trim();
    let as_number = |text: &str| u64::from_str_radix(text, 16).ok();
    if value == wanted || as_number(value).is_some_and(|value| Some(value) == as_number(wanted)) {
        return Err(blocked(format!("{field} is {value}")));
    }
    Ok(format!("{field} is {value}"))
}

/// `become <uid>`: is that user from then on.
pub(super) fn become_user(arguments: &[String]) -> Attempt {
    let uid = i64::try_from(number(arguments, 0, "uid")?).map_err(|_| untried("no such user"))?;
    at("setresuid", raw(libc::SYS_setresuid, [uid.into(), uid.into(), uid.into()]))?;
    Ok(format!("became user {uid}"))
}

/// `descriptors [text]`: has more open than stdin, stdout and stderr; and says so first where the text stands in what one
/// of them is.
pub(super) fn descriptors(arguments: &[String]) -> Attempt {
    let mark = arguments.first().map_or("", String::as_str);
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let number = entry.file_name().to_string_lossy().into_owned();
        // The one with which this folder is read is gone when it is looked at.
        if let Ok(target) = std::fs::read_link(format!("/proc/self/fd/{number}"))
            && !["0", "1", "2"].contains(&number.as_str())
            && !target.ends_with("fd")
        {
            open.push(format!("{number} is {}", target.display()));
        }
    }
    if let Some(found) = open.iter().find(|found| !mark.is_empty() && found.contains(mark)) {
        return Ok(format!("inherited a file that was open in the gateway: {found}"));
    }
    if !mark.is_empty() || open.is_empty() {
        return Err(blocked(format!("{} open beside stdin, stdout and stderr", open.len())));
    }
    Ok(open.join(", "))
}

/// `terminal`: has one, as its controlling terminal or as one of its three descriptors.
pub(super) fn terminal(_: &[String]) -> Attempt {
    for name in ["0", "1", "2"] {
        let path = format!("/proc/self/fd/{name}");
        let target = std::fs::read_link(&path)?;
        let is_device = std::fs::metadata(&path).is_ok_and(|found| found.file_type().is_char_device());
        if is_device && (target.starts_with("/dev/pts") || target.starts_with("/dev/tty")) {
            return Ok(format!("{name} is {}", target.display()));
        }
    }
    std::fs::File::open("/dev/tty")?;
    Ok("opened its controlling terminal".to_owned())
}
