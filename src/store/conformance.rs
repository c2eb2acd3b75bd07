//! What every backend must do, whatever it is made of. Each case gets an empty store through two handles, `here` and
//! `there`: clones, or two processes that share one file or server.

mod approvals;
mod clients;
mod codes;
mod documents;
mod notices;
mod refresh_tokens;

pub(crate) use approvals::*;
pub(crate) use clients::*;
pub(crate) use codes::*;
pub(crate) use documents::*;
pub(crate) use notices::*;
pub(crate) use refresh_tokens::*;

use super::{Attempt, Error, Grant, MAX_GRANTS_OF_ONE_SUBJECT, Revocation, Revoked, Store, Subject};
use std::sync::Arc;

/// One `#[tokio::test]` a case in a module of the given name; `$open` makes the two handles in an empty directory.
macro_rules! suite {
    ($backend:ident, $open:expr) => {
        $crate::store::conformance::suite!(@cases $backend, $open,
            a_grant_reads_back_whole, an_unknown_grant_is_none, an_id_is_used_once,
            a_grant_is_revoked_once_and_the_first_revocation_stays, an_unknown_grant_cannot_be_revoked,
            the_feed_tells_every_revocation_once_in_order, the_feed_goes_on_in_parts,
            a_purge_takes_the_expired_and_their_revocations, numbers_of_the_feed_are_never_reused,
            grants_are_listed_by_subject_latest_first, a_subject_has_an_end_of_grants,
            failures_pause_a_name_longer_and_longer, a_success_forgets_the_failures,
            tries_at_the_same_time_all_count, failures_are_forgotten_after_a_quiet_day,
            an_ended_session_is_remembered_until_it_is_too_old,
            a_code_reads_back_whole_and_the_first_of_two_stays, a_code_becomes_one_grant_with_its_refresh_token,
            a_code_that_comes_again_revokes_what_it_became,
            a_code_that_is_unknown_late_or_tried_too_often_becomes_nothing,
            of_a_hundred_redemptions_one_becomes_a_grant,
            a_login_makes_room_for_itself_and_what_was_made_by_hand_stays, a_purge_takes_codes_that_have_expired,
            a_refresh_token_gives_a_successor_and_moves_the_end, a_token_gives_the_same_successor_again_for_a_moment,
            a_token_whose_successor_was_used_is_a_replay, a_token_that_was_used_a_moment_later_than_now_is_no_replay,
            an_expired_token_or_grant_is_over, a_revocation_is_never_undone_by_a_refresh_under_way,
            of_fifty_refreshes_at_once_there_is_one_successor, the_oldest_used_tokens_of_a_grant_are_forgotten,
            a_purge_takes_refresh_tokens_with_their_grant,
            a_client_reads_back_whole_and_is_used_to_the_hour,
            at_the_cap_the_oldest_client_that_was_never_used_makes_room, a_client_in_use_never_makes_room,
            a_removed_client_takes_its_grants_with_it, an_assertion_is_used_once_by_whoever_is_first,
            a_document_reads_back_as_it_was_last_fetched, documents_have_an_end_and_the_oldest_go_first,
            a_purge_takes_old_documents_of_clients_without_a_grant,
            a_held_call_reads_back_whole_and_is_one_however_often_it_is_asked_for,
            one_principal_has_so_many_undecided_calls_and_no_more,
            what_is_withdrawn_or_runs_out_holds_nothing_and_leaves_no_room_for_a_minute, a_word_that_does_not_count_changes_nothing,
            words_are_counted_and_the_last_needed_one_decides,
            a_denial_is_in_force_for_as_long_as_the_call_could_have_waited, a_reopened_call_begins_anew,
            an_approval_is_used_once_and_in_time, of_many_at_once_one_uses_an_approval,
            a_result_goes_to_one_and_waits_for_so_long,
            what_ran_when_its_process_ended_is_found_and_never_used_again, what_runs_out_is_ended_once,
            changes_are_seen_by_every_process_in_order, what_is_old_is_erased_then_forgotten,
            that_somebody_waits_is_no_change,
            a_notice_is_sent_by_one_process_at_a_time, of_many_processes_at_once_one_takes_a_notice,
            what_was_tried_in_vain_is_tried_again_in_time, nobody_is_told_of_a_call_that_is_over,
            what_a_webhook_says_is_heard_once,
        );
    };
    (@cases $backend:ident, $open:expr, $($case:ident),+ $(,)?) => {
        mod $backend {
            $(#[tokio::test]
            async fn $case() {
                let dir = tempfile::tempdir().unwrap();
                let open = $open;
                let (here, there) = open(dir.path()).await;
                $crate::store::conformance::$case(here, there).await;
            })+
            use super::*;
        }
    };
}
pub(crate) use suite;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn grant(id: &str) -> Grant {
    Grant {
        id: id.into(),
        issuer: "https://mcp.example.com".into(),
        subject: Subject::User("alice".into()),
        client: "cli".into(),
        resource: "https://mcp.example.com/mcp/github".into(),
        scopes: Arc::new(["mcp".to_owned(), "deploy".to_owned()]),
        created_at_ms: 1_000,
        expires_at_ms: 2_000,
        made_by: "token issue".to_owned(),
        password_mark: None,
        longest_until_ms: None,
        revoked: None,
    }
}

