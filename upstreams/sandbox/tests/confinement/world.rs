//! A process that confines commands, as the sandbox upstream does: started by root as a user of its own, with cgroups
//! and a folder that it cannot reach by a path; otherwise as ourselves, without cgroups.

use portcullis_local::{cgroup, descriptors};
use portcullis_sandbox::Settings;
use portcullis_sandbox::settings::{Backend, Cgroup, Network};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

pub(crate) const MIB: u64 = 1024 * 1024;
const PROGRAM: &str = env!("CARGO_BIN_EXE_confined");
/// For what has to happen some time.
const PATIENCE: Duration = Duration::from_secs(60);
/// What does not answer for so long never will.
const LONGEST: Duration = Duration::from_secs(150);

pub(crate) struct World {
    pub folder: PathBuf,
    pub settings: Settings,
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    uid: u32,
    /// Its cgroups, whatever the settings say.
    made: Cgroup,
    asked: u64,
    _closed: TempDir,
}

/// What became of a command.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ended {
    pub id: u64,
    pub end: String,
    pub error: String,
    pub stdout: String,
    pub stdout_tail: String,
    pub stdout_total: u64,
    pub stderr: String,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(|_| {})
    }

    /// With other settings.
    #[track_caller]
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> World {
        World::start(Path::new(PROGRAM), change).established()
    }

    /// With its folder on a disk of its own.
    #[track_caller]
    pub(crate) fn on(disk: &Disk, change: impl FnOnce(&mut Settings)) -> World {
        let closed = tempfile::tempdir_in(&disk.place).expect("a folder");
        World::start_in(closed, Path::new(PROGRAM), change).established()
    }

    /// With a program in a folder of this mode, and that is not there any more when commands run.
    #[track_caller]
    pub(crate) fn hidden(mode: u32) -> World {
        World::elsewhere(mode).0
    }

    /// With a program in a folder of this mode, which is there as long as it is kept. Where it was built, another user may
    /// not be able to go.
    #[track_caller]
    pub(crate) fn elsewhere(mode: u32) -> (World, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("confined");
        fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("the folder is ours");
        fs::copy(PROGRAM, &program).expect("copied");
        (World::start(&program, |_| {}).established(), folder)
    }

    #[track_caller]
    fn established(mut self) -> World {
        let line = self.stdout.next().and_then(Result::ok);
        if line.is_none() {
            panic!("nothing is confined: {}", self.stderr());
        }
        self
    }

    /// What a confinement that cannot be set up says.
    #[track_caller]
    pub(crate) fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let mut world = World::start(Path::new(PROGRAM), change);
        assert!(world.stdout.next().is_none(), "it could be set up");
        world.stderr()
    }

    fn start(program: &Path, change: impl FnOnce(&mut Settings)) -> World {
        World::start_in(tempfile::tempdir().expect("a folder"), program, change)
    }

    fn start_in(closed: TempDir, program: &Path, change: impl FnOnce(&mut Settings)) -> World {
        static N: AtomicU32 = AtomicU32::new(0);
        // A user of its own: no two tests that run have the same process.
        let n = std::process::id().wrapping_mul(50) + N.fetch_add(1, Ordering::Relaxed);
        let is_root = geteuid().is_root();
        let uid = if is_root { 70_000 + n % 1_000_000_000 } else { geteuid().as_raw() };
        fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).expect("closed");
        let folder = closed.path().join("folder");
        fs::create_dir(&folder).expect("a folder");
        let (place, entered) = if is_root { cgroups(uid) } else { (Cgroup::Off, Vec::new()) };
        let mut settings = settings(place.clone());
        change(&mut settings);

        let program = File::open(program).expect("built");
        let opened = OwnedFd::from(File::open(&folder).expect("opened"));
        #[expect(clippy::disallowed_methods, reason = "what is tested")]
        let mut command = Command::new("/proc/self/fd/3");
        command.arg("/proc/self/fd/4").env_clear().env("CANARY", "not for commands");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if is_root {
            chown(&folder, Some(uid), Some(uid)).expect("given away");
            descriptors::apart(&mut command, (uid, uid), opened.as_fd());
        }
        descriptors::pass(&mut command, vec![program.into(), opened], entered);
        let mut process = command.spawn().expect("started");
        let mut stdin = process.stdin.take().expect("piped");
        let stdout = BufReader::new(process.stdout.take().expect("piped")).lines();
        writeln!(stdin, "{}", serde_json::to_string(&settings).expect("JSON")).expect("told");
        World { folder, settings, process, stdin: Some(stdin), stdout, uid, made: place, asked: 0, _closed: closed }
    }

    fn stderr(&mut self) -> String {
        let mut said = String::new();
        let _ = self.process.stderr.take().expect("piped").read_to_string(&mut said);
        said
    }

    /// Runs a line, and says what became of it.
    #[track_caller]
    pub(crate) fn run(&mut self, line: &str) -> Ended {
        self.ask(json!({ "line": line }));
        self.ended()
    }

    /// Runs a line that must do well; what it wrote.
    #[track_caller]
    pub(crate) fn output(&mut self, line: &str) -> String {
        let ended = self.run(line);
        assert_eq!(ended.end, "Exited(0)", "{line}: {ended:?}");
        ended.stdout
    }

    /// Begins a command; several may run at once.
    pub(crate) fn ask(&mut self, mut command: Value) -> u64 {
        self.asked += 1;
        command["id"] = self.asked.into();
        writeln!(self.stdin.as_mut().expect("open"), "{command}").expect("asked");
        self.asked
    }

    /// The next one that has ended.
    #[track_caller]
    pub(crate) fn ended(&mut self) -> Ended {
        let process = Pid::from_raw(self.process.id().cast_signed()).expect("a process");
        let (ended, waits) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if waits.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill_process(process, Signal::KILL);
            }
        });
        let Some(Ok(line)) = self.stdout.next() else { panic!("it has gone: {}", self.stderr()) };
        drop(ended);
        serde_json::from_str(&line).expect("what became of it")
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("killed");
        self.process.wait().expect("waited for");
    }

    pub(crate) fn has_cgroups(&self) -> bool {
        self.settings.cgroup != Cgroup::Off
    }

    /// Waits until no process of a command and no cgroup of one is there any more.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        eventually(
            || (self.processes().is_empty() && self.leaves().is_empty()).then_some(()),
            || format!("left: {:?}, {:?}", self.processes(), self.leaves()),
        );
    }

    /// The cgroups of commands.
    pub(crate) fn leaves(&self) -> Vec<PathBuf> {
        let roots = folders(&self.settings.cgroup);
        let inside = roots.iter().flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten());
        inside.map(|entry| entry.path()).filter(|path| name(path).starts_with("command-")).collect()
    }

    /// Command lines of the processes of its user, but itself. Where that is us, of those that it has started.
    pub(crate) fn processes(&self) -> Vec<String> {
        let ours = self.process.id();
        let all = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(|pid| *pid != ours);
        pids.filter(|pid| if geteuid().is_root() { owner(*pid) == Some(self.uid) } else { parent(*pid) == Some(ours) })
            .map(|pid| format!("{pid} {}", fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()))
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
        for folder in folders(&self.made) {
            let _ = cgroup::sweep(&folder);
        }
    }
}

