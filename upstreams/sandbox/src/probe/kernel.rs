//! Parts of the kernel that a command has no use for, most of them with a history.
//!
//! Calls are made so that nothing changes where they succeed: with what is set already, or with arguments that are
//! looked at only after the right to call. Whoever hears of the arguments had that right.

use super::{Attempt, Stop, at, blocked, ignore, name_of, text, untried};
use crate::syscall::{Arg, getpid_of_i386, raw};
use rustix::io::Errno;
use std::os::fd::AsRawFd as _;

/// One way to make a call.
type Make = fn() -> Result<i64, Errno>;

/// Calls that succeed where they are allowed.
const USED: &[(&str, Make)] = &[
    ("io_uring", || raw(libc::SYS_io_uring_setup, [1.into(), (&mut [0; 120][..]).into()])),
    // 1 is UFFD_USER_MODE_ONLY, for which no privilege is needed.
    ("userfaultfd", || raw(libc::SYS_userfaultfd, [1.into()])),
    ("bpf", bpf),
    ("perf_event_open", perf),
    ("keyctl", || raw(libc::SYS_keyctl, [libc::KEYCTL_GET_KEYRING_ID.into(), (-3).into(), 1.into()])),
    ("add_key", || raw(libc::SYS_add_key, [c"user".into(), c"probe".into(), c"x".into(), 1.into(), (-2).into()])),
    ("personality", || raw(libc::SYS_personality, [libc::READ_IMPLIES_EXEC.into()])),
    ("adjtimex", adjtimex),
    ("sethostname", sethostname),
    ("syslog", || raw(libc::SYS_syslog, [3.into(), (&mut [0; 256][..]).into(), 256.into()])),
];

/// Calls that complain of their arguments where they are allowed.
const REACHED: &[(&str, Make)] = &[
    ("request_key", || raw(libc::SYS_request_key, [c"user".into(), c"probe-none".into(), 0.into(), 0.into()])),
    ("init_module", || raw(libc::SYS_init_module, [0.into(), 0.into(), c"".into()])),
    ("finit_module", || raw(libc::SYS_finit_module, [(-1).into(), c"".into(), 0.into()])),
    ("kexec_load", || raw(libc::SYS_kexec_load, [0.into(), 0.into(), 0.into(), 0xdead.into()])),
    ("reboot", || raw(libc::SYS_reboot, [0.into(), 0.into(), 0.into()])),
    ("swapon", || raw(libc::SYS_swapon, [c"".into(), 0.into()])),
    ("open_by_handle_at", open_by_handle_at),
];

/// `call <name>`: makes it.
pub(super) fn call(arguments: &[String]) -> Attempt {
    let name = text(arguments, 0, "call")?;
    if let Some((_, make)) = USED.iter().find(|(known, _)| *known == name) {
        at(name, make())?;
        return Ok(format!("{name} was done"));
    }
    let Some((_, make)) = REACHED.iter().find(|(known, _)| *known == name) else {
        return Err(untried(format!("there is no call `{name}`")));
    };
    match make() {
        Ok(_) => Ok(format!("{name} was done")),
        Err(errno @ (Errno::PERM | Errno::NOSYS | Errno::ACCESS)) => at(name, Err(errno)),
        Err(errno) => Ok(format!("{name} was allowed, and looked at its arguments: {}", name_of(errno))),
    }
}

fn bpf() -> Result<i64, Errno> {
    // BPF_MAP_CREATE: an array of one value, four bytes each.
    let mut attributes = [0_u8; 32];
    for (at, value) in [(0, 2_u8), (4, 4), (8, 4), (12, 1)] {
        attributes[at] = value;
    }
    raw(libc::SYS_bpf, [0.into(), (&mut attributes[..]).into(), 32.into()])
}

fn perf() -> Result<i64, Errno> {
    // struct perf_event_attr: software clock, its size, and neither kernel nor hypervisor counted.
    let mut attributes = [0_u8; 112];
    (attributes[0], attributes[4], attributes[40]) = (1, 112, 0b0110_0000);
    raw(libc::SYS_perf_event_open, [(&mut attributes[..]).into(), 0.into(), (-1).into(), (-1).into(), 0.into()])
}

/// Sets the frequency of the clock to what it is.
fn adjtimex() -> Result<i64, Errno> {
    let mut timex = [0_u8; 256];
    raw(libc::SYS_adjtimex, [(&mut timex[..]).into()])?;
    timex[..4].copy_from_slice(&libc::ADJ_FREQUENCY.to_ne_bytes());
    raw(libc::SYS_adjtimex, [(&mut timex[..]).into()])
}

