//! What stands outside, to be read, reached and killed: a file, a variable, a descriptor, sockets of every kind, a process.
//! All of it can be had by whoever is not confined; so a probe that does not get it was held back.

use crate::confine;
use crate::probe;
use crate::settings::Settings;
use rustix::fs::statvfs;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const MIB: u64 = 1 << 20;

/// The upstream that is judged, and the gateway it belongs to.
pub struct Gateway<'a> {
    /// What the upstream was started with.
    pub settings: &'a Settings,
    /// As whom it runs; `None` for our own user.
    pub user: Option<(u32, u32)>,
    /// The socket of the gateway's operators.
    pub operator_socket: &'a Path,
    /// The socket on which the upstream answers.
    pub upstream_socket: &'a Path,
    /// The cgroups in which the upstream makes one for each command.
    pub cgroups: &'a [PathBuf],
    /// What stands in the environment of the gateway, and of nothing that it starts.
    pub secret: &'a str,
}

/// What stands outside. Gone when it is dropped.
pub struct Outside {
    folder: PathBuf,
    /// Names the canaries of this run, and of no other.
    mark: String,
    values: BTreeMap<&'static str, Result<String, String>>,
    victim: Option<Child>,
    cgroups: Vec<PathBuf>,
    n_marks: Cell<u32>,
    /// Open in us without CLOEXEC, as a descriptor that a careless gateway has: whoever starts a process has to close it.
    _leaking: File,
    _sockets: Vec<UnixListener>,
}

