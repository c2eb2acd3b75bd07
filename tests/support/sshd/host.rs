//! What a host consists of, in a folder of this machine.

use super::super::{process, sdk};
use super::{ACCOUNT, GATE, PROJECTS, SSHD};
use std::ffi::OsStr;
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// The folder: `etc`, `home`, `log`, `opt` and `projects` are the host's; `client` is ours, and the host sees nothing of it.
pub(crate) struct Host {
    dir: TempDir,
    syslog: Arc<Syslog>,
    _listener: JoinHandle<()>,
}

/// The host's system log.
#[derive(Default)]
struct Syslog {
    said: Mutex<Vec<String>>,
    is_deaf: AtomicBool,
    is_over: AtomicBool,
}

/// The script as it is shipped; its constants fit this host. Beside it stands one for each shell that is a `/bin/sh` somewhere.
const SCRIPTS: &[(&str, &str)] = &[
    ("portcullis-gate", "/bin/sh"),
    ("dash", "/usr/bin/dash"),
    ("bash", "/usr/bin/bash --posix"),
    ("busybox", "/usr/bin/busybox sh"),
];

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/ssh/host/portcullis-gate");

impl Host {
    /// A host with two projects, keys for it, and what its clients know of it.
    #[track_caller]
    pub(crate) fn new(shell: &str) -> Host {
        if !Path::new(SSHD).exists() {
            sdk::install_what_is_missing();
        }
        let dir = TempDir::new().expect("a temporary folder");
        for name in ["etc/ssh", "home", "log", "opt", "client", "run", "srv/projects"] {
            std::fs::create_dir_all(dir.path().join(name)).expect("the folder is ours");
        }
        let syslog = Arc::<Syslog>::default();
        let listener = syslog.listen(&dir.path().join("run/log"));
        let host = Host { dir, syslog, _listener: listener };
        host.write(
            "etc/passwd",
            format!("root:x:0:0::/root:/bin/sh\nsshd:x:100:100::/run/sshd:/bin/false\n{ACCOUNT}:x:1000:1000::/home/{ACCOUNT}:{shell}\n"),
        );
        host.write("etc/group", format!("root:x:0:\n{ACCOUNT}:x:1000:\n"));
        host.write("etc/ssh/principals", "portcullis\n");
        host.write("log/sshd.log", "");
        for key in ["client/key", "client/ca", "client/host-first", "client/host-other"] {
            host.make_key(key);
        }
        host.write("etc/ssh/ca.pub", host.read("client/ca.pub"));
        host.use_host_key("first");
        let script = std::fs::read_to_string(SCRIPT).expect("it is shipped");
        for (name, shell) in SCRIPTS {
            host.write(&format!("opt/{name}"), script.replace("/bin/sh", shell));
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(host.path(&format!("opt/{name}")), mode).expect("the folder is ours");
        }
        if !has_owners() {
            host.edit_script(" || [ -O \"$path\" ]", "");
        }
        for project in ["project-a", "project-b"] {
            host.hook(project, "status", &format!("echo {project} runs"));
            host.hook(project, "deploy", &format!("echo {project} deployed"));
            host.hook(project, "restart", &format!("echo {project} restarted"));
            let lines: String = (1..=300).map(|n| format!("{project} line {n}\n")).collect();
            host.write(&format!("projects/{project}/logs/current.log"), lines);
        }
        host
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file of it.
    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(name)).expect("it is there")).into_owned()
    }

    /// Makes a file, and folders to it.
    #[track_caller]
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it stands in the folder")).expect("the folder is ours");
        std::fs::write(path, bytes).expect("the folder is ours");
    }

    /// Makes a hook of a project.
    pub(crate) fn hook(&self, project: &str, name: &str, script: &str) {
        let name = format!("projects/{project}/hooks/{name}");
        // Beside it and then there: one that runs is not written into.
        self.open();
        self.write(&format!("{name}.new"), format!("#!/bin/sh\n{script}\n"));
        let made = self.path(&format!("{name}.new"));
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        std::fs::rename(made, self.path(&name)).expect("the folder is ours");
        self.shut();
    }

    /// Lets files be made in the folders that hold hooks.
    pub(crate) fn open(&self) {
        self.change_modes(0o755);
    }

    /// Makes what holds hooks, and hooks, what it would be if they were root's: nothing that the account owns or may change. Not
    /// every shell sees that a file system can only be read.
    pub(crate) fn shut(&self) {
        self.change_modes(0o555);
        for path in self.roots().iter().filter(|_| has_owners()) {
            lchown(path, Some(SOMEBODY), None).expect("root may give away");
        }
    }

    /// Makes the account the owner of this path of [`PROJECTS`], which it still may not write to.
    #[track_caller]
    pub(crate) fn give_to_account(&self, path: &str) {
        assert!(has_owners());
        lchown(self.path("projects").join(path), Some(0), None).expect("root may give away");
    }

    fn change_modes(&self, mode: u32) {
        for path in self.roots() {
            // A link may lead to nothing that is there outside of the host.
            let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        }
    }

    /// Everything that is root's on a real host, from the folder above [`PROJECTS`] to the hooks.
    fn roots(&self) -> Vec<PathBuf> {
        let below = |folder: &PathBuf| -> Vec<PathBuf> {
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
        };
        let top = vec![self.path("srv"), self.path("projects")];
        let projects = below(&top[1]);
        // Not every project has hooks.
        let hooks =
            projects.iter().map(|project| project.join("hooks")).filter(|hooks| hooks.symlink_metadata().is_ok());
        let hooks: Vec<PathBuf> = hooks.collect();
        let programs = hooks.iter().flat_map(below).collect();
        [top, projects, hooks, programs].concat()
    }

    /// Puts a log into a project: `logs/<name>`.
    #[track_caller]
    pub(crate) fn project_log(&self, project: &str, name: &str, bytes: impl AsRef<[u8]>) {
        self.write(&format!("projects/{project}/logs/{name}"), bytes);
    }

    /// From the next start, the host shows this key.
    pub(crate) fn use_host_key(&self, which: &str) {
        let key = self.path("etc/ssh/host_key");
        std::fs::copy(self.path(&format!("client/host-{which}")), &key).expect("the folder is ours");
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o600)).expect("the folder is ours");
    }

    /// Has clients expect the host, with its first key, on this port.
    pub(crate) fn trust(&self, port: u16) {
        let old = std::fs::read_to_string(self.path("client/known_hosts")).unwrap_or_default();
        let line = format!("[127.0.0.1]:{port} {}", self.read("client/host-first.pub"));
        if !old.contains(&line) {
            self.write("client/known_hosts", old + &line);
        }
    }

    /// What the host's processes have told its system log, without priority and time.
    pub(crate) fn syslog(&self) -> Vec<String> {
        self.syslog.said.lock().expect("no writer panics").clone()
    }

    /// From now on the system log takes nothing.
    pub(crate) fn stop_syslog(&self) {
        self.syslog.is_deaf.store(true, Ordering::Relaxed);
    }

    /// Has the script give actions that only look, and those that change something, so many seconds.
    pub(crate) fn limits(&self, quick: u32, slow: u32) {
        self.edit_script("\nquick=30\n", &format!("\nquick={quick}\n"));
        self.edit_script("\nslow=600\n", &format!("\nslow={slow}\n"));
    }

    /// Has another text stand in the script.
    #[track_caller]
    pub(crate) fn edit_script(&self, from: &str, to: &str) {
        for (name, _) in SCRIPTS {
            let script = self.read(&format!("opt/{name}"));
            assert_eq!(script.matches(from).count(), 1, "{from}");
            self.write(&format!("opt/{name}"), script.replace(from, to));
        }
    }

    /// A program that is about to start there, as the account.
    pub(crate) fn command(&self, program: &[impl AsRef<OsStr>]) -> Command {
        let mut bwrap = self.bubblewrap();
        bwrap.args(["--remount-ro", "/"]).args(program);
        bwrap
    }

    /// The same where the account may change this path of [`PROJECTS`].
    pub(crate) fn command_with_writable(&self, path: &str, program: &[impl AsRef<OsStr>]) -> Command {
        let mode = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(self.path("projects").join(path), mode).expect("the folder is ours");
        let mut bwrap = self.bubblewrap();
        bwrap.arg("--bind").arg(self.path("projects").join(path)).arg(Path::new(PROJECTS).join(path)).args(program);
        bwrap
    }

    fn bubblewrap(&self) -> Command {
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
        bwrap.arg("--ro-bind").arg(self.path("srv")).arg("/srv");
        bwrap.arg("--ro-bind").arg(self.path("projects")).arg(PROJECTS);
        bwrap.arg("--bind").arg(self.path("home")).arg(format!("/home/{ACCOUNT}"));
        bwrap.arg("--bind").arg(self.path("log")).arg("/var/log");
        bwrap.arg("--bind").arg(self.path("run/log")).arg("/dev/log");
        bwrap.args(["--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--chdir", "/"]);
        bwrap
    }

    fn make_key(&self, name: &str) {
        let mut keygen = process::command("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(self.path(name));
        process::run(&mut keygen, b"").success();
    }
}

/// Somebody who is neither root here nor anybody there.
const SOMEBODY: u32 = 1;

/// Whether files there can be somebody else's than the account's. Only root gives files away. Whoever else runs the tests owns all
/// of them, and the script does not look at owners then.
pub(crate) fn has_owners() -> bool {
    nix::unistd::geteuid().is_root()
}

// === impl Syslog ===

impl Syslog {
    fn listen(self: &Arc<Syslog>, path: &Path) -> JoinHandle<()> {
        let socket = UnixDatagram::bind(path).expect("the folder is ours");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("Linux knows it");
        let syslog = Arc::clone(self);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !syslog.is_over.load(Ordering::Relaxed) {
                if syslog.is_deaf.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                } else if let Ok(n) = socket.recv(&mut buffer) {
                    let line = String::from_utf8_lossy(&buffer[..n]).into_owned();
                    let at = line.find("portcullis-gate").unwrap_or(0);
                    let line = line[at..].trim_end_matches(['\0', '\n']).to_owned();
                    syslog.said.lock().expect("no reader panics").push(line);
                }
            }
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.syslog.is_over.store(true, Ordering::Relaxed);
        // Its folder is removed after this, by whoever runs the tests.
        self.open();
    }
}