pub(crate) async fn a_grant_reads_back_whole(here: Store, there: Store) {
    here.insert_grant(grant("g1")).await.unwrap();
    let machine = Grant { subject: Subject::Client("ci".into()), ..grant("g2") };
    there.insert_grant(machine.clone()).await.unwrap();

    assert_eq!(there.grant("g1").await.unwrap(), Some(grant("g1")));
    assert_eq!(here.grant("g2").await.unwrap(), Some(machine));
}

pub(crate) async fn an_unknown_grant_is_none(here: Store, _there: Store) {
    here.insert_grant(grant("g1")).await.unwrap();
    for id in ["", "g", "g11", "G1", "g1 ", "%", "' OR 1=1 --", "\0"] {
        assert_eq!(here.grant(id).await.unwrap(), None, "{id:?}");
    }
}

pub(crate) async fn an_id_is_used_once(here: Store, there: Store) {
    here.insert_grant(grant("g1")).await.unwrap();
    let other = Grant { subject: Subject::User("mallory".into()), ..grant("g1") };

    let refused = there.insert_grant(other).await;

    assert!(matches!(refused, Err(Error::Exists(id)) if id == "g1"));
    assert_eq!(here.grant("g1").await.unwrap(), Some(grant("g1")));
}

pub(crate) async fn a_grant_is_revoked_once_and_the_first_revocation_stays(here: Store, there: Store) {
    here.insert_grant(grant("g1")).await.unwrap();

    let first = here.revoke_grant("g1", "user:alice", 1_500).await.unwrap();
    let second = there.revoke_grant("g1", "user:bob", 1_600).await.unwrap();

    assert_eq!((first, second), (Revocation::Done, Revocation::Before));
    let revoked = there.grant("g1").await.unwrap().and_then(|grant| grant.revoked);
    assert_eq!(revoked, Some(Revoked { at_ms: 1_500, by: "user:alice".to_owned() }));
    let (_, feed) = there.revocations_after(0).await.unwrap();
    assert_eq!(feed, ["g1"]);
}

pub(crate) async fn an_unknown_grant_cannot_be_revoked(here: Store, there: Store) {
    let outcome = here.revoke_grant("nope", "user:alice", 1).await.unwrap();

    assert_eq!(outcome, Revocation::Unknown);
    assert_eq!(there.revocations_after(0).await.unwrap(), (0, vec![]));
}

