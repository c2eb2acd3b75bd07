//! Programs that the driver starts, pins to a CPU, reads counters of, and ends.

use anyhow::{Context as _, bail};
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that runs until this is dropped.
pub(crate) struct Running {
    name: String,
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// What the kernel has counted for a process so far.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    /// Time its threads have run.
    pub(crate) cpu: Duration,
}

/// In bytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) peak: u64,
}

impl Running {
    /// Starts it on this CPU, where the machine has more than one. What it says on stderr goes to `log`.
    pub(crate) fn start(
        name: &str,
        mut command: Vec<String>,
        cpu: Option<usize>,
        log: &Path,
    ) -> anyhow::Result<Running> {
        if let Some(cpu) = cpu {
            command.splice(0..0, ["taskset", "-c", &cpu.to_string()].map(str::to_owned));
        }
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let mut program = Command::new(&command[0]);
        program.args(&command[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = program.spawn().with_context(|| format!("cannot start {}", command.join(" ")))?;
        let stdout = BufReader::new(child.stdout.take().context("stdout is piped")?);
        Ok(Running { name: name.to_owned(), stdin: child.stdin.take(), child, stdout })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("{} ended ({:?}) without saying what it should", self.name, self.child.wait()?);
        }
        Ok(line.trim().to_owned())
    }

    /// Waits until it accepts connections.
    pub(crate) fn wait_for(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let until = Instant::now() + Duration::from_secs(90);
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended: {status}", self.name);
            }
            if Instant::now() > until {
                bail!("{} does not listen on {address}", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Moves all its threads to this CPU.
    pub(crate) fn pin(&self, cpu: usize) -> anyhow::Result<()> {
        output("taskset", &["-acp", &cpu.to_string(), &self.id().to_string()]).map(drop)
    }

    /// CPU time of all its threads: the first field of `schedstat`, in nanoseconds, exact where `utime` counts ticks.
    pub(crate) fn usage(&self) -> anyhow::Result<Usage> {
        let mut nanos = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.id()))? {
            // A thread may end while this looks.
            let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanos += text.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(Usage { cpu: Duration::from_nanos(nanos) })
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        };
        let missing = || anyhow::anyhow!("no memory figures of {}", self.name);
        Ok(Memory { resident: field("VmRSS:").ok_or_else(missing)?, peak: field("VmHWM:").ok_or_else(missing)? })
    }
}

impl Drop for Running {
    /// SIGINT first: at SIGTERM pingora waits out its grace period.
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-INT", &self.id().to_string()]).status();
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a program says on its standard output; an error where it fails.
pub(crate) fn output(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.with_context(|| format!("cannot start {program}"))?;
    if !ran.status.success() {
        bail!("{program} {}: {}\n{}", arguments.join(" "), ran.status, String::from_utf8_lossy(&ran.stderr));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

/// Whether a program of that name is there.
pub(crate) fn is_installed(program: &str) -> bool {
    output("sh", &["-c", &format!("command -v {program}")]).is_ok()
}

/// An address nobody listens on at the moment.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
