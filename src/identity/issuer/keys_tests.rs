//! The clock is stopped and nobody listens where the issuer should be: what is shown is when it is asked.

use super::*;
use crate::identity::issuer::jwk;
use pingora::connectors::http::Connector;
use serde_json::json;

/// An issuer where nobody listens, so that every fetch fails at once.
fn keys() -> Arc<Keys> {
    let place = Place { issuer: "http://127.0.0.1:1".to_owned(), jwks_url: None, authorities: None };
    Arc::new(Keys::new(place))
}

fn fetching() -> Fetching {
    Fetching {
        fetcher: Fetcher::new(Arc::new(Connector::new(None))),
        metrics: Arc::new(Metrics::new()),
        clock: Clock::manual(1_800_000_000_000),
    }
}

/// A set with one key for each of these names; the coordinates tell two keys of one name apart.
fn set(names: &[(&str, u8)]) -> Vec<Key> {
    use base64::Engine as _;
    let coordinate = |n: u8| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode([n; 32]);
    let keys: Vec<_> = names
        .iter()
        .map(|(kid, n)| json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": coordinate(*n), "y": coordinate(*n) }))
        .collect();
    jwk::parse_set(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn n_failed(with: &Fetching) -> usize {
    let text = String::from_utf8(with.metrics.render()).unwrap();
    let sample = r#"portcullis_issuer_fetches_total{issuer="http://127.0.0.1:1",result="failed"} "#;
    text.lines().find_map(|line| line.strip_prefix(sample)).map_or(0, |n| n.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn keys_are_trusted_for_a_day_without_news_and_not_a_second_longer() {
    let keys = keys();
    assert!(!keys.is_known());
    keys.take(set(&[("a", 1)]));
    let found = keys.find("a");
    assert_eq!(found.len(), 1);

    tokio::time::advance(STALE - Duration::from_secs(1)).await;
    assert!(keys.is_known() && keys.has(&found[0]) && keys.find("a").len() == 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!keys.is_known() && !keys.has(&found[0]) && keys.find("a").is_empty());

    keys.take(set(&[("a", 1)]));
    assert!(keys.is_known() && keys.has(&found[0]), "the same key, fetched again, is the same");
}

#[tokio::test]
async fn a_key_that_was_taken_out_or_exchanged_under_its_name_counts_no_longer() {
    let keys = keys();
    keys.take(set(&[("a", 1), ("b", 2)]));
    let (a, b) = (keys.find("a").remove(0), keys.find("b").remove(0));

    keys.take(set(&[("b", 3), ("c", 1)]));

    assert!(!keys.has(&a) && !keys.has(&b));
    assert!(keys.find("a").is_empty());
    assert_eq!(keys.find("b").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn tokens_with_unknown_keys_bring_about_one_fetch_in_thirty_seconds() {
    let (keys, with) = (keys(), fetching());

    assert!(keys.ask_for_unknown(&with).await);
    for _ in 0..100 {
        assert!(!keys.ask_for_unknown(&with).await);
    }
    assert_eq!(n_failed(&with), 1);
    tokio::time::advance(UNKNOWN_KEY_PAUSE).await;
    let many = (0..100).map(|_| {
        let (keys, with) = (Arc::clone(&keys), with.clone());
        tokio::spawn(async move { keys.ask_for_unknown(&with).await })
    });
    for asked in many.collect::<Vec<_>>() {
        asked.await.unwrap();
    }
    assert_eq!(n_failed(&with), 2, "a hundred at once are one");
}

#[tokio::test(start_paused = true)]
async fn a_failing_issuer_is_asked_less_and_less_often() {
    let (keys, with) = (keys(), fetching());
    let mut fetched_at = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(200) {
        let before = n_failed(&with);
        keys.fetch_if_due(&with);
        let running = keys.plan().running.clone();
        if let Some(running) = running {
            ended(running).await;
        }
        if n_failed(&with) > before {
            fetched_at.push(start.elapsed().as_secs());
        }
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    // At 0, then after 1, 2, 4, 8, 16, 30, 30, … seconds more.
    let gaps: Vec<u64> = fetched_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.is_sorted() && gaps.last().is_some_and(|gap| (30..=40).contains(gap)), "{fetched_at:?}");
    assert!((8..=11).contains(&fetched_at.len()), "{fetched_at:?}");
}
