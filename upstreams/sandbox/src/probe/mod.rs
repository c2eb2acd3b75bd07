//! What is tried inside a confinement: each probe is one small hostile act, done with system calls of our own, so that
//! nothing that happens to be installed, or not, makes it fail.
//!
//! `<program> probe <name> [argument…]` prints one line, `blocked: why`, `ALLOWED: what` or `untried: why`, and ends
//! with 0, 1 or 2. `verify` runs each inside and outside, and judges.

use crate::syscall;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// The host's files, and what a file may be.
mod files;
/// What a process is allowed by its identity: capabilities, descriptors, environment, terminal.
mod identity;
/// Parts of the kernel that a command has no use for.
mod kernel;
/// More of everything than there is.
mod load;
/// Mounts and namespaces.
mod namespaces;
/// Other machines, other processes' sockets.
mod network;
/// Other processes.
mod processes;
/// Setuid files, by every call that could make one.
mod setuid;

/// How a probe ends that did not come through.
#[derive(Debug)]
enum Stop {
    /// Something stands in the way.
    Blocked(String),
    /// It could not even be tried.
    Untried(String),
}

/// `Ok` is what the probe was able to do.
type Attempt = Result<String, Stop>;

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Stop::Blocked(name_of(errno))
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Blocked(Errno::from_io_error(&error).map_or_else(|| error.to_string(), name_of))
    }
}

/// What a name stands for: given arguments, it tries.
type Probe = fn(&[String]) -> Attempt;

/// By name.
const PROBES: &[(&str, Probe)] = &[
    ("read", files::read),
    ("open-write", files::open_write),
    ("list", files::list),
    ("mknod", files::mknod),
    ("file-capability", files::file_capability),
    ("devices", files::devices),
    ("setuid", setuid::make),
    ("tcp", network::tcp),
    ("udp", network::udp),
    ("proxy", network::proxy),
    ("unix", network::unix),
    ("abstract", network::abstract_name),
    ("socket", network::socket),
    ("processes", processes::count),
    ("signal", processes::signal),
    ("ptrace", processes::ptrace),
    ("ptrace-own", processes::ptrace_own),
    ("vm-read", processes::vm_read),
    ("mem", processes::mem),
    ("take-descriptor", processes::take_descriptor),
    ("environ", processes::environ),
    ("named", processes::named),
    ("victim", processes::victim),
    ("user-namespace", namespaces::user_namespace),
    ("unshare", namespaces::unshare),
    ("setns", namespaces::setns),
    ("mount", namespaces::mount),
    ("mount-api", namespaces::mount_api),
    ("pivot-root", namespaces::pivot_root),
    ("chroot", namespaces::chroot),
    ("call", kernel::call),
    ("tiocsti", kernel::tiocsti),
    ("i386", kernel::i386),
    ("x32", kernel::x32),
    ("host-kernel", kernel::host_kernel),
    ("status", identity::status),
    ("become", identity::become_user),
    ("descriptors", identity::descriptors),
    ("terminal", identity::terminal),
    ("forks", load::forks),
    ("memory", load::memory),
    ("fill", load::fill),
    ("big-file", load::big_file),
    ("shout", load::shout),
    ("burn", load::burn),
    ("daemon", load::daemon),
    ("swap", load::swap),
];

/// The argument that makes this program a probe.
pub(crate) const ARGUMENT: &str = "probe";

/// The whole life of a probe, if `arguments` say that this process is one. To be called before anything else, with one
/// thread and nothing open.
pub fn probe(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    (arguments.next()? == ARGUMENT).then(|| {
        let words: Vec<String> = arguments.map(|word| word.to_string_lossy().into_owned()).collect();
        attempt(&words)
    })
}

/// Tries what `arguments` name, prints how it went, and gives the exit status.
fn attempt(arguments: &[String]) -> ExitCode {
    let known = arguments.split_first().and_then(|(name, rest)| {
        PROBES.iter().find(|(known, _)| *known == name.as_str()).map(|(_, probe)| (probe, rest))
    });
    let Some((probe, rest)) = known else {
        return told(Err(Stop::Untried(format!("there is no probe {arguments:?}"))));
    };
    // In a copy, because a filter may answer by killing whoever asks.
    match syscall::fork() {
        Ok(None) => {
            let code = told(probe(rest));
            drop(io::stdout().flush());
            syscall::exit(i32::from(code != ExitCode::SUCCESS) + i32::from(code == ExitCode::from(2)));
        }
        Ok(Some(child)) => {
            let ended = waitpid(Some(child), WaitOptions::empty());
            sweep(child);
            match ended.map(|ended| ended.map(|(_, status)| (status.exit_status(), status.terminating_signal()))) {
                Ok(Some((Some(status), _))) => ExitCode::from(u8::try_from(status).unwrap_or(2)),
                Ok(Some((None, signal))) => told(Err(Stop::Blocked(killed(signal)))),
                Ok(None) => told(Err(Stop::Untried("the probe got lost".to_owned()))),
                Err(errno) => told(Err(Stop::Untried(format!("waitpid: {}", name_of(errno))))),
            }
        }
        Err(_) => told(probe(rest)),
    }
}

