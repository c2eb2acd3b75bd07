//! Held calls: decided once, used once, ended once, whoever asks through whichever process.

use super::grant;
use crate::store::{
    Approval, ApprovalDecision, ApprovalState as State, Holding, Move, NewNotice, Requester, Step, Store, Subject,
};
use std::convert::Infallible;

const KEEP_MS: i64 = 600;

fn requester(name: &str) -> Requester {
    Requester {
        issuer: grant("unused").issuer,
        subject: Subject::User(name.into()),
        client: "cli".into(),
        person: Some(name.into()),
        grant: Some("g1".into()),
    }
}

/// Asked for at 1 000 ms; 500 ms for a decision, 300 ms for using it.
fn new(id: &str, digest: u8) -> Approval {
    Approval {
        id: id.into(),
        state: State::Pending,
        digest: [digest; 32],
        requester: requester("alice"),
        upstream: "up".into(),
        tool: "rm \u{202e}".into(),
        rules: vec!["one".into(), "two, \"three\"".into()],
        rules_digest: [9; 32],
        terms: "{}".to_owned(),
        call: Some(vec![1, 2, 3]),
        result: None,
        created_at_ms: 1_000,
        expires_at_ms: 1_500,
        valid_for_ms: 300,
        decided_at_ms: None,
        usable_until_ms: None,
        consumed_at_ms: None,
        consumer: None,
        ended_at_ms: None,
        received_at_ms: None,
        waited_for_until_ms: 1_015,
        task_until_ms: None,
        note: None,
    }
}

async fn hold(store: &Store, new: Approval) -> Holding {
    store.hold(new, Vec::new(), 10, KEEP_MS).await.unwrap()
}

async fn held(store: &Store, id: &str, digest: u8) -> Approval {
    match hold(store, new(id, digest)).await {
        Holding::New(approval) => *approval,
        other => panic!("{other:?}"),
    }
}

/// Held, and told to these webhooks.
pub(super) async fn held_with(store: &Store, id: &str, digest: u8, notices: Vec<NewNotice>) {
    let holding = store.hold(new(id, digest), notices, 10, KEEP_MS).await.unwrap();
    assert!(matches!(holding, Holding::New(_)));
}

fn said(person: &str, approves: bool, at_ms: i64) -> ApprovalDecision {
    ApprovalDecision { person: person.into(), approves, via: "page".to_owned(), at_ms, mark: [3; 32] }
}

async fn decide(store: &Store, id: &str, decision: ApprovalDecision, step: Step) -> Approval {
    let note = Some("because".to_owned());
    let decided = store.decide_approval::<Infallible>(id, decision, note, Box::new(move |_, _| Ok(step))).await;
    let Some(Ok(approval)) = decided.unwrap() else { panic!("there is none") };
    approval
}

async fn approved(store: &Store, id: &str, digest: u8) {
    held(store, id, digest).await;
    assert_eq!(decide(store, id, said("bob", true, 1_100), Step::Approves).await.state, State::Approved);
}

async fn state(store: &Store, id: &str) -> State {
    store.approval(id).await.unwrap().expect("it is there").state
}

pub(crate) async fn a_held_call_reads_back_whole_and_is_one_however_often_it_is_asked_for(here: Store, there: Store) {
    let first = held(&here, "h1", 1).await;

    assert_eq!(there.approval("h1").await.unwrap(), Some(first.clone()));
    assert_eq!(first, new("h1", 1));
    assert_eq!(hold(&there, new("h2", 1)).await, Holding::Known(Box::new(first)));
    assert_eq!(there.approval("h2").await.unwrap(), None);
    let listed = there.approvals(&[State::Pending]).await.unwrap();
    assert_eq!(listed, [Approval { call: None, ..new("h1", 1) }]);
    assert_eq!(there.approvals(&[State::Approved, State::Denied]).await.unwrap(), []);
    // Too late for a decision: asked for anew.
    let later = Approval { created_at_ms: 1_500, expires_at_ms: 2_000, ..new("h3", 1) };
    assert_eq!(hold(&here, later.clone()).await, Holding::New(Box::new(later)));
}

