//! What was fetched from elsewhere, kept for a while: bounded, and one fetch at a time for each URL. What failed is not
//! kept: the next one who asks tries again (draft-ietf-oauth-client-id-metadata-document §4.4).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Kept no shorter, whatever the server says: else each request would be a fetch.
const SHORTEST: Duration = Duration::from_secs(5 * 60);
/// Kept no longer: a client that withdraws a redirect URI must not wait for ever.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Where the server says nothing.
const USUAL: Duration = Duration::from_secs(60 * 60);

/// Why there is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// What is there cannot be used; why, for people.
    Unusable(String),
    /// What was asked for is not there; why, for people. It may be back tomorrow.
    Missing(String),
    /// It could not be had now; why, for the log.
    Unavailable(String),
}

type Flight<T> = Arc<OnceCell<Result<Arc<T>, Failure>>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Fetches<T> {
    capacity: usize,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    kept: HashMap<String, Kept<T>>,
    flights: HashMap<String, Flight<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    value: Arc<T>,
    fetched_at: Instant,
    until: Instant,
    /// Somebody counts on it: it goes last.
    is_needed: bool,
}

/// Somebody waits for a fetch. The last to go takes it off the list, whether it came about or was given up.
struct Boarded<'a, T> {
    fetches: &'a Fetches<T>,
    url: &'a str,
    flight: Flight<T>,
}

// === impl Boarded ===

impl<T> Drop for Boarded<'_, T> {
    fn drop(&mut self) {
        let mut state = self.fetches.state();
        let is_listed = state.flights.get(self.url).is_some_and(|listed| Arc::ptr_eq(listed, &self.flight));
        // The list's and ours: nobody else waits for it. Others board under the lock that we hold.
        let is_last = Arc::strong_count(&self.flight) <= 2;
        if is_listed && (is_last || self.flight.initialized()) {
            state.flights.remove(self.url);
        }
    }
}

// === impl Fetches ===

impl<T> Fetches<T> {
    pub(super) fn new(capacity: usize) -> Fetches<T> {
        Fetches { capacity, state: Mutex::new(State { kept: HashMap::new(), flights: HashMap::new() }) }
    }

    /// What is kept of this URL and still good.
    pub(super) fn kept(&self, url: &str) -> Option<Arc<T>> {
        let state = self.state();
        state.kept.get(url).filter(|kept| Instant::now() < kept.until).map(|kept| Arc::clone(&kept.value))
    }

    /// How long ago it was fetched.
    pub(super) fn age(&self, url: &str) -> Option<Duration> {
        self.state().kept.get(url).map(|kept| kept.fetched_at.elapsed())
    }

    /// Fetches it. Whoever asks for the same URL meanwhile waits for the same fetch.
    ///
    /// # Errors
    /// Those of the fetch.
    pub(super) async fn fetch(
        &self,
        url: &str,
        fetch: impl Future<Output = Result<(T, Duration), Failure>>,
    ) -> Result<Arc<T>, Failure> {
        let flight = Arc::clone(self.state().flights.entry(url.to_owned()).or_default());
        let boarded = Boarded { fetches: self, url, flight };
        // One who leaves in the middle leaves the fetch to the next in line.
        let result = boarded.flight.get_or_init(async || {
            let (value, lifetime) = fetch.await?;
            let value = Arc::new(value);
            self.keep(url, &value, lifetime);
            Ok(value)
        });
        result.await.clone()
    }

    /// Lets it be among the last to go for another one.
    pub(super) fn need(&self, url: &str) {
        if let Some(kept) = self.state().kept.get_mut(url) {
            kept.is_needed = true;
        }
    }

    fn keep(&self, url: &str, value: &Arc<T>, lifetime: Duration) {
        let now = Instant::now();
        let mut state = self.state();
        if state.kept.len() >= self.capacity && !state.kept.contains_key(url) {
            state.kept.retain(|_, kept| now < kept.until);
        }
        if state.kept.len() >= self.capacity && !state.kept.contains_key(url) {
            let oldest =
                state.kept.iter().min_by_key(|(_, kept)| (kept.is_needed, kept.fetched_at)).map(|(url, _)| url.clone());
            oldest.and_then(|url| state.kept.remove(&url));
        }
        let is_needed = state.kept.get(url).is_some_and(|before| before.is_needed);
        let kept = Kept { value: Arc::clone(value), fetched_at: now, until: now + lifetime, is_needed };
        state.kept.insert(url.to_owned(), kept);
    }

