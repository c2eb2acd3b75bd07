//! The program is run here as the kernel would run it, statement by statement.

use super::*;

const ARCH: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };

/// What the kernel makes of a call.
#[derive(Debug, PartialEq)]
enum Verdict {
    Allowed,
    Refused(i32),
    Killed,
}

fn judge(call: libc::c_long, arguments: &[u64]) -> Verdict {
    judge_as(ARCH, call as u32, arguments)
}

fn judge_as(arch: u32, call: u32, arguments: &[u64]) -> Verdict {
    let bytes = program().expect("a program");
    let statements: Vec<_> = bytes.chunks_exact(8).collect();
    // struct seccomp_data, as words.
    let mut data = vec![call, arch, 0, 0];
    for at in 0..6 {
        let argument = arguments.get(at).copied().unwrap_or(0);
        data.extend([argument as u32, (argument >> 32) as u32]);
    }
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let statement = statements[at];
        let code = u32::from(u16::from_ne_bytes([statement[0], statement[1]]));
        let k = u32::from_ne_bytes([statement[4], statement[5], statement[6], statement[7]]);
        at += 1;
        let mut jump = |is_so: bool| at += usize::from(statement[if is_so { 2 } else { 3 }]);
        match code {
            0x20 => accumulator = data[k as usize / 4],
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => jump(accumulator == k),
            0x25 => jump(accumulator > k),
            0x35 => jump(accumulator >= k),
            0x06 if k == ALLOW => return Verdict::Allowed,
            0x06 if k & 0xffff_0000 == ERRNO => return Verdict::Refused((k & 0xffff) as i32),
            0x06 => return Verdict::Killed,
            other => panic!("statement {other:#x}"),
        }
    }
}

#[test]
fn it_fits_into_what_the_kernel_takes_and_a_pipe_holds() {
    let n_statements = program().expect("a program").len() / 8;

    assert!((200..4096).contains(&n_statements), "{n_statements}");
}

#[test]
fn usual_calls_are_allowed_and_those_of_another_table_or_of_the_future_are_not() {
    for call in [libc::SYS_read, libc::SYS_openat, libc::SYS_execve, libc::SYS_clone, libc::SYS_futex, libc::SYS_mmap] {
        assert_eq!(judge(call, &[]), Verdict::Allowed, "{call}");
    }
    // i386; x32; newer than the table.
    assert_eq!(judge_as(0x4000_0003, 3, &[]), Verdict::Killed);
    assert_eq!(judge_as(ARCH, 0x4000_0000 | libc::SYS_ioctl as u32, &[]), Verdict::Refused(libc::ENOSYS));
    assert_eq!(judge_as(ARCH, NEWEST, &[]), Verdict::Allowed);
    for call in [NEWEST + 1, NEWEST + 5, 0x3fff_ffff, u32::MAX] {
        assert_eq!(judge_as(ARCH, call, &[]), Verdict::Refused(libc::ENOSYS), "{call}");
    }
}

#[test]
fn what_stands_in_the_table_is_refused_whatever_its_arguments() {
    for call in FORBIDDEN.iter().chain(FORBIDDEN_HERE) {
        assert_eq!(judge(*call, &[]), Verdict::Refused(libc::EPERM), "{call}");
        assert_eq!(judge(*call, &[u64::MAX; 6]), Verdict::Refused(libc::EPERM), "{call}");
    }
    for call in MISSING {
        assert_eq!(judge(*call, &[u64::MAX; 6]), Verdict::Refused(libc::ENOSYS), "{call}");
    }
    assert_eq!(judge(libc::SYS_fallocate, &[]), Verdict::Refused(libc::EOPNOTSUPP));
}

#[test]
fn a_new_process_may_begin_no_namespace() {
    let usual = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::SIGCHLD;
    assert_eq!(judge(libc::SYS_clone, &[usual as u64]), Verdict::Allowed);

    for flag in NEW_NAMESPACES {
        let flags = (usual | flag) as u32;
        assert_eq!(judge(libc::SYS_clone, &[flags.into()]), Verdict::Refused(libc::EPERM), "{flag:#x}");
    }
}

