//! The log as its callers and its readers see it, on a disk that fails when told to.

mod checkpoints;
mod keeping;
mod trials;
mod verifying;
mod writing;

use super::segment::Faults;
use super::*;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use tempfile::TempDir;

/// A data directory and the settings of the gateway that lives in it.
pub(super) struct House {
    pub(super) data_dir: TempDir,
    pub(super) settings: Settings,
}

impl House {
    pub(super) fn new() -> House {
        let data_dir = tempfile::tempdir().expect("a directory");
        let clock = Clock::manual(1_800_000_000_000);
        let settings = Settings::new(data_dir.path(), [7; 32], Sync::Strict, clock);
        House { data_dir, settings }
    }

    pub(super) fn open(&self) -> Audit {
        Audit::open(self.settings.clone()).expect("the log opens")
    }

    fn faults(&self) -> &Faults {
        &self.settings.faults
    }

    fn directory(&self) -> Directory {
        Directory::new(&self.settings.directory)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.settings.directory.join(name)
    }

    pub(super) fn segments(&self) -> Vec<String> {
        self.directory().segments().expect("a readable directory")
    }

    pub(super) fn text(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).expect("a readable segment")
    }

    /// All lines of all segments, which must be whole and JSON.
    #[track_caller]
    fn records(&self) -> Vec<serde_json::Value> {
        let text: Vec<u8> = self.segments().iter().flat_map(|name| self.text(name)).collect();
        assert!(text.ends_with(b"\n"), "the log ends within a line");
        let lines = text.split_inclusive(|b| *b == b'\n');
        lines.map(|line| serde_json::from_slice(line).expect("a line is JSON")).collect()
    }

    fn events(&self) -> Vec<String> {
        let event = |record: &serde_json::Value| record["event"].as_str().expect("a word").to_owned();
        self.records().iter().map(event).collect()
    }

    fn verify(&self) -> Report {
        verify(&self.directory(), &self.against()).expect("a readable log")
    }

    pub(super) fn clock(&self) -> Clock {
        self.settings.clock.clone()
    }

    /// What a sink reads, as if the process had begun with this file.
    pub(super) fn log(&self, begun_with: &str) -> sinks::Log {
        sinks::Log {
            directory: self.directory(),
            checkpoints: self.settings.checkpoints.clone(),
            begun_with: begun_with.into(),
            checkpoints_from: 0,
            grown: tokio::sync::watch::channel(0).1,
        }
    }

    /// Waits until `is_so`, in real time.
    pub(super) async fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..3000 {
            if is_so() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{what}: not within 30 s");
    }

    /// What can be found without checkpoints: all there is after a crash before the first.
    #[track_caller]
    fn assert_chained(&self) -> Report {
        let report = self.verify_alone();
        assert_eq!(report.fault, None);
        report
    }

    fn verify_alone(&self) -> Report {
        verify(&self.directory(), &Against::default()).expect("a readable log")
    }

    /// Its own checkpoints, and the key that signs them.
    fn against(&self) -> Against<'static> {
        let keys = vec![Signer::new(&self.settings.key).public().clone()];
        let path = self.settings.checkpoints.clone();
        Against { from: None, checkpoints: Some(CheckpointFile { path, keys }) }
    }

    #[track_caller]
    fn assert_sound(&self) -> Report {
        let report = self.verify();
        assert_eq!(report.fault, None);
        report
    }

    /// Each entry a process that wrote that many decisions, one after the other.
    async fn lived(processes: &[usize]) -> House {
        let house = House::new();
        for n in processes {
            let audit = house.open();
            for i in 0..*n {
                record(&audit, &format!("tool-{i}")).await.expect("written");
            }
        }
        house
    }
}

fn decision(object: &str) -> Event<'_> {
    Event { object: Some(object), decision: Some(Decision::Allowed), ..Event::new(Kind::Decision) }
}

fn result(object: &str) -> Event<'_> {
    Event { object: Some(object), outcome: Some("completed"), ..Event::new(Kind::Result) }
}

pub(super) async fn record(audit: &Audit, object: &str) -> Result<u64, Unavailable> {
    audit.record(decision(object), Durability::Synced).await
}

/// Waits until `is_so`, in real time, because the writer lives outside the runtime.
#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{what}: not within 5 s");
}
