//! Other tools that rename, copy, cut or remove the log's files at 5,000 records a second, and clocks that are set: what was
//! recorded is there once, in order, and `audit verify` says what somebody did.

use portcullis::audit::{Against, Audit, Directory, Durability, Event, Kind, Settings, verify};
use portcullis::clock::Clock;
use portcullis::config::{self, ByteSize, Sync};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// What has to be kept up with: a record each 200 µs.
const PER_SECOND: usize = 5_000;

struct Log {
    data: TempDir,
    audit: Audit,
}

impl Log {
    fn open() -> Log {
        let data = TempDir::new().expect("a folder");
        let written =
            config::Audit { sync: Sync::Relaxed, file_size: ByteSize::kibibytes(256), ..config::Audit::default() };
        let settings = Settings::of(&written, data.path(), [7; 32], Clock::System);
        Log { audit: Audit::open(settings).expect("it opens"), data }
    }

    fn folder(&self) -> PathBuf {
        self.data.path().join("audit")
    }

    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder()).expect("it is there").flatten().map(|entry| entry.path());
        let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        files.sort();
        files
    }

    /// Records at that rate while `meddle` does its work; the names of all that were acknowledged, with the number each got.
    fn record_while(&self, meddle: impl FnOnce(&AtomicUsize)) -> BTreeMap<String, u64> {
        let (is_over, n) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (audit, over, count) = (self.audit.clone(), Arc::clone(&is_over), Arc::clone(&n));
        let recording = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let mut recorded = BTreeMap::new();
            let began = Instant::now();
            runtime.block_on(async {
                while !over.load(Ordering::SeqCst) {
                    // As many as are due by now, at once, as calls that arrive together.
                    let due = began.elapsed().as_millis() as usize * PER_SECOND / 1000;
                    let from = recorded.len();
                    let names: Vec<_> =
                        (from..due.max(from + 1).min(from + 500)).map(|n| format!("tool-{n}")).collect();
                    let all = names.iter().map(|name| async {
                        let event = Event { object: Some(name), ..Event::new(Kind::Decision) };
                        (name.clone(), audit.record(event, Durability::Written).await.expect("it is written"))
                    });
                    let mut pending: Vec<_> = all.map(Box::pin).collect();
                    for one in &mut pending {
                        let (name, seq) = one.await;
                        recorded.insert(name, seq);
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            recorded
        });
        meddle(&n);
        is_over.store(true, Ordering::SeqCst);
        recording.join().expect("it does not panic")
    }
}

/// Waits until so many more are recorded.
fn more(n: &AtomicUsize, more: usize) {
    let until = n.load(Ordering::SeqCst) + more;
    crate::support::wait_for("more records", || n.load(Ordering::SeqCst) >= until);
}

/// Each acknowledged record is in these files once.
#[track_caller]
fn assert_each_once(files: &[PathBuf], recorded: &BTreeMap<String, u64>) {
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for file in files {
        for line in fs::read_to_string(file).expect("ASCII").lines() {
            let record: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
            if let Some(name) = record["object"].as_str() {
                found.entry(name.to_owned()).or_default().push(record["seq"].as_u64().expect("a number"));
            }
        }
    }
    let wrong: Vec<_> = recorded.iter().filter(|(name, seq)| found.get(*name) != Some(&vec![**seq])).collect();
    assert!(wrong.is_empty(), "{} of {} lost or doubled, first {:?}", wrong.len(), recorded.len(), wrong.first());
    assert_eq!(found.len(), recorded.len());
}

fn check(folder: &Path) -> Option<String> {
    let report = verify(&Directory::new(folder), &Against::default()).expect("it can be read");
    report.fault.map(|fault| fault.to_string())
}

#[test]
fn files_that_are_renamed_under_load_lose_and_double_nothing_and_put_back_they_verify() {
    let log = Log::open();
    let moved = log.data.path().join("moved");
    fs::create_dir(&moved).expect("the folder is ours");

    let recorded = log.record_while(|n| {
        for _ in 0..8 {
            more(n, 500);
            let newest = log.segments().pop().expect("a segment");
            fs::rename(&newest, moved.join(newest.file_name().expect("a name"))).expect("renamed");
        }
        more(n, 500);
    });
    log.audit.close();

    assert!(recorded.len() >= 4_500, "{}", recorded.len());
    let away: Vec<_> = fs::read_dir(&moved).expect("it is there").flatten().map(|entry| entry.path()).collect();
    assert_each_once(&[log.segments(), away.clone()].concat(), &recorded);
    assert!(check(&log.folder()).expect("files are missing").contains("which is missing"));
    for file in away {
        fs::rename(&file, log.folder().join(file.file_name().expect("a name"))).expect("put back");
    }
    assert_eq!(check(&log.folder()), None);
}

#[test]
fn a_live_file_that_is_removed_under_load_costs_nothing_that_comes_after() {
    let log = Log::open();
    let kept = log.data.path().join("kept");
    fs::create_dir(&kept).expect("the folder is ours");

    let recorded = log.record_while(|n| {
        for _ in 0..5 {
            more(n, 500);
            let newest = log.segments().pop().expect("a segment");
            // A second name, so that the test can still read what was in it.
            fs::hard_link(&newest, kept.join(newest.file_name().expect("a name"))).expect("linked");
            fs::remove_file(&newest).expect("removed");
        }
        more(n, 500);
    });
    log.audit.close();

    let removed: Vec<_> = fs::read_dir(&kept).expect("it is there").flatten().map(|entry| entry.path()).collect();
    assert_each_once(&[log.segments(), removed].concat(), &recorded);
    assert!(check(&log.folder()).expect("files are missing").contains("which is missing"));
    let text: String = log.segments().iter().map(|file| fs::read_to_string(file).expect("ASCII")).collect();
    assert!(text.contains("was moved, removed or changed while in use"), "the log says so itself");
}

/// What such a tool copies before it cuts is lost to it in between: no writer can help that. All else is there, and it shows.
#[test]
fn a_file_that_is_copied_and_cut_under_load_loses_nothing_outside_of_that_moment() {
    let log = Log::open();
    let copies = log.data.path().join("copies");
    fs::create_dir(&copies).expect("the folder is ours");
    let mut moments = Vec::new();

    let recorded = log.record_while(|n| {
        for _ in 0..5 {
            more(n, 500);
            let newest = log.segments().pop().expect("a segment");
            let before = n.load(Ordering::SeqCst);
            fs::copy(&newest, copies.join(newest.file_name().expect("a name"))).expect("copied");
            fs::File::options().write(true).open(&newest).and_then(|file| file.set_len(0)).expect("cut");
            // Calls that were under way count as well.
            more(n, 1);
            moments.push((before.saturating_sub(1_000), n.load(Ordering::SeqCst) + 1_000));
        }
        more(n, 2_000);
    });
    log.audit.close();

    let copied: Vec<_> = fs::read_dir(&copies).expect("it is there").flatten().map(|entry| entry.path()).collect();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for file in [log.segments(), copied].concat() {
        for line in fs::read_to_string(file).expect("ASCII").lines() {
            let record: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
            if let Some(name) = record["object"].as_str() {
                *times.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    let in_a_moment = |name: &str| {
        let n: usize = name.trim_start_matches("tool-").parse().expect("a number");
        moments.iter().any(|(from, to)| (from..=to).contains(&&n))
    };
    for name in recorded.keys() {
        let times = times.get(name).copied().unwrap_or(0);
        assert!(times == 1 || times == 0 && in_a_moment(name), "{name} is there {times} times");
    }
    assert!(check(&log.folder()).is_some(), "what was cut shows");
}

#[test]
fn numbers_and_monotonic_times_keep_their_order_when_the_clock_is_set() {
    let data = TempDir::new().expect("a folder");
    let clock = Clock::manual(1_800_000_000_000);
    let settings = Settings::new(data.path(), [7; 32], Sync::Strict, clock.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let record = |audit: &Audit| {
        runtime.block_on(audit.record(Event::new(Kind::Decision), Durability::Synced)).expect("it is written")
    };
    for step_ms in [3_600_000, -3_600_000, -30 * 86_400_000, 86_400_000] {
        let audit = Audit::open(settings.clone()).expect("it opens");
        record(&audit);
        thread::sleep(Duration::from_millis(2));
        clock.advance_ms(step_ms);
        record(&audit);
        audit.close();
    }

    let mut files: Vec<_> = fs::read_dir(data.path().join("audit")).expect("it is there").flatten().collect();
    files.retain(|entry| entry.path().extension().is_some_and(|end| end == "jsonl"));
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut previous = None;
    for file in &files {
        let text = fs::read_to_string(file.path()).expect("ASCII");
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let numbers: Vec<_> = records.iter().map(|record| record["seq"].as_u64().expect("a number")).collect();
        assert_eq!(numbers, [1, 2, 3], "{text}");
        let times: Vec<_> = records.iter().map(|record| record["mono_ms"].as_u64().expect("a number")).collect();
        assert!(times.is_sorted() && times[2] >= 2, "{times:?}");
        assert_ne!(records[1]["at"], records[2]["at"], "the time of day is written as it was");
        if let Some(name) = previous.replace(file.file_name().to_string_lossy().into_owned()) {
            assert_eq!(records[0]["previous"][0]["file"], name.as_str(), "in the order they were begun");
        }
    }
    assert_eq!(files.len(), 4);
    assert_eq!(check(&data.path().join("audit")), None);
}
