//! The process that makes a confinement, and the pipes to what runs in it.

use super::Launch;
use portcullis_local::descriptors::{Bare, Begin};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::signal::unix::{SignalKind, signal};

/// A process that was started, and has not been waited for.
pub(super) struct Process {
    pub(super) pid: Pid,
    pidfd: OwnedFd,
    /// That a process has ended, whichever.
    ends: tokio::signal::unix::Signal,
}

/// Our ends.
pub(super) struct Pipes {
    pub(super) stdin: Sender,
    pub(super) stdout: Receiver,
    pub(super) stderr: Receiver,
}

impl Process {
    /// Starts what a backend has put together.
    pub(super) fn start(launch: Launch, begin: Begin) -> io::Result<(Process, Pipes)> {
        let (reads_in, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, writes_out) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, writes_err) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stdout, stderr) = (Receiver::from_owned_fd(stdout)?, Receiver::from_owned_fd(stderr)?);
        let pipes = Pipes { stdin: Sender::from_owned_fd(stdin)?, stdout, stderr };
        let Launch { program, arguments, passed } = launch;
        let passed = [reads_in, writes_out, writes_err].into_iter().chain(passed).collect();
        // Before there is one that could end.
        let ends = signal(SignalKind::child())?;
        let pid = Bare { program, arguments, passed, begin }.spawn()?;
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok((Process { pid, pidfd, ends }, pipes)),
            Err(why) => {
                // Nobody could ever wait for it.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                Err(why.into())
            }
        }
    }

    /// Returns when it has ended. What it says then is of no interest: it passes on what it was told.
    pub(super) async fn wait(&mut self) {
        while let Ok(None) = self.collect() {
            self.ends.recv().await;
        }
    }

    fn collect(&self) -> rustix::io::Result<Option<WaitIdStatus>> {
        waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    /// SIGKILL.
    pub(super) fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has been waited for, or else nobody will.
        self.kill();
        let _ = self.collect();
    }
}

/// `first`, and all that it and its children have started.
pub(super) fn descendants(first: Pid) -> Vec<Pid> {
    let mut found = vec![first];
    let mut looked_at = 0;
    while let Some(parent) = found.get(looked_at) {
        let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())).into_iter().flatten().flatten();
        let listed = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
        let numbers: Vec<_> = listed.flat_map(|listed| pids(&listed)).collect();
        found.extend(numbers);
        looked_at += 1;
    }
    found
}

/// The processes that `parent` has started.
pub(super) fn children(parent: Pid) -> Vec<Pid> {
    let number = parent.as_raw_nonzero();
    let listed = fs::read_to_string(format!("/proc/{number}/task/{number}/children")).unwrap_or_default();
    pids(&listed)
}

fn pids(listed: &str) -> Vec<Pid> {
    listed.split_whitespace().filter_map(|number| number.parse().ok().and_then(Pid::from_raw)).collect()
}
