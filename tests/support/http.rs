//! A raw HTTP/1.1 client: what a test gives it is what goes out, byte for byte, and what comes back is kept as it came.

use super::PATIENCE;
use super::wire::{self, Framing, Headers, Socket};
use serde_json::Value;
use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::time::Instant;

/// A request to be turned into bytes. Nothing is added but `Host` and, with a body, `Content-Length`, and those only
/// where the test has not written its own.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// Its status.
    pub(crate) status: u16,
    /// Its header fields.
    pub(crate) headers: Headers,
    /// Its body, freed from its framing.
    pub(crate) body: Vec<u8>,
}

/// One event of an event stream, or a comment between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its `event` field; empty when it has none.
    pub(crate) event: String,
    /// Its `id` field.
    pub(crate) id: Option<String>,
    /// Its `data` lines, joined.
    pub(crate) data: String,
    /// Comment lines that stood in it.
    pub(crate) comments: Vec<String>,
    /// When its last byte came.
    pub(crate) at: Instant,
}

/// A connection that stays open between requests.
pub(crate) struct Connection {
    reader: BufReader<Socket>,
}

/// A response whose head has come, and whose body is read as it comes.
pub(crate) struct Streaming<'a> {
    /// Its status.
    pub(crate) status: u16,
    /// Its header fields.
    pub(crate) headers: Headers,
    /// When its head had come.
    pub(crate) at: Instant,
    framing: Framing,
    pending: Vec<u8>,
    reader: &'a mut BufReader<Socket>,
}

// === impl Request ===

