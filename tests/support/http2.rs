//! HTTP/2 on both sides: a client that leaves flow control to the test, an upstream that records, and frames by hand for
//! what no library would send. Not through pingora, on purpose.

use super::PATIENCE;
use super::http::{Event, Request, Response};
use super::recorder::Recorded;
use super::reply::Reply;
use super::tls::{self, Identity};
use super::wire::Headers;
use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// A connection of a client.
pub(crate) struct Client {
    runtime: Runtime,
    sender: h2::client::SendRequest<Bytes>,
    authority: String,
}

/// A request whose head is sent, and whose body goes on as the test likes.
pub(crate) struct Sending {
    /// Its body.
    pub(crate) body: SendStream<Bytes>,
    answer: h2::client::ResponseFuture,
}

/// A response whose head has come.
pub(crate) struct Streaming<'a> {
    /// Its status.
    pub(crate) status: u16,
    /// Its header fields.
    pub(crate) headers: Headers,
    body: RecvStream,
    pending: Vec<u8>,
    client: &'a Client,
}

// === impl Client ===

impl Client {
    /// Connects in plain and begins with HTTP/2 at once (prior knowledge). Windows are the protocol's own: 65,535 bytes.
    #[track_caller]
    pub(crate) fn open(to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).expect("the gateway listens");
        stream.set_nodelay(true).expect("it is open");
        stream.set_nonblocking(true).expect("it is open");
        let runtime = runtime();
        let stream = {
            let _inside = runtime.enter();
            tokio::net::TcpStream::from_std(stream).expect("a runtime is there")
        };
        Client::begin(runtime, stream, to.to_string())
    }

    /// On the plain side of a TLS connection, for this authority.
    #[track_caller]
    pub(crate) fn on(stream: UnixStream, authority: &str) -> Client {
        stream.set_nonblocking(true).expect("it is open");
        let runtime = runtime();
        let stream = {
            let _inside = runtime.enter();
            tokio::net::UnixStream::from_std(stream).expect("a runtime is there")
        };
        Client::begin(runtime, stream, authority.to_owned())
    }

    #[track_caller]
    fn begin<S>(runtime: Runtime, stream: S, authority: String) -> Client
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = async { timeout(PATIENCE, h2::client::handshake(stream)).await };
        let (sender, connection) = runtime.block_on(handshake).expect("in time").expect("HTTP/2 is spoken");
        // It ends with the runtime.
        runtime.spawn(async move { drop(connection.await) });
        Client { runtime, sender, authority }
    }

    /// Sends the head; the body is the test's.
    pub(crate) fn begin_request(&self, request: &Request, is_all: bool) -> Result<Sending, h2::Error> {
        let (method, target, headers, _) = request.parts();
        let mut head = http::Request::builder()
            .method(method)
            .uri(format!("http://{}{target}", self.authority))
            .version(http::Version::HTTP_2);
        for (name, value) in headers {
            head = head.header(name.as_str(), value.as_str());
        }
        let head = head.body(()).expect("a head that HTTP/2 can carry");
        self.wait(async {
            let mut sender = self.sender.clone().ready().await?;
            let (answer, body) = sender.send_request(head, is_all)?;
            Ok(Sending { body, answer })
        })
    }

    /// Sends the whole request and reads the head of its answer.
    pub(crate) fn try_streaming(&self, request: &Request) -> Result<Streaming<'_>, h2::Error> {
        let body = Bytes::copy_from_slice(request.body_bytes());
        let has_length = request.parts().2.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let request = match has_length {
            true => request.clone(),
            false => request.clone().header("content-length", &body.len().to_string()),
        };
        let mut sending = self.begin_request(&request, false)?;
        sending.body.send_data(body, true)?;
        self.answer(sending)
    }

    /// The same, which must work.
    #[track_caller]
    pub(crate) fn streaming(&self, request: &Request) -> Streaming<'_> {
        self.try_streaming(request).unwrap_or_else(|error| panic!("no answer came: {error}"))
    }

    /// Sends the whole request and reads the whole answer.
    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Response {
        self.streaming(request).rest()
    }

    /// The head of the answer to a request that was begun.
    pub(crate) fn answer(&self, sending: Sending) -> Result<Streaming<'_>, h2::Error> {
        let (head, body) = self.wait(sending.answer)?.into_parts();
        let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = Headers(head.headers.iter().map(field).collect());
        Ok(Streaming { status: head.status.as_u16(), headers, body, pending: Vec::new(), client: self })
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(PATIENCE, work).await }).expect("it happens in time")
    }
}

