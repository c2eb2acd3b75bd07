//! One command, from the making of its confinement to the last trace of it.

use super::cgroup::Leaf;
use super::process::{Process, children, descendants};
use super::protocol::{Limits, Order, Report, TERMINATE};
use super::quota::Watch;
use super::{Command, End, Error, Outcome, Progress, Shared, bubblewrap, environment, inner};
use crate::network::{self, Places};
use portcullis_local::output::Output;
use rustix::process::{Signal, kill_process};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// For making a confinement. It takes some thousandths of a second; a host that is very busy takes many.
const SETTING_UP: Duration = Duration::from_secs(60);
/// What a command has after SIGTERM when its time is over.
const GRACE: Duration = Duration::from_secs(2);
/// What it has when nobody waits for its answer any more.
const SHORT_GRACE: Duration = Duration::from_millis(300);
/// After this, what makes the confinement is killed too, not only what is inside.
const STUBBORN: Duration = Duration::from_secs(1);
/// Between two looks at memory and disk.
const TICK: Duration = Duration::from_millis(20);
/// For reading what stands in a pipe whose writers are all dead.
const DRAIN: Duration = Duration::from_secs(2);

/// What is to be run, and who is to be told.
pub(super) struct Job {
    /// What.
    pub(super) command: Command,
    /// Where; `None` to look at the confinement only.
    pub(super) workspace: Option<OwnedFd>,
    /// How it comes along.
    pub(super) progress: watch::Sender<Progress>,
    /// Whoever asked takes it back.
    pub(super) cancelled: CancellationToken,
    /// Whoever asked is gone.
    pub(super) abandoned: CancellationToken,
}

/// What came of it.
pub(super) enum Done {
    /// A command ran.
    Ran(Outcome),
    /// The confinement was looked at. The version of Landlock.
    Looked(i32),
}

/// Runs it. Whatever the result, nothing of it is left.
pub(super) async fn run(shared: &Shared, job: Job) -> Result<Done, Error> {
    let confine = |what: &str, why: &dyn std::fmt::Display| Error::Confine(format!("{what}: {why}"));
    let leaf = shared.cgroups.leaf().map_err(|why| confine("its cgroup", &why))?;
    let mut watch = match &job.workspace {
        Some(folder) => Some(shared.folders.watch(folder).await.map_err(|why| confine("its quota", &why))?),
        None => None,
    };
    let order = order(shared, &job, watch.as_ref().is_some_and(Watch::is_full));
    let running = Running::start(shared, job, leaf, &order).map_err(|why| confine("starting it", &why))?;
    let done = running.finish(watch.as_mut()).await;
    if let Some(watch) = watch {
        shared.folders.settle(&watch);
    }
    done
}

fn order(shared: &Shared, job: &Job, is_full: bool) -> Order {
    let settings = &shared.settings;
    let is_off = settings.cgroup == crate::settings::Cgroup::Off;
    Order {
        line: job.workspace.is_some().then(|| job.command.line.clone()),
        cwd: job.command.cwd.clone(),
        environment: environment::of(settings, &job.command.environment),
        limits: Limits {
            file: if is_full { 0 } else { settings.quota },
            processes: u64::from(settings.processes) + inner::THREADS,
            memory: is_off.then_some(settings.memory),
        },
        read_only: settings.read_only.iter().filter_map(|path| path.to_str().map(str::to_owned)).collect(),
        landlock: shared.backend.is_this_kernel(),
    }
}

struct Running {
    job: Job,
    leaf: Leaf,
    process: Process,
    lines: Lines<BufReader<OwnedReadHalf>>,
    /// A word here asks all inside to end. When this is gone, the inner stage ends.
    asks: mpsc::Sender<()>,
    stdout: (Output, JoinHandle<()>),
    stderr: (Output, JoinHandle<()>),
    since: Instant,
    /// What the inner stage has told last.
    told: Option<Report>,
    /// What those have written that it has collected.
    wrote: u64,
    /// When the command began.
    began: Option<Instant>,
    /// What we ended it for.
    end: Option<End>,
    /// Ends with the command.
    _proxy: Option<AbortOnDrop>,
    /// When we go a step further.
    next: Option<(Instant, Step)>,
}

