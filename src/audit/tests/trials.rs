//! A thousand random things done to a log of several processes and files: each is found, and the same log untouched is sound.

use super::*;
use crate::audit::chain::{self, Head, Stamp};
use std::collections::BTreeMap;

/// Small, fast, and the same everywhere for the same seed (SplitMix64, Steele et al. 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("fits")
    }
}

type Files = BTreeMap<String, Vec<u8>>;

/// Two gateways at once and commands between them, each with files that were full: about ten files.
async fn eventful() -> House {
    let mut house = House::new();
    house.settings.config.file_size = config::ByteSize::kibibytes(4);
    house.settings.config.checkpoints.records = 40;
    let one = house.open();
    for i in 0..34 {
        record(&one, &format!("tool-{i}")).await.expect("written");
    }
    house.settings.clock.advance_ms(10);
    let command = house.open();
    record(&command, "by a command").await.expect("written");
    command.close();
    house.settings.clock.advance_ms(10);
    let two = house.open();
    for i in 0..34 {
        record(&one, &format!("one-{i}")).await.expect("written");
        record(&two, &format!("two-{i}")).await.expect("written");
    }
    one.close();
    record(&two, "last").await.expect("written");
    two.close();
    house
}

fn files(house: &House) -> Files {
    house.segments().into_iter().map(|name| (name.clone(), house.text(&name))).collect()
}

fn put(house: &House, before: &Files, after: &Files) {
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        fs::remove_file(house.path(name)).expect("removed");
    }
    for (name, text) in after.iter().filter(|(name, text)| before.get(*name) != Some(text)) {
        fs::write(house.path(name), text).expect("written");
    }
}

fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect()
}

/// Does one thing to the files, and says what.
fn meddle(files: &mut Files, random: &mut Random) -> String {
    let names: Vec<String> = files.keys().cloned().collect();
    let name = names[random.below(names.len())].clone();
    let text = files[&name].clone();
    let mut all = lines(&text);
    let (a, b) = (random.below(all.len()), random.below(all.len()));
    let at = random.below(text.len());
    let kind = random.below(12);
    let mut changed = text.clone();
    let what = match kind {
        0 | 1 => {
            changed[at] ^= 1 << random.below(8);
            format!("a bit of byte {at} flipped")
        }
        2 => {
            changed.remove(at);
            format!("byte {at} deleted")
        }
        3 => {
            changed.insert(at, u8::try_from(random.below(256)).expect("a byte"));
            format!("a byte inserted at {at}")
        }
        4 => {
            all.remove(a);
            changed = all.concat();
            format!("line {a} deleted")
        }
        5 => {
            all.swap(a, b);
            changed = all.concat();
            format!("lines {a} and {b} exchanged")
        }
        6 => {
            all.insert(b, all[a].clone());
            changed = all.concat();
            format!("line {a} repeated at {b}")
        }
        7 => {
            changed.truncate(at);
            format!("cut at byte {at}")
        }
        8 => {
            changed = all[..a].concat();
            format!("cut at the end of line {a}")
        }
        9 => {
            changed = rewritten(&all, a);
            format!("written anew from line {a} on, with hashes that fit")
        }
        10 => {
            let other = names[random.below(names.len())].clone();
            let theirs = files.insert(name.clone(), files[&other].clone()).expect("there");
            files.insert(other.clone(), theirs);
            return format!("{name} and {other} exchanged");
        }
        _ => {
            files.remove(&name);
            return format!("{name} removed");
        }
    };
    files.insert(name.clone(), changed);
    format!("{name}: {what}")
}

/// What somebody does who knows how the chain is made: another tool in one record, and all hashes from there on.
fn rewritten(all: &[Vec<u8>], from: usize) -> Vec<u8> {
    let mut out = all[..from].concat();
    let mut head = None;
    for line in &all[from..] {
        let text = line.strip_suffix(b"\n").expect("whole lines");
        let sealed = chain::unseal(text).expect("a record");
        let before = head.unwrap_or(Head { seq: sealed.head.seq - 1, hash: sealed.prev });
        let record: serde_json::Value = serde_json::from_slice(text).expect("JSON");
        let text = String::from_utf8(text.to_vec()).expect("ASCII");
        let start = text.find(",\"event\":").or_else(|| text.find(",\"request\":")).expect("members");
        let members = text[start..text.find(",\"prev\":\"").expect("a tie")].replacen("tool", "fool", 1);
        let members = if members == text[start..text.find(",\"prev\":\"").expect("a tie")] {
            format!("{members},\"detail\":\"forged\"")
        } else {
            members
        };
        let at: jiff::Timestamp = record["at"].as_str().expect("a time").parse().expect("a time");
        let stamp = Stamp { at_ms: at.as_millisecond(), mono_ms: record["mono_ms"].as_u64().expect("a number") };
        let mut next = before;
        chain::seal(&mut out, &mut next, stamp, record["segment"].as_str().expect("a name"), members.as_bytes());
        head = Some(next);
    }
    out
}

#[tokio::test]
async fn a_thousand_random_edits_cuts_moves_and_swaps_are_found_and_the_untouched_log_is_sound() {
    let seed = u64::from_be_bytes(crate::id::random_bytes());
    println!("seed {seed}");
    let mut random = Random(seed);
    let house = eventful().await;
    let report = house.assert_sound();
    assert!(report.segments >= 8 && report.unsigned.is_empty(), "{report:#?}");
    let untouched = files(&house);

    let (mut kinds, mut trials) = (BTreeMap::<String, usize>::new(), 0);
    while trials < 1000 {
        let mut changed = untouched.clone();
        let what = meddle(&mut changed, &mut random);
        // Exchanged with itself, or a line with its like.
        if changed == untouched {
            continue;
        }
        trials += 1;
        put(&house, &untouched, &changed);
        let fault = house.verify().fault;
        assert!(fault.is_some(), "seed {seed}, trial {trials}: not found: {what}");
        put(&house, &changed, &untouched);
        let twin = house.verify().fault;
        assert_eq!(twin, None, "seed {seed}, trial {trials}: the untouched log is sound, after {what}");
        let kind = what.rsplit(": ").next().unwrap_or_default().trim_matches(|c: char| !c.is_alphabetic());
        *kinds.entry(kind.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).or_default() += 1;
    }
    println!("{kinds:#?}");
}

#[tokio::test]
async fn what_hashes_alone_cannot_show_checkpoints_do() {
    let house = House::lived(&[3, 6]).await;
    let newest = house.segments().pop().expect("a segment");
    let text = house.text(&newest);
    let all = lines(&text);

    for (changed, said) in
        [(all[..4].concat(), "is missing: checkpoint"), (rewritten(&all, 3), "is not the record that checkpoint")]
    {
        fs::write(house.path(&newest), &changed).expect("written");
        assert_eq!(house.verify_alone().fault, None, "the chain alone holds");
        let fault = house.verify().fault.expect("found");
        assert!(fault.file == newest && fault.what.starts_with(said), "{fault}");
        assert!(fault.what.contains("(audit-checkpoints.jsonl:"), "{fault}");
    }
    fs::write(house.path(&newest), &text).expect("written");
    fs::remove_file(house.path(&newest)).expect("removed");
    assert_eq!(house.verify_alone().fault, None);
    let fault = house.verify().fault.expect("found");
    assert!(fault.to_string().starts_with(&format!("{newest}:1: is missing: checkpoint ")), "{fault}");
}
