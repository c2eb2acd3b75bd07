//! How commands end.

use crate::world::{MIB, World};
use serde_json::json;
use std::fs;

#[test]
fn a_command_ends_with_a_status_or_by_a_signal_and_the_two_are_told_apart() {
    let mut world = World::new();

    for (line, end) in [
        ("exit 0", "Exited(0)"),
        ("exit 3", "Exited(3)"),
        ("exit 137", "Exited(137)"),
        ("kill -KILL $$", "Signalled(9)"),
        ("kill -SEGV $$", "Signalled(11)"),
        ("no-such-program", "Exited(127)"),
    ] {
        assert_eq!(world.run(line).end, end, "{line}");
    }
}

#[test]
fn what_a_command_is_given_comes_in_and_what_it_writes_comes_out_apart() {
    let mut world = World::with(|settings| {
        settings.environment = [("OF", "the settings"), ("BOTH", "the settings")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    });
    world.output("mkdir -p a/b");

    world.ask(json!({
        "line": "cat; pwd; echo \"$OF, $BOTH\"; echo apart >&2",
        "cwd": "a/b",
        "stdin": "in\n",
        "environment": [["BOTH", "the call"]],
    }));
    let ended = world.ended();

    assert_eq!(ended.stdout, "in\n/workspace/a/b\nthe settings, the call\n");
    assert_eq!(ended.stderr, "apart\n");
    assert_eq!(world.output("cat | wc -c"), "0\n");
}

#[test]
fn the_program_that_confines_need_not_be_where_it_was_when_it_was_started() {
    for mode in [0o700, 0o755] {
        assert_eq!(World::hidden(mode).output("echo confined; ls /run"), "confined\n");
    }
    let (mut world, _folder) = World::elsewhere(0o755);
    assert_eq!(world.output("ls /run"), "portcullis\n");
}

#[test]
fn what_cannot_be_started_says_so_and_runs_nothing() {
    let mut world = World::new();
    fs::write(world.folder.join("file"), "").expect("written");

    for (command, why) in [
        (json!({ "line": "touch ran", "cwd": "nowhere" }), "/workspace/nowhere"),
        (json!({ "line": "touch ran", "cwd": "file" }), "/workspace/file is not a folder"),
        (json!({ "line": format!("touch ran; : {}", "x".repeat(200_000)) }), "Argument list too long"),
    ] {
        world.ask(command);
        let ended = world.ended();

        assert!(ended.error.starts_with("the command could not be started: "), "{ended:?}");
        assert!(ended.error.contains(why), "{ended:?}");
        assert!(!world.folder.join("ran").exists());
    }
    world.output("touch ran");
    assert!(world.folder.join("ran").exists());
    world.assert_nothing_left();
}

#[test]
fn a_command_whose_time_is_over_is_asked_to_end_and_then_killed() {
    let mut world = World::new();

    world
        .ask(json!({ "line": "trap 'echo last words; exit 0' TERM; while :; do sleep 0.05; done", "timeout_ms": 500 }));
    let asked = world.ended();
    world.ask(json!({ "line": "trap '' TERM; (trap '' TERM; setsid sleep 1000) & while :; do sleep 1; done", "timeout_ms": 500 }));
    let killed = world.ended();

    assert_eq!((asked.end.as_str(), asked.stdout.as_str()), ("TimedOut", "last words\n"));
    assert_eq!(killed.end, "TimedOut");
    world.assert_nothing_left();
}

#[test]
fn a_command_that_is_taken_back_ends_though_it_ignores_what_asks_it_to() {
    let mut world = World::new();

    world.ask(json!({ "line": "trap '' TERM; echo begun; while :; do sleep 1; done", "cancel_at": "begun" }));
    let ended = world.ended();

    assert_eq!((ended.end.as_str(), ended.stdout.as_str()), ("Cancelled", "begun\n"));
    world.assert_nothing_left();
}

#[test]
fn a_command_that_waits_for_its_turn_can_be_taken_back_and_one_that_does_not_gets_it() {
    let mut world = World::with(|settings| settings.at_once = 1);
    let first = world.ask(json!({ "line": "until [ -e go ]; do sleep 0.05; done" }));
    let taken_back = world.ask(json!({ "line": "touch ran", "cancel_now": true }));
    let ended = world.ended();
    assert_eq!((ended.id, ended.end.as_str()), (taken_back, "Cancelled"));

    let second = world.ask(json!({ "line": "echo second" }));
    fs::write(world.folder.join("go"), "").expect("written");
    let ended = [world.ended(), world.ended()];

    assert_eq!(ended.each_ref().map(|ended| ended.id), [first, second]);
    assert_eq!(ended.each_ref().map(|ended| ended.end.as_str()), ["Exited(0)", "Exited(0)"]);
    assert!(!world.folder.join("ran").exists());
}

#[test]
fn a_command_that_takes_more_memory_than_it_may_is_ended_with_all_it_started() {
    let mut world = World::new();
    if !world.has_cgroups() {
        return;
    }

    let enough = world.run("python3 -c 'print(len(bytearray(100 << 20)))'");
    let too_much = world.run("python3 -c 'bytearray(1 << 30)'; echo went on; sleep 1000");
    let together = world
        .run("for i in 1 2 3 4; do python3 -c 'import time; b = bytearray(90 << 20); time.sleep(1000)' & done; wait");
    let in_tmp =
        world.run("python3 -c 'bytearray(200 << 20); open(\"/tmp/f\", \"wb\").write(bytes(30 << 20)); print(1)'");

    assert_eq!((enough.end.as_str(), enough.stdout.as_str()), ("Exited(0)", "104857600\n"));
    assert_eq!((too_much.end.as_str(), too_much.stdout.as_str()), ("OutOfMemory", ""));
    assert_eq!(together.end, "OutOfMemory");
    assert_eq!(in_tmp.end, "Exited(0)");
    world.assert_nothing_left();
}

#[test]
fn without_cgroups_each_process_has_its_memory_limited() {
    let mut world = World::with(|settings| settings.cgroup = portcullis_sandbox::settings::Cgroup::Off);

    let ended = world.run("python3 -c 'bytearray(1 << 30)'");
    let small = world.run("python3 -c 'print(len(bytearray(100 << 20)))'");
    // What a shell runs before its line.
    fs::write(world.folder.join("first"), "if [ -z \"$A\" ]; then A=1 ulimit -v; fi").expect("written");
    world.ask(json!({
        "line": "echo \"$B\"; ulimit -Hv",
        "environment": [["BASH_ENV", "/workspace/first"], ["B", "b = \"$(c)\"\n-d"]],
    }));
    let before = world.ended();

    let limit = world.settings.memory / 1024;
    assert_eq!(before.stdout, format!("{limit}\nb = \"$(c)\"\n-d\n{limit}\n"), "{before:?}");
    assert_eq!(ended.end, "Exited(1)");
    assert!(ended.stderr.contains("MemoryError"), "{ended:?}");
    assert_eq!(small.stdout, "104857600\n");
}

#[test]
fn a_command_that_fills_its_folder_is_ended_and_the_next_ones_may_only_remove() {
    let mut world = World::new();
    let half = world.run("head -c 30M /dev/zero > half");
    assert_eq!(half.end, "Exited(0)", "{half:?}");

    let flood = world.run("for i in $(seq 10000); do head -c 1M /dev/zero > f$i; done; echo all");

    assert_eq!((flood.end.as_str(), flood.stdout.as_str()), ("OverQuota", ""));
    let held = portcullis_sandbox::workspace::usage(
        std::os::fd::AsFd::as_fd(&fs::File::open(&world.folder).expect("opened")),
        u64::MAX,
    );
    let held = held.expect("counted").bytes;
    assert!(held > world.settings.quota && held < 8 * world.settings.quota, "{held}");
    let more = world.run("echo more > more");
    assert_ne!(more.end, "Exited(0)");
    assert_eq!(fs::read(world.folder.join("more")).unwrap_or_default(), b"");
    world.output("rm -f f* half");
    world.output("echo more > more");
    assert_eq!(fs::read(world.folder.join("more")).expect("written"), b"more\n");
}

#[test]
fn one_file_ends_at_the_quota() {
    let mut world = World::with(|settings| settings.quota = 8 * MIB);

    let ended = world.run("head -c 100M /dev/zero > file");

    // 128 + SIGXFSZ, if nobody was faster.
    assert!(["Exited(153)", "OverQuota"].contains(&ended.end.as_str()), "{ended:?}");
    assert!(fs::metadata(world.folder.join("file")).expect("there").len() <= 8 * MIB);
}

#[test]
fn a_hundred_megabytes_of_output_are_counted_and_their_middle_is_left_out() {
    let mut world = World::new();

    let ended = world.run("echo first; yes | head -c 100000000; echo last; exit 4");

    assert_eq!(ended.end, "Exited(4)");
    assert_eq!(ended.stdout_total, 100_000_000 + 11);
    assert_eq!((ended.stdout.len(), ended.stdout_tail.len()), (32 * 1024, 32 * 1024));
    assert!(ended.stdout.starts_with("first\ny\n"));
    assert!(ended.stdout_tail.ends_with("y\nlast\n"));
}

#[test]
fn a_command_ends_when_it_ends_whatever_of_it_still_holds_its_output() {
    let mut world = World::new();

    let ended = world.run("(trap '' TERM HUP; setsid sh -c 'sleep 1000; echo late') & echo done");

    assert_eq!((ended.end.as_str(), ended.stdout.as_str()), ("Exited(0)", "done\n"));
    world.assert_nothing_left();
}