pub(crate) async fn the_feed_tells_every_revocation_once_in_order(here: Store, there: Store) {
    for id in ["a", "b", "c"] {
        here.insert_grant(grant(id)).await.unwrap();
    }
    let (start, none) = there.revocations_after(0).await.unwrap();
    assert_eq!(none, [""; 0]);

    here.revoke_grant("b", "user:alice", 1).await.unwrap();
    let (first, seen) = there.revocations_after(start).await.unwrap();
    assert_eq!(seen, ["b"]);
    there.revoke_grant("a", "user:alice", 2).await.unwrap();
    here.revoke_grant("c", "user:alice", 3).await.unwrap();
    let (second, seen) = there.revocations_after(first).await.unwrap();
    assert_eq!(seen, ["a", "c"]);

    assert!(start < first && first < second);
    assert_eq!(there.revocations_after(second).await.unwrap(), (second, vec![]));
    // Somebody who joins later, or lost count, can start anew.
    assert_eq!(there.revocations_after(0).await.unwrap().1, ["b", "a", "c"]);
    assert_eq!(there.revocations_after(first).await.unwrap().1, ["a", "c"]);
}

pub(crate) async fn the_feed_goes_on_in_parts(here: Store, there: Store) {
    let n_revoked = MAX_GRANTS_OF_ONE_SUBJECT + 5;
    for n in 0..n_revoked {
        let id = format!("g{n}");
        here.insert_grant(grant(&id)).await.unwrap();
        here.revoke_grant(&id, "user:alice", 1).await.unwrap();
    }

    let (mut change, mut seen) = (0, 0);
    loop {
        let (next, ids) = there.revocations_after(change).await.unwrap();
        if ids.is_empty() {
            break;
        }
        seen += ids.len();
        change = next;
    }

    assert_eq!(seen, n_revoked);
}

pub(crate) async fn a_purge_takes_the_expired_and_their_revocations(here: Store, there: Store) {
    here.insert_grant(grant("old")).await.unwrap();
    here.insert_grant(grant("old and revoked")).await.unwrap();
    here.insert_grant(Grant { expires_at_ms: 2_001, ..grant("young") }).await.unwrap();
    here.revoke_grant("old and revoked", "user:alice", 1_500).await.unwrap();

    let n_purged = there.purge_expired(2_000).await.unwrap();

    assert_eq!(n_purged, 2);
    assert_eq!(here.grant("old").await.unwrap(), None);
    assert!(here.grant("young").await.unwrap().is_some());
    assert_eq!(here.revocations_after(0).await.unwrap().1, [""; 0]);
}

pub(crate) async fn numbers_of_the_feed_are_never_reused(here: Store, there: Store) {
    here.insert_grant(grant("g1")).await.unwrap();
    here.revoke_grant("g1", "user:alice", 1).await.unwrap();
    let (before, _) = there.revocations_after(0).await.unwrap();
    here.purge_expired(5_000).await.unwrap();

    here.insert_grant(grant("g2")).await.unwrap();
    here.revoke_grant("g2", "user:alice", 1).await.unwrap();

    let (after, seen) = there.revocations_after(before).await.unwrap();
    assert_eq!(seen, ["g2"]);
    assert!(after > before);
}

pub(crate) async fn grants_are_listed_by_subject_latest_first(here: Store, there: Store) {
    here.insert_grant(grant("first")).await.unwrap();
    here.insert_grant(Grant { created_at_ms: 1_001, ..grant("second") }).await.unwrap();
    let machine = Subject::Client("alice".into());
    here.insert_grant(Grant { subject: machine.clone(), ..grant("machine") }).await.unwrap();

    let ids = |grants: Vec<Grant>| grants.iter().map(|grant| grant.id.to_string()).collect::<Vec<_>>();
    let alice = there.grants_of(&Subject::User("alice".into())).await.unwrap();
    assert_eq!(ids(alice), ["second", "first"]);
    assert_eq!(ids(there.grants_of(&machine).await.unwrap()), ["machine"]);
    assert_eq!(ids(there.grants_of(&Subject::User("bob".into())).await.unwrap()), [""; 0]);
    assert_eq!(there.grants().await.unwrap().len(), 3);
}