/// Removes what a probe has left in the working directory, because it was killed, or had gone where it could not.
fn sweep(probe: Pid) {
    let ending = format!("-{}", probe.as_raw_nonzero());
    for entry in std::fs::read_dir(".").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("probe-") && name.ends_with(&ending)) {
            drop(std::fs::remove_file(entry.path()).or_else(|_| std::fs::remove_dir_all(entry.path())));
        }
    }
}

fn killed(signal: Option<i32>) -> String {
    match signal {
        Some(libc::SIGSYS) => "killed by SIGSYS".to_owned(),
        Some(libc::SIGKILL) => "killed by SIGKILL".to_owned(),
        Some(signal) => format!("killed by signal {signal}"),
        None => "killed".to_owned(),
    }
}

fn told(attempt: Attempt) -> ExitCode {
    let (line, code) = match attempt {
        Ok(what) => (format!("ALLOWED: {what}"), 1),
        Err(Stop::Blocked(why)) => (format!("blocked: {why}"), 0),
        Err(Stop::Untried(why)) => (format!("untried: {why}"), 2),
    };
    // One line, whatever stands in it.
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
    drop(writeln!(io::stdout(), "{line}"));
    ExitCode::from(code)
}

/// Every probe there is.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PROBES.iter().map(|(name, _)| *name)
}

/// Whether a process that is seen from here has this among its arguments.
pub(crate) fn is_running(mark: &str) -> bool {
    processes::marked(mark).is_some()
}

// === What probes have in common ===

fn blocked(why: impl Into<String>) -> Stop {
    Stop::Blocked(why.into())
}

fn untried(why: impl Into<String>) -> Stop {
    Stop::Untried(why.into())
}

/// Says which step a refusal belongs to.
fn at<T>(step: &str, result: Result<T, Errno>) -> Result<T, Stop> {
    result.map_err(|errno| Stop::Blocked(format!("{step}: {}", name_of(errno))))
}

fn text<'a>(arguments: &'a [String], index: usize, what: &str) -> Result<&'a str, Stop> {
    arguments.get(index).map(String::as_str).ok_or_else(|| untried(format!("no {what} was given")))
}

fn number(arguments: &[String], index: usize, what: &str) -> Result<u64, Stop> {
    let text = text(arguments, index, what)?;
    text.parse().map_err(|_| untried(format!("{what}: `{text}` is no number")))
}

/// A name in the working directory that no other probe has.
fn scratch(what: &str) -> String {
    format!("probe-{what}-{}", std::process::id())
}

fn c_text(text: &str) -> Result<std::ffi::CString, Stop> {
    std::ffi::CString::new(text).map_err(|_| untried("a NUL in an argument"))
}

/// Ends this process with whoever started it.
fn end_with_parent() {
    let _ = syscall::raw(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG.into(), libc::SIGKILL.into()]);
}

/// Makes this process deaf to a signal.
fn ignore(signal: i32) -> Result<(), Stop> {
    // struct sigaction of the kernel: SIG_IGN, and nothing else.
    let mut action = [0_u8; 32];
    action[0] = 1;
    at(
        "sigaction",
        syscall::raw(libc::SYS_rt_sigaction, [signal.into(), (&mut action[..]).into(), 0.into(), 8.into()]),
    )?;
    Ok(())
}

/// Seconds and less, for probes that take their time.
#[expect(clippy::disallowed_methods, reason = "a probe measures the real clock, and is not tested with another one")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// As people who read manuals know it.
fn name_of(errno: Errno) -> String {
    const NAMES: &[(Errno, &str)] = &[
        (Errno::PERM, "EPERM"),
        (Errno::ACCESS, "EACCES"),
        (Errno::NOENT, "ENOENT"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::INVAL, "EINVAL"),
        (Errno::SRCH, "ESRCH"),
        (Errno::ROFS, "EROFS"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::DQUOT, "EDQUOT"),
        (Errno::FBIG, "EFBIG"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::NOMEM, "ENOMEM"),
        (Errno::AFNOSUPPORT, "EAFNOSUPPORT"),
        (Errno::PROTONOSUPPORT, "EPROTONOSUPPORT"),
        (Errno::NETUNREACH, "ENETUNREACH"),
        (Errno::CONNREFUSED, "ECONNREFUSED"),
        (Errno::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::NXIO, "ENXIO"),
        (Errno::NODEV, "ENODEV"),
        (Errno::IO, "EIO"),
        (Errno::BADF, "EBADF"),
        (Errno::FAULT, "EFAULT"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::USERS, "EUSERS"),
        (Errno::NOTSUP, "ENOTSUP"),
        (Errno::TIMEDOUT, "ETIMEDOUT"),
        (Errno::BUSY, "EBUSY"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::LOOP, "ELOOP"),
        (Errno::XDEV, "EXDEV"),
        (Errno::EXIST, "EEXIST"),
        (Errno::NOKEY, "ENOKEY"),
        (Errno::ISDIR, "EISDIR"),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == errno);
    known.map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}
