//! A TCP link between two programs that can fail in the ways in which networks do.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpSocket;

/// A running link. It ends with the test.
pub(crate) struct Link {
    /// Where it listens.
    pub(crate) port: u16,
    shared: Arc<Shared>,
    listening: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
    // Bound and not listening: nobody else is given this port while nobody listens.
    _port: TcpSocket,
}

struct Shared {
    to: SocketAddr,
    n_connections: AtomicUsize,
    connections: Mutex<Vec<Connection>>,
    /// Nothing goes through, on no connection.
    is_silent: AtomicBool,
    is_over: AtomicBool,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Nothing will ever go through again.
    is_dead: Arc<AtomicBool>,
}

/// How often a thread looks whether something has changed.
const TICK: Duration = Duration::from_millis(10);

impl Link {
    /// A link that works.
    pub(crate) fn to(to: SocketAddr) -> Link {
        let socket = TcpSocket::new_v4().expect("there are sockets");
        socket.set_reuseaddr(true).expect("Linux knows it");
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("there are free ports");
        let port = socket.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            to,
            n_connections: AtomicUsize::new(0),
            connections: Mutex::default(),
            is_silent: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let mut link = Link { port, shared, listening: None, _port: socket };
        link.accept();
        link
    }

    /// How often somebody has connected.
    pub(crate) fn n_connections(&self) -> usize {
        self.shared.n_connections.load(Ordering::SeqCst)
    }

    /// What is sent is lost, either way, on old connections and on new ones.
    pub(crate) fn fall_silent(&self) {
        self.shared.is_silent.store(true, Ordering::SeqCst);
    }

    /// What was lost is sent again, and all goes on.
    pub(crate) fn go_on(&self) {
        self.shared.is_silent.store(false, Ordering::SeqCst);
    }

    /// The other side has begun anew and knows nothing of the connections there were. Nobody is told; new ones work.
    pub(crate) fn forget(&self) {
        for connection in self.shared.connections.lock().expect("no thread of the link panics").iter() {
            connection.is_dead.store(true, Ordering::SeqCst);
        }
    }

    /// Ends all connections; new ones are refused.
    pub(crate) fn refuse(&mut self) {
        if let Some((is_over, listening)) = self.listening.take() {
            is_over.store(true, Ordering::SeqCst);
            listening.join().expect("no thread of the link panics");
        }
        self.shared.end_all();
    }

    /// Takes connections again.
    pub(crate) fn accept(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).expect("the port is ours");
        listener.set_nonblocking(true).expect("Linux knows it");
        let (shared, is_over) = (Arc::clone(&self.shared), Arc::new(AtomicBool::new(false)));
        let until = Arc::clone(&is_over);
        let listening = thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((client, _)) => shared.relay(client),
                    Err(_) => thread::sleep(TICK),
                }
            }
        });
        self.listening = Some((is_over, listening));
    }
}

impl Shared {
    fn relay(self: &Arc<Shared>, client: TcpStream) {
        self.n_connections.fetch_add(1, Ordering::SeqCst);
        client.set_nonblocking(false).expect("Linux knows it");
        // Where nobody listens, the client is told by its connection's end.
        let Ok(server) = TcpStream::connect(self.to) else { return };
        let is_dead = Arc::new(AtomicBool::new(false));
        let clone = |stream: &TcpStream| stream.try_clone().expect("a socket can be shared");
        for (from, to) in [(clone(&client), clone(&server)), (clone(&server), clone(&client))] {
            let (shared, is_dead) = (Arc::clone(self), Arc::clone(&is_dead));
            thread::spawn(move || shared.pass(from, to, &is_dead));
        }
        self.connections.lock().expect("no thread of the link panics").push(Connection { client, server, is_dead });
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, is_dead: &AtomicBool) {
        from.set_read_timeout(Some(TICK)).expect("Linux knows it");
        let mut buffer = vec![0; 64 * 1024];
        while !self.is_over.load(Ordering::SeqCst) {
            let n = match from.read(&mut buffer) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Ok(n) => n,
                Err(_) => 0,
            };
            while self.is_silent.load(Ordering::SeqCst) || is_dead.load(Ordering::SeqCst) {
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                thread::sleep(TICK);
            }
            if n == 0 || to.write_all(&buffer[..n]).is_err() {
                // The end of one direction, or nobody there any more.
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    }

    fn end_all(&self) {
        for connection in self.connections.lock().expect("no thread of the link panics").drain(..) {
            let _ = connection.client.shutdown(Shutdown::Both);
            let _ = connection.server.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some((is_over, listening)) = self.listening.take() {
            is_over.store(true, Ordering::SeqCst);
            let _ = listening.join();
        }
        self.shared.end_all();
    }
}
