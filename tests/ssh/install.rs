//! The installer: what it prints makes a host that holds, and what it puts in place is root's alone.

use crate::support::process::{self, Finished};
use crate::support::sshd::Sshd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/upstreams/ssh/host");

#[track_caller]
fn install(arguments: &[&str]) -> Finished {
    process::run(process::command("sh").arg(Path::new(FOLDER).join("install")).args(arguments), b"")
}

/// A folder with a key pair, `key` and `key.pub`.
#[track_caller]
fn keys(kind: &str) -> TempDir {
    let dir = TempDir::new().expect("a temporary folder");
    let mut keygen = process::command("ssh-keygen");
    keygen.args(["-q", "-t", kind, "-N", "", "-C", "a; comment \"of\" $(ours)", "-f"]).arg(dir.path().join("key"));
    process::run(&mut keygen, b"").success();
    dir
}

fn text(path: impl AsRef<Path>) -> String {
    path.as_ref().to_str().expect("temporary paths are UTF-8").to_owned()
}

/// The lines that it says are to be written: those after the line that names the file, up to the next empty one.
fn written(said: &str, file: &str) -> String {
    let (_, rest) = said.split_once(file).unwrap_or_else(|| panic!("{file} is not named: {said}"));
    let lines: Vec<&str> = rest.lines().skip(1).skip_while(|line| line.is_empty()).collect();
    lines.iter().take_while(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect()
}

/// What goes under `Match User deploy`.
fn block(said: &str) -> Vec<String> {
    let block = written(said, "At the end of /etc/ssh/sshd_config");
    let mut lines: Vec<String> = block.lines().map(str::to_owned).collect();
    assert_eq!(lines.first().map(String::as_str), Some("Match User deploy"), "{block}");
    assert_eq!(lines.pop().as_deref(), Some("Match all"), "{block}");
    lines.split_off(1)
}

#[test]
fn a_host_that_follows_what_is_printed_for_a_key_runs_the_script_and_nothing_else() {
    // The host has its keys once it is there; so it is asked for first, and then set up.
    let mut sshd = Sshd::restricted().line("AcceptEnv LANG LC_*").start();
    let key = text(sshd.key().with_extension("pub"));
    let said = install(&["--to", "/opt/portcullis", "--key", &key]).success().stdout;

    sshd.set_up(&[("portcullis/deploy.keys", &written(&said, "/etc/ssh/portcullis/deploy.keys"))], &block(&said));

    let run = |options: &[&str], action: &[&str]| process::run(&mut sshd.ssh(options, action), b"");
    assert_eq!(run(&[], &["list"]).success().stdout, "project-a\nproject-b\n");
    let refused = run(&[], &["id"]);
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(77), ""), "{refused:?}");
    let forward = format!("127.0.0.1:{}", sshd.port);
    assert!(!run(&["-W", &forward], &[]).stdout.contains("SSH-2.0"), "{}", sshd.log());
    // What everybody else may send is not taken for this account.
    sshd.hook("project-a", "status", "cat /proc/$PPID/environ");
    let verbose = run(&["-v", "-o", "LogLevel=DEBUG3", "-o", "SetEnv=LC_CANARY=x"], &["list"]);
    assert!(verbose.stderr.contains("LC_CANARY"), "it is sent: {verbose:?}");
    assert!(!sshd.log().contains("Setting env"), "{}", sshd.log());
}

#[test]
fn a_host_that_follows_what_is_printed_for_an_authority_runs_the_script_and_nothing_else() {
    let mut sshd = Sshd::restricted().start();
    let authority = text(sshd.authority().with_extension("pub"));
    let said = install(&["--to", "/opt/portcullis", "--principal", "gate", "--authority", &authority]).success().stdout;
    sshd.set_up(
        &[
            ("portcullis/deploy.ca.pub", &written(&said, "/etc/ssh/portcullis/deploy.ca.pub:")),
            ("portcullis/deploy.principals", &written(&said, "/etc/ssh/portcullis/deploy.principals:")),
        ],
        &block(&said),
    );

    let run = |action: &[&str]| process::run(&mut sshd.ssh(&[], action), b"");
    assert_eq!(run(&["list"]).status.code(), Some(255), "the bare key opens nothing");
    sshd.certify("gate");
    assert_eq!(run(&["list"]).success().stdout, "project-a\nproject-b\n");
    let refused = run(&["id"]);
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(77), ""), "{refused:?}");
    sshd.certify("portcullis");
    assert_eq!(run(&["list"]).status.code(), Some(255), "another principal opens nothing");
}

