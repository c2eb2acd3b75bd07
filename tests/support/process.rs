//! Child processes that end with the test, with their output kept for the failure message.

use super::PATIENCE;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::time::Instant;

/// A command to run: the one place where the tests start programs.
#[expect(clippy::disallowed_methods, reason = "the tests drive the real programs")]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// How a program that ran to its end went.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its exit status.
    pub(crate) status: ExitStatus,
    /// What it wrote to stdout.
    pub(crate) stdout: String,
    /// What it wrote to stderr.
    pub(crate) stderr: String,
}

impl Finished {
    /// Itself, if the program exited with 0.
    #[track_caller]
    pub(crate) fn success(self) -> Finished {
        assert!(self.status.success(), "{}\nstdout:\n{}\nstderr:\n{}", self.status, self.stdout, self.stderr);
        self
    }
}

/// Runs a program to its end, with `input` on its stdin. It is killed when it takes too long.
#[track_caller]
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Finished {
    run_within(2 * PATIENCE, command, input)
}

/// The same with a limit of its own, for what may take long.
#[track_caller]
pub(crate) fn run_within(limit: Duration, command: &mut Command, input: &[u8]) -> Finished {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let input = input.to_vec();
    // A program that ends without reading its input breaks the pipe, and that is its right.
    let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
    let stdout = drain(child.stdout.take().expect("stdout is piped"));
    let stderr = drain(child.stderr.take().expect("stderr is piped"));
    let status = wait(&mut child, limit);
    feeder.join().expect("the feeder does not panic");
    let finished = |output: JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&output.join().expect("a reader does not panic")).into_owned()
    };
    let (stdout, stderr) = (finished(stdout), finished(stderr));
    match status {
        Some(status) => Finished { status, stdout, stderr },
        None => panic!("{command:?} did not end within {limit:?}\nstdout:\n{stdout}\nstderr:\n{stderr}"),
    }
}

/// Waits for the end; kills and returns `None` when it does not come in time.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        // std has no wait with a limit; this is a poll, not a pause that something depends on.
        thread::sleep(Duration::from_millis(2));
    }
    drop(child.kill());
    drop(child.wait());
    None
}

fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        // Killed in the middle of a write: what came is what there is.
        drop(from.read_to_end(&mut all));
        all
    })
}

/// A program that runs beside the test. Killed, by its own id, when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    /// In a lock, so that a gateway can be used from several threads.
    lines: Mutex<Receiver<String>>,
    log: Arc<Mutex<String>>,
    stderr: JoinHandle<()>,
}

impl Server {
    /// Starts it.
    #[track_caller]
    pub(crate) fn spawn(name: &str, command: &mut Command) -> Server {
        Server::start(name, command.stdin(Stdio::null()))
    }

    /// Starts it, to be talked with.
    #[track_caller]
    pub(crate) fn spawn_listening(name: &str, command: &mut Command) -> Server {
        Server::start(name, command.stdin(Stdio::piped()))
    }

    #[track_caller]
    fn start(name: &str, command: &mut Command) -> Server {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let log = Arc::new(Mutex::new(String::new()));
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let stderr = follow(stderr, Arc::clone(&log), mpsc::channel().0);
        follow(stdout, Arc::clone(&log), sender);
        let stdin = child.stdin.take();
        Server { name: name.to_owned(), child, stdin, lines: Mutex::new(lines), log, stderr }
    }

    /// Writes to its stdin.
    #[track_caller]
    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("it was started to be talked with");
        let said = stdin.write_all(text.as_bytes());
        said.unwrap_or_else(|error| panic!("{} does not listen: {error}\n{}", self.name, self.log()));
    }

    /// Closes its stdin.
    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// The next line on stdout, or what the program said before it died or the time was over.
    pub(crate) fn next_line(&mut self, limit: Duration) -> Result<String, String> {
        let line = self.lines.lock().expect("no reader panics").recv_timeout(limit);
        line.map_err(|error| format!("{} says nothing more: {error}\n{}", self.name, self.log()))
    }

    /// The rest of the first line on stdout that begins with `prefix`, or what the program said before it died.
    pub(crate) fn line(&mut self, prefix: &str) -> Result<String, String> {
        let deadline = Instant::now() + PATIENCE;
        let lines = self.lines.lock().expect("no reader panics");
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.starts_with(prefix) => {
                    return Ok(line[prefix.len()..].trim().to_owned());
                }
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return Err(format!("{} did not say `{prefix}`\n{}", self.name, self.log()));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().expect("a child can be waited for");
                    // Its last words may still be in the pipe; a child of its own may hold that open for longer.
                    while !self.stderr.is_finished() && Instant::now() < deadline {
                        thread::sleep(std::time::Duration::from_millis(2));
                    }
                    return Err(format!("{} ended ({status})\n{}", self.name, self.log()));
                }
            }
        }
    }

    /// Everything it has written so far, stdout and stderr.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no writer panics").clone()
    }

    /// Waits until its output holds this text.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "{} did not log {text:?}\n{}", self.name, self.log());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, by name (`TERM`, `HUP`).
    #[track_caller]
    pub(crate) fn signal(&self, signal: &str) {
        run(command("sh").args(["-c", &format!("kill -{signal} {}", self.id())]), b"").success();
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child, 2 * PATIENCE).unwrap_or_else(|| panic!("{} did not end\n{}", self.name, self.log()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if thread::panicking() {
            eprintln!("--- {} said:\n{}---", self.name, self.log());
        }
    }
}

fn follow(from: impl Read + Send + 'static, log: Arc<Mutex<String>>, to: mpsc::Sender<String>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            log.lock().expect("no writer panics").push_str(&text);
            // Nobody has to listen.
            drop(to.send(text));
            line.clear();
        }
    })
}
