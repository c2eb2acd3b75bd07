//! The other backend: gVisor. Commands run on a kernel of their own in user space (`runsc`, the "sentry"), which answers
//! all of their system calls; the host's kernel sees the few that the sentry itself makes.
//!
//! `runsc` runs rootless inside what bubblewrap makes of the host: an empty network, namespaces that end all of it at once,
//! and of files little more than the tree that commands see with the default backend. It stands in a folder of its own
//! there, and nothing else is the command's root: a command can be root in a user namespace of the sentry's, and take away
//! what is mounted over something else. A file that a command makes in the workspace is made there by `runsc`, on a mount that knows no setuid bits,
//! under a filter that lets none be made: the sentry does not mind them (measured), the host would.

use super::root::{ID, Root};
use super::{INNER, Launch, WORKSPACE, bubblewrap, inner, seccomp};
use crate::settings::Settings;
use crate::syscall::raw;
use portcullis_local::handover::filled;
use serde_json::json;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Where the program is looked for.
const PLACES: [&str; 3] = ["/usr/bin/runsc", "/bin/runsc", "/usr/local/bin/runsc"];
/// What `runsc` has for itself: the program, what it is told, and what it notes.
const OWN: &str = "/runsc";
/// The tree that is the command's root.
const TREE: &str = "/tree";
/// What it may note there, in bytes.
const NOTES: &str = "16777216";
/// The number under which the inner stage finds its socket.
const SOCKET: i32 = 3;
/// Processes and threads of the sentry, of whoever opens files for it, and of bubblewrap; on the host, each thread of a
/// command has one too. Measured: 60 to 90 of them, with two processors.
const THREADS: u64 = 192;

/// All that is the same for every command.
pub(super) struct Gvisor {
    bubblewrap: PathBuf,
    runsc: OwnedFd,
    root: Root,
    filter: Vec<u8>,
    ourselves: OwnedFd,
    description: Vec<u8>,
}

impl Gvisor {
    /// Finds the programs.
    ///
    /// # Errors
    /// What is missing, and where to get it.
    pub(super) async fn find(program: Option<&Path>, settings: &Settings) -> Result<Gvisor, String> {
        let found =
            program.map(Path::to_owned).or_else(|| PLACES.map(PathBuf::from).into_iter().find(|it| it.exists()));
        let program = found.ok_or(
            "gVisor is not installed: `apt-get install -t bookworm-backports runsc` on Debian 12, `apt-get install \
             runsc` on later ones (elsewhere: gvisor.dev), or say where `runsc` is",
        )?;
        let cannot = |why: io::Error| {
            format!(
                "{} cannot be used by the user that the sandbox runs as: {why}; put it where everybody may read and \
                 run it",
                program.display()
            )
        };
        let runsc = File::open(&program).map_err(cannot)?;
        let help = bubblewrap::said_by(&program, &["help", "run"]).await.map_err(cannot)?;
        if !help.contains("-pass-fd") {
            return Err(format!(
                "{} is too old: it has no -pass-fd, and of old ones it is known that `ls` and `stat` fail in them. \
                 Debian 12 itself has one of 2022; take that of bookworm-backports (2024), or a later one",
                program.display()
            ));
        }
        let bubblewrap = bubblewrap::program(None).await.map_err(|why| format!("gVisor runs inside of it: {why}"))?;
        let ourselves = bubblewrap::Ourselves::find().map_err(|why| format!("/proc/self/exe: {why}"))?;
        if !ourselves.is_reachable() {
            return Err(
                "the gateway's program cannot be shown to gVisor: another one stands at its path by now (then \
                        restart the gateway), or the user that the sandbox runs as cannot reach it there"
                    .to_owned(),
            );
        }
        let description = serde_json::to_vec(&description(settings)).map_err(|why| why.to_string())?;
        Ok(Gvisor {
            bubblewrap,
            runsc: runsc.into(),
            root: Root::new(settings)?,
            filter: seccomp::modes()?,
            ourselves: ourselves.program,
            description,
        })
    }

    /// How the inner stage is started.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn launch(&self, workspace: Option<OwnedFd>, socket: OwnedFd) -> io::Result<Launch> {
        let mut launch = Launch::new(self.bubblewrap.clone());
        let socket = launch.pass(socket);
        let filter = launch.pass(filled(&self.filter)?).to_string();
        let description = launch.pass(filled(&self.description)?).to_string();
        let runsc = launch.pass(self.runsc.as_fd().try_clone_to_owned()?).to_string();
        let id = ID.to_string();
        let place = |name: &str| format!("{OWN}/{name}");
        // User namespaces stay: `runsc` makes one.
        #[rustfmt::skip]
        let outside = [
            "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup",
            "--uid", &id, "--gid", &id, "--hostname", "sandbox", "--cap-drop", "ALL", "--die-with-parent",
            "--new-session", "--seccomp", &filter, "--perms", "0700", "--size", NOTES, "--tmpfs", OWN,
            "--dir", &place("state"), "--file", &description, &place("bundle/config.json"),
            "--ro-bind-fd", &runsc, &place("runsc"), "--proc", "/proc", "--dev", "/dev",
            "--size", NOTES, "--tmpfs", "/tmp", "--tmpfs", TREE,
        ];
        let mut arguments: Vec<OsString> = outside.map(OsString::from).into();
        arguments.extend(moved(self.root.arguments(workspace, |fd| launch.pass(fd).to_string().into())?)?);
        let visible = launch.pass(self.ourselves.as_fd().try_clone_to_owned()?).to_string();
        #[rustfmt::skip]
        let inside = [
            "--ro-bind-fd", &visible, &format!("{TREE}{INNER}"), "--remount-ro", TREE, "--remount-ro", "/",
            "--", &place("runsc"), &format!("--root={}", place("state")), "--rootless",
            "--network=none", "--ignore-cgroups", "--platform=systrap", "--overlay2=none",
            "run", &format!("--pass-fd={socket}:{SOCKET}"), "--bundle", &place("bundle"), "command",
        ];
        arguments.extend(inside.map(OsString::from));
        launch.arguments = arguments;
        Ok(launch)
    }
}

