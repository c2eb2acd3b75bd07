//! The log as its callers and its readers see it, on a disk that fails when told to.

mod verifying;
mod writing;

use super::segment::Faults;
use super::*;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use tempfile::TempDir;

/// A data directory and the settings of the gateway that lives in it.
struct House {
    data_dir: TempDir,
    settings: Settings,
}

impl House {
    fn new() -> House {
        let data_dir = tempfile::tempdir().expect("a directory");
        let clock = Clock::manual(1_800_000_000_000);
        let settings = Settings::new(data_dir.path(), [7; 32], Sync::Strict, clock);
        House { data_dir, settings }
    }

    fn open(&self) -> Audit {
        Audit::open(self.settings.clone()).expect("the log opens")
    }

    fn faults(&self) -> &Faults {
        &self.settings.faults
    }

    fn directory(&self) -> Directory {
        Directory::new(&self.settings.directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.settings.directory.join(name)
    }

    fn segments(&self) -> Vec<String> {
        self.directory().segments().expect("a readable directory")
    }

    fn text(&self, name: &str) -> Vec<u8> {
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
        verify(&self.directory(), None).expect("a readable log")
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

async fn record(audit: &Audit, object: &str) -> Result<u64, Unavailable> {
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
