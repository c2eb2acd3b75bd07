//! The host that these tests stand on is one: a real server, an account that runs one script, and ways to break it.

use crate::support::process;
use crate::support::sshd::{Setup, Sshd};
use crate::support::wait_for;
use std::path::Path;

/// The status of what `ssh` came to, and its outputs.
#[track_caller]
fn ssh(sshd: &Sshd, action: &[&str]) -> (Option<i32>, String, String) {
    let done = process::run(&mut sshd.ssh(&[], action), b"");
    (done.status.code(), done.stdout, done.stderr)
}

#[test]
fn a_restricted_key_runs_the_script_and_nothing_else() {
    let sshd = Sshd::restricted().start();

    let (status, stdout, stderr) = ssh(&sshd, &["status project-a"]);
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "project-a runs\n", ""), "{}", sshd.log());
    let refused = ssh(&sshd, &["id"]);
    assert_eq!((refused.0, refused.1.as_str()), (Some(77), ""), "{refused:?}");
    assert!(refused.2.starts_with("portcullis-gate: denied: "), "{refused:?}");

    let sessions = sshd.sessions();
    assert_eq!(sessions.len(), 2, "{}", sshd.log());
    assert!(sessions.iter().all(|it| it.what.starts_with("forced-command (key-option)")), "{sessions:#?}");
    wait_for("the script's own log", || {
        let told = sshd.gate_log();
        told.iter().any(|line| line.ends_with("allowed: status project-a"))
            && told.iter().any(|line| line.contains("denied: "))
    });
    assert_eq!(sshd.n_connections(), 2);
}

#[test]
fn a_server_can_end_and_start_again_and_stop_where_it_is_and_be_another() {
    let mut sshd = Sshd::restricted().start();

    sshd.kill();
    assert!(!sshd.is_up());
    assert_eq!(ssh(&sshd, &["list"]).0, Some(255));
    sshd.start();
    assert_eq!(ssh(&sshd, &["list"]).1, "project-a\nproject-b\n");
    sshd.with_other_host_key();
    let refused = ssh(&sshd, &["list"]);
    assert!(refused.0 == Some(255) && refused.2.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"), "{refused:?}");
    sshd.with_its_host_key();
    assert_eq!(ssh(&sshd, &["list"]).0, Some(0));
    sshd.freeze();
    let waits = process::run(&mut sshd.ssh(&["-o", "ConnectTimeout=1"], &["list"]), b"");
    sshd.thaw();
    assert_eq!(waits.status.code(), Some(255), "{waits:?}");
    assert_eq!(ssh(&sshd, &["list"]).0, Some(0));

    let all = sshd.processes();
    assert!(!all.is_empty());
    drop(sshd);
    assert!(all.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists()));
}

#[test]
fn a_certificate_of_the_authority_runs_the_script_and_its_name_is_in_the_servers_log() {
    for (setup, forced) in [(Sshd::certificates(), true), (Sshd::without_force_command(), false)] {
        let sshd = setup.start();
        let certified = |principal: &str| {
            sshd.certify(principal);
            ssh(&sshd, &["echo", "list"])
        };

        let stranger = certified("stranger");
        let (status, stdout, stderr) = certified("portcullis");

        assert_eq!((stranger.0, stranger.1.as_str()), (Some(255), ""), "{stranger:?}");
        if forced {
            assert_eq!((status, stdout.as_str()), (Some(77), ""), "{stderr}");
        } else {
            assert_eq!((status, stdout.as_str()), (Some(0), "list\n"), "{stderr}{}", sshd.log());
        }
        let sessions = sshd.sessions();
        assert_eq!(sessions.len(), 1, "{}", sshd.log());
        assert_eq!(sessions[0].key_id.as_deref(), Some("r_1/h_2 deploy project-b"), "{}", sshd.log());
        assert_eq!(sessions[0].what.starts_with("forced-command (config)"), forced, "{sessions:?}");
    }
}

