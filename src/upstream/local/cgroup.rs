//! The cgroup of a local upstream: a folder made for it, in which it makes one for each command.
//!
//! cgroup v2: below our own cgroup, which must be delegated to us; since a cgroup with processes in it cannot pass
//! controllers on, we move into a leaf of it ourselves. cgroup v1: a folder in each of three hierarchies.

use super::user::Account;
use crate::config::SandboxCgroup;
use portcullis_sandbox::settings::Cgroup;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// What limits a command as a whole.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// Where we are ourselves, once we pass controllers on.
const OWN_LEAF: &str = "portcullis-gateway";
/// Where the upstream's own process is.
const SERVER_LEAF: &str = "server";
/// What the upstream's own process may have, in bytes: it holds requests and answers, and edits files in memory.
const SERVER_MEMORY: u64 = 1024 * 1024 * 1024;
const PREFIX: &str = "portcullis-";
const ADVICE: &str = "start the gateway with a cgroup of its own (a systemd unit with `Delegate=memory pids cpu`, or \
    `systemd-run --user --scope -p Delegate=yes portcullis serve`), name one with `cgroup: { at: … }`, or do without \
    with `cgroup: none`, where many processes together may use more than `memory`";

/// What was made.
pub(super) struct Stem {
    /// As the upstream is told.
    pub(super) settings: Cgroup,
    /// All folders of it; whoever sweeps these leaves nothing.
    pub(super) folders: Vec<PathBuf>,
    /// What the upstream's process enters when it begins.
    pub(super) entered: Vec<OwnedFd>,
}

/// Makes the cgroups of the upstream `name`, and gives them to `owner`. What a gateway that was killed left there is swept.
///
/// # Errors
/// For the person who runs the gateway: what is missing, and what to do.
pub(super) fn make(
    wanted: &SandboxCgroup,
    name: &str,
    owner: Option<Account>,
    memory: Option<u64>,
) -> Result<Stem, String> {
    let own = match wanted {
        SandboxCgroup::None => {
            return Ok(Stem { settings: Cgroup::Off, folders: Vec::new(), entered: Vec::new() });
        }
        SandboxCgroup::At(folder) => Own::V2 { base: folder.clone(), may_move: false },
        SandboxCgroup::Own => Own::find(&Host::read()?)?,
    };
    // Under an earlier configuration a process of the same name may still be at work.
    let folder = format!("{PREFIX}{}-{name}-{}", std::process::id(), crate::id::short());
    let all = memory.map_or_else(half_of_the_memory, Ok)?;
    let made = match own {
        Own::V2 { base, may_move } => v2(&base, may_move, &folder, owner, all),
        Own::V1 { memory, pids, cpu } => v1(&[memory, pids, cpu], &folder, owner, all),
    };
    made.map_err(|why| format!("{why}; {ADVICE}"))
}

/// In bytes.
fn half_of_the_memory() -> Result<u64, String> {
    let text = read(Path::new("/proc/meminfo"))?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    total.map(|kib: u64| kib * 1024 / 2).ok_or_else(|| "/proc/meminfo does not say how much memory there is".to_owned())
}

fn v2(base: &Path, may_move: bool, folder: &str, owner: Option<Account>, memory: u64) -> Result<Stem, String> {
    let has = read(&base.join("cgroup.controllers"))?;
    let missing: Vec<_> = CONTROLLERS.into_iter().filter(|one| !has.split_whitespace().any(|it| it == *one)).collect();
    if !missing.is_empty() {
        return Err(format!("the cgroup {} is not given the controllers {}", base.display(), missing.join(", ")));
    }
    sweep_leftovers(base);
    let stem = base.join(folder);
    make_folder(&stem)?;
    let made = pass_on(base, may_move).and_then(|()| {
        write(&stem.join("memory.max"), &memory.to_string())?;
        write(&stem.join("cgroup.subtree_control"), "+memory +pids +cpu")?;
        let server = stem.join(SERVER_LEAF);
        make_folder(&server)?;
        write(&server.join("memory.max"), &SERVER_MEMORY.to_string())?;
        for file in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"] {
            give(&stem.join(file), owner)?;
        }
        give(&server, owner)?;
        let procs = OpenOptions::new().write(true).open(server.join("cgroup.procs"));
        procs.map(OwnedFd::from).map_err(|why| format!("cannot enter {}: {why}", server.display()))
    });
    match made {
        Ok(procs) => Ok(Stem { settings: Cgroup::V2(stem.clone()), folders: vec![stem], entered: vec![procs] }),
        Err(why) => {
            let _ = portcullis_local::cgroup::sweep(&stem);
            Err(why)
        }
    }
}

