//! The script on the host, in each shell that it may run in: what it lets through, and that nothing else does anything.

use crate::support::process::{self, Server};
use crate::support::sshd::{GATE, Host, has_owners};
use crate::support::wait_for;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::time::Duration;

mod table;
mod trouble;

/// The script in each shell that is a `/bin/sh` somewhere.
const SHELLS: &[&[&str]] = &[&["/opt/portcullis/dash"], &["/opt/portcullis/bash"], &["/opt/portcullis/busybox"]];

/// As sshd would start it.
const DIRECT: &[&str] = &[GATE];

/// Answers one request a line: a request for each, of bytes in hex, with whatever the account's home has then.
const DRIVER: &str = r#"
import json, os, subprocess, sys
home = "/home/deploy"
for line in sys.stdin:
    environment = {b"PATH": b"/usr/sbin:/usr/bin:/sbin:/bin", b"LC_ALL": b"C"}
    environment[b"SSH_ORIGINAL_COMMAND"] = bytes.fromhex(line)
    done = subprocess.run(sys.argv[1:], env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    ran = sorted(os.listdir(home))
    for name in ran:
        os.remove(os.path.join(home, name))
    text = lambda output: output.decode("utf-8", "replace")
    print(json.dumps([done.returncode, text(done.stdout), text(done.stderr), ran]), flush=True)
"#;

/// What a request came to.
#[derive(Debug)]
struct Answer {
    status: i64,
    stdout: String,
    stderr: String,
    /// What hooks and hostile requests have left in the account's home.
    ran: Vec<String>,
}

impl Answer {
    /// Refused by the script itself, and nothing has run.
    fn is_refused(&self) -> bool {
        let said = self.stderr.strip_prefix("portcullis-gate: denied: ");
        self.status == 77
            && self.stdout.is_empty()
            && self.ran.is_empty()
            && said.is_some_and(|why| why.len() > 5 && why.find('\n') == Some(why.len() - 1))
    }

    /// Let through and run.
    fn is_allowed(&self) -> bool {
        self.status == 0 && !self.stdout.is_empty() && self.stderr.is_empty()
    }
}

/// A host whose hooks leave a mark when they run.
#[track_caller]
fn host() -> Host {
    let host = Host::new("/bin/sh");
    for name in ["status", "deploy", "restart"] {
        host.hook("project-a", name, &format!("echo of {name} >/home/deploy/ran-{name}; echo {name}"));
    }
    host
}

/// The answers to these requests.
#[track_caller]
fn ask(host: &Host, gate: &[&str], requests: &[Vec<u8>]) -> Vec<Answer> {
    let hex = |bytes: &Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
    let input: String = requests.iter().map(hex).collect();
    let mut driver = host.command(&[&["/usr/bin/python3", "-c", DRIVER], gate].concat());
    let said = process::run_within(Duration::from_secs(300), &mut driver, input.as_bytes()).success();
    let answer = |line: &str| {
        let (status, stdout, stderr, ran) = serde_json::from_str(line).expect("the driver writes JSON");
        Answer { status, stdout, stderr, ran }
    };
    let answers: Vec<Answer> = said.stdout.lines().map(answer).collect();
    assert_eq!(answers.len(), requests.len(), "{}", said.stderr);
    answers
}

/// The script with this request in its environment.
fn asking(request: &str, gate: &[&str]) -> Vec<String> {
    let request = format!("SSH_ORIGINAL_COMMAND={request}");
    let set = ["/usr/bin/env", &request, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"];
    set.iter().chain(gate).map(ToString::to_string).collect()
}

#[track_caller]
fn ask_one(host: &Host, request: &str) -> Answer {
    ask(host, DIRECT, &[request.as_bytes().to_vec()]).remove(0)
}

#[test]
fn both_scripts_are_clean_for_shellcheck() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/ssh/host");

    for script in ["portcullis-gate", "install"] {
        let mut shellcheck = process::command("shellcheck");
        let said = process::run(shellcheck.args(["--shell=sh", script]).current_dir(folder), b"");
        assert!(said.status.success(), "{}", said.stdout);
    }
}

#[test]
fn the_whole_table_is_refused_in_each_shell_and_runs_nothing_and_each_has_an_allowed_twin() {
    let host = host();
    let hostile: Vec<Vec<u8>> = table::HOSTILE.iter().map(|(request, _)| request.to_vec()).collect();
    let twins: BTreeSet<&str> = table::HOSTILE.iter().map(|(_, twin)| *twin).collect();
    let allowed: Vec<Vec<u8>> = twins.iter().map(|twin| twin.as_bytes().to_vec()).collect();
    assert!(hostile.len() >= 100, "{}", hostile.len());

    for gate in SHELLS.iter().chain([&DIRECT]) {
        for (request, answer) in hostile.iter().zip(ask(&host, gate, &hostile)) {
            assert!(answer.is_refused(), "{gate:?}: {:?}: {answer:?}", String::from_utf8_lossy(request));
        }
        for (request, answer) in twins.iter().zip(ask(&host, gate, &allowed)) {
            assert!(answer.is_allowed(), "{gate:?}: {request}: {answer:?}");
            let action = request.split(' ').next().expect("a word");
            let runs = ["status", "deploy", "restart"].contains(&action);
            assert_eq!(answer.ran, if runs { vec![format!("ran-{action}")] } else { vec![] }, "{gate:?}: {request}");
        }
    }
}

#[test]
fn every_byte_that_no_word_has_is_refused_wherever_it_stands() {
    let host = host();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte);
    let places = |byte: u8| {
        let at = |before: &str, after: &str| [before.as_bytes(), &[byte], after.as_bytes()].concat();
        [at("li", "st"), at("list", ""), at("status", "project-a")]
    };
    // NUL is in no environment; a space makes words.
    let bytes = (1..=255).filter(|byte| !is_word(*byte) && *byte != b' ');
    let requests: Vec<Vec<u8>> = bytes.flat_map(places).collect();
    assert!(requests.len() > 500, "{}", requests.len());

    for gate in SHELLS {
        for (request, answer) in requests.iter().zip(ask(&host, gate, &requests)) {
            assert!(answer.is_refused(), "{gate:?}: {:?}: {answer:?}", request.escape_ascii().to_string());
        }
    }
}

