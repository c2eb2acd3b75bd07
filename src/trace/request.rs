//! The stages of one request, noted while it runs, and the spans that become of them at its end.
//!
//! Off, all of this is one empty pointer. On, a stage costs two looks at the clock; spans are built only where the trace is
//! sampled, and only at the end, when it is known to which trace the request belongs: a message's own `_meta` comes late.

use super::context::{Context, TraceState, hex};
use super::{Tracer, Tracing};
use crate::otlp::{KeyValue, Link, Span, SpanKind, Status, StatusCode};
use http::HeaderMap;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;

/// What a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the token to who asks.
    Authenticate,
    /// From the first byte of the body to a message that is understood.
    Receive,
    /// What policy says.
    Decide,
    /// Until the decision is written down.
    Record,
    /// Until a person has decided, or its caller stops waiting.
    Hold,
    /// From the request to the upstream to the end of its answer. The upstream is told this span.
    Forward,
}

/// Where one request stands in its trace, and what it has been through. `None` inside: traces are off.
#[derive(Debug, Default)]
pub struct Trace(Option<Box<Active>>);

#[derive(Debug)]
struct Active {
    began: Instant,
    began_unix_nanos: u64,
    /// The span at the client that this request is of.
    parent: Option<Parent>,
    /// What the HTTP header said, where the message itself says otherwise.
    ambient: Option<Context>,
    state: Option<TraceState>,
    trace: [u8; 16],
    /// The same in hexadecimal, for records.
    name: String,
    flags: u8,
    /// Span ids count up from here: random once a request.
    first_span: u64,
    n_spans: u64,
    stages: Vec<Passed>,
    notes: Vec<KeyValue>,
    fault: OnceLock<Fault>,
    /// The request that this message came in, with others.
    batch: Option<Box<Active>>,
}

/// The span that another one is part of.
#[derive(Clone, Copy, Debug)]
struct Parent {
    span: [u8; 8],
    is_remote: bool,
}

/// A stage that was entered.
#[derive(Clone, Copy, Debug)]
struct Passed {
    stage: Stage,
    span: [u8; 8],
    from: Instant,
    to: Option<Instant>,
}

/// What an upstream's answer says went wrong, where it came whole (OpenTelemetry, semantic conventions for MCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A tool's result with `isError`.
    Tool,
    /// A JSON-RPC error with this code.
    Rpc(i64),
}

/// What the upstream is told.
#[derive(Clone, Debug)]
pub struct Onward {
    /// Where its own span belongs.
    pub traceparent: String,
    /// The client's, if there was one.
    pub tracestate: Option<TraceState>,
}

/// What is known of a request at its end.
#[derive(Debug, Default)]
pub struct About {
    /// What its span is called: method, and target where that is one of few.
    pub name: String,
    /// What is said of the whole request.
    pub of_request: Vec<KeyValue>,
    /// What is said of what was sent to the upstream.
    pub of_forward: Vec<KeyValue>,
    /// Why we answered instead of the upstream, or how it was cut short: a stable code.
    pub error: Option<&'static str>,
    /// Whether somebody has shown who they are.
    pub is_known: bool,
}

/// A span that a task of its own keeps: the run of a held call, which outlives the request that let it run.
#[derive(Debug)]
pub struct Aside {
    context: Context,
    parent: Parent,
    state: Option<TraceState>,
    links: Vec<Link>,
    began: Instant,
    began_unix_nanos: u64,
}

// === impl Stage ===

impl Stage {
    /// What its span is called; that of `Forward` is called as the request is.
    fn as_str(self) -> &'static str {
        match self {
            Stage::Authenticate => "authenticate",
            Stage::Receive => "receive",
            Stage::Decide => "decide",
            Stage::Record => "record",
            Stage::Hold => "hold",
            Stage::Forward => "forward",
        }
    }
}

// === impl Trace ===

