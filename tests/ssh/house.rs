//! The upstream's process: a user of its own, the credential in its memory alone, and nothing of anybody else's.

use super::{EVERYTHING, alice, both_modes, config, started, status, structured, upstream_id};
use crate::support::canary::Canary;
use crate::support::gateway::{Gateway, Launch};
use crate::support::sshd::Sshd;
use std::os::unix::fs::PermissionsExt as _;

/// The middle of a private key, as its file has it.
fn canary(key: &std::path::Path) -> Canary {
    let text = std::fs::read_to_string(key).expect("it is there");
    let body: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    Canary::new("a private key", &body[body.len() / 2..body.len() / 2 + 48])
}

#[test]
fn b77_an_action_and_its_upstream_see_nothing_of_the_gateways_environment_and_descriptors() {
    let secret = "canary-6c1f0e";
    let names = ["CANARY_SECRET", "AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "LD_LIBRARY_PATH", "SSH_AUTH_SOCK"];
    for setup in both_modes() {
        let sshd = setup.start();
        // Not a script: a shell would add some of its own.
        sshd.host().open();
        std::fs::copy("/usr/bin/env", sshd.projects().join("project-a/hooks/status")).expect("the folder is ours");
        sshd.hook("project-b", "status", "ls /proc/self/fd; pwd");
        let launch = Launch::new(&config(&sshd.settings(), EVERYTHING, ""));
        let gateway = started(names.iter().fold(launch, |launch, name| launch.env(name, secret)));
        let agent = alice(&gateway);

        let environment = structured(&status(&agent, "project-a"))["stdout"].as_str().unwrap_or_default().to_owned();
        let mut variables: Vec<&str> = environment.lines().filter_map(|line| line.split('=').next()).collect();
        variables.sort_unstable();
        assert_eq!(variables, ["HOME", "LC_ALL", "PATH"], "{environment}");
        // Three of its own, and the folder that `ls` looks at.
        assert_eq!(structured(&status(&agent, "project-b"))["stdout"], "0\n1\n2\n3\n/\n");

        let upstream = upstream_id(&gateway);
        let of_upstream = std::fs::read(format!("/proc/{upstream}/environ")).expect("we are root");
        assert!(!String::from_utf8_lossy(&of_upstream).contains(secret));
        let links = std::fs::read_dir(format!("/proc/{upstream}/fd")).expect("we are root").flatten();
        let links: Vec<String> = links
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .map(|to| to.display().to_string())
            .collect();
        let is_file = |to: &&String| to.starts_with('/') && !to.starts_with("/dev/");
        assert_eq!(links.iter().filter(is_file).collect::<Vec<_>>(), Vec::<&String>::new(), "{links:?}");
    }
}

#[test]
fn the_credential_is_in_no_log_no_answer_and_no_command_line() {
    for setup in both_modes() {
        let sshd = setup.start();
        let gateway = started(Launch::new(&config(&sshd.settings(), EVERYTHING, "")));
        let answer = status(&alice(&gateway), "project-a");
        assert_eq!(structured(&answer)["exit_code"], 0);

        for canary in [canary(&sshd.key()), canary(&sshd.authority())] {
            canary.assert_absent("the gateway's log", &gateway.log());
            canary.assert_absent("the audit log", &gateway.audit_text());
            canary.assert_absent("an answer", &answer.message.to_string());
            canary.assert_absent("the metrics", &gateway.observe("/metrics").text());
            for id in [gateway.id(), upstream_id(&gateway)] {
                for file in ["cmdline", "environ"] {
                    let text = std::fs::read(format!("/proc/{id}/{file}")).expect("we are root");
                    canary.assert_absent(file, &String::from_utf8_lossy(&text));
                }
            }
        }
    }
}

#[test]
fn the_upstream_of_a_root_gateway_is_a_user_of_its_own_whose_memory_nobody_reads() {
    let sshd = Sshd::restricted().start();
    let gateway = started(Launch::new(&config(&sshd.settings(), EVERYTHING, "")));
    let upstream = upstream_id(&gateway);

    let status = std::fs::read_to_string(format!("/proc/{upstream}/status")).expect("it runs");
    let ids = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a status has it");
        line.split_whitespace().map(|id| id.parse().expect("a number")).collect::<Vec<u32>>()
    };
    assert!(ids("Uid:").iter().all(|id| (70_000..90_000).contains(id)), "{status}");
    assert!(ids("Gid:").iter().all(|id| (70_000..90_000).contains(id)), "{status}");
    assert_eq!(ids("Groups:"), Vec::<u32>::new());
    let about = std::fs::metadata(format!("/proc/{upstream}/environ")).expect("it runs");
    // Files of a process that is not dumpable belong to root, whoever it runs as.
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&about), 0);
    // The file that holds the key is root's; the process got what is in it.
    let mode = std::fs::metadata(sshd.key()).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn u_19_what_a_user_has_set_up_for_ssh_is_not_looked_at() {
    let sshd = Sshd::restricted().start();
    let evil = "Host *\n  ProxyCommand touch @/home/ran\n  ForwardAgent yes\n  ForwardX11 yes\n  SendEnv *\n\
                LocalCommand touch @/home/ran\n  PermitLocalCommand yes\n  StrictHostKeyChecking no\n";
    let launch = Launch::new(&config(&sshd.settings(), EVERYTHING, ""));
    let home = launch.path("");
    let ran = home.join("home/ran");
    let launch = launch.file("home/.ssh/config", evil.replace('@', &home.display().to_string()));
    let agent_socket = home.join("home/agent");
    let listener = std::os::unix::net::UnixListener::bind(&agent_socket).expect("the folder is ours");
    listener.set_nonblocking(true).expect("Linux knows it");
    let launch = launch.env("HOME", &home.join("home").display().to_string());
    let gateway: Gateway = started(launch.env("SSH_AUTH_SOCK", &agent_socket.display().to_string()));

    assert_eq!(structured(&status(&alice(&gateway), "project-a"))["exit_code"], 0);

    assert!(!ran.exists());
    assert_eq!(listener.accept().map(drop).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    assert!(!sshd.log().contains("agent"), "{}", sshd.log());
}
