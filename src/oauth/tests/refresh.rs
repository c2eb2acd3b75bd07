//! Refresh tokens: each gives one successor, also to a client that lost the answer, and to nobody twice.

use super::*;
use crate::store::{RETRY_WINDOW_MS, Revocation};

/// AS-59.
#[tokio::test]
async fn every_refresh_gives_a_new_access_token_and_a_new_refresh_token() {
    let world = World::new().await;
    let (access, mut refresh) = world.log_in("code").await;
    let grant = claims(&access)["grant"].clone();

    let mut seen = vec![refresh.clone()];
    for _ in 0..5 {
        world.clock.advance_ms(60 * SECOND);
        let answer = world.refresh(&refresh, &[]).await;
        assert_eq!((answer.status, &answer.body["expires_in"]), (200, &json!(600)), "{answer:?}");
        assert_eq!((answer.text("scope").as_str(), answer.text("token_type").as_str()), ("mcp deploy", "Bearer"));
        assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
        let access = answer.text("access_token");
        assert!(world.is_accepted(&access).await);
        assert_eq!((&claims(&access)["grant"], &claims(&access)["aud"]), (&grant, &json!(RESOURCE)));
        refresh = answer.text("refresh_token");
        assert!(!seen.contains(&refresh));
        seen.push(refresh.clone());
    }
    let secrets: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(world.events(&secrets).iter().filter(|event| *event == "token.refreshed").count(), 5);
}

/// AS-61: an answer that was lost, or a second process of the same client, is no theft.
#[tokio::test]
async fn a_token_that_comes_again_soon_gives_the_same_successor_again() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;
    let first = world.refresh(&refresh, &[]).await;

    world.clock.advance_ms(RETRY_WINDOW_MS - 1);
    let again = world.refresh(&refresh, &[]).await;

    assert_eq!(again.text("refresh_token"), first.text("refresh_token"));
    assert!(world.is_accepted(&again.text("access_token")).await);
    assert_eq!(world.refresh(&again.text("refresh_token"), &[]).await.status, 200);
}

/// AS-60.
#[tokio::test]
async fn a_token_that_comes_again_later_ends_the_grant() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;
    let first = world.refresh(&refresh, &[]).await;

    world.clock.advance_ms(RETRY_WINDOW_MS);
    world.refresh(&refresh, &[]).await.is_error(400, "invalid_grant");

    assert!(!world.is_accepted(&first.text("access_token")).await);
    world.refresh(&first.text("refresh_token"), &[]).await.is_error(400, "invalid_grant");
    assert_eq!(world.grants().await[0].revoked.as_ref().map(|it| &*it.by), Some("replay"));
    assert!(world.events(&[&refresh]).contains(&"token.replayed".to_owned()));
}

/// AS-62: the window is no way around the check.
#[tokio::test]
async fn a_token_whose_successor_was_used_ends_the_grant_at_any_time() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;
    let second = world.refresh(&refresh, &[]).await.text("refresh_token");
    let third = world.refresh(&second, &[]).await;

    world.refresh(&refresh, &[]).await.is_error(400, "invalid_grant");

    assert!(!world.is_accepted(&third.text("access_token")).await);
    world.refresh(&third.text("refresh_token"), &[]).await.is_error(400, "invalid_grant");
}

/// AS-64: what was revoked stays revoked, in the window too.
#[tokio::test]
async fn a_revoked_grant_is_not_refreshed() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;
    let second = world.refresh(&refresh, &[]).await.text("refresh_token");
    let id = world.grants().await.remove(0).id;

    assert_eq!(world.shared.store.revoke_grant(&id, "user:alice", 5).await.unwrap(), Revocation::Done);

    for token in [&refresh, &second] {
        world.refresh(token, &[]).await.is_error(400, "invalid_grant");
    }
    assert_eq!(world.grants().await[0].revoked.as_ref().map(|it| &*it.by), Some("user:alice"));
}

/// AS-65.
#[tokio::test]
async fn a_refresh_may_ask_for_fewer_scopes_and_the_refresh_token_keeps_all() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;

    let narrow = world.refresh(&refresh, &[("scope", "mcp")]).await;
    assert_eq!(
        (narrow.text("scope"), &claims(&narrow.text("access_token"))["scope"]),
        ("mcp".to_owned(), &json!("mcp"))
    );
    let refresh = narrow.text("refresh_token");

    // Refused before the token is used up.
    for (but, error) in [
        ([("scope", "mcp admin")], "invalid_scope"),
        ([("scope", "m\"cp")], "invalid_scope"),
        ([("resource", "https://gw.example.com/mcp/two")], "invalid_target"),
    ] {
        world.refresh(&refresh, &but).await.is_error(400, error);
    }
    let wide = world.refresh(&refresh, &[("resource", RESOURCE)]).await;
    assert_eq!(wide.text("scope"), "mcp deploy");
    assert!(world.is_accepted(&wide.text("access_token")).await);
}

/// AS-66: a token that another client got hold of is worth nothing to it, and its own client goes on.
#[tokio::test]
async fn a_refresh_token_is_for_its_own_client() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;

    for _ in 0..3 {
        world.refresh(&refresh, &[("client_id", "other")]).await.is_error(400, "invalid_grant");
    }
    world.refresh(&refresh, &[("client_id", "nobody")]).await.is_error(401, "invalid_client");
    world.refresh(&refresh, &[("client_id", "")]).await.is_error(401, "invalid_client");

    assert_eq!(world.refresh(&refresh, &[]).await.status, 200);
}

