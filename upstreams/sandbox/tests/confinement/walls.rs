//! What commands cannot do.

use crate::world::{MIB, World};
use rustix::process::geteuid;
use serde_json::json;
use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

#[test]
fn nothing_of_the_host_is_there_but_its_programs() {
    let canary = tempfile::NamedTempFile::new().expect("a file");
    fs::write(canary.path(), "canary").expect("written");
    let mut world = World::new();

    let top = world.output("ls -x -w 0 /");
    let etc = world.output("ls /etc; cat /etc/passwd");

    for name in top.split_whitespace() {
        let known =
            ["bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "tmp", "usr", "var"];
        assert!(known.contains(&name) || name == "workspace", "{name}");
    }
    for name in ["shadow", "sudoers", "ssh", "machine-id", "hostname"] {
        assert!(!etc.lines().any(|line| line == name), "{name}");
    }
    assert_eq!(etc.lines().filter(|line| line.contains(":x:")).count(), 3);
    for path in [canary.path().to_str().expect("a name"), "/etc/shadow", "/root", "/home", "/var/log", "/sys", "/boot"]
    {
        assert_ne!(world.run(&format!("ls -d {path}")).end, "Exited(0)", "{path}");
    }
    assert_eq!(world.output("ls /usr/bin/env /dev/null"), "/dev/null\n/usr/bin/env\n");
}

#[test]
fn files_can_be_written_in_four_places_only() {
    let mut world = World::new();

    for place in ["/", "/etc", "/usr", "/usr/local/bin", "/dev", "/var", "/proc", "/proc/sys/kernel", "/dev/pts"] {
        assert_ne!(world.run(&format!("touch {place}/file")).end, "Exited(0)", "{place}");
    }
    for place in ["/workspace", "/tmp", "/var/tmp", "/run", "/dev/shm"] {
        world.output(&format!("touch {place}/file && rm {place}/file"));
    }
    assert_ne!(world.run("echo 1 > /proc/sys/kernel/core_pattern").end, "Exited(0)");
}

#[test]
fn folders_that_are_named_can_be_read_and_not_written() {
    let shown = tempfile::tempdir().expect("a folder");
    fs::write(shown.path().join("file"), "shown").expect("written");
    for path in [shown.path().to_owned(), shown.path().join("file")] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("for everybody");
    }
    let mut world = World::with(|settings| settings.read_only = vec![shown.path().to_owned()]);
    let file = shown.path().join("file");

    assert_eq!(world.output(&format!("cat {}", file.display())), "shown");
    assert_ne!(world.run(&format!("echo changed > {}", file.display())).end, "Exited(0)");
    assert_eq!(fs::read_to_string(file).expect("read"), "shown");
}

#[test]
fn two_commands_share_the_folder_and_nothing_else() {
    let mut world = World::new();
    world.ask(json!({ "line": "touch /tmp/one /dev/shm/one /run/one one; until [ -e go ]; do sleep 0.05; done" }));

    let found =
        world.output("until [ -e one ]; do sleep 0.05; done; ls /tmp /dev/shm /run; ls /proc | grep -c '^[0-9]'");
    fs::write(world.folder.join("go"), "").expect("written");

    assert_eq!(world.ended().end, "Exited(0)");
    assert!(!found.contains("one"), "{found}");
    let n_processes: u32 = found.lines().last().expect("a number").parse().expect("a number");
    assert!(n_processes <= 5, "{found}");
}

#[test]
fn no_network_is_there_but_a_loopback_device_of_ones_own() {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bound");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let name = SocketAddr::from_abstract_name(format!("portcullis-test-{}", std::process::id())).expect("a name");
    let hidden = UnixListener::bind_addr(&name).expect("bound");
    let port = tcp.local_addr().expect("bound").port();
    TcpStream::connect(("127.0.0.1", port)).expect("reachable from outside");
    UnixStream::connect_addr(&name).expect("reachable from outside");
    tcp.accept().expect("accepted");
    hidden.accept().expect("accepted");
    tcp.set_nonblocking(true).expect("set");
    hidden.set_nonblocking(true).expect("set");
    udp.set_nonblocking(true).expect("set");
    let mut world = World::new();

    let connect = world.run(&format!("echo > /dev/tcp/127.0.0.1/{port}"));
    world.run(&format!("echo > /dev/udp/127.0.0.1/{}", udp.local_addr().expect("bound").port()));
    let unix = world.run(&format!(
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0portcullis-test-{}\")'",
        std::process::id()
    ));
    let out = world.run("echo > /dev/tcp/192.0.2.1/80");

    assert!(connect.stderr.contains("refused"), "{connect:?}");
    assert!(unix.stderr.contains("Error"), "{unix:?}");
    assert!(out.stderr.contains("unreachable"), "{out:?}");
    assert!(tcp.accept().is_err() && hidden.accept().is_err() && udp.recv(&mut [0; 8]).is_err());
    let served = "import socket as s, threading as t; a = s.create_server((\"127.0.0.1\", 0)); \
        b = s.create_connection(a.getsockname()); a.accept()[0].send(b\"own\"); print(b.recv(9))";
    assert_eq!(world.output(&format!("python3 -c '{served}'")), "b'own'\n");
}

