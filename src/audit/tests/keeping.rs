//! Old files go, the log says so first, and what is left verifies.

use super::*;
use crate::audit::directory::Link;

impl House {
    fn of_small_files() -> House {
        let mut house = House::new();
        house.settings.config.file_size = config::ByteSize::kibibytes(4);
        house.settings.removes_old = true;
        house
    }

    fn bytes(&self) -> usize {
        // One may go while it is looked at.
        self.segments().iter().map(|name| fs::read(self.path(name)).map_or(0, |text| text.len())).sum()
    }

    fn removed(&self) -> Vec<Link> {
        let records = self.records();
        let retention = records.iter().filter(|record| record["event"] == "retention");
        retention.map(|record| serde_json::from_value(record["removed"].clone()).expect("a link")).collect()
    }
}

#[tokio::test]
async fn all_files_together_stay_within_their_limit_and_the_oldest_go_first() {
    let mut house = House::of_small_files();
    let most = 20 * 1024;
    house.settings.config.keep_at_most = Some(config::ByteSize::of(most));
    let audit = house.open();
    let first = house.segments().remove(0);
    for i in 0..200 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    eventually("old files have gone", || !house.path(&first).exists() && house.bytes() <= most);
    audit.close();

    let report = house.assert_sound();

    assert!(report.notes.iter().any(|note| note.ends_with("files were removed by retention")), "{:?}", report.notes);
    assert!(report.unsigned.is_empty(), "{report:#?}");
    assert!(house.bytes() <= most, "{}", house.bytes());
    let removed = house.removed();
    assert!(!removed.is_empty());
    for link in removed {
        assert!(!house.path(&link.file).exists(), "{link:?}");
    }
    // Without the record of its removal a missing file is missing.
    let oldest = house.segments().remove(0);
    fs::remove_file(house.path(&oldest)).expect("removed");
    assert!(house.verify().fault.is_some());
}

#[tokio::test]
async fn files_whose_newest_record_is_old_go_when_the_next_process_begins() {
    let mut house = House::of_small_files();
    house.settings.config.keep = Some(config::Period::seconds(24 * 60 * 60));
    let before = house.open();
    for i in 0..30 {
        record(&before, &format!("tool-{i}")).await.expect("written");
    }
    before.close();
    let old = house.segments();
    assert!(old.len() > 2);
    house.settings.clock.advance_ms(25 * 60 * 60 * 1000);

    let audit = house.open();

    eventually("they have gone", || old.iter().all(|name| !house.path(name).exists()));
    record(&audit, "after").await.expect("written");
    audit.close();
    let names: Vec<_> = house.removed().into_iter().map(|link| link.file).collect();
    assert_eq!(names, old);
    house.assert_sound();
}

#[tokio::test]
async fn a_file_that_another_process_writes_to_stays_and_the_chain_holds() {
    let mut house = House::of_small_files();
    house.settings.config.keep_at_most = Some(config::ByteSize::of(16 * 1024));
    house.settings.removes_old = false;
    let other = house.open();
    record(&other, "other").await.expect("written");
    let theirs = house.segments().remove(0);
    house.settings.clock.advance_ms(10);
    house.settings.removes_old = true;
    let audit = house.open();
    let first = house.segments().remove(1);
    for i in 0..200 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    eventually("old files have gone", || !house.path(&first).exists());

    assert!(house.path(&theirs).exists());
    house.assert_sound();
    record(&other, "still there").await.expect("written");
    other.close();
    for i in 0..200 {
        record(&audit, &format!("more-{i}")).await.expect("written");
    }
    eventually("theirs has gone as well", || !house.path(&theirs).exists());
    audit.close();
    house.assert_sound();
    drop(house.open());
    house.assert_sound();
}

#[tokio::test]
async fn nothing_goes_that_could_not_be_written_down_first() {
    let mut house = House::of_small_files();
    let audit = house.open();
    for i in 0..60 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    let all = house.segments();
    house.faults().room.store(1, SeqCst);
    let mut tight = house.settings.config.clone();
    tight.keep_at_most = Some(config::ByteSize::of(16 * 1024));
    house.settings.config = tight.clone();

    audit.reload(&tight);

    record(&audit, "never").await.expect_err("no room");
    assert_eq!(house.segments(), all);
    house.faults().room.store(0, SeqCst);
    eventually("the disk has room again", || audit.is_available());
    audit.reload(&tight);
    eventually("now they go", || !house.path(&all[0]).exists());
    audit.close();
    house.assert_sound();
}

#[tokio::test]
async fn a_clock_that_is_set_forward_removes_nothing() {
    let mut house = House::of_small_files();
    house.settings.config.keep = Some(config::Period::seconds(24 * 60 * 60));
    let audit = house.open();
    for i in 0..30 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    let all = house.segments();
    house.settings.clock.advance_ms(1000 * 24 * 60 * 60 * 1000);

    audit.reload(&house.settings.config);
    for i in 0..30 {
        record(&audit, &format!("later-{i}")).await.expect("written");
    }
    audit.close();

    assert!(all.iter().all(|name| house.path(name).exists()));
    assert!(house.removed().is_empty());
    house.assert_sound();
}

#[tokio::test]
async fn a_file_that_is_old_is_followed_by_a_new_one() {
    let mut house = House::of_small_files();
    house.settings.config.keep = Some(config::Period::seconds(8 * 60 * 60));
    let audit = house.open();
    record(&audit, "a").await.expect("written");
    house.settings.clock.advance_ms(59 * 60 * 1000);
    record(&audit, "b").await.expect("written");
    assert_eq!(house.segments().len(), 1);
    house.settings.clock.advance_ms(2 * 60 * 1000);

    record(&audit, "c").await.expect("written");

    assert_eq!(house.segments().len(), 2);
    audit.close();
    house.assert_sound();
}
