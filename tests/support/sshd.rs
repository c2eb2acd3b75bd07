//! A host with a real OpenSSH server, as an operator would set it up: an account `deploy` that can run one script.
//!
//! It runs unprivileged in bubblewrap, with an `/etc` and a home of its own and the network of this machine, so that it works
//! whoever runs the tests. All its processes end with it. Server and account have the same number there: who comes to be
//! `deploy` in a way that sshd does not know of could end the server, which a real host would not allow.

mod host;
mod log;

pub(crate) use host::{Host, has_owners};
pub(crate) use log::Session;

use super::process::{self, Server};
use super::wait_for;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::net::TcpSocket;

/// The account.
pub(crate) const ACCOUNT: &str = "deploy";

/// The server: it starts itself again for each connection, and needs its own whole path for that.
const SSHD: &str = "/usr/sbin/sshd";

/// Where the script is on the host.
pub(crate) const GATE: &str = "/opt/portcullis/portcullis-gate";

/// Where the projects are on the host.
pub(crate) const PROJECTS: &str = "/srv/projects";

/// What opens the account, and how well the host holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `restrict,command="…"` and a key.
    Restricted,
    /// The same without `restrict`: whoever has the key can forward ports.
    WithoutRestrict,
    /// An authority, and a `ForceCommand`.
    Certificates,
    /// The same without `ForceCommand`: a certificate runs anything.
    WithoutForceCommand,
}

/// A host that is about to start.
pub(crate) struct Setup {
    mode: Mode,
    lines: Vec<String>,
    account_lines: Vec<String>,
    shell: &'static str,
}

/// A running host; it ends with the test.
pub(crate) struct Sshd {
    /// Where it listens. The same after a restart.
    pub(crate) port: u16,
    mode: Mode,
    host: Host,
    server: Option<Server>,
    // Bound and not listening: nobody else is given this port while the server is down.
    _port: TcpSocket,
}

// === impl Setup ===

impl Setup {
    /// With this line in `sshd_config`, for everybody.
    pub(crate) fn line(mut self, line: &str) -> Setup {
        self.lines.push(line.to_owned());
        self
    }

    /// With this line under `Match User deploy`.
    pub(crate) fn account_line(mut self, line: &str) -> Setup {
        self.account_lines.push(line.to_owned());
        self
    }

    /// A loose host: what a client sends gets into the environment of the script.
    pub(crate) fn accepting_env(self) -> Setup {
        self.line("AcceptEnv *").account_line("AcceptEnv *")
    }

    /// With another login shell.
    pub(crate) fn shell(mut self, path: &'static str) -> Setup {
        self.shell = path;
        self
    }

    /// Starts it and waits until it answers.
    #[track_caller]
    pub(crate) fn start(self) -> Sshd {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        socket.set_reuseaddr(true).expect("Linux knows it");
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("there are free ports");
        let port = socket.local_addr().expect("it is bound").port();
        let host = Host::new(self.shell);
        host.trust(port);
        host.write("etc/ssh/sshd_config", self.config(port));
        host.write("etc/ssh/authorized_keys", self.authorized_keys(&host));
        let mut sshd = Sshd { port, mode: self.mode, host, server: None, _port: socket };
        sshd.start();
        sshd
    }

    fn config(&self, port: u16) -> String {
        let account: &[&str] = match self.mode {
            Mode::Restricted | Mode::WithoutRestrict => &["AuthorizedKeysFile /etc/ssh/authorized_keys"],
            Mode::Certificates => &[CERTIFICATES, FORCE_COMMAND],
            Mode::WithoutForceCommand => &[CERTIFICATES],
        };
        let account: String = account
            .iter()
            .map(ToString::to_string)
            .chain(self.account_lines.iter().cloned())
            .map(|lines| format!("{}\n", lines.trim_end()))
            .collect();
        let more: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        let quiet = if has_penalties() { "PerSourcePenalties no\n" } else { "" };
        // The first line about something counts.
        format!("{more}{quiet}Port {port}\n{GENERAL}Match User {ACCOUNT}\n{account}")
    }

    fn authorized_keys(&self, host: &Host) -> String {
        let key = host.read("client/key.pub");
        match self.mode {
            Mode::Restricted => format!("restrict,command=\"{GATE}\" {key}"),
            Mode::WithoutRestrict => format!("command=\"{GATE}\" {key}"),
            // Nothing reads it.
            Mode::Certificates | Mode::WithoutForceCommand => key,
        }
    }
}

/// As Debian has it where it opens something, so that what is closed is closed by the account's own lines.
const GENERAL: &str = "\
ListenAddress 127.0.0.1
HostKey /etc/ssh/host_key
PidFile none
LogLevel VERBOSE
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile none
AllowAgentForwarding yes
AllowTcpForwarding yes
X11Forwarding yes
PrintMotd no
MaxStartups 200
LoginGraceTime 30
Subsystem sftp internal-sftp
";

