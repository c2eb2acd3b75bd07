//! Which system calls a command may make: a table of those that it may not, turned into one BPF program.
//!
//! The table names what is refused, not what is allowed, and ends with a ceiling: a call that is newer than the table
//! does not exist ([`NEWEST`]). So nothing unknown is let through, as with a table of what is allowed, and each line can
//! say why it stands here; what is left is what a build, a test run, or an interpreter makes. Namespaces have already
//! taken most of the sense out of these calls. The point is the kernel's code behind them: what cannot be called cannot
//! be exploited. Refused calls fail with an error that programs know how to go on from, none ends a program, but for
//! calls by another architecture's table (i386), whose numbers mean something else.
//!
//! Not kept out, on purpose: signals, pseudo-terminals, System V IPC, `execveat`, files in memory, nested seccomp and
//! Landlock, inotify. They end at the namespaces, at the cgroup, and at the process itself.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::collections::BTreeMap;

/// The newest call this table has looked at: mseal, of Linux 6.10. Numbers above it are the same on all architectures;
/// those of x32 have bit 30 set, and are above it too.
const NEWEST: u32 = libc::SYS_mseal as u32;

/// Refused with EPERM.
const FORBIDDEN: &[libc::c_long] = &[
    // Other namespaces and other trees of files.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    // Files by number, past the path that leads to them.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Memory and descriptors of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Keyrings have no namespace of their own.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Programs in the kernel, and looking into it.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_lookup_dcookie,
    libc::SYS_syslog,
    libc::SYS_fanotify_init,
    // The machine: its kernel, clock, swap, quotas, accounting, names.
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_acct,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    // Where memory lies, which no build needs to say.
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
];

/// Refused with EPERM, where there is such a call at all.
#[cfg(target_arch = "x86_64")]
const FORBIDDEN_HERE: &[libc::c_long] = &[
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
];
#[cfg(not(target_arch = "x86_64"))]
const FORBIDDEN_HERE: &[libc::c_long] = &[];

/// "No such call": programs that know these know what to do without them.
const MISSING: &[libc::c_long] = &[
    // Work that the kernel does past this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Stops the kernel in the middle of what it does for us.
    libc::SYS_userfaultfd,
    // Memory that cannot be swapped, seen or moved.
    libc::SYS_memfd_secret,
    // What they ask for stands in memory, where a filter cannot look: C libraries use clone and openat instead.
    libc::SYS_clone3,
    libc::SYS_openat2,
];

/// Flags of clone(2) that begin a namespace. CLONE_NEWTIME has no bit in its flags.
const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Typing on somebody's terminal, its paste buffer, another line discipline (a module), and the console.
const TERMINAL_IOCTLS: [u64; 4] = [0x5412, 0x541C, 0x5423, 0x541D];
/// Space for a file without writing to it (`FS_IOC_RESVSP`, `_RESVSP64`, `FS_IOC_ZERO_RANGE`), as by fallocate.
const SPACE_IOCTLS: [u64; 3] = [0x4030_5828, 0x4030_582A, 0x4030_5839];

/// What a personality may be: the usual one, that without address space randomisation (debuggers and sanitizers ask for
/// it, for themselves), and the question which one it is.
const PERSONALITIES: [u64; 3] = [0, 0x0004_0000, 0xffff_ffff];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The program, as `bwrap --seccomp` reads it.
///
/// # Errors
/// This program has no table for the architecture it runs on.
pub(super) fn program() -> Result<Vec<u8>, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|why| why.to_string())?;
    let parts = [
        (forbidden(), libc::EPERM),
        (every(MISSING), libc::ENOSYS),
        (space(), libc::EOPNOTSUPP),
        (families(), libc::EAFNOSUPPORT),
        (protocols(), libc::EPROTONOSUPPORT),
    ];
    let mut program = ceiling();
    for (rules, errno) in parts {
        let refuse = SeccompAction::Errno(errno as u32);
        let part = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(|why| why.to_string())?;
        program = followed_by(program, BpfProgram::try_from(part).map_err(|why| why.to_string())?);
    }
    Ok(program.iter().flat_map(to_bytes).collect())
}

/// A program that keeps files from being setuid or setgid, and nothing else: for whoever makes files on behalf of a
/// command that has a kernel of its own.
///
/// # Errors
/// This program has no table for the architecture it runs on.
pub(super) fn modes() -> Result<Vec<u8>, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|why| why.to_string())?;
    let mut program = BpfProgram::new();
    for (rules, errno) in [(file_modes(), libc::EPERM), (every(&[libc::SYS_openat2]), libc::ENOSYS)] {
        let refuse = SeccompAction::Errno(errno as u32);
        let part = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(|why| why.to_string())?;
        program = followed_by(program, BpfProgram::try_from(part).map_err(|why| why.to_string())?);
    }
    Ok(program.iter().flat_map(to_bytes).collect())
}

/// EPERM.
fn forbidden() -> Rules {
    let mut rules = every(FORBIDDEN);
    rules.extend(every(FORBIDDEN_HERE));
    let begins = |flag: i32| when(&[masked(0, flag as u64, flag as u64)]);
    rules.insert(libc::SYS_clone, NEW_NAMESPACES.iter().map(|flag| begins(*flag)).collect());
    rules.insert(libc::SYS_ioctl, TERMINAL_IOCTLS.iter().map(|request| when(&[equal(1, *request)])).collect());
    let other = PERSONALITIES.iter().map(|known| unequal(0, *known)).collect::<Vec<_>>();
    rules.insert(libc::SYS_personality, vec![when(&other)]);
    rules.extend(file_modes());
    rules
}

