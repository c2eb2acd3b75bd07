//! The control: the same commands, run as the same user by nobody in particular, and file tools of the kind that people
//! write first.
//!
//! What the user may not do anyway is tried once more as root, where we are root: it shows that the probe would see it.

use super::runner::{Ran, Runner, line, seen};
use super::{Seen, games};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::Instant;

/// How long a file tool may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs commands as the upstream's user, and holds nothing in.
pub struct Bare {
    user: Option<(u32, u32)>,
    folder: PathBuf,
    inner: String,
    /// Passed on to every child, as the upstream's own program: its user may not be able to reach it by its path.
    _program: File,
}

// === impl Bare ===

impl Bare {
    /// As `user`, or as ourselves; `folder` belongs to that user, and is where commands start.
    ///
    /// # Errors
    /// Our own program cannot be opened.
    pub fn new(user: Option<(u32, u32)>, folder: &Path) -> std::io::Result<Bare> {
        let program = File::open("/proc/self/exe")?;
        fcntl_setfd(&program, FdFlags::empty())?;
        let inner = format!("/proc/self/fd/{}", program.as_raw_fd());
        Ok(Bare { user, folder: folder.to_owned(), inner, _program: program })
    }

    async fn run_as(&self, user: Option<(u32, u32)>, line: &str, timeout: Duration) -> Result<Ran, String> {
        let begun = Instant::now();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(line).current_dir(&self.folder).process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        let child = command.spawn().map_err(|error| format!("no shell: {error}"))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let Ok(output) = tokio::time::timeout(timeout, child.wait_with_output()).await else {
            // As programs do that know of process groups, and not of those who leave them.
            if let Some(group) = pid {
                let _ = kill_process_group(group, Signal::KILL);
            }
            return Ok(Ran { ended: "timed_out".to_owned(), waited: begun.elapsed(), ..Ran::default() });
        };
        let output = output.map_err(|error| error.to_string())?;
        Ok(Ran {
            ended: if output.status.code().is_some() { "exited" } else { "signal" }.to_owned(),
            exit_code: output.status.code().map(i64::from),
            signal: output.status.signal().map(i64::from),
            n_stdout: output.stdout.len() as u64,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            waited: begun.elapsed(),
        })
    }

    /// As whom a second try is made.
    fn root(&self) -> bool {
        self.user.is_some() && rustix::process::geteuid().is_root()
    }
}

impl Runner for Bare {
    fn inner(&self) -> &str {
        &self.inner
    }

    async fn run(&self, line: &str, timeout: Duration) -> Result<Ran, String> {
        self.run_as(self.user, line, timeout).await
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<String, String> {
        let quoted = |name: &str| format!("'{}'", arguments[name].as_str().unwrap_or_default().replace('\'', r"'\''"));
        let line = match tool {
            "read_file" => format!("cat -- {}", quoted("path")),
            "write_file" => format!("printf %s {} >{}", quoted("content"), quoted("path")),
            "list_directory" => format!("ls -a -- {}", quoted("path")),
            other => return Err(format!("there is no `{other}` outside")),
        };
        let ran = self.run(&line, PATIENCE).await?;
        match (ran.ended.as_str(), ran.exit_code) {
            ("timed_out", _) => Err(games::HANGS.to_owned()),
            (_, Some(0)) => Ok(ran.stdout),
            _ => Err(ran.stderr),
        }
    }

    async fn attempt(&self, arguments: &[String]) -> Seen {
        let line = line(&self.inner, arguments);
        let patience = Duration::from_secs(60);
        let of = |ran: Result<Ran, String>| ran.map_or_else(Seen::Untried, |ran| seen(&ran));
        let first = of(self.run(&line, patience).await);
        if matches!(first, Seen::Allowed(_)) || !self.root() {
            return first;
        }
        match of(self.run_as(None, &line, patience).await) {
            Seen::Allowed(what) => Seen::Allowed(format!("{what} (as root)")),
            _ => first,
        }
    }
}