#[test]
fn what_is_too_long_is_refused_and_what_is_just_not_is_not() {
    let host = host();
    host.project_log("project-a", &"l".repeat(100), "the longest name\n");
    let log = |n: usize| format!("logs project-a 1 {}", "l".repeat(n)).into_bytes();

    for gate in SHELLS {
        let answers = ask(&host, gate, &[log(100), log(101), vec![b'a'; 513], vec![b'a'; 100_000]]);
        assert!(answers[0].is_allowed(), "{answers:#?}");
        assert!(answers[1..].iter().all(Answer::is_refused), "{answers:#?}");
    }
}

#[test]
fn a_log_is_a_file_below_its_folder_and_nothing_that_leads_out_of_it() {
    let host = host();
    let logs = host.path("projects/project-a/logs");
    std::fs::create_dir_all(logs.join("app/old")).expect("the folder is ours");
    host.project_log("project-a", "app/old/1.log", "deep down\n");
    host.project_log("project-a", "shut", "shut\n");
    process::run(process::command("chmod").arg("000").arg(logs.join("shut")), b"").success();
    process::run(process::command("mkfifo").arg(logs.join("pipe")), b"").success();
    let up = "../../project-b/logs/current.log";
    for (link, to) in [
        ("out", "/etc/passwd"),
        ("folder-out", "/etc"),
        ("up", up),
        ("device", "/dev/zero"),
        ("loop", "loop"),
        ("nothing", "gone"),
        ("proc", "/proc/self/environ"),
        ("in", "app/old/1.log"),
        ("folder-in", "app"),
    ] {
        symlink(to, logs.join(link)).expect("the folder is ours");
    }
    host.open();
    std::fs::create_dir_all(host.path("projects/project-c")).expect("the folder is ours");
    symlink("/etc", host.path("projects/project-c/logs")).expect("the folder is ours");
    host.shut();
    let request = |file: &str| format!("logs project-a 5 {file}").into_bytes();
    let outside = ["out", "folder-out/passwd", "up", "device", "loop", "nothing", "proc", "pipe", "app", "shut"];
    let inside = ["in", "folder-in/old/1.log", "app/old/1.log"];
    let mut refused: Vec<Vec<u8>> = outside.iter().map(|file| request(file)).collect();
    refused.push(b"logs project-c 5 passwd".to_vec());

    for gate in SHELLS {
        for (request, answer) in refused.iter().zip(ask(&host, gate, &refused)) {
            assert!(answer.is_refused(), "{gate:?}: {}: {answer:?}", String::from_utf8_lossy(request));
        }
        for answer in ask(&host, gate, &inside.map(request)) {
            assert!(answer.is_allowed() && answer.stdout == "deep down\n", "{gate:?}: {answer:?}");
        }
    }
}

