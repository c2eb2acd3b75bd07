//! Refresh tokens: one successor each, whoever asks through whichever process, and in whatever order.

use super::DAY_MS;
use super::codes::logged_in;
use crate::store::{Error, MAX_USED_TOKENS_OF_ONE_GRANT, NewRefreshToken, RETRY_WINDOW_MS, Rotated, Rotation, Store};

/// From one token to another, at this time. What is sealed names the successor.
fn rotation(token: u8, successor: u8, at_ms: i64) -> Rotation {
    let expires_at_ms = at_ms + 30 * DAY_MS;
    let successor_token = NewRefreshToken { digest: [successor; 32], expires_at_ms };
    Rotation { token: [token; 32], at_ms, successor: successor_token, sealed: vec![successor] }
}

async fn rotate(store: &Store, token: u8, successor: u8, at_ms: i64) -> Rotated {
    store.rotate_refresh_token(rotation(token, successor, at_ms)).await.unwrap()
}

async fn is_revoked(store: &Store) -> bool {
    store.grant("g1").await.unwrap().unwrap().revoked.is_some()
}

pub(crate) async fn a_refresh_token_gives_a_successor_and_moves_the_end(here: Store, there: Store) {
    logged_in(&here, 1, "g1").await;

    assert_eq!(rotate(&there, 101, 1, 5 * DAY_MS).await, Rotated::Fresh);

    let [used, fresh] = [here.refresh_token([101; 32]).await, here.refresh_token([1; 32]).await];
    assert_eq!(used.unwrap().unwrap().used_at_ms, Some(5 * DAY_MS));
    let fresh = fresh.unwrap().unwrap();
    assert_eq!((fresh.used_at_ms, fresh.expires_at_ms, fresh.grant.expires_at_ms), (None, 35 * DAY_MS, 35 * DAY_MS));
    // Never beyond its longest.
    assert_eq!(rotate(&there, 1, 2, 34 * DAY_MS).await, Rotated::Fresh);
    assert_eq!(rotate(&here, 2, 3, 63 * DAY_MS).await, Rotated::Fresh);
    let last = there.refresh_token([3; 32]).await.unwrap().unwrap();
    assert_eq!((last.expires_at_ms, last.grant.expires_at_ms), (90 * DAY_MS, 90 * DAY_MS));
}

pub(crate) async fn a_token_gives_the_same_successor_again_for_a_moment(here: Store, there: Store) {
    logged_in(&here, 1, "g1").await;
    rotate(&here, 101, 1, 2_000).await;

    assert_eq!(rotate(&there, 101, 2, 2_000).await, Rotated::Again(vec![1]));
    assert_eq!(rotate(&there, 101, 3, 2_000 + RETRY_WINDOW_MS - 1).await, Rotated::Again(vec![1]));
    assert_eq!(here.refresh_token([2; 32]).await.unwrap(), None);
    assert!(!is_revoked(&here).await);

    assert_eq!(rotate(&there, 101, 4, 2_000 + RETRY_WINDOW_MS).await, Rotated::Replayed);
    assert!(is_revoked(&here).await);
    assert_eq!(rotate(&here, 1, 5, 2_000 + RETRY_WINDOW_MS).await, Rotated::Over);
}

pub(crate) async fn a_token_whose_successor_was_used_is_a_replay(here: Store, there: Store) {
    logged_in(&here, 1, "g1").await;
    rotate(&here, 101, 1, 2_000).await;
    rotate(&there, 1, 2, 2_000).await;

    assert_eq!(rotate(&here, 101, 3, 2_000).await, Rotated::Replayed);

    assert_eq!(rotate(&there, 2, 4, 2_000).await, Rotated::Over);
    assert_eq!(there.revocations_after(0).await.unwrap().1, ["g1"]);
}

/// Of two that come at once, the one that looked at the clock first may come second; clocks of two processes differ, too.
pub(crate) async fn a_token_that_was_used_a_moment_later_than_now_is_no_replay(here: Store, there: Store) {
    logged_in(&here, 1, "g1").await;
    rotate(&here, 101, 1, DAY_MS).await;

    assert_eq!(rotate(&there, 101, 2, DAY_MS - 1).await, Rotated::Again(vec![1]));
    assert_eq!(rotate(&there, 101, 2, DAY_MS - RETRY_WINDOW_MS).await, Rotated::Replayed);
}