impl Outside {
    /// Puts up what needs to be there before the upstream is started.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn new() -> io::Result<Outside> {
        let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
        let mark = format!("verify-portcullis-{}", uuid.trim());
        let folder = std::env::temp_dir().join(&mark);
        std::fs::create_dir(&folder)?;
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
        std::fs::create_dir(folder.join("bare"))?;
        let canary = folder.join("canary");
        // The text is not the name: a path may be repeated by whoever refuses it.
        std::fs::write(&canary, text_of(&mark))?;
        let leaking = File::open(&canary)?;
        fcntl_setfd(&leaking, FdFlags::empty())?;
        let mut outside = Outside {
            values: BTreeMap::new(),
            victim: None,
            cgroups: Vec::new(),
            n_marks: Cell::new(0),
            _leaking: leaking,
            _sockets: Vec::new(),
            folder,
            mark,
        };
        outside.put("canary", canary.to_string_lossy());
        outside.put("mark", outside.mark.clone());
        outside.put("release", rustix::system::uname().release().to_string_lossy());
        outside.put_sockets()?;
        Ok(outside)
    }

    /// Learns what is to be judged, and puts up what depends on it.
    ///
    /// # Errors
    /// What is put up cannot be given to the upstream's user.
    pub fn aim(&mut self, gateway: &Gateway<'_>) -> io::Result<()> {
        if let Some((uid, gid)) = gateway.user {
            for path in [self.folder.clone(), self.bare(), self.folder.join("canary")] {
                chown(path, Some(uid), Some(gid))?;
            }
        }
        self.put("secret", gateway.secret);
        self.put_victim(gateway.user)?;
        for (name, path) in [("operator", gateway.operator_socket), ("upstream", gateway.upstream_socket)] {
            let path = std::path::absolute(path)?;
            let found = path.exists().then(|| path.display().to_string());
            self.values.insert(name, found.ok_or_else(|| format!("there is no {}", path.display())));
        }
        self.cgroups = gateway.cgroups.to_vec();
        self.put_limits(gateway.settings);
        Ok(())
    }

    /// A folder that belongs to the upstream's user, for commands that run outside.
    pub fn bare(&self) -> PathBuf {
        self.folder.join("bare")
    }

    fn put(&mut self, name: &'static str, value: impl Into<String>) {
        self.values.insert(name, Ok(value.into()));
    }

    fn put_sockets(&mut self) -> io::Result<()> {
        let path = self.folder.join("socket");
        let by_path = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o777))?;
        let by_name = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&self.mark)?)?;
        self.put("unix", path.to_string_lossy());
        self.put("abstract", self.mark.clone());
        self._sockets = vec![by_path, by_name];
        let loopbacks = [("4", IpAddr::from(Ipv4Addr::LOCALHOST)), ("6", IpAddr::from(Ipv6Addr::LOCALHOST))];
        let names = [("tcp4", "udp4"), ("tcp6", "udp6")];
        for ((tcp, udp), (version, address)) in names.into_iter().zip(loopbacks) {
            let none = |error: io::Error| format!("no loopback of IPv{version}: {error}");
            self.values.insert(tcp, greet(address).map(|address| address.to_string()).map_err(none));
            self.values.insert(udp, echo(address).map(|address| address.to_string()).map_err(none));
        }
        let own = own_address().and_then(|address| greet(address).ok()).map(|address| address.to_string());
        self.values.insert("own-address", own.ok_or_else(|| "this host has no address in a network".to_owned()));
        Ok(())
    }

    #[expect(clippy::disallowed_methods, reason = "a process outside, for commands inside to look for")]
    fn put_victim(&mut self, user: Option<(u32, u32)>) -> io::Result<()> {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("portcullis")
            .args([probe::ARGUMENT, "victim", &self.mark, "3600"])
            .current_dir("/")
            .process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn()?;
        self.put("victim", child.id().to_string());
        self.victim = Some(child);
        Ok(())
    }

    /// A little more than is allowed, where this machine has that much.
    fn put_limits(&mut self, settings: &Settings) {
        self.put("processes", (settings.processes + 64).to_string());
        self.put("cpu", settings.cpu_millis.to_string());
        self.put("burners", (settings.cpu_millis.div_ceil(1000) + 1).to_string());
        self.put("big", (settings.quota + MIB).to_string());
        let memory = settings.memory + settings.memory / 4;
        let is_less = |wanted: u64, there: u64| if wanted < there / 2 { Ok(wanted.to_string()) } else { Err(()) };
        let too_little = |wanted: u64, what: &str, there: u64| {
            format!("to try with {} MiB, {} MiB of {what} here are too few", wanted / MIB, there / MIB)
        };
        let free = statvfs(&self.folder).map_or(0, |found| found.f_bavail * found.f_frsize);
        for (name, wanted, what, there) in [
            ("memory", memory, "memory", available_memory()),
            ("tmp", settings.tmp + 32 * MIB, "disk", free),
            ("quota", settings.quota + 64 * MIB, "disk", free),
        ] {
            self.values.insert(name, is_less(wanted, there).map_err(|()| too_little(wanted, what, there)));
        }
        let procs = self.cgroups.first().map(|folder| folder.join("cgroup.procs").display().to_string());
        self.values.insert("cgroup", procs.ok_or_else(|| WITHOUT_CGROUPS.to_owned()));
        if self.cgroups.is_empty() {
            // Not held, and the configuration says so: neither a pass nor a surprise.
            for name in ["memory", "cpu"] {
                self.values.insert(name, Err(WITHOUT_CGROUPS.to_owned()));
            }
        }
    }

    /// The words of a probe, with what stands outside put in for `{name}`.
    ///
    /// # Errors
    /// Something that it needs is not there.
    pub fn arguments(&self, line: &str, inner: &str) -> Result<Vec<String>, String> {
        line.split(' ').map(|word| self.fill(word, inner)).collect()
    }

    fn fill(&self, word: &str, inner: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = word;
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            filled.push_str(before);
            match (name, self.values.get(name)) {
                ("inner", _) => filled.push_str(inner),
                (_, Some(Ok(value))) => filled.push_str(value),
                (_, Some(Err(why))) => return Err(why.clone()),
                (_, None) => return Err(format!("there is no `{name}`")),
            }
            rest = after;
        }
        Ok(filled + rest)
    }

    /// Where the canary is.
    pub(super) fn canary(&self) -> PathBuf {
        self.folder.join("canary")
    }

    /// What stands in it.
    pub(super) fn canary_text(&self) -> String {
        text_of(&self.mark)
    }

    /// A path outside that the upstream's user may write to.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A mark that no process has yet.
    pub(super) fn next_mark(&self) -> String {
        self.n_marks.set(self.n_marks.get() + 1);
        format!("{}-{}", self.mark, self.n_marks.get())
    }

    /// Whether a process anywhere on this host has this among its arguments.
    pub(super) fn has_process(&self, mark: &str) -> bool {
        probe::is_running(mark)
    }

    /// Cgroups of commands that are there now.
    pub(super) fn cgroups(&self) -> usize {
        let within = |folder: &PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let is_of_a_command = |entry: &std::fs::DirEntry| {
            entry.file_name().as_encoded_bytes().starts_with(confine::LEAF.as_bytes()) && entry.path().is_dir()
        };
        self.cgroups.iter().flat_map(within).filter(is_of_a_command).count()
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Some(victim) = &mut self.victim {
            if let Some(group) = i32::try_from(victim.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            drop(victim.wait());
        }
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

const WITHOUT_CGROUPS: &str = "without cgroups, as the configuration says, this is not limited as a whole";

/// What the canary says. Not a part of any path.
fn text_of(mark: &str) -> String {
    format!("CANARY {}\n", mark.chars().rev().collect::<String>())
}

/// Answers whoever connects.
fn greet(address: IpAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((address, 0))?;
    let address = listener.local_addr()?;
    // Both end with this program, which does nothing else.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            drop((&stream).write_all(b"hello\n"));
        }
    });
    Ok(address)
}

/// Sends datagrams back.
fn echo(address: IpAddr) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind((address, 0))?;
    let address = socket.local_addr()?;
    std::thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((n, from)) = socket.recv_from(&mut datagram) {
            drop(socket.send_to(&datagram[..n], from));
        }
    });
    Ok(address)
}

/// The address with which this host would go to the network. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // TEST-NET-1, RFC 5737.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

fn available_memory() -> u64 {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = known.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}