/// A file system that nobody else writes to, in a file.
pub(crate) struct Disk {
    pub place: PathBuf,
    _file: TempDir,
}

impl Disk {
    /// Of so many bytes. `None` where we are not root, or there are no such devices.
    pub(crate) fn new(size: u64) -> Option<Disk> {
        let disk = Disk::made(size);
        if disk.is_none() {
            assert!(std::env::var_os("CI").is_none(), "on CI a disk of one's own may not be missing");
            eprintln!("NOT RUN: no file system can be mounted from a file here");
        }
        disk
    }

    fn made(size: u64) -> Option<Disk> {
        if !geteuid().is_root() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let (file, place) = (folder.path().join("file"), folder.path().join("disk"));
        File::create(&file).and_then(|file| file.set_len(size)).expect("a file");
        fs::create_dir(&place).expect("a folder");
        let [file, at] = [&file, &place].map(|path| path.to_str().expect("UTF-8"));
        let is_there = run("mkfs.ext4", &["-q", "-F", "-m", "0", file]) && run("mount", &["-o", "loop", file, at]);
        is_there.then_some(Disk { place, _file: folder })
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.place).expect("a file system");
        (found.f_blocks - found.f_bfree) * found.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &["-l", self.place.to_str().expect("UTF-8")]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    #[expect(clippy::disallowed_methods, reason = "what a disk is made with")]
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").status().is_ok_and(|status| status.success())
}