#[test]
fn a_loose_host_is_loose() {
    let port = |setup: Setup| {
        let sshd = setup.start();
        let forward = format!("127.0.0.1:{}", sshd.port);
        // What answers is the server behind it: itself.
        let through = process::run(&mut sshd.ssh(&["-W", &forward], &[]), b"");
        through.stdout.contains("SSH-2.0-OpenSSH")
    };

    assert!(port(Sshd::without_restrict()));
    assert!(!port(Sshd::restricted()));
    for (setup, gets) in [(Sshd::restricted().accepting_env(), true), (Sshd::restricted(), false)] {
        let sshd = setup.shell("/bin/bash").start();
        // The login shell is bash, which takes it for its own.
        let said = process::run(&mut sshd.ssh(&["-o", "SetEnv=SHELLOPTS=xtrace"], &["list"]), b"");
        assert_eq!(said.stdout, "project-a\nproject-b\n");
        assert_eq!(said.stderr.contains("portcullis-gate"), gets, "{said:?}");
    }
}

#[test]
fn u_20_whatever_a_client_of_openssh_asks_for_the_script_is_what_runs() {
    let sshd = Sshd::restricted().line("Subsystem netconf /bin/sh").start();
    let file = sshd.key().with_file_name("file");
    std::fs::write(&file, "x").expect("the folder is the test's");
    let key = sshd.key().display().to_string();
    let (known, port) = (format!("UserKnownHostsFile={}", sshd.known_hosts().display()), sshd.port.to_string());
    let common = ["-F", "none", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", &known, "-i", &key];
    let copy = |program: &str, more: &[&str]| {
        let mut command = process::command(program);
        command.args(common).args(["-P", &port]).args(more).current_dir(sshd.key().parent().expect("a folder"));
        process::run(&mut command, b"put file\nget /etc/passwd\n")
    };
    let over = format!("ssh -F none -o BatchMode=yes -o IdentitiesOnly=yes -o {known} -i {key} -p {port}");
    let rsync = || {
        let mut command = process::command("rsync");
        command.args(["-e", &over]).arg(&file).arg("deploy@127.0.0.1:file");
        process::run(&mut command, b"")
    };
    let forward = format!("9:127.0.0.1:{}", sshd.port);
    let denied = "portcullis-gate: denied: ";
    let asked = |options: &[&str], action: &[&str]| process::run(&mut sshd.ssh(options, action), b"id\n");

    for (what, said, refusal) in [
        ("a shell", asked(&[], &[]), denied),
        ("a command", asked(&[], &["touch /home/deploy/canary"]), denied),
        // The client does without what it was not given, but not without this.
        ("a terminal", asked(&["-tt"], &["list"]), "PTY allocation request failed"),
        // sshd keeps what a subsystem says on stderr to itself.
        ("the subsystem sftp", asked(&["-s"], &["sftp"]), ""),
        ("another subsystem", asked(&["-s"], &["netconf"]), ""),
        ("an environment", asked(&["-o", "SetEnv=SSH_ORIGINAL_COMMAND=list"], &["id"]), denied),
        ("an agent", asked(&["-A"], &["id"]), denied),
        ("X11", asked(&["-X"], &["id"]), denied),
        ("a forwarded port there", asked(&["-R", &forward], &["id"]), denied),
        ("scp", copy("scp", &["file", "deploy@127.0.0.1:file"]), ""),
        ("scp of old", copy("scp", &["-O", "file", "deploy@127.0.0.1:file"]), denied),
        ("sftp", copy("sftp", &["deploy@127.0.0.1"]), ""),
        ("rsync", rsync(), denied),
    ] {
        assert!(!said.status.success(), "{what}: {said:?}");
        assert!(said.stderr.contains(refusal), "{what}: {said:?}");
        assert!(!said.stdout.contains("uid="), "{what}: {said:?}");
    }
    // Where a client is not told, the host's own log is: all of them but the terminal got to the script.
    wait_for("the script's own log", || sshd.gate_log().iter().filter(|line| line.contains("denied: ")).count() == 12);
    let home: Vec<_> = std::fs::read_dir(sshd.home()).expect("it is there").flatten().collect();
    assert!(home.is_empty(), "{home:?}");
    assert!(sshd.sessions().iter().all(|it| it.what.starts_with("forced-command (key-option)")), "{}", sshd.log());
    assert_eq!(ssh(&sshd, &["list"]).1, "project-a\nproject-b\n");
}