pub(crate) async fn a_subject_has_an_end_of_grants(here: Store, there: Store) {
    for n in 0..MAX_GRANTS_OF_ONE_SUBJECT {
        here.insert_grant(grant(&format!("g{n}"))).await.unwrap();
    }

    let refused = there.insert_grant(grant("one more")).await;
    assert!(matches!(refused, Err(Error::TooMany { limit: 1000, .. })), "{refused:?}");

    // Others are not affected, and revoking one makes room.
    let bob = Grant { subject: Subject::User("bob".into()), ..grant("bob's") };
    there.insert_grant(bob).await.unwrap();
    there.revoke_grant("g0", "user:alice", 1).await.unwrap();
    there.insert_grant(grant("one more")).await.unwrap();
}

pub(crate) async fn failures_pause_a_name_longer_and_longer(here: Store, there: Store) {
    for _ in 0..5 {
        assert_eq!(here.login_attempt("alice", 0).await.unwrap(), Attempt::Open);
    }

    let locked = Attempt::Locked { until_ms: 1_000 };
    assert_eq!(there.login_attempt("alice", 999).await.unwrap(), locked);
    // A try during the pause does not lengthen it.
    assert_eq!(there.login_attempt("alice", 999).await.unwrap(), locked);
    assert_eq!(there.login_attempt("bob", 999).await.unwrap(), Attempt::Open);
    assert_eq!(there.login_attempt("alice", 1_000).await.unwrap(), Attempt::Open);
    let locked = Attempt::Locked { until_ms: 3_000 };
    assert_eq!(here.login_attempt("alice", 1_001).await.unwrap(), locked);
    assert_eq!(here.login_state("alice").await.unwrap().failures, 6);
}

pub(crate) async fn a_success_forgets_the_failures(here: Store, there: Store) {
    for _ in 0..5 {
        here.login_attempt("alice", 0).await.unwrap();
    }

    there.login_success("alice").await.unwrap();
    there.login_success("nobody").await.unwrap();

    assert_eq!(here.login_state("alice").await.unwrap(), Default::default());
    assert_eq!(here.login_attempt("alice", 1).await.unwrap(), Attempt::Open);
}

pub(crate) async fn tries_at_the_same_time_all_count(here: Store, there: Store) {
    let tries = (0..20).map(|n| {
        let store = if n % 2 == 0 { here.clone() } else { there.clone() };
        tokio::spawn(async move { store.login_attempt("alice", 0).await.unwrap() })
    });

    let mut n_open = 0;
    for attempt in tries.collect::<Vec<_>>() {
        n_open += usize::from(attempt.await.unwrap() == Attempt::Open);
    }

    assert_eq!(n_open, 5);
}

pub(crate) async fn failures_are_forgotten_after_a_quiet_day(here: Store, there: Store) {
    for at_ms in 0..4 {
        here.login_attempt("alice", at_ms).await.unwrap();
        here.login_attempt("bob", at_ms + DAY_MS).await.unwrap();
    }

    there.purge_expired(DAY_MS + 3).await.unwrap();

    assert_eq!(here.login_state("alice").await.unwrap().failures, 0);
    assert_eq!(here.login_state("bob").await.unwrap().failures, 4);
}

pub(crate) async fn an_ended_session_is_remembered_until_it_is_too_old(here: Store, there: Store) {
    here.end_session([1; 32], 1_000, 0).await.unwrap();
    here.end_session([1; 32], 1_500, 0).await.unwrap();
    there.end_session([2; 32], 2_000, 0).await.unwrap();

    assert_eq!(here.ended_sessions(0).await.unwrap(), [([1; 32], 1_000), ([2; 32], 2_000)]);
    assert_eq!(there.ended_sessions(1_001).await.unwrap(), [([2; 32], 2_000)]);

    here.end_session([3; 32], 9_000, 2_000).await.unwrap();

    assert_eq!(there.ended_sessions(0).await.unwrap(), [([2; 32], 2_000), ([3; 32], 9_000)]);
}
