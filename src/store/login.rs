//! How fast passwords may be tried: a growing pause, the same for every backend, and never a lock for good.
//!
//! A permanent lock would let anybody who knows a name keep its owner out.

/// Tries before the first pause: a person mistypes.
const FREE_TRIES: u32 = 5;
/// The first pause; each further failure doubles it.
const FIRST_PAUSE_MS: i64 = 1_000;
/// No pause is longer.
const LONGEST_PAUSE_MS: i64 = 15 * 60 * 1_000;
/// Failures are forgotten after a day without one.
pub(super) const FORGOTTEN_AFTER_MS: i64 = 24 * 60 * 60 * 1_000;
/// Names with failures that are kept. Strangers choose the names, so there must be an end.
pub(super) const MAX_NAMES: i64 = 10_000;

/// Whether a password may be tried now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Yes; it is counted already.
    Open,
    /// Not before this time.
    Locked {
        /// Milliseconds since the Unix epoch.
        until_ms: i64,
    },
}

/// What is known about the failures of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoginState {
    /// How often it failed since it last succeeded.
    pub failures: u32,
    /// When it last failed.
    pub last_at_ms: i64,
    /// Until when no password is tried.
    pub locked_until_ms: i64,
}

impl LoginState {
    /// The state after one more try at `at_ms`, or that it must wait.
    pub(super) fn attempt(self, at_ms: i64) -> Result<LoginState, Attempt> {
        // A clock set back must not turn a pause of minutes into one of years.
        let until_ms = self.locked_until_ms.min(at_ms.saturating_add(LONGEST_PAUSE_MS));
        if at_ms < until_ms {
            return Err(Attempt::Locked { until_ms });
        }
        let is_stale = at_ms.saturating_sub(self.last_at_ms) >= FORGOTTEN_AFTER_MS;
        let failures = if is_stale { 1 } else { self.failures.saturating_add(1) };
        Ok(LoginState { failures, last_at_ms: at_ms, locked_until_ms: at_ms.saturating_add(pause_ms(failures)) })
    }
}

/// The pause after that many failures.
fn pause_ms(failures: u32) -> i64 {
    match failures.checked_sub(FREE_TRIES) {
        None => 0,
        Some(beyond) => 1_i64
            .checked_shl(beyond.min(20))
            .map_or(LONGEST_PAUSE_MS, |times| times.saturating_mul(FIRST_PAUSE_MS))
            .min(LONGEST_PAUSE_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_from_a_second_to_a_quarter_of_an_hour() {
        let pauses: Vec<i64> = [0, 4, 5, 6, 7, 14, 15, 1000, u32::MAX].map(pause_ms).into();
        assert_eq!(pauses, [0, 0, 1_000, 2_000, 4_000, 512_000, 900_000, 900_000, 900_000]);
    }

    #[test]
    fn a_clock_set_back_keeps_nobody_out_for_longer_than_the_longest_pause() {
        let state = LoginState { failures: 9, last_at_ms: 1 << 50, locked_until_ms: 1 << 50 };
        assert_eq!(state.attempt(0), Err(Attempt::Locked { until_ms: LONGEST_PAUSE_MS }));
    }
}
