//! Keeps local upstreams running: started when they come into force, started again when they end, ended when nobody
//! needs them any more.

use super::health;
use super::keeper::Keeper;
use super::start::Started;
use super::told::Told;
use super::{Process, Secret, State};
use crate::audit::Audit;
use crate::id::random_bytes;
use crate::upstream::{Shared, Upstream, Upstreams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use portcullis_local::handover::{READY, SECRET_LEN};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

/// After a process has ended, it is started again: first after this long, then twice as long each time …
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// … up to this, …
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// … and anew from the first, once it has run this long.
const STEADY: Duration = Duration::from_secs(60);
/// What ran longer than this had begun well; a wait that is shorter is no outage.
const SHORT: Duration = Duration::from_secs(1);
/// How long a process may take until it says that it is ready. It tries its confinement first.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long a process gets to end by itself when it is asked to.
const END_LIMIT: Duration = Duration::from_secs(8);
/// What a process may say of why it cannot begin.
const REASON_MAX: u64 = 4096;
const TICK: Duration = Duration::from_millis(100);

/// Keeps those of `in_force` running that are processes of ours, until `stop` is true; then ends them all. `audit` is told
/// when one begins to answer, and when one does not run.
pub async fn supervise(
    in_force: impl Fn() -> Arc<Upstreams>,
    shared: Shared,
    audit: Option<Audit>,
    mut stop: watch::Receiver<bool>,
) {
    let keeper = Arc::new(Mutex::new(None));
    let mut kept: BTreeMap<usize, Kept> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
        let current = in_force();
        for upstream in current.iter().filter(|upstream| upstream.local.is_some()) {
            // The address tells an upstream from its successor of the same name.
            kept.entry(Arc::as_ptr(upstream) as usize).or_insert_with(|| {
                let end = watch::Sender::new(false);
                let told = Mutex::new(Told::new(audit.clone(), &upstream.name));
                let keeper = Arc::clone(&keeper);
                let task = Task { upstream: Arc::clone(upstream), shared: shared.clone(), told, keeper };
                tasks.spawn(task.run(end.subscribe()));
                Kept { upstream: Arc::clone(upstream), end }
            });
        }
        kept.retain(|_, kept| {
            let is_needed = current.iter().any(|one| Arc::ptr_eq(one, &kept.upstream)) || kept.is_used();
            kept.end.send_replace(!is_needed);
            is_needed
        });
    }
    for kept in kept.values() {
        kept.end.send_replace(true);
    }
    while tasks.join_next().await.is_some() {}
}

/// The same for as long as `work` takes: for commands that ask upstreams while no gateway runs.
pub async fn supervised<T>(upstreams: &Arc<Upstreams>, shared: &Shared, work: impl Future<Output = T>) -> T {
    let (stop, stopped) = watch::channel(false);
    let in_force = || Arc::clone(upstreams);
    let supervising = supervise(in_force, shared.clone(), None, stopped);
    let work = async {
        let done = work.await;
        stop.send_replace(true);
        done
    };
    tokio::join!(supervising, work).1
}

/// An upstream that is kept running.
struct Kept {
    /// Held, so that its address is nobody else's.
    upstream: Arc<Upstream>,
    end: watch::Sender<bool>,
}

impl Kept {
    /// Whether calls that began under an earlier configuration still use it: beside us, only its task holds it.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.upstream) > 2
    }
}

/// Keeps one upstream running.
struct Task {
    upstream: Arc<Upstream>,
    shared: Shared,
    told: Mutex<Told>,
    keeper: Arc<Mutex<Option<Keeper>>>,
}

/// Why a process does not run.
enum Ended {
    /// It was asked to end.
    Asked,
    /// By itself, or it could not be started.
    Because(String),
}

// === impl Task ===