const CERTIFICATES: &str = "\
TrustedUserCAKeys /etc/ssh/ca.pub
AuthorizedPrincipalsFile /etc/ssh/principals
AuthorizedKeysFile none
DisableForwarding yes
AllowAgentForwarding no
AllowTcpForwarding no
AllowStreamLocalForwarding no
X11Forwarding no
PermitTunnel no
PermitTTY no
PermitUserRC no
";

const FORCE_COMMAND: &str = "ForceCommand /opt/portcullis/portcullis-gate\n";

/// Since OpenSSH 9.8, a server makes addresses wait that fail to log in; what tests attack is to answer at once.
fn has_penalties() -> bool {
    let version = process::run(process::command("ssh").arg("-V"), b"").stderr;
    let number = version.split_once("OpenSSH_").map_or("", |(_, rest)| rest);
    let mut numbers = number.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(9), Some(8))
}

// === impl Sshd ===

impl Sshd {
    /// A host with a key that can run the script and nothing else.
    pub(crate) fn restricted() -> Setup {
        Setup::of(Mode::Restricted)
    }

    /// A host that trusts an authority, and lets its certificates run the script and nothing else.
    pub(crate) fn certificates() -> Setup {
        Setup::of(Mode::Certificates)
    }

    /// A loose host: `command=` without `restrict`.
    pub(crate) fn without_restrict() -> Setup {
        Setup::of(Mode::WithoutRestrict)
    }