/// Waits for `found`.
#[track_caller]
pub(crate) fn eventually<T>(mut found: impl FnMut() -> Option<T>, otherwise: impl FnOnce() -> String) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{}", otherwise());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn settings(cgroup: Cgroup) -> Settings {
    Settings {
        name: "sandbox".to_owned(),
        backend: Backend::Bubblewrap { program: None },
        network: Network::None,
        memory: 256 * MIB,
        processes: 64,
        cpu_millis: 2000,
        tmp: 32 * MIB,
        quota: 64 * MIB,
        reserve: MIB,
        timeout: Duration::from_secs(60),
        longest: Duration::from_secs(600),
        output: 64 * 1024,
        at_once: 8,
        read_only: Vec::new(),
        environment: BTreeMap::new(),
        cgroup,
    }
}

/// Cgroups for a user, below our own in version 1, and below the root in version 2; and what its process enters.
fn cgroups(uid: u32) -> (Cgroup, Vec<OwnedFd>) {
    let make = |folder: PathBuf| {
        fs::create_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        chown(&folder, Some(uid), Some(uid)).expect("given away");
        folder
    };
    let root = Path::new("/sys/fs/cgroup");
    let name = format!("portcullis-test-{uid}");
    if root.join("cgroup.controllers").exists() {
        fs::write(root.join("cgroup.subtree_control"), "+memory +pids +cpu").expect("controllers");
        let folder = make(root.join(name));
        fs::write(folder.join("cgroup.subtree_control"), "+memory +pids +cpu").expect("controllers");
        chown(folder.join("cgroup.procs"), Some(uid), Some(uid)).expect("given away");
        let server = make(folder.join("server"));
        let procs = File::options().write(true).open(server.join("cgroup.procs")).expect("entered");
        return (Cgroup::V2(folder), vec![procs.into()]);
    }
    let own = fs::read_to_string("/proc/self/cgroup").expect("cgroups");
    let [memory, pids, cpu] = ["memory", "pids", "cpu"].map(|controller| {
        let is_it = |line: &&str| line.split(':').nth(1).is_some_and(|all| all.split(',').any(|it| it == controller));
        let line = own.lines().find(is_it).unwrap_or_else(|| panic!("no cgroup controller {controller}"));
        let below = line.splitn(3, ':').nth(2).expect("three fields").trim_start_matches('/');
        make(root.join(controller).join(below).join(&name))
    });
    (Cgroup::V1 { memory, pids, cpu }, Vec::new())
}

fn folders(cgroup: &Cgroup) -> Vec<PathBuf> {
    match cgroup {
        Cgroup::V2(folder) => vec![folder.clone()],
        Cgroup::V1 { memory, pids, cpu } => vec![memory.clone(), pids.clone(), cpu.clone()],
        Cgroup::Off => Vec::new(),
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn owner(pid: u32) -> Option<u32> {
    field(pid, "Uid:")
}

fn parent(pid: u32) -> Option<u32> {
    field(pid, "PPid:")
}

fn field(pid: u32, name: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}