/// Sets the name of the machine to what it is.
fn sethostname() -> Result<i64, Errno> {
    let system = rustix::system::uname();
    let name = system.nodename();
    let length = i64::try_from(name.to_bytes().len()).unwrap_or_default();
    raw(libc::SYS_sethostname, [name.into(), length.into()])
}

fn open_by_handle_at() -> Result<i64, Errno> {
    // struct file_handle: eight bytes of a type that no file system has.
    let mut handle = [0_u8; 16];
    (handle[0], handle[4]) = (8, 0x7f);
    let root = std::fs::File::open("/").map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    raw(libc::SYS_open_by_handle_at, [root.as_raw_fd().into(), (&mut handle[..]).into(), 0.into()])
}

/// `tiocsti`: types into a terminal, as if somebody sat there: a command that shares one with a person's shell would be
/// that person. A terminal of our own shows whether the call is allowed.
pub(super) fn tiocsti(_: &[String]) -> Attempt {
    let master = std::fs::File::options().read(true).write(true).open("/dev/ptmx")?;
    let ioctl = |fd: i64, request: i64, argument: Arg<'_>| raw(libc::SYS_ioctl, [fd.into(), request.into(), argument]);
    let number = |request: u64| i64::try_from(request).unwrap_or_default();
    let master = i64::from(master.as_raw_fd());
    let mut unlocked = [0_u8; 4];
    at("TIOCSPTLCK", ioctl(master, number(libc::TIOCSPTLCK), (&mut unlocked[..]).into()))?;
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let terminal = at("TIOCGPTPEER", ioctl(master, number(libc::TIOCGPTPEER), flags.into()))?;
    at("setsid", raw(libc::SYS_setsid, []))?;
    // The end of a terminal is told to whoever it belongs to.
    ignore(libc::SIGHUP)?;
    at("TIOCSCTTY", ioctl(terminal, number(libc::TIOCSCTTY), 0.into()))?;
    let typed = |request: i64| ioctl(terminal, request, c"x".into());
    // The kernel looks at 32 bits of the request, a careless filter at 64.
    let request = number(libc::TIOCSTI);
    let first = typed(request);
    if first.is_ok() {
        return Ok("typed into a terminal".to_owned());
    }
    if typed(request | 1 << 32).is_ok() {
        return Ok("typed into a terminal, by a request with a bit too many".to_owned());
    }
    at("TIOCSTI", first).map(|_| String::new())
}

/// `i386`: calls the kernel by its other table, whose numbers mean something else.
#[cfg(target_arch = "x86_64")]
pub(super) fn i386(_: &[String]) -> Attempt {
    let own = i64::from(std::process::id());
    match getpid_of_i386() {
        answer if answer == own => Ok("calls by the numbers of i386 are answered".to_owned()),
        answer => Err(blocked(format!("answered {answer}"))),
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn i386(_: &[String]) -> Attempt {
    Err(untried("this machine has no such table"))
}

/// `x32`: the same for the third table of x86-64.
pub(super) fn x32(_: &[String]) -> Attempt {
    if !cfg!(target_arch = "x86_64") {
        return Err(untried("this machine has no such table"));
    }
    at("getpid of x32", raw(libc::SYS_getpid | 0x4000_0000, []))?;
    Ok("calls by the numbers of x32 are answered".to_owned())
}

/// `host-kernel <release>`: runs on the kernel of this release.
pub(super) fn host_kernel(arguments: &[String]) -> Attempt {
    let release = text(arguments, 0, "release")?;
    let system = rustix::system::uname();
    let seen = system.release().to_string_lossy().into_owned();
    let version = std::fs::read_to_string("/proc/version").unwrap_or_default();
    if seen == release || version.contains(release) {
        return Ok(format!("the kernel is {seen}"));
    }
    let mut log = [0_u8; 256];
    let log = match raw(libc::SYS_syslog, [3.into(), (&mut log[..]).into(), 256.into()]) {
        Ok(_) => String::from_utf8_lossy(&log).lines().next().unwrap_or_default().trim_matches('\0').to_owned(),
        Err(errno) => name_of(errno),
    };
    Err(Stop::Blocked(format!("the kernel is {seen}, and its log begins: {log}")))
}
