//! The script where something is not as it should be: on the host, or in what it was started with.

use super::{DIRECT, SHELLS, ask, host, running};
use crate::support::process;

/// Runs the rest of its arguments where no process can be made.
const WITHOUT_PROCESSES: &str = r#"
import ctypes, os, struct, sys
# clone, fork, vfork and clone3: not enough memory (a shell tries again if it is told that there are too many).
numbers = {"x86_64": [56, 57, 58, 435], "aarch64": [220, 435]}[os.uname().machine]
step = lambda code, yes, no, value: struct.pack("HBBI", code, yes, no, value)
filter = step(0x20, 0, 0, 0)
for n, number in enumerate(numbers):
    filter += step(0x15, len(numbers) - n, 0, number)
filter += step(0x06, 0, 0, 0x7FFF0000) + step(0x06, 0, 0, 0x50000 | 12)
memory = ctypes.create_string_buffer(filter)
program = struct.pack("HxxxxxxP", len(filter) // 8, ctypes.addressof(memory))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

const REQUESTS: [&str; 5] = ["list", "status project-a", "logs project-a 2", "deploy project-a", "restart project-a"];

fn requests() -> Vec<Vec<u8>> {
    REQUESTS.iter().map(|request| request.as_bytes().to_vec()).collect()
}

#[test]
fn a_pipe_that_takes_the_place_of_a_log_keeps_nobody_longer_than_any_action() {
    let host = host();
    let pipe = host.path("projects/project-a/logs/pipe");
    process::run(process::command("mkfifo").arg(pipe), b"").success();
    // As if it had been a file a moment ago, when that was looked at.
    host.edit_script("[ ! -f \"$log\" ] || ", "");

    for gate in SHELLS {
        let mut stays = running(&host, gate, "logs project-a 2 pipe");
        stays.say("stay\n");
        stays.hang_up();
        assert_eq!(stays.line("ended ").as_deref(), Ok("143"), "{gate:?}");
    }
    host.limits(1, 1);
    for gate in SHELLS {
        let answers = ask(&host, gate, &[b"logs project-a 2 pipe".to_vec(), b"logs project-a 2".to_vec()]);
        assert_eq!((answers[0].status, answers[0].stdout.as_str()), (124, ""), "{gate:?}: {answers:?}");
        assert_eq!(answers[0].stderr, "portcullis-gate: ended after 1 s: its time was over\n", "{gate:?}");
        assert!(answers[1].is_allowed(), "{gate:?}: {answers:?}");
    }
}

#[test]
fn a_deploy_that_leaves_its_outputs_to_something_that_stays_has_ended_when_it_ends() {
    let host = host();
    // The script ends, and nobody's standard output keeps it; the limit is far away.
    host.hook("project-a", "deploy", "setsid sleep 61145 & echo deployed; echo warned >&2; exit 3");

    for gate in SHELLS {
        let mut client = running(&host, gate, "deploy project-a");
        client.line("deployed").expect("it says so");
        assert_eq!(client.line("ended ").as_deref(), Ok("3"), "{gate:?}");
    }
}

#[test]
fn descriptors_that_are_closed_change_neither_what_runs_nor_what_is_refused() {
    let host = host();
    for gate in SHELLS.iter().chain([&DIRECT]) {
        for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"] {
            let exec = format!("exec \"$@\" {closed}");
            let gate = [&["/bin/sh", "-c", &exec, "sh"], *gate].concat();
            for (request, answer) in REQUESTS.iter().zip(ask(&host, &gate, &requests())) {
                assert_eq!((answer.status, answer.stderr.as_str()), (0, ""), "{gate:?}: {request}: {answer:?}");
                assert_eq!(answer.stdout.is_empty(), closed.contains(" >") || closed.starts_with('>'), "{answer:?}");
            }
            let refused = ask(&host, &gate, &[b"id".to_vec()]).remove(0);
            let is_told = !closed.contains('2');
            assert!(if is_told { refused.is_refused() } else { refused.status == 77 }, "{gate:?}: {refused:?}");
        }
    }
}

#[test]
fn where_no_process_can_be_made_everything_is_refused() {
    let host = host();
    for gate in SHELLS.iter().chain([&DIRECT]) {
        let gate = [&["/usr/bin/python3", "-c", WITHOUT_PROCESSES], *gate].concat();
        for (request, answer) in REQUESTS.iter().zip(ask(&host, &gate, &requests())) {
            assert!(answer.is_refused(), "{gate:?}: {request}: {answer:?}");
        }
    }
}