/// EPERM, too: setuid and setgid files, and devices.
fn file_modes() -> Rules {
    let mut rules = Rules::new();
    // A file that gives its owner's rights to whoever runs it would do so outside, too.
    for (call, mode) in MODES {
        rules.insert(*call, setuid(*mode).into_iter().map(|bits| when(&[bits])).collect());
    }
    for (call, flags) in OPENS {
        rules.insert(*call, opens(*flags));
    }
    for (call, mode) in NODES {
        let devices = [libc::S_IFCHR, libc::S_IFBLK].map(|kind| masked(*mode, u64::from(libc::S_IFMT), kind.into()));
        let refused = devices.into_iter().chain(setuid(*mode)).map(|bits| when(&[bits])).collect();
        rules.insert(*call, refused);
    }
    rules
}

/// Calls that set a file's mode, and the argument that is the mode.
#[cfg(target_arch = "x86_64")]
const MODES: &[(libc::c_long, u8)] = &[
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mkdir, 1),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_creat, 1),
];
#[cfg(not(target_arch = "x86_64"))]
const MODES: &[(libc::c_long, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (libc::SYS_fchmodat2, 2), (libc::SYS_mkdirat, 2)];

/// Calls that may make a file, and the argument that is the flags; the mode is the next one.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_open, 1), (libc::SYS_openat, 2)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[(libc::c_long, u8)] = &[(libc::SYS_openat, 2)];

/// Calls that make a node of any kind, and the argument that is kind and mode.
#[cfg(target_arch = "x86_64")]
const NODES: &[(libc::c_long, u8)] = &[(libc::SYS_mknod, 1), (libc::SYS_mknodat, 2)];
#[cfg(not(target_arch = "x86_64"))]
const NODES: &[(libc::c_long, u8)] = &[(libc::SYS_mknodat, 2)];

fn setuid(mode: u8) -> [SeccompCondition; 2] {
    [libc::S_ISUID, libc::S_ISGID].map(|bit| masked(mode, bit.into(), bit.into()))
}

/// The mode counts where a file is made; elsewhere that argument is whatever was there.
fn opens(flags: u8) -> Vec<SeccompRule> {
    let unnamed = libc::O_TMPFILE & !libc::O_DIRECTORY;
    let making = [libc::O_CREAT, unnamed].map(|flag| masked(flags, flag as u64, flag as u64));
    let both = |made: &SeccompCondition| setuid(flags + 1).map(|bits| when(&[made.clone(), bits]));
    making.iter().flat_map(both).collect()
}

/// EOPNOTSUPP, after which programs write zeros instead. A disk then fills no faster than it is written, and who
/// watches it sees it come.
fn space() -> Rules {
    let mut rules = every(&[libc::SYS_fallocate]);
    rules.insert(libc::SYS_ioctl, SPACE_IOCTLS.iter().map(|request| when(&[equal(1, *request)])).collect());
    rules
}

/// EAFNOSUPPORT: everything but UNIX, IP and netlink. A virtual machine's sockets (vsock) are in no network namespace;
/// packets and the kernel's ciphers (`AF_ALG`) are large, old, and of no use here.
fn families() -> Rules {
    let known = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let other = known.map(|family| unequal(0, family as u64));
    [libc::SYS_socket, libc::SYS_socketpair].into_iter().map(|call| (call, vec![when(&other)])).collect()
}

/// EPROTONOSUPPORT: of IP, only TCP, UDP and ICMP, since others would load a module each; of netlink, only what lists
/// devices and routes, since `getifaddrs` asks there (without it, Node's `os.networkInterfaces` throws, and half of its
/// test servers). Without capabilities it answers questions only, and about a network namespace that is empty.
fn protocols() -> Rules {
    let ip = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];
    let of = |family: i32, known: &[i32]| {
        let mut conditions = vec![equal(0, family as u64)];
        conditions.extend(known.iter().map(|protocol| unequal(2, *protocol as u64)));
        when(&conditions)
    };
    let refused = vec![of(libc::AF_INET, &ip), of(libc::AF_INET6, &ip), of(libc::AF_NETLINK, &[libc::NETLINK_ROUTE])];
    [(libc::SYS_socket, refused)].into_iter().collect()
}

fn every(calls: &[libc::c_long]) -> Rules {
    calls.iter().map(|call| (*call, Vec::new())).collect()
}

fn when(conditions: &[SeccompCondition]) -> SeccompRule {
    SeccompRule::new(conditions.to_vec()).expect("there is a condition")
}

// All of these are of the kernel's `unsigned int` or narrower: it does not look at the upper half, and nor do we.

fn masked(argument: u8, mask: u64, value: u64) -> SeccompCondition {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn equal(argument: u8, value: u64) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn unequal(argument: u8, value: u64) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).expect("a call has six arguments")
}

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

/// "No such call" for all above [`NEWEST`]. Which architecture's table is meant, the parts after it look at.
fn ceiling() -> BpfProgram {
    let statement = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, NEWEST),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, ERRNO | libc::ENOSYS as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, ALLOW),
    ]
}

/// One program for both: what the first would allow is for the second to say.
fn followed_by(mut first: BpfProgram, second: BpfProgram) -> BpfProgram {
    let end = first.len();
    for (at, statement) in first.iter_mut().enumerate() {
        if u32::from(statement.code) & 0x07 == libc::BPF_RET && statement.k == ALLOW {
            statement.code = (libc::BPF_JMP | libc::BPF_JA) as u16;
            statement.k = u32::try_from(end - at - 1).expect("the kernel takes 4096 statements");
        }
    }
    first.extend(second);
    first
}

fn to_bytes(statement: &sock_filter) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..2].copy_from_slice(&statement.code.to_ne_bytes());
    bytes[2] = statement.jt;
    bytes[3] = statement.jf;
    bytes[4..].copy_from_slice(&statement.k.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests;
