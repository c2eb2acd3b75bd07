//! What is said of an SSH upstream's files before anything runs, and where they may not stand.

use crate::support::gateway::Launch;
use crate::support::process::{self, Finished};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

const POLICY: &str = "policy: { rules: [{ name: all, tools: [\"*/*\"], allow: {} }] }\n";

const ACTIONS: &str = "\
check: list
actions:
  - name: list
    description: The projects.
    annotations: { readOnlyHint: true }
    run: list
  - name: deploy
    description: Deploys it.
    run: deploy
";

/// The configuration of an upstream `prod` with these settings beside `key`, and of further upstreams.
fn config(settings: &str, more: &str) -> String {
    format!("upstreams:\n  prod: {{ ssh: {{ {settings} }} }}\n{more}{POLICY}")
}

fn with_key(host: &str) -> String {
    config(&format!("host: \"{host}\", known_hosts: known_hosts, actions: actions.yaml, key: {{ file: key }}"), "")
}

/// Its files, as they should be.
fn launch(yaml: &str) -> Launch {
    let launch = Launch::new(yaml).file("actions.yaml", ACTIONS);
    keygen(&launch.path("key"), &["-t", "ed25519", "-N", ""]);
    keygen(&launch.path("host"), &["-t", "ed25519", "-N", ""]);
    let host = std::fs::read_to_string(launch.path("host.pub")).expect("it was made");
    launch.file("known_hosts", format!("prod.internal {host}"))
}

#[track_caller]
fn keygen(path: &Path, how: &[&str]) {
    let _ = std::fs::remove_file(path);
    process::run(process::command("ssh-keygen").arg("-q").args(how).arg("-f").arg(path), b"").success();
}

#[track_caller]
fn is_refused(said: &Finished, because: &str) {
    assert_eq!(said.status.code(), Some(2), "{said:?}");
    assert!(said.stderr.contains(because), "{because:?} is not in {}", said.stderr);
}

#[test]
fn a_key_that_cannot_open_the_host_is_refused_and_not_repeated() {
    let authority = "host: deploy@prod.internal, known_hosts: known_hosts, actions: actions.yaml, \
                     certificates: { authority: { file: key } }";
    for yaml in [with_key("deploy@prod.internal"), config(authority, "")] {
        let launch = launch(&yaml);
        launch.cli(&["check"]).success();
        keygen(&launch.path("key"), &["-t", "ecdsa", "-b", "256", "-N", ""]);
        launch.cli(&["check"]).success();

        for (how, because) in [
            (&["-t", "rsa", "-b", "2048", "-N", ""][..], "keys of type `ssh-rsa` cannot be used"),
            (&["-t", "ed25519", "-N", "a passphrase"], "this private key is encrypted"),
            (&["-t", "ecdsa", "-m", "PEM", "-N", ""], "this key is not in OpenSSH's format"),
        ] {
            keygen(&launch.path("key"), how);
            let said = launch.cli(&["check"]);
            is_refused(&said, because);
            let key = std::fs::read_to_string(launch.path("key")).expect("it was made");
            let lines: Vec<&str> = key.lines().filter(|line| !line.starts_with("---") && line.len() > 20).collect();
            assert!(!lines.is_empty() && !lines.iter().any(|line| said.stderr.contains(line)), "{}", said.stderr);
        }
        std::fs::copy(launch.path("host.pub"), launch.path("key")).expect("the folder is ours");
        std::fs::set_permissions(launch.path("key"), Permissions::from_mode(0o600)).expect("the folder is ours");
        is_refused(&launch.cli(&["check"]), "this is a public key");
        keygen(&launch.path("key"), &["-t", "ed25519", "-N", ""]);
        std::fs::set_permissions(launch.path("key"), Permissions::from_mode(0o640)).expect("the folder is ours");
        is_refused(&launch.cli(&["check"]), "can be opened by others than its owner");
        std::fs::remove_file(launch.path("key")).expect("it is there");
        is_refused(&launch.cli(&["check"]), "key` cannot be read: No such file or directory");
    }
}

#[test]
fn u_19_what_is_no_host_is_refused_with_its_place_in_the_file() {
    for (host, because) in [
        ("prod.internal", "error: `prod.internal` names no account; write it as `user@host` or `user@host:port`"),
        ("-oProxyCommand=id@prod.internal", "error: `-oProxyCommand=id` is no account"),
        ("deploy@-oProxyCommand=id", "error: `-oProxyCommand=id` is no host name and no address"),
        ("deploy@prod.internal:0", "error: `0` is no port"),
    ] {
        is_refused(&launch(&with_key(host)).cli(&["check"]), because);
    }
    launch(&with_key("deploy@prod.internal")).cli(&["check"]).success();
}

