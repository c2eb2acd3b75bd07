//! The list of attacks. That they are refused is shown where there is a host to try them on.

use super::attacks::{ATTACKS, table};
use super::target::Canary;
use super::{Seen, finding, long};
use crate::settings::Credential;
use portcullis_local::verify::Verdict;
use std::collections::BTreeSet;
use std::time::Duration;

fn credentials() -> [Credential; 2] {
    let authority = Credential::Certificates {
        authority: String::new(),
        principal: "portcullis".to_owned(),
        source: Vec::new(),
        lifetime: Duration::from_secs(60),
    };
    [Credential::Key { private: String::new() }, authority]
}

#[test]
fn every_attack_has_a_name_of_its_own() {
    let ids: BTreeSet<_> = ATTACKS.iter().map(|attack| attack.id).collect();

    assert_eq!(ids.len(), ATTACKS.len());
    let is_name = |id: &str| id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    assert!(ids.iter().all(|id| is_name(id)));
}

#[test]
fn every_attack_is_for_a_credential() {
    let [key, certificates] = credentials();

    assert!(ATTACKS.iter().all(|attack| attack.is_for(&key) || attack.is_for(&certificates)));
    assert!(ATTACKS.iter().filter(|attack| attack.is_for(&key)).count() >= 45);
    let with_authority = |attack: &&super::Attack| attack.is_for(&certificates) && !attack.is_for(&key);
    assert!(ATTACKS.iter().filter(with_authority).count() >= 15);
}

#[test]
fn only_what_was_refused_passes() {
    for (seen, verdict) in [
        (Seen::Refused("x".to_owned()), Verdict::Pass),
        (Seen::Broken("x".to_owned()), Verdict::Fail),
        (Seen::Untried("x".to_owned()), Verdict::Fail),
        (Seen::NotHere("x".to_owned()), Verdict::NotApplicable),
    ] {
        assert_eq!(finding(&ATTACKS[0], String::new(), &seen).verdict, verdict);
    }
}

#[test]
fn a_row_of_the_table_has_four_cells_whatever_is_sent() {
    for line in table().lines() {
        let bars = line.replace("\\|", "").matches('|').count();
        assert_eq!(bars, 5, "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn a_long_action_is_as_long_as_it_says_and_begins_with_a_program() {
    let canary = Canary::new().expect("there are random numbers");
    for n in [600, 100_000, 300_000] {
        let action = long(n, canary);
        assert_eq!(action.len(), n);
        assert!(action.starts_with(canary.command().as_bytes()));
    }
}
