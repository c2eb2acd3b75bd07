//! Authorization codes: had once, in time, by their own client with its own verifier.

use super::*;
use crate::store::{LOGIN, MAX_GRANTS_OF_ONE_SUBJECT, MAX_WRONG_TRIES};

/// AS-56, and public case B08: `expires_in` is always a number, and `scope` always says what was granted.
#[tokio::test]
async fn a_code_gives_an_access_token_for_the_granted_resource_and_a_refresh_token() {
    let world = World::new().await;
    world.code("code").await;

    let answer = world.redeem("code", &[]).await;

    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((answer.text("token_type").as_str(), &answer.body["expires_in"]), ("Bearer", &json!(600)));
    assert_eq!(answer.text("scope"), "mcp deploy");
    assert_eq!(answer.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(answer.headers[header::CACHE_CONTROL], "no-store");
    let (access, refresh) = (answer.text("access_token"), answer.text("refresh_token"));
    assert!(refresh.starts_with("pcr_") && refresh.len() == 4 + 43, "{refresh}");
    assert!(world.is_accepted(&access).await);
    let claims = claims(&access);
    let of = |name: &str| claims[name].as_str().unwrap().to_owned();
    assert_eq!((of("iss"), of("sub"), of("aud")), (ORIGIN.to_owned(), "user:alice".to_owned(), RESOURCE.to_owned()));
    assert_eq!((of("client_id"), of("scope")), ("app".to_owned(), "mcp deploy".to_owned()));
    let grant = &world.grants().await[0];
    assert_eq!((&*grant.id, &*grant.made_by), (&*of("grant"), LOGIN));
    let now = world.clock.unix_ms();
    assert_eq!((grant.expires_at_ms, grant.longest_until_ms), (now + 30 * DAY, Some(now + 90 * DAY)));
    assert_eq!(world.events(&[&access, &refresh, "code_verifier", VERIFIER]), ["token.issued"]);
}

/// AS-37: what the store keeps of codes and tokens opens nothing.
#[tokio::test]
async fn no_code_and_no_token_is_in_the_store() {
    let world = World::new().await;
    let (access, first) = world.log_in("a code that was made up here").await;
    let second = world.refresh(&first, &[]).await.text("refresh_token");

    let mut kept = Vec::new();
    for name in ["portcullis.db", "portcullis.db-wal"] {
        kept.extend(std::fs::read(world.dir.path().join("data").join(name)).unwrap());
    }

    let is_kept = |text: &str| kept.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(is_kept("user"), "the file is read");
    for secret in ["a code that was made up here", &access, &first, &second, VERIFIER] {
        assert!(!is_kept(secret));
        assert!(!is_kept(secret.trim_start_matches("pcr_")));
    }
}

/// AS-36.
#[tokio::test]
async fn a_code_is_good_for_a_minute() {
    let world = World::new().await;
    world.code("early").await;
    world.code("late").await;

    world.clock.advance_ms(59 * SECOND);
    assert_eq!(world.redeem("early", &[]).await.status, 200);

    world.clock.advance_ms(2 * SECOND);
    world.redeem("late", &[]).await.is_error(400, "invalid_grant");
    assert_eq!(world.grants().await.len(), 1);
}

/// AS-46, AS-47, AS-48, O-18: nothing is used up by whoever has it wrong.
#[tokio::test]
async fn a_code_is_for_its_client_its_verifier_and_its_redirect_uri() {
    let world = World::new().await;
    world.code("code").await;

    let changes: [&[(&str, &str)]; 4] = [
        &[("code_verifier", WRONG_VERIFIER)],
        &[("client_id", "other")],
        &[("redirect_uri", "http://127.0.0.1/other")],
        &[("code", "another")],
    ];
    for but in changes {
        world.redeem("code", but).await.is_error(400, "invalid_grant");
    }
    assert_eq!(world.grants().await, []);

    assert_eq!(world.redeem("code", &[]).await.status, 200);
}

/// AS-47, O-20: a challenge is never met by leaving the verifier out.
#[tokio::test]
async fn a_verifier_is_needed_and_has_the_form_of_one() {
    let world = World::new().await;
    world.code("code").await;

    let (short, long) = ("a".repeat(42), "a".repeat(129));
    let illegal = format!("{}!", "a".repeat(60));
    for verifier in ["", &short, &long, &illegal, "a b"] {
        world.redeem("code", &[("code_verifier", verifier)]).await.is_error(400, "invalid_request");
    }
    world.redeem("code", &[("code_verifier", CHALLENGE)]).await.is_error(400, "invalid_grant");

    assert_eq!(world.redeem("code", &[]).await.status, 200);
}

/// AS-48: OAuth 2.1 has no `redirect_uri` here.
#[tokio::test]
async fn a_redirect_uri_may_be_left_out() {
    let world = World::new().await;
    world.code("code").await;

    assert_eq!(world.redeem("code", &[("redirect_uri", "")]).await.status, 200);
}

/// O-18: whoever guesses has a few tries.
#[tokio::test]
async fn a_code_is_over_after_five_wrong_tries() {
    let world = World::new().await;
    world.code("guessed").await;
    world.code("mistyped").await;

    for n in 0..MAX_WRONG_TRIES {
        world.redeem("guessed", &[("code_verifier", WRONG_VERIFIER)]).await.is_error(400, "invalid_grant");
        if n > 0 {
            world.redeem("mistyped", &[("code_verifier", WRONG_VERIFIER)]).await.is_error(400, "invalid_grant");
        }
    }

    world.redeem("guessed", &[]).await.is_error(400, "invalid_grant");
    assert_eq!(world.redeem("mistyped", &[]).await.status, 200);
}

/// AS-49, O-19: a code that comes twice, with everything right, is in two hands.
#[tokio::test]
async fn a_code_that_comes_again_ends_the_grant_it_became() {
    let world = World::new().await;
    let (access, refresh) = world.log_in("code").await;
    assert!(world.is_accepted(&access).await);

    world.redeem("code", &[]).await.is_error(400, "invalid_grant");

    assert!(!world.is_accepted(&access).await);
    world.refresh(&refresh, &[]).await.is_error(400, "invalid_grant");
    // However often: there is one grant, revoked once.
    world.redeem("code", &[]).await.is_error(400, "invalid_grant");
    assert_eq!(world.grants().await.len(), 1);
    let events = world.events(&[&access, &refresh]);
    assert_eq!(events.iter().filter(|event| *event == "token.replayed").count(), 2, "{events:?}");
}

/// AS-49: also when its minute has passed.
#[tokio::test]
async fn a_code_that_comes_again_later_ends_the_grant_too() {
    let world = World::new().await;
    let (_, refresh) = world.log_in("code").await;

    world.clock.advance_ms(DAY);
    world.redeem("code", &[]).await.is_error(400, "invalid_grant");

    world.refresh(&refresh, &[]).await.is_error(400, "invalid_grant");
}

/// AS-50, O-19: whoever saw a code in a browser's history cannot log its client out with it.
#[tokio::test]
async fn a_code_that_comes_again_with_a_wrong_verifier_harms_nobody() {
    let world = World::new().await;
    let (access, refresh) = world.log_in("code").await;

    for _ in 0..MAX_WRONG_TRIES + 1 {
        world.redeem("code", &[("code_verifier", WRONG_VERIFIER)]).await.is_error(400, "invalid_grant");
    }
    world.redeem("code", &[("client_id", "other")]).await.is_error(400, "invalid_grant");

    assert!(world.is_accepted(&access).await);
    assert_eq!(world.refresh(&refresh, &[]).await.status, 200);
}

/// AS-52, O-22, public case B07: what opens one route opens no other.
#[tokio::test]
async fn a_resource_that_was_not_granted_is_refused_and_costs_nothing() {
    let world = World::new().await;
    world.code("code").await;

    for other in ["https://gw.example.com/mcp/two", "https://gw.example.com", "https://evil.test/", "up", "#"] {
        world.redeem("code", &[("resource", other)]).await.is_error(400, "invalid_target");
    }

    let answer = world.redeem("code", &[("resource", "https://GW.example.com:443/mcp/up/")]).await;
    assert_eq!(claims(&answer.text("access_token"))["aud"], RESOURCE);
}

/// O-26 and AS-68, in the minute between consent and redemption.
#[tokio::test]
async fn a_code_of_somebody_who_is_gone_or_has_another_password_is_refused() {
    let world = World::new().await;
    world.code("gone").await;
    world.code("changed").await;

    world.reload(&[("bob", &hash(2))]);
    world.redeem("gone", &[]).await.is_error(400, "invalid_grant");
    world.reload(&[("alice", &hash(9)), ("bob", &hash(2))]);
    world.redeem("changed", &[]).await.is_error(400, "invalid_grant");

    assert_eq!(world.grants().await, []);
    // As it was, it is good.
    world.reload(&[("alice", &hash(1)), ("bob", &hash(2))]);
    assert_eq!(world.redeem("gone", &[]).await.status, 200);
}

/// AS-38, AS-39, AS-53, AS-57.
#[tokio::test]
async fn what_is_no_token_request_is_told_so() {
    let world = World::new().await;
    world.code("code").await;
    let request = |method: &str, uri: &str, kind: &str, body: &str| {
        let request = Request::builder().method(method).uri(uri).header(header::CONTENT_TYPE, kind);
        request.body(Body::from(body.to_owned())).unwrap()
    };
    let form = "application/x-www-form-urlencoded";
    let right = format!("grant_type=authorization_code&code=code&client_id=app&code_verifier={VERIFIER}");

    for method in ["GET", "PUT", "DELETE", "PATCH"] {
        assert_eq!(world.send(request(method, "/token", form, &right)).await.status, 405, "{method}");
    }
    let json = r#"{"grant_type":"authorization_code","code":"code"}"#;
    for (uri, kind, body) in [
        ("/token", "application/json", json),
        ("/token", "text/plain", &*right),
        (&*format!("/token?{right}"), form, ""),
        ("/token?client_id=app", form, &*right),
        ("/token", form, &*format!("{right}&code=code")),
        ("/token", form, "client_id=app&code=code"),
        ("/token", form, "grant_type=&client_id=app&code=code"),
        ("/token", form, "grant_type=authorization_code&client_id=app"),
        ("/token", form, "grant_type=authorization_code&client_id=app&code=&code_verifier="),
        ("/token", form, "%ff=%ff"),
    ] {
        world.send(request("POST", uri, kind, body)).await.is_error(400, "invalid_request");
    }
    for grant_type in ["password", "implicit", "urn:ietf:params:oauth:grant-type:device_code", "<script>", "é"] {
        world.redeem("code", &[("grant_type", grant_type)]).await.is_error(400, "unsupported_grant_type");
    }

    assert_eq!(world.send(request("POST", "/token", form, &right)).await.status, 200);
}

/// AS-51 at the endpoint: of many at once, one.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_redemptions_at_once_one_gets_tokens() {
    let world = Arc::new(World::new().await);
    world.code("code").await;

    let all: Vec<_> = (0..100)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.redeem("code", &[]).await.status })
        })
        .collect();
    let mut statuses = Vec::new();
    for one in all {
        statuses.push(one.await.unwrap());
    }

    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1);
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 99);
    // Each of the others had everything right: that is a replay, and nobody knows which of them is the thief.
    assert!(matches!(&world.grants().await[..], [grant] if grant.revoked.is_some()));
}

