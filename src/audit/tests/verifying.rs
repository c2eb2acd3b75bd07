//! Every edit is found, and what a crash leaves behind is told from one.

use super::*;
use proptest::prelude::*;

fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

#[tokio::test]
async fn a_restart_goes_on_with_the_chain() {
    let house = House::lived(&[3, 2, 0, 4]).await;

    let report = house.assert_sound();

    assert_eq!((report.records, report.segments), (4 + 3 + 1 + 5, 4));
    assert!(report.notes.is_empty(), "{:?}", report.notes);
    let records = house.records();
    assert_eq!(records[4]["event"], "start");
    assert_eq!(records[4]["prev"], records[3]["hash"]);
    assert_eq!(records[4]["previous"][0]["hash"], records[3]["hash"]);
    assert_eq!(report.end, {
        let last = records.last().expect("a record");
        let (seq, hash) = (&last["seq"], last["hash"].as_str().expect("a hash"));
        Some(format!("{} record {seq} {hash}", house.segments()[3]))
    });
}

#[tokio::test]
async fn every_changed_byte_is_found() {
    let house = House::lived(&[1, 0]).await;
    for name in house.segments() {
        let text = house.text(&name);
        for at in 0..text.len() {
            let mut changed = text.clone();
            changed[at] ^= 1 << (at % 8);
            fs::write(house.path(&name), &changed).expect("written");
            assert!(house.verify().fault.is_some(), "{name}, byte {at}");
        }
        fs::write(house.path(&name), &text).expect("written");
    }
    house.assert_sound();
}

#[tokio::test]
async fn a_fault_is_named_by_file_and_line() {
    let house = House::lived(&[4, 1]).await;
    let name = house.segments().remove(0);
    let mut lines = lines(&house.text(&name));
    let removed = lines.remove(2);
    fs::write(house.path(&name), lines.concat()).expect("written");

    let fault = house.verify().fault.expect("a record is missing");

    assert_eq!(
        fault.to_string(),
        format!("{name}:3: does not follow the record before it: one was removed, added or moved")
    );
    assert!(!removed.is_empty());
}

#[tokio::test]
async fn the_end_of_a_finished_segment_cannot_be_cut_off() {
    let house = House::lived(&[4, 1]).await;
    let name = house.segments().remove(0);
    let text = house.text(&name);

    for end in 0..text.len() {
        fs::write(house.path(&name), &text[..end]).expect("written");
        let fault = house.verify().fault.unwrap_or_else(|| panic!("cut at {end}"));
        assert_eq!(fault.file, name);
    }
}

#[tokio::test]
async fn nothing_can_be_added_to_a_finished_segment() {
    let house = House::lived(&[2, 1]).await;
    let name = house.segments().remove(0);
    let mut text = house.text(&name);
    let last = lines(&text).pop().expect("a line");
    let mut head = chain::unseal(last.strip_suffix(b"\n").expect("whole")).expect("a record").head;
    let stamp = chain::Stamp { at_ms: 0, mono_ms: 0 };
    chain::seal(&mut text, &mut head, stamp, "b", b",\"event\":\"decision\"");
    fs::write(house.path(&name), &text).expect("written");

    let fault = house.verify().fault.expect("a forged record");

    assert_eq!((fault.file.as_str(), fault.line), (name.as_str(), 4));
}

#[tokio::test]
async fn segments_cannot_be_removed_added_or_exchanged() {
    let house = House::lived(&[2, 2, 2]).await;
    let names = house.segments();
    let texts: Vec<_> = names.iter().map(|name| house.text(name)).collect();

    for removed in &names[..2] {
        let away = house.data_dir.path().join("away");
        fs::rename(house.path(removed), &away).expect("moved");
        assert!(house.verify().fault.is_some(), "{removed} removed");
        fs::rename(&away, house.path(removed)).expect("moved back");
    }
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        fs::write(house.path(&names[a]), &texts[b]).expect("written");
        fs::write(house.path(&names[b]), &texts[a]).expect("written");
        assert!(house.verify().fault.is_some(), "{a} and {b} exchanged");
        fs::write(house.path(&names[a]), &texts[a]).expect("written");
        fs::write(house.path(&names[b]), &texts[b]).expect("written");
    }
    let other = House::lived(&[1]).await;
    let foreign = "audit-20270115T080000.001Z-00000000000000ff.jsonl";
    fs::write(house.path(foreign), other.text(&other.segments()[0])).expect("written");
    assert!(house.verify().fault.is_some(), "a segment added");
    fs::remove_file(house.path(foreign)).expect("removed");
    house.assert_sound();
}

