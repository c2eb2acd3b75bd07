//! The verifier against a store on disk: what is remembered, for how long, and what reaches it from elsewhere.

use super::*;
use crate::identity::keys::tests::keys;
use crate::store::Revocation;

const ISSUER: &str = "https://mcp.example.com";
const RESOURCE: &str = "https://mcp.example.com/mcp/github";
const NOW_MS: i64 = 1_800_000_000_000;

struct World {
    dir: tempfile::TempDir,
    keys: Arc<Keys>,
    store: Store,
    clock: Clock,
    verifier: Verifier,
}

impl World {
    async fn new(capacity: usize) -> World {
        let dir = tempfile::tempdir().unwrap();
        let (keys, clock) = (Arc::new(keys()), Clock::manual(NOW_MS));
        let store = Store::open(dir.path()).await.unwrap();
        let verifier = Verifier::new(ISSUER.into(), keys.clone(), store.clone(), clock.clone(), capacity);
        World { dir, keys, store, clock, verifier }
    }

    /// A grant in the store and a token of it.
    async fn token(&self, id: &str) -> String {
        self.store.insert_grant(grant(id)).await.unwrap();
        self.token_of(&grant(id))
    }

    fn token_of(&self, grant: &Grant) -> String {
        let now = self.clock.unix_seconds();
        token::issue(&self.keys, &Claims::of(grant, now, now + 600)).unwrap()
    }

    async fn verify(&self, token: &str) -> Result<Arc<Verified>, Error> {
        self.verifier.verify(token, RESOURCE).await
    }

    /// Takes a table away, as another program could.
    fn break_store(&self, table: &str) {
        let connection = rusqlite::Connection::open(self.dir.path().join("portcullis.db")).unwrap();
        connection.execute_batch(&format!("ALTER TABLE {table} RENAME TO gone")).unwrap();
    }

    fn n_remembered(&self) -> usize {
        self.verifier.0.cache.tokens.len()
    }
}

fn grant(id: &str) -> Grant {
    Grant {
        id: id.into(),
        issuer: ISSUER.into(),
        subject: Subject::User("alice".into()),
        client: "cli".into(),
        resource: RESOURCE.into(),
        scopes: Arc::new(["mcp".to_owned(), "deploy".to_owned()]),
        created_at_ms: NOW_MS,
        expires_at_ms: NOW_MS + 3_600_000,
        made_by: "test".to_owned(),
        password_mark: None,
        longest_until_ms: None,
        revoked: None,
    }
}

#[tokio::test]
async fn a_token_stands_for_what_its_grant_says() {
    let world = World::new(10).await;
    let token = world.token("g_1").await;

    let first = world.verify(&token).await.unwrap();
    let second = world.verify(&token).await.unwrap();

    assert_eq!(first.subject.to_string(), "user:alice");
    assert_eq!((&*first.issuer, &*first.client, &*first.grant), (ISSUER, "cli", "g_1"));
    assert_eq!(*first.scopes, ["mcp", "deploy"]);
    assert_eq!(first.expires_at, NOW_MS / 1000 + 600);
    assert!(Arc::ptr_eq(&first, &second), "it is remembered");
}

#[tokio::test]
async fn a_token_opens_one_resource_also_once_it_is_remembered() {
    let world = World::new(10).await;
    let token = world.token("g_1").await;
    let others = [
        "",
        "https://mcp.example.com/mcp",
        "https://mcp.example.com/mcp/",
        "https://mcp.example.com/mcp/github/",
        "https://mcp.example.com/mcp/github2",
        "https://mcp.example.com/mcp/githu",
        "https://MCP.example.com/mcp/github",
        "http://mcp.example.com/mcp/github",
        "https://mcp.example.com/mcp/Github",
    ];
    for _ in 0..2 {
        for other in others {
            let refused = world.verifier.verify(&token, other).await;
            assert!(matches!(refused, Err(Error::WrongAudience)), "{other}: {refused:?}");
        }
        world.verify(&token).await.unwrap();
    }
}