/// Lets `base` pass our controllers on to what is below it. Processes may not stay in it then.
fn pass_on(base: &Path, may_move: bool) -> Result<(), String> {
    let control = base.join("cgroup.subtree_control");
    let passed = read(&control)?;
    if CONTROLLERS.iter().all(|one| passed.split_whitespace().any(|it| it == *one)) {
        return Ok(());
    }
    let first = write(&control, "+memory +pids +cpu");
    if first.is_ok() || !may_move {
        return first;
    }
    let leaf = base.join(OWN_LEAF);
    make_folder(&leaf)?;
    for pid in read(&base.join("cgroup.procs"))?.lines() {
        // A process that has ended meanwhile is not there to be moved.
        let _ = fs::write(leaf.join("cgroup.procs"), pid);
    }
    write(&control, "+memory +pids +cpu")
}

fn v1(bases: &[PathBuf; 3], folder: &str, owner: Option<Account>, all: u64) -> Result<Stem, String> {
    let stems = bases.each_ref().map(|base| base.join(folder));
    let made = bases.iter().zip(&stems).try_for_each(|(base, stem)| {
        sweep_leftovers(base);
        make_folder(stem)?;
        give(stem, owner)
    });
    let [memory, pids, cpu] = stems.clone();
    let made = made.and_then(|()| {
        // Older kernels count what is below only where that is asked for; newer ones always do.
        let _ = fs::write(memory.join("memory.use_hierarchy"), "1");
        write(&memory.join("memory.limit_in_bytes"), &all.to_string())?;
        let server = memory.join(SERVER_LEAF);
        make_folder(&server)?;
        write(&server.join("memory.limit_in_bytes"), &SERVER_MEMORY.to_string())?;
        let procs = OpenOptions::new().write(true).open(server.join("cgroup.procs"));
        procs.map(OwnedFd::from).map_err(|why| format!("cannot enter {}: {why}", server.display()))
    });
    match made {
        Ok(procs) => {
            Ok(Stem { settings: Cgroup::V1 { memory, pids, cpu }, folders: stems.into(), entered: vec![procs] })
        }
        Err(why) => {
            for stem in &stems {
                let _ = portcullis_local::cgroup::sweep(stem);
            }
            Err(why)
        }
    }
}

/// What gateways left that were killed, and whose keeper was killed with them.
fn sweep_leftovers(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = portcullis_local::cgroup::sweep(&entry.path());
        }
    }
}

fn make_folder(folder: &Path) -> Result<(), String> {
    match fs::create_dir(folder) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("cannot make the cgroup {}: {why}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn give(path: &Path, owner: Option<Account>) -> Result<(), String> {
    let Some(Account { uid, gid }) = owner else {
        return Ok(());
    };
    chown(path, Some(uid), Some(gid)).map_err(|why| format!("cannot give {} to user {uid}: {why}", path.display()))
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|why| format!("cannot read {}: {why}", file.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    let written =
        File::options().write(true).open(file).and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|why| format!("cannot write `{text}` to {}: {why}", file.display()))
}

// === Where we are ourselves ===

/// What the kernel says of our cgroups and of where they are mounted.
struct Host {
    /// `/proc/self/cgroup`.
    own: String,
    /// `/proc/self/mountinfo`.
    mounts: String,
}

/// Below which folders cgroups can be made.
#[derive(Debug, PartialEq, Eq)]
enum Own {
    V2 {
        base: PathBuf,
        /// Whether what is in it may be moved into a leaf: it is our own.
        may_move: bool,
    },
    V1 {
        memory: PathBuf,
        pids: PathBuf,
        cpu: PathBuf,
    },
}

impl Host {
    fn read() -> Result<Host, String> {
        Ok(Host { own: read(Path::new("/proc/self/cgroup"))?, mounts: read(Path::new("/proc/self/mountinfo"))? })
    }

    /// Our cgroup in the hierarchy of this v1 controller, or of v2 (`None`), as a folder.
    fn folder(&self, controller: Option<&str>) -> Option<PathBuf> {
        let path = self.own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let is_it = match controller {
                Some(one) => controllers.split(',').any(|it| it == one),
                None => controllers.is_empty(),
            };
            is_it.then_some(path)
        })?;
        self.mounts.lines().find_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut mount = mount.split(' ').skip(3);
            let (root, point) = (mount.next()?, mount.next()?);
            let mut filesystem = filesystem.split(' ');
            let kind = filesystem.next()?;
            let is_it = match controller {
                Some(one) => kind == "cgroup" && filesystem.nth(1)?.split(',').any(|it| it == one),
                None => kind == "cgroup2",
            };
            // In a container, the mount may begin at the container's own cgroup.
            let below = if root == "/" { path } else { path.strip_prefix(root)? };
            is_it.then(|| Path::new(point).join(below.trim_start_matches('/')))
        })
    }
}