#[tokio::test]
async fn a_file_of_the_log_cannot_stand_in_it_twice() {
    let mut house = House::new();
    house.settings.config.file_size = config::ByteSize::kibibytes(4);
    let audit = house.open();
    for i in 0..40 {
        record(&audit, &format!("tool-{i}")).await.expect("written");
    }
    drop(audit);
    let names = house.segments();
    assert!(names.len() > 3, "{names:?}");
    house.assert_sound();

    for name in &names {
        let copy = format!("audit-20990115T080000.001Z-{}", name.rsplit('-').next().expect("a boot id"));
        fs::copy(house.path(name), house.path(&copy)).expect("copied");
        let fault = house.verify().fault.expect("a copy");
        assert!(fault.what.contains("was added") || fault.what.contains("ties on to"), "{name}: {fault}");
        // The same with other contents, whose hashes fit.
        let first = lines(&house.text(name)).remove(0);
        fs::write(house.path(&copy), first).expect("written");
        assert!(house.verify().fault.is_some(), "{name}: its first record alone");
        fs::remove_file(house.path(&copy)).expect("removed");
    }
    house.assert_sound();
}

#[tokio::test]
async fn a_log_whose_beginning_was_archived_is_checked_from_where_it_begins() {
    let house = House::lived(&[1, 1, 1]).await;
    let names = house.segments();
    fs::remove_file(house.path(&names[0])).expect("archived");
    assert!(house.verify().fault.is_some());

    let report = verify(&house.directory(), &Against { from: Some(&names[1]), ..house.against() }).expect("readable");

    assert_eq!((report.fault, report.segments), (None, 2));
}

#[tokio::test]
async fn a_crash_at_any_byte_of_the_last_line_is_healed_by_the_next_start() {
    let house = House::lived(&[2]).await;
    let name = house.segments().remove(0);
    let text = house.text(&name);
    let last = lines(&text).pop().expect("a line").len();

    for cut in 1..last {
        fs::write(house.path(&name), &text[..text.len() - cut]).expect("written");
        let before = house.assert_chained();
        assert_eq!((before.records, before.notes.len()), (2, 1), "cut {cut}");

        drop(house.open());

        let after = house.assert_chained();
        assert_eq!(after.records, 4, "`start` and `recovered`, cut {cut}");
        let next = house.segments().pop().expect("a segment");
        let recovered = String::from_utf8(lines(&house.text(&next)).remove(1)).expect("ASCII");
        let noted = format!("{name}: {} bytes after record 2 are no record", last - cut);
        assert!(recovered.contains(&noted), "{recovered}");

        // What was torn is known to the byte: it cannot be made more or less of afterwards.
        fs::write(house.path(&name), &text[..text.len() - last]).expect("written");
        assert!(house.verify_alone().fault.is_some(), "cut {cut}");
        fs::write(house.path(&name), &text).expect("written");
        assert!(house.verify_alone().fault.is_some(), "cut {cut}");
        fs::remove_file(house.path(&next)).expect("removed");
    }
}

#[tokio::test]
async fn a_crash_before_the_first_record_is_healed_too() {
    let house = House::lived(&[2]).await;
    let text = house.text(&house.segments()[0]);
    for torn in [0, 1, 100] {
        let crashed = "audit-20270115T080000.001Z-00000000000000ff.jsonl";
        fs::write(house.path(crashed), &text[..torn]).expect("written");
        house.assert_chained();

        drop(house.open());

        house.assert_chained();
        fs::remove_file(house.path(crashed)).expect("removed");
        fs::remove_file(house.path(&house.segments()[1])).expect("removed");
    }
}

