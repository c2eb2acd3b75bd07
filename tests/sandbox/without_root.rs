//! A gateway that is not root: its sandbox runs as the same user, and confines all the same.

use super::{config, output, run};
use crate::support::agent::Agent;
use crate::support::gateway::{IDENTITY, password};
use crate::support::process::{self, Finished, Server};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Nobody's number.
const USER: u32 = 12_345;

/// A folder with a gateway in it that belongs to [`USER`], and its cgroups.
struct Place {
    dir: TempDir,
    cgroups: Vec<PathBuf>,
}

impl Place {
    #[track_caller]
    fn new(settings: &str) -> Place {
        let dir = TempDir::new().expect("a temporary folder");
        let yaml = format!("{}listen: 127.0.0.1:0\n{IDENTITY}", config(settings));
        std::fs::write(dir.path().join("gateway.yaml"), yaml).expect("the folder is ours");
        std::fs::write(dir.path().join("password"), password("alice")).expect("the folder is ours");
        // Where it was built, another user may not be able to go.
        std::fs::copy(env!("CARGO_BIN_EXE_portcullis"), dir.path().join("portcullis")).expect("it was built");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        for name in ["", "gateway.yaml", "password"] {
            chown(dir.path().join(name), Some(USER), Some(USER)).expect("we are root");
        }
        Place { dir, cgroups: Vec::new() }
    }

    /// Gives it a cgroup of its own, as a service manager would.
    #[track_caller]
    fn with_cgroup(mut self) -> Place {
        let name = format!("portcullis-test-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let bases = match root.join("cgroup.controllers").exists() {
            true => vec![root.to_owned()],
            false => ["memory", "pids", "cpu"].map(|one| root.join(one)).to_vec(),
        };
        for base in bases {
            let folder = base.join(&name);
            std::fs::create_dir(&folder).expect("we are root");
            for file in ["", "cgroup.procs", "cgroup.subtree_control"] {
                let file = folder.join(file);
                if file.exists() {
                    chown(file, Some(USER), Some(USER)).expect("we are root");
                }
            }
            self.cgroups.push(folder);
        }
        self
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut enter: String =
            self.cgroups.iter().map(|folder| format!("echo $$ >{}/cgroup.procs && ", folder.display())).collect();
        enter.push_str("exec setpriv --reuid 12345 --regid 12345 --clear-groups ./portcullis \"$@\"");
        let mut command = process::command("sh");
        command.args(["-c", &enter, "sh"]).args(arguments).current_dir(self.dir.path());
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }

    #[track_caller]
    fn cli(&self, arguments: &[&str]) -> Finished {
        process::run(&mut self.command(arguments), b"")
    }

    /// A gateway that has started, and a client of its sandbox.
    #[track_caller]
    fn start(&self) -> (Server, Agent) {
        let mut gateway = Server::spawn("the gateway", &mut self.command(&["serve"]));
        let ready = gateway.line("ready agent=http://").unwrap_or_else(|said| panic!("it did not start: {said}"));
        let address = ready.split(' ').next().and_then(|address| address.parse().ok()).expect("an address");
        gateway.wait_for_log("upstream reached");
        let issue = ["token", "issue", "--user", "alice", "--route", "sandbox", "--ttl", "1h", "--password-file"];
        let token = self.cli(&[&issue[..], &["password"]].concat()).success().stdout.trim().to_owned();
        (gateway, Agent::new(address, "sandbox", token).modern())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for folder in &self.cgroups {
            // What it is about has failed already where this fails.
            let _ = portcullis_local::cgroup::sweep(folder);
        }
    }
}

#[test]
fn a_gateway_that_is_not_root_confines_as_well_in_a_cgroup_that_is_delegated_to_it() {
    let place = Place::new("memory: 64MiB, tmp: 1MiB").with_cgroup();
    let (mut gateway, agent) = place.start();

    assert_eq!(output(&agent, "echo kept >kept; cat kept"), "kept\n");
    let shadow = run(&agent, "cat /etc/shadow /proc/1/environ; ls /home /root");
    let hog = run(&agent, "python3 -c \"x = bytearray(300_000_000)\"");

    assert_eq!(shadow["stdout"], "", "{shadow:#}");
    assert_eq!(hog["ended"], "out_of_memory", "{hog:#}");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    for folder in &place.cgroups {
        let entries = std::fs::read_dir(folder).expect("it is there").flatten();
        let below: Vec<_> = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name()).collect();
        assert!(below.iter().all(|name| name == "portcullis-gateway"), "{below:?}");
    }
}

#[test]
fn where_no_cgroup_may_be_made_the_sandbox_does_not_start_unless_the_file_says_so() {
    let strict = Place::new("").cli(&["tools"]);
    let place = Place::new("cgroup: none, memory: 64MiB, tmp: 1MiB");
    let (_gateway, agent) = place.start();

    assert_eq!(strict.status.code(), Some(1), "{strict:?}");
    assert!(strict.stderr.contains("Delegate=memory pids cpu"), "it says what can be done: {}", strict.stderr);
    assert_eq!(output(&agent, "cat /etc/shadow || echo confined"), "confined\n");
    let hog = run(&agent, "python3 -c \"x = bytearray(300_000_000)\"");
    assert_ne!(hog["exit_code"], 0, "each process has a limit still: {hog:#}");
}
