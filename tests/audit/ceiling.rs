//! How many records a second the log takes, when every caller waits for its own to be on the disk and many wait at once.

use portcullis::audit::{Audit, Decision, Durability, Event, Kind, Settings, Subject, Who};
use portcullis::clock::Clock;
use portcullis::config::Sync;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Calls at the same time.
const CALLERS: usize = 256;

/// Records a second, of calls with a decision and a result each.
fn records_per_second(folder: &Path, sync: Sync, time: Duration) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let audit = Audit::open(Settings::new(folder, [7; 32], sync, Clock::System)).expect("the folder is ours");
    let (began, n) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let (audit, n) = (audit.clone(), Arc::clone(&n));
            callers.spawn(async move {
                while began.elapsed() < time {
                    audit.record(decision(), Durability::Synced).await.expect("it can be written");
                    audit.record_later(Event { status: Some(200), duration_us: Some(812), ..of(Kind::Result) });
                    n.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
        while callers.join_next().await.is_some() {}
    });
    audit.close();
    assert_eq!(audit.dropped(), 0);
    n.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn decision() -> Event<'static> {
    Event {
        decision: Some(Decision::Allowed),
        body_bytes: Some(1024),
        snapshot: Some("0123456789abcdef"),
        ..of(Kind::Decision)
    }
}

fn of(kind: Kind) -> Event<'static> {
    let who = Who {
        issuer: "https://mcp.example.com",
        subject: Subject::User("alice"),
        client: "c_Wq7sF0aPzL2mXv8bN1cKtQ",
        grant: Some("g_Wq7sF0aPzL2mXv8bN1cKtQ"),
        person: None,
    };
    Event {
        request: Some("r_5f3a9c21b7d4_1f"),
        principal: Some(who),
        peer: Some("127.0.0.1:50000"),
        route: Some("/mcp/github"),
        upstream: Some("github"),
        method: Some("tools/call"),
        object: Some("create_issue"),
        ..Event::new(kind)
    }
}

/// `PORTCULLIS_TEST_CEILING` names a file that the figures go to; `make bench-audit` measures longer, in a release build.
#[test]
fn what_many_callers_wait_for_and_leave_behind_is_all_taken() {
    let file = std::env::var_os("PORTCULLIS_TEST_CEILING");
    let time = Duration::from_millis(if file.is_some() { 5_000 } else { 300 });
    let mut figures = json!({});

    for (name, sync) in [("strict", Sync::Strict), ("relaxed", Sync::Relaxed)] {
        // What is measured is a disk: beside the build, not in memory.
        let folder = match &file {
            Some(_) => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
            None => tempfile::tempdir(),
        };
        let folder = folder.expect("a folder");
        let n = records_per_second(folder.path(), sync, time);
        eprintln!("{name}: {n:.0} records a second");
        figures[name] = json!(n);
        assert!(n > 0.0, "{name}: nothing was recorded");
    }

    if let Some(file) = file {
        std::fs::write(file, figures.to_string()).expect("the file can be written");
    }
}
