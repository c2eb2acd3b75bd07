//! One action on one channel, from the request to whatever ends it.
//!
//! Exit status, signal and the two streams are kept apart; only the status says whether it went well. sshd(8) does not
//! signal a forced command for us, so the script on the host ends it when its stdin ends, where we have asked it to `stay`
//! no longer than we do.

use crate::pool::Lease;
use portcullis_local::output::{Captured, Output, Progress};
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// The tool's name, for logs.
    pub tool: String,
    /// The action string, sent as it is.
    pub command: String,
    /// Whether it runs to its end, whoever leaves meanwhile.
    pub finishes: bool,
    /// After this we do not wait any more.
    pub timeout: Duration,
    /// What is kept of each stream, in bytes.
    pub output: u64,
    /// How long the host has to say that it begins.
    pub begin: Duration,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Why we do not wait any more.
    pub end: End,
    /// What it wrote to stdout.
    pub stdout: Captured,
    /// What it wrote to stderr.
    pub stderr: Captured,
    /// How long we waited.
    pub elapsed: Duration,
}

/// Why we do not wait any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended, with this status.
    Exited(u32),
    /// It ended by this signal: a name without `SIG` (RFC 4254 §6.10).
    Signalled(String),
    /// Its time was over.
    TimedOut(Then),
    /// Whoever asked took it back.
    Cancelled(Then),
    /// The host refused to run anything: nothing has happened.
    NotRun,
    /// Nobody said how it ended: why not.
    Lost(String),
}

/// What is known of a command that is not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It has ended, too.
    Ended,
    /// It was told to end.
    Unknown,
    /// It runs on, as it is meant to.
    RunsOn,
}

/// The first line of stdin, for an action that is to end when we leave.
pub const STAY: &str = "stay\n";

/// How long a command has to end that was told to. The script on the host gives what does not want to 5 s.
pub(crate) const GRACE: Duration = Duration::from_secs(6);
/// How long the streams of a command that has ended may be silent and open: what it has left behind may hold them.
const QUIET: Duration = Duration::from_secs(2);
/// How long it may take to hand a message to a connection that may be stuck.
const SAYING: Duration = Duration::from_secs(1);

/// Sends it and waits for its end; once, whatever happens. `held` is kept for as long as it may run, also after this has
/// returned.
pub async fn run(
    (channel, lease): (Channel<Msg>, Lease),
    order: &Order,
    progress: &watch::Sender<Progress>,
    cancelled: &CancellationToken,
    held: impl Send + 'static,
) -> Ran {
    let began = Instant::now();
    let (read, write) = channel.split();
    let mut running = Running::new(read, lease, order, progress.clone());
    let left: Option<fn(Then) -> End> = tokio::select! {
        // The limits first: what never ends to write would keep them from being looked at.
        biased;
        () = cancelled.cancelled() => Some(End::Cancelled),
        () = sleep(order.timeout) => Some(End::TimedOut),
        never = ask(&write, order) => never,
        () = running.until_over(order.begin) => None,
    };
    let (stdout, stderr) = (running.stdout.clone(), running.stderr.clone());
    let end = match left {
        None => running.end(order.begin),
        Some(_) if running.is_known() => running.end(order.begin),
        Some(left) if order.finishes => {
            tokio::spawn(running.runs_on(write, order.clone(), held));
            return Ran {
                end: left(Then::RunsOn),
                stdout: stdout.captured(),
                stderr: stderr.captured(),
                elapsed: began.elapsed(),
            };
        }
        Some(left) => {
            let ending = async {
                let _ = write.eof().await;
                running.over().await;
            };
            let _ = timeout(GRACE, ending).await;
            if running.is_known() {
                left(Then::Ended)
            } else {
                // The end of the connection is the last that it can be told.
                running.lease.retire();
                left(Then::Unknown)
            }
        }
    };
    running.close(&write).await;
    drop(held);
    Ran { end, stdout: stdout.captured(), stderr: stderr.captured(), elapsed: began.elapsed() }
}

/// Asks for it; never ends. The host may take stdin late, and its answers are read meanwhile.
async fn ask<T>(write: &ChannelWriteHalf<Msg>, order: &Order) -> T {
    let asked = async {
        write.exec(true, order.command.as_bytes()).await?;
        if order.finishes { write.eof().await } else { write.data_bytes(STAY).await }
    };
    // What goes wrong here is the end of the connection, which is seen where answers are read.
    let _ = asked.await;
    std::future::pending().await
}

