//! Thins out what strangers make us record: the disk must not be theirs to fill.
//!
//! Up to a burst everything is recorded, after that so many a second. What is left out is counted, and the next
//! record that is written carries the count.

use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// See the module.
pub(super) struct Flood(Mutex<State>);

struct State {
    /// Records that may be written now, in thousandths.
    left_milli: u64,
    counted_at: Instant,
    unrecorded: u64,
}

impl Flood {
    pub(super) fn new() -> Self {
        Flood(Mutex::new(State { left_milli: BURST_MILLI, counted_at: Instant::now(), unrecorded: 0 }))
    }

    /// Whether a record may be written, and then how many were left out before it.
    pub(super) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(state.counted_at);
        let since_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        if since_ms > 0 {
            let more = since_ms.saturating_mul(PER_SECOND);
            state.left_milli = state.left_milli.saturating_add(more).min(BURST_MILLI);
            state.counted_at = now;
        }
        match state.left_milli.checked_sub(1000) {
            Some(left) => {
                state.left_milli = left;
                Some(std::mem::take(&mut state.unrecorded))
            }
            None => {
                state.unrecorded += 1;
                None
            }
        }
    }

    /// How many were left out since the last record.
    pub(super) fn take_unrecorded(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.unrecorded)
    }
}

/// A thousand records are half a megabyte.
const BURST_MILLI: u64 = 1000 * 1000;
/// At about 500 bytes each, under a gigabyte a day.
const PER_SECOND: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_is_recorded_whole_and_a_flood_is_counted() {
        let flood = Flood::new();
        let start = Instant::now() + Duration::from_secs(1);

        let admitted = (0..5000).filter_map(|_| flood.admit_at(start)).count();
        let later = start + Duration::from_secs(1);
        let then: Vec<_> = (0..100).filter_map(|_| flood.admit_at(later)).collect();

        assert_eq!(admitted, 1000);
        assert_eq!((then.len(), then[0], then[1]), (20, 4000, 0));
        assert_eq!(flood.take_unrecorded(), 80);
    }
}
