//! Streams that stay open and say nothing: what each costs in memory is read from outside meanwhile.

use crate::connection::{Connection, Step};
use crate::request::Template;
use crate::{PIECE, Settings, turn};
use bench::payload::FIRST_ID;
use mio::{Events, Poll, Token};
use std::time::{Duration, Instant};

/// Streams that are being opened at the same time.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(settings: &Settings, template: &Template) -> anyhow::Result<()> {
    turn("ready")?;
    let mut streams = Streams {
        poll: Poll::new()?,
        open: Vec::new(),
        has_event: Vec::new(),
        n_ready: 0,
        broken: 0,
        piece: vec![0; PIECE].into(),
    };
    let began = Instant::now();
    while streams.n_ready < settings.connections {
        anyhow::ensure!(began.elapsed() < PATIENCE, "only {} streams opened in time", streams.n_ready);
        while streams.open.len() < settings.connections && streams.open.len() - streams.n_ready < AT_ONCE {
            streams.begin(settings, template)?;
        }
        streams.wait(template, Duration::from_millis(100))?;
        anyhow::ensure!(streams.broken == 0, "a stream broke while others were opened");
    }
    turn(&format!(r#"{{"open":{},"seconds":{}}}"#, streams.n_ready, began.elapsed().as_secs_f64()))?;
    streams.wait(template, Duration::ZERO)?;
    println!(r#"{{"broken":{}}}"#, streams.broken);
    Ok(())
}

struct Streams {
    poll: Poll,
    open: Vec<Connection>,
    has_event: Vec<bool>,
    n_ready: usize,
    broken: usize,
    piece: Box<[u8]>,
}

impl Streams {
    fn begin(&mut self, settings: &Settings, template: &Template) -> anyhow::Result<()> {
        let at = self.open.len();
        let mut stream = Connection::open(settings.target, Token(at), self.poll.registry())?;
        stream.begin(template, FIRST_ID + at as u64, Instant::now());
        self.open.push(stream);
        self.has_event.push(false);
        self.advance(at, template);
        Ok(())
    }

    fn wait(&mut self, template: &Template, limit: Duration) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(16 * 1024);
        self.poll.poll(&mut events, Some(limit))?;
        let ready: Vec<usize> = events.iter().map(|event| event.token().0).collect();
        for at in ready {
            self.advance(at, template);
        }
        Ok(())
    }

    fn advance(&mut self, at: usize, template: &Template) {
        let why = match self.open[at].advance(template, &mut self.piece) {
            Step::Waiting => None,
            Step::Done(done) => Some(format!("it ended: {:?}", done.fault)),
            Step::Broken(fault) => Some(fault),
        };
        if let Some(why) = why {
            eprintln!("stream {at} of {}: {why}", self.open.len());
            self.broken += 1;
        }
        if !self.has_event[at] && self.open[at].has_event() {
            self.has_event[at] = true;
            self.n_ready += 1;
        }
    }
}
