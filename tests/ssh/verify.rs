//! `portcullis verify ssh`: a host that is held holds, and where something is open, the verifier says what.

use crate::support::gateway::Launch;
use crate::support::process::{self, Finished};
use crate::support::sshd::Sshd;
use portcullis_ssh::verify::ATTACKS;
use portcullis_ssh::verify::attacks::Tried;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A machine can be very busy; nothing is decided by this.
const LONG: Duration = Duration::from_secs(300);

/// Attacks that are refused by the script, one of each kind: enough to see whether there is one.
const ACTIONS: [&str; 6] = ["program", "semicolon", "newline", "nothing", "logs-parent", "shell"];

/// What was found, by the attack's name.
pub(super) type Found = BTreeMap<String, Value>;

/// An upstream `prod` of these settings, and rules for it.
fn launch(settings: &str) -> Launch {
    Launch::new(&format!(
        "upstreams:\n  prod: {{ ssh: {{ {settings} }} }}\n\
         policy: {{ rules: [{{ name: all, tools: [\"*/*\"], allow: {{}} }}] }}\n"
    ))
}

fn command(launch: &Launch, more: &[&str]) -> Command {
    let mut command = process::command(env!("CARGO_BIN_EXE_portcullis"));
    command.arg("--config").arg(launch.path("gateway.yaml")).args(["verify", "ssh"]).args(more);
    command
}

/// The attacks on a host of these settings, with more on the command line.
#[track_caller]
pub(super) fn verify(settings: &str, more: &[&str]) -> Finished {
    process::run_within(LONG, &mut command(&launch(settings), more), b"")
}

/// What was found on a host, by all attacks or by these. The exit status is what the findings say.
#[track_caller]
pub(super) fn findings(sshd: &Sshd, attacks: &[&str]) -> Found {
    findings_with(sshd, &[], attacks)
}

/// The same, with more on the command line.
#[track_caller]
pub(super) fn findings_with(sshd: &Sshd, more: &[&str], attacks: &[&str]) -> Found {
    let mut arguments = [&["--json"], more].concat();
    attacks.iter().for_each(|attack| arguments.extend(["--attack", attack]));
    let Finished { status, stdout, stderr } = verify(&sshd.settings(), &arguments);
    let document: Value = serde_json::from_str(&stdout).unwrap_or_else(|why| panic!("{why}: {stdout}{stderr}"));
    let list = document["findings"].as_array().expect("a list of findings");
    let found: Found =
        list.iter().map(|finding| (finding["id"].as_str().expect("a name").to_owned(), finding.clone())).collect();
    let has = |verdict: &str| found.values().any(|finding| finding["verdict"] == verdict);
    assert_eq!(status.code(), Some(i32::from(has("fail") || !has("pass"))), "{stdout}{stderr}");
    assert_no_key(sshd, &format!("{stdout}{stderr}"));
    found
}

/// No line of a private key is in a text.
#[track_caller]
fn assert_no_key(sshd: &Sshd, text: &str) {
    for file in [sshd.key(), sshd.authority()] {
        let key = std::fs::read_to_string(file).expect("it is there");
        let secret: Vec<&str> = key.lines().filter(|line| !line.starts_with("-----")).collect();
        assert!(secret.len() > 3 && !secret.iter().any(|line| text.contains(line)), "{text}");
    }
    assert!(!text.contains("PRIVATE KEY"), "{text}");
}

/// The names of those with this verdict.
pub(super) fn with<'a>(found: &'a Found, verdict: &str) -> BTreeSet<&'a str> {
    found.iter().filter(|(_, finding)| finding["verdict"] == verdict).map(|(id, _)| id.as_str()).collect()
}

/// What failed, each with what was seen.
#[track_caller]
pub(super) fn only_these_fail(found: &Found, names: &[&str]) {
    let failed: Vec<&Value> = found.values().filter(|finding| finding["verdict"] == "fail").collect();
    assert_eq!(with(found, "fail"), names.iter().copied().collect(), "{failed:#?}");
}

