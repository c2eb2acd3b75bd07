//! How much strangers may make us do: so much at once and then so often, for each address and for all of them together.
//!
//! In memory and bounded. An IPv6 network of one subscriber (/64) counts as one address: whoever has one has all of it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Addresses that are told apart. Beyond, newcomers share one allowance.
const MAX_ADDRESSES: usize = 10_000;
/// What stands for an address that is not known, and for the newcomers.
const ANYBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// So much at once, and then one more in each of these times.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// Then one more in each of these.
    pub every: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Budget {
    each: Rate,
    all: Rate,
    state: Mutex<State>,
}

/// When an allowance is whole again (the theoretical arrival time of GCRA). One that is whole need not be kept.
#[derive(Debug)]
struct State {
    all: Instant,
    each: HashMap<IpAddr, Instant>,
}

// === impl Budget ===

impl Budget {
    /// With an allowance for each address, and one for all together.
    pub fn new(each: Rate, all: Rate) -> Budget {
        Budget { each, all, state: Mutex::new(State { all: Instant::now(), each: HashMap::new() }) }
    }

    /// With no allowance for all together: for what is cheap, and must not be taken from everybody by a few.
    pub fn of_each(each: Rate) -> Budget {
        Budget::new(each, Rate { burst: u32::MAX, every: Duration::from_nanos(1) })
    }

    /// Takes one from both allowances, or from none.
    ///
    /// # Errors
    /// How long to wait.
    pub fn take(&self, address: Option<IpAddr>) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = state.key(address, now);
        let each = self.each.next(state.each.get(&key).copied().unwrap_or(now), now)?;
        let all = self.all.next(state.all, now)?;
        state.each.insert(key, each);
        state.all = all;
        Ok(())
    }

    /// Gives back one that was taken.
    pub fn give_back(&self, address: Option<IpAddr>) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let key = state.key(address, now);
        if let Some(whole_at) = state.each.get_mut(&key) {
            *whole_at = whole_at.checked_sub(self.each.every).unwrap_or(now);
        }
        state.all = state.all.checked_sub(self.all.every).unwrap_or(now);
    }
}

// === impl State ===

impl State {
    fn key(&mut self, address: Option<IpAddr>, now: Instant) -> IpAddr {
        let Some(address) = address.map(network) else {
            return ANYBODY;
        };
        if self.each.len() >= MAX_ADDRESSES && !self.each.contains_key(&address) {
            self.each.retain(|_, whole_at| *whole_at > now);
            if self.each.len() >= MAX_ADDRESSES {
                return ANYBODY;
            }
        }
        address
    }
}

// === impl Rate ===

impl Rate {
    /// When the allowance is whole again after one more was taken.
    fn next(self, whole_at: Instant, now: Instant) -> Result<Instant, Duration> {
        let whole_at = whole_at.max(now);
        let latest = now + self.every * self.burst.saturating_sub(1);
        if whole_at > latest { Err(whole_at - latest) } else { Ok(whole_at + self.every) }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        IpAddr::V4(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(burst: u32) -> Rate {
        Rate { burst, every: Duration::from_secs(10) }
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_has_so_much_at_once_and_then_so_often_and_others_are_not_affected() {
        let budget = Budget::new(rate(3), rate(100));
        let one = address("192.0.2.1");
        for _ in 0..3 {
            assert_eq!(budget.take(one), Ok(()));
        }
        assert_eq!(budget.take(one), Err(Duration::from_secs(10)));
        assert_eq!(budget.take(address("::ffff:192.0.2.1")), Err(Duration::from_secs(10)));
        assert_eq!(budget.take(address("192.0.2.2")), Ok(()));

        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(budget.take(one), Err(Duration::from_secs(6)));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(budget.take(one), Ok(()));
        assert_eq!(budget.take(one), Err(Duration::from_secs(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_given_back_can_be_taken_again_and_no_more() {
        let budget = Budget::new(rate(2), rate(3));
        let one = address("192.0.2.1");
        for _ in 0..50 {
            assert_eq!(budget.take(one), Ok(()));
            budget.give_back(one);
        }
        assert_eq!((budget.take(one), budget.take(one)), (Ok(()), Ok(())));
        assert_eq!(budget.take(one), Err(Duration::from_secs(10)));
        budget.give_back(one);
        assert_eq!(budget.take(one), Ok(()));
        assert_eq!(budget.take(one), Err(Duration::from_secs(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscribers_ipv6_network_is_one_address() {
        let budget = Budget::new(rate(1), rate(100));
        assert!(budget.take(address("2001:db8:1:2::1")).is_ok());
        assert!(budget.take(address("2001:db8:1:2:ffff::9")).is_err());
        assert!(budget.take(address("2001:db8:1:3::1")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn all_addresses_together_have_an_end_and_who_is_refused_pays_nothing() {
        let budget = Budget::new(rate(2), rate(3));
        for n in 1..=3 {
            assert!(budget.take(address(&format!("192.0.2.{n}"))).is_ok());
        }
        assert!(budget.take(address("192.0.2.9")).is_err());
        tokio::time::advance(Duration::from_secs(20)).await;
        assert!(budget.take(address("192.0.2.9")).is_ok());
        assert!(budget.take(address("192.0.2.9")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_without_end_cost_no_memory_without_end() {
        let budget = Budget::new(rate(1), Rate { burst: u32::MAX, every: Duration::from_nanos(1) });
        for n in 0..20_000_u32 {
            _ = budget.take(Some(Ipv4Addr::from_bits(n + 1).into()));
        }
        assert!(budget.state.lock().unwrap().each.len() <= MAX_ADDRESSES + 1);
        // Those beyond share one allowance, which is used up.
        assert!(budget.take(address("198.51.100.1")).is_err());
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(budget.take(address("198.51.100.1")).is_ok());
    }
}
