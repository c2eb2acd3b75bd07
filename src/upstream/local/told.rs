//! What the audit log is told of a process: each change of its state, however often it is started again.

use crate::audit::{Audit, Event, Kind};

/// So many reasons are told until it runs again: one that ends for ever in new ways does not fill the log.
const REASONS_MAX: usize = 4;

/// What was told so far.
pub(super) struct Told {
    /// `None` for a command beside the gateway, which writes no log.
    audit: Option<Audit>,
    upstream: String,
    is_up: bool,
    /// Why it does not run, as was told since it last did.
    reasons: Vec<String>,
}

impl Told {
    pub(super) fn new(audit: Option<Audit>, upstream: &str) -> Told {
        Told { audit, upstream: upstream.to_owned(), is_up: false, reasons: Vec::new() }
    }

    /// It answers.
    pub(super) fn up(&mut self) {
        if !self.is_up {
            self.tell(Kind::UpstreamUp, None);
        }
        self.is_up = true;
        self.reasons.clear();
    }

    /// It does not run, for this reason. Another reason than those before is news as well: first a process has ended, then it
    /// says why it cannot begin.
    pub(super) fn down(&mut self, why: &str) {
        self.is_up = false;
        if self.reasons.len() < REASONS_MAX && !self.reasons.iter().any(|told| told == why) {
            self.reasons.push(why.to_owned());
            self.tell(Kind::UpstreamDown, Some(why));
        }
    }

    fn tell(&self, kind: Kind, detail: Option<&str>) {
        if let Some(audit) = &self.audit {
            audit.record_later(Event { upstream: Some(&self.upstream), detail, ..Event::new(kind) });
        }
    }
}
