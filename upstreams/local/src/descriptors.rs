//! Which descriptors a new process has, which cgroups it begins in, and as whom: exactly those that are named here.
//!
//! Rust opens files with CLOEXEC, but a gateway also has what its own parent left open. What runs between fork and exec
//! is here alone, since nothing but system calls may be made there; with it, all `unsafe` of starting processes.

#![expect(unsafe_code, reason = "between fork and exec, and for descriptors that are known by number only")]

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// The number of the first descriptor that is passed on; 0, 1 and 2 are `Command`'s own business.
pub const FIRST: RawFd = 3;
/// Where descriptors are put aside, so that none is overwritten before it was passed on.
const ASIDE: RawFd = 64;

/// Makes `command` start with `passed` as 3, 4, 5, …, and with no further descriptor. Before it runs anything, the new
/// process enters the cgroups whose `cgroup.procs` files are `entered`.
///
/// A command that this was called for can be started once.
pub fn pass(command: &mut Command, passed: Vec<OwnedFd>, entered: Vec<OwnedFd>) {
    let mut aside = vec![-1; passed.len()];
    let go = move || enter(&entered).and_then(|()| arrange(FIRST, &passed, &mut aside));
    // SAFETY: `go` makes system calls only: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(go) };
}

/// A program that is started with what is named here and nothing else: no environment, and `/` as its folder. It is
/// killed when the thread that started it ends.
pub struct Bare {
    /// A path; not looked for.
    pub program: PathBuf,
    /// Without the program's own name.
    pub arguments: Vec<OsString>,
    /// 0, 1, 2, and so on.
    pub passed: Vec<OwnedFd>,
    /// In which cgroups it begins.
    pub begin: Begin,
}

/// In which cgroups a new process begins.
pub enum Begin {
    /// It enters those whose `tasks` (version 1) or `cgroup.procs` files these are.
    Entered(Vec<OwnedFd>),
    /// It is made in this one of version 2. To enter one, the kernel would stop all forks of the host, and take
    /// milliseconds for that.
    Into {
        /// The folder.
        folder: OwnedFd,
        /// Its `cgroup.procs`, for a kernel that cannot do that.
        procs: OwnedFd,
    },
}

/// `struct clone_args` of clone(2), as of Linux 5.7.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

impl Bare {
    /// Starts it, and returns once it runs. Whoever does this waits for its end, too (waitid(2)).
    ///
    /// # Errors
    /// It cannot be run, or cannot begin there.
    pub fn spawn(self) -> io::Result<Pid> {
        let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(io::Error::from);
        let program = text(self.program.as_os_str())?;
        let arguments = self.arguments.iter().map(|argument| text(argument)).collect::<io::Result<Vec<_>>>()?;
        let mut pointers: Vec<*const c_char> = vec![program.as_ptr()];
        pointers.extend(arguments.iter().map(|argument| argument.as_ptr()));
        pointers.push(std::ptr::null());
        let (failed, fails) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut passed = self.passed;
        let n = passed.len();
        passed.push(fails);
        let mut aside = vec![-1; passed.len()];
        let parent = rustix::process::getpid();
        let (pid, entered) = fork(&self.begin)?;
        if pid == 0 {
            // SAFETY: this is the new process, in which there is one thread. Whatever the others were doing with memory
            // when they stopped being there, what is called here makes system calls only; what it reads was made before.
            let why = unsafe { become_bare(&program, &pointers, parent, entered, &passed, &mut aside, n) };
            let errno = why.raw_os_error().unwrap_or(0).to_ne_bytes();
            // SAFETY: four bytes that are there, to a descriptor that was put aside or not; then the end, without
            // anything that belongs to the process this one was made from.
            unsafe {
                let fails = aside[n].max(passed[n].as_raw_fd());
                libc::write(fails, errno.as_ptr().cast(), errno.len());
                libc::_exit(127)
            }
        }
        drop(passed);
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no process"))?;
        let mut errno = [0; 4];
        match std::fs::File::from(failed).read_exact(&mut errno) {
            // It ended that pipe by becoming another program.
            Err(_) => Ok(pid),
            Ok(()) => {
                let _ = waitpid(Some(pid), WaitOptions::empty());
                Err(io::Error::from_raw_os_error(i32::from_ne_bytes(errno)))
            }
        }
    }
}