    /// A loose host: certificates without `ForceCommand`.
    pub(crate) fn without_force_command() -> Setup {
        Setup::of(Mode::WithoutForceCommand)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port))
    }

    /// What stands in `ssh: { … }` of a gateway, without the braces: the example's actions, and everything else as it is by
    /// default.
    pub(crate) fn settings(&self) -> String {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/ssh/actions.example.yaml");
        self.settings_with(self.port, Path::new(example))
    }

    /// The same with another actions file, and another port to go to, where somebody stands in between.
    pub(crate) fn settings_with(&self, port: u16, actions: &Path) -> String {
        self.host.trust(port);
        let credential = match self.mode {
            Mode::Restricted | Mode::WithoutRestrict => format!("key: {{ file: {} }}", self.key().display()),
            Mode::Certificates | Mode::WithoutForceCommand => {
                format!("certificates: {{ authority: {{ file: {} }} }}", self.authority().display())
            }
        };
        let (known_hosts, actions) = (self.known_hosts().display().to_string(), actions.display());
        format!("host: \"{ACCOUNT}@127.0.0.1:{port}\", {credential}, known_hosts: {known_hosts}, actions: {actions}")
    }

    /// The private key of mode [`Mode::Restricted`].
    pub(crate) fn key(&self) -> PathBuf {
        self.host.path("client/key")
    }

    /// Lets this public key in as well, as it does the first one in mode [`Mode::Restricted`].
    #[track_caller]
    pub(crate) fn let_in(&self, public: &Path) {
        let key = std::fs::read_to_string(public).expect("it was made");
        let before = self.host.read("etc/ssh/authorized_keys");
        self.host.write("etc/ssh/authorized_keys", format!("{}\nrestrict,command=\"{GATE}\" {key}", before.trim_end()));
    }

    /// The authority's private key.
    pub(crate) fn authority(&self) -> PathBuf {
        self.host.path("client/ca")
    }

    /// The host's key, as clients know it.
    pub(crate) fn known_hosts(&self) -> PathBuf {
        self.host.path("client/known_hosts")
    }

    /// The folder of projects, as this machine sees it; on the host it is [`PROJECTS`], and can only be read there.
    pub(crate) fn projects(&self) -> PathBuf {
        self.host.path("projects")
    }

    /// A folder that the host's processes can write to, as this machine sees it; there it is `/home/deploy`.
    pub(crate) fn home(&self) -> PathBuf {
        self.host.path("home")
    }

    /// The machine, server or not.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Puts an executable into a project: `hooks/<name>`.
    #[track_caller]
    pub(crate) fn hook(&self, project: &str, name: &str, script: &str) {
        self.host.hook(project, name, script);
    }

    /// Puts a log into a project: `logs/<name>`.
    #[track_caller]
    pub(crate) fn project_log(&self, project: &str, name: &str, bytes: impl AsRef<[u8]>) {
        self.host.project_log(project, name, bytes);
    }

    /// Everything that the server has logged, over all its starts.
    pub(crate) fn log(&self) -> String {
        self.host.read("log/sshd.log")
    }

    /// What the script has told the system's log, a line each.
    pub(crate) fn gate_log(&self) -> Vec<String> {
        self.host.syslog()
    }

    /// Every session that the server has begun, over all its starts.
    pub(crate) fn sessions(&self) -> Vec<Session> {
        log::sessions(&self.log())
    }

    /// How often somebody has connected, over all its starts; the look at whether it is there is not counted.
    pub(crate) fn n_connections(&self) -> usize {
        log::n_connections(&self.log())
    }

    /// An `ssh` of OpenSSH with the restricted key and further options that sends this. What it says comes with the status of what
    /// ran there.
    pub(crate) fn ssh(&self, options: &[&str], action: &[&str]) -> Command {
        let mut ssh = process::command("ssh");
        let known_hosts = format!("UserKnownHostsFile={}", self.known_hosts().display());
        ssh.args(["-F", "none", "-T", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"]);
        ssh.args(["-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=none", "-o", "LogLevel=ERROR"]);
        ssh.arg("-o").arg(known_hosts).arg("-i").arg(self.key());
        ssh.args(["-p", &self.port.to_string()]).args(options).arg("deploy@127.0.0.1").args(action);
        ssh.env_remove("SSH_AUTH_SOCK");
        ssh
    }

    /// The machine is off: every process there is gone, and nobody listens.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            end(server);
        }
    }

    /// Starts it again on the same port.
    #[track_caller]
    pub(crate) fn start(&mut self) {
        self.kill();
        let n_before = self.log().matches(LISTENING).count();
        let mut server = Server::spawn(
            "sshd",
            &mut self.host.command(&[SSHD, "-D", "-f", "/etc/ssh/sshd_config", "-E", "/var/log/sshd.log"]),
        );
        wait_for("sshd", || {
            let ended = server.ended();
            assert!(ended.is_none(), "sshd ended: {ended:?}\n{}{}", server.log(), self.log());
            self.log().matches(LISTENING).count() > n_before
        });
        self.server = Some(server);
    }

    /// Starts it again with these files in `/etc/ssh`, and nothing but these lines under `Match User deploy`.
    #[track_caller]
    pub(crate) fn set_up(&mut self, files: &[(&str, &str)], account_lines: &[String]) {
        for (name, contents) in files {
            self.host.write(&format!("etc/ssh/{name}"), contents);
        }
        let config = self.host.read("etc/ssh/sshd_config");
        let (general, _) = config.split_once("Match User").expect("there is one");
        let lines: String = account_lines.iter().map(|line| format!("{line}\n")).collect();
        self.host.write("etc/ssh/sshd_config", format!("{general}Match User {ACCOUNT}\n{lines}"));
        self.host.write("etc/ssh/authorized_keys", "");
        self.restart();
    }

    /// Has [`Sshd::ssh`] show a certificate of the authority with this principal from now on.
    #[track_caller]
    pub(crate) fn certify(&self, principal: &str) {
        let mut keygen = process::command("ssh-keygen");
        keygen.args(["-q", "-I", "r_1/h_2 deploy project-b", "-n", principal, "-V", "-1m:+1m", "-O", "clear"]);
        keygen.arg("-s").arg(self.authority()).arg(self.key().with_extension("pub"));
        process::run(&mut keygen, b"").success();
    }

    /// Kills it and starts it again.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start();
    }

    /// Starts it again as another host: with a key that nobody has seen.
    #[track_caller]
    pub(crate) fn with_other_host_key(&mut self) {
        self.host.use_host_key("other");
        self.restart();
    }

    /// Starts it again with the key that it had at first.
    #[track_caller]
    pub(crate) fn with_its_host_key(&mut self) {
        self.host.use_host_key("first");
        self.restart();
    }

    /// Kills the servers of all connections there are, and neither the one that listens nor what they have started.
    #[track_caller]
    pub(crate) fn kill_connections(&self) {
        for id in self.processes() {
            let title = command_line(id);
            if title.starts_with("sshd") && title.contains("deploy") {
                // It may have gone by itself.
                let _ = kill(Pid::from_raw(id.cast_signed()), Signal::SIGKILL);
            }
        }
    }

    /// Stops all its processes where they are: connections stay, and nothing answers.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets them go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// All its processes, by the numbers they have here.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.server.as_ref().map(|server| descendants(server.id())).unwrap_or_default()
    }

    /// Its processes whose command lines hold `mark`.
    pub(crate) fn processes_with(&self, mark: &str) -> Vec<u32> {
        self.processes().into_iter().filter(|id| command_line(*id).contains(mark)).collect()
    }

    /// Whether somebody listens.
    pub(crate) fn is_up(&self) -> bool {
        TcpStream::connect(self.address()).is_ok()
    }

    fn signal(&self, signal: Signal) {
        // The outer bubblewrap only waits.
        for id in self.processes() {
            let _ = kill(Pid::from_raw(id.cast_signed()), signal);
        }
    }
}

impl Setup {
    fn of(mode: Mode) -> Setup {
        Setup { mode, lines: Vec::new(), account_lines: Vec::new(), shell: "/bin/sh" }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- sshd said:\n{}---", self.log());
        }
        if let Some(server) = self.server.take() {
            end(server);
        }
    }
}

/// What sshd logs when it is there.
const LISTENING: &str = "Server listening on 127.0.0.1";

/// Ends all of it, and waits for that: with the outer bubblewrap the inner one goes, and with that, all of its namespace.
fn end(server: Server) {
    let all = descendants(server.id());
    drop(server);
    wait_for("the end of sshd", || all.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists()));
}

fn command_line(id: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// The processes below this one.
fn descendants(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let texts = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<u32> =
        texts.flat_map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}