pub(crate) async fn one_principal_has_so_many_undecided_calls_and_no_more(here: Store, there: Store) {
    held(&here, "h1", 1).await;
    held(&here, "h2", 2).await;

    let beyond = there.hold(new("h3", 3), Vec::new(), 2, KEEP_MS).await.unwrap();
    assert_eq!(beyond, Holding::TooMany);
    assert!(matches!(there.hold(new("h4", 1), Vec::new(), 2, KEEP_MS).await.unwrap(), Holding::Known(_)));
    let other = Approval { requester: requester("bob"), ..new("h5", 5) };
    assert!(matches!(there.hold(other, Vec::new(), 2, KEEP_MS).await.unwrap(), Holding::New(_)));
    decide(&here, "h1", said("bob", true, 1_100), Step::Approves).await;
    assert!(matches!(there.hold(new("h3", 3), Vec::new(), 2, KEEP_MS).await.unwrap(), Holding::New(_)));
}

pub(crate) async fn what_is_withdrawn_or_runs_out_holds_nothing_and_leaves_no_room_for_a_minute(
    here: Store,
    there: Store,
) {
    held(&here, "h1", 1).await;
    held(&here, "h2", 2).await;
    let step = Move {
        from: &[State::Pending],
        to: State::Withdrawn,
        at_ms: 1_100,
        note: None,
        reopened_until_ms: None,
        notices: Vec::new(),
    };

    assert!(here.move_approval("h1", step).await.unwrap());
    there.expire_approvals(1_500).await.unwrap();

    for (id, state) in [("h1", State::Withdrawn), ("h2", State::Expired)] {
        let over = there.approval(id).await.unwrap().expect("it is not forgotten");
        assert_eq!((over.call, over.state), (None, state));
    }
    let at =
        |id: &str, created_at_ms: i64| Approval { created_at_ms, expires_at_ms: created_at_ms + 500, ..new(id, 1) };
    let most = |new: Approval| there.hold(new, Vec::new(), 1, KEEP_MS);
    assert_eq!(most(at("h3", 60_999)).await.unwrap(), Holding::TooMany);
    let other = Approval { requester: requester("bob"), ..at("h4", 60_999) };
    assert!(matches!(most(other).await.unwrap(), Holding::New(_)));
    let later = Approval { digest: [3; 32], ..at("h5", 61_000) };
    assert!(matches!(most(later).await.unwrap(), Holding::New(_)));
}

pub(crate) async fn a_word_that_does_not_count_changes_nothing(here: Store, there: Store) {
    held(&here, "h1", 1).await;

    let refused =
        there.decide_approval("h1", said("bob", true, 1_100), None, Box::new(|_, _| Err("no"))).await.unwrap();

    assert_eq!(refused, Some(Err("no")));
    assert_eq!(here.approval_decisions("h1").await.unwrap(), []);
    assert_eq!(state(&here, "h1").await, State::Pending);
    let unknown = there.decide_approval::<()>("h9", said("bob", true, 1), None, Box::new(|_, _| Ok(Step::Approves)));
    assert_eq!(unknown.await.unwrap(), None);
}

pub(crate) async fn words_are_counted_and_the_last_needed_one_decides(here: Store, there: Store) {
    held(&here, "h1", 1).await;

    let counted = decide(&here, "h1", said("bob", true, 1_100), Step::Counts).await;
    assert_eq!((counted.state, counted.decided_at_ms), (State::Pending, None));
    let judged = |_: &Approval, before: &[ApprovalDecision]| {
        assert_eq!(before, [said("bob", true, 1_100)]);
        Ok::<_, Infallible>(Step::Approves)
    };
    let decided = there.decide_approval("h1", said("carol", true, 1_200), None, Box::new(judged)).await.unwrap();

    let Some(Ok(approved)) = decided else { panic!("{decided:?}") };
    assert_eq!((approved.state, approved.usable_until_ms), (State::Approved, Some(1_500)));
    assert_eq!(here.approval_decisions("h1").await.unwrap(), [said("bob", true, 1_100), said("carol", true, 1_200)]);
}

pub(crate) async fn a_denial_is_in_force_for_as_long_as_the_call_could_have_waited(here: Store, there: Store) {
    held(&here, "h1", 1).await;
    let denied = decide(&there, "h1", said("bob", false, 1_400), Step::Denies).await;

    assert_eq!((denied.state, denied.expires_at_ms, denied.note.as_deref()), (State::Denied, 1_900, Some("because")));
    let again = |at_ms: i64| Approval { created_at_ms: at_ms, ..new("h2", 1) };
    assert!(matches!(hold(&here, again(1_899)).await, Holding::Known(known) if *known.id == *"h1"));
    assert!(matches!(hold(&here, again(1_900)).await, Holding::New(_)));
}