/// A new process, 0 in itself; and what it still has to enter.
fn fork(begin: &Begin) -> io::Result<(libc::pid_t, &[OwnedFd])> {
    let entered = match begin {
        Begin::Entered(entered) => entered.as_slice(),
        Begin::Into { folder, procs } => {
            let (exit_signal, cgroup) = (libc::SIGCHLD as u64, folder.as_raw_fd() as u64);
            let arguments = CloneArgs { flags: CLONE_INTO_CGROUP, exit_signal, cgroup, ..CloneArgs::default() };
            // SAFETY: the structure is as long as is said. The new process has its own memory, as after fork(2).
            let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<CloneArgs>()) };
            if pid >= 0 {
                return Ok((pid as libc::pid_t, &[]));
            }
            let why = io::Error::last_os_error();
            if !matches!(why.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::E2BIG)) {
                return Err(why);
            }
            std::slice::from_ref(procs)
        }
    };
    // SAFETY: the new process is `become_bare`, or ends.
    let pid = unsafe { libc::fork() };
    check(pid >= 0).map(|()| (pid, entered))
}

/// Becomes the program, or returns why not.
///
/// # Safety
/// This process must have been made for it. `pointers` ends with null, and points to what is there.
unsafe fn become_bare(
    program: &CStr,
    pointers: &[*const c_char],
    parent: Pid,
    entered: &[OwnedFd],
    passed: &[OwnedFd],
    aside: &mut [RawFd],
    n: usize,
) -> io::Error {
    let go = |aside: &mut [RawFd]| -> io::Result<()> {
        enter(entered)?;
        // SAFETY: no memory is touched but paths that live as long as the program, a set of signals, and the arguments.
        unsafe {
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0)?;
            // It may have ended before that.
            check(libc::getppid() == parent.as_raw_nonzero().get())?;
            arrange_some(0, passed, aside, n)?;
            let mut none = std::mem::zeroed();
            check(libc::sigemptyset(&raw mut none) == 0)?;
            check(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) == 0)?;
            check(libc::signal(libc::SIGPIPE, libc::SIG_DFL) != libc::SIG_ERR)?;
            check(libc::chdir(c"/".as_ptr()) == 0)?;
            let environment: [*const c_char; 1] = [std::ptr::null()];
            libc::execve(program.as_ptr(), pointers.as_ptr(), environment.as_ptr());
        }
        Err(io::Error::last_os_error())
    };
    go(aside).err().unwrap_or_else(io::Error::last_os_error)
}

/// Enters the cgroups whose files these are.
fn enter(files: &[OwnedFd]) -> io::Result<()> {
    files.iter().try_for_each(|file| {
        // "0" is whoever writes it.
        // SAFETY: a write of one byte that lives as long as the program, to a descriptor that is owned here.
        check(unsafe { libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1) } == 1)
    })
}

/// Gives `passed` the numbers from `first` on, and no other descriptor to the program that runs next. Only system calls.
fn arrange(first: RawFd, passed: &[OwnedFd], aside: &mut [RawFd]) -> io::Result<()> {
    arrange_some(first, passed, aside, passed.len())
}

