//! What is one for all users of a kernel, or for all processes of one user, and has no namespace: a command may take of
//! it, and others go on.

use crate::world::{World, eventually};
use serde_json::json;
use std::fs;

/// Takes all the pipe buffers that one user may have (`fs.pipe-user-pages-soft`), and holds them.
const PIPES: &str = "import fcntl, os, time\n\
    pipes = []\n\
    try:\n\
    \x20   while len(pipes) < 1900: pipes.append(os.pipe()); fcntl.fcntl(pipes[-1][1], 1031, 1 << 20)\n\
    except OSError: pass\n\
    pipes.extend(os.pipe() for _ in range(100))\n\
    open('held', 'w').close()\n\
    while not os.path.exists('go'): time.sleep(0.05)\n";

/// Connects to itself, sends what nobody receives, as long as that goes, and says how many bytes that were.
const TCP: &str = "import socket\n\
    server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen(500)\n\
    held, sent = [], 0\n\
    try:\n\
    \x20   while len(held) < 300:\n\
    \x20       client = socket.create_connection(server.getsockname(), 1); server.settimeout(1)\n\
    \x20       held.append((client, server.accept())); client.setblocking(False)\n\
    \x20       try:\n\
    \x20           while True: sent += client.send(bytes(65536))\n\
    \x20       except BlockingIOError: pass\n\
    except OSError: pass\n\
    print(sent)\n";

/// Sends 100 MB through a connection to itself, and says how many arrived.
const SERVER: &str = "import socket, threading\n\
    server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()\n\
    def send():\n\
    \x20   with socket.create_connection(server.getsockname()) as client: client.sendall(bytes(100_000_000))\n\
    threading.Thread(target=send).start()\n\
    taken, received = server.accept()[0], 0\n\
    while more := len(taken.recv(1 << 16)): received += more\n\
    print(received)\n";

#[test]
fn a_command_that_holds_all_pipe_buffers_of_its_user_does_not_keep_others_from_running() {
    let mut world = World::new();
    let holds = world.ask(json!({ "line": "python3 -c \"$P\"", "environment": [["P", PIPES]] }));
    eventually(|| world.folder.join("held").exists().then_some(()), || "nothing is held".to_owned());

    let beside = world.run("head -c 300000 /dev/zero | tail -c 1 | wc -c");

    assert_eq!((beside.end.as_str(), beside.stdout.as_str()), ("Exited(0)", "1\n"), "{beside:?}");
    fs::write(world.folder.join("go"), "").expect("written");
    let ended = world.ended();
    assert_eq!((ended.id, ended.end.as_str()), (holds, "Exited(0)"), "{ended:?}");
}

#[test]
fn what_lies_in_buffers_of_tcp_is_limited_too() {
    let mut world = World::new();
    if !world.has_cgroups() {
        return;
    }

    let ended = world.run(&format!("python3 -c \"{TCP}\""));
    let served = world.output(&format!("python3 -c \"{SERVER}\""));

    // In version 2 it is memory as any other, of which there is no more then.
    let sent = if ended.end == "OutOfMemory" { 0 } else { ended.stdout.trim().parse().expect("a number") };
    assert!(sent < world.settings.memory, "{sent} bytes: {ended:?}");
    assert_eq!(served, "100000000\n");
}
