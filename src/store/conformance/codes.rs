//! Authorization codes: had once, whoever asks for them through whichever process.

use super::{DAY_MS, grant};
use crate::store::{
    Code, Error, Grant, LOGIN, MAX_GRANTS_OF_ONE_SUBJECT, MAX_WRONG_TRIES, NewRefreshToken, Redeemed, Redemption, Store,
};

fn code(n: u8) -> Code {
    let grant = grant("unused");
    Code {
        digest: [n; 32],
        issuer: grant.issuer,
        subject: grant.subject,
        client: grant.client,
        resource: grant.resource,
        scopes: grant.scopes,
        password_mark: Some("mark".into()),
        redirect_uri: "http://127.0.0.1:1/?a=b".to_owned(),
        challenge: "challenge".to_owned(),
        expires_at_ms: 2_000,
    }
}

/// A login, for the code of this number, at 1 000 ms.
pub(super) fn redemption(n: u8, id: &str) -> Redemption {
    let longest_until_ms = Some(90 * DAY_MS);
    let grant = Grant { made_by: LOGIN.to_owned(), longest_until_ms, expires_at_ms: 30 * DAY_MS, ..grant(id) };
    let refresh_token = Some(NewRefreshToken { digest: [n + 100; 32], expires_at_ms: 30 * DAY_MS });
    Redemption { code: [n; 32], grant, refresh_token }
}

/// A login whose first refresh token is `[n + 100; 32]`.
pub(super) async fn logged_in(store: &Store, n: u8, id: &str) {
    store.insert_code(code(n)).await.unwrap();
    let redeemed = store.redeem_code(redemption(n, id)).await.unwrap();
    assert_eq!(redeemed, Redeemed::Granted { displaced: None });
}

pub(crate) async fn a_code_reads_back_whole_and_the_first_of_two_stays(here: Store, there: Store) {
    here.insert_code(code(1)).await.unwrap();
    there.insert_code(Code { challenge: "other".to_owned(), ..code(1) }).await.unwrap();

    assert_eq!(there.code([1; 32]).await.unwrap(), Some(code(1)));
    assert_eq!(here.code([2; 32]).await.unwrap(), None);
}

pub(crate) async fn a_code_becomes_one_grant_with_its_refresh_token(here: Store, there: Store) {
    here.insert_code(code(1)).await.unwrap();
    assert!(there.is_code_open([1; 32], 1_999).await.unwrap());
    assert!(!there.is_code_open([1; 32], 2_000).await.unwrap());

    let redeemed = there.redeem_code(redemption(1, "g1")).await.unwrap();

    assert_eq!(redeemed, Redeemed::Granted { displaced: None });
    assert!(!here.is_code_open([1; 32], 1_000).await.unwrap());
    assert_eq!(here.grant("g1").await.unwrap(), Some(redemption(1, "g1").grant));
    let token = here.refresh_token([101; 32]).await.unwrap().unwrap();
    assert_eq!((&*token.grant.id, token.expires_at_ms, token.used_at_ms), ("g1", 30 * DAY_MS, None));
}

pub(crate) async fn a_code_that_comes_again_revokes_what_it_became(here: Store, there: Store) {
    logged_in(&here, 1, "g1").await;

    for _ in 0..2 {
        let again = there.redeem_code(redemption(1, "g2")).await.unwrap();
        assert_eq!(again, Redeemed::Replayed { grant: "g1".into() });
    }

    assert!(here.grant("g1").await.unwrap().unwrap().revoked.is_some());
    assert_eq!(here.grant("g2").await.unwrap(), None);
    assert_eq!(here.revocations_after(0).await.unwrap().1, ["g1"]);
}

