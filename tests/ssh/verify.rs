//! `portcullis verify ssh`: a host that is held holds, and where something is open, the verifier says what.

use crate::support::gateway::Launch;
use crate::support::process::{self, Finished};
use crate::support::sshd::Sshd;
use portcullis_ssh::verify::ATTACKS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A machine can be very busy; nothing is decided by this.
const LONG: Duration = Duration::from_secs(300);

/// What was found, by the attack's name.
type Found = BTreeMap<String, Value>;

/// The attacks on a host of these settings, with more on the command line.
#[track_caller]
fn verify(settings: &str, more: &[&str]) -> Finished {
    let launch = Launch::new(&config(settings));
    let mut command = process::command(env!("CARGO_BIN_EXE_portcullis"));
    command.arg("--config").arg(launch.path("gateway.yaml")).args(["verify", "ssh"]).args(more);
    process::run_within(LONG, &mut command, b"")
}

fn config(settings: &str) -> String {
    format!(
        "upstreams:\n  prod: {{ ssh: {{ {settings} }} }}\n\
         policy: {{ rules: [{{ name: all, tools: [\"*/*\"], allow: {{}} }}] }}\n"
    )
}

/// What was found on a host, by all attacks or by these. The exit status is what the findings say.
#[track_caller]
fn findings(sshd: &Sshd, attacks: &[&str]) -> Found {
    let mut arguments = vec!["--json"];
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
fn with<'a>(found: &'a Found, verdict: &str) -> BTreeSet<&'a str> {
    found.iter().filter(|(_, finding)| finding["verdict"] == verdict).map(|(id, _)| id.as_str()).collect()
}

#[test]
fn a_restricted_key_can_do_nothing_but_what_the_script_allows() {
    let sshd = Sshd::restricted().start();

    let found = findings(&sshd, &[]);

    assert_eq!(with(&found, "fail"), BTreeSet::new(), "{found:#?}");
    println!("{found:#?}");
    println!("{}", sshd.log());
}

#[test]
fn a_certificate_can_do_nothing_but_what_the_script_allows_whatever_it_says() {
    let sshd = Sshd::certificates().start();

    let found = findings(&sshd, &[]);

    assert_eq!(with(&found, "fail"), BTreeSet::new(), "{found:#?}");
    println!("{found:#?}");
    println!("{}", sshd.log());
}

#[test]
fn loose() {
    for setup in [
        Sshd::without_restrict(),
        Sshd::without_force_command(),
        Sshd::restricted().accepting_env(),
        Sshd::restricted().accepting_env().shell("/bin/bash"),
    ] {
        let sshd = setup.start();
        let done = verify(&sshd.settings(), &[]);
        println!("{}{}", done.stdout, done.stderr);
        println!("{}", sshd.log());
    }
}