#[tokio::test]
async fn zeros_after_a_power_cut_are_healed_too() {
    let house = House::lived(&[2]).await;
    let name = house.segments().remove(0);
    let mut text = house.text(&name);
    text.extend([0; 300_000]);
    fs::write(house.path(&name), &text).expect("written");

    drop(house.open());

    assert_eq!(house.assert_sound().notes.len(), 1);
}

#[tokio::test]
async fn two_processes_have_a_segment_each_and_the_next_ties_on_to_both() {
    let house = House::new();
    let old = house.open();
    record(&old, "a").await.expect("written");
    let new = house.open();
    record(&new, "b").await.expect("written");
    record(&old, "c").await.expect("written");
    house.assert_sound();
    drop((old, new));
    let names = house.segments();

    drop(house.open());

    house.assert_sound();
    for name in &names {
        let text = house.text(name);
        let shorter = lines(&text)[..2].concat();
        if shorter.len() < text.len() {
            fs::write(house.path(name), &shorter).expect("written");
        } else {
            fs::write(house.path(name), &lines(&text)[0]).expect("written");
        }
        assert!(house.verify().fault.is_some(), "the end of {name} cut off");
        fs::write(house.path(name), &text).expect("written");
    }
    house.assert_sound();
}

/// One thing done to the lines of a log.
#[derive(Clone, Debug)]
enum Edit {
    Remove(usize),
    Repeat(usize),
    Exchange(usize, usize),
    Move(usize, usize),
    Replace(usize, u8),
    Insert(usize, u8),
    Delete(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let at = || 0usize..100_000;
    prop_oneof![
        at().prop_map(Edit::Remove),
        at().prop_map(Edit::Repeat),
        (at(), at()).prop_map(|(a, b)| Edit::Exchange(a, b)),
        (at(), at()).prop_map(|(a, b)| Edit::Move(a, b)),
        (at(), any::<u8>()).prop_map(|(a, b)| Edit::Replace(a, b)),
        (at(), any::<u8>()).prop_map(|(a, b)| Edit::Insert(a, b)),
        at().prop_map(Edit::Delete),
    ]
}

fn apply(edit: &Edit, text: &[u8]) -> Vec<u8> {
    let mut lines = lines(text);
    let n = lines.len();
    let mut bytes = text.to_vec();
    match *edit {
        Edit::Remove(a) => drop(lines.remove(a % n)),
        Edit::Repeat(a) => lines.insert(a % n, lines[a % n].clone()),
        Edit::Exchange(a, b) => lines.swap(a % n, b % n),
        Edit::Move(a, b) => {
            let line = lines.remove(a % n);
            lines.insert(b % n, line);
        }
        Edit::Replace(a, b) => bytes[a % text.len()] = b,
        Edit::Insert(a, b) => bytes.insert(a % text.len(), b),
        Edit::Delete(a) => drop(bytes.remove(a % text.len())),
    }
    if lines.concat() == text { bytes } else { lines.concat() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_edits_of_any_segment_are_found(
        edits in prop::collection::vec((0usize..3, edit()), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let house = runtime.block_on(House::lived(&[3, 0, 5]));
        let names = house.segments();
        let before: Vec<_> = names.iter().map(|name| house.text(name)).collect();
        for (segment, edit) in &edits {
            let text = house.text(&names[*segment]);
            if !text.is_empty() {
                fs::write(house.path(&names[*segment]), apply(edit, &text)).expect("written");
            }
        }
        let after: Vec<_> = names.iter().map(|name| house.text(name)).collect();

        let is_found = house.verify().fault.is_some();

        // The newest one's end as well: its last record is signed.
        prop_assert_eq!(is_found, before != after);
    }
}