#[test]
fn the_upper_half_of_an_argument_hides_nothing() {
    let junk = 0xdead_beef_0000_0000;

    assert_eq!(judge(libc::SYS_ioctl, &[0, junk | 0x5412]), Verdict::Refused(libc::EPERM));
    assert_eq!(judge(libc::SYS_ioctl, &[0, 0x5412]), Verdict::Refused(libc::EPERM));
    assert_eq!(judge(libc::SYS_ioctl, &[0, 0x5413]), Verdict::Allowed);
    assert_eq!(judge(libc::SYS_ioctl, &[0, junk | 0x4030_5828]), Verdict::Refused(libc::EOPNOTSUPP));
    assert_eq!(judge(libc::SYS_socket, &[junk | 40, 1]), Verdict::Refused(libc::EAFNOSUPPORT));
    assert_eq!(judge(libc::SYS_clone, &[junk | 0x1000_0000]), Verdict::Refused(libc::EPERM));
    assert_eq!(judge(libc::SYS_fchmodat, &[0, 0, junk | 0o4755]), Verdict::Refused(libc::EPERM));
}

#[test]
fn modes_that_lend_rights_are_refused_where_a_mode_counts() {
    for (call, mode) in MODES {
        let with = |bits: u64| (0..6).map(|at| if at == *mode { bits } else { 0 }).collect::<Vec<_>>();
        assert_eq!(judge(*call, &with(0o1777)), Verdict::Allowed, "{call}");
        for bits in [0o4000, 0o2000, 0o6755] {
            assert_eq!(judge(*call, &with(bits)), Verdict::Refused(libc::EPERM), "{call} {bits:o}");
        }
    }
    let open = |flags: i32, mode: u64| judge(libc::SYS_openat, &[0, 0, flags as u64, mode]);
    assert_eq!(open(libc::O_CREAT | libc::O_WRONLY, 0o4755), Verdict::Refused(libc::EPERM));
    assert_eq!(open(libc::O_TMPFILE | libc::O_WRONLY, 0o2755), Verdict::Refused(libc::EPERM));
    assert_eq!(open(libc::O_CREAT | libc::O_WRONLY, 0o755), Verdict::Allowed);
    assert_eq!(open(libc::O_RDONLY | libc::O_DIRECTORY, 0o6000), Verdict::Allowed);
}

#[test]
fn of_nodes_only_devices_are_refused() {
    for (kind, is_allowed) in [
        (libc::S_IFREG, true),
        (libc::S_IFIFO, true),
        (libc::S_IFSOCK, true),
        (libc::S_IFCHR, false),
        (libc::S_IFBLK, false),
        (libc::S_IFREG | libc::S_ISUID, false),
    ] {
        let expected = if is_allowed { Verdict::Allowed } else { Verdict::Refused(libc::EPERM) };
        assert_eq!(judge(libc::SYS_mknodat, &[0, 0, u64::from(kind | 0o644)]), expected, "{kind:o}");
    }
}

#[test]
fn sockets_are_of_known_families_and_protocols() {
    let socket = |family: i32, protocol: i32| judge(libc::SYS_socket, &[family as u64, 1, protocol as u64]);
    let (family, protocol) = (Verdict::Refused(libc::EAFNOSUPPORT), Verdict::Refused(libc::EPROTONOSUPPORT));
    for known in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
        assert_eq!(socket(known, 0), Verdict::Allowed, "{known}");
    }

    for other in (0..64).filter(|it| ![libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].contains(it)) {
        assert_eq!(socket(other, 0), family, "{other}");
    }
    for (known, number) in [(libc::AF_INET, 132), (libc::AF_INET6, 33), (libc::AF_INET, 262), (libc::AF_NETLINK, 9)] {
        assert_eq!(socket(known, number), protocol, "{known} {number}");
    }
    assert_eq!(judge(libc::SYS_socketpair, &[40, 1, 0]), family);
    assert_eq!(judge(libc::SYS_socketpair, &[1, 1, 0]), Verdict::Allowed);
}

#[test]
fn a_personality_is_the_usual_one_or_without_randomisation() {
    for (personality, is_allowed) in [(0, true), (0x4_0000, true), (0xffff_ffff, true), (0x40_0000, false), (8, false)]
    {
        let expected = if is_allowed { Verdict::Allowed } else { Verdict::Refused(libc::EPERM) };
        assert_eq!(judge(libc::SYS_personality, &[personality]), expected, "{personality:#x}");
    }
}