/// Whoever logs in again and again, as MCP Inspector does, is not locked out by the logins before.
#[tokio::test]
async fn a_login_beyond_the_limit_ends_the_one_that_was_idle_for_longest() {
    let world = World::new().await;
    let (_, idlest) = world.log_in("first").await;
    let template = world.grants().await.remove(0);
    world.clock.advance_ms(SECOND);
    let other = Grant { client: "other".into(), ..template.clone() };
    let by_hand = Grant { made_by: "token issue".to_owned(), ..template.clone() };
    let fill = [("other", other, 0), ("by hand", by_hand, 0)];
    for (id, grant, later) in fill {
        let expires_at_ms = grant.expires_at_ms - DAY + later;
        world.shared.store.insert_grant(Grant { id: id.into(), expires_at_ms, ..grant }).await.unwrap();
    }
    for n in 3..MAX_GRANTS_OF_ONE_SUBJECT {
        let grant = Grant { id: format!("g{n}").into(), expires_at_ms: template.expires_at_ms + 5, ..template.clone() };
        world.shared.store.insert_grant(grant).await.unwrap();
    }

    world.log_in("one more").await;

    // Of the same client, though another's, and one made by hand, would have ended sooner.
    world.refresh(&idlest, &[]).await.is_error(400, "invalid_grant");
    let ended = world.shared.store.grant(&template.id).await.unwrap().unwrap();
    assert_eq!(ended.revoked.unwrap().by, "newer login");
    assert_eq!(world.grants().await.iter().filter(|grant| grant.revoked.is_none()).count(), MAX_GRANTS_OF_ONE_SUBJECT);
}

/// What cannot be recorded is not done, and costs nothing: the client is told to try again, and may.
#[tokio::test]
async fn a_redemption_that_cannot_be_recorded_leaves_the_code_as_good_as_it_was() {
    let world = World::new().await;
    world.code("code").await;

    let outage = world.break_the_log();
    world.redeem("code", &[]).await.is_error(503, "temporarily_unavailable");
    assert_eq!(world.grants().await, []);
    world.mend_the_log(outage).await;

    let answer = world.redeem("code", &[]).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(world.is_accepted(&answer.text("access_token")).await);
    assert!(!world.events(&[]).contains(&"token.replayed".to_owned()));
}