/// The first `n` of `passed`. The others are put aside only.
fn arrange_some(first: RawFd, passed: &[OwnedFd], aside: &mut [RawFd], n: usize) -> io::Result<()> {
    for (fd, owned) in aside.iter_mut().zip(passed) {
        // SAFETY: no memory is touched; the descriptor is owned here.
        *fd = unsafe { libc::fcntl(owned.as_raw_fd(), libc::F_DUPFD_CLOEXEC, ASIDE) };
        check(*fd >= 0)?;
    }
    let mut next = first;
    for fd in &aside[..n] {
        // SAFETY: no memory is touched. What had this number before is not used any more by this process, which will be
        // another program in a moment.
        check(unsafe { libc::dup2(*fd, next) } == next)?;
        next += 1;
    }
    // Not closed at once: the parent is still told through one of them whether the program could be run.
    // SAFETY: no memory is touched.
    check(
        unsafe {
            libc::syscall(libc::SYS_close_range, next as libc::c_uint, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
        } == 0,
    )
}

/// Where a process that was started by [`apart`] finds its folder, and the program that started it: in a place that every
/// Linux has, and that nothing of ours uses otherwise.
const PLACE: &CStr = c"/dev/shm";
const FOLDER: &CStr = c"/dev/shm/workspace";
/// The program that started it.
pub const OURSELVES: &CStr = c"/dev/shm/portcullis";

/// Makes `command` start as `user`, in a mount namespace of its own, in which `folder` stands at a place that this user
/// can reach: what the folder lies in may be root's alone, and a program that mounts it must find it by a path. What
/// `folder` then is, also where it is passed on ([`pass`], to be called after this), is the folder at that place. Our own
/// program stands at [`OURSELVES`], unless there is another one at its path by now.
///
/// Root may do this, unless it is the root of a container that may not: then the folder stays where it is.
pub fn apart(command: &mut Command, (uid, gid): (u32, u32), folder: BorrowedFd<'_>) {
    let folder = folder.as_raw_fd();
    let ourselves = std::env::current_exe().ok().and_then(|path| CString::new(path.into_os_string().into_vec()).ok());
    let go = move || {
        // SAFETY: no memory is touched. `folder` is held open by whoever passes it on.
        unsafe {
            // The descriptor is of the mounts of before; the working directory goes over to the new ones.
            check(libc::fchdir(folder) == 0)?;
            if libc::unshare(libc::CLONE_NEWNS) == 0 {
                furnish(folder, ourselves.as_deref())?;
            }
            check(libc::chdir(c"/".as_ptr()) == 0)?;
            check(libc::setgroups(0, std::ptr::null()) == 0)?;
            check(libc::setgid(gid) == 0)?;
            check(libc::setuid(uid) == 0)
        }
    };
    // SAFETY: `go` makes system calls only: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(go) };
}

/// Puts what is here, and us, at [`PLACE`]; `folder` is then what stands there. Only system calls.
fn furnish(folder: RawFd, ourselves: Option<&CStr>) -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: no memory is touched but paths, options and a structure that live longer than each call.
    unsafe {
        // Nothing goes back to the host; what it unmounts goes here too.
        check(libc::mount(none, c"/".as_ptr(), none, libc::MS_SLAVE | libc::MS_REC, none.cast()) == 0)?;
        let (kind, flags) = (c"tmpfs".as_ptr(), libc::MS_NOSUID | libc::MS_NODEV);
        let options = c"mode=0755,size=64k,nr_inodes=16".as_ptr();
        check(libc::mount(kind, PLACE.as_ptr(), kind, flags, options.cast()) == 0)?;
        check(libc::mkdir(FOLDER.as_ptr(), 0o700) == 0)?;
        let bind = |from: &CStr, to: &CStr| {
            check(libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_BIND | libc::MS_REC, none.cast()) == 0)
        };
        bind(c".", FOLDER)?;
        let opened = libc::open(FOLDER.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        check(opened >= 0)?;
        check(libc::dup3(opened, folder, libc::O_CLOEXEC) == folder)?;
        if let Some(path) = ourselves.filter(|path| is_same(path, c"/proc/self/exe")) {
            check(libc::mknod(OURSELVES.as_ptr(), libc::S_IFREG | 0o400, 0) == 0)?;
            bind(path, OURSELVES)?;
        }
    }
    Ok(())
}

/// Whether two paths lead to the same file. Only system calls.
fn is_same(one: &CStr, other: &CStr) -> bool {
    let [one, other] = [one, other].map(|path| {
        // SAFETY: zeros are a `struct stat`, which is filled if the path leads to something.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the path and the structure live longer than the call.
        (unsafe { libc::stat(path.as_ptr(), &raw mut found) } == 0).then_some((found.st_dev, found.st_ino))
    });
    one.is_some() && one == other
}

/// A descriptor that was passed on to this process and is known by its number: another one for the same file. From now on
/// both are closed where a program is started.
///
/// # Errors
/// There is no such descriptor.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0)?;
    // SAFETY: no memory is touched.
    let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST) };
    check(fd >= 0)?;
    // SAFETY: it was made just now, so it is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes all descriptors but 0, 1 and 2 close where a program is started, whoever opened them.
///
/// # Errors
/// The kernel has no call for it (Linux before 5.11, gVisor), and no /proc to see which there are.
pub fn close_on_exec() -> io::Result<()> {
    let (first, last) = (FIRST as libc::c_uint, libc::c_uint::MAX);
    // SAFETY: no memory is touched, and nothing is closed.
    let at_once = check(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } == 0);
    match at_once {
        Err(why) if [Some(libc::EINVAL), Some(libc::ENOSYS)].contains(&why.raw_os_error()) => one_by_one(),
        done => done,
    }
}

fn one_by_one() -> io::Result<()> {
    let numbers =
        std::fs::read_dir("/proc/self/fd")?.map(|entry| Ok(entry?.file_name().to_string_lossy().parse().ok()));
    let numbers: Vec<Option<RawFd>> = numbers.collect::<io::Result<_>>()?;
    for number in numbers.into_iter().flatten().filter(|number| *number >= FIRST) {
        // SAFETY: no memory is touched. The one that the folder was read with is not there any more, and said so.
        match check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0) {
            Err(why) if why.raw_os_error() != Some(libc::EBADF) => return Err(why),
            _ => {}
        }
    }
    Ok(())
}

