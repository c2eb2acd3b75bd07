//! How fast one address may ask for what costs us something: a bucket each that fills with time.

use dashmap::DashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicI64, Ordering};

/// Addresses that are remembered; those whose bucket is full again make room.
const MAX_ADDRESSES: usize = 20_000;

/// Buckets by address; of IPv6 a /64 is one address, since whoever has one has all of it.
#[derive(Debug)]
pub(super) struct Pace {
    burst: f64,
    per_ms: f64,
    buckets: DashMap<IpAddr, Bucket>,
    swept_at_ms: AtomicI64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at_ms: i64,
}

// === impl Pace ===

impl Pace {
    /// `burst` at once, and `per_minute` in the long run.
    pub(super) fn new(burst: u32, per_minute: u32) -> Pace {
        Pace {
            burst: f64::from(burst),
            per_ms: f64::from(per_minute) / 60_000.0,
            buckets: DashMap::new(),
            swept_at_ms: AtomicI64::new(0),
        }
    }

    /// Whether `address` may ask once more. One that is not known (a UNIX socket) may.
    pub(super) fn admit(&self, address: Option<IpAddr>, now_ms: i64) -> bool {
        let Some(address) = address.map(block) else {
            return true;
        };
        if self.buckets.len() >= MAX_ADDRESSES && self.is_sweep_due(now_ms) {
            self.buckets.retain(|_, bucket| self.filled(*bucket, now_ms) < self.burst);
        }
        if self.buckets.len() >= MAX_ADDRESSES && !self.buckets.contains_key(&address) {
            return false;
        }
        let mut bucket = self.buckets.entry(address).or_insert(Bucket { left: self.burst, at_ms: now_ms });
        let left = self.filled(*bucket, now_ms);
        let is_admitted = left >= 1.0;
        *bucket = Bucket { left: if is_admitted { left - 1.0 } else { left }, at_ms: now_ms };
        is_admitted
    }

    /// At most once a second: a flood of addresses must not buy a walk over all of them with each.
    fn is_sweep_due(&self, now_ms: i64) -> bool {
        now_ms.saturating_sub(self.swept_at_ms.load(Ordering::Relaxed)) >= 1000
            && self.swept_at_ms.swap(now_ms, Ordering::Relaxed) != now_ms
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds between two requests are far below 2^53")]
    fn filled(&self, bucket: Bucket, now_ms: i64) -> f64 {
        let passed_ms = now_ms.saturating_sub(bucket.at_ms).max(0) as f64;
        passed_ms.mul_add(self.per_ms, bucket.left).min(self.burst)
    }
}

fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_empties_at_once_and_fills_with_time() {
        let pace = Pace::new(3, 60);
        let address = "192.0.2.1".parse().ok();

        assert_eq!([0, 0, 0, 0].map(|now| pace.admit(address, now)), [true, true, true, false]);
        assert!(pace.admit("192.0.2.2".parse().ok(), 0), "another address has its own");
        assert_eq!([999, 1000, 1001].map(|now| pace.admit(address, now)), [false, true, false]);
        assert!(!pace.admit(address, -100_000), "a clock set back gives nothing");
    }

    #[test]
    fn a_64_is_one_address_and_memory_is_bounded() {
        let pace = Pace::new(1, 1);
        assert!(pace.admit("2001:db8::1".parse().ok(), 0));
        assert!(!pace.admit("2001:db8::2".parse().ok(), 0));
        assert!(pace.admit("2001:db8:0:1::1".parse().ok(), 0));
        for n in 0..30_000_u32 {
            pace.admit(Some(IpAddr::from(n.to_be_bytes())), 0);
        }
        assert_eq!(pace.buckets.len(), MAX_ADDRESSES);
        assert!(pace.admit("203.0.113.1".parse().ok(), 3_600_000), "those that are full again have made room");
    }
}