#[test]
fn known_hosts_and_actions_are_read_before_anything_runs() {
    let good = launch(&with_key("deploy@prod.internal"));
    let other_port = launch(&with_key("deploy@prod.internal:2222"));
    let wrong = launch(&with_key("deploy@prod.internal"))
        .file("actions.yaml", ACTIONS.replace("run: deploy", "run: \"deploy; id\""))
        .file("known_hosts", "");
    let missing = launch(&with_key("deploy@prod.internal"));
    std::fs::remove_file(missing.path("actions.yaml")).expect("it is there");
    let large = launch(&with_key("deploy@prod.internal")).file("known_hosts", vec![b'#'; 300 * 1024]);

    good.cli(&["check"]).success();
    is_refused(&other_port.cli(&["check"]), "no line is about `[prod.internal]:2222`");
    let said = wrong.cli(&["check"]);
    is_refused(&said, "actions.yaml:9: ");
    is_refused(&said, "no line is about `prod.internal`");
    is_refused(&missing.cli(&["check"]), "actions.yaml`: No such file or directory");
    is_refused(&large.cli(&["check"]), "no file of at most 262144 bytes");
}

#[test]
fn files_of_a_host_that_agents_could_read_or_rewrite_are_refused() {
    let sandbox = |settings: &str| format!("  box: {{ sandbox: {{ {settings} }} }}\n");
    let files = |known_hosts: &str, actions: &str, credential: &str| {
        format!("host: deploy@prod.internal, known_hosts: {known_hosts}, actions: {actions}, {credential}")
    };
    let here = "key: { file: key }";
    let refused = [
        files("known_hosts", "actions.yaml", "key: { file: workspace/key }"),
        files("known_hosts", "actions.yaml", "certificates: { authority: { file: workspace/user-alice/key } }"),
        files("workspace/known_hosts", "actions.yaml", here),
        files("known_hosts", "x/../workspace/actions.yaml", here),
        files("known_hosts", "workspace/link/actions.yaml", here),
        files("known_hosts", "workspace/actions-elsewhere.yaml", here),
        files("known_hosts", "link/actions.yaml", here),
    ];
    for settings in &refused {
        let launch = launch(&config(settings, &sandbox("")));
        for folder in ["workspace/user-alice", "x"] {
            std::fs::create_dir_all(launch.path(folder)).expect("the folder is ours");
        }
        for name in ["key", "known_hosts", "actions.yaml"] {
            std::fs::copy(launch.path(name), launch.path("workspace").join(name)).expect("the folder is ours");
        }
        std::fs::copy(launch.path("key"), launch.path("workspace/user-alice/key")).expect("the folder is ours");
        symlink(launch.path("."), launch.path("workspace/link")).expect("the folder is ours");
        symlink(launch.path("actions.yaml"), launch.path("workspace/actions-elsewhere.yaml")).expect("it is ours");
        symlink(launch.path("workspace"), launch.path("link")).expect("the folder is ours");

        is_refused(&launch.cli(&["check"]), "stands in the workspace: agents could read and rewrite it");
    }
    let good = files("known_hosts", "actions.yaml", here);
    launch(&config(&good, &sandbox(""))).cli(&["check"]).success();

    // Read-only is not hidden: of a key that is too much, of what can be asked for it is not.
    let elsewhere = tempfile::TempDir::new_in("/var/tmp").expect("a temporary folder");
    let folder = elsewhere.path().display();
    let shown = sandbox(&format!("read_only: [{folder}]"));
    for (settings, is_good) in [
        (files("known_hosts", "actions.yaml", &format!("key: {{ file: {folder}/key }}")), false),
        (files("known_hosts", &format!("{folder}/actions.yaml"), here), true),
    ] {
        let launch = launch(&config(&settings, &shown));
        for name in ["key", "actions.yaml"] {
            std::fs::copy(launch.path(name), elsewhere.path().join(name)).expect("the folder is ours");
        }
        let said = launch.cli(&["check"]);
        if is_good {
            said.success();
        } else {
            is_refused(&said, "a secret of the configuration would be seen with it");
        }
    }
}