// === impl Streaming ===

impl Streaming<'_> {
    /// The next piece of the body, given back to flow control; `None` at its end.
    pub(crate) fn try_piece(&mut self) -> Result<Option<Bytes>, h2::Error> {
        let Some(piece) = self.client.wait(self.body.data()).transpose()? else {
            return Ok(None);
        };
        self.body.flow_control().release_capacity(piece.len())?;
        Ok(Some(piece))
    }

    /// The next event, or comment standing alone, or `None` at the end.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(at) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
                let block: Vec<u8> = self.pending.drain(..at + 2).collect();
                return Some(Event::parse(&block[..at]));
            }
            match self.try_piece().expect("the stream goes on") {
                Some(piece) => self.pending.extend_from_slice(&piece),
                None => return None,
            }
        }
    }

    /// The whole answer.
    #[track_caller]
    pub(crate) fn rest(mut self) -> Response {
        let mut body = std::mem::take(&mut self.pending);
        while let Some(piece) = self.try_piece().expect("the body is whole") {
            body.extend_from_slice(&piece);
        }
        Response { status: self.status, headers: self.headers, body }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime starts")
}

// === The upstream ===

/// What the upstream does with a request.
pub(crate) enum Deed {
    /// Answers whole.
    Answer(Reply),
    /// Refuses the stream before looking at it.
    Refuse,
    /// Resets the stream: it may have run.
    Reset,
    /// Begins an event stream and says nothing more.
    Silent,
    /// Sends events as long as they are taken.
    Endless,
}

type Doing = Arc<dyn Fn(&Recorded) -> Deed + Send + Sync>;

/// An MCP server that speaks HTTP/2 and records.
pub(crate) struct Upstream {
    url: String,
    requests: Arc<Mutex<Vec<Recorded>>>,
    n_connections: Arc<AtomicUsize>,
    n_sent: Arc<AtomicUsize>,
}

struct Server {
    doing: Doing,
    requests: Arc<Mutex<Vec<Recorded>>>,
    n_connections: Arc<AtomicUsize>,
    n_sent: Arc<AtomicUsize>,
}

impl Upstream {
    /// In plain, prior knowledge.
    pub(crate) fn start(doing: impl Fn(&Recorded) -> Deed + Send + Sync + 'static) -> Upstream {
        let (server, mut upstream) = Upstream::pair(doing);
        let (sender, address) = mpsc::channel();
        thread::spawn(move || {
            runtime().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                sender.send(listener.local_addr().expect("it is bound")).expect("the caller waits");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(Arc::clone(&server).serve(stream));
                }
            });
        });
        upstream.url = format!("http://{}/mcp", address.recv().expect("the listener starts"));
        upstream
    }

    /// Over TLS; HTTP/2 is all it offers.
    pub(crate) fn start_tls(
        identity: &Identity,
        doing: impl Fn(&Recorded) -> Deed + Send + Sync + 'static,
    ) -> Upstream {
        let (server, mut upstream) = Upstream::pair(doing);
        let address = tls::terminate_offering(identity, None, &[b"h2"], move |stream, _| {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                runtime().block_on(async move {
                    stream.set_nonblocking(true).expect("it is open");
                    server.serve(tokio::net::UnixStream::from_std(stream).expect("a runtime is there")).await;
                });
            });
        });
        upstream.url = format!("https://{address}/mcp");
        upstream
    }

    fn pair(doing: impl Fn(&Recorded) -> Deed + Send + Sync + 'static) -> (Arc<Server>, Upstream) {
        let server = Server {
            doing: Arc::new(doing),
            requests: Arc::default(),
            n_connections: Arc::default(),
            n_sent: Arc::default(),
        };
        let upstream = Upstream {
            url: String::new(),
            requests: Arc::clone(&server.requests),
            n_connections: Arc::clone(&server.n_connections),
            n_sent: Arc::clone(&server.n_sent),
        };
        (Arc::new(server), upstream)
    }

    /// The URL of its MCP endpoint.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Every `tools/call` so far.
    pub(crate) fn calls(&self) -> Vec<Recorded> {
        let requests = self.requests.lock().expect("no thread panics");
        requests.iter().filter(|request| request.rpc_method() == "tools/call").cloned().collect()
    }

    /// How many connections were opened so far.
    pub(crate) fn n_connections(&self) -> usize {
        self.n_connections.load(Ordering::SeqCst)
    }

    /// How many bytes of endless answers flow control has let go so far.
    pub(crate) fn n_sent(&self) -> usize {
        self.n_sent.load(Ordering::SeqCst)
    }
}

