//! What is claimed, and how it is tried. `docs/sandbox.md` has the same list, and a test that says so.

use super::checks::Check;
use super::games::Game;
use crate::settings::Backend;

/// One claim.
#[derive(Debug)]
pub struct Claim {
    /// A short name that stays.
    pub id: &'static str,
    /// What is claimed, as a sentence.
    pub sentence: &'static str,
    /// How it is tried.
    pub tried: Tried,
    /// Where it is claimed.
    pub scope: Scope,
}

/// How a claim is tried.
#[derive(Clone, Copy, Debug)]
pub enum Tried {
    /// By a probe; `{name}` stands for what stands outside.
    Probe(&'static str),
    /// By more than one.
    Check(Check),
    /// By a trick that is played on the file tools.
    Game(Game),
}

/// Where a claim is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everywhere.
    Always,
    /// Of the host's kernel. gVisor answers such calls itself: what it allows does not reach the host, and shows nothing.
    HostKernel,
    /// Where gVisor is the backend.
    Gvisor,
}

// === impl Claim ===

impl Claim {
    /// Whether this backend makes it. The control (`None`) is tried for all that the default backend claims.
    pub fn is_made_for(&self, backend: Option<&Backend>) -> bool {
        self.scope != Scope::Gvisor || matches!(backend, Some(Backend::Gvisor { .. }))
    }
}

/// All claims, as a table in Markdown.
pub fn table() -> String {
    let mut table = String::from("| Claim | Name | Tried by | Where |\n|---|---|---|---|\n");
    for Claim { id, sentence, tried, scope } in CLAIMS {
        let tried = match tried {
            Tried::Probe(line) => format!("`{line}`"),
            Tried::Check(_) => "a command or two, and a look at what is left".to_owned(),
            Tried::Game(_) => "what a command leaves, and a file tool that is asked for it".to_owned(),
        };
        let place = match scope {
            Scope::Always => "everywhere",
            Scope::HostKernel => "the host's kernel",
            Scope::Gvisor => "gVisor",
        };
        table.push_str(&format!("| {sentence} | `{id}` | {tried} | {place} |\n"));
    }
    table
}

const fn probe(id: &'static str, sentence: &'static str, line: &'static str) -> Claim {
    Claim { id, sentence, tried: Tried::Probe(line), scope: Scope::Always }
}

const fn kernel(id: &'static str, sentence: &'static str, line: &'static str) -> Claim {
    Claim { id, sentence, tried: Tried::Probe(line), scope: Scope::HostKernel }
}

const fn check(id: &'static str, sentence: &'static str, check: Check) -> Claim {
    Claim { id, sentence, tried: Tried::Check(check), scope: Scope::Always }
}

const fn game(id: &'static str, sentence: &'static str, game: Game) -> Claim {
    Claim { id, sentence, tried: Tried::Game(game), scope: Scope::Always }
}