/// Names of attacks by which an action is asked for.
fn actions() -> Vec<&'static str> {
    ATTACKS
        .iter()
        .filter(|attack| matches!(attack.tried, Tried::Exec(_) | Tried::Wrong(_) | Tried::Sleep(_)))
        .map(|attack| attack.id)
        .collect()
}

/// The script on the host, which a test may write anew.
pub(super) fn script(sshd: &Sshd) -> PathBuf {
    sshd.host().path("opt/portcullis-gate")
}

#[test]
fn a_restricted_key_can_do_nothing_but_what_the_script_allows() {
    let sshd = Sshd::restricted().start();
    let elsewhere = sshd.projects().join("project-a/logs/portcullis-verify-link");
    std::os::unix::fs::symlink("/etc/passwd", elsewhere).expect("the folder is ours");

    let found = findings(&sshd, &[]);

    only_these_fail(&found, &[]);
    assert!(with(&found, "pass").len() >= 140, "{found:#?}");
    assert_eq!(with(&found, "not_applicable"), ["forward-unix"].into(), "{found:#?}");
    let link = found["logs-link"]["answer"].as_str().expect("a text");
    assert!(link.contains("a link to somewhere else"), "{link}");
    let allowed: Vec<String> = sshd.gate_log().into_iter().filter(|line| line.contains("allowed: ")).collect();
    let is_check = |line: &String| line.trim_end().ends_with("allowed: list");
    assert!(!allowed.is_empty() && allowed.iter().all(is_check), "nothing else was done: {allowed:#?}");
}

#[test]
fn a_certificate_can_do_nothing_but_what_the_script_allows_whatever_it_says() {
    let sshd = Sshd::certificates().start();

    let found = findings(&sshd, &[]);

    only_these_fail(&found, &[]);
    assert!(with(&found, "pass").len() >= 160, "{found:#?}");
    assert_eq!(with(&found, "not_applicable"), ["forward-unix", "logs-link"].into(), "{found:#?}");
    let hostile: Vec<&Value> =
        found.iter().filter(|(id, _)| id.starts_with("hostile-") && *id != "hostile-root").map(|(_, it)| it).collect();
    assert_eq!(hostile.len(), 8);
    for finding in hostile {
        // They are good certificates: what holds is the host's `ForceCommand`, and not the login.
        assert_eq!(finding["answer"], "refused: sshd took it, and all of 8 attempts were refused");
    }
}

#[test]
fn a_key_without_restrict_can_forward_and_have_a_terminal_and_that_fails() {
    let sshd = Sshd::without_restrict().start();

    let found = findings(&sshd, &[]);

    let forwards = ["forward-tcp", "forward-tcp-name", "forward-unix", "listen-tcp", "listen-unix", "agent", "x11"];
    only_these_fail(&found, &[&["terminal"], forwards.as_slice()].concat());
    let answer = found["forward-tcp"]["answer"].as_str().expect("a text");
    assert!(answer.contains("SSH-2.0-OpenSSH"), "it spoke with the host's own server: {answer}");
    for id in with(&found, "fail") {
        let remedy = found[id]["remedy"].as_str().expect("it is said what to do");
        assert!(remedy.starts_with("write `restrict` before `command=`"), "{id}: {remedy}");
    }
    assert_eq!(found["program"]["remedy"], Value::Null, "nothing is to be done about what holds");
}

#[test]
fn certificates_without_a_forced_command_run_anything_and_that_fails() {
    let sshd = Sshd::without_force_command().start();

    let found = findings(&sshd, &[]);

    let failed = with(&found, "fail");
    for id in actions().into_iter().chain(["works", "still-works", "shell", "sftp", "terminal", "many-sessions", "nul"])
    {
        assert!(failed.contains(id), "{id}: {:#?}", found.get(id));
    }
    for id in ["program", "program-shell", "semicolon", "newline", "substitution", "shell", "hostile-all"] {
        let answer = found[id]["answer"].as_str().expect("a text");
        assert!(answer.contains("it RAN: "), "{id}: {answer}");
    }
    // What the server itself refuses is refused there as well.
    for id in ["forward-tcp", "listen-tcp", "agent", "login-stranger", "certificate-expired", "certificate-source"] {
        assert_eq!(found[id]["verdict"], "pass", "{:#}", found[id]);
    }
}

