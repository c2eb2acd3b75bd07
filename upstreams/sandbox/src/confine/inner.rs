//! The inner stage: the first process inside, which is this program again. It takes its order from a socket, gives up
//! what is left to give up, starts the shell, and is init to everything in there: it collects what has ended, passes on
//! that all are to end, and says how the command did. When it ends, the kernel ends all the rest.

use super::protocol::{Limits, Order, Report, TERMINATE};
use super::{gvisor, landlock, protocol};
use crate::network;
use crate::syscall::raw;
use portcullis_local::descriptors;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, getrlimit, kill_process_group, set_dumpable_behavior,
    setrlimit, wait,
};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

/// The argument that makes this program the inner stage. The next one is the number of its socket, and the one after
/// that, where there is a proxy, of the socket on which that waits for what it shall listen on.
pub(super) const ARGUMENT: &str = "sandbox-inner";

/// Threads of this process, which count as the command's user's.
pub(super) const THREADS: u64 = 2;
/// Files that one process may have open.
const OPEN_FILES: u64 = 4096;
/// A line for the shell that limits the address space of each process to `$1` KiB, and then is the others in its place.
/// Their environment is among them, and not the shell's own: it may name what a shell loads or runs before its line.
const LIMITED: &str = r#"ulimit -v "$1" && shift && exec /usr/bin/env -i -- "$@""#;
/// What this process says when it could not do its part; nobody looks at it but a person.
const FAILED: u8 = 125;

/// The whole life of the inner stage, if `arguments` say that this process is it. To be called before anything else.
pub fn inner(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let mut inherited =
        || arguments.next().and_then(|number| descriptors::inherited(number.to_str()?.parse().ok()?).ok());
    let Some(socket) = inherited() else {
        let _ = writeln!(io::stderr(), "`portcullis {ARGUMENT}` is started by the sandbox, and by nobody else");
        return Some(ExitCode::from(FAILED));
    };
    let mut socket = UnixStream::from(socket);
    let outside = inherited().map(UnixStream::from);
    let report = confine_and_run(&mut socket, outside).unwrap_or_else(Report::Failed);
    let _ = report.write(&mut socket);
    Some(ExitCode::SUCCESS)
}

fn confine_and_run(socket: &mut UnixStream, outside: Option<UnixStream>) -> Result<Report, String> {
    // Else those we start could reach this socket through /proc.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|why| format!("PR_SET_DUMPABLE: {why}"))?;
    descriptors::close_on_exec().map_err(|why| format!("close_range: {why}"))?;
    let order = Order::read(socket).map_err(|why| format!("the order cannot be read: {why}"))?;
    if let Some(outside) = outside {
        network::send(&outside).map_err(|why| format!("the socket of the proxy: {why}"))?;
    }
    limit(order.limits).map_err(|why| format!("setrlimit: {why}"))?;
    let landlock = if order.landlock { landlock::restrict(&order.read_only, order.limits.file == 0)? } else { 0 };
    let Some(line) = &order.line else {
        look(&order)?;
        return Ok(Report::Holds { landlock });
    };
    let asks = socket.try_clone().map_err(|why| why.to_string())?;
    // Before there is a command that could have taken the last thread there may be.
    thread::Builder::new().stack_size(64 * 1024).spawn(|| obey(asks)).map_err(|why| format!("a thread: {why}"))?;
    let command = match start(line, &order) {
        Ok(command) => command,
        Err(why) => return Ok(Report::Refused(why)),
    };
    Report::Started.write(socket).map_err(|why| why.to_string())?;
    Ok(wait_for(command, socket))
}

fn limit(limits: Limits) -> io::Result<()> {
    let all = [
        (Resource::Core, 0),
        (Resource::Fsize, limits.file),
        (Resource::Nofile, OPEN_FILES),
        (Resource::Nproc, limits.processes),
    ];
    all.into_iter().try_for_each(|(resource, value)| {
        // Whoever started the gateway may have set it to less, and nobody here may raise it.
        let value = getrlimit(resource).maximum.map_or(value, |most| most.min(value));
        Ok(setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })?)
    })
}

