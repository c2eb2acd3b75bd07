//! The time of day, passed in so that tests can set it.
//!
//! Only what is written down or compared with written times (tokens, grants, audit) asks here.
//! Durations on the data path are measured with `tokio::time`, which tests can pause on their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A source of the time of day: the system's, or one a test sets by hand.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// Milliseconds since the Unix epoch, moved only by whoever holds the other handle.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `unix_ms` until it is moved with [`Clock::advance_ms`].
    pub fn manual(unix_ms: i64) -> Self {
        Clock::Manual(Arc::new(AtomicI64::new(unix_ms)))
    }

    /// Milliseconds since the Unix epoch.
    pub fn unix_ms(&self) -> i64 {
        match self {
            Clock::System => system_unix_ms(),
            Clock::Manual(at) => at.load(Ordering::SeqCst),
        }
    }

    /// Nanoseconds since the Unix epoch, as traces have them.
    pub fn unix_nanos(&self) -> u64 {
        match self {
            Clock::System => u64::try_from(since_epoch().as_nanos()).unwrap_or(u64::MAX),
            Clock::Manual(_) => u64::try_from(self.unix_ms()).unwrap_or_default().saturating_mul(1_000_000),
        }
    }

    /// Seconds since the Unix epoch, as tokens carry them (RFC 7519 §2, NumericDate).
    pub fn unix_seconds(&self) -> i64 {
        self.unix_ms().div_euclid(1000)
    }

    /// The time as RFC 3339 in UTC with milliseconds, as people and logs read it.
    pub fn rfc3339(&self) -> String {
        rfc3339(self.unix_ms())
    }

    /// Moves a manual clock forward; the system's clock is nobody's to move.
    pub fn advance_ms(&self, ms: i64) {
        if let Clock::Manual(at) = self {
            at.fetch_add(ms, Ordering::SeqCst);
        }
    }
}

/// Milliseconds since the Unix epoch as RFC 3339 in UTC with milliseconds.
pub fn rfc3339(unix_ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(unix_ms) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => format!("@{unix_ms}ms"),
    }
}

fn system_unix_ms() -> i64 {
    i64::try_from(since_epoch().as_millis()).unwrap_or(i64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(1_700_000_000_500);
        assert_eq!(clock.rfc3339(), "2023-11-14T22:13:20.500Z");

        clock.advance_ms(500);

        assert_eq!(clock.unix_seconds(), 1_700_000_001);
    }
}
