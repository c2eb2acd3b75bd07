//! Listeners: connections are accepted, counted, given TLS and a version of HTTP, and handed on request by request.
//!
//! pingora's own listening service is not used (docs/decisions/0007): it has no limit on connections, none on the time
//! that a whole head may take, and begins to read HTTP/2 without one. Its TLS acceptor and its sessions are. Nothing
//! here knows what a request asks for; an application (`HttpServerApp`) gets a session whose head is whole.

mod capacity;
mod certificate;
mod chunks;
mod head;
mod http1;
mod http2;
mod joined;
mod refuse;
mod room;

pub use certificate::Certificate;

use crate::clock::Clock;
use crate::metrics::{Connected, Metrics};
use crate::snapshot::Snapshot;
use arc_swap::ArcSwap;
use bytes::BytesMut;
use capacity::{Capacity, Place};
use pingora::apps::HttpServerApp;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::l4::stream::Stream as L4;
use pingora::protocols::{ALPN, GetSocketDigest as _, SocketDigest, Ssl as _, TcpKeepalive};
use pingora::server::ShutdownWatch;
use room::{Guest, Room};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, error, info, warn};

/// A dead client's connection is found out after this long, though no byte is due on it: a stream may idle for hours.
const KEEPALIVE: TcpKeepalive = TcpKeepalive {
    idle: Duration::from_secs(60),
    interval: Duration::from_secs(10),
    count: 3,
    user_timeout: Duration::ZERO,
};
/// Before `accept` is tried again where it failed, most likely for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(500);
/// Connections from one address of another machine, where a listener makes room.
const PART_OF_AN_ADDRESS: u32 = 64;

/// What a listener serves, and what it needs for that.
pub struct Listener<A> {
    /// Its name in logs and metrics: `agent`, `admin`, `metrics`, `operator`.
    pub name: &'static str,
    /// Gets every request.
    pub app: Arc<A>,
    /// For TLS.
    pub certificate: Option<Arc<Certificate>>,
    /// How many connections there may be at once.
    pub max_connections: usize,
    /// Whether, when there are as many, the one that asks for nothing goes instead of the next one waiting; and one address
    /// of another machine gets a part of them only. For people, who must come through whatever others open.
    pub makes_room: bool,
    /// Times and limits, as they are when they are asked for.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Where connections are counted.
    pub metrics: Arc<Metrics>,
    /// For dates.
    pub clock: Clock,
}

/// A socket that listens.
pub enum Socket {
    /// Over TCP.
    Tcp(TcpListener),
    /// On a path.
    Unix(UnixListener),
}

/// A connection that was accepted, and its place.
struct Accepted {
    stream: L4,
    address: Option<SocketAddr>,
    guest: Guest,
    _place: Place,
    _connected: Connected,
}

impl Socket {
    /// Takes a TCP socket that already listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn tcp(listener: std::net::TcpListener) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Socket::Tcp)
    }

    /// Takes a UNIX socket that already listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn unix(listener: std::os::unix::net::UnixListener) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener).map(Socket::Unix)
    }

    async fn accept(&self) -> std::io::Result<(L4, Option<SocketAddr>)> {
        match self {
            Socket::Tcp(listener) => listener.accept().await.map(|(stream, address)| (stream.into(), Some(address))),
            Socket::Unix(listener) => listener.accept().await.map(|(stream, _)| (stream.into(), None)),
        }
    }
}

