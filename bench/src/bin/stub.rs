//! An MCP server that costs as little as it can: one thread, no JSON parser, answers ready before they are asked for.
//!
//! `bench-stub [--h2 yes]` listens on a free port of 127.0.0.1 and says `ready ADDRESS`. Tools: `echo` (gives `payload`
//! back), `take` (about 1 KiB), `burst` and `paced` (events, then an answer), `idle` (one event, then nothing).
//! It speaks both eras, and believes what it is told: who calls it, the loader and the gateway, is known.

#[path = "stub/answers.rs"]
mod answers;
#[path = "stub/h2c.rs"]
mod h2c;

use answers::{Answer, Answers};
use bench::arguments::Arguments;
use bench::http;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

const LISTENER: Token = Token(usize::MAX);

fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments::read()?;
    let is_h2 = arguments.take::<String>("h2")?.is_some();
    arguments.end()?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("ready {}", listener.local_addr()?);
    if is_h2 { h2c::run(listener) } else { Stub::new(TcpListener::from_std(listener))?.run() }
}

struct Stub {
    poll: Poll,
    listener: TcpListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// When which connection gets its next paced event.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    answers: Answers,
    /// What is read lands here first.
    piece: Box<[u8]>,
}

struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    written: usize,
    paced: Option<Paced>,
}

/// A stream that gets one event at a time.
struct Paced {
    next: Instant,
    every: Duration,
    sent: usize,
    events: usize,
    id: Vec<u8>,
}

// === impl Stub ===

impl Stub {
    fn new(mut listener: TcpListener) -> anyhow::Result<Stub> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let answers = Answers::new();
        let piece = vec![0; 64 * 1024].into();
        Ok(Stub { poll, listener, connections: Vec::new(), free: Vec::new(), due: BinaryHeap::new(), answers, piece })
    }

    fn run(mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        loop {
            let until = self.due.peek().map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()));
            match self.poll.poll(&mut events, until) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(at) => self.serve(at),
                }
            }
            self.pace();
        }
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            socket.set_nodelay(true)?;
            let at = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut socket, Token(at), both)?;
            self.connections[at] = Some(Connection::new(socket));
        }
    }

    fn serve(&mut self, at: usize) {
        let Some(connection) = &mut self.connections[at] else { return };
        let was_paced = connection.paced.is_some();
        if connection.serve(&self.answers, &mut self.piece).is_err() {
            self.connections[at] = None;
            self.free.push(at);
        } else if let Some(paced) = connection.paced.as_ref().filter(|_| !was_paced) {
            self.due.push(Reverse((paced.next, at)));
        }
    }

    fn pace(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((due, at))) = self.due.peek().copied().filter(|Reverse((due, _))| *due <= now) {
            self.due.pop();
            let Some(connection) = &mut self.connections[at] else { continue };
            // The place may have been taken by another connection meanwhile.
            if connection.paced.as_ref().is_none_or(|paced| paced.next != due) {
                continue;
            }
            if connection.step(&self.answers).is_err() {
                self.connections[at] = None;
                self.free.push(at);
            } else if let Some(paced) = &connection.paced {
                self.due.push(Reverse((paced.next, at)));
            }
        }
    }
}

// === impl Connection ===

impl Connection {
    fn new(socket: TcpStream) -> Connection {
        Connection { socket, input: Vec::with_capacity(4096), output: Vec::new(), written: 0, paced: None }
    }

    /// Reads what came, answers every whole request, writes what fits. An error is the connection's end.
    fn serve(&mut self, answers: &Answers, piece: &mut [u8]) -> io::Result<()> {
        self.read(piece)?;
        let mut done = 0;
        while let Some((head, body, end)) = request(&self.input[done..])? {
            let (head, body) = (&self.input[done..][..head], &self.input[done..][body..end]);
            done += end;
            if let Answer::Paced { every, events, id } = answers.answer(head, body, &mut self.output) {
                self.paced = Some(Paced { next: Instant::now() + every, every, sent: 0, events, id });
            }
        }
        self.input.drain(..done);
        self.flush()
    }

    fn step(&mut self, answers: &Answers) -> io::Result<()> {
        let Some(paced) = &mut self.paced else { return Ok(()) };
        answers.event(paced.sent, &mut self.output);
        paced.sent += 1;
        paced.next += paced.every;
        if paced.sent == paced.events {
            answers.end_stream(&paced.id, &mut self.output);
            self.paced = None;
        }
        self.flush()
    }

    fn read(&mut self, piece: &mut [u8]) -> io::Result<()> {
        loop {
            match self.socket.read(piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.input.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.socket.write(&self.output[self.written..]) {
                Ok(n) => self.written += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }
}

/// The next whole request: the lengths of its head, and where its body begins and ends.
fn request(input: &[u8]) -> io::Result<Option<(usize, usize, usize)>> {
    let Some(head) = http::head_end(input) else { return Ok(None) };
    let length = http::header(&input[..head], "content-length");
    let length: usize = length.unwrap_or("0").parse().map_err(|_| ErrorKind::InvalidData)?;
    Ok((input.len() >= head + length).then_some((head, head, head + length)))
}