#[test]
fn a_host_that_takes_variables_fails() {
    let variables: Vec<&str> = ATTACKS
        .iter()
        .filter(|attack| matches!(attack.tried, Tried::Environment(..)))
        .map(|attack| attack.id)
        .collect();
    let asked = [variables.as_slice(), &["env-locale", "program"]].concat();

    let found = findings(&Sshd::restricted().accepting_env().start(), &asked);
    only_these_fail(&found, &variables);
    let remedy = found["env-preload"]["remedy"].as_str().expect("it is said what to do");
    assert!(remedy.starts_with("take `AcceptEnv` away"), "{remedy}");

    // As on a stock Debian: what a locale can do depends on the account's shell.
    let locale = || Sshd::restricted().line("AcceptEnv LANG LC_*");
    let found = findings(&locale().start(), &asked);
    only_these_fail(&found, &[]);
    let found = findings(&locale().shell("/bin/bash").start(), &asked);
    only_these_fail(&found, &["env-locale"]);
}

#[test]
fn an_authority_that_every_account_trusts_fails() {
    let sshd = Sshd::certificates().line("TrustedUserCAKeys /etc/ssh/ca.pub").start();

    let found = findings(&sshd, &["login-root", "hostile-root", "login-nobody", "hostile-principals"]);

    only_these_fail(&found, &["hostile-root"]);
    let remedy = found["hostile-root"]["remedy"].as_str().expect("it is said what to do");
    assert!(remedy.contains("`TrustedUserCAKeys` belongs under `Match User`"), "{remedy}");
}

#[test]
fn a_script_that_runs_what_it_is_sent_fails() {
    let sshd = Sshd::restricted().start();
    let open = "#!/bin/sh\n[ \"$SSH_ORIGINAL_COMMAND\" = list ] || exec /bin/sh -c \"$SSH_ORIGINAL_COMMAND\"\n";
    std::fs::write(script(&sshd), open).expect("the folder is ours");

    let found = findings(&sshd, &[]);

    let failed = with(&found, "fail");
    for id in actions() {
        assert!(failed.contains(id), "{id}: {:#}", found[id]);
    }
    let ran = found.values().filter(|finding| finding["answer"].to_string().contains("it RAN: ")).count();
    assert!(ran > 25, "{ran} have run: {found:#?}");
}

#[test]
fn a_refusal_that_is_not_the_scripts_own_fails() {
    let check = "[ \"$SSH_ORIGINAL_COMMAND\" = list ] && exit 0\n";
    let marker = "echo 'portcullis-gate: denied: no' >&2; exit 77";
    let sshd = Sshd::restricted().start();
    let judge = |script_text: String| {
        std::fs::write(script(&sshd), format!("#!/bin/sh\n{script_text}\n")).expect("the folder is ours");
        findings(&sshd, &ACTIONS)
    };

    only_these_fail(&judge(format!("{check}{marker}")), &[]);
    only_these_fail(&judge(format!("{check}exit 1")), &ACTIONS);
    only_these_fail(&judge(format!("{check}exit 77")), &ACTIONS);
    only_these_fail(&judge(format!("{check}{marker} || exit 1").replace("exit 77 ||", "")), &ACTIONS);
    // As a message of the day would, or a file that a shell reads at its start.
    only_these_fail(&judge(format!("echo 'Welcome to prod'\n{check}{marker}")), &ACTIONS);
    only_these_fail(&judge(format!("echo 'mesg: not a tty' >&2\n{check}{marker}")), &ACTIONS);
    // One that refuses everything would pass, were it not for what is allowed.
    only_these_fail(&judge(marker.to_owned()), &["works", "still-works"]);
}

