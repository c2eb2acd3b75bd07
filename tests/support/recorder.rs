//! The upstream that records: every connection, every byte, every request, and answers as it is told.
//!
//! "Nothing was forwarded" means here: no connection was opened and not one byte came. A test that shows this sends the
//! nearest allowed call as well and sees it arrive, or it has shown nothing.

use super::PATIENCE;
use super::reply::Reply;
use super::tls::Identity;
use super::wire::{self, Framing, Headers, Socket};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{self, BufReader, Read};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

/// One request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// Which connection brought it, counted from 0.
    pub(crate) connection: usize,
    /// Its method.
    pub(crate) method: String,
    /// Its target: path and query.
    pub(crate) target: String,
    /// Its header fields, in their order and case.
    pub(crate) headers: Headers,
    /// Its body, freed from its framing.
    pub(crate) body: Vec<u8>,
}

impl Recorded {
    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The first field of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// The JSON-RPC method, empty when there is none.
    pub(crate) fn rpc_method(&self) -> String {
        let message: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        message["method"].as_str().unwrap_or_default().to_owned()
    }
}

/// A point in what was recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    connections: usize,
    bytes: usize,
    requests: usize,
}

impl Mark {
    /// The same point for requests, so many of them later.
    pub(crate) fn after_requests(mut self, n: usize) -> Mark {
        self.requests += n;
        self
    }
}

type Answering = Arc<dyn Fn(&Recorded) -> Reply + Send + Sync>;

struct Log {
    /// Each connection's bytes and whether it is open.
    connections: Vec<(Vec<u8>, bool)>,
    requests: Vec<Recorded>,
    queue: VecDeque<Reply>,
    answering: Answering,
    server_names: Vec<String>,
}

struct Shared {
    log: Mutex<Log>,
    changed: Condvar,
}

/// The upstream that records.
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    scheme: &'static str,
}

// === impl Recorder ===

impl Recorder {
    /// On a port of 127.0.0.1, answering as a small MCP server (`Reply::mcp`).
    pub(crate) fn start() -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let recorder = Recorder { shared: Shared::new(), address: Some(address), scheme: "http" };
        let shared = Arc::clone(&recorder.shared);
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| shared.serve(Socket::Tcp(stream))));
        recorder
    }

    /// The same on this address, which must be free.
    #[track_caller]
    pub(crate) fn start_on(address: SocketAddr) -> Recorder {
        let listener = TcpListener::bind(address).expect("the address is free");
        let recorder = Recorder { shared: Shared::new(), address: Some(address), scheme: "http" };
        let shared = Arc::clone(&recorder.shared);
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| shared.serve(Socket::Tcp(stream))));
        recorder
    }

    /// The same on a UNIX socket.
    pub(crate) fn start_unix(path: &Path) -> Recorder {
        let listener = UnixListener::bind(path).expect("the socket's folder is there");
        let recorder = Recorder { shared: Shared::new(), address: None, scheme: "http" };
        let shared = Arc::clone(&recorder.shared);
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| shared.serve(Socket::Unix(stream))));
        recorder
    }

    /// The same behind TLS. With `clients_ca`, only clients with a certificate signed by it get in; what is recorded is
    /// what came through, so a failed handshake leaves no connection here.
    pub(crate) fn start_tls(identity: &Identity, clients_ca: Option<&Identity>) -> Recorder {
        let shared = Shared::new();
        let to = Arc::clone(&shared);
        let address = super::tls::terminate(identity, clients_ca, move |stream, name| {
            to.log().server_names.push(name);
            to.serve(Socket::Unix(stream));
        });
        Recorder { shared, address: Some(address), scheme: "https" }
    }

    /// Where it listens; not for a UNIX socket.
    #[track_caller]
    pub(crate) fn address(&self) -> SocketAddr {
        self.address.expect("a recorder on a UNIX socket has no address")
    }

    /// The URL of its MCP endpoint.
    #[track_caller]
    pub(crate) fn url(&self) -> String {
        format!("{}://{}/mcp", self.scheme, self.address())
    }

    /// Answers every request from now on by this function.
    pub(crate) fn answer_with(&self, answering: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) {
        self.shared.log().answering = Arc::new(answering);
    }

    /// Answers the next request with this reply; several calls make a queue.
    pub(crate) fn answer_next(&self, reply: Reply) {
        self.shared.log().queue.push_back(reply);
    }

    /// This point in time.
    pub(crate) fn mark(&self) -> Mark {
        self.shared.log().mark()
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.shared.log().requests.clone()
    }

    /// Every request since the mark.
    pub(crate) fn requests_since(&self, mark: Mark) -> Vec<Recorded> {
        self.shared.log().requests.get(mark.requests..).unwrap_or_default().to_vec()
    }

    /// Every `tools/call` so far: what a denied call must not add to.
    pub(crate) fn calls(&self) -> Vec<Recorded> {
        self.requests().into_iter().filter(|request| request.rpc_method() == "tools/call").collect()
    }

    /// The last request, which must be there.
    #[track_caller]
    pub(crate) fn last(&self) -> Recorded {
        self.requests().pop().expect("a request came")
    }

    /// How many connections were opened so far.
    pub(crate) fn n_connections(&self) -> usize {
        self.shared.log().connections.len()
    }

    /// How many connections are open.
    pub(crate) fn n_open(&self) -> usize {
        self.shared.log().connections.iter().filter(|(_, is_open)| *is_open).count()
    }

    /// Whether this connection was opened and is still open.
    pub(crate) fn is_open(&self, connection: usize) -> bool {
        self.shared.log().connections.get(connection).is_some_and(|(_, is_open)| *is_open)
    }

    /// The names that TLS clients asked for (SNI), one for each connection that came about; empty where none was sent.
    pub(crate) fn server_names(&self) -> Vec<String> {
        self.shared.log().server_names.clone()
    }

    /// Every byte that came on this connection.
    pub(crate) fn bytes(&self, connection: usize) -> Vec<u8> {
        self.shared.log().connections[connection].0.clone()
    }

    /// Fails when a connection was opened or a byte came since the mark.
    #[track_caller]
    pub(crate) fn assert_untouched(&self, since: Mark) {
        let log = self.shared.log();
        let now = log.mark();
        let seen = log.requests.get(since.requests..).unwrap_or_default();
        assert_eq!(now.connections, since.connections, "a connection was opened; requests: {seen:#?}");
        assert_eq!(now.bytes, since.bytes, "bytes came; requests: {seen:#?}");
    }

    /// Waits until this many requests came since the mark, and returns them.
    #[track_caller]
    pub(crate) fn wait_for_requests(&self, since: Mark, n: usize) -> Vec<Recorded> {
        self.wait_until(&format!("{n} requests"), |log| log.requests.len() >= since.requests + n);
        self.requests_since(since)
    }

    /// Waits until the peer has closed this connection, and says how long that took.
    #[track_caller]
    pub(crate) fn wait_until_closed(&self, connection: usize) -> Duration {
        let start = Instant::now();
        self.wait_until(&format!("the end of connection {connection}"), |log| {
            log.connections.get(connection).is_some_and(|(_, is_open)| !is_open)
        });
        start.elapsed()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_so: impl Fn(&Log) -> bool) {
        let log = self.shared.log();
        let (log, waited) = self
            .shared
            .changed
            .wait_timeout_while(log, PATIENCE, |log| !is_so(log))
            .expect("no recorder thread panics");
        assert!(!waited.timed_out(), "waited in vain for {what}; requests so far: {:#?}", log.requests);
    }
}