impl Trace {
    /// That of a request that began at `began`, with these headers.
    pub fn begin(tracer: &Tracer, tracing: &Tracing, headers: &HeaderMap, began: Instant) -> Trace {
        // One look at the system's generator a request.
        let random: [u8; 24] = crate::id::random_bytes();
        let (trace, first_span) = split(&random);
        let mut active = Active {
            began,
            began_unix_nanos: since(tracer.clock.unix_nanos(), began),
            parent: None,
            ambient: None,
            state: None,
            trace,
            name: String::new(),
            flags: Context::new_flags(tracing.samples(&trace)),
            first_span,
            n_spans: 1,
            stages: Vec::with_capacity(6),
            notes: Vec::new(),
            fault: OnceLock::new(),
            batch: None,
        };
        match Context::of(headers) {
            Some(context) => active.follow(context, TraceState::of(headers, "tracestate")),
            None => active.name = hex(&active.trace),
        }
        Trace(Some(Box::new(active)))
    }

    /// Whether anything is noted at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The trace it belongs to, in hexadecimal.
    pub fn id(&self) -> Option<&str> {
        self.0.as_ref().map(|active| active.name.as_str())
    }

    /// The next stage begins, and the one before has ended.
    pub fn enter(&mut self, stage: Stage) {
        if let Some(active) = &mut self.0 {
            let (span, now) = (active.next_span(), Instant::now());
            active.leave(now);
            active.stages.push(Passed { stage, span, from: now, to: None });
        }
    }

    /// What the message itself says in `_meta`. It is the MCP client's own word, while a header may be of the HTTP
    /// request around it (and around others, in a batch): where both are in form and differ, the message wins, and the
    /// header's span is linked to. A word that is not in form says nothing.
    pub fn told(&mut self, traceparent: Option<&str>, tracestate: Option<&str>) {
        let context = traceparent.and_then(|text| Context::parse(text.as_bytes()));
        if let (Some(active), Some(context)) = (&mut self.0, context) {
            let before = active.remote();
            if before == Some(context) {
                return;
            }
            active.ambient = before;
            active.follow(context, tracestate.and_then(TraceState::parse));
        }
    }

    /// Something to be said of the request, where it is sampled.
    pub fn note(&mut self, note: impl FnOnce() -> KeyValue) {
        if let Some(active) = &mut self.0
            && active.context().is_sampled()
        {
            active.notes.push(note());
        }
    }

    /// The upstream's answer has come, and says that something went wrong; the first such word counts.
    pub fn fault(&self, fault: impl FnOnce() -> Option<Fault>) {
        if let Some(active) = &self.0
            && let Some(fault) = fault()
        {
            let _ = active.fault.set(fault);
        }
    }

    /// What the upstream is told: the span of `Forward`, where that has been entered.
    pub fn onward(&self) -> Option<Onward> {
        let active = self.0.as_ref()?;
        let forward = active.stages.iter().rev().find(|passed| passed.stage == Stage::Forward);
        let span = forward.map_or(active.span(), |passed| passed.span);
        let context = Context { trace: active.trace, span, flags: active.flags };
        Some(Onward { traceparent: context.to_text(), tracestate: active.state.clone() })
    }

    /// This request as a `traceparent`, to be kept with what may run long after it.
    pub fn to_text(&self) -> Option<String> {
        self.0.as_ref().map(|active| active.context().to_text())
    }

    /// A span of this trace that a task of its own keeps; the stage that led to it has ended. `kept` is the request that asked for it, as [`Trace::to_text`]
    /// gave it: linked to, where that was another one.
    pub fn aside(&mut self, tracer: &Tracer, kept: Option<&str>) -> Option<Aside> {
        let active = self.0.as_mut()?;
        let (span, here) = (active.next_span(), active.context());
        active.leave(Instant::now());
        let asked = kept.and_then(|text| Context::parse(text.as_bytes()));
        let other = asked.filter(|asked| (asked.trace, asked.span) != (here.trace, here.span));
        Some(Aside {
            context: Context { span, ..here },
            parent: Parent { span: here.span, is_remote: false },
            state: active.state.clone(),
            links: other.map(|other| link(&other, "requester")).into_iter().collect(),
            began: Instant::now(),
            began_unix_nanos: tracer.clock.unix_nanos(),
        })
    }