/// A task that ends with whoever holds this.
struct AbortOnDrop(JoinHandle<()>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// SIGKILL for all that is inside.
    Inside,
    /// And for what made it.
    All,
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

// === impl Running ===

impl Running {
    fn start(shared: &Shared, job: Job, leaf: Leaf, order: &Order) -> std::io::Result<Running> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let workspace = job.workspace.as_ref().map(OwnedFd::try_clone).transpose()?;
        let mut sockets = vec![theirs.into()];
        let proxy = match &shared.places {
            Some(places) => Some(proxy(Arc::clone(places), &mut sockets)?),
            None => None,
        };
        let launch = shared.backend.launch(workspace, sockets)?;
        let (process, pipes) = Process::start(launch, leaf.begin()?)?;
        let (reads, writes) = UnixStream::from_std(ours)?.into_split();
        let (asks, asked) = mpsc::channel(1);
        tokio::spawn(tell(writes, order.to_bytes()?, asked));
        let capture = |progress: &watch::Sender<Progress>| (Output::new(shared.settings.output), progress.clone());
        let (stdout, progress) = capture(&job.progress);
        let out = tokio::spawn(stdout.clone().read(pipes.stdout, progress));
        let (stderr, progress) = capture(&job.progress);
        let err = tokio::spawn(stderr.clone().read(pipes.stderr, progress));
        tokio::spawn(feed(pipes.stdin, job.command.stdin.clone()));
        let (since, lines) = (Instant::now(), BufReader::new(reads).lines());
        Ok(Running {
            job,
            leaf,
            process,
            lines,
            asks,
            stdout: (stdout, out),
            stderr: (stderr, err),
            since,
            told: None,
            wrote: 0,
            began: None,
            end: None,
            _proxy: proxy,
            next: None,
        })
    }

    async fn finish(mut self, mut watch: Option<&mut Watch>) -> Result<Done, Error> {
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_talking = true;
        loop {
            let deadline = self.deadline();
            let step = self.next;
            tokio::select! {
                line = self.lines.next_line(), if is_talking => is_talking = self.hear(line.ok().flatten().as_deref()),
                () = self.process.wait() => break,
                () = sleep_until(deadline), if self.end.is_none() => self.ask(End::TimedOut, GRACE),
                () = self.job.cancelled.cancelled(), if self.end.is_none() => self.ask(End::Cancelled, SHORT_GRACE),
                () = self.job.abandoned.cancelled(), if step.is_none() => self.kill(Some(End::Cancelled)),
                () = sleep_until(step.map_or(deadline, |(at, _)| at)), if step.is_some() => self.go_on(),
                _ = tick.tick() => self.look(watch.as_deref_mut()).await,
            }
        }
        self.clean_up().await
    }

    /// The end of the time that the present stage has.
    fn deadline(&self) -> Instant {
        self.began.map_or(self.since + SETTING_UP, |began| began + self.job.command.timeout)
    }

    /// Takes what the inner stage says. `false` at the end of it.
    fn hear(&mut self, line: Option<&str>) -> bool {
        let Some(report) = line.and_then(|line| serde_json::from_str(line).ok()) else {
            // It is about to end; should it not, it is made to.
            self.next.get_or_insert((Instant::now() + STUBBORN, Step::Inside));
            return false;
        };
        if let Report::Wrote(bytes) = report {
            self.wrote = bytes;
            return true;
        }
        if matches!(report, Report::Started) {
            self.began = Some(Instant::now());
        }
        self.told = Some(report);
        true
    }

    /// Asks all inside to end.
    fn ask(&mut self, end: End, grace: Duration) {
        self.end = Some(end);
        if self.began.is_some() && self.asks.try_send(()).is_ok() {
            self.next = Some((Instant::now() + grace, Step::Inside));
        } else {
            self.kill(None);
        }
    }

    fn go_on(&mut self) {
        match self.next.map(|(_, step)| step) {
            Some(Step::Inside) => self.kill(None),
            _ => {
                self.process.kill();
                self.leaf.kill(None);
                self.next = Some((Instant::now() + STUBBORN, Step::All));
            }
        }
    }

    /// Kills what is inside. What made it then ends by itself, and collects what was its own; killed at the same time, it
    /// would leave that to others.
    fn kill(&mut self, end: Option<End>) {
        self.end = self.end.or(end);
        let outer = self.process.pid;
        self.leaf.kill(Some(outer));
        for pid in children(outer) {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.next = Some((Instant::now() + STUBBORN, Step::All));
    }

    /// At memory and disk.
    async fn look(&mut self, watch: Option<&mut Watch>) {
        if self.next.is_some_and(|(_, step)| step == Step::All) {
            return;
        }
        if self.leaf.n_oom() > 0 {
            // What is left of a command of which the kernel has ended a part is of no use.
            self.kill(Some(End::OutOfMemory));
        } else if let Some(watch) = watch
            && self.began.is_some()
        {
            let (leaf, outer, wrote) = (&self.leaf, self.process.pid, self.wrote);
            let processes = || {
                let mut all = leaf.processes().unwrap_or_else(|| descendants(outer));
                // The inner stage tells by itself.
                let inner = children(outer);
                all.retain(|pid| !inner.contains(pid));
                (all, wrote)
            };
            if let Some(end) = watch.is_over(&processes).await {
                self.kill(Some(end));
            }
        }
    }

    async fn clean_up(self) -> Result<Done, Error> {
        let elapsed = self.began.unwrap_or(self.since).elapsed();
        let Running { leaf, mut lines, stdout, stderr, mut told, mut end, .. } = self;
        // What was said last may still stand in the socket.
        while let Ok(Ok(Some(line))) = timeout(DRAIN, lines.next_line()).await {
            let report = serde_json::from_str(&line).ok().filter(|report| !matches!(report, Report::Wrote(_)));
            told = report.or(told);
        }
        if leaf.n_oom() > 0 {
            end = end.or(Some(End::OutOfMemory));
        }
        leaf.kill(None);
        for reading in [stdout.1, stderr.1] {
            let abort = reading.abort_handle();
            if timeout(DRAIN, reading).await.is_err() {
                abort.abort();
            }
        }
        if let Err(why) = leaf.remove().await {
            tracing::error!(%why, "something of a command is left");
        }
        let (stdout, stderr) = (stdout.0.captured(), stderr.0.captured());
        let ran = |end| Ok(Done::Ran(Outcome { end, stdout: stdout.clone(), stderr: stderr.clone(), elapsed }));
        match (told, end) {
            (Some(Report::Holds { landlock }), _) => Ok(Done::Looked(landlock)),
            (Some(Report::Refused(why)), _) => Err(Error::Refused(why)),
            (Some(Report::Failed(why)), _) => Err(Error::Confine(why)),
            (_, Some(End::Cancelled)) => ran(End::Cancelled),
            (None, Some(End::OutOfMemory)) => {
                Err(Error::Confine("`memory` is too small for the confinement".to_owned()))
            }
            (None, Some(End::TimedOut)) => Err(Error::Confine(format!("it took longer than {SETTING_UP:?}"))),
            (None, _) => Err(Error::Confine(bubblewrap::explain(String::from_utf8_lossy(&stderr.head).trim()))),
            (_, Some(end)) => ran(end),
            (Some(Report::Exited(status)), None) => ran(End::Exited(status)),
            (Some(Report::Signalled(signal)), None) => ran(End::Signalled(signal)),
            // The first process inside was killed, not by us.
            (Some(Report::Started | Report::Wrote(_)), None) => ran(End::Signalled(Signal::KILL.as_raw())),
        }
    }
}

/// The proxy of one command, which begins when the inner stage has sent what it shall listen on.
fn proxy(places: Arc<Places>, sockets: &mut Vec<OwnedFd>) -> std::io::Result<AbortOnDrop> {
    let (ours, theirs) = StdUnixStream::pair()?;
    sockets.push(theirs.into());
    Ok(AbortOnDrop(tokio::spawn(async move {
        match network::receive(ours).await {
            Ok(listener) => network::serve(listener, places).await,
            // Then nothing came from inside at all, which is told elsewhere.
            Err(why) => tracing::debug!(%why, "no proxy"),
        }
    })))
}

/// Gives the inner stage its order, and then passes on what it is asked, for as long as there is somebody to ask.
async fn tell(mut inner: OwnedWriteHalf, order: Vec<u8>, mut asked: mpsc::Receiver<()>) {
    // If it has gone, that is noticed elsewhere.
    let _ = inner.write_all(&order).await;
    while asked.recv().await.is_some() {
        let _ = inner.write_all(&[TERMINATE]).await;
    }
}

async fn feed(mut stdin: pipe::Sender, bytes: Vec<u8>) {
    // A command need not read what it is given.
    let _ = stdin.write_all(&bytes).await;
}
