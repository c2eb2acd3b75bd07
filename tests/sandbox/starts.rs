//! A gateway without a file: a sandbox on loopback, and a link for its first person.

use crate::support::process;
use tempfile::TempDir;

#[test]
fn where_there_is_no_file_the_sandbox_is_checked_and_shown_as_make_run_has_it() {
    let folder = TempDir::new().expect("a temporary folder");
    let here = |arguments: &[&str]| {
        let mut command = process::command(env!("CARGO_BIN_EXE_portcullis"));
        process::run(command.current_dir(folder.path()).args(arguments), b"")
    };

    let checked = here(&["check"]).success();
    let named = here(&["--config", "gateway.yaml", "check"]);
    std::fs::write(folder.path().join("gateway.yaml"), "no: good\n").expect("the folder is ours");
    let broken = here(&["check"]);

    assert!(checked.stdout.contains("the built-in gateway.yaml: good"), "{}", checked.stdout);
    assert_eq!(named.status.code(), Some(2), "a file that is named must be there: {}", named.stderr);
    assert_eq!(broken.status.code(), Some(2), "a file that is there is the one: {}", broken.stderr);
}