/// All claims, in the order in which they are tried.
#[rustfmt::skip]
pub const CLAIMS: &[Claim] = &[
    Claim { id: "kernel", sentence: "a command does not run on the host's kernel", tried: Tried::Probe("host-kernel {release}"), scope: Scope::Gvisor },
    // Files of the host.
    probe("host-file", "a command cannot read a file of the host", "read {canary}"),
    probe("host-file-by-init", "a command cannot read a file of the host by way of /proc/1/root", "read /proc/1/root{canary}"),
    probe("host-file-by-proc", "a command cannot read a file of the host by way of another process's root", "read /proc/{victim}/root{canary}"),
    probe("shadow", "a command cannot read the host's password hashes", "read /etc/shadow"),
    probe("homes", "a command cannot see anybody's home", "list /home"),
    probe("root-home", "a command cannot see root's home", "list /root"),
    probe("programs", "a command cannot change the host's programs", "open-write /usr/bin/env"),
    kernel("devices", "a command sees no device but the harmless ones", "devices 0"),
    probe("device-memory", "a command cannot read the machine's memory", "read /dev/mem"),
    probe("device-log", "a command cannot read the kernel's log by its device", "read /dev/kmsg"),
    probe("device-kvm", "a command cannot start virtual machines", "open-write /dev/kvm"),
    kernel("device-fuse", "a command cannot be a file system", "open-write /dev/fuse"),
    kernel("core-pattern", "a command cannot have the kernel run a program", "open-write /proc/sys/kernel/core_pattern"),
    kernel("sysctl", "a command cannot change settings of the kernel", "open-write /proc/sys/vm/drop_caches"),
    kernel("sysrq", "a command cannot ask the kernel to crash", "open-write /proc/sysrq-trigger"),
    probe("cgroup", "a command cannot leave its cgroup", "open-write {cgroup}"),
    probe("mknod-char", "a command cannot make a character device", "mknod char"),
    probe("mknod-block", "a command cannot make a block device", "mknod block"),
    probe("file-capability", "a command cannot give a file capabilities", "file-capability"),
    probe("setuid-chmod", "no setuid file by chmod", "setuid chmod"),
    probe("setuid-fchmod", "no setuid file by fchmod", "setuid fchmod"),
    probe("setuid-fchmodat", "no setuid file by fchmodat", "setuid fchmodat"),
    probe("setuid-fchmodat2", "no setuid file by fchmodat2", "setuid fchmodat2"),
    probe("setuid-open", "no setuid file by open", "setuid open"),
    probe("setuid-openat", "no setuid file by openat", "setuid openat"),
    probe("setuid-openat2", "no setuid file by openat2", "setuid openat2"),
    probe("setuid-creat", "no setuid file by creat", "setuid creat"),
    probe("setuid-mknod", "no setuid file by mknod", "setuid mknod"),
    probe("setuid-mknodat", "no setuid file by mknodat", "setuid mknodat"),
    probe("setgid-file", "no setgid file", "setuid setgid"),
    probe("setgid-folder", "no setgid folder", "setuid folder"),
    // The network, and sockets of other processes.
    probe("tcp", "a command cannot reach the host's loopback by TCP", "tcp {tcp4}"),
    probe("tcp-ipv6", "a command cannot reach the host's loopback by TCP over IPv6", "tcp {tcp6}"),
    probe("tcp-own-address", "a command cannot reach the host by its address in the network", "tcp {own-address}"),
    probe("udp", "a command cannot reach the host's loopback by UDP", "udp {udp4}"),
    probe("udp-ipv6", "a command cannot reach the host's loopback by UDP over IPv6", "udp {udp6}"),
    probe("proxy", "a command cannot reach the host's loopback by the proxy that it is given, if it is", "proxy {tcp4}"),
    probe("unix", "a command cannot connect to a socket of the host by its path", "unix {unix}"),
    probe("abstract", "a command cannot connect to an abstract socket of the host", "abstract {abstract}"),
    probe("operator-socket", "a command cannot connect to the socket of the gateway's operators", "unix {operator}"),
    probe("upstream-socket", "a command cannot connect to the socket of its own upstream", "unix {upstream}"),
    kernel("netlink", "a command has no netlink sockets, but for its own devices and routes", "socket netlink raw 9"),
    kernel("packet", "a command has no packet sockets", "socket packet dgram 0"),
    kernel("raw", "a command has no raw sockets", "socket inet raw 1"),
    kernel("alg", "a command has no sockets to the kernel's ciphers", "socket alg seqpacket 0"),
    kernel("vsock", "a command has no sockets to the hypervisor", "socket vsock stream 0"),
    // Other processes, and the gateway's.
    probe("processes", "a command sees its own processes only", "processes 8"),
    probe("signal", "a command cannot signal a process of the host", "signal {victim} {mark}"),
    probe("ptrace", "a command cannot trace a process of the host", "ptrace {victim} {mark}"),
    probe("vm-read", "a command cannot read a process of the host by process_vm_readv", "vm-read {victim} {mark}"),
    probe("proc-mem", "a command cannot read a process of the host by /proc/<pid>/mem", "mem {victim} {mark}"),
    probe("pidfd-getfd", "a command cannot take a descriptor of a process of the host", "take-descriptor {victim} {mark}"),
    probe("environment", "a command cannot read the environment of the gateway, nor find it in its own", "environ {secret}"),
    kernel("ptrace-own", "a command has no ptrace, not even for its own", "ptrace-own"),
    // What a process is allowed by its identity.
    kernel("capabilities", "a command has no capabilities", "status CapEff 0"),
    kernel("bounding-set", "a command can gain no capabilities", "status CapBnd 0"),
    kernel("no-new-privileges", "a command can gain no privileges by what it executes", "status NoNewPrivs 1"),
    kernel("seccomp", "a command's system calls are filtered", "status Seccomp 2"),
    kernel("setuid", "a command cannot become root", "become 0"),
    probe("descriptors", "a command has no descriptors but stdin, stdout and stderr", "descriptors"),
    probe("descriptor", "a command does not inherit a file that is open in the gateway", "descriptors {mark}"),
    probe("terminal", "a command has no terminal", "terminal"),
    kernel("tiocsti", "a command cannot type into a terminal", "tiocsti"),
    // Namespaces and mounts.
    kernel("userns-unshare", "no user namespace by unshare", "user-namespace unshare"),
    kernel("userns-clone", "no user namespace by clone", "user-namespace clone"),
    kernel("userns-clone3", "no user namespace by clone3", "user-namespace clone3"),
    kernel("unshare-mount", "no mount namespace", "unshare mount"),
    kernel("unshare-network", "no network namespace", "unshare network"),
    kernel("unshare-pid", "no pid namespace", "unshare pid"),
    kernel("unshare-ipc", "no ipc namespace", "unshare ipc"),
    kernel("unshare-uts", "no uts namespace", "unshare uts"),
    kernel("unshare-cgroup", "no cgroup namespace", "unshare cgroup"),
    kernel("setns", "a command cannot enter a namespace", "setns"),
    kernel("mount", "a command cannot mount", "mount"),
    kernel("mount-api", "a command cannot mount by the newer calls", "mount-api"),
    kernel("pivot-root", "a command cannot change its root by pivot_root", "pivot-root"),
    kernel("chroot", "a command cannot change its root by chroot", "chroot"),
    // Parts of the kernel without use for commands.
    kernel("io-uring", "no io_uring", "call io_uring"),
    kernel("userfaultfd", "no userfaultfd", "call userfaultfd"),
    kernel("bpf", "no bpf", "call bpf"),
    kernel("perf", "no perf events", "call perf_event_open"),
    kernel("keyctl", "no keyrings", "call keyctl"),
    kernel("add-key", "no keys", "call add_key"),
    kernel("request-key", "no requests for keys", "call request_key"),
    kernel("personality", "no other personality", "call personality"),
    kernel("modules", "no kernel modules", "call init_module"),
    kernel("modules-by-file", "no kernel modules from a file", "call finit_module"),
    kernel("kexec", "no other kernel", "call kexec_load"),
    kernel("reboot", "no reboot", "call reboot"),
    kernel("swapon", "no swapping", "call swapon"),
    kernel("file-handles", "no files by their handles, past every folder", "call open_by_handle_at"),
    kernel("clock", "a command cannot change the clock", "call adjtimex"),
    kernel("hostname", "a command cannot change the host's name", "call sethostname"),
    kernel("kernel-log", "a command cannot read the kernel's log", "call syslog"),
    kernel("i386", "no way past the filter by the system calls of i386", "i386"),
    kernel("x32", "no way past the filter by the system calls of x32", "x32"),
    // Limits.
    probe("fork-bomb", "a command has no more processes than it may", "forks {processes}"),
    probe("memory-bomb", "a command has no more memory than it may, in however many processes", "memory {memory} 5"),
    probe("tmp-flood", "a command cannot have more in /tmp than it may", "fill /tmp {tmp}"),
    probe("shm-flood", "a command cannot have more in /dev/shm than it may", "fill /dev/shm {tmp}"),
    probe("workspace-flood", "a command cannot have more in the workspace than its quota", "fill . {quota}"),
    probe("big-file", "a command cannot make a file that is larger than its quota", "big-file {big}"),
    kernel("cpu", "a command has no more processor time than it may", "burn 2000 {burners} {cpu}"),
    check("output-flood", "a flood of output is cut, and it is said", Check::Output),
    check("timeout", "when a command's time is over, all that it started ends", Check::Timeout),
    check("left-behind", "when a command ends, all that it started ends", Check::LeftBehind),
    check("held-output", "a call does not wait for what a command left behind", Check::HeldOutput),
    check("leftovers", "nothing of a command is left on the host", Check::Leftovers),
    check("tmp", "a command does not see what another one left in /tmp", Check::Tmp),
    check("together", "commands that run at the same time do not see each other", Check::Together),
    // The file tools.
    game("path-absolute", "the file tools follow no path from the root", Game::AbsolutePath),
    game("path-climbing", "the file tools follow no path that climbs out", Game::Climbing),
    game("link-absolute", "the file tools follow no link out", Game::AbsoluteLink),
    game("link-climbing", "the file tools follow no link that climbs out", Game::ClimbingLink),
    game("link-folder", "the file tools go through no link out", Game::FolderLink),
    game("link-listed", "the file tools list nothing through a link out", Game::ListedLink),
    game("link-hard", "the file tools read no second name of a file outside", Game::HardLink),
    game("link-proc", "the file tools follow no link into /proc", Game::ProcLink),
    game("link-written", "the file tools write through no link out", Game::WrittenLink),
    game("link-written-beneath", "the file tools write beneath no link out", Game::WrittenBeneath),
    game("pipe", "the file tools do not wait for a pipe", Game::Pipe),
    game("raced", "the file tools are not raced by a folder that turns into a link", Game::Swap),
];
