//! The default backend: bubblewrap makes the namespaces and mounts, loads the seccomp filter, and starts the inner stage
//! as the first process inside. (`bwrap(1)`; 0.8.0 and later.)

use super::root::{ID, Root};
use super::{INNER, Launch, inner, seccomp};
use crate::settings::Settings;
use portcullis_local::descriptors;
use portcullis_local::handover::filled;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where the program is looked for.
const PLACES: [&str; 3] = ["/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap"];

/// All that is the same for every command.
pub(super) struct Bubblewrap {
    program: PathBuf,
    root: Root,
    filter: Vec<u8>,
    ourselves: Ourselves,
}

/// Our own program. It is run by its descriptor: its path leads nowhere inside, and perhaps outside too.
pub(super) struct Ourselves {
    pub(super) program: OwnedFd,
    path: PathBuf,
}

impl Bubblewrap {
    /// Finds the program, and what it needs.
    ///
    /// # Errors
    /// What is missing, and where to get it.
    pub(super) async fn find(named: Option<&Path>, settings: &Settings) -> Result<Bubblewrap, String> {
        let program = program(named).await?;
        let ourselves = Ourselves::find().map_err(|why| format!("/proc/self/exe: {why}"))?;
        Ok(Bubblewrap { program, root: Root::new(settings)?, filter: seccomp::program()?, ourselves })
    }

    /// How the inner stage is started. It finds its sockets under the numbers that it is told.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn launch(&self, workspace: Option<OwnedFd>, sockets: Vec<OwnedFd>) -> io::Result<Launch> {
        let mut launch = Launch::new(self.program.clone());
        let sockets: Vec<_> = sockets.into_iter().map(|socket| launch.pass(socket).to_string().into()).collect();
        let ourselves = launch.pass(self.ourselves.program.try_clone()?);
        let filter = launch.pass(filled(&self.filter)?);
        let id = ID.to_string();
        #[rustfmt::skip]
        let namespaces = [
            "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup",
            "--disable-userns", "--uid", &id, "--gid", &id, "--hostname", "sandbox", "--cap-drop", "ALL",
            "--die-with-parent", "--new-session", "--as-pid-1", "--seccomp",
        ];
        let mut arguments: Vec<OsString> = namespaces.map(OsString::from).into();
        arguments.push(filter.to_string().into());
        arguments.extend(self.root.arguments(workspace, |fd| launch.pass(fd).to_string().into())?);
        // For the probes of `verify`, which are to see what any command sees.
        if self.ourselves.is_reachable() {
            let visible = launch.pass(self.ourselves.program.try_clone()?).to_string();
            arguments.extend(["--ro-bind-fd", &visible, INNER].map(OsString::from));
        }
        let program = format!("/proc/self/fd/{ourselves}");
        arguments.extend(["--", &program, inner::ARGUMENT].map(OsString::from));
        arguments.extend(sockets);
        launch.arguments = arguments;
        Ok(launch)
    }
}

// === impl Ourselves ===

impl Ourselves {
    /// As the gateway has put us, if it could.
    pub(super) fn find() -> io::Result<Ourselves> {
        let put = PathBuf::from(OsStr::from_bytes(descriptors::OURSELVES.to_bytes()));
        let program = OwnedFd::from(File::open("/proc/self/exe")?);
        let path = if is_at(&program, &put) { put } else { fs::read_link("/proc/self/exe")? };
        // What is opened here knows itself by this path.
        let program = if is_at(&program, &path) { File::open(&path)?.into() } else { program };
        Ok(Ourselves { program, path })
    }

    /// Whether there is a path that leads to it, by which it can be shown to commands. There is none where we may not
    /// go, or where another one stands at its place by now.
    pub(super) fn is_reachable(&self) -> bool {
        is_at(&self.program, &self.path)
    }
}

fn is_at(program: &OwnedFd, path: &Path) -> bool {
    rustix::fs::fstat(program)
        .is_ok_and(|us| fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (us.st_dev, us.st_ino)))
}

/// Where `bwrap` is, if it is new enough.
///
/// # Errors
/// What is missing, and where to get it.
pub(super) async fn program(named: Option<&Path>) -> Result<PathBuf, String> {
    let found = named.map(Path::to_owned).or_else(|| PLACES.map(PathBuf::from).into_iter().find(|it| it.exists()));
    let program = found.ok_or(
        "bubblewrap is not installed: `apt-get install bubblewrap` (or dnf, apk, pacman: the package has this name \
         everywhere), or say where `bwrap` is",
    )?;
    let help = said_by(&program, &["--help"]).await;
    let help = help.map_err(|why| format!("{} cannot be run: {why}", program.display()))?;
    if !help.contains("--bind-fd") {
        return Err(format!(
            "{} is too old: it has no --bind-fd. Version 0.8.0 of bubblewrap is in Debian 12 and Ubuntu 23.04",
            program.display()
        ));
    }
    Ok(program)
}

/// What a program says of itself, on stdout and stderr.
///
/// # Errors
/// It cannot be run.
pub(super) async fn said_by(program: &Path, arguments: &[&str]) -> io::Result<String> {
    let mut command = tokio::process::Command::new(program);
    let output = command.args(arguments).env_clear().output().await?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// What bwrap said, and which setting of the host stands behind it.
pub(super) fn explain(said: &str) -> String {
    let setting = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let has = |words: &str| said.contains(words);
    let is_userns = has("namespace") || has("uid map") || has("Operation not permitted");
    let hint = if is_userns && setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        "AppArmor forbids user namespaces to programs without a profile (Ubuntu 23.10 and later): install a profile for \
         bwrap that says `userns,` (docs/sandbox.md), or set kernel.apparmor_restrict_unprivileged_userns=0"
    } else if is_userns && setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        "this host forbids user namespaces: set kernel.unprivileged_userns_clone=1"
    } else if is_userns && setting("/proc/sys/user/max_user_namespaces") == "0" {
        "this host forbids user namespaces: set user.max_user_namespaces to some thousands"
    } else if has("/newroot/proc") || has("mount proc") {
        "a part of /proc is covered, as in most containers: run the container with it uncovered (Docker: \
         --security-opt systempaths=unconfined; Kubernetes: procMount: Unmasked), or the gateway on the host"
    } else if has("Can't find source path") || has("Can't get type of source") {
        "the user that the sandbox runs as cannot reach this path: its folders must let others through (chmod o+x)"
    } else if is_userns {
        "namespaces are forbidden here: in a container its seccomp profile must allow them (Docker: --security-opt \
         seccomp=unconfined, and AppArmor likewise), or run the gateway on the host"
    } else {
        return said.to_owned();
    };
    format!("{said}: {hint}")
}
