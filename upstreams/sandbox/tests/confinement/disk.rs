//! What commands take of a disk, and what the others keep. On a disk of their own, where root can make one: on one that
//! others write to, nothing could be said.

use crate::world::{Disk, Ended, MIB, World, eventually};
use serde_json::json;
use std::fs::{self, File};
use std::os::fd::AsFd as _;

/// Writes `n` files of 16 MiB that are removed and stay open, one after the other, and says how many there are.
const WITHOUT_A_NAME: &str = "import os, sys, time\n\
    for n in range(int(sys.argv[1])):\n\
    \x20   fd = os.open('f', os.O_RDWR | os.O_CREAT)\n\
    \x20   os.unlink('f')\n\
    \x20   for _ in range(16): os.write(fd, bytes(1 << 20)); time.sleep(0.005)\n\
    \x20   print(n + 1, flush=True)\n";

/// The same, each written by a process for which nobody waits.
const BY_CHILDREN: &str = "import os, signal, sys, time\n\
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n\
    for n in range(int(sys.argv[1])):\n\
    \x20   fd = os.open('f', os.O_RDWR | os.O_CREAT)\n\
    \x20   os.unlink('f')\n\
    \x20   for _ in range(16):\n\
    \x20       if os.fork() == 0: os.write(fd, bytes(1 << 20)); os._exit(0)\n\
    \x20       time.sleep(0.01)\n\
    \x20   print(n + 1, flush=True)\n";

/// Fills the holes of a file, page by page.
const INTO_HOLES: &str = "import mmap, os, sys\n\
    for name in sys.argv[1:]:\n\
    \x20   f = os.open(name, os.O_RDWR); m = mmap.mmap(f, 0)\n\
    \x20   for at in range(0, len(m), 4096): m[at] = 65\n\
    \x20   m.flush(); print(name, flush=True)\n";

fn python(world: &mut World, program: &str, arguments: &str) -> Ended {
    world.ask(json!({ "line": format!("python3 -c \"$P\" {arguments}"), "environment": [["P", program]] }));
    world.ended()
}

fn held(world: &World) -> u64 {
    let opened = File::open(&world.folder).expect("opened");
    portcullis_sandbox::workspace::usage(opened.as_fd(), u64::MAX).expect("counted").bytes
}

#[test]
fn a_command_that_holds_more_than_its_quota_in_files_without_a_name_is_ended() {
    let Some(disk) = Disk::new(1024 * MIB) else { return };
    let mut world = World::on(&disk, |_| {});

    let little = python(&mut world, WITHOUT_A_NAME, "3");
    assert_eq!((little.end.as_str(), little.stdout.lines().count()), ("Exited(0)", 3), "{little:?}");
    for program in [WITHOUT_A_NAME, BY_CHILDREN] {
        let much = python(&mut world, program, "50");

        assert_eq!(much.end, "OverQuota", "{much:?}");
        // 64 MiB, what is let pass, and what is written until it is noticed.
        assert!(much.stdout.lines().count() < 20, "{much:?}");
    }

    eventually(|| (disk.taken() < 64 * MIB).then_some(()), || format!("{} bytes are taken", disk.taken()));
    world.output("echo more > more");
}

#[test]
fn a_command_that_ends_hands_no_room_on_to_another_one() {
    let Some(disk) = Disk::new(1024 * MIB) else { return };
    let mut world = World::on(&disk, |_| {});
    let program = format!("{WITHOUT_A_NAME}while not os.path.exists('go'): time.sleep(0.02)");
    let line = "python3 -c \"$P\" 3; python3 -c 'import time; time.sleep(1)'";
    let first = world.ask(json!({ "line": line, "environment": [["P", program]] }));
    eventually(|| (disk.taken() > 48 * MIB).then_some(()), || "nothing is written".to_owned());
    let second = world.ask(json!({
        "line": "touch begun; until [ -e over ]; do sleep 0.02; done; python3 -c \"$P\" 50",
        "environment": [["P", WITHOUT_A_NAME]],
    }));
    eventually(|| world.folder.join("begun").exists().then_some(()), || "nothing began".to_owned());

    fs::write(world.folder.join("go"), "").expect("written");
    let ended = world.ended();
    assert_eq!((ended.id, ended.end.as_str()), (first, "Exited(0)"), "{ended:?}");
    fs::write(world.folder.join("over"), "").expect("written");
    let ended = world.ended();

    assert_eq!((ended.id, ended.end.as_str()), (second, "OverQuota"), "{ended:?}");
    assert!(ended.stdout.lines().count() < 20, "{ended:?}");
}