impl Server {
    async fn serve<S>(self: Arc<Self>, stream: S)
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self.n_connections.fetch_add(1, Ordering::SeqCst);
        let Ok(mut session) = h2::server::handshake(stream).await else {
            return;
        };
        while let Some(Ok((request, respond))) = session.accept().await {
            tokio::spawn(Arc::clone(&self).take(connection, request, respond));
        }
    }

    async fn take(
        self: Arc<Self>,
        connection: usize,
        request: http::Request<RecvStream>,
        mut respond: h2::server::SendResponse<Bytes>,
    ) {
        let (head, mut incoming) = request.into_parts();
        let mut body = Vec::new();
        while let Some(Ok(piece)) = incoming.data().await {
            drop(incoming.flow_control().release_capacity(piece.len()));
            body.extend_from_slice(&piece);
        }
        let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let recorded = Recorded {
            connection,
            method: head.method.to_string(),
            target: head.uri.to_string(),
            headers: Headers(head.headers.iter().map(field).collect()),
            body,
        };
        self.requests.lock().expect("no thread panics").push(recorded.clone());
        match (self.doing)(&recorded) {
            Deed::Answer(reply) => answer(&mut respond, &reply),
            Deed::Refuse => respond.send_reset(Reason::REFUSED_STREAM),
            Deed::Reset => respond.send_reset(Reason::INTERNAL_ERROR),
            Deed::Silent => {
                let stream = begin_stream(&mut respond);
                tokio::time::sleep(10 * PATIENCE).await;
                drop(stream);
            }
            Deed::Endless => self.send_without_end(begin_stream(&mut respond)).await,
        }
    }

    async fn send_without_end(&self, mut stream: SendStream<Bytes>) {
        let event = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{\"level\":\"info\",\"data\":\"{}\"}}}}\n\n",
            "x".repeat(4000)
        );
        loop {
            let mut event = Bytes::from(event.clone());
            while !event.is_empty() {
                stream.reserve_capacity(event.len());
                let Some(Ok(n)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                    return;
                };
                let n = n.min(event.len());
                if stream.send_data(event.split_to(n), false).is_err() {
                    return;
                }
                self.n_sent.fetch_add(n, Ordering::SeqCst);
            }
        }
    }
}

fn begin_stream(respond: &mut h2::server::SendResponse<Bytes>) -> SendStream<Bytes> {
    let head = http::Response::builder().header("content-type", "text/event-stream").body(()).expect("a head");
    respond.send_response(head, false).expect("the stream is open")
}

fn answer(respond: &mut h2::server::SendResponse<Bytes>, reply: &Reply) {
    let (status, headers, body) = reply.whole();
    let mut head = http::Response::builder().status(status);
    for (name, value) in headers {
        head = head.header(name.as_str(), value.as_str());
    }
    // A peer that has left is no failure of the upstream's.
    if let Ok(mut stream) = respond.send_response(head.body(()).expect("a head"), false) {
        drop(stream.send_data(Bytes::copy_from_slice(body), true));
    }
}

/// What stands before an upstream and can send a client away: once it is told to, it takes no further stream on the
/// connections that are there, says so (GOAWAY names the last one it took), and closes them.
pub(crate) struct Doorkeeper {
    address: SocketAddr,
    is_closing: Arc<AtomicBool>,
}

