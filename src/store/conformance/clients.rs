//! Registered clients, and assertions that were used.

use super::{DAY_MS, grant};
use crate::store::{Code, Grant, Insertion, RegisteredClient, Removal, Revoked, Store, Subject};

const HOUR_MS: i64 = 60 * 60 * 1000;

fn client(id: &str, created_at_ms: i64) -> RegisteredClient {
    let metadata = format!(r#"{{"client_name":"{id}"}}"#);
    RegisteredClient { id: id.to_owned(), metadata, secret: None, created_at_ms, used_at_ms: None }
}

fn code(digest: u8, client: &str, expires_at_ms: i64) -> Code {
    let Grant { issuer, subject, resource, scopes, password_mark, .. } = grant("g");
    Code {
        digest: [digest; 32],
        issuer,
        subject,
        client: client.into(),
        resource,
        scopes,
        password_mark,
        redirect_uri: "http://127.0.0.1/".to_owned(),
        challenge: "c".to_owned(),
        expires_at_ms,
    }
}

const DONE: Insertion = Insertion::Done { removed: None };

pub(crate) async fn a_client_reads_back_whole_and_is_used_to_the_hour(here: Store, there: Store) {
    let secret = RegisteredClient { secret: Some([7; 32]), ..client("c_1", 1_000) };
    assert_eq!(here.insert_client(secret.clone(), 10).await.unwrap(), DONE);
    assert_eq!(here.insert_client(client("c_2", 2_000), 10).await.unwrap(), DONE);

    assert_eq!(there.client("c_1").await.unwrap(), Some(secret.clone()));
    for id in ["", "c_", "C_1", "c_1 ", "%"] {
        assert_eq!(there.client(id).await.unwrap(), None, "{id}");
    }
    let used = async |store: &Store, at_ms: i64| {
        store.touch_client("c_1", at_ms).await.unwrap();
        there.client("c_1").await.unwrap().unwrap().used_at_ms
    };
    assert_eq!(used(&there, 5_000).await, Some(5_000));
    assert_eq!(used(&here, 6_000).await, Some(5_000), "an hour is as fine as it gets");
    assert_eq!(used(&here, 5_000 + HOUR_MS).await, Some(5_000 + HOUR_MS));
    assert_eq!(used(&there, 10).await, Some(5_000 + HOUR_MS), "time does not go back");
    here.touch_client("c_nobody", 1).await.unwrap();
    let listed = there.clients().await.unwrap();
    assert_eq!(listed.iter().map(|client| client.id.as_str()).collect::<Vec<_>>(), ["c_2", "c_1"]);
}

pub(crate) async fn at_the_cap_the_oldest_client_that_was_never_used_makes_room(here: Store, there: Store) {
    for (id, created_at_ms, used_at_ms) in
        [("used long ago", 1, Some(5)), ("used", 2, Some(9)), ("oldest", 3, None), ("next", 4, None)]
    {
        let client = RegisteredClient { used_at_ms, ..client(id, created_at_ms) };
        assert_eq!(here.insert_client(client, 4).await.unwrap(), DONE);
    }

    let mut gone = Vec::new();
    for n in 0..4 {
        match there.insert_client(client(&format!("new {n}"), DAY_MS), 4).await.unwrap() {
            Insertion::Done { removed } => gone.extend(removed),
            Insertion::Full => gone.push("none".to_owned()),
        }
    }

    assert_eq!(gone, ["oldest", "next", "used long ago", "used"]);
    // Those that are left are young: somebody is logging in.
    let one_more = |at_ms| there.insert_client(client("one more", at_ms), 4);
    assert_eq!(one_more(DAY_MS + HOUR_MS - 1).await.unwrap(), Insertion::Full);
    assert_eq!(here.clients().await.unwrap().len(), 4);
    let removed = Some("new 0".to_owned());
    assert_eq!(one_more(DAY_MS + HOUR_MS).await.unwrap(), Insertion::Done { removed });
}

pub(crate) async fn a_client_in_use_never_makes_room(here: Store, there: Store) {
    for id in ["with a code", "with a grant", "with neither"] {
        here.insert_client(client(id, 1), 3).await.unwrap();
    }
    here.insert_code(code(1, "with a code", 2 * DAY_MS)).await.unwrap();
    here.insert_code(code(2, "with neither", 5)).await.unwrap();
    let of = |id: &str, client: &str, expires_at_ms| Grant { client: client.into(), expires_at_ms, ..grant(id) };
    here.insert_grant(of("lives", "with a grant", 2 * DAY_MS)).await.unwrap();
    here.insert_grant(of("expired", "with neither", 9)).await.unwrap();
    here.insert_grant(of("revoked", "with neither", 2 * DAY_MS)).await.unwrap();
    here.revoke_grant("revoked", "user:alice", 2).await.unwrap();

    let first = there.insert_client(client("new", DAY_MS), 3).await.unwrap();
    let second = there.insert_client(client("newer", DAY_MS), 3).await.unwrap();

    assert_eq!(first, Insertion::Done { removed: Some("with neither".to_owned()) });
    assert_eq!(second, Insertion::Full);
    assert_eq!(here.client("newer").await.unwrap(), None);
    // Years later, and used by nobody since: the grant and the code are over.
    let later = there.insert_client(client("newest", 3 * DAY_MS), 3).await.unwrap();
    assert!(matches!(later, Insertion::Done { removed: Some(_) }), "{later:?}");
}

pub(crate) async fn a_removed_client_takes_its_grants_with_it(here: Store, there: Store) {
    here.insert_client(client("c_1", 1), 10).await.unwrap();
    let of = |id: &str, client: &str| Grant { client: client.into(), ..grant(id) };
    let bob = Grant { subject: Subject::User("bob".into()), ..of("bob's", "c_1") };
    for grant in [of("alice's", "c_1"), bob, of("other", "c_2"), of("revoked", "c_1")] {
        here.insert_grant(grant).await.unwrap();
    }
    here.revoke_grant("revoked", "user:bob", 1_100).await.unwrap();

    let removal = there.remove_client("c_1", "user:root", 1_500).await.unwrap();

    assert_eq!(removal, Removal { was_registered: true, n_revoked: 2 });
    assert_eq!(here.client("c_1").await.unwrap(), None);
    let revoked = async |id: &str| here.grant(id).await.unwrap().unwrap().revoked;
    let by_root = Some(Revoked { at_ms: 1_500, by: "user:root".to_owned() });
    assert_eq!((revoked("alice's").await, revoked("bob's").await), (by_root.clone(), by_root));
    assert_eq!(revoked("revoked").await.unwrap().by, "user:bob");
    assert_eq!(revoked("other").await, None);
    assert_eq!(here.revocations_after(0).await.unwrap().1.len(), 3);
    let again = here.remove_client("c_1", "user:root", 1_600).await.unwrap();
    assert_eq!(again, Removal { was_registered: false, n_revoked: 0 });
    let never_registered = here.remove_client("c_2", "user:root", 1_600).await.unwrap();
    assert_eq!(never_registered, Removal { was_registered: false, n_revoked: 1 });
}

pub(crate) async fn an_assertion_is_used_once_by_whoever_is_first(here: Store, there: Store) {
    let tries = (0..20).map(|n| {
        let store = if n % 2 == 0 { here.clone() } else { there.clone() };
        tokio::spawn(async move { store.use_assertion([1; 32], 1_000, 500).await.unwrap() })
    });
    let mut n_first = 0;
    for first in tries.collect::<Vec<_>>() {
        n_first += usize::from(first.await.unwrap());
    }
    assert_eq!(n_first, 1);

    assert!(there.use_assertion([2; 32], 2_000, 999).await.unwrap());
    assert!(!here.use_assertion([1; 32], 1_000, 999).await.unwrap());
    // Its time is over, so nobody would take it any more: it need not be remembered.
    assert!(here.use_assertion([1; 32], 3_000, 1_000).await.unwrap());
    assert!(!here.use_assertion([2; 32], 2_000, 1_000).await.unwrap());
}