#[test]
fn a_log_that_becomes_a_link_to_somewhere_else_in_the_middle_gives_nothing_away() {
    let host = host();
    host.write("etc/secret", "a secret\n");
    let logs = host.path("projects/project-a/logs");
    symlink("/etc/secret", logs.join("link")).expect("the folder is ours");
    host.project_log("project-a", "file", "a log\n");
    let requests = vec![b"logs project-a 5 swapped".to_vec(); 150];
    let is_over = std::sync::atomic::AtomicBool::new(false);

    let answers = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                for name in ["link", "file"] {
                    // Hard links: each name is there at any moment, as one or the other.
                    let new = logs.join("new");
                    process::run(process::command("ln").arg("-P").arg(logs.join(name)).arg(&new), b"").success();
                    std::fs::rename(new, logs.join("swapped")).expect("the folder is ours");
                    let _ = std::fs::remove_file(logs.join("new"));
                }
            }
        });
        let answers = ask(&host, SHELLS[0], &requests);
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        answers
    });

    let n_allowed = answers.iter().filter(|answer| answer.is_allowed() && answer.stdout == "a log\n").count();
    let n_refused = answers.iter().filter(|answer| answer.is_refused()).count();
    assert_eq!(n_allowed + n_refused, answers.len(), "{answers:#?}");
    assert!(n_allowed > 0 && n_refused > 0, "{n_allowed} allowed, {n_refused} refused");
}

#[test]
fn what_the_account_could_change_is_not_run() {
    let host = host();
    assert!(ask_one(&host, "status project-a").is_allowed());

    for path in ["hooks/status", "hooks", "."] {
        let path = &format!("project-a/{path}");
        let said = process::run(&mut host.command_with_writable(path, &asking("status project-a", DIRECT)), b"");
        assert_eq!((said.status.code(), said.stdout.as_str()), (Some(77), ""), "{path}: {said:?}");
        assert!(said.stderr.contains("could change"), "{said:?}");
    }
    assert!(!host.path("home/ran-status").exists());
}

#[test]
fn what_the_account_owns_is_not_run_even_if_it_may_not_write_to_it() {
    if !has_owners() {
        // Without root there is one number for all files, the account's; the script's look at owners is out of this host's copy.
        eprintln!("NOT TRIED: whose files are run takes root");
        return;
    }
    let host = host();
    for path in ["project-a/hooks/status", "project-a/hooks", "project-a", ""] {
        host.give_to_account(path);
        for gate in SHELLS {
            let answer = ask(&host, gate, &[b"status project-a".to_vec()]).remove(0);
            assert!(answer.is_refused() && answer.stderr.contains("could change"), "{gate:?}: {path}: {answer:?}");
        }
        host.shut();
        assert!(ask_one(&host, "status project-a").is_allowed(), "{path}");
    }
}

