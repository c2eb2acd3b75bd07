//! `make demo`: the story of a held call, as it is told to people.

use crate::support::process;
use std::path::Path;

#[test]
fn the_demo_tells_the_whole_story_and_ends_well() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if crate::support::sdk::chromium().is_none() {
        return;
    }
    let mut demo = process::command(root.join("scripts/demo").to_str().expect("its path is UTF-8"));

    let told = process::run(demo.arg(env!("CARGO_BIN_EXE_portcullis")), b"").success().stdout;

    let in_order = [
        "signature verified by npm standardwebhooks",
        "May this run?",
        "rm -r build && ls",
        "after \"Approve, once\"",
        "An approval is for one run",
        "Other arguments are another call",
        "Reason: not the whole disk",
        "approves h_",
        "approval.requested",
        "approval.decided",
        "approval.consumed",
        "approval.ended",
        "make demo: done in ",
    ];
    let mut rest = told.as_str();
    for words in in_order {
        let at = rest.find(words).unwrap_or_else(|| panic!("`{words}` is not said, or too early:\n{told}"));
        rest = &rest[at..];
    }
}