    /// One message of several begins: a span of its own within that of the request.
    pub fn begin_message(&mut self) {
        let Some(mut batch) = self.0.take() else {
            return;
        };
        batch.leave(Instant::now());
        let first = batch.next_span();
        self.0 = Some(Box::new(Active {
            began: Instant::now(),
            began_unix_nanos: batch.at(Instant::now()),
            parent: Some(Parent { span: batch.span(), is_remote: false }),
            ambient: None,
            state: batch.state.clone(),
            trace: batch.trace,
            name: batch.name.clone(),
            flags: batch.flags,
            // Far from those of its neighbours.
            first_span: u64::from_be_bytes(first).wrapping_add(batch.n_spans << 32),
            n_spans: 1,
            stages: Vec::with_capacity(4),
            notes: Vec::new(),
            fault: OnceLock::new(),
            batch: Some(batch),
        }));
    }

    /// The request (or one message of several) is over: its spans go out, if its trace is sampled.
    pub fn end(&mut self, tracer: &Tracer, about: impl FnOnce() -> About) {
        let Some(mut active) = self.0.take() else {
            return;
        };
        self.0 = active.batch.take();
        if active.context().is_sampled() {
            let about = about();
            let is_known = about.is_known;
            tracer.export(active.spans(about, Instant::now()), is_known);
        }
    }
}

// === impl Active ===

impl Active {
    fn follow(&mut self, context: Context, state: Option<TraceState>) {
        self.parent = Some(Parent { span: context.span, is_remote: true });
        self.trace = context.trace;
        self.name = hex(&context.trace);
        self.flags = context.flags;
        self.state = state;
    }

    /// What a client said.
    fn remote(&self) -> Option<Context> {
        let parent = self.parent.filter(|parent| parent.is_remote)?;
        Some(Context { trace: self.trace, span: parent.span, flags: self.flags })
    }

    /// The span of the request itself.
    fn span(&self) -> [u8; 8] {
        numbered(self.first_span, 0)
    }

    fn context(&self) -> Context {
        Context { trace: self.trace, span: self.span(), flags: self.flags }
    }

    fn next_span(&mut self) -> [u8; 8] {
        let span = numbered(self.first_span, self.n_spans);
        self.n_spans += 1;
        span
    }

    fn leave(&mut self, now: Instant) {
        if let Some(last) = self.stages.last_mut() {
            last.to.get_or_insert(now);
        }
    }

    fn at(&self, instant: Instant) -> u64 {
        self.began_unix_nanos.saturating_add(nanos(instant.saturating_duration_since(self.began)))
    }

    fn spans(self, about: About, now: Instant) -> Vec<Span> {
        let mut spans = Vec::with_capacity(self.stages.len() + 1);
        let fault = self.fault.get().copied();
        let parent = Parent { span: self.span(), is_remote: false };
        for passed in &self.stages {
            let is_forward = passed.stage == Stage::Forward;
            let name = if is_forward { about.name.clone() } else { passed.stage.as_str().to_owned() };
            let kind = if is_forward { SpanKind::Client } else { SpanKind::Internal };
            let context = Context { span: passed.span, ..self.context() };
            let mut span = span(&context, Some(parent), self.state.as_ref(), name, kind);
            (span.start_time_unix_nano, span.end_time_unix_nano) =
                (self.at(passed.from), self.at(passed.to.unwrap_or(now)));
            if is_forward {
                span.attributes.clone_from(&about.of_forward);
            }
            // Where it was at its end is where it failed.
            let error = about.error.filter(|_| passed.to.is_none());
            fail(&mut span, error, fault.filter(|_| is_forward));
            spans.push(span);
        }
        let mut whole = span(&self.context(), self.parent, self.state.as_ref(), about.name, SpanKind::Server);
        (whole.start_time_unix_nano, whole.end_time_unix_nano) = (self.at(self.began), self.at(now));
        whole.attributes = about.of_request;
        whole.attributes.extend(self.notes);
        whole.links.extend(self.ambient.map(|ambient| link(&ambient, "http")));
        fail(&mut whole, about.error, fault);
        spans.push(whole);
        spans
    }
}

// === impl Aside ===

