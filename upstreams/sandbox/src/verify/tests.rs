//! The list of claims, and how they are judged. That they hold is shown where there is an upstream to try them on.

use super::claims::{CLAIMS, Tried};
use super::runner::{Ran, line, seen};
use super::{Seen, Verdict, judge};
use std::collections::BTreeSet;

fn allowed() -> Seen {
    Seen::Allowed("x".to_owned())
}

fn blocked() -> Seen {
    Seen::Blocked("x".to_owned())
}

fn untried() -> Seen {
    Seen::Untried("x".to_owned())
}

#[test]
fn only_what_is_blocked_inside_and_done_outside_passes() {
    for (inside, outside, verdict) in [
        (blocked(), allowed(), Verdict::Pass),
        (allowed(), allowed(), Verdict::Fail),
        (untried(), allowed(), Verdict::Fail),
        (allowed(), blocked(), Verdict::Fail),
        (untried(), blocked(), Verdict::Fail),
        (blocked(), blocked(), Verdict::NotApplicable),
        (blocked(), untried(), Verdict::NotApplicable),
    ] {
        assert_eq!(judge(&inside, &outside, false), verdict, "{inside} inside, {outside} outside");
    }
}

#[test]
fn what_another_kernel_allows_shows_nothing() {
    assert_eq!(judge(&allowed(), &allowed(), true), Verdict::NotApplicable);
    assert_eq!(judge(&blocked(), &allowed(), true), Verdict::Pass);
    assert_eq!(judge(&untried(), &allowed(), true), Verdict::NotApplicable);
}

#[test]
fn every_claim_has_a_name_of_its_own_and_a_probe_that_exists() {
    let ids: BTreeSet<_> = CLAIMS.iter().map(|claim| claim.id).collect();
    assert_eq!(ids.len(), CLAIMS.len());
    for claim in CLAIMS {
        if let Tried::Probe(line) = claim.tried {
            let name = line.split(' ').next().unwrap_or_default();
            assert!(crate::probe::names().any(|known| known == name), "{}: there is no probe `{name}`", claim.id);
        }
    }
}

#[test]
fn a_command_that_says_nothing_was_not_blocked() {
    let ran = |ended: &str, stdout: &str| Ran { ended: ended.to_owned(), stdout: stdout.to_owned(), ..Ran::default() };

    assert!(matches!(seen(&ran("exited", "")), Seen::Untried(_)));
    assert!(matches!(seen(&ran("signal", "noise\n")), Seen::Untried(_)));
    assert!(matches!(seen(&ran("out_of_memory", "")), Seen::Blocked(_)));
    assert_eq!(seen(&ran("exited", "noise\nblocked: EPERM\n")), Seen::Blocked("EPERM".to_owned()));
    assert_eq!(seen(&ran("exited", "blocked: no\nALLOWED: all of it\n")), Seen::Allowed("all of it".to_owned()));
}

#[test]
fn what_a_probe_is_told_reaches_it_as_it_is() {
    assert_eq!(line("/p", &["read".to_owned(), "a b'c".to_owned()]), r"/p probe 'read' 'a b'\''c'");
}