#[tokio::test]
async fn what_is_no_refresh_token_is_refused() {
    let world = World::new().await;
    let (access, refresh) = world.log_in("code").await;

    world.refresh("", &[]).await.is_error(400, "invalid_request");
    let cut = &refresh[..refresh.len() - 1];
    for wrong in ["pcr_", "x", &access, "code", cut, &format!("{refresh}A"), &format!(" {refresh}")] {
        world.refresh(wrong, &[]).await.is_error(400, "invalid_grant");
    }
    assert_eq!(world.refresh(&refresh, &[]).await.status, 200);
}

/// AS-67: idle for too long.
#[tokio::test]
async fn a_login_that_is_not_used_for_a_month_is_over() {
    let world = World::new().await;
    let (_, used) = world.log_in("used").await;
    let (_, idle) = world.log_in("idle").await;

    world.clock.advance_ms(30 * DAY - SECOND);
    let used = world.refresh(&used, &[]).await.text("refresh_token");
    world.clock.advance_ms(2 * SECOND);

    world.refresh(&idle, &[]).await.is_error(400, "invalid_grant");
    assert_eq!(world.refresh(&used, &[]).await.status, 200);
}

/// AS-67: used all the time.
#[tokio::test]
async fn a_login_is_over_after_ninety_days_however_much_it_is_used() {
    let world = World::new().await;
    let (_, mut refresh) = world.log_in("code").await;
    for _ in 0..8 {
        world.clock.advance_ms(10 * DAY);
        refresh = world.refresh(&refresh, &[]).await.text("refresh_token");
    }
    let longest = world.grants().await[0].longest_until_ms.unwrap();

    // The last access token ends with the login.
    world.clock.advance_ms(10 * DAY - 60 * SECOND);
    let last = world.refresh(&refresh, &[]).await;
    assert_eq!(last.body["expires_in"], 60);
    world.clock.advance_ms(60 * SECOND);

    assert_eq!(world.clock.unix_ms(), longest);
    assert!(!world.is_accepted(&last.text("access_token")).await);
    world.refresh(&last.text("refresh_token"), &[]).await.is_error(400, "invalid_grant");
}

/// AS-68, O-26.
#[tokio::test]
async fn a_new_password_ends_the_login_and_so_does_leaving() {
    for people in [vec![("bob", hash(2))], vec![("alice", hash(9)), ("bob", hash(2))]] {
        let world = World::new().await;
        let (access, refresh) = world.log_in("code").await;

        let people: Vec<(&str, &str)> = people.iter().map(|(name, hash)| (*name, &**hash)).collect();
        world.reload(&people);
        world.refresh(&refresh, &[]).await.is_error(400, "invalid_grant");

        // It is over for good, also if the old password comes back.
        assert!(!world.is_accepted(&access).await);
        world.reload(&[("alice", &hash(1)), ("bob", &hash(2))]);
        world.refresh(&refresh, &[]).await.is_error(400, "invalid_grant");
        assert!(world.events(&[]).contains(&"token.revoked".to_owned()));
    }
}

/// AS-63 at the endpoint: a client with many processes.
#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_refreshes_at_once_all_get_the_one_successor() {
    let world = Arc::new(World::new().await);
    let (_, refresh) = world.log_in("code").await;

    let all: Vec<_> = (0..50)
        .map(|_| {
            let (world, refresh) = (Arc::clone(&world), refresh.clone());
            tokio::spawn(async move { world.refresh(&refresh, &[]).await })
        })
        .collect();
    let mut successors = Vec::new();
    for one in all {
        let answer = one.await.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(world.is_accepted(&answer.text("access_token")).await);
        successors.push(answer.text("refresh_token"));
    }

    successors.dedup();
    assert_eq!(successors.len(), 1);
    assert_eq!(world.refresh(&successors[0], &[]).await.status, 200);
}

/// What cannot be recorded is not done, and costs nothing: the client is told to try again, and may.
#[tokio::test]
async fn a_refresh_that_cannot_be_recorded_leaves_the_token_as_good_as_it_was() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;

    let outage = world.break_the_log();
    world.refresh(&refresh, &[]).await.is_error(503, "temporarily_unavailable");
    world.clock.advance_ms(2 * RETRY_WINDOW_MS);
    world.refresh(&refresh, &[]).await.is_error(503, "temporarily_unavailable");
    world.mend_the_log(outage).await;

    let answer = world.refresh(&refresh, &[]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(world.refresh(&answer.text("refresh_token"), &[]).await.status, 200);
    assert_eq!(world.grants().await[0].revoked, None);
    assert!(!world.events(&[&refresh]).contains(&"token.replayed".to_owned()));
}

/// What is gone may come back; until then there is nothing to have a token for.
#[tokio::test]
async fn a_code_or_refresh_token_for_a_route_that_is_gone_is_refused_and_costs_nothing() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;
    world.code("another").await;

    world.reload_without_up();
    for resource in ["", RESOURCE] {
        world.redeem("another", &[("resource", resource)]).await.is_error(400, "invalid_target");
        let refused = world.refresh(&refresh, &[("resource", resource)]).await;
        refused.is_error(400, "invalid_target");
        assert!(refused.text("error_description").contains("not behind this gateway any more"), "{refused:?}");
    }

    world.reload(&[("alice", &hash(1)), ("bob", &hash(2))]);
    assert_eq!(world.refresh(&refresh, &[]).await.status, 200);
    assert_eq!(world.redeem("another", &[]).await.status, 200);
}