pub(crate) async fn a_reopened_call_begins_anew(here: Store, there: Store) {
    held(&here, "h1", 1).await;
    decide(&there, "h1", said("bob", false, 1_400), Step::Denies).await;
    let reopening = Move {
        from: &[State::Denied],
        to: State::Pending,
        at_ms: 1_450,
        note: None,
        reopened_until_ms: Some(1_950),
        notices: Vec::new(),
    };

    assert!(there.move_approval("h1", reopening.clone()).await.unwrap());
    assert!(!here.move_approval("h1", reopening).await.unwrap(), "it is not denied any more");

    let reopened = here.approval("h1").await.unwrap().unwrap();
    assert_eq!((reopened.state, reopened.created_at_ms, reopened.expires_at_ms), (State::Pending, 1_450, 1_950));
    assert_eq!((reopened.ended_at_ms, reopened.decided_at_ms, reopened.note), (None, None, None));
    assert_eq!(here.approval_decisions("h1").await.unwrap(), []);
    // Who denied may say yes now.
    assert_eq!(decide(&there, "h1", said("bob", true, 1_500), Step::Approves).await.state, State::Approved);
}

pub(crate) async fn an_approval_is_used_once_and_in_time(here: Store, there: Store) {
    approved(&here, "h1", 1).await;
    approved(&here, "h2", 2).await;
    held(&here, "h3", 3).await;

    let taken = there.consume_approval("h1", there.process(), 1_399).await.unwrap().expect("it is the first");
    assert_eq!((taken.state, taken.consumed_at_ms), (State::Consumed, Some(1_399)));
    assert_eq!(here.consume_approval("h1", here.process(), 1_399).await.unwrap(), None);
    assert_eq!(here.consume_approval("h2", here.process(), 1_400).await.unwrap(), None, "too late");
    assert_eq!(here.consume_approval("h3", here.process(), 1_100).await.unwrap(), None, "nobody has decided");
    let identical = Approval { created_at_ms: 9_000, ..new("h4", 1) };
    assert!(matches!(hold(&here, identical).await, Holding::Known(known) if known.state == State::Consumed));
}

pub(crate) async fn of_many_at_once_one_uses_an_approval(here: Store, there: Store) {
    approved(&here, "h1", 1).await;
    let mut tries = tokio::task::JoinSet::new();
    for n in 0..100 {
        let store = if n % 2 == 0 { here.clone() } else { there.clone() };
        tries.spawn(async move { store.consume_approval("h1", store.process(), 1_200).await.unwrap().is_some() });
    }
    let won: Vec<bool> = tries.join_all().await.into_iter().filter(|won| *won).collect();
    assert_eq!(won.len(), 1);
}

pub(crate) async fn a_result_goes_to_one_and_waits_for_so_long(here: Store, there: Store) {
    approved(&here, "h1", 1).await;
    here.consume_approval("h1", here.process(), 1_200).await.unwrap().unwrap();
    let end = |store: Store, who: String| async move {
        store.finish_approval("h1", &who, State::Completed, Some(vec![7]), None, 1_300).await.unwrap()
    };

    assert!(!end(there.clone(), "p_other".to_owned()).await, "another process ran it");
    assert!(end(here.clone(), here.process().to_owned()).await);
    assert!(!end(here.clone(), here.process().to_owned()).await, "it has ended");

    let again = |at_ms: i64| Approval { created_at_ms: at_ms, ..new("h2", 1) };
    let Holding::Known(kept) = hold(&there, again(1_899)).await else { panic!("it is kept") };
    assert_eq!((kept.state, kept.result.as_deref()), (State::Completed, Some(&[7][..])));
    assert!(there.receive_approval("h1", 1_350).await.unwrap());
    assert!(!here.receive_approval("h1", 1_360).await.unwrap(), "somebody has it");
    assert!(matches!(hold(&here, again(1_400)).await, Holding::New(_)));
    // And one that nobody fetched.
    approved(&here, "h3", 3).await;
    here.consume_approval("h3", here.process(), 1_200).await.unwrap().unwrap();
    let process = here.process().to_owned();
    here.finish_approval("h3", &process, State::Failed, Some(vec![8]), None, 1_300).await.unwrap();
    let late = Approval { created_at_ms: 1_300 + KEEP_MS, ..new("h4", 3) };
    assert!(matches!(hold(&there, late).await, Holding::New(_)));
}

