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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Settings;
    use crate::clock::Clock;
    use crate::config::Sync;

    #[test]
    fn each_change_is_told_once_and_an_upstream_that_ends_for_ever_fills_no_log() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let audit =
            Audit::open(Settings::new(folder.path(), [7; 32], Sync::Relaxed, Clock::manual(0))).expect("the log opens");
        let mut told = Told::new(Some(audit.clone()), "prod");

        told.up();
        told.up();
        for n in 0..100 {
            told.down("it ended");
            told.down(&format!("reason {n}"));
        }
        told.up();
        told.down("it ended");

        audit.close();
        let files = std::fs::read_dir(folder.path().join("audit")).expect("the log").flatten();
        let text: String = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
        let said = |record: &str| {
            let record: serde_json::Value = serde_json::from_str(record).expect("JSON");
            let event = record["event"].as_str()?.strip_prefix("upstream.")?.to_owned();
            assert_eq!(record["upstream"], "prod");
            Some(format!("{event} {}", record["detail"].as_str().unwrap_or_default()))
        };
        let said: Vec<String> = text.lines().filter_map(said).collect();
        let down = ["down it ended", "down reason 0", "down reason 1", "down reason 2"];
        assert_eq!(said, [&["up "], &down[..], &["up ", "down it ended"]].concat());
    }
}
