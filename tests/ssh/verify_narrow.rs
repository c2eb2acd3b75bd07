//! `portcullis verify ssh` on hosts that are held, and narrow besides: what they do not let in at once is no fault of theirs.

use super::verify::{findings, only_these_fail, with};
use crate::support::sshd::{Setup, Sshd};
use portcullis_ssh::verify::ATTACKS;
use portcullis_ssh::verify::attacks::Tried;

/// All but those behind which we wait, so as not to be locked out.
fn quick() -> Vec<&'static str> {
    let waits = |tried: Tried| matches!(tried, Tried::Account(_) | Tried::HostileAccount(_) | Tried::Accounts);
    ATTACKS.iter().filter(|attack| !waits(attack.tried)).map(|attack| attack.id).collect()
}

#[track_caller]
fn holds(setup: Setup, n_passed: usize) {
    let sshd = setup.start();

    let found = findings(&sshd, &quick());

    only_these_fail(&found, &[]);
    assert!(with(&found, "pass").len() >= n_passed, "{found:#?}");
}

#[test]
fn a_host_with_one_session_a_connection_holds() {
    holds(Sshd::restricted().line("MaxSessions 1"), 155);
}

#[test]
fn a_host_with_one_session_a_connection_holds_for_certificates() {
    holds(Sshd::certificates().line("MaxSessions 1"), 175);
}

#[test]
fn a_host_where_one_at_a_time_can_log_in_holds() {
    holds(Sshd::restricted().line("MaxStartups 1"), 155);
}

#[test]
fn a_host_where_one_at_a_time_can_log_in_holds_for_certificates() {
    holds(Sshd::certificates().line("MaxStartups 1"), 175);
}