impl Request {
    /// A request with this method and target.
    pub(crate) fn new(method: &str, target: &str) -> Request {
        Request { method: method.to_owned(), target: target.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// A POST.
    pub(crate) fn post(target: &str) -> Request {
        Request::new("POST", target)
    }

    /// A GET.
    pub(crate) fn get(target: &str) -> Request {
        Request::new("GET", target)
    }

    /// A POST of a JSON-RPC message, with the `Content-Type` and `Accept` that MCP asks for.
    pub(crate) fn mcp(target: &str, body: impl Into<Vec<u8>>) -> Request {
        Request::post(target)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(body)
    }

    /// With this header field, after those it already has.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without the header fields of this name.
    pub(crate) fn without(mut self, name: &str) -> Request {
        self.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        self
    }

    /// With this token.
    pub(crate) fn bearer(self, token: &str) -> Request {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// With this body.
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    /// Method, target, header fields and body.
    pub(crate) fn parts(&self) -> (&str, &str, &[(String, String)], &[u8]) {
        (&self.method, &self.target, &self.headers, &self.body)
    }

    /// Its body.
    pub(crate) fn body_bytes(&self) -> &[u8] {
        &self.body
    }

    /// Its bytes.
    pub(crate) fn to_bytes(&self, host: &str) -> Vec<u8> {
        let has = |name: &str| self.headers.iter().any(|(key, _)| key.eq_ignore_ascii_case(name));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !has("host") {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let is_framed = has("content-length") || has("transfer-encoding");
        if !is_framed && (self.method == "POST" || !self.body.is_empty()) {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }

    /// Sends it on a connection of its own and reads the whole answer.
    #[track_caller]
    pub(crate) fn send(&self, to: SocketAddr) -> Response {
        let mut connection = Connection::open(to);
        connection.send(&self.to_bytes(&to.to_string()));
        connection.response()
    }

    /// Whether a whole answer comes: for a gateway that may die meanwhile.
    pub(crate) fn is_answered_by(&self, to: SocketAddr) -> bool {
        self.answer_of(to).is_ok()
    }

    /// The answer, where a whole one comes.
    pub(crate) fn answer_of(&self, to: SocketAddr) -> io::Result<Response> {
        let stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut connection = Connection { reader: BufReader::new(Socket::Tcp(stream)) };
        connection.try_send(&self.to_bytes(&to.to_string()))?;
        connection.try_response()
    }
}

// === impl Connection ===

impl Connection {
    /// Connects.
    #[track_caller]
    pub(crate) fn open(to: SocketAddr) -> Connection {
        let stream = TcpStream::connect(to).unwrap_or_else(|error| panic!("cannot connect to {to}: {error}"));
        stream.set_nodelay(true).expect("the socket is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("the limit is not zero");
        Connection { reader: BufReader::new(Socket::Tcp(stream)) }
    }

    /// On a socket that is connected already, such as one of `tls::connect`.
    pub(crate) fn on(stream: UnixStream) -> Connection {
        stream.set_read_timeout(Some(PATIENCE)).expect("the limit is not zero");
        Connection { reader: BufReader::new(Socket::Unix(stream)) }
    }

    /// Sends exactly these bytes.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the gateway reads");
    }

    /// Sends these bytes, or as many of them as the gateway takes: one that has refused may close before the end.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Closes our sending half only.
    pub(crate) fn finish_sending(&mut self) {
        drop(self.reader.get_mut().shutdown(Shutdown::Write));
    }

    /// Leaves without a word: the peer gets a reset (RST), not an end.
    pub(crate) fn reset(self) {
        let Socket::Tcp(stream) = self.reader.into_inner() else {
            panic!("only TCP has resets");
        };
        stream.set_nonblocking(true).expect("it is open");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        let _inside = runtime.enter();
        let stream = tokio::net::TcpStream::from_std(stream).expect("a runtime is there");
        stream.set_zero_linger().expect("it is open");
    }

    /// Reads one response whole.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        self.try_response().unwrap_or_else(|error| panic!("no whole response came: {error}"))
    }

    /// Reads one response whole, or says how that failed.
    pub(crate) fn try_response(&mut self) -> io::Result<Response> {
        let mut streaming = self.try_streaming()?;
        let body = streaming.framing.rest(streaming.reader)?;
        Ok(Response { status: streaming.status, headers: streaming.headers, body })
    }

    /// Reads a response's head, and its body as it comes.
    #[track_caller]
    pub(crate) fn streaming(&mut self) -> Streaming<'_> {
        self.try_streaming().unwrap_or_else(|error| panic!("no response came: {error}"))
    }

    fn try_streaming(&mut self) -> io::Result<Streaming<'_>> {
        let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed without a response");
        let head = wire::read_head(&mut self.reader)?.ok_or_else(closed)?;
        let status = head.start.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {:?}", head.start)))?;
        let framing = Framing::of_response(status, &head.headers);
        let (headers, reader) = (head.headers, &mut self.reader);
        Ok(Streaming { status, headers, at: Instant::now(), framing, pending: Vec::new(), reader })
    }

    /// Whether the peer closes within this time without sending a further byte.
    pub(crate) fn closes_within(&mut self, limit: Duration) -> bool {
        self.reader.get_ref().set_read_timeout(Some(limit)).expect("the limit is not zero");
        let read = self.reader.read(&mut [0; 1]);
        self.reader.get_ref().set_read_timeout(Some(PATIENCE)).expect("the limit is not zero");
        match read {
            Ok(n) => n == 0,
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

// === impl Streaming ===

impl Streaming<'_> {
    /// The next piece of the body as it came, or `None` at its proper end.
    #[track_caller]
    pub(crate) fn piece(&mut self) -> Option<Vec<u8>> {
        self.framing.piece(self.reader).unwrap_or_else(|error| panic!("the body broke off: {error}"))
    }

    /// The next event, or comment standing alone, or `None` at the proper end of the stream.
    #[track_caller]
    pub(crate) fn event(&mut self) -> Option<Event> {
        loop {
            if let Some((end, length)) = event_end(&self.pending) {
                let block: Vec<u8> = self.pending.drain(..end + length).collect();
                return Some(Event::parse(&block[..end]));
            }
            match self.piece() {
                Some(piece) => self.pending.extend_from_slice(&piece),
                None => {
                    let left = String::from_utf8_lossy(&self.pending);
                    assert!(left.is_empty(), "the stream ended in the middle of an event: {left:?}");
                    return None;
                }
            }
        }
    }

    /// The next event that carries data.
    #[track_caller]
    pub(crate) fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.event()?;
            if !event.data.is_empty() {
                return Some(event.json());
            }
        }
    }
}

/// Where the first blank line stands, and how long it is.
fn event_end(bytes: &[u8]) -> Option<(usize, usize)> {
    let find = |end: &[u8]| bytes.windows(end.len()).position(|window| window == end).map(|at| (at, end.len()));
    [find(b"\n\n"), find(b"\r\n\r\n")].into_iter().flatten().min()
}

// === impl Response ===

impl Response {
    /// The first field of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}: {}", self.text()))
    }

    /// Whether it is an event stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|value| value.starts_with("text/event-stream"))
    }

    /// The events of its body.
    #[track_caller]
    pub(crate) fn events(&self) -> Vec<Event> {
        let (mut rest, mut events) = (self.body.as_slice(), Vec::new());
        while let Some((end, length)) = event_end(rest) {
            events.push(Event::parse(&rest[..end]));
            rest = &rest[end + length..];
        }
        assert!(rest.is_empty(), "the stream ended in the middle of an event: {:?}", String::from_utf8_lossy(rest));
        events
    }
}

// === impl Event ===

impl Event {
    /// The lines of one.
    pub(crate) fn parse(block: &[u8]) -> Event {
        let mut event =
            Event { event: String::new(), id: None, data: String::new(), comments: Vec::new(), at: Instant::now() };
        let mut data = Vec::new();
        for line in String::from_utf8_lossy(block).lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" => event.comments.push(value.to_owned()),
                "event" => value.clone_into(&mut event.event),
                "id" => event.id = Some(value.to_owned()),
                "data" => data.push(value.to_owned()),
                _ => {}
            }
        }
        event.data = data.join("\n");
        event
    }

    /// Its data as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {:?}", self.data))
    }
}