fn start(line: &str, order: &Order) -> Result<Pid, String> {
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let cwd = Path::new(super::WORKSPACE).join(&order.cwd);
    match fs::metadata(&cwd) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(format!("{} is not a folder", cwd.display())),
        Err(why) => return Err(format!("{}: {why}", cwd.display())),
    }
    #[expect(clippy::disallowed_methods, reason = "this is what confinement is for")]
    let mut command = Command::new(shell);
    match order.limits.memory {
        // Not for this process, which has more address space than memory.
        Some(memory) => {
            let environment = order.environment.iter().map(|(name, value)| format!("{name}={value}"));
            command.args(["-c", LIMITED, shell, &(memory / 1024).to_string()]).args(environment);
            command.args([shell, "-c", line]).env_clear()
        }
        None => command.args(["-c", line]).env_clear().envs(order.environment.iter().cloned()),
    };
    command.current_dir(cwd);
    // A group of its own: what it sends to its group does not come here.
    let started = command.process_group(0).spawn().map_err(|why| format!("{shell}: {why}"))?;
    Ok(Pid::from_child(&started))
}

/// Does what is asked outside, and ends when nobody is there any more who could ask.
fn obey(mut asks: UnixStream) {
    let mut byte = [0];
    while matches!(asks.read(&mut byte), Ok(1)) {
        if byte[0] == TERMINATE {
            // kill(-1): all that this process may signal, but itself.
            let _ = kill_process_group(Pid::INIT, Signal::TERM);
        }
    }
    std::process::exit(0);
}

/// Collects all that end, ours and orphans, until it is the command.
fn wait_for(command: Pid, socket: &mut UnixStream) -> Report {
    let mut wrote = 0;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                let signal = status.terminating_signal().map(Report::Signalled);
                return signal.unwrap_or(Report::Exited(status.exit_status().unwrap_or_default()));
            }
            Ok(_) => {
                let now = collected();
                if now > wrote {
                    wrote = now;
                    // If nobody hears it, all ends soon.
                    let _ = Report::Wrote(wrote).write(socket);
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Report::Failed(format!("wait: {why}")),
        }
    }
}

/// What the processes that this one has collected, and those that they had collected, have written to disks, in bytes.
/// Nobody outside may ask the kernel that about this process (getrusage(2), `ru_oublock`).
fn collected() -> u64 {
    /// Two times of 16 bytes, and then eight other numbers of eight.
    const OUBLOCK: usize = 2 * 16 + 8 * 8;
    let mut usage = [0_u8; 512];
    let asked = raw(libc::SYS_getrusage, [libc::RUSAGE_CHILDREN.into(), (&mut usage[..]).into()]);
    let blocks = asked.ok().and(usage[OUBLOCK..].first_chunk()).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    blocks.saturating_mul(512)
}

/// Whether the confinement holds, from inside.
fn look(order: &protocol::Order) -> Result<(), String> {
    if !order.landlock {
        return gvisor::look();
    }
    let status = fs::read_to_string("/proc/self/status").map_err(|why| format!("/proc/self/status: {why}"))?;
    for expected in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        if !status.lines().any(|line| line == expected) {
            return Err(format!("/proc/self/status does not say {expected:?} inside"));
        }
    }
    if rustix::process::getpid() != Pid::INIT {
        return Err("the first process inside is not number 1: there is no process namespace".to_owned());
    }
    let devices = fs::read_to_string("/proc/net/dev").map_err(|why| format!("/proc/net/dev: {why}"))?;
    let mut devices = devices.lines().skip(2).filter_map(|line| line.split(':').next());
    if let Some(device) = devices.find(|device| device.trim() != "lo") {
        return Err(format!("there is a network device inside: {}", device.trim()));
    }
    for place in ["/", "/etc", "/usr", "/dev"] {
        if fs::write(Path::new(place).join("portcullis-probe"), "").is_ok() {
            return Err(format!("{place} can be written to inside"));
        }
    }
    Ok(())
}