impl Task {
    async fn run(self, mut end: watch::Receiver<bool>) {
        let Some(process) = &self.upstream.local else {
            return;
        };
        let name = &self.upstream.name;
        let mut wait = FIRST_WAIT;
        let listener = Listening::on(process);
        loop {
            let began = Instant::now();
            let ended = match &listener {
                Ok(listener) => self.one_life(process, &listener.socket, &mut end).await,
                Err(why) => Ended::Because(why.clone()),
            };
            let Ended::Because(why) = ended else {
                return;
            };
            wait = if began.elapsed() >= STEADY { FIRST_WAIT } else { wait };
            warn!(upstream = %name, reason = %why, again_in = ?wait, "the upstream does not run");
            self.tell(|told| told.down(&why));
            // What ran well until now will probably do so again in a moment, which calls wait for.
            let is_hiccup = began.elapsed() >= SHORT && wait <= SHORT;
            process.state.send_replace(if is_hiccup { State::Starting } else { State::Down(why) });
            self.shared.metrics.upstream_down(name);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = end.wait_for(|end| *end) => return,
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// From a start to the end, whatever ends it. Nothing of it is left then.
    async fn one_life(&self, process: &Process, listener: &UnixListener, end: &mut watch::Receiver<bool>) -> Ended {
        let secret = random_bytes();
        let started = match self.start(listener, secret).await {
            Ok(started) => started,
            Err(why) => return Ended::Because(why),
        };
        let Started { mut child, ready, left } = started;
        self.tell_keeper(|keeper| keeper.add(&left));
        left.cgroups.clone_into(&mut process.cgroups.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let secret = Secret::new(secret);
        process.state.send_replace(State::Starting);
        self.shared.metrics.upstream_started(&self.upstream.name);
        let (ended, gateway_lives) = self.life(process, &mut child, ready, secret, end).await;
        // Whoever holds a connection to it gets no answer any more; nobody new is to come.
        let why = match &ended {
            Ended::Because(why) => why.clone(),
            Ended::Asked => "it was ended".to_owned(),
        };
        if matches!(ended, Ended::Because(_)) {
            self.tell(|told| told.down(&why));
        }
        process.state.send_replace(State::Down(why));
        end_process(&mut child).await;
        drop(gateway_lives);
        let sweeping = left.clone();
        let _ = tokio::task::spawn_blocking(move || sweeping.sweep()).await;
        self.tell_keeper(|keeper| keeper.remove(&left));
        ended
    }

    /// From its start until it ends, or is to end. The pipe must stay until it has ended.
    async fn life(
        &self,
        process: &Process,
        child: &mut Child,
        ready: OwnedFd,
        secret: Secret,
        end: &mut watch::Receiver<bool>,
    ) -> (Ended, Option<OwnedFd>) {
        let pipe = tokio::select! {
            said = says_ready(ready) => match said {
                Ok(pipe) => pipe,
                Err(why) => return (Ended::Because(why), None),
            },
            _ = end.wait_for(|end| *end) => return (Ended::Asked, None),
        };
        info!(upstream = %self.upstream.name, pid = child.id(), "upstream started");
        process.state.send_replace(State::Up(secret.clone()));
        self.tell(Told::up);
        self.upstream.mark_stale();
        let ended = tokio::select! {
            status = child.wait() => Err(status),
            () = health::lost(&process.socket, &secret) => Ok(Ended::Because("it does not answer any more".to_owned())),
            _ = end.wait_for(|end| *end) => Ok(Ended::Asked),
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(status) => Ended::Because(last_words(&pipe).await.unwrap_or_else(|| ended_with(status))),
        };
        (ended, Some(pipe))
    }

    async fn start(&self, listener: &UnixListener, secret: [u8; SECRET_LEN]) -> Result<Started, String> {
        let listener = listener.try_clone().map_err(|why| format!("cannot share its socket: {why}"))?;
        let upstream = Arc::clone(&self.upstream);
        let start = move || match &upstream.local {
            Some(process) => process.plan.start(&listener, secret),
            None => Err("it is no process of this gateway".to_owned()),
        };
        tokio::task::spawn_blocking(start).await.unwrap_or_else(|died| Err(died.to_string()))
    }

    fn tell(&self, say: impl FnOnce(&mut Told)) {
        say(&mut self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    fn tell_keeper(&self, say: impl FnOnce(&mut Keeper)) {
        let mut keeper = self.keeper.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if keeper.is_none() {
            *keeper = Keeper::start();
        }
        if let Some(keeper) = keeper.as_mut() {
            say(keeper);
        }
    }
}

/// A socket that is there as long as its upstream is: what connects while its process is started again waits.
struct Listening<'a> {
    socket: UnixListener,
    process: &'a Process,
}

impl Listening<'_> {
    fn on(process: &Process) -> Result<Listening<'_>, String> {
        let path = &process.socket;
        let fault = |why: std::io::Error| format!("cannot listen on {}: {why}", path.display());
        if let Some(folder) = path.parent() {
            crate::store::files::make_private_dir(folder).map_err(fault)?;
            remove_dead_sockets(folder);
        }
        let socket = UnixListener::bind(path).map_err(fault)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(fault)?;
        Ok(Listening { socket, process })
    }
}

/// What gateways left that were killed: nobody listens there any more.
fn remove_dead_sockets(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let connected = std::os::unix::net::UnixStream::connect(entry.path());
        if connected.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.process.socket);
    }
}

/// Waits until the process says that it is ready, and gives the pipe back, whose end it takes for the end of the gateway.
async fn says_ready(pipe: OwnedFd) -> Result<OwnedFd, String> {
    let keep = pipe.try_clone().map_err(|why| format!("its pipe cannot be kept: {why}"))?;
    let read = tokio::task::spawn_blocking(move || {
        let mut said = Vec::new();
        let mut file = std::fs::File::from(pipe).take(REASON_MAX);
        let mut piece = [0; 256];
        while !said.ends_with(b"\n") {
            match file.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(n) => said.extend_from_slice(&piece[..n]),
            }
        }
        said
    });
    let said = match tokio::time::timeout(READY_LIMIT, read).await {
        Ok(said) => said.unwrap_or_default(),
        Err(_) => return Err(format!("it did not begin to answer within {READY_LIMIT:?}")),
    };
    match String::from_utf8_lossy(&said).trim() {
        _ if said == READY => Ok(keep),
        "" => Err("it ended before it was ready; its log says why".to_owned()),
        why => Err(why.to_owned()),
    }
}

/// Why it has ended, where it said so at its end.
async fn last_words(pipe: &OwnedFd) -> Option<String> {
    let pipe = pipe::Receiver::from_owned_fd(pipe.try_clone().ok()?).ok()?;
    let mut said = Vec::new();
    // It has ended; what it may have left behind does not keep us waiting.
    let _ = tokio::time::timeout(TICK, pipe.take(REASON_MAX).read_to_end(&mut said)).await;
    let why = String::from_utf8_lossy(&said).trim().to_owned();
    (!why.is_empty()).then_some(why)
}

fn ended_with(status: std::io::Result<std::process::ExitStatus>) -> String {
    match status {
        Ok(status) => format!("its process ended ({status})"),
        Err(why) => format!("its process cannot be waited for: {why}"),
    }
}

/// Asks it to end, and ends it when it does not.
async fn end_process(child: &mut Child) {
    let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) else {
        return;
    };
    let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
    if tokio::time::timeout(END_LIMIT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}
