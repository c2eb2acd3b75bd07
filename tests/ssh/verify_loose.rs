//! `portcullis verify ssh` on hosts that are almost held: each lets one thing through, and that is said.

use super::verify::{Found, findings, findings_with, only_these_fail, script, with};
use crate::support::sshd::Sshd;
use std::os::unix::fs::PermissionsExt as _;

/// A host whose script is the shipped one, behind these lines.
#[track_caller]
fn host(lines: &str) -> Sshd {
    let sshd = Sshd::restricted().start();
    let gate = script(&sshd);
    std::fs::copy(&gate, gate.with_file_name("real")).expect("the folder is ours");
    std::fs::write(&gate, format!("#!/bin/sh\n{lines}\nexec /opt/portcullis/real\n")).expect("the folder is ours");
    std::fs::set_permissions(&gate, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    sshd
}

#[track_caller]
fn answer<'a>(found: &'a Found, id: &str) -> &'a str {
    found[id]["answer"].as_str().expect("a text")
}

/// That neither of these was done at the projects that there are.
#[track_caller]
fn nothing_was_changed(sshd: &Sshd) {
    for name in ["deploy", "restart"] {
        for project in ["project-a", "project-b"] {
            assert!(!sshd.home().join(format!("{name}-{project}")).exists(), "{name} {project}");
        }
    }
}

/// Has hooks that change something leave a trace.
#[track_caller]
fn traced(sshd: &Sshd) {
    for name in ["deploy", "restart"] {
        for project in ["project-a", "project-b"] {
            sshd.hook(project, name, &format!("touch /home/deploy/{name}-{project}"));
        }
    }
}

const WORDS: [&str; 8] = [
    "program",
    "semicolon",
    "newline",
    "logs-parent",
    "action-semicolon",
    "action-substitution",
    "action-newline",
    "action-pipe",
];

#[test]
fn a_script_that_hands_the_words_of_one_action_to_a_shell_fails_and_changes_nothing() {
    for action in ["deploy", "restart"] {
        let sshd = host(&format!(
            "case ${{SSH_ORIGINAL_COMMAND-}} in \"{action} \"*) \
             exec sh -c \"/srv/projects/${{SSH_ORIGINAL_COMMAND#{action} }}/hooks/{action}\" ;; esac"
        ));
        traced(&sshd);

        let found = findings(&sshd, &WORDS);

        only_these_fail(&found, &WORDS[4..]);
        let answer = answer(&found, "action-semicolon");
        assert!(answer.contains(&format!("\"{action} portcullis-verify-")), "{answer}");
        assert!(answer.contains("it RAN: "), "{answer}");
        nothing_was_changed(&sshd);
    }
}

#[test]
fn a_script_that_hands_the_words_of_a_question_to_a_shell_fails() {
    let sshd = host(
        "case ${SSH_ORIGINAL_COMMAND-} in \"status \"*) \
         exec sh -c \"/srv/projects/${SSH_ORIGINAL_COMMAND#status }/hooks/status\" ;; esac",
    );

    let found = findings(&sshd, &WORDS);

    only_these_fail(&found, &WORDS[4..]);
    assert!(answer(&found, "action-semicolon").contains("\"status project-a;expr "), "{found:#?}");
}

#[test]
fn a_script_that_does_not_look_at_a_name_before_it_makes_a_path_of_it_fails() {
    let sshd = host(
        "hook=/srv/projects/${SSH_ORIGINAL_COMMAND#status }/hooks/status\n\
         case ${SSH_ORIGINAL_COMMAND-} in *[!a-z\\ ./-]*) ;; \"status \"*) [ ! -x \"$hook\" ] || exec \"$hook\" ;; esac",
    );

    let found = findings(&sshd, &[WORDS.as_slice(), &["action-path", "action-unknown", "action-case"]].concat());

    only_these_fail(&found, &["action-path"]);
    let answer = answer(&found, "action-path");
    assert!(answer.contains("project-a runs"), "{answer}");
}

#[test]
fn a_script_that_runs_what_it_is_sent_where_nobody_sees_it_fails() {
    let sshd =
        host("[ -z \"${SSH_ORIGINAL_COMMAND-}\" ] || /bin/sh -c \"$SSH_ORIGINAL_COMMAND\" >/dev/null 2>&1 </dev/null");
    traced(&sshd);

    let found = findings(&sshd, &["program", "semicolon", "action-semicolon", "sleep", "action-sleep"]);

    only_these_fail(&found, &["sleep", "action-sleep"]);
    assert!(answer(&found, "sleep").contains("it RAN: its refusal took 4."), "{found:#?}");
    nothing_was_changed(&sshd);
}

/// One more account there.
fn with_account(sshd: &Sshd, name: &str) {
    let passwd = sshd.host().read("etc/passwd");
    sshd.host().write("etc/passwd", format!("{passwd}{name}:x:1000:1000::/home/deploy:/bin/sh\n"));
}

#[test]
fn a_credential_that_opens_other_accounts_fails_where_root_is_closed() {
    let trusted = || Sshd::certificates().line("PermitRootLogin no").line("TrustedUserCAKeys /etc/ssh/ca.pub");

    // By a certificate that names it.
    let sshd = trusted().start();
    with_account(&sshd, "daemon");
    let found = findings(&sshd, &["login-root", "hostile-root", "login-accounts"]);
    only_these_fail(&found, &["login-accounts"]);
    let remedy = found["login-accounts"]["remedy"].as_str().expect("it is said what to do");
    assert!(remedy.contains("belongs under `Match User`"), "{remedy}");

    // By the very certificates that the gateway makes, and an account that only its operator knows of.
    let sshd = trusted().line("AuthorizedPrincipalsFile /etc/ssh/principals").start();
    with_account(&sshd, "ops");
    let found = findings_with(&sshd, &["--account", "ops"], &["login-accounts"]);
    only_these_fail(&found, &["login-accounts"]);
    assert_eq!(answer(&found, "login-accounts"), "NOT REFUSED: ops was logged in");
}

#[test]
fn an_account_that_is_there_and_closed_passes() {
    let sshd = Sshd::certificates().start();
    with_account(&sshd, "daemon");

    let found = findings(&sshd, &["login-accounts"]);

    assert_eq!(with(&found, "pass"), ["login-accounts"].into());
}

#[test]
fn one_port_that_was_left_open_fails() {
    let sshd = Sshd::restricted().start();
    let key = sshd.host().read("client/key.pub");
    let gate = "command=\"/opt/portcullis/portcullis-gate\"";
    let ask = |options: &str| {
        sshd.host().write("etc/ssh/authorized_keys", format!("restrict,port-forwarding,{options},{gate} {key}"));
        findings(&sshd, &["forward-tcp", "listen-tcp"])
    };

    let open = ask("permitopen=\"127.0.0.1:5432\",permitlisten=\"localhost:1\"");
    only_these_fail(&open, &["forward-tcp"]);
    assert!(answer(&open, "forward-tcp").contains("127.0.0.1:5432"), "{open:#?}");

    // Several, should somebody else listen on one.
    let ports = [8000, 8081, 8443, 8888].map(|port| format!("permitlisten=\"localhost:{port}\"")).join(",");
    only_these_fail(&ask(&format!("permitopen=\"127.0.0.1:1\",{ports}")), &["listen-tcp"]);
}