impl Aside {
    /// One of the trace that was kept with what runs now, while no request is there.
    pub fn resumed(tracer: &Tracer, kept: Option<&str>) -> Option<Aside> {
        let asked = Context::parse(kept?.as_bytes())?;
        Some(Aside {
            context: Context { span: numbered(u64::from_be_bytes(crate::id::random_bytes()), 0), ..asked },
            parent: Parent { span: asked.span, is_remote: false },
            state: None,
            links: Vec::new(),
            began: Instant::now(),
            began_unix_nanos: tracer.clock.unix_nanos(),
        })
    }

    /// What the upstream is told.
    pub fn onward(&self) -> Onward {
        Onward { traceparent: self.context.to_text(), tracestate: self.state.clone() }
    }

    /// It is over.
    pub fn end(
        self,
        tracer: &Tracer,
        name: String,
        attributes: Vec<KeyValue>,
        error: Option<&'static str>,
        fault: Option<Fault>,
    ) {
        if !self.context.is_sampled() {
            return;
        }
        let mut span = span(&self.context, Some(self.parent), self.state.as_ref(), name, SpanKind::Client);
        span.start_time_unix_nano = self.began_unix_nanos;
        span.end_time_unix_nano = self.began_unix_nanos.saturating_add(nanos(self.began.elapsed()));
        span.attributes = attributes;
        span.links = self.links;
        fail(&mut span, error, fault);
        tracer.export(vec![span], true);
    }
}

// === spans ===

/// Flags of OTLP beside those of W3C: it is known whether the parent is of another process; it is.
const KNOWN_PARENT: u32 = 0x100;
const REMOTE_PARENT: u32 = 0x200;

fn span(context: &Context, parent: Option<Parent>, state: Option<&TraceState>, name: String, kind: SpanKind) -> Span {
    let is_remote = parent.is_some_and(|parent| parent.is_remote);
    let state = state.and_then(|state| state.value().to_str().ok());
    Span {
        trace_id: context.trace.to_vec(),
        span_id: context.span.to_vec(),
        trace_state: state.unwrap_or_default().to_owned(),
        parent_span_id: parent.map(|parent| parent.span.to_vec()).unwrap_or_default(),
        name,
        kind: kind.into(),
        flags: u32::from(context.flags) | KNOWN_PARENT | if is_remote { REMOTE_PARENT } else { 0 },
        ..Span::default()
    }
}

fn link(to: &Context, what: &str) -> Link {
    Link {
        trace_id: to.trace.to_vec(),
        span_id: to.span.to_vec(),
        attributes: vec![KeyValue::text("portcullis.link", what)],
        flags: u32::from(to.flags),
    }
}

/// OpenTelemetry, "Recording errors": a span that failed says so in its status and in `error.type`.
fn fail(span: &mut Span, error: Option<&'static str>, fault: Option<Fault>) {
    let word = match (error, fault) {
        (Some(code), _) => code.to_owned(),
        (None, Some(Fault::Tool)) => "tool_error".to_owned(),
        (None, Some(Fault::Rpc(code))) => code.to_string(),
        (None, None) => return,
    };
    if let (None, Some(Fault::Rpc(code))) = (error, fault) {
        span.attributes.push(KeyValue::text("rpc.response.status_code", code.to_string()));
    }
    span.attributes.push(KeyValue::text("error.type", word));
    span.status = Some(Status { message: String::new(), code: StatusCode::Error.into() });
}

/// A trace id, which is never all zero, and the first span id.
fn split(random: &[u8; 24]) -> ([u8; 16], u64) {
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    trace.copy_from_slice(&random[..16]);
    span.copy_from_slice(&random[16..]);
    trace[0] = trace[0].max(u8::from(trace == [0; 16]));
    (trace, u64::from_be_bytes(span))
}

/// No span id is all zero.
fn numbered(first: u64, n: u64) -> [u8; 8] {
    let id = first.wrapping_add(n);
    if id == 0 { u64::MAX } else { id }.to_be_bytes()
}

/// When `began` was, if it is `now_unix_nanos` now.
fn since(now_unix_nanos: u64, began: Instant) -> u64 {
    now_unix_nanos.saturating_sub(nanos(began.elapsed()))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