pub(crate) async fn a_code_that_is_unknown_late_or_tried_too_often_becomes_nothing(here: Store, there: Store) {
    here.insert_code(code(1)).await.unwrap();
    here.insert_code(Code { expires_at_ms: 1_000, ..code(2) }).await.unwrap();
    for _ in 0..MAX_WRONG_TRIES {
        there.count_wrong_try([1; 32]).await.unwrap();
        there.count_wrong_try([3; 32]).await.unwrap();
    }

    for n in [1, 2, 3] {
        assert!(!here.is_code_open([n; 32], 1_000).await.unwrap(), "code {n}");
        assert_eq!(here.redeem_code(redemption(n, "g1")).await.unwrap(), Redeemed::Over, "code {n}");
    }

    assert_eq!(here.grants().await.unwrap(), []);
    assert_eq!(here.refresh_token([101; 32]).await.unwrap(), None);
}

/// AS-51, between processes that share a store.
pub(crate) async fn of_a_hundred_redemptions_one_becomes_a_grant(here: Store, there: Store) {
    here.insert_code(code(1)).await.unwrap();
    let all = (0..100).map(|n| {
        let store = if n % 2 == 0 { here.clone() } else { there.clone() };
        let redemption = redemption(1, &format!("g{n}"));
        let redemption = Redemption { refresh_token: None, ..redemption };
        tokio::spawn(async move { store.redeem_code(redemption).await.unwrap() })
    });

    let (mut n_granted, mut n_replayed) = (0, 0);
    for one in all.collect::<Vec<_>>() {
        match one.await.unwrap() {
            Redeemed::Granted { .. } => n_granted += 1,
            Redeemed::Replayed { .. } => n_replayed += 1,
            Redeemed::Over => {}
        }
    }

    assert_eq!((n_granted, n_replayed), (1, 99));
    assert_eq!(there.grants().await.unwrap().len(), 1);
}

pub(crate) async fn a_login_makes_room_for_itself_and_what_was_made_by_hand_stays(here: Store, there: Store) {
    let login = |id: &str, expires_at_ms: i64| Grant { expires_at_ms, ..redemption(1, id).grant };
    here.insert_grant(Grant { client: "other".into(), ..login("other client", 5_000) }).await.unwrap();
    here.insert_grant(login("idle", 6_000)).await.unwrap();
    for n in 2..MAX_GRANTS_OF_ONE_SUBJECT {
        here.insert_grant(Grant { expires_at_ms: 4_000, ..grant(&format!("by hand {n}")) }).await.unwrap();
    }
    let log_in = async |n: u8, id: &str| {
        here.insert_code(code(n)).await.unwrap();
        there.redeem_code(redemption(n, id)).await
    };

    // The same client's first, then whosever; then its own again.
    let displaced = |id: &str| Redeemed::Granted { displaced: Some(id.into()) };
    assert_eq!(log_in(1, "first").await.unwrap(), displaced("idle"));
    assert_eq!(log_in(2, "second").await.unwrap(), displaced("first"));
    here.revoke_grant("second", "user:alice", 1_000).await.unwrap();
    here.insert_grant(grant("by hand")).await.unwrap();
    assert_eq!(log_in(3, "third").await.unwrap(), displaced("other client"));

    // Where there is no login to end, none begins, and the code is not used up.
    here.revoke_grant("third", "user:alice", 1_000).await.unwrap();
    here.insert_grant(grant("by hand, too")).await.unwrap();
    let refused = log_in(4, "fourth").await;
    assert!(matches!(refused, Err(Error::TooMany { .. })), "{refused:?}");
    here.revoke_grant("by hand, too", "user:alice", 1_000).await.unwrap();
    assert_eq!(log_in(4, "fourth").await.unwrap(), Redeemed::Granted { displaced: None });
}

pub(crate) async fn a_purge_takes_codes_that_have_expired(here: Store, there: Store) {
    here.insert_code(code(1)).await.unwrap();
    here.insert_code(Code { expires_at_ms: 2_001, ..code(2) }).await.unwrap();

    there.purge_expired(2_000).await.unwrap();

    assert_eq!(here.code([1; 32]).await.unwrap(), None);
    assert!(here.code([2; 32]).await.unwrap().is_some());
}