/// The same tree beneath [`TREE`]: these arguments of bwrap, with each place moved there. `/proc` and `/dev` of the host
/// are not in it; the sentry has its own.
///
/// # Errors
/// There is an argument that is not known here.
fn moved(arguments: Vec<OsString>) -> io::Result<Vec<OsString>> {
    let mut arguments = arguments.into_iter();
    let mut moved = Vec::new();
    while let Some(option) = arguments.next() {
        let mut next = || arguments.next().ok_or_else(|| io::Error::other("an argument of bwrap is missing"));
        let beneath = |place: OsString| {
            let mut path = OsString::from(TREE);
            path.push(place);
            path
        };
        match option.to_str().unwrap_or_default() {
            "--perms" | "--size" => moved.extend([option, next()?]),
            "--dir" | "--tmpfs" => moved.extend([option, beneath(next()?)]),
            "--proc" | "--dev" => moved.extend(["--dir".into(), beneath(next()?)]),
            "--ro-bind" | "--symlink" | "--file" | "--bind-fd" | "--ro-bind-fd" => {
                moved.extend([option, next()?, beneath(next()?)]);
            }
            // As a whole, at the end.
            "--remount-ro" | "--chdir" => drop(next()?),
            _ => return Err(io::Error::other(format!("{} cannot be moved", option.display()))),
        }
    }
    Ok(moved)
}

/// What a command may have in processes and threads on the host, beside its own.
pub(super) fn own_processes(settings: &Settings) -> u64 {
    u64::from(settings.processes) + THREADS
}

/// The container, as the OCI runtime specification has it.
fn description(settings: &Settings) -> serde_json::Value {
    let temporary = |place: &str| json!({ "destination": place, "type": "tmpfs", "source": "tmpfs", "options": [format!("size={}", settings.tmp), "mode=1777"] });
    let none: [&str; 0] = [];
    let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.0.0",
        "process": {
            // The only one that a rootless sentry knows outside. It is nobody special inside, without capabilities.
            "user": { "uid": 0, "gid": 0 },
            "args": [INNER, inner::ARGUMENT, SOCKET.to_string()],
            "env": none,
            "cwd": "/",
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none,
            },
        },
        "root": { "path": TREE, "readonly": true },
        "hostname": "sandbox",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs" },
            // The root is read-only as a whole; this is not.
            { "destination": WORKSPACE, "type": "bind", "source": format!("{TREE}{WORKSPACE}"), "options": ["rw", "nosuid", "nodev"] },
            temporary("/dev/shm"),
            temporary("/tmp"),
        ],
        "linux": { "namespaces": namespaces },
    })
}

/// Whether this process runs on gVisor's kernel: its log begins with a line of its own.
///
/// # Errors
/// It does not, or there is no folder to work in.
pub(super) fn look() -> Result<(), String> {
    let mut log = [0_u8; 4096];
    // SYSLOG_ACTION_READ_ALL.
    let read = raw(libc::SYS_syslog, [3.into(), (&mut log[..]).into(), 4096.into()]);
    let is_gvisor = String::from_utf8_lossy(&log).contains("Starting gVisor");
    if !is_gvisor {
        return Err(format!("the kernel inside is not gVisor's (its log: {read:?})"));
    }
    Path::new(WORKSPACE).is_dir().then_some(()).ok_or_else(|| format!("there is no {WORKSPACE} inside"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_tree_stays_where_the_sentry_has_its_own() {
        let of = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let moves = |words: &[&str]| moved(of(words)).map_err(|why| why.to_string());

        assert_eq!(moves(&["--ro-bind", "/usr", "/usr"]), Ok(of(&["--ro-bind", "/usr", "/tree/usr"])));
        assert_eq!(moves(&["--proc", "/proc"]), Ok(of(&["--dir", "/tree/proc"])));
        assert_eq!(
            moves(&["--size", "1", "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/"]),
            Ok(of(&["--size", "1", "--tmpfs", "/tree/tmp"]))
        );
        assert!(moves(&["--bind", "/", "/"]).is_err_and(|why| why.contains("--bind")));
        assert!(moves(&["--tmpfs"]).is_err());
    }
}
