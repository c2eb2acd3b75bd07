//! Checkpoints: written when they should be, in one file by all processes, and none that costs a call anything.

use super::*;
use std::os::unix::fs::PermissionsExt as _;

fn checkpoints(house: &House) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(&house.settings.checkpoints).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Those of every process in the order of the file: number, file, record.
fn said(house: &House) -> Vec<(u64, String, u64)> {
    let one = |c: &serde_json::Value| {
        (
            c["checkpoint"].as_u64().expect("a number"),
            c["file"].as_str().expect("a name").to_owned(),
            c["seq"].as_u64().expect("a number"),
        )
    };
    checkpoints(house).iter().map(one).collect()
}

#[tokio::test]
async fn they_begin_with_the_start_and_the_last_covers_everything() {
    let house = House::new();
    let audit = house.open();
    let name = house.segments().remove(0);
    eventually("the first", || said(&house) == [(1, name.clone(), 1)]);
    for i in 0..20 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    assert_eq!(said(&house).len(), 1, "neither 10 s nor 1,000 records");
    let open = house.assert_sound();
    assert_eq!(open.unsigned, [Unsigned { file: name.clone(), from: 2, to: 21 }]);

    audit.close();

    assert_eq!(said(&house), [(1, name.clone(), 1), (2, name, 21)]);
    let closed = house.assert_sound();
    assert!(closed.unsigned.is_empty(), "{closed:#?}");
    assert_eq!((closed.checkpoints, closed.last_checkpoint.map(|(number, _)| number)), (2, Some(2)));
    let mode = fs::metadata(&house.settings.checkpoints).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
}