pub(crate) async fn an_expired_token_or_grant_is_over(here: Store, there: Store) {
    logged_in(&here, 1, "g1").await;

    assert_eq!(rotate(&there, 101, 1, 30 * DAY_MS).await, Rotated::Over);
    assert_eq!(rotate(&there, 9, 1, 2_000).await, Rotated::Over);

    assert_eq!(here.refresh_token([1; 32]).await.unwrap(), None);
    assert_eq!(rotate(&here, 101, 1, 30 * DAY_MS - 1).await, Rotated::Fresh);
}

/// AS-64: whichever comes first, the end is the same.
pub(crate) async fn a_revocation_is_never_undone_by_a_refresh_under_way(here: Store, there: Store) {
    for n in 0..20 {
        let id = format!("g{n}");
        logged_in(&here, n, &id).await;
        let (refreshing, revoking) = (there.clone(), here.clone());
        let refresh = tokio::spawn(async move { rotate(&refreshing, n + 100, n + 200, 2_000).await });
        let revoke = tokio::spawn(async move { revoking.revoke_grant(&id, "user:alice", 2_000).await.unwrap() });
        let refreshed = refresh.await.unwrap();
        revoke.await.unwrap();

        assert!(here.grant(&format!("g{n}")).await.unwrap().unwrap().revoked.is_some());
        let live = if refreshed == Rotated::Fresh { n + 200 } else { n + 100 };
        assert_eq!(rotate(&here, live, 99, 3_000).await, Rotated::Over);
    }
}

/// AS-63: however fifty refreshes of one token fall together, there is one successor, and nobody is logged out.
pub(crate) async fn of_fifty_refreshes_at_once_there_is_one_successor(here: Store, there: Store) {
    logged_in(&here, 155, "g1").await;
    let mut live = 255;
    for round in 0..4_u8 {
        let all = (0..50).map(|n| {
            let store = if (n + round) % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move { rotate(&store, live, round * 50 + n % 50, 2_000).await })
        });

        let (mut n_fresh, mut again) = (0, Vec::new());
        for one in all.collect::<Vec<_>>() {
            match one.await.unwrap() {
                Rotated::Fresh => n_fresh += 1,
                Rotated::Again(sealed) => again.push(sealed),
                other => panic!("{other:?}"),
            }
        }

        again.dedup();
        assert_eq!((n_fresh, again.len()), (1, 1));
        live = again[0][0];
        // The numbers of a round are its own: none of the tokens that lost is there.
        let mut n_live = 0;
        for n in 0..50 {
            n_live += usize::from(here.refresh_token([round * 50 + n; 32]).await.unwrap().is_some());
        }
        assert_eq!(n_live, 1);
    }
    assert!(!is_revoked(&here).await);
}

/// Whoever refreshes all day does not fill the disk.
pub(crate) async fn the_oldest_used_tokens_of_a_grant_are_forgotten(here: Store, there: Store) {
    let digest = |n: i64| <[u8; 32]>::try_from([&n.to_be_bytes()[..], &[0; 24]].concat()).unwrap();
    logged_in(&here, 1, "g1").await;
    let first =
        Rotation { successor: NewRefreshToken { digest: digest(0), expires_at_ms: DAY_MS }, ..rotation(101, 0, 2_000) };
    here.rotate_refresh_token(first).await.unwrap();
    for n in 0..MAX_USED_TOKENS_OF_ONE_GRANT {
        let successor = NewRefreshToken { digest: digest(n + 1), expires_at_ms: DAY_MS };
        let next = Rotation { token: digest(n), successor, ..rotation(0, 0, 2_000) };
        assert_eq!(here.rotate_refresh_token(next).await.unwrap(), Rotated::Fresh);
    }

    assert_eq!(there.refresh_token([101; 32]).await.unwrap(), None);
    // One that is not forgotten yet is a replay as ever.
    let replay = Rotation { token: digest(0), ..rotation(0, 1, 2_000) };
    assert_eq!(there.rotate_refresh_token(replay).await.unwrap(), Rotated::Replayed);
}

pub(crate) async fn a_purge_takes_refresh_tokens_with_their_grant(here: Store, there: Store) {
    logged_in(&here, 1, "g1").await;
    logged_in(&here, 2, "g2").await;
    rotate(&here, 102, 1, 20 * DAY_MS).await;

    there.purge_expired(30 * DAY_MS).await.unwrap();

    for gone in [101, 102] {
        assert_eq!(here.refresh_token([gone; 32]).await.unwrap(), None, "{gone}");
    }
    assert!(here.refresh_token([1; 32]).await.unwrap().is_some());
    assert_eq!(here.grants().await.unwrap().len(), 1);
    let taken = here.insert_grant(crate::store::Grant { id: "g2".into(), ..super::grant("g2") }).await;
    assert!(matches!(taken, Err(Error::Exists(_))));
}
