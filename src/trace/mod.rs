//! Where a request stands in a trace: what its client says (W3C Trace Context), what its upstream is told, and the spans of
//! its stages on their way to a collector.
//!
//! `context` reads and writes the header; `request` keeps the stages of one request while it runs; [`Tracer`] is the one
//! gate that spans leave by, where every text in them is shortened and redacted. With no `traces` in the configuration
//! there is no [`Trace`] behind an exchange: nothing is allocated, and trace context passes through as it came.
//! What a span is called and says of MCP is `proxy`'s matter.

mod collector;
mod context;
mod request;

pub use collector::{Tracing, collector};
pub use context::{Context, TraceState};
pub use request::{About, Aside, Fault, Onward, Stage, Trace};

use crate::clock::Clock;
use crate::otlp::{AnyValue, Exporter, KeyValue, Span, Value};
use crate::redact::Redactor;

/// Longer texts are cut, in characters: a span is no place for a document.
const LONGEST_TEXT: usize = 256;
/// Strangers may fill the queue up to here; the rest is for those who have shown who they are.
const ROOM_FOR_STRANGERS: usize = 2_048;

/// The gate that spans leave by. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Tracer {
    exporter: Exporter,
    redactor: Redactor,
    clock: Clock,
}

impl Tracer {
    /// One that hands spans to `exporter`.
    pub fn new(exporter: Exporter, redactor: Redactor, clock: Clock) -> Tracer {
        Tracer { exporter, redactor, clock }
    }

    /// The queue behind it.
    pub fn exporter(&self) -> &Exporter {
        &self.exporter
    }

    /// Lets the spans of one request go. `is_known`: somebody has shown who they are; for strangers there is less room.
    fn export(&self, mut spans: Vec<Span>, is_known: bool) {
        if !is_known && self.exporter.n_waiting() >= ROOM_FOR_STRANGERS {
            return self.exporter.drop_all(spans.len());
        }
        for span in &mut spans {
            self.clean(&mut span.name);
            self.clean(&mut span.trace_state);
            let of_links = span.links.iter_mut().flat_map(|link| &mut link.attributes);
            span.attributes.iter_mut().chain(of_links).for_each(|attribute| self.clean_attribute(attribute));
            span.status.iter_mut().for_each(|status| self.clean(&mut status.message));
        }
        self.exporter.take(spans);
    }

    fn clean_attribute(&self, attribute: &mut KeyValue) {
        let values = match attribute.value.as_mut().and_then(|value| value.value.as_mut()) {
            Some(Value::String(text)) => return self.clean(text),
            Some(Value::Array(array)) => &mut array.values,
            _ => return,
        };
        for value in values {
            if let AnyValue { value: Some(Value::String(text)) } = value {
                self.clean(text);
            }
        }
    }

    /// Redacted first: a cut could take from a secret what it is known by.
    fn clean(&self, text: &mut String) {
        if let std::borrow::Cow::Owned(redacted) = self.redactor.text(text) {
            *text = redacted;
        }
        if let Some((at, _)) = text.char_indices().nth(LONGEST_TEXT) {
            text.truncate(at);
            text.push('…');
        }
    }
}