#[test]
fn what_a_link_leads_to_is_not_run() {
    let host = host();
    host.open();
    host.write("etc/mine", "#!/bin/sh\necho mine >/home/deploy/ran-mine\n");
    std::fs::set_permissions(host.path("etc/mine"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    for (link, to) in [
        ("project-a/hooks/deploy", "/etc/mine"),
        ("project-a/hooks/restart", "../../project-b/hooks/restart"),
        ("project-c/hooks", "../project-a/hooks"),
        ("project-d", "project-a"),
    ] {
        let link = host.path("projects").join(link);
        std::fs::create_dir_all(link.parent().expect("a folder")).expect("the folder is ours");
        let _ = std::fs::remove_file(&link);
        symlink(to, link).expect("the folder is ours");
    }
    host.shut();
    let linked = ["deploy project-a", "restart project-a", "status project-c", "status project-d"];

    for gate in SHELLS {
        let requests = linked.map(|request| request.as_bytes().to_vec());
        for (request, answer) in linked.iter().zip(ask(&host, gate, &requests)) {
            assert!(answer.is_refused() && answer.stderr.contains("a link"), "{gate:?}: {request}: {answer:?}");
        }
        assert!(ask(&host, gate, &[b"status project-a".to_vec()])[0].is_allowed());
    }
}

#[test]
fn status_and_outputs_are_the_actions_own() {
    let host = host();
    host.hook("project-a", "status", "echo out; echo warned >&2");
    host.hook("project-a", "deploy", "printf 'no line end'; printf '\\377\\0\\033[2J' >&2; exit 3");
    host.hook("project-a", "restart", "kill -9 $$");

    for gate in SHELLS {
        let requests = ["status project-a", "deploy project-a", "restart project-a", "list", "logs project-a 2"];
        let answers = ask(&host, gate, &requests.map(|request| request.as_bytes().to_vec()));
        let outcome = |n: usize| (answers[n].status, answers[n].stdout.as_str(), answers[n].stderr.as_str());
        assert_eq!(outcome(0), (0, "out\n", "warned\n"));
        assert_eq!(outcome(1), (3, "no line end", "\u{fffd}\0\u{1b}[2J"));
        assert_eq!(outcome(2), (137, "", ""));
        assert_eq!(outcome(3), (0, "project-a\nproject-b\n", ""));
        assert_eq!(outcome(4), (0, "project-a line 299\nproject-a line 300\n", ""));
    }
}

#[test]
fn an_action_gets_an_environment_of_three_and_nothing_open_whatever_came_with_the_request() {
    let host = host();
    let project = host.path("projects/project-a/hooks");
    // Not a script: a shell would add some of its own.
    host.open();
    std::fs::copy("/usr/bin/env", project.join("status")).expect("the folder is ours");
    host.hook("project-a", "restart", "pwd; umask; ls /proc/self/fd; cat");
    let hostile = [
        ("LD_PRELOAD_CANARY", "x"),
        ("PATH", "/home/deploy"),
        ("IFS", "a"),
        ("ENV", "/etc/evil"),
        ("BASH_ENV", "/etc/evil"),
        ("CDPATH", "/etc"),
        ("PS4", "$(touch /home/deploy/ran)"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("POSIXLY_CORRECT", "1"),
        ("BASH_FUNC_echo%%", "() { touch /home/deploy/ran; }"),
        ("BASH_FUNC_cd%%", "() { touch /home/deploy/ran; }"),
        ("BASH_FUNC_[%%", "() { touch /home/deploy/ran; }"),
        ("projects", "/etc"),
        ("quick", "1"),
        ("hook", "/usr/bin/id"),
        ("request", "list"),
        ("plain", "x"),
    ];
    host.write("etc/evil", "touch /home/deploy/ran\n");

    for shell in SHELLS.iter().chain([&DIRECT]) {
        let set: Vec<String> = hostile.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let gate: Vec<&str> =
            [&["/usr/bin/env"], &set.iter().map(String::as_str).collect::<Vec<_>>()[..], shell].concat();
        let answers =
            ask(&host, &gate, &["status project-a", "restart project-a"].map(|request| request.as_bytes().to_vec()));
        assert!(answers.iter().all(|answer| answer.status == 0 && answer.ran.is_empty()), "{answers:#?}");
        let environment = &answers[0].stdout;
        let names: BTreeSet<&str> = environment.lines().filter_map(|line| line.split('=').next()).collect();
        assert_eq!(names, BTreeSet::from(["HOME", "LC_ALL", "PATH"]), "{environment}");
        assert!(environment.contains("LC_ALL=C\n") && environment.contains("HOME=/\n"), "{environment}");
        assert!(!environment.contains("/home/deploy"), "{environment}");
        // 3 is the folder that `ls` looks at.
        assert_eq!(answers[1].stdout, "/\n0022\n0\n1\n2\n3\n");
    }
}

#[test]
fn an_action_whose_time_is_over_ends_with_all_that_it_started() {
    let host = host();
    host.limits(1, 1);
    let mark = "61143";
    let hook = format!("echo so far; (trap '' TERM; exec sleep {mark}) & trap '' TERM; sleep {mark}; sleep {mark}");
    host.hook("project-a", "status", &format!("(trap '' TERM; exec sleep {mark}) & echo so far; sleep {mark}"));
    host.hook("project-a", "deploy", &hook);

    for gate in SHELLS {
        let requests = ["status project-a", "deploy project-a"].map(|request| request.as_bytes().to_vec());
        for answer in ask(&host, gate, &requests) {
            assert_eq!((answer.status, answer.stdout.as_str()), (124, "so far\n"), "{gate:?}: {answer:?}");
            assert_eq!(answer.stderr, "portcullis-gate: ended after 1 s: its time was over\n", "{gate:?}");
        }
    }
    // The driver goes with all of them; what is looked at is that outputs ended, which they hold.
    let other = self::host();
    other.hook("project-a", "status", "exit 124");
    let own = ask_one(&other, "status project-a");
    assert_eq!((own.status, own.stderr.as_str()), (124, ""), "its own status: {own:?}");
}

/// The script, running this for a client that can leave. It says `ended` when the script has; other processes go on then.
#[track_caller]
fn running(host: &Host, gate: &[&str], request: &str) -> Server {
    let outlived = ["/bin/sh", "-c", "\"$@\"; echo \"ended $?\"; exec tail -f /dev/null", "sh"];
    let words = asking(request, gate);
    let words: Vec<&str> = outlived.into_iter().chain(words.iter().map(String::as_str)).collect();
    Server::spawn_listening("the script", &mut host.command(&words))
}

fn processes(mark: &str) -> usize {
    super::processes(mark).len()
}

#[test]
fn an_action_ends_when_a_client_leaves_that_wanted_to_stay_and_only_then() {
    let host = host();
    for (n, gate) in SHELLS.iter().enumerate() {
        let mark = format!("61144{n}");
        host.hook("project-a", "status", &format!("(trap '' TERM; exec sleep {mark}) & echo begun; sleep {mark}"));
        let mut stays = running(&host, gate, "status project-a");
        stays.say("stay\n");
        stays.line("begun").expect("it begins");
        wait_for("all of it", || processes(&mark) == 2);
        stays.hang_up();
        assert_eq!(stays.line("ended ").as_deref(), Ok("143"));
        wait_for("the end of all of it", || processes(&mark) == 0);

        for said in ["", "stay", "stays\n", "STAY\n", " stay\n", "\nstay\n", "stay\r\n"] {
            host.hook("project-a", "status", "until [ -e /home/deploy/go ]; do sleep 0.02; done; echo done");
            let mut other = running(&host, gate, "status project-a");
            other.say(said);
            other.hang_up();
            host.write("home/go", "");
            other.line("done").unwrap_or_else(|why| panic!("{said:?}: {why}"));
            assert_eq!(other.line("ended ").as_deref(), Ok("0"), "{said:?}");
            std::fs::remove_file(host.path("home/go")).expect("the folder is ours");
        }
    }
}

#[test]
fn a_deploy_runs_to_its_end_whoever_leaves() {
    let host = host();
    let hook = "echo begun; until [ -e /home/deploy/go ]; do sleep 0.02; done
        for n in $(seq 30); do echo $n || exit 9; echo $n >&2 || exit 9; done; touch /home/deploy/done";
    host.hook("project-a", "deploy", hook);

    for gate in SHELLS {
        // Whoever reads it leaves after a word, and nobody says anything.
        let words = asking("deploy project-a", gate);
        let leaves = ["/bin/sh", "-c", "\"$@\" </dev/null 2>&1 | head -n 1", "sh"].map(str::to_owned);
        let mut client = Server::spawn("a client", &mut host.command(&[&leaves[..], &words].concat()));
        client.line("begun").expect("it begins");
        host.write("home/go", "");
        wait_for("its end", || host.path("home/done").exists());
        for name in ["go", "done"] {
            std::fs::remove_file(host.path(&format!("home/{name}"))).expect("the folder is ours");
        }
    }
}

#[test]
fn what_a_client_may_not_write_reaches_neither_the_answer_nor_the_log() {
    let host = host();
    let answer = ask(&host, DIRECT, &[b"list\nportcullis-gate: allowed: deploy".to_vec(), b"\x1b[2Jcanary".to_vec()]);
    let plain = ask_one(&host, "status project-z");

    assert!(answer.iter().all(|answer| answer.is_refused() && !answer.stderr.contains("canary")), "{answer:?}");
    assert!(plain.is_refused());
    wait_for("the log", || host.syslog().len() >= 3);
    let log = host.syslog();
    assert!(log.iter().all(|line| !line.contains("canary") && !line.contains("allowed")), "{log:#?}");
    assert!(log.iter().any(|line| line.ends_with("denied: there is no such project: status project-z")), "{log:#?}");
}

#[test]
fn a_system_log_that_takes_nothing_keeps_nobody_waiting() {
    let host = host();
    host.stop_syslog();
    let requests = vec![b"deploy project-a".to_vec(); 30];

    // Linux keeps ten messages for a socket that nobody reads, if nobody has changed that.
    for answer in ask(&host, DIRECT, &requests) {
        assert!(answer.is_allowed(), "{answer:?}");
    }
}
