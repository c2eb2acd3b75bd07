//! What a host consists of, in a folder of this machine.

use super::super::process;
use super::{ACCOUNT, GATE, PROJECTS, SSHD};
use std::cell::RefCell;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The folder: `etc`, `home`, `log`, `opt` and `projects` are the host's; `client` is ours, and the host sees nothing of it.
pub(super) struct Folder {
    dir: TempDir,
    syslog: UnixDatagram,
    said: RefCell<Vec<String>>,
}

/// The script as it is shipped; its constants fit this host.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/ssh/host/portcullis-gate");

impl Folder {
    /// A host with two projects, keys for it, and what its clients know of it.
    pub(super) fn new(shell: &str, port: u16) -> Folder {
        let dir = TempDir::new().expect("a temporary folder");
        for name in ["etc/ssh", "home", "log", "opt", "client", "run"] {
            std::fs::create_dir_all(dir.path().join(name)).expect("the folder is ours");
        }
        let syslog = UnixDatagram::bind(dir.path().join("run/log")).expect("the folder is ours");
        syslog.set_nonblocking(true).expect("Linux knows it");
        let folder = Folder { dir, syslog, said: RefCell::default() };
        folder.write(
            "etc/passwd",
            format!("root:x:0:0::/root:/bin/sh\nsshd:x:100:100::/run/sshd:/bin/false\n{ACCOUNT}:x:1000:1000::/home/{ACCOUNT}:{shell}\n"),
        );
        folder.write("etc/group", format!("root:x:0:\n{ACCOUNT}:x:1000:\n"));
        folder.write("etc/ssh/principals", "portcullis\n");
        folder.write("log/sshd.log", "");
        for key in ["client/key", "client/ca", "client/host-first", "client/host-other"] {
            folder.make_key(key);
        }
        folder.write("etc/ssh/ca.pub", folder.read("client/ca.pub"));
        folder.use_host_key("first");
        folder.trust(port);
        std::fs::copy(SCRIPT, folder.path("opt/portcullis-gate")).expect("it is shipped");
        std::fs::set_permissions(folder.path("opt/portcullis-gate"), std::fs::Permissions::from_mode(0o755))
            .expect("the folder is ours");
        for project in ["project-a", "project-b"] {
            folder.hook(project, "status", &format!("echo {project} runs"));
            folder.hook(project, "deploy", &format!("echo {project} deployed"));
            folder.hook(project, "restart", &format!("echo {project} restarted"));
            let lines: String = (1..=300).map(|n| format!("{project} line {n}\n")).collect();
            folder.write(&format!("projects/{project}/logs/current.log"), lines);
        }
        folder
    }

    /// A path in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of it.
    pub(super) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(name)).expect("it is there")).into_owned()
    }

    /// Makes a file, and folders to it.
    #[track_caller]
    pub(super) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it stands in the folder")).expect("the folder is ours");
        std::fs::write(path, bytes).expect("the folder is ours");
    }

    /// Makes a hook of a project.
    pub(super) fn hook(&self, project: &str, name: &str, script: &str) {
        let name = format!("projects/{project}/hooks/{name}");
        // Beside it and then there: one that runs is not written into.
        self.write(&format!("{name}.new"), format!("#!/bin/sh\n{script}\n"));
        let made = self.path(&format!("{name}.new"));
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        std::fs::rename(made, self.path(&name)).expect("the folder is ours");
    }

    /// From the next start, the host shows this key.
    pub(super) fn use_host_key(&self, which: &str) {
        let key = self.path("etc/ssh/host_key");
        std::fs::copy(self.path(&format!("client/host-{which}")), &key).expect("the folder is ours");
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).expect("the folder is ours");
    }

    /// Has clients expect the host, with its first key, on this port.
    pub(super) fn trust(&self, port: u16) {
        let old = std::fs::read_to_string(self.path("client/known_hosts")).unwrap_or_default();
        let line = format!("[127.0.0.1]:{port} {}", self.read("client/host-first.pub"));
        if !old.contains(&line) {
            self.write("client/known_hosts", old + &line);
        }
    }

    /// What the host's processes have told its system log, without priority and time.
    pub(super) fn syslog(&self) -> Vec<String> {
        let mut said = self.said.borrow_mut();
        let mut buffer = [0; 4096];
        loop {
            match self.syslog.recv(&mut buffer) {
                Ok(n) => {
                    let line = String::from_utf8_lossy(&buffer[..n]).into_owned();
                    let at = line.find("portcullis-gate").unwrap_or(0);
                    said.push(line[at..].trim_end_matches(['\0', '\n']).to_owned());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return said.clone(),
                Err(error) => panic!("cannot read the host's log: {error}"),
            }
        }
    }

    /// The server, about to start in its own place.
    pub(super) fn bubblewrap(&self) -> Command {
        let mut bwrap = process::command("bwrap");
        bwrap.args(["--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-ipc"]);
        bwrap.args(["--unshare-uts", "--hostname", "prod", "--cap-drop", "ALL", "--die-with-parent", "--new-session"]);
        bwrap.args(["--ro-bind", "/usr", "/usr"]);
        for name in ["/bin", "/sbin", "/lib", "/lib64"] {
            match std::fs::read_link(name) {
                Ok(to) => bwrap.arg("--symlink").arg(to).arg(name),
                Err(_) => bwrap.args(["--ro-bind-try", name, name]),
            };
        }
        bwrap.arg("--ro-bind").arg(self.path("etc")).arg("/etc");
        bwrap.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/run/sshd"]);
        bwrap.arg("--ro-bind").arg(self.path("opt")).arg(Path::new(GATE).parent().expect("it stands in a folder"));
        bwrap.arg("--ro-bind").arg(self.path("projects")).arg(PROJECTS);
        bwrap.arg("--bind").arg(self.path("home")).arg(format!("/home/{ACCOUNT}"));
        bwrap.arg("--bind").arg(self.path("log")).arg("/var/log");
        bwrap.arg("--bind").arg(self.path("run/log")).arg("/dev/log");
        bwrap.args(["--remount-ro", "/"]);
        bwrap.args(["--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--chdir", "/"]);
        bwrap.args([SSHD, "-D", "-f", "/etc/ssh/sshd_config", "-E", "/var/log/sshd.log"]);
        bwrap
    }

    fn make_key(&self, name: &str) {
        let mut keygen = process::command("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(self.path(name));
        process::run(&mut keygen, b"").success();
    }
}