impl<A: HttpServerApp + Send + Sync + 'static> Listener<A> {
    /// Accepts and serves until `stop` says so, then serves to their end the requests that have begun.
    /// Dropping the future cuts them.
    pub async fn run(self, socket: Socket, mut stop: ShutdownWatch) {
        let listener = Arc::new(self);
        let is_shared = listener.snapshots.load().upstreams.iter().all(|upstream| upstream.shares_connections());
        let n_places = capacity::affordable(listener.max_connections, is_shared);
        if n_places < listener.max_connections {
            let (name, wanted) = (listener.name, listener.max_connections);
            info!(listener = name, wanted, n_places, "`ulimit -n` leaves room for fewer connections");
        }
        let capacity = Capacity::new(n_places);
        let room = listener.makes_room.then(Arc::<Room>::default);
        let mut connections = JoinSet::new();
        let theirs = stop.clone();
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|is_stopping| *is_stopping) => break,
                Some(ended) = connections.join_next() => note(&ended),
                accepted = listener.accept(&socket, &capacity, room.as_ref()) => {
                    if let Some(accepted) = accepted {
                        connections.spawn(Arc::clone(&listener).serve(accepted, theirs.clone()));
                    }
                }
            }
        }
        drop(socket);
        while let Some(ended) = connections.join_next().await {
            note(&ended);
        }
    }

    async fn accept(&self, socket: &Socket, capacity: &Capacity, room: Option<&Arc<Room>>) -> Option<Accepted> {
        let permit = capacity.permit().await;
        let (mut stream, address) = match socket.accept().await {
            Ok(accepted) => accepted,
            Err(why) => {
                warn!(listener = self.name, error = %why, "no connection can be accepted; trying again");
                sleep(PAUSE).await;
                return None;
            }
        };
        let peer = address.map(|address| address.ip());
        let Some(place) = capacity.place(permit, peer, self.limit_of(peer)) else {
            self.refused("address_limit");
            return None;
        };
        prepare(&mut stream, address);
        if let Some(room) = room.filter(|_| capacity.is_full()) {
            room.make();
        }
        let guest = Guest::of(room.cloned());
        let connected = self.metrics.connected(self.name);
        Some(Accepted { stream, address, guest, _place: place, _connected: connected })
    }

    /// Behind proxies, everybody comes from the same few addresses.
    fn limit_of(&self, peer: Option<IpAddr>) -> Option<u32> {
        let snapshot = self.snapshots.load();
        let config = &snapshot.config;
        let proxy = match (self.name, &config.admin) {
            ("admin", Some(admin)) => &admin.behind_proxy,
            _ => &config.behind_proxy,
        };
        let limit = config.limits.connections_per_address;
        // On this machine everybody has the same address.
        let has_part = self.makes_room && peer.is_some_and(|peer| !peer.to_canonical().is_loopback());
        let limit = if has_part { Some(limit.unwrap_or(u32::MAX).min(PART_OF_AN_ADDRESS)) } else { limit };
        limit.filter(|_| proxy.is_none())
    }

    async fn serve(self: Arc<Self>, accepted: Accepted, stop: ShutdownWatch) {
        let leaves = accepted.guest.leaves();
        tokio::select! {
            biased;
            () = leaves => self.refused("pushed_out"),
            () = self.converse(accepted, stop) => {}
        }
    }

    async fn converse(self: &Arc<Self>, accepted: Accepted, stop: ShutdownWatch) {
        let Accepted { mut stream, address, mut guest, _place, _connected } = accepted;
        let until = self.head_is_due();
        let Some(certificate) = &self.certificate else {
            let mut bytes = BytesMut::new();
            match http2::is_spoken(&mut stream, &mut bytes, until).await {
                Some(true) => {
                    stream.rewind(&bytes);
                    http2::serve(self, Box::new(stream), &mut guest, until, stop).await;
                }
                Some(false) => http1::serve(self, Box::new(stream), bytes, &mut guest, until, stop).await,
                None => {}
            }
            return;
        };
        let acceptor = Acceptor::from_server_config(certificate.in_use());
        let stream = match timeout_at(until, acceptor.tls_handshake(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(why)) => return self.no_tls(address.map(|address| address.ip()), &why.to_string()),
            Err(_) => return self.no_tls(address.map(|address| address.ip()), "it took too long"),
        };
        let until = self.head_is_due();
        if stream.selected_alpn_proto() == Some(ALPN::H2) {
            http2::serve(self, Box::new(stream), &mut guest, until, stop).await;
        } else {
            http1::serve(self, Box::new(stream), BytesMut::new(), &mut guest, until, stop).await;
        }
    }

    fn head_is_due(&self) -> Instant {
        Instant::now() + self.snapshots.load().config.timeouts.head.duration()
    }

    fn no_tls(&self, peer: Option<IpAddr>, why: &str) {
        debug!(listener = self.name, ?peer, why, "no TLS came about");
        self.refused("tls");
    }

    fn refused(&self, reason: &'static str) {
        debug!(listener = self.name, reason, "a connection was refused");
        self.metrics.connection_refused(self.name, reason);
    }
}

fn prepare(stream: &mut L4, address: Option<SocketAddr>) {
    if address.is_some() {
        // Both are an improvement, not a condition.
        let set = stream.set_nodelay().and_then(|()| stream.set_keepalive(&KEEPALIVE));
        if let Err(why) = set {
            debug!(error = %why, "a socket's options cannot be set");
        }
    }
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    // It was made one line above.
    let _ = digest.peer_addr.set(address.map(Into::into));
    stream.set_socket_digest(digest);
}

/// A task that died took one connection or request with it, nothing else; but it must not go unseen.
fn note(ended: &Result<(), JoinError>) {
    if let Err(died) = ended
        && died.is_panic()
    {
        error!(error = %died, "a connection's task died");
    }
}