fn check(is_done: bool) -> io::Result<()> {
    if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes over descriptor `number`, which was passed on to this process. From now on it is closed where a program is
/// started.
///
/// # Errors
/// There is no such descriptor: whoever started this program did not pass it.
///
/// # Safety
/// Nobody else in this process may own it, or take it over again.
pub(crate) unsafe fn take(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no memory is touched.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == 0)?;
    // SAFETY: it is open, and by the contract of this function nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Takes over all of `FIRST..FIRST + n` that are there. Once in the life of a process, before it opens anything.
pub(crate) fn take_all(n: RawFd) -> Vec<io::Result<OwnedFd>> {
    // SAFETY: nothing was opened yet by contract, so what has these numbers was passed to us.
    (FIRST..FIRST + n).map(|number| unsafe { take(number) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, Permissions};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

    #[test]
    fn a_folder_within_roots_own_is_reachable_for_whom_it_is_passed_to() {
        if !rustix::process::geteuid().is_root() {
            return; // Whoever is not root passes folders to themselves only.
        }
        let closed = tempfile::tempdir().expect("a folder");
        fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).expect("closed");
        let folder = closed.path().join("folder");
        fs::create_dir(&folder).expect("a folder");
        chown(&folder, Some(70_007), Some(70_007)).expect("given away");
        let folder = OwnedFd::from(File::open(folder).expect("opened"));
        #[expect(clippy::disallowed_methods, reason = "to look at the process that was started")]
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"at=$(readlink /proc/self/fd/3) && cd "$at" && id -u && id -G && echo kept > file; test -x /dev/shm/portcullis || echo "not there"; ls /dev/shm"#]);
        apart(&mut command, (70_007, 70_007), folder.as_fd());
        pass(&mut command, vec![folder], Vec::new());

        let output = command.output().expect("started");

        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "70007\n70007\nportcullis\nworkspace\n", "{}", String::from_utf8_lossy(&output.stderr));
        let kept = closed.path().join("folder/file");
        assert_eq!(fs::read_to_string(&kept).expect("kept"), "kept\n");
        assert_eq!(fs::metadata(&kept).expect("kept").uid(), 70_007);
    }

    /// What `/bin/sh -c line` writes, started bare.
    fn said(line: &str, begin: Begin) -> io::Result<String> {
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC)?;
        let null = || File::open("/dev/null").map(OwnedFd::from);
        let bare = Bare {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), line.into()],
            passed: vec![null()?, writes, File::options().write(true).open("/dev/null")?.into(), null()?],
            begin,
        };
        let pid = bare.spawn()?;
        let mut said = String::new();
        File::from(reads).read_to_string(&mut said)?;
        let (_, status) = waitpid(Some(pid), WaitOptions::empty())?.expect("it has ended");
        assert_eq!(status.exit_status(), Some(0), "{said}");
        Ok(said)
    }

    #[test]
    fn a_bare_program_has_what_is_named_and_nothing_else() {
        let (_open, _too) = pipe_with(PipeFlags::empty()).expect("a pipe that others would inherit");

        let said = said("pwd; cat /proc/$$/environ; ls /proc/$$/fd", Begin::Entered(vec![]));

        assert_eq!(said.expect("started"), "/\n0\n1\n2\n3\n");
    }

    #[test]
    fn a_bare_program_that_is_not_there_says_so() {
        let bare =
            Bare { program: "/nowhere".into(), arguments: vec![], passed: vec![], begin: Begin::Entered(vec![]) };

        assert_eq!(bare.spawn().map(|_| ()).map_err(|why| why.kind()), Err(io::ErrorKind::NotFound));
    }

    #[test]
    fn a_bare_program_begins_in_its_cgroup() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
        let Some(mount) = mount.filter(|_| rustix::process::geteuid().is_root()) else { return };
        let name = format!("portcullis-begin-{}", std::process::id());
        let folder = std::path::Path::new(mount).join(&name);
        fs::create_dir(&folder).expect("a cgroup");
        let procs = || File::options().write(true).open(folder.join("cgroup.procs")).expect("its file").into();
        let into = Begin::Into { folder: File::open(&folder).expect("opened").into(), procs: procs() };

        let begun = [into, Begin::Entered(vec![procs()])].map(|begin| said("cat /proc/self/cgroup", begin));

        fs::remove_dir(&folder).expect("empty again");
        for said in begun {
            let said = said.expect("started");
            assert!(said.lines().any(|line| line.starts_with("0::") && line.ends_with(&name)), "{said}");
        }
    }
}
