//! Notices to webhooks: one process sends one at a time, and none is lost or told twice as news.

use super::approvals::held_with;
use crate::store::{ApprovalState as State, Move, NewNotice, Notice, NoticeState, Store};

fn notice(id: &str, hook: &str) -> NewNotice {
    NewNotice { id: id.to_owned(), hook: hook.to_owned(), nonce: format!("nonce of {id}") }
}

async fn withdraw(store: &Store, id: &str) {
    let step = Move {
        from: &[State::Pending],
        to: State::Withdrawn,
        at_ms: 1_200,
        note: None,
        reopened_until_ms: None,
        notices: Vec::new(),
    };
    assert!(store.move_approval(id, step).await.unwrap());
}

fn ids(notices: &[Notice]) -> Vec<&str> {
    notices.iter().map(|notice| &*notice.id).collect()
}

pub(crate) async fn a_notice_is_sent_by_one_process_at_a_time(here: Store, there: Store) {
    held_with(&here, "h1", 1, vec![notice("m1", "pager"), notice("m2", "chat")]).await;

    let taken = here.claim_notices("pager", 9, 1_000, 1_015).await.unwrap();
    assert_eq!(ids(&taken), ["m1"]);
    assert_eq!((&*taken[0].approval, &*taken[0].nonce, taken[0].attempts), ("h1", "nonce of m1", 0));
    for store in [&here, &there] {
        assert_eq!(store.claim_notices("pager", 9, 1_014, 1_100).await.unwrap(), []);
        assert_eq!(store.claim_notices("nobody", 9, 1_014, 1_100).await.unwrap(), []);
    }
    assert_eq!(ids(&there.claim_notices("chat", 9, 1_000, 1_015).await.unwrap()), ["m2"]);

    // The first one died with it.
    let again = there.claim_notices("pager", 9, 1_015, 1_030).await.unwrap();
    assert_eq!(ids(&again), ["m1"]);
    assert!(!here.end_notice(&taken[0], NoticeState::Delivered, None, 1_016).await.unwrap());
    assert!(!here.retry_notice(&taken[0], 1_020, "slow").await.unwrap());
    assert!(there.end_notice(&again[0], NoticeState::Delivered, None, 1_016).await.unwrap());
    assert!(!there.end_notice(&again[0], NoticeState::Dead, None, 1_017).await.unwrap());
    let all = here.notices("h1").await.unwrap();
    assert_eq!(ids(&all), ["m2", "m1"]);
    assert_eq!((all[1].state, all[1].attempts, all[1].ended_at_ms), (NoticeState::Delivered, 1, Some(1_016)));
}

pub(crate) async fn of_many_processes_at_once_one_takes_a_notice(here: Store, there: Store) {
    let notices = (0..20).map(|n| notice(&format!("m{n}"), "pager")).collect();
    held_with(&here, "h1", 1, notices).await;

    let claims = (0..40).map(|n| {
        let store = if n % 2 == 0 { here.clone() } else { there.clone() };
        tokio::spawn(async move { store.claim_notices("pager", 3, 1_000, 1_500).await.unwrap() })
    });
    let mut taken = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        taken.extend(claim.await.unwrap().iter().map(|notice| notice.id.to_string()));
    }

    taken.sort();
    assert_eq!(taken.len(), 20);
    taken.dedup();
    assert_eq!(taken.len(), 20);
}

pub(crate) async fn what_was_tried_in_vain_is_tried_again_in_time(here: Store, there: Store) {
    held_with(&here, "h1", 1, vec![notice("m1", "pager")]).await;
    let taken = here.claim_notices("pager", 9, 1_000, 1_015).await.unwrap();
    assert!(here.retry_notice(&taken[0], 1_050, "status 500").await.unwrap());

    assert_eq!(there.claim_notices("pager", 9, 1_049, 1_060).await.unwrap(), []);
    let again = there.claim_notices("pager", 9, 1_050, 1_065).await.unwrap();
    assert_eq!((again[0].attempts, again[0].last_error.as_deref()), (1, Some("status 500")));
    assert_eq!(here.count_notices(0).await.unwrap().waiting, 1);
    assert!(there.end_notice(&again[0], NoticeState::Dead, Some("gone"), 1_051).await.unwrap());
    let counts = here.count_notices(1_051).await.unwrap();
    assert_eq!((counts.waiting, counts.dead), (0, 1));
    assert_eq!(here.count_notices(1_052).await.unwrap().dead, 0);
}

pub(crate) async fn nobody_is_told_of_a_call_that_is_over(here: Store, there: Store) {
    held_with(&here, "h1", 1, vec![notice("m1", "pager"), notice("m2", "chat")]).await;
    held_with(&here, "h2", 2, vec![notice("m3", "pager")]).await;
    let taken = here.claim_notices("pager", 1, 1_000, 1_015).await.unwrap();
    assert_eq!(ids(&taken), ["m1"]);
    assert_eq!(there.end_late_notices(1_000).await.unwrap(), []);

    withdraw(&here, "h1").await;

    assert_eq!(there.claim_notices("chat", 9, 1_001, 1_015).await.unwrap(), []);
    // What is being sent may still arrive.
    let late = there.end_late_notices(1_001).await.unwrap();
    assert_eq!(ids(&late), ["m2"]);
    assert_eq!(late[0].state, NoticeState::Dead);
    assert_eq!(late[0].last_error.as_deref(), Some("the call was over before it could be delivered"));
    assert!(here.retry_notice(&taken[0], 1_050, "status 500").await.unwrap());
    let late = there.end_late_notices(1_016).await.unwrap();
    assert_eq!(late[0].last_error.as_deref(), Some("the call was over before it could be delivered: status 500"));
    // Its time for a decision has run out at 1 500, whether or not that was noted.
    assert_eq!(there.claim_notices("pager", 9, 1_500, 1_600).await.unwrap(), []);
    assert_eq!(ids(&there.claim_notices("pager", 9, 1_499, 1_499).await.unwrap()), ["m3"]);
    assert_eq!(ids(&here.end_late_notices(1_500).await.unwrap()), ["m3"]);
}

pub(crate) async fn what_a_webhook_says_is_heard_once(here: Store, there: Store) {
    assert!(here.hear_webhook("pager", "msg_1", 1_000).await.unwrap());
    assert!(!there.hear_webhook("pager", "msg_1", 1_001).await.unwrap());
    assert!(there.hear_webhook("chat", "msg_1", 1_001).await.unwrap());
    there.unhear_webhook("chat", "msg_1").await.unwrap();
    assert!(here.hear_webhook("chat", "msg_1", 1_001).await.unwrap());
    here.forget_webhooks(1_001).await.unwrap();
    assert!(there.hear_webhook("pager", "msg_1", 1_002).await.unwrap());
    assert!(!here.hear_webhook("chat", "msg_1", 1_002).await.unwrap());
}