#[test]
fn a_host_that_is_not_there_or_another_one_is_an_error_and_passes_nothing() {
    let mut sshd = Sshd::restricted().start();
    sshd.with_other_host_key();
    let another = verify(&sshd.settings(), &[]);
    sshd.kill();
    let gone = verify(&sshd.settings(), &[]);
    sshd.with_its_host_key();
    let there = verify(&sshd.settings(), &["--attack", "program"]);

    for (done, why) in [(&another, "host key"), (&gone, "cannot reach")] {
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        assert!(done.stderr.contains("error: the host of `prod`: ") && done.stderr.contains(why), "{done:?}");
        assert!(!done.stdout.contains("PASS"), "{done:?}");
        assert_no_key(&sshd, &format!("{}{}", done.stdout, done.stderr));
    }
    assert_eq!(there.status.code(), Some(0), "{there:?}");
    assert!(there.stdout.contains("prod: 1 passed, 0 failed"), "{there:?}");
}

#[test]
fn a_key_that_the_host_does_not_know_is_an_error_and_passes_nothing() {
    let (sshd, other) = (Sshd::restricted().start(), Sshd::restricted().start());
    let settings = sshd.settings().replace(&sshd.key().display().to_string(), &other.key().display().to_string());

    let done = verify(&settings, &[]);

    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(done.stderr.contains("does not accept the key"), "{done:?}");
    assert!(!done.stdout.contains("PASS"), "{done:?}");
}

#[test]
fn a_host_that_goes_away_in_the_middle_passes_nothing_from_then_on() {
    let mut sshd = Sshd::restricted().start();
    let launch = launch(&sshd.settings());
    let mut verifier = process::Server::spawn("the verifier", &mut command(&launch, &[]));

    verifier.line("PASS            there is no shell").expect("that far it comes");
    sshd.kill();
    let status = verifier.wait();

    let said = verifier.log();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("FAIL            every attack is tried  (all)"), "{said}");
    assert!(said.contains("FAIL            what is allowed works after all this  (still-works)"), "{said}");
    let after = said.lines().position(|line| line.starts_with("FAIL")).expect("something failed");
    assert!(!said.lines().skip(after).any(|line| line.starts_with("PASS")), "{said}");
}

#[test]
fn people_read_what_was_sent_and_what_was_answered() {
    let sshd = Sshd::restricted().start();

    let done = verify(&sshd.settings(), &["--attack", "newline", "--attack", "terminal", "--attack", "escape"]);

    assert_eq!(done.status.code(), Some(0), "{done:?}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines[0], format!("prod (deploy@127.0.0.1:{}, key)", sshd.port));
    assert_eq!(lines[1], "PASS            nothing runs on a second line  (newline)");
    assert!(lines[2].starts_with("                sent:   \"list\\nexpr "), "{}", lines[2]);
    assert!(lines[3].starts_with("                answer: refused: portcullis-gate: denied: "), "{}", lines[3]);
    assert_eq!(*lines.last().expect("a line"), "prod: 3 passed, 0 failed, 0 not applicable (which is no pass)");
    assert!(!done.stdout.replace('\n', "").contains(char::is_control), "{:?}", done.stdout);
}

#[test]
fn what_cannot_be_verified_is_said() {
    let sshd = Sshd::restricted().start();

    let unknown_attack = verify(&sshd.settings(), &["--attack", "no-such-attack"]);
    let unknown_upstream = verify(&sshd.settings(), &["--upstream", "other"]);
    let known_upstream = verify(&sshd.settings(), &["--upstream", "prod", "--attack", "program"]);

    assert_eq!(unknown_attack.status.code(), Some(2));
    assert!(unknown_attack.stderr.contains("there is no attack `no-such-attack`"), "{}", unknown_attack.stderr);
    assert_eq!(unknown_upstream.status.code(), Some(2));
    assert!(unknown_upstream.stderr.contains("no SSH upstream `other`"), "{}", unknown_upstream.stderr);
    assert_eq!(known_upstream.status.code(), Some(0), "{known_upstream:?}");
    assert_eq!(sshd.n_connections(), sshd.sessions().len() - 1, "only the last one has come to the host");
}