#[test]
fn what_could_mean_something_to_sshd_or_to_the_script_is_refused() {
    let dir = keys("ed25519");
    let key = &text(dir.path().join("key.pub"));
    let private = &text(dir.path().join("key"));
    let rsa = keys("rsa");
    let file = |name: &str, contents: &str| {
        std::fs::write(dir.path().join(name), contents).expect("the folder is ours");
        text(dir.path().join(name))
    };
    let public = std::fs::read_to_string(key).expect("it is there");
    let with_options = &file("options", &format!("no-pty {public}"));
    let two = &file("two", &format!("{public}{public}"));
    let broken = &file("broken", "ssh-ed25519 AAAA\" permit\n");

    for (arguments, says) in [
        (&["--key", private][..], "is a private key"),
        (&["--key", &text(rsa.path().join("key.pub"))], "Ed25519 or ECDSA"),
        (&["--key", with_options], "Ed25519 or ECDSA"),
        (&["--key", two], "not one public key"),
        (&["--key", broken], "not one public key"),
        (&["--key", "/dev/null"], "cannot read"),
        (&["--key", key, "--account", "-x"], "is no name"),
        (&["--key", key, "--account", "a b"], "is no name"),
        (&["--key", key, "--account", "a\nMatch all"], "is no name"),
        (&["--key", key, "--principal", "*"], "is no name"),
        (&["--key", key, "--projects", "srv"], "no absolute path"),
        (&["--key", key, "--projects", "/srv/../etc"], "no absolute path"),
        (&["--key", key, "--projects", "/srv/|e id"], "no absolute path"),
        (&["--key", key, "--to", "/opt/a\"b"], "no absolute path"),
        (&["--key", key, "--quick", "0"], "seconds"),
        (&["--key", key, "--quick", "1;id"], "seconds"),
        (&["--key", key, "--slow", "1000000"], "seconds"),
        (&["--key", key, "--authority", key], "either"),
        (&["--key"], "needs a value"),
        (&[], "is needed"),
        (&["--force", "x"], "is no option"),
    ] {
        let said = install(arguments);
        assert!(matches!(said.status.code(), Some(1 | 2)), "{arguments:?}: {said:?}");
        assert_eq!(said.stdout, "", "{arguments:?}");
        assert!(said.stderr.contains(says), "{arguments:?}: {}", said.stderr);
    }
    for kind in ["ed25519", "ecdsa"] {
        let said = install(&["--key", &text(keys(kind).path().join("key.pub"))]).success().stdout;
        assert!(said.contains("restrict,command=\"/usr/local/lib/portcullis/portcullis-gate\" "), "{said}");
        assert!(!said.contains("comment"), "{said}");
    }
}

/// Runs it as root of a place of its own, where `/usr/local/lib` is this folder.
#[track_caller]
fn as_root(lib: &Path, arguments: &[&str]) -> Finished {
    let mut bwrap = process::command("bwrap");
    bwrap.args([
        "--unshare-user",
        "--uid",
        "0",
        "--gid",
        "0",
        "--unshare-pid",
        "--die-with-parent",
        "--ro-bind",
        "/usr",
    ]);
    bwrap.args(["/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64"]);
    bwrap.args(["/lib64", "--proc", "/proc", "--dev", "/dev", "--ro-bind", FOLDER, "/host"]);
    bwrap.args(["--ro-bind", "/etc/passwd", "/etc/passwd"]);
    bwrap.arg("--bind").arg(lib).arg("/usr/local/lib").args(["/bin/sh", "/host/install", "--apply"]).args(arguments);
    process::run(&mut bwrap, b"")
}

#[test]
fn what_is_put_in_place_is_roots_alone_and_knows_the_hosts_constants() {
    let (keys, lib) = (keys("ed25519"), TempDir::new().expect("a temporary folder"));
    std::fs::copy(keys.path().join("key.pub"), lib.path().join("key.pub")).expect("the folder is ours");
    std::fs::set_permissions(lib.path(), std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    let key = ["--key", "/usr/local/lib/key.pub"];
    let gate = lib.path().join("portcullis/portcullis-gate");

    as_root(lib.path(), &[&key[..], &["--projects", "/home/projects", "--quick", "7", "--slow", "70"]].concat())
        .success();
    let first = std::fs::read_to_string(&gate).expect("it is in place");
    as_root(lib.path(), &key).success();
    let second = std::fs::read_to_string(&gate).expect("it is in place");

    assert!(first.contains("\nprojects=/home/projects\nquick=7\nslow=70\n"), "{first}");
    assert_eq!(second, std::fs::read_to_string(Path::new(FOLDER).join("portcullis-gate")).expect("it is shipped"));
    let mode = std::fs::metadata(&gate).expect("it is in place").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    assert_eq!(std::fs::read_dir(lib.path().join("portcullis")).expect("it is there").count(), 1);

    // Where others may write, nothing is put.
    std::fs::set_permissions(lib.path(), std::fs::Permissions::from_mode(0o775)).expect("the folder is ours");
    let refused = as_root(lib.path(), &[&key[..], &["--quick", "9"]].concat());
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("not root's alone"), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&gate).expect("it is in place"), second);
    let refused = as_root(lib.path(), &[&key[..], &["--to", "/usr/local/lib/new/folder"]].concat());
    assert_eq!((refused.status.code(), lib.path().join("new").exists()), (Some(1), false), "{refused:?}");

    // Nor where the script would run nothing.
    std::fs::set_permissions(lib.path(), std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    std::os::unix::fs::symlink("portcullis", lib.path().join("link")).expect("the folder is ours");
    let refused = as_root(lib.path(), &[&key[..], &["--projects", "/usr/local/lib/link"]].concat());
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("it is `/usr/local/lib/portcullis`"), "{refused:?}");
}
