//! What is left of commands: nothing.

use crate::world::{World, eventually};
use portcullis_sandbox::confine::sweep;
use serde_json::json;

#[test]
fn of_fifty_commands_at_once_nothing_is_left() {
    let mut world = World::with(|settings| settings.at_once = 50);

    for n in 0..50 {
        world.ask(json!({ "line": format!("(setsid sleep 1000 &); echo {n} > f{n}; cat f{n}") }));
    }
    let ended: Vec<_> = (0..50).map(|_| world.ended()).collect();

    for ended in ended {
        assert_eq!(
            (ended.end.as_str(), ended.stdout.trim()),
            ("Exited(0)", (ended.id - 1).to_string().as_str()),
            "{ended:?}"
        );
    }
    world.assert_nothing_left();
}

#[test]
fn of_a_command_that_nobody_waits_for_any_more_nothing_is_left() {
    let mut world = World::new();

    world.ask(json!({ "line": "trap '' TERM; setsid sleep 1000 & echo begun; sleep 1000", "drop_at": "begun" }));
    let ended = world.ended();

    assert_eq!(ended.end, "Dropped");
    world.assert_nothing_left();
    assert_eq!(world.output("echo still here"), "still here\n");
}

#[test]
fn of_a_process_that_was_killed_no_command_is_left_and_its_cgroups_can_be_swept() {
    let mut world = World::new();
    for _ in 0..3 {
        world.ask(json!({ "line": "touch begun; trap '' TERM HUP; setsid sleep 1000 & sleep 1000" }));
    }
    eventually(|| world.folder.join("begun").exists().then_some(()), || "nothing began".to_owned());

    world.kill();

    eventually(|| world.processes().is_empty().then_some(()), || format!("left: {:?}", world.processes()));
    sweep(&world.settings.cgroup).expect("swept");
    world.assert_nothing_left();
}

#[test]
fn what_a_sweep_finds_is_ended() {
    let mut world = World::new();
    if !world.has_cgroups() {
        return;
    }
    let id = world.ask(json!({ "line": "touch begun; sleep 1000" }));
    eventually(|| world.folder.join("begun").exists().then_some(()), || "nothing began".to_owned());
    assert!(!world.leaves().is_empty());

    sweep(&world.settings.cgroup).expect("swept");

    assert_eq!(world.leaves(), Vec::<std::path::PathBuf>::new());
    let ended = world.ended();
    assert_eq!((ended.id, ended.end.as_str()), (id, "Signalled(9)"));
    world.assert_nothing_left();
}

#[test]
fn what_cannot_be_confined_is_not_run_and_the_reason_says_what_to_do() {
    let missing = || Some("/nowhere/bwrap".into());
    let no_bwrap = World::refused(|settings| {
        settings.backend = portcullis_sandbox::settings::Backend::Bubblewrap { program: missing() };
    });
    let no_folder = World::refused(|settings| settings.read_only = vec!["/nowhere".into()]);
    let covers = ["/", "/etc", "/proc/sys", "/workspace/x"].map(|place| {
        let said = World::refused(|settings| settings.read_only = vec![place.into()]);
        (place, said)
    });
    let no_cgroup = World::refused(|settings| {
        settings.cgroup = portcullis_sandbox::settings::Cgroup::V2("/sys/fs/cgroup/nowhere".into());
    });
    let no_memory = World::refused(|settings| settings.memory = 64 * 1024);

    assert!(no_bwrap.contains("/nowhere/bwrap cannot be run"), "{no_bwrap}");
    assert!(no_folder.contains("`read_only`: /nowhere is not there"), "{no_folder}");
    for (place, said) in covers {
        assert!(said.contains("`read_only`: /"), "{place}: {said}");
    }
    assert!(no_cgroup.contains("Delegate=memory pids cpu"), "{no_cgroup}");
    assert!(no_memory.contains("`memory` is too small"), "{no_memory}");
}