// === impl Log, Shared ===

impl Log {
    fn mark(&self) -> Mark {
        let bytes = self.connections.iter().map(|(bytes, _)| bytes.len()).sum();
        Mark { connections: self.connections.len(), bytes, requests: self.requests.len() }
    }
}

impl Shared {
    fn new() -> Arc<Shared> {
        let answering: Answering = Arc::new(Reply::mcp);
        let log = Log {
            connections: Vec::new(),
            requests: Vec::new(),
            queue: VecDeque::new(),
            answering,
            server_names: Vec::new(),
        };
        Arc::new(Shared { log: Mutex::new(log), changed: Condvar::new() })
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no recorder thread panics")
    }

    /// One thread reads and records, so that a peer's leaving is seen while the other one is still answering.
    fn serve(self: &Arc<Shared>, stream: Socket) {
        let connection = {
            let mut log = self.log();
            log.connections.push((Vec::new(), true));
            log.connections.len() - 1
        };
        self.changed.notify_all();
        let Ok(mut reader) = stream.try_clone() else {
            return;
        };
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let mut piece = vec![0; 64 * 1024];
            while let Ok(n @ 1..) = reader.read(&mut piece) {
                shared.log().connections[connection].0.extend_from_slice(&piece[..n]);
                shared.changed.notify_all();
            }
            shared.log().connections[connection].1 = false;
            shared.changed.notify_all();
        });
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let mut stream = stream;
            // A peer that leaves ends the conversation; that is recorded, and no failure of the recorder's.
            drop(shared.converse(connection, &mut stream));
            // Already closed is closed.
            drop(stream.shutdown(Shutdown::Both));
        });
    }

    fn converse(self: &Arc<Shared>, connection: usize, stream: &mut Socket) -> io::Result<()> {
        let inbox = Inbox { shared: Arc::clone(self), connection, at: 0 };
        let mut reader = BufReader::new(inbox);
        while let Some(request) = read_request(&mut reader, connection)? {
            let reply = self.note(&request);
            if !reply.write(stream, || self.wait_for_end(connection))? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn note(&self, request: &Recorded) -> Reply {
        let (queued, answering) = {
            let mut log = self.log();
            log.requests.push(request.clone());
            (log.queue.pop_front(), Arc::clone(&log.answering))
        };
        self.changed.notify_all();
        queued.unwrap_or_else(|| answering(request))
    }

    fn wait_for_end(&self, connection: usize) {
        let log = self.log();
        drop(self.changed.wait_while(log, |log| log.connections[connection].1).expect("no recorder thread panics"));
    }
}

fn read_request(reader: &mut BufReader<Inbox>, connection: usize) -> io::Result<Option<Recorded>> {
    let Some(head) = wire::read_head(reader)? else {
        return Ok(None);
    };
    let mut words = head.start.splitn(3, ' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let body = Framing::of_request(&head.headers).rest(reader)?;
    Ok(Some(Recorded { connection, method, target, headers: head.headers, body }))
}

/// What a connection brought, to be read once more by the parser.
struct Inbox {
    shared: Arc<Shared>,
    connection: usize,
    at: usize,
}

impl Read for Inbox {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let log = self.shared.log();
        let log = self
            .shared
            .changed
            .wait_while(log, |log| {
                let (bytes, is_open) = &log.connections[self.connection];
                *is_open && bytes.len() == self.at
            })
            .expect("no recorder thread panics");
        let rest = &log.connections[self.connection].0[self.at..];
        let n = rest.len().min(into.len());
        into[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}