/// A command that was asked for.
struct Running {
    read: ChannelReadHalf,
    lease: Lease,
    stdout: Output,
    stderr: Output,
    progress: watch::Sender<Progress>,
    /// The host has begun.
    is_taken: bool,
    /// The host will not.
    is_refused: bool,
    /// The channel is closed, or its connection.
    is_over: bool,
    status: Option<End>,
}

impl Running {
    fn new(read: ChannelReadHalf, lease: Lease, order: &Order, progress: watch::Sender<Progress>) -> Running {
        let (stdout, stderr) = (Output::new(order.output), Output::new(order.output));
        Running {
            read,
            lease,
            stdout,
            stderr,
            progress,
            is_taken: false,
            is_refused: false,
            is_over: false,
            status: None,
        }
    }

    /// Reads until it has ended, or the host has not begun in time.
    async fn until_over(&mut self, begin: Duration) {
        let begun = async {
            while !(self.is_taken || self.is_refused || self.is_over) {
                self.step().await;
            }
        };
        if timeout(begin, begun).await.is_ok() {
            self.over().await;
        }
    }

    /// Reads until it has ended.
    async fn over(&mut self) {
        while !(self.is_refused || self.is_over) {
            if self.status.is_none() {
                self.step().await;
            } else if timeout(QUIET, self.step()).await.is_err() {
                return;
            }
        }
    }

    async fn step(&mut self) {
        match self.read.wait().await {
            Some(ChannelMsg::Data { data }) => self.stdout.push(&data, &self.progress),
            // RFC 4254 §5.2 knows no other stream.
            Some(ChannelMsg::ExtendedData { data, ext: 1 }) => self.stderr.push(&data, &self.progress),
            Some(ChannelMsg::Success) => self.is_taken = true,
            Some(ChannelMsg::Failure) => self.is_refused = !self.is_taken,
            // The first word counts, if the host has said that it begins: nothing that was not begun ends well.
            Some(ChannelMsg::ExitStatus { exit_status }) if self.is_taken => {
                self.status.get_or_insert(End::Exited(exit_status));
            }
            Some(ChannelMsg::ExitSignal { signal_name, .. }) if self.is_taken => {
                self.status.get_or_insert(End::Signalled(signal(&signal_name)));
            }
            Some(ChannelMsg::Close) | None => self.is_over = true,
            Some(_) => {}
        }
    }

    /// Whether the host has said what became of it.
    fn is_known(&self) -> bool {
        self.status.is_some() || self.is_refused
    }

    /// What became of it, where nobody has left.
    fn end(&self, begin: Duration) -> End {
        match &self.status {
            Some(status) => status.clone(),
            None if self.is_refused => End::NotRun,
            None if !self.is_over => {
                self.lease.retire();
                End::Lost(format!("the host did not say within {begin:?} whether it begins"))
            }
            None if self.lease.is_closed() => End::Lost(self.lease.lost().to_string()),
            None => End::Lost("the host ended the session and did not say how the action ended".to_owned()),
        }
    }

    /// Waits for the end of a command that nobody waits for any more: without somebody who reads what it writes it would
    /// be stuck, or end halfway.
    async fn runs_on(mut self, write: ChannelWriteHalf<Msg>, order: Order, held: impl Send + 'static) {
        let ended = timeout(order.timeout, self.over()).await.is_ok();
        let tool = &order.tool;
        match &self.status {
            Some(End::Exited(0)) => info!(%tool, "an action that nobody waited for has ended well"),
            Some(status) => warn!(%tool, ?status, "an action that nobody waited for has failed"),
            None => warn!(%tool, ended, "it is not known how an action ended that nobody waited for"),
        }
        self.close(&write).await;
        drop(held);
    }

    async fn close(mut self, write: &ChannelWriteHalf<Msg>) {
        if !self.is_over {
            self.is_over = matches!(timeout(SAYING, write.close()).await, Ok(Ok(())));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A channel that was not closed stays open there: its connection is not used again.
        if !self.is_over {
            self.lease.retire();
        }
    }
}

/// The name of a signal, as far as it is one.
fn signal(signal: &Sig) -> String {
    let name = match signal {
        Sig::ABRT => "ABRT",
        Sig::ALRM => "ALRM",
        Sig::FPE => "FPE",
        Sig::HUP => "HUP",
        Sig::ILL => "ILL",
        Sig::INT => "INT",
        Sig::KILL => "KILL",
        Sig::PIPE => "PIPE",
        Sig::QUIT => "QUIT",
        Sig::SEGV => "SEGV",
        Sig::TERM => "TERM",
        Sig::USR1 => "USR1",
        Sig::Custom(name) => name,
    };
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "@._-".contains(*c)).take(32).collect()
}