impl Doorkeeper {
    /// Before this upstream, which speaks in plain.
    pub(crate) fn before(upstream: &Upstream) -> Doorkeeper {
        let to: SocketAddr =
            upstream.url.trim_start_matches("http://").trim_end_matches("/mcp").parse().expect("an address");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let is_closing = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_closing);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(to).expect("the upstream listens");
                let (mut answers, mut back) = (server.try_clone().expect("open"), client.try_clone().expect("open"));
                thread::spawn(move || drop(io::copy(&mut answers, &mut back)));
                let told = Arc::clone(&told);
                thread::spawn(move || drop(pass_until_told(client, server, &told)));
            }
        });
        Doorkeeper { address, is_closing }
    }

    /// The URL of the upstream by way of it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Sends away whoever comes next on a connection that is there.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
    }
}

fn pass_until_told(mut client: TcpStream, mut server: TcpStream, told: &AtomicBool) -> io::Result<()> {
    let mut preface = [0; 24];
    client.read_exact(&mut preface)?;
    server.write_all(&preface)?;
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        client.read_exact(&mut payload)?;
        if head[3] == HEADERS && told.swap(false, Ordering::SeqCst) {
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let last = stream.saturating_sub(2).to_be_bytes();
            client.write_all(&[&[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0][..], &last, &[0; 4]].concat())?;
            server.shutdown(std::net::Shutdown::Both)?;
            // It closes when it has understood.
            return client.read_to_end(&mut Vec::new()).map(drop);
        }
        server.write_all(&head)?;
        server.write_all(&payload)?;
    }
}

// === Frames by hand ===

/// A connection on which the test writes every frame.
pub(crate) struct Frames {
    stream: TcpStream,
}

/// A frame that came: type, flags, stream, payload.
pub(crate) type Frame = (u8, u8, u32, Vec<u8>);

/// Types of frames (RFC 9113 §6).
pub(crate) const DATA: u8 = 0;
/// Opens a stream.
pub(crate) const HEADERS: u8 = 1;
/// Ends one at once.
pub(crate) const RST_STREAM: u8 = 3;
/// Parameters of a connection.
pub(crate) const SETTINGS: u8 = 4;
/// Asks for a sign of life.
pub(crate) const PING: u8 = 6;
/// Ends a connection.
pub(crate) const GOAWAY: u8 = 7;
/// More of a head.
pub(crate) const CONTINUATION: u8 = 9;
/// The last frame of a stream.
pub(crate) const END_STREAM: u8 = 1;
/// The last frame of a head.
pub(crate) const END_HEADERS: u8 = 4;

impl Frames {
    /// Connects, and says what a client says first.
    #[track_caller]
    pub(crate) fn open(to: SocketAddr) -> Frames {
        let stream = TcpStream::connect(to).expect("the gateway listens");
        stream.set_nodelay(true).expect("it is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("it is open");
        let mut frames = Frames { stream };
        frames.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("the gateway reads");
        frames.send(SETTINGS, 0, 0, &[]);
        frames
    }

    /// Sends a frame, as far as the gateway takes it.
    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        drop(self.try_send(kind, flags, stream, payload));
    }

    /// Sends a frame.
    pub(crate) fn try_send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.stream.write_all(&[&head, payload].concat())
    }

    /// The next frame that is neither SETTINGS nor WINDOW_UPDATE nor PING; `None` when the gateway has closed.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload).ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if !matches!(head[3], SETTINGS | PING | 8) {
                return Some((head[3], head[4], stream, payload));
            }
        }
    }

    /// How long a read may wait.
    pub(crate) fn patience(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("it is open");
    }
}

/// Header fields for a HEADERS frame, each written out (HPACK, RFC 7541 §6.2.2), whatever stands in them.
pub(crate) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(text.len(), &mut block);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// RFC 7541 §5.1, with a prefix of 7 bits.
fn integer(mut n: usize, into: &mut Vec<u8>) {
    if n < 127 {
        into.push(u8::try_from(n).expect("below 127"));
        return;
    }
    into.push(127);
    n -= 127;
    while n >= 128 {
        into.push(u8::try_from(n % 128).expect("below 128") | 128);
        n /= 128;
    }
    into.push(u8::try_from(n).expect("below 128"));
}