#[tokio::test]
async fn one_is_written_after_so_many_records_and_after_such_a_time() {
    let mut house = House::new();
    house.settings.config.checkpoints.records = 5;
    let audit = house.open();
    eventually("the first", || checkpoints(&house).len() == 1);
    for i in 0..5 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    eventually("after five records", || said(&house).last().is_some_and(|(_, _, seq)| *seq == 6));
    record(&audit, "one more").await.expect("written");
    eventually("one waits", || audit.checkpoints().waiting == 1);

    let mut soon = house.settings.config.clone();
    soon.checkpoints.every = config::Period::millis(100);
    audit.reload(&soon);
    record(&audit, "and one").await.expect("written");

    eventually("after a time", || audit.checkpoints().waiting == 0);
    assert_eq!(said(&house).last().map(|(_, _, seq)| *seq), Some(8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_processes_of_one_directory_add_to_one_chain_of_checkpoints() {
    let mut house = House::new();
    house.settings.config.checkpoints.records = 2;
    let tasks: Vec<_> = (0..4)
        .map(|process| {
            let settings = house.settings.clone();
            tokio::spawn(async move {
                let audit = Audit::open(settings).expect("opens");
                for i in 0..25 {
                    record(&audit, &format!("{process}-{i}")).await.expect("written");
                }
                tokio::task::spawn_blocking(move || audit.close()).await.expect("no panic");
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }

    let report = house.assert_sound();

    assert_eq!((report.records, report.segments), (4 * 26, 4));
    assert!(report.checkpoints >= 8 && report.unsigned.is_empty(), "{report:#?}");
    let numbers: Vec<_> = said(&house).iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=report.checkpoints).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_end_of_a_full_file_is_signed() {
    let mut house = House::new();
    house.settings.config.file_size = config::ByteSize::kibibytes(4);
    let audit = house.open();
    for i in 0..30 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    audit.close();

    let ends: Vec<_> =
        house.records().iter().filter(|r| r["event"] == "rotated").map(|r| r["previous"][0].clone()).collect();
    assert!(ends.len() >= 2, "{}", ends.len());
    for end in ends {
        let is_signed = checkpoints(&house).iter().any(|c| c["hash"] == end["hash"] && c["file"] == end["file"]);
        assert!(is_signed, "{end}");
    }
    house.assert_sound();
}

#[tokio::test]
async fn a_file_of_checkpoints_that_cannot_be_written_refuses_nothing_and_is_tried_again() {
    let mut house = House::new();
    let away = house.data_dir.path().join("other");
    house.settings.checkpoints = away.join("checkpoints.jsonl");
    let audit = house.open();
    for i in 0..10 {
        record(&audit, &format!("tool-{i}")).await.expect("written all the same");
    }
    eventually("the failure shows", || audit.checkpoints().failed > 0);
    assert!(audit.is_available());
    assert!(audit.checkpoints().problem.expect("a reason").starts_with("cannot create"));

    fs::create_dir(&away).expect("the disk is there again");

    eventually("they are written", || audit.checkpoints().problem.is_none() && audit.checkpoints().waiting == 0);
    audit.close();
    assert!(house.assert_sound().unsigned.is_empty());
}

#[tokio::test]
async fn half_a_checkpoint_is_accounted_for_by_the_next() {
    for cut in [1, 17, 200] {
        let house = House::lived(&[2]).await;
        let file = &house.settings.checkpoints;
        let text = fs::read(file).expect("readable");
        fs::write(file, &text[..text.len() - cut]).expect("cut");
        // The log went as far as its checkpoint before that: a crash between the two.
        let half = house.verify();
        assert_eq!(half.fault, None, "cut {cut}");
        assert!(half.notes.iter().any(|note| note.contains("a checkpoint cut short")), "{:?}", half.notes);

        drop(house.open());

        house.assert_sound();
        let healed = fs::read_to_string(file).expect("ASCII");
        if cut == 1 {
            // Only its line break was missing.
            assert!(!healed.contains("torn"), "{healed}");
            continue;
        }
        assert!(healed.contains("\"torn\":{\"bytes\":"), "{healed}");
        // What was torn is known to the byte.
        let next =
            healed[..healed.find("\"torn\"").expect("said above")].rfind('\n').expect("it has a line of its own");
        let more = format!("{}x{}", &healed[..next], &healed[next..]);
        fs::write(file, &more).expect("changed");
        assert_ne!(more, healed);
        assert!(house.verify().fault.is_some(), "cut {cut}");
    }
}

#[tokio::test]
async fn any_change_of_the_checkpoints_themselves_is_found() {
    let house = House::lived(&[2, 2]).await;
    let file = &house.settings.checkpoints;
    let text = fs::read(file).expect("readable");
    let n_lines = text.iter().filter(|b| **b == b'\n').count();
    assert!(n_lines >= 3, "{n_lines}");
    let last_line = text[..text.len() - 1].iter().rposition(|b| *b == b'\n').expect("several lines") + 1;
    for at in (0..last_line).step_by(7) {
        for bit in [0, 3, 7] {
            let mut changed = text.clone();
            changed[at] ^= 1 << bit;
            fs::write(file, &changed).expect("written");
            let fault = house.verify().fault.unwrap_or_else(|| panic!("byte {at}, bit {bit}"));
            assert_eq!(fault.file, "audit-checkpoints.jsonl", "{fault}");
        }
    }
    let mut lines: Vec<_> = text.split_inclusive(|b| *b == b'\n').collect();
    lines.swap(1, 2);
    fs::write(file, lines.concat()).expect("written");
    assert!(house.verify().fault.is_some(), "exchanged");
    lines.swap(1, 2);
    lines.remove(1);
    fs::write(file, lines.concat()).expect("written");
    assert!(house.verify().fault.is_some(), "one removed");
    fs::remove_file(file).expect("removed");
    let fault = house.verify().fault.expect("all removed");
    assert!(fault.what.starts_with("is missing: the log is signed from"), "{fault}");
    fs::write(file, &text).expect("put back");
    house.assert_sound();
}

#[tokio::test]
async fn what_another_key_signed_counts_only_with_that_key() {
    let mut house = House::lived(&[2]).await;
    house.settings.key = [8; 32];
    drop(house.open());

    let fault = house.verify().fault.expect("the former key is not at hand");

    let former = Signer::new(&[7; 32]).public().clone();
    let said = format!("is signed with key {}, which is not at hand: name it with `--key`", former.kid());
    assert_eq!((fault.line, fault.what), (1, said));
    let mut against = house.against();
    against.checkpoints.as_mut().expect("there").keys.push(former);
    assert_eq!(verify(&house.directory(), &against).expect("readable").fault, None);
}

#[tokio::test]
async fn another_file_is_never_added_to() {
    let mut house = House::new();
    fs::write(&house.settings.checkpoints, "notes of somebody\n").expect("written");
    let audit = house.open();
    eventually("the failure shows", || audit.checkpoints().problem.is_some());
    assert!(audit.checkpoints().problem.expect("a reason").contains("is not a file of checkpoints"));
    audit.close();
    assert_eq!(fs::read_to_string(&house.settings.checkpoints).expect("there"), "notes of somebody\n");

    // By way of a link, where `check` cannot see it.
    let link = house.data_dir.path().join("elsewhere");
    std::os::unix::fs::symlink(&house.settings.directory, &link).expect("a link");
    house.settings.checkpoints = link.join("checkpoints.jsonl");
    assert!(matches!(Audit::open(house.settings.clone()), Err(Error::Misplaced { .. })));
}

#[tokio::test]
async fn a_record_that_a_power_cut_could_take_back_is_synced_before_it_is_signed() {
    let mut house = House::new();
    house.settings.config.sync = Sync::Relaxed;
    house.settings.config.checkpoints.records = 1;
    let audit = house.open();
    eventually("the first", || checkpoints(&house).len() == 1);
    record(&audit, "t").await.expect("written");

    eventually("the second", || checkpoints(&house).len() == 2);

    let record = &house.records()[1];
    assert_eq!((&checkpoints(&house)[1]["seq"], &checkpoints(&house)[1]["hash"]), (&record["seq"], &record["hash"]));
}