impl Own {
    fn find(host: &Host) -> Result<Own, String> {
        // Where memory is a controller of v1, v2 has none of what is needed.
        if let (Some(memory), Some(pids), Some(cpu)) =
            (host.folder(Some("memory")), host.folder(Some("pids")), host.folder(Some("cpu")))
        {
            return Ok(Own::V1 { memory, pids, cpu });
        }
        let own = host.folder(None).ok_or_else(|| format!("no cgroups are mounted here; {ADVICE}"))?;
        // We may have moved there ourselves, before an upgrade in place.
        let base = if own.ends_with(OWN_LEAF) { own.parent().map(Path::to_owned) } else { None };
        Ok(Own::V2 { base: base.unwrap_or(own), may_move: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "9:name=systemd:/\n8:pids:/\n4:memory:/api/65\n2:cpuacct:/\n1:cpu:/\n0::/\n";
    const HYBRID_MOUNTS: &str = "\
        30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        31 24 0:27 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n\
        33 24 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        34 24 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        40 24 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const UNIFIED_MOUNTS: &str = "25 20 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn find(own: &str, mounts: &str) -> Result<Own, String> {
        Own::find(&Host { own: own.to_owned(), mounts: mounts.to_owned() })
    }

    #[test]
    fn the_own_cgroup_is_found_in_either_version() {
        let folder = |path: &str| PathBuf::from(path);
        assert_eq!(
            find(HYBRID, HYBRID_MOUNTS),
            Ok(Own::V1 {
                memory: folder("/sys/fs/cgroup/memory/api/65"),
                pids: folder("/sys/fs/cgroup/pids"),
                cpu: folder("/sys/fs/cgroup/cpu"),
            })
        );
        for (own, base) in [
            ("0::/user.slice/run-1.scope\n", "/sys/fs/cgroup/user.slice/run-1.scope"),
            ("0::/system.slice/p.service/portcullis-gateway\n", "/sys/fs/cgroup/system.slice/p.service"),
            ("0::/\n", "/sys/fs/cgroup"),
        ] {
            let found = find(own, UNIFIED_MOUNTS).map(|own| match own {
                Own::V2 { base, .. } => base,
                own @ Own::V1 { .. } => panic!("{own:?}"),
            });
            // `join` of nothing leaves a slash at the end, which `Path` does not count.
            assert_eq!(found, Ok(folder(base)), "{own}");
        }
    }

    #[test]
    fn a_mount_that_begins_in_the_middle_is_a_container_s() {
        let mounts = "25 20 0:22 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

        let found = find("0::/docker/ab/x\n", mounts);

        assert_eq!(found, Ok(Own::V2 { base: PathBuf::from("/sys/fs/cgroup/x"), may_move: true }));
    }

    #[test]
    fn where_there_are_no_cgroups_it_says_what_can_be_done() {
        let why = find("", "").expect_err("there is nothing");

        assert!(why.contains("no cgroups are mounted") && why.contains("cgroup: none"), "{why}");
    }
}