#[test]
fn sockets_are_of_unix_and_ip_only() {
    let mut world = World::new();
    let make = |family: u32, kind: u32, protocol: u32| {
        format!("python3 -c 'import socket; socket.socket({family}, {kind}, {protocol})'")
    };

    // vsock, netlink (audit, devices), packet, ciphers, Bluetooth, and SCTP over IP.
    for (family, kind, protocol) in
        [(40, 1, 0), (16, 3, 9), (16, 3, 15), (17, 3, 0), (38, 5, 0), (31, 3, 1), (2, 1, 132)]
    {
        let ended = world.run(&make(family, kind, protocol));
        assert!(ended.stderr.contains("not supported"), "{family} {protocol}: {ended:?}");
    }
    for (family, kind, protocol) in
        [(1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 1, 6), (2, 2, 17), (10, 1, 0), (10, 2, 0), (16, 3, 0)]
    {
        world.output(&make(family, kind, protocol));
    }
}

#[test]
fn a_file_that_lends_its_owners_rights_cannot_be_made() {
    let mut world = World::new();
    world.output("touch file; mkdir folder");
    let python = |call: &str| format!("python3 -c 'import os; {call}'");

    for line in [
        "chmod u+s file",
        "chmod g+s file",
        "chmod g+s folder",
        "chmod 4755 file",
        "mkdir -m 2755 other",
        &python("os.fchmod(os.open(\"file\", 0), 0o4755)"),
        &python("os.open(\"new\", os.O_CREAT | os.O_WRONLY, 0o4755)"),
        &python("os.open(\".\", os.O_TMPFILE | os.O_WRONLY, 0o2755)"),
        &python("os.mknod(\"node\", 0o104755)"),
        "mknod device c 1 3",
        "mknod device b 7 0",
    ] {
        let ended = world.run(line);
        assert!(ended.stderr.contains("not permitted"), "{line}: {ended:?}");
    }
    world.output("chmod 755 file; chmod +t folder; mkfifo fifo");
    world.output(&python("os.open(\"new\", os.O_CREAT | os.O_WRONLY, 0o755)"));
    for entry in fs::read_dir(&world.folder).expect("listed") {
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(entry.expect("listed").metadata().expect("there").mode() & 0o6000, 0);
    }
}

#[test]
fn space_cannot_be_had_without_writing() {
    let mut world = World::new();

    let ended = world.run("fallocate -l 10M file");
    world
        .output("python3 -c 'import os; os.posix_fallocate(os.open(\"other\", os.O_CREAT | os.O_WRONLY), 0, 1 << 20)'");

    assert!(ended.stderr.contains("not supported"), "{ended:?}");
    assert_eq!(fs::metadata(world.folder.join("other")).expect("there").len(), MIB);
}

#[test]
fn what_is_not_on_disk_is_full_at_its_size() {
    let mut world = World::with(|settings| settings.tmp = 8 * MIB);

    for place in ["/tmp", "/dev/shm", "/run"] {
        let ended = world.run(&format!("head -c 20M /dev/zero > {place}/file"));

        assert!(ended.stderr.contains("No space left"), "{place}: {ended:?}");
    }
    world.output("head -c 6M /dev/zero > /tmp/file");
}

#[test]
fn a_fork_bomb_ends_at_the_number_of_processes() {
    let mut world = World::with(|settings| settings.processes = 32);

    let bomb = world.run("for i in $(seq 100); do sleep 1000 & done; ls /proc | grep -c '^[0-9]' > n");
    let forking = world.run("bomb() { bomb | bomb & }; bomb; sleep 0.5");

    // Whether there is a process left for `sleep` is a matter of luck.
    assert!(forking.end.starts_with("Exited("), "{forking:?}");
    assert!(bomb.stderr.contains("Resource temporarily unavailable"), "{bomb:?}");
    world.assert_nothing_left();
    world.output("for i in $(seq 20); do sleep 0.1 & done; wait");
}

#[test]
fn a_command_begins_with_nothing_that_was_ours() {
    let mut world = World::new();

    let environment = world.output("env | cut -d= -f1 | sort | tr '\\n' ' '");
    let descriptors = world.output("ls -l /proc/self/fd | grep -c -- '->'");
    let init = world.run("cat /proc/1/environ /proc/1/maps /proc/1/fd/*; readlink /proc/1/cwd");

    assert_eq!(environment, "HOME LANG LOGNAME PATH PWD SHELL SHLVL TERM TMPDIR USER _ ");
    // Three, and the folder that is being listed.
    assert_eq!(descriptors, "4\n");
    assert_eq!((init.stdout.as_str(), init.end.as_str()), ("", "Exited(1)"));
}

#[test]
fn other_processes_cannot_be_seen_or_signalled() {
    let mut world = World::new();
    let ours = std::process::id();

    let kill = world.run(&format!("kill -0 {ours} || kill -0 -1; ls -d /proc/{ours}; kill -KILL 1; echo alive"));

    if geteuid().is_root() && ours > 100 {
        assert!(!kill.stdout.contains("/proc/"), "{kill:?}");
    }
    assert!(kill.stdout.ends_with("alive\n"), "{kill:?}");
    assert_eq!(world.output("sleep 1000 & kill $! && ! wait $! && echo own"), "own\n");
}

#[test]
fn the_confinement_cannot_be_left_or_nested() {
    let mut world = World::new();

    for line in [
        "unshare -U true",
        "unshare -Urm true",
        "mount -t tmpfs none /tmp",
        "chroot / true",
        "nsenter -t 1 -m true",
        "strace -o /dev/null true || gdb -batch -ex run true",
        "date -s 2001-01-01",
        "hostname other",
        "dmesg",
    ] {
        assert_ne!(world.run(line).end, "Exited(0)", "{line}");
    }
    let status = world.output("grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp):' /proc/self/status");
    for line in status.lines() {
        let (name, value) = line.split_once(":\t").expect("a field");
        let expected = match name {
            "NoNewPrivs" => "1",
            "Seccomp" => "2",
            _ => "0000000000000000",
        };
        assert_eq!(value, expected, "{name}");
    }
}