#[tokio::test]
async fn a_token_ends_with_its_time_also_once_it_is_remembered() {
    let world = World::new(10).await;
    let token = world.token("g_1").await;
    world.verify(&token).await.unwrap();

    world.clock.advance_ms(599_999);
    world.verify(&token).await.unwrap();
    world.clock.advance_ms(1);

    assert!(matches!(world.verify(&token).await, Err(Error::Expired)));
    assert_eq!(world.n_remembered(), 0);
    assert!(matches!(world.verify(&token).await, Err(Error::Expired)));
}

#[tokio::test]
async fn a_token_ends_with_its_grant() {
    let world = World::new(10).await;
    let short = Grant { expires_at_ms: NOW_MS + 10_000, ..grant("g_1") };
    world.store.insert_grant(short.clone()).await.unwrap();
    // The token claims more than the grant has.
    let token = world.token_of(&grant("g_1"));
    assert_eq!(world.verify(&token).await.unwrap().expires_at, NOW_MS / 1000 + 10);

    world.clock.advance_ms(10_000);

    assert!(matches!(world.verify(&token).await, Err(Error::Expired)));
    assert_eq!(Claims::of(&short, 0, i64::MAX).expires_at, NOW_MS / 1000 + 10);
}

#[tokio::test]
async fn a_token_must_say_what_its_grant_says() {
    let world = World::new(10).await;
    world.store.insert_grant(grant("g_1")).await.unwrap();
    let narrower = Grant { scopes: Arc::new(["deploy".to_owned()]), ..grant("g_1") };
    world.verify(&world.token_of(&narrower)).await.unwrap();

    let others = [
        Grant { subject: Subject::User("bob".into()), ..grant("g_1") },
        Grant { subject: Subject::Client("alice".into()), ..grant("g_1") },
        Grant { client: "other".into(), ..grant("g_1") },
        Grant { resource: "https://mcp.example.com/mcp/other".into(), ..grant("g_1") },
        Grant { scopes: Arc::new(["mcp".to_owned(), "admin".to_owned()]), ..grant("g_1") },
        grant("g_2"),
    ];
    for other in others {
        let refused = world.verifier.verify(&world.token_of(&other), &other.resource).await;
        assert!(matches!(refused, Err(Error::UnknownGrant)), "{other:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_revoked_grant_is_refused_when_it_is_met_first() {
    let world = World::new(10).await;
    let token = world.token("g_1").await;
    world.store.revoke_grant("g_1", "user:alice", NOW_MS).await.unwrap();

    assert!(matches!(world.verify(&token).await, Err(Error::Revoked)));
    assert_eq!(world.n_remembered(), 0);
}

#[tokio::test]
async fn a_revocation_by_another_process_arrives_within_a_second() {
    let world = World::new(10).await;
    let (revoked, kept) = (world.token("g_1").await, world.token("g_2").await);
    let elsewhere = Store::open(world.dir.path()).await.unwrap();
    let verifier = world.verifier.clone();
    let watch = tokio::spawn(async move { verifier.watch_revocations().await });
    world.verify(&revoked).await.unwrap();
    world.verify(&kept).await.unwrap();

    let done = elsewhere.revoke_grant("g_1", "user:alice", NOW_MS).await.unwrap();

    assert_eq!(done, Revocation::Done);
    let refused = async {
        while world.verify(&revoked).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), refused).await.expect("it arrived");
    assert!(matches!(world.verify(&revoked).await, Err(Error::Revoked)));
    world.verify(&kept).await.unwrap();
    watch.abort();
}

#[tokio::test]
async fn a_revocation_between_look_up_and_remembering_is_not_missed() {
    let world = World::new(10).await;
    let verified = world.verify(&world.token("g_1").await).await.unwrap();
    let n_applied = || world.verifier.0.feed.n_applied.load(Ordering::SeqCst);
    let is_remembered = |key| world.verifier.0.cache.get(&key).is_some();

    let at_look_up = n_applied();
    world.verifier.remember([1; 32], verified.clone(), at_look_up);
    world.store.revoke_grant("g_1", "user:alice", NOW_MS).await.unwrap();
    world.verifier.follow(&mut 0).await.unwrap();
    world.verifier.remember([2; 32], verified.clone(), at_look_up);
    world.verifier.remember([3; 32], verified, n_applied());

    assert!(!is_remembered([1; 32]), "dropped when the revocation came");
    assert!(!is_remembered([2; 32]), "the revocation came too early to find it");
    assert!(is_remembered([3; 32]), "looked up after it");
}

#[tokio::test]
async fn without_news_for_thirty_seconds_it_is_not_current() {
    let world = World::new(10).await;
    let feed = &world.verifier.0.feed;
    let after = |seconds: f64| feed.start + Duration::from_secs_f64(seconds);
    assert!(world.verifier.is_current());
    assert!(feed.is_current_at(after(29.9)));
    assert!(!feed.is_current_at(after(30.0)));

    feed.heard_at(after(100.0));

    assert!(feed.is_current_at(after(129.9)));
    assert!(!feed.is_current_at(after(130.0)));
    // An old answer that arrives late does not turn the time back.
    feed.heard_at(after(50.0));
    assert!(feed.is_current_at(after(129.9)));
}

#[tokio::test]
async fn only_an_answer_of_the_store_makes_it_current() {
    let world = World::new(10).await;
    let heard_ms = || world.verifier.0.feed.heard_ms.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await;

    world.verifier.follow(&mut 0).await.unwrap();
    let after_answer = heard_ms();
    world.break_store("revocations");
    tokio::time::sleep(Duration::from_millis(5)).await;
    world.verifier.follow(&mut 0).await.unwrap_err();

    assert!(after_answer >= 5);
    assert_eq!(heard_ms(), after_answer);
}

#[tokio::test]
async fn the_memory_is_bounded_and_forgets_the_oldest() {
    let world = World::new(3).await;
    let mut tokens = Vec::new();
    for n in 0..5 {
        let token = world.token(&format!("g_{n}")).await;
        world.verify(&token).await.unwrap();
        tokens.push(token);
    }

    let is_remembered = |token: &String| world.verifier.0.cache.tokens.contains_key(&sha256(token.as_bytes()));
    let remembered: Vec<bool> = tokens.iter().map(is_remembered).collect();
    assert_eq!(remembered, [false, false, true, true, true]);
    assert_eq!(world.verifier.0.cache.order.lock().unwrap().len(), 3);
    world.verify(&tokens[0]).await.expect("forgotten is not refused");
}

#[tokio::test]
async fn what_does_not_verify_is_not_remembered() {
    let world = World::new(10).await;
    let good = world.token("g_1").await;
    let (message, _) = good.rsplit_once('.').unwrap();
    for n in 0..100 {
        let junk = format!("{message}.{}{:04}", "A".repeat(82), n);
        world.verify(&junk).await.unwrap_err();
    }
    world.verify(&world.token_of(&grant("unknown"))).await.unwrap_err();

    assert_eq!(world.n_remembered(), 0);
}

#[tokio::test]
async fn expired_tokens_are_swept_at_once_and_their_grants_after_a_week() {
    let world = World::new(10).await;
    let token = world.token("g_1").await;
    world.verify(&token).await.unwrap();
    world.verifier.sweep().await;
    assert_eq!(world.n_remembered(), 1);

    world.clock.advance_ms(600_000);
    world.verifier.sweep().await;
    assert_eq!(world.n_remembered(), 0);

    let is_kept = async || world.store.grant("g_1").await.unwrap().is_some();
    world.clock.advance_ms(3_000_000 + KEPT_AFTER_EXPIRY_MS - 1);
    world.verifier.sweep().await;
    assert!(is_kept().await);
    world.clock.advance_ms(1);
    world.verifier.sweep().await;
    assert!(!is_kept().await);
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_lets_nobody_new_in() {
    let world = World::new(10).await;
    let (known, fresh) = (world.token("g_1").await, world.token("g_2").await);
    world.verify(&known).await.unwrap();
    world.break_store("grants");

    let refused = world.verify(&fresh).await.unwrap_err();

    assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
    assert_eq!(refused.public(), "the access token cannot be checked at the moment");
    world.verify(&known).await.expect("remembered while the feed is current");
}