pub(crate) async fn what_ran_when_its_process_ended_is_found_and_never_used_again(here: Store, there: Store) {
    approved(&here, "h1", 1).await;
    approved(&here, "h2", 2).await;
    here.consume_approval("h1", "p_killed", 1_200).await.unwrap().unwrap();
    here.consume_approval("h2", here.process(), 1_200).await.unwrap().unwrap();

    let lost = there.find_lost_approvals(1_300).await.unwrap();

    assert_eq!(lost.iter().map(|one| &*one.id).collect::<Vec<_>>(), ["h1"]);
    assert_eq!(state(&there, "h2").await, State::Consumed, "its process is there");
    assert_eq!(there.find_lost_approvals(1_300).await.unwrap(), []);
    assert_eq!(here.consume_approval("h1", here.process(), 1_250).await.unwrap(), None);
    let identical = Approval { created_at_ms: 1_000_000, ..new("h3", 1) };
    assert!(
        matches!(hold(&here, identical.clone()).await, Holding::Known(known) if known.state == State::Indeterminate)
    );
    let resolving = Move {
        from: &[State::Indeterminate],
        to: State::Failed,
        at_ms: 1_400,
        note: None,
        reopened_until_ms: None,
        notices: Vec::new(),
    };
    assert!(here.move_approval("h1", resolving).await.unwrap());
    assert!(matches!(hold(&here, identical).await, Holding::New(_)));
}

pub(crate) async fn what_runs_out_is_ended_once(here: Store, there: Store) {
    held(&here, "h1", 1).await;
    approved(&here, "h2", 2).await;

    assert_eq!(there.expire_approvals(1_399).await.unwrap(), []);
    let late: Vec<_> = there.expire_approvals(1_400).await.unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(late, ["h2".into()]);
    let undecided: Vec<_> = here.expire_approvals(1_500).await.unwrap().into_iter().map(|one| one.id).collect();
    assert_eq!(undecided, ["h1".into()]);
    assert_eq!(there.expire_approvals(9_999).await.unwrap(), []);
    assert_eq!(here.consume_approval("h2", here.process(), 1_200).await.unwrap(), None, "nor when the clock goes back");
}

pub(crate) async fn changes_are_seen_by_every_process_in_order(here: Store, there: Store) {
    let (start, _) = there.approvals_after(0).await.unwrap();
    held(&here, "h1", 1).await;
    held(&here, "h2", 2).await;
    decide(&here, "h1", said("bob", true, 1_100), Step::Approves).await;

    let (seen, ids) = there.approvals_after(start).await.unwrap();
    assert_eq!(ids, ["h2".into(), "h1".into()]);
    assert_eq!(there.approvals_after(seen).await.unwrap(), (seen, vec![]));
    here.set_approval_task("h2", Some(5_000)).await.unwrap();
    assert_eq!(there.approvals_after(seen).await.unwrap().1, ["h2".into()]);
    assert_eq!(there.approval("h2").await.unwrap().unwrap().task_until_ms, Some(5_000));
}

pub(crate) async fn what_is_old_is_erased_then_forgotten(here: Store, there: Store) {
    held(&here, "h1", 1).await;
    decide(&here, "h1", said("bob", false, 1_400), Step::Denies).await;
    held(&here, "h2", 2).await;
    let notice = NewNotice { id: "msg_1".to_owned(), hook: "chat".to_owned(), nonce: "n".to_owned() };
    there.hold(new("h3", 3), vec![notice], 10, KEEP_MS).await.unwrap();

    there.purge_approvals(1_400, 1_000).await.unwrap();
    assert!(here.approval("h1").await.unwrap().unwrap().call.is_some());
    there.purge_approvals(1_401, 1_400).await.unwrap();
    let erased = here.approval("h1").await.unwrap().expect("not forgotten yet");
    assert_eq!((erased.call, erased.state), (None, State::Denied));
    there.purge_approvals(9_999, 1_401).await.unwrap();
    assert_eq!(here.approval("h1").await.unwrap(), None);
    assert_eq!(here.approval_decisions("h1").await.unwrap(), []);
    assert!(here.approval("h2").await.unwrap().unwrap().call.is_some(), "it still waits");
}

pub(crate) async fn that_somebody_waits_is_no_change(here: Store, there: Store) {
    held(&here, "h1", 1).await;
    let (seen, _) = there.approvals_after(0).await.unwrap();

    here.attend_approvals(vec!["h1".into()], 7_000).await.unwrap();

    assert_eq!(there.approvals_after(seen).await.unwrap().1, Vec::<std::sync::Arc<str>>::new());
    assert_eq!(there.approval("h1").await.unwrap().unwrap().waited_for_until_ms, 7_000);
}
