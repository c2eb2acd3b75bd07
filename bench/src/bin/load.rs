//! The loader: one thread, many connections, a fresh JSON-RPC id for every request, and a look at every answer.
//!
//! `bench-load --target ADDRESS --path /mcp/up --payload 1k --connections 64 [--seconds 3 | --requests 1000]`
//! `[--rate 1000] [--token T] [--era legacy] [--warm-up 500]`
//!
//! It connects, warms up, says `ready`, waits for a line, works, and prints what it saw as one line of JSON.
//! With `--rate` the loop is open: a request is due when it is due, whatever became of those before it, and its latency
//! counts from then; a slow answer cannot hide the ones that it kept waiting (coordinated omission).
//! With `--payload idle` it opens streams that stay open, says how many, and after another line how many broke.

#[path = "load/connection.rs"]
mod connection;
#[path = "load/idle.rs"]
mod idle;
#[path = "load/request.rs"]
mod request;
#[path = "load/sums.rs"]
mod sums;

use bench::arguments::Arguments;
use bench::payload::{Era, FIRST_ID, Payload};
use connection::{Connection, Step};
use mio::{Events, Poll, Token};
use request::Template;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use sums::Sums;

struct Settings {
    target: SocketAddr,
    connections: usize,
    warm_up: u64,
    seconds: f64,
    requests: u64,
    rate: Option<f64>,
}

fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments::read()?;
    let needed = |name: &str| anyhow::anyhow!("--{name} is needed");
    let target: SocketAddr = arguments.take("target")?.ok_or_else(|| needed("target"))?;
    let path: String = arguments.take("path")?.unwrap_or_else(|| "/mcp".to_owned());
    let token: Option<String> = arguments.take("token")?;
    let name: String = arguments.take("payload")?.ok_or_else(|| needed("payload"))?;
    let payload = Payload::named(&name).ok_or_else(|| anyhow::anyhow!("there is no payload `{name}`"))?;
    let era = match arguments.take::<String>("era")?.as_deref() {
        Some("legacy") => Era::Legacy,
        _ => Era::Modern,
    };
    let settings = Settings {
        target,
        connections: arguments.take("connections")?.unwrap_or(64),
        warm_up: arguments.take("warm-up")?.unwrap_or(500),
        seconds: arguments.take("seconds")?.unwrap_or(f64::INFINITY),
        requests: arguments.take("requests")?.unwrap_or(u64::MAX),
        rate: arguments.take("rate")?,
    };
    arguments.end()?;
    let template = Template::new(target, &path, token.as_deref(), era, &payload)?;
    if name == "idle" { idle::run(&settings, &template) } else { Load::new(settings, template)?.run() }
}

struct Load {
    settings: Settings,
    template: Template,
    poll: Poll,
    connections: Vec<Connection>,
    /// Connections that wait for work, the one that waits longest last.
    free: Vec<usize>,
    next_id: u64,
    sums: Sums,
    /// What is read lands here first.
    piece: Box<[u8]>,
}

/// When a phase ends, and how fast it may go.
struct Phase {
    until: Instant,
    requests: u64,
    rate: Option<f64>,
}

/// Where in its phase the loader is.
struct Progress {
    began: Instant,
    issued: u64,
    ended: u64,
}

// === impl Load ===

impl Load {
    fn new(settings: Settings, template: Template) -> anyhow::Result<Load> {
        let poll = Poll::new()?;
        let connect = |at| Connection::open(settings.target, Token(at), poll.registry());
        let connections: Vec<_> = (0..settings.connections).map(connect).collect::<Result<_, _>>()?;
        let free = (0..connections.len()).rev().collect();
        Ok(Load {
            settings,
            template,
            poll,
            connections,
            free,
            next_id: FIRST_ID,
            sums: Sums::default(),
            piece: vec![0; PIECE].into(),
        })
    }

    fn run(mut self) -> anyhow::Result<()> {
        let far = Duration::from_secs(24 * 3600);
        let warm_up = Phase { until: Instant::now() + far, requests: self.settings.warm_up, rate: None };
        self.phase(&warm_up)?;
        if self.sums.ok == 0 && warm_up.requests > 0 {
            anyhow::bail!("not one call of the warm-up succeeded: {:?}", self.sums.first_fault);
        }
        self.sums = Sums::default();
        turn("ready")?;
        let length = Duration::try_from_secs_f64(self.settings.seconds).unwrap_or(far);
        let phase =
            Phase { until: Instant::now() + length, requests: self.settings.requests, rate: self.settings.rate };
        let began = Instant::now();
        self.phase(&phase)?;
        let took = began.elapsed();
        println!("{}", serde_json::to_string(&self.sums.report(took))?);
        Ok(())
    }

    /// Issues requests until the phase's end, and waits for the answers.
    fn phase(&mut self, phase: &Phase) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut progress = Progress { began: Instant::now(), issued: 0, ended: 0 };
        loop {
            let now = Instant::now();
            let is_over = now >= phase.until || progress.issued >= phase.requests;
            if !is_over {
                self.issue(phase, &mut progress, now)?;
            } else if progress.ended == progress.issued {
                return Ok(());
            } else if now > phase.until + PATIENCE {
                self.sums.unanswered += progress.issued - progress.ended;
                return Ok(());
            }
            let wait = phase.wait(&progress, self.free.is_empty(), is_over);
            match self.poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                self.advance(event.token().0, &mut progress)?;
            }
        }
    }

    /// Sends what is due on connections that are free.
    fn issue(&mut self, phase: &Phase, progress: &mut Progress, now: Instant) -> anyhow::Result<()> {
        while progress.issued < phase.requests {
            let due = phase.due(progress, now);
            if due > now {
                return Ok(());
            }
            let Some(at) = self.free.pop() else { return Ok(()) };
            progress.issued += 1;
            self.connections[at].begin(&self.template, self.next_id, due);
            self.next_id += 1;
            self.advance(at, progress)?;
        }
        Ok(())
    }

    fn advance(&mut self, at: usize, progress: &mut Progress) -> anyhow::Result<()> {
        match self.connections[at].advance(&self.template, &mut self.piece) {
            Step::Waiting => return Ok(()),
            Step::Done(done) => self.sums.add(&done),
            Step::Broken(fault) => {
                self.sums.broken(fault);
                self.connections[at] = Connection::open(self.settings.target, Token(at), self.poll.registry())?;
            }
        }
        progress.ended += 1;
        self.free.push(at);
        Ok(())
    }
}

// === impl Phase ===

impl Phase {
    /// When the next request is due; in a closed loop, now.
    fn due(&self, progress: &Progress, now: Instant) -> Instant {
        let Some(rate) = self.rate else { return now };
        progress.began + Duration::from_secs_f64(progress.issued as f64 / rate)
    }

    /// How long the loader may sleep. Timers have a grain of a millisecond, so the last one before a request is spent
    /// awake.
    fn wait(&self, progress: &Progress, is_busy: bool, is_over: bool) -> Duration {
        let now = Instant::now();
        if is_busy || is_over {
            return Duration::from_millis(10);
        }
        let left = self.due(progress, now).saturating_duration_since(now);
        if self.rate.is_some() {
            left.saturating_sub(Duration::from_millis(2)).min(Duration::from_millis(10))
        } else {
            Duration::ZERO
        }
    }
}

/// Says `word` to whoever drives this, and waits for their line.
fn turn(word: &str) -> anyhow::Result<()> {
    println!("{word}");
    std::io::stdout().flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// Bytes read at once.
const PIECE: usize = 64 * 1024;
/// Answers are waited for this long after the phase's end.
const PATIENCE: Duration = Duration::from_secs(60);
