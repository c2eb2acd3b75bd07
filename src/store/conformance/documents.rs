//! Documents of clients.

use super::{DAY_MS, grant};
use crate::store::{FetchedDocument, Grant, Store};

const APP: &str = "https://app.example/meta.json";
const KEYS: &str = "https://app.example/jwks.json";
const WEEK_MS: i64 = 7 * DAY_MS;

fn document(client: &str, url: &str, fetched_at_ms: i64) -> FetchedDocument {
    let body = format!("{url} at {fetched_at_ms}").into_bytes();
    FetchedDocument { client: client.to_owned(), url: url.to_owned(), body, fetched_at_ms }
}

pub(crate) async fn a_document_reads_back_as_it_was_last_fetched(here: Store, there: Store) {
    for fetched in [document(APP, APP, 1_000), document(APP, KEYS, 1_000), document("https://b.example/", KEYS, 7)] {
        here.keep_document(fetched, 10).await.unwrap();
    }
    assert_eq!(there.document(APP, APP).await.unwrap(), Some(document(APP, APP, 1_000)));
    for (client, url) in [(APP, ""), ("", APP), (APP, "https://app.example/"), (KEYS, KEYS)] {
        assert_eq!(there.document(client, url).await.unwrap(), None, "{client} {url}");
    }

    there.keep_document(document(APP, APP, 3_000), 10).await.unwrap();
    // A slower fetch that began before.
    here.keep_document(document(APP, APP, 2_000), 10).await.unwrap();

    assert_eq!(here.document(APP, APP).await.unwrap(), Some(document(APP, APP, 3_000)));
    here.forget_documents(APP).await.unwrap();
    assert_eq!(there.document(APP, APP).await.unwrap(), None);
    assert_eq!(there.document(APP, KEYS).await.unwrap(), None);
    assert!(there.document("https://b.example/", KEYS).await.unwrap().is_some());
    there.remove_client("https://b.example/", "user:root", 1).await.unwrap();
    assert_eq!(here.document("https://b.example/", KEYS).await.unwrap(), None);
}

pub(crate) async fn documents_have_an_end_and_the_oldest_go_first(here: Store, there: Store) {
    for n in 0..5 {
        here.keep_document(document(APP, &format!("{KEYS}{n}"), n), 3).await.unwrap();
    }
    for n in 0..5 {
        assert_eq!(there.document(APP, &format!("{KEYS}{n}")).await.unwrap().is_some(), n >= 2, "{n}");
    }
}

pub(crate) async fn a_purge_takes_old_documents_of_clients_without_a_grant(here: Store, there: Store) {
    let long = Grant { client: "https://in.use/".into(), expires_at_ms: 4 * WEEK_MS, ..grant("long") };
    let over = Grant { client: "https://over/".into(), expires_at_ms: 4 * WEEK_MS, ..grant("over") };
    for grant in [long, over] {
        here.insert_grant(grant).await.unwrap();
    }
    here.revoke_grant("over", "user:alice", 2).await.unwrap();
    for (client, at_ms) in [("https://in.use/", 1), ("https://over/", 1), ("https://young/", DAY_MS)] {
        here.keep_document(document(client, client, at_ms), 10).await.unwrap();
    }

    there.purge_expired(WEEK_MS + 1).await.unwrap();

    for (client, is_kept) in [("https://in.use/", true), ("https://over/", false), ("https://young/", true)] {
        assert_eq!(here.document(client, client).await.unwrap().is_some(), is_kept, "{client}");
    }
}
