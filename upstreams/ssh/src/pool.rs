//! Channels for actions: over a connection that is used again (a key), or over one of its own for each (certificates).
//!
//! Nothing here sends an action. Until a channel is open nothing has happened on the host, and a connection that has gone
//! stale is replaced; what comes after is never done twice.

use crate::connection::{Connection, Error, Way};
use crate::credential::Login;
use russh::Channel;
use russh::client::Msg;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

/// Connections to the host.
pub struct Pool {
    /// How the host is reached.
    pub way: Way,
    login: Login,
    idle: Duration,
    kept: Mutex<Vec<Arc<Kept>>>,
    /// Whoever connects has one of these: with a key one at a time, so that many calls make one connection.
    connecting: Semaphore,
    /// The last one that failed, and when.
    failed: Mutex<Option<(Instant, Error)>>,
}

/// A connection that is used again.
struct Kept {
    connection: Connection,
    load: Mutex<Load>,
}

struct Load {
    n_open: usize,
    /// Sessions that the host allows on it (`MaxSessions`), once that is known.
    most: usize,
    last_used: Instant,
    is_stale: bool,
}

/// A channel's place on its connection.
pub struct Lease(Arc<Kept>);

/// Connections that are used again; more would be a host's `MaxSessions` got around.
const CONNECTIONS: usize = 4;
/// Connections at once that are not logged in yet: below what sshd begins to drop (`MaxStartups 10:30:100`).
const CONNECTING: usize = 8;
/// How often a channel is asked for, at most: once on each connection, and once more for one that was stale.
const ATTEMPTS: usize = CONNECTIONS + 2;

impl Pool {
    /// None yet.
    pub fn new(way: Way, login: Login, idle: Duration) -> Pool {
        let at_once = if matches!(login, Login::Key(_)) { 1 } else { CONNECTING };
        let connecting = Semaphore::new(at_once);
        Pool { way, login, idle, kept: Mutex::default(), connecting, failed: Mutex::default() }
    }

    /// A channel, and its place. `key_id` is for a certificate.
    ///
    /// # Errors
    /// There is none, and nothing has happened on the host.
    pub async fn channel(&self, key_id: &str) -> Result<(Channel<Msg>, Lease), Error> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let (lease, is_new) = self.connection(key_id).await?;
            let kept = &lease.0;
            let opened = timeout(self.way.connect, kept.connection.handle.channel_open_session()).await;
            match opened {
                Ok(Ok(channel)) => return Ok((channel, lease)),
                Ok(Err(russh::Error::ChannelOpenFailure(why))) => {
                    let n_others = kept.refused();
                    debug!(n_others, "the host opens no further session on a connection");
                    if n_others == 0 && is_new {
                        let why = crate::connection::said(&format!("{why:?}"));
                        return Err(Error::NoSession { host: self.way.host.to_string(), why });
                    }
                    if n_others == 0 {
                        // It may not have forgotten the session before.
                        kept.load().is_stale = true;
                    }
                }
                Ok(Err(_)) | Err(_) => {
                    kept.load().is_stale = true;
                    last = Some(kept.connection.lost());
                    if is_new {
                        break;
                    }
                    info!(upstream_host = %self.way.host, "a connection has gone stale and is replaced");
                }
            }
        }
        Err(last.unwrap_or_else(|| self.full()))
    }

    /// Closes what nobody has used for a while; never ends.
    pub async fn tidy<T>(&self) -> T {
        let pause = (self.idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(10));
        loop {
            tokio::time::sleep(pause).await;
            let is_needed = |kept: &Arc<Kept>| {
                let load = kept.load();
                !kept.is_over(&load) && (load.n_open > 0 || load.last_used.elapsed() < self.idle)
            };
            self.kept().retain(is_needed);
        }
    }

    /// A connection that may take one more channel, and whether it was made for this.
    async fn connection(&self, key_id: &str) -> Result<(Lease, bool), Error> {
        let asked = Instant::now();
        if let Some(lease) = self.with_room() {
            return Ok((lease, false));
        }
        let _turn = self.connecting.acquire().await.expect("nobody closes it");
        // While we waited, somebody else may have found out.
        if let Some((at, error)) = &*self.failed.lock().unwrap_or_else(PoisonError::into_inner)
            && *at >= asked
        {
            return Err(error.clone());
        }
        if let Some(lease) = self.with_room() {
            return Ok((lease, false));
        }
        let is_kept = matches!(self.login, Login::Key(_));
        if is_kept && self.kept().len() >= CONNECTIONS {
            return Err(self.full());
        }
        match Connection::to(&self.way, &self.login, key_id).await {
            Ok(connection) => {
                let kept = Arc::new(Kept::new(connection));
                let lease = kept.lease().expect("a new one has room");
                if is_kept {
                    self.kept().push(kept);
                }
                Ok((lease, true))
            }
            Err(error) => {
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn with_room(&self) -> Option<Lease> {
        let mut kept = self.kept();
        kept.retain(|kept| !kept.is_over(&kept.load()));
        kept.iter().find_map(Kept::lease)
    }

    fn full(&self) -> Error {
        let why = format!("it allows no more sessions on {CONNECTIONS} connections; try again when some have ended");
        Error::Unreachable { host: self.way.host.to_string(), why }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Kept ===

impl Kept {
    fn new(connection: Connection) -> Kept {
        let load = Load { n_open: 0, most: usize::MAX, last_used: Instant::now(), is_stale: false };
        Kept { connection, load: Mutex::new(load) }
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self, load: &Load) -> bool {
        load.is_stale || self.connection.is_closed()
    }

    /// A place on it, if it has one.
    fn lease(self: &Arc<Self>) -> Option<Lease> {
        let mut load = self.load();
        let has_room = load.n_open < load.most;
        load.n_open += usize::from(has_room);
        has_room.then(|| Lease(Arc::clone(self)))
    }

    /// The host takes no more than the others: how many these are.
    fn refused(&self) -> usize {
        let mut load = self.load();
        let n_others = load.n_open - 1;
        load.most = n_others.max(1);
        n_others
    }
}

// === impl Lease ===

impl Lease {
    /// That the connection has ended, and why.
    pub fn lost(&self) -> Error {
        self.0.connection.lost()
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.0.connection.is_closed()
    }

    /// Keeps the connection from being used again; what else runs on it goes on, and it is closed after that.
    pub fn retire(&self) {
        self.0.load().is_stale = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut load = self.0.load();
        load.n_open -= 1;
        load.last_used = Instant::now();
        if load.is_stale && load.n_open == 0 {
            self.0.connection.close();
        }
    }
}