    /// Forgets everything that was kept.
    pub(super) fn clear(&self) {
        self.state().kept.clear();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a document is kept, from its `Cache-Control` (RFC 9111 §5.2.2).
pub(super) fn lifetime(cache_control: &str) -> Duration {
    let directives: Vec<String> = cache_control.split(',').map(|it| it.trim().to_ascii_lowercase()).collect();
    if directives.iter().any(|it| it == "no-store" || it == "no-cache" || it.starts_with("no-cache=")) {
        return SHORTEST;
    }
    let max_age = directives.iter().find_map(|it| it.strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    max_age.map_or(USUAL, Duration::from_secs).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_document_is_kept_as_its_server_says_from_five_minutes_to_a_day() {
        for (cache_control, seconds) in [
            ("", 3600),
            ("public", 3600),
            ("max-age=900", 900),
            ("public, Max-Age=\"900\"", 900),
            ("max-age=0", 300),
            ("max-age=99999999", 86400),
            ("max-age=99999999999999999999999", 3600),
            ("no-store", 300),
            ("no-cache, max-age=900", 300),
        ] {
            assert_eq!(lifetime(cache_control), Duration::from_secs(seconds), "{cache_control}");
        }
    }

    async fn fetch(
        fetches: &Fetches<u32>,
        url: &str,
        value: Result<u32, Failure>,
        n: &AtomicUsize,
    ) -> Result<u32, Failure> {
        let fetch = async {
            n.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            value.map(|value| (value, SHORTEST))
        };
        fetches.fetch(url, fetch).await.map(|value| *value)
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_ask_at_once_share_one_fetch_and_what_failed_is_not_kept() {
        let (fetches, n) = (Fetches::new(10), AtomicUsize::new(0));
        let failed = || Err(Failure::Unusable("no".to_owned()));

        let (a, b, c) = tokio::join!(
            fetch(&fetches, "a", failed(), &n),
            fetch(&fetches, "a", Ok(1), &n),
            fetch(&fetches, "b", Ok(2), &n)
        );

        assert_eq!((a, b, c), (failed(), failed(), Ok(2)));
        assert_eq!(n.load(Ordering::SeqCst), 2);
        assert_eq!(fetches.kept("a"), None);
        assert_eq!(fetch(&fetches, "a", Ok(3), &n).await, Ok(3));
        assert_eq!(fetches.kept("a").as_deref(), Some(&3));
        assert!(fetches.state().flights.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_in_the_middle_leaves_the_fetch_to_the_next() {
        let (fetches, n) = (Fetches::new(10), AtomicUsize::new(0));
        let leaves = tokio::time::timeout(Duration::from_millis(10), fetch(&fetches, "a", Ok(1), &n));

        let (left, stayed) = tokio::join!(leaves, fetch(&fetches, "a", Ok(2), &n));

        assert!(left.is_err());
        assert_eq!((stayed, n.load(Ordering::SeqCst)), (Ok(2), 2));
        assert!(fetches.state().flights.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_everybody_has_given_up_leaves_nothing_behind() {
        let (fetches, n) = (Fetches::new(10), AtomicUsize::new(0));
        let left = async || {
            let fetch = fetch(&fetches, "a", Ok(1), &n);
            tokio::time::timeout(Duration::from_millis(10), fetch).await.is_err()
        };

        assert_eq!(tokio::join!(left(), left()), (true, true));

        assert!(fetches.state().flights.is_empty());
        assert_eq!(fetch(&fetches, "a", Ok(2), &n).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_ends_and_is_no_more_than_the_capacity() {
        let (fetches, n) = (Fetches::new(2), AtomicUsize::new(0));
        for url in ["a", "b", "c"] {
            fetch(&fetches, url, Ok(1), &n).await.unwrap();
        }
        let kept = |url| fetches.kept(url).is_some();
        assert_eq!(["a", "b", "c"].map(kept), [false, true, true]);

        // What somebody needs stays, whatever strangers ask for.
        fetches.need("b");
        for url in ["d", "e"] {
            fetch(&fetches, url, Ok(1), &n).await.unwrap();
        }
        assert_eq!(["b", "c", "d", "e"].map(kept), [true, false, false, true]);

        tokio::time::advance(SHORTEST).await;
        assert_eq!(["a", "b", "e"].map(kept), [false, false, false]);
    }
}
