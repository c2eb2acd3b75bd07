//! One connection of the loader: a request goes out, its answer comes in and is looked at, again and again.

use crate::request::Template;
use bench::http::{self, Chunked};
use bench::payload::ID_DIGITS;
use memchr::memmem;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub(crate) struct Connection {
    socket: TcpStream,
    request: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    body: Vec<u8>,
    framing: Option<Framing>,
    id: u64,
    due: Instant,
    sent: Instant,
    /// From `due`.
    first_event: Option<Duration>,
    status: u16,
    is_busy: bool,
}

enum Framing {
    Length(usize),
    Chunked(Chunked),
}

/// What came of an attempt to go on.
pub(crate) enum Step {
    /// The socket has nothing more to give or take now.
    Waiting,
    /// The answer is complete.
    Done(Done),
    /// The connection is of no more use.
    Broken(String),
}

/// One request and its answer.
pub(crate) struct Done {
    /// From when it was due to the end of its answer.
    pub(crate) latency: Duration,
    /// From when it was really sent.
    pub(crate) service: Duration,
    /// From when it was due to its first event, where it had any.
    pub(crate) first_event: Option<Duration>,
    pub(crate) status: u16,
    /// What is wrong with the answer.
    pub(crate) fault: Option<String>,
}

impl Connection {
    pub(crate) fn open(target: SocketAddr, token: Token, registry: &Registry) -> anyhow::Result<Connection> {
        let socket = std::net::TcpStream::connect(target)?;
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let mut socket = TcpStream::from_std(socket);
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let now = Instant::now();
        Ok(Connection {
            socket,
            request: Vec::new(),
            written: 0,
            input: Vec::new(),
            body: Vec::new(),
            framing: None,
            id: 0,
            due: now,
            sent: now,
            first_event: None,
            status: 0,
            is_busy: false,
        })
    }

    /// Makes a request ready; [`Connection::advance`] sends it.
    pub(crate) fn begin(&mut self, template: &Template, id: u64, due: Instant) {
        template.fill(id, &mut self.request);
        (self.id, self.due, self.sent) = (id, due, Instant::now());
        (self.written, self.first_event, self.status, self.framing) = (0, None, 0, None);
        self.input.clear();
        self.body.clear();
        self.is_busy = true;
    }

    /// The first event of the answer is there.
    pub(crate) fn has_event(&self) -> bool {
        self.first_event.is_some()
    }

    /// Writes and reads as far as the socket lets it; what is read lands in `piece` first.
    pub(crate) fn advance(&mut self, template: &Template, piece: &mut [u8]) -> Step {
        if !self.is_busy {
            return Step::Waiting;
        }
        while self.written < self.request.len() {
            match self.socket.write(&self.request[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Step::Broken(format!("writing: {error}")),
            }
        }
        loop {
            match self.socket.read(piece) {
                Ok(0) => return Step::Broken(format!("closed, having sent {} bytes", self.input.len())),
                Ok(n) => match self.take(&piece[..n]) {
                    Ok(true) => {
                        self.is_busy = false;
                        return Step::Done(self.done(template));
                    }
                    Ok(false) => {}
                    Err(fault) => return Step::Broken(fault),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Step::Waiting,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Step::Broken(format!("reading: {error}")),
            }
        }
    }

    /// Takes a piece of the answer; whether it was the last.
    fn take(&mut self, piece: &[u8]) -> Result<bool, String> {
        if self.framing.is_none() {
            self.input.extend_from_slice(piece);
            let Some(end) = http::head_end(&self.input) else { return Ok(false) };
            let head = &self.input[..end];
            self.status = http::status(head).ok_or("no status")?;
            let length = http::header(head, "content-length").and_then(|length| length.parse().ok());
            self.framing = Some(length.map_or_else(|| Framing::Chunked(Chunked::default()), Framing::Length));
            let rest = self.input.split_off(end);
            return self.body(&rest);
        }
        self.body(piece)
    }

    fn body(&mut self, piece: &[u8]) -> Result<bool, String> {
        match &mut self.framing {
            Some(Framing::Length(length)) => {
                self.body.extend_from_slice(piece);
                Ok(self.body.len() >= *length)
            }
            Some(Framing::Chunked(chunked)) => {
                let is_end = chunked.push(piece, &mut self.body).ok_or("not chunked as it should be")?;
                if self.first_event.is_none() && memmem::find(&self.body, b"data:").is_some() {
                    self.first_event = Some(self.due.elapsed());
                }
                Ok(is_end)
            }
            None => Ok(false),
        }
    }

    fn done(&self, template: &Template) -> Done {
        Done {
            latency: self.due.elapsed(),
            service: self.sent.elapsed(),
            first_event: self.first_event,
            status: self.status,
            fault: self.fault(template),
        }
    }

    /// The answer must be a success, carry this request's id, and have brought every event.
    fn fault(&self, template: &Template) -> Option<String> {
        let text = || String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
        if self.status != 200 {
            return Some(format!("status {}: {}", self.status, text()));
        }
        let key = b"\"id\":";
        let id = self.id.to_string();
        let mut ids = memmem::find_iter(&self.body, key).map(|at| &self.body[at + key.len()..]);
        let has_id =
            ids.any(|rest| rest.starts_with(id.as_bytes()) && matches!(rest.get(ID_DIGITS), Some(b',' | b'}')));
        if !has_id || memmem::find(&self.body, b"\"isError\":true").is_some() {
            return Some(format!("not the answer to {id}: {}", text()));
        }
        let events = memmem::find_iter(&self.body, b"data:").count();
        if template.events > 0 && events != template.events + 1 {
            return Some(format!("{events} events instead of {}", template.events + 1));
        }
        None
    }
}
