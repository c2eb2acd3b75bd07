//! What a caller may rely on: order, durability, refusal while the disk fails, and recovery.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_record_is_in_the_file_before_its_caller_goes_on() {
    let house = House::new();
    let audit = house.open();
    let name = house.segments().remove(0);

    for i in 0..50 {
        let syncs = house.faults().syncs.load(SeqCst);

        let seq = record(&audit, &format!("tool-{i}")).await.expect("written");

        let text = String::from_utf8(house.text(&name)).expect("ASCII");
        let last = text.lines().last().expect("a line");
        assert!(last.starts_with(&format!("{{\"seq\":{seq},")), "{last}");
        assert!(last.contains(&format!("\"object\":\"tool-{i}\"")), "{last}");
        assert!(house.faults().syncs.load(SeqCst) > syncs, "not synced");
    }
    house.assert_sound();
}

#[tokio::test]
async fn only_who_asks_waits_for_the_disk() {
    let house = House::new();
    let audit = house.open();
    let before = house.faults().syncs.load(SeqCst);

    let event = decision("read");
    audit.record(event, Durability::Written).await.expect("written");
    audit.reload(&config::Audit { sync: Sync::Relaxed, ..config::Audit::default() });
    audit.record(event, Durability::Synced).await.expect("written");

    assert_eq!(house.faults().syncs.load(SeqCst), before);
    assert_eq!(house.records().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_sync_serves_all_who_wait() {
    let house = House::new();
    let audit = house.open();
    let before = house.faults().syncs.load(SeqCst);
    house.faults().sync_ms.store(20, SeqCst);

    let tasks: Vec<_> = (0..64)
        .map(|i| {
            let audit = audit.clone();
            tokio::spawn(async move { record(&audit, &format!("tool-{i}")).await })
        })
        .collect();
    let mut seqs = Vec::new();
    for task in tasks {
        seqs.push(task.await.expect("no panic").expect("written"));
    }

    seqs.sort_unstable();
    assert_eq!(seqs, (2..=65).collect::<Vec<_>>(), "one number each, after `start`");
    let syncs = house.faults().syncs.load(SeqCst) - before;
    assert!(syncs < 16, "{syncs} syncs for 64 records");
    assert_eq!(house.assert_sound().records, 65);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn numbers_and_monotonic_times_rise_together() {
    let house = House::new();
    let audit = house.open();

    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let audit = audit.clone();
            tokio::spawn(async move {
                for _ in 0..100 {
                    audit.record(decision("t"), Durability::Written).await.expect("written");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }

    let times: Vec<_> = house.records().iter().map(|r| r["mono_ms"].as_u64()).collect();
    assert!(times.is_sorted());
}

#[tokio::test]
async fn times_come_from_the_clock() {
    let house = House::new();
    let audit = house.open();
    house.settings.clock.advance_ms(1_500);

    record(&audit, "t").await.expect("written");

    assert_eq!(house.records()[1]["at"], "2027-01-15T08:00:01.500Z");
}

#[tokio::test]
async fn nobody_else_may_read_it() {
    let house = House::lived(&[1]).await;

    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;

    assert_eq!(mode(&house.settings.directory), 0o700);
    assert_eq!(mode(&house.path(&house.segments()[0])), 0o600);
}

#[tokio::test]
async fn a_full_disk_refuses_and_leaves_no_half_line() {
    let house = House::new();
    let audit = house.open();
    record(&audit, "before").await.expect("written");

    for room in 1..30 {
        house.faults().room.store(room * 10, SeqCst);
        let refused = record(&audit, "never").await;
        assert!(matches!(refused, Err(Unavailable::Disk(_))), "{refused:?}");
        assert!(!audit.is_available());
        assert_eq!(house.records().len(), 2);
    }
    house.faults().room.store(0, SeqCst);
    record(&audit, "after").await.expect("space is back");

    assert!(audit.is_available());
    house.assert_sound();
    assert_eq!(house.events(), ["start", "decision", "decision", "recovered"]);
    let note = &house.records()[3];
    assert_eq!(note["refused"], 29);
    assert!(note["detail"].as_str().expect("a cause").starts_with("cannot write to"));
}

#[tokio::test]
async fn the_log_mends_itself_without_being_asked() {
    let house = House::new();
    let audit = house.open();
    house.faults().room.store(1, SeqCst);
    record(&audit, "never").await.expect_err("no room");

    house.faults().room.store(0, SeqCst);

    eventually("available again", || audit.is_available());
    assert_eq!(house.events(), ["start", "recovered"]);
}

#[tokio::test]
async fn results_are_kept_while_the_disk_is_full() {
    let house = House::new();
    let audit = house.open();
    house.faults().room.store(1, SeqCst);
    record(&audit, "never").await.expect_err("no room");

    (0..5).for_each(|i| audit.record_later(result(&format!("tool-{i}"))));
    house.faults().room.store(0, SeqCst);
    eventually("available again", || audit.is_available());
    audit.close();

    let records = house.records();
    let results = records.iter().filter(|r| r["event"] == "result");
    let objects: Vec<_> = results.map(|r| r["object"].as_str().expect("a name")).collect();
    assert_eq!(objects, ["tool-0", "tool-1", "tool-2", "tool-3", "tool-4"]);
    assert_eq!(audit.dropped(), 0);
    house.assert_sound();
}

#[tokio::test]
async fn results_that_do_not_fit_are_counted_and_the_log_says_so() {
    let mut house = House::new();
    house.settings.queue_len = 4;
    let audit = house.open();
    house.faults().room.store(1, SeqCst);
    record(&audit, "never").await.expect_err("no room");

    (0..100).for_each(|_| audit.record_later(result("t")));
    // What is kept counts as not written yet.
    eventually("some are lost", || audit.dropped() > 0 && audit.dropped() + audit.queued() as u64 == 100);
    house.faults().room.store(0, SeqCst);
    eventually("available again", || audit.is_available());

    audit.close();
    let records = house.records();
    let kept = records.iter().filter(|r| r["event"] == "result").count() as u64;
    let note = records.iter().find(|r| r["event"] == "recovered").expect("a note");
    assert_eq!(kept + audit.dropped(), 100);
    assert_eq!(note["dropped"], audit.dropped());
}

#[tokio::test]
async fn a_record_that_could_not_be_synced_is_taken_back() {
    let house = House::new();
    let audit = house.open();
    house.faults().is_sync_broken.store(true, SeqCst);

    let refused = record(&audit, "never").await.expect_err("not synced");

    assert!(refused.to_string().starts_with("cannot sync"), "{refused}");
    assert_eq!(house.events(), ["start"]);
    house.faults().is_sync_broken.store(false, SeqCst);
    record(&audit, "after").await.expect("written");
    house.assert_sound();
}

#[tokio::test]
async fn a_half_line_that_cannot_be_cut_off_is_cut_off_later() {
    let house = House::new();
    let audit = house.open();
    house.faults().room.store(50, SeqCst);
    house.faults().is_cut_broken.store(true, SeqCst);
    record(&audit, "never").await.expect_err("no room");
    house.faults().room.store(0, SeqCst);
    record(&audit, "never").await.expect_err("the half line is still there");

    house.faults().is_cut_broken.store(false, SeqCst);
    record(&audit, "after").await.expect("written");

    assert_eq!(house.events(), ["start", "decision", "recovered"]);
    house.assert_sound();
}

#[tokio::test]
async fn a_removed_segment_is_noticed_at_once_and_later() {
    let house = House::new();
    let audit = house.open();
    record(&audit, "gone").await.expect("written");
    let gone = house.segments().remove(0);
    fs::remove_file(house.path(&gone)).expect("removed");

    record(&audit, "after").await.expect("written elsewhere");

    assert_eq!(house.events(), ["rotated", "recovered", "decision"]);
    let fault = house.verify().fault.expect("a missing segment is a fault");
    assert_eq!(fault.what, format!("ties on to {gone}, which is missing"));
}

#[tokio::test]
async fn a_segment_cut_by_others_is_not_written_to_again() {
    let house = House::new();
    let audit = house.open();
    record(&audit, "copied away").await.expect("written");
    let name = house.segments().remove(0);
    fs::write(house.path(&name), "").expect("cut, as copytruncate does");

    record(&audit, "after").await.expect("written elsewhere");

    assert_eq!(house.segments().len(), 2);
    assert!(house.text(&name).is_empty());
    let fault = house.verify().fault.expect("records are missing");
    assert_eq!((fault.file, fault.line), (name, 1));
}

#[tokio::test]
async fn a_removed_directory_comes_back() {
    let house = House::new();
    let audit = house.open();
    fs::remove_dir_all(&house.settings.directory).expect("removed");

    record(&audit, "after").await.expect("written");

    assert_eq!(house.events(), ["rotated", "recovered", "decision"]);
}

#[tokio::test]
async fn a_directory_that_is_none_refuses_until_it_is_one() {
    let house = House::new();
    let audit = house.open();
    let away = house.data_dir.path().join("away");
    fs::rename(&house.settings.directory, &away).expect("moved");
    fs::write(&house.settings.directory, "not a directory").expect("in its place");

    let refused = record(&audit, "never").await.expect_err("nowhere to write");

    assert!(refused.to_string().starts_with("cannot create"), "{refused}");
    fs::remove_file(&house.settings.directory).expect("removed");
    fs::rename(&away, &house.settings.directory).expect("moved back");
    record(&audit, "after").await.expect("written");
    assert_eq!(house.segments().len(), 1);
    house.assert_sound();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn long_segments_are_followed_by_new_ones_without_loss() {
    let mut house = House::new();
    house.settings.config.file_size = config::ByteSize::kibibytes(8);
    let audit = house.open();

    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let audit = audit.clone();
            tokio::spawn(async move {
                for i in 0..50 {
                    record(&audit, &format!("{task}-{i}")).await.expect("written");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }

    let report = house.assert_sound();
    assert!(report.segments > 5, "{} segments", report.segments);
    let records = house.records();
    let mut objects: Vec<_> = records.iter().filter_map(|r| r["object"].as_str()).collect();
    objects.sort_unstable();
    objects.dedup();
    assert_eq!(objects.len(), 400);
    let seqs: Vec<_> = records.iter().filter_map(|r| r["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=records.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_queued_is_written_before_the_log_closes() {
    let house = House::new();
    let audit = house.open();
    (0..1000).for_each(|i| audit.record_later(result(&format!("tool-{i}"))));

    audit.close();

    assert_eq!(house.records().len(), 1001);
    let refused = record(&audit, "after").await;
    assert!(matches!(refused, Err(Unavailable::Closed)), "{refused:?}");
}

#[tokio::test]
async fn a_flood_of_strangers_is_counted_not_written() {
    let house = House::new();
    let audit = house.open();
    (0..3000).for_each(|_| audit.record_stranger(Event::new(Kind::Refused)));

    audit.close();

    let records = house.records();
    let refused = records.iter().filter(|r| r["event"] == "refused");
    let (mut written, mut unrecorded) = (0, 0);
    for record in refused {
        unrecorded += record["unrecorded"].as_u64().unwrap_or(0);
        written += 1;
    }
    // The last record stands for those after it alone.
    assert_eq!(written - 1 + unrecorded, 3000);
    assert!(written < 1500, "{written} records");
}

#[tokio::test]
async fn a_writer_that_dies_leaves_nobody_waiting() {
    let house = House::new();
    let audit = house.open();
    house.faults().is_deadly.store(true, SeqCst);

    let refused = record(&audit, "never").await;

    assert!(matches!(refused, Err(Unavailable::Closed)), "{refused:?}");
    eventually("unavailable", || !audit.is_available());
    let refused = record(&audit, "never").await;
    assert!(matches!(refused, Err(Unavailable::Closed)), "{refused:?}");
}

#[test]
fn a_log_that_cannot_be_written_does_not_open() {
    let house = House::new();
    fs::write(&house.settings.directory, "a file").expect("written");

    assert!(Audit::open(house.settings.clone()).is_err());
}

#[test]
fn a_log_that_fails_to_open_leaves_no_file() {
    let house = House::new();
    house.faults().room.store(20, SeqCst);

    assert!(Audit::open(house.settings.clone()).is_err());

    assert!(house.segments().is_empty());
}