#[test]
fn neither_a_command_that_writes_the_same_files_again_and_again_is_ended_nor_one_beside_which_the_host_fills_up() {
    let Some(disk) = Disk::new(1024 * MIB) else { return };
    let mut world = World::on(&disk, |_| {});

    let again = world.run("for i in $(seq 20); do head -c 30M /dev/zero > f; rm f; done; echo all");
    world.ask(json!({ "line": "touch begun; until [ -e go ]; do sleep 0.05; done; sleep 4; echo some > f; echo all" }));
    eventually(|| world.folder.join("begun").exists().then_some(()), || "nothing began".to_owned());
    fs::write(disk.place.join("of the host"), vec![1; 300 << 20]).expect("written");
    fs::write(world.folder.join("go"), "").expect("written");
    let beside = world.ended();

    assert_eq!((again.end.as_str(), again.stdout.as_str()), ("Exited(0)", "all\n"), "{again:?}");
    assert_eq!((beside.end.as_str(), beside.stdout.as_str()), ("Exited(0)", "all\n"), "{beside:?}");
}

#[test]
fn a_tree_of_any_depth_is_counted_while_a_command_fills_it() {
    let Some(disk) = Disk::new(1024 * MIB) else { return };
    let mut world = World::on(&disk, |_| {});
    let names = (1..=12).map(|n| format!("hole{n}")).collect::<Vec<_>>().join(" ");
    let deep = vec!["d"; 1000].join("/");
    world
        .output(&format!("for name in {names}; do truncate -s 60M $name; done; mkdir -p {deep}; echo more > {deep}/f"));

    let holes = python(&mut world, INTO_HOLES, &names);
    let until_then = held(&world);
    for _ in 0..3 {
        let more = python(&mut world, INTO_HOLES, &names);
        assert_eq!(more.end, "Exited(1)", "{more:?}");
        assert!(more.stderr.contains("Permission denied"), "{more:?}");
    }

    assert_eq!(holes.end, "OverQuota", "{holes:?}");
    assert!(until_then < 6 * world.settings.quota, "{until_then}");
    assert!(held(&world) < until_then + MIB, "{until_then} and then {}", held(&world));
    world.output("rm -r hole* d");
    world.output("echo more > more");
}

#[test]
fn a_command_does_not_outrun_the_count_of_its_folder() {
    let Some(disk) = Disk::new(1024 * MIB) else { return };
    let mut world = World::on(&disk, |settings| settings.quota = 100 * MIB);

    let slow = "for n in $(seq 18000); do echo d$n; done | xargs mkdir -m 0";
    let ended = world.run(&format!("{slow}; for n in $(seq 20); do head -c 39M /dev/zero > f$n; echo; done"));

    assert_eq!(ended.end, "OverQuota", "{ended:?}");
    assert!(held(&world) < 4 * world.settings.quota, "{}", held(&world));
}

#[test]
fn where_the_disk_is_nearly_full_only_a_command_that_writes_to_it_is_ended() {
    let Some(disk) = Disk::new(512 * MIB) else { return };
    let mut world = World::on(&disk, |settings| settings.reserve = 200 * MIB);
    world.output("echo enough > f; mkdir -p d/e; cd d/e; for n in $(seq 2000); do echo $n > $n; done");
    fs::write(disk.place.join("of the host"), vec![1; 350 << 20]).expect("written");

    let writes = world.run("head -c 1M /dev/zero > more; sleep 60");
    let writes_not = world.run("sleep 0.5; cat f; echo temporary > /tmp/f");

    let removes = world.run("rm -r d; sleep 0.2");

    assert_eq!(writes.end, "DiskFull", "{writes:?}");
    assert_eq!(removes.end, "Exited(0)", "{removes:?}");
    assert!(!world.folder.join("d").exists());
    assert_eq!((writes_not.end.as_str(), writes_not.stdout.as_str()), ("Exited(0)", "enough\n"), "{writes_not:?}");
    fs::remove_file(disk.place.join("of the host")).expect("removed");
    world.output("echo more > more; sleep 0.5");
}
