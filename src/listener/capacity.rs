//! How many connections there may be at once: in all, and from one address.
//!
//! When all places are taken, nothing more is accepted until one is free: new clients wait in the kernel's queue, which
//! costs neither memory nor time here. The places are fewer than the process has descriptors, so that store, audit log
//! and upstreams always find theirs, and `accept` does not spin on an error that goes on.

use dashmap::DashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptors that are not for clients: files, listeners, the store, and the first upstream connections.
const RESERVED: usize = 64;

/// The places of one listener.
pub(super) struct Capacity {
    total: Arc<Semaphore>,
    by_address: Arc<DashMap<IpAddr, u32>>,
}

/// One place, for as long as it is held.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    _seat: Option<Seat>,
}

/// One connection from an address.
struct Seat {
    by_address: Arc<DashMap<IpAddr, u32>>,
    address: IpAddr,
}

impl Capacity {
    /// So many places.
    pub(super) fn new(n: usize) -> Self {
        Capacity { total: Arc::new(Semaphore::new(n.min(Semaphore::MAX_PERMITS))), by_address: Arc::default() }
    }

    /// Waits for a place.
    pub(super) async fn permit(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.total).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Whether all places are taken; one that is kept ready for the next connection counts.
    pub(super) fn is_full(&self) -> bool {
        self.total.available_permits() == 0
    }

    /// The place for a connection from `address`, unless that has `limit` of them.
    pub(super) fn place(
        &self,
        permit: OwnedSemaphorePermit,
        address: Option<IpAddr>,
        limit: Option<u32>,
    ) -> Option<Place> {
        let seat = match (address, limit) {
            (Some(address), Some(limit)) => Some(self.seat(network(address), limit)?),
            _ => None,
        };
        Some(Place { _permit: permit, _seat: seat })
    }

    fn seat(&self, address: IpAddr, limit: u32) -> Option<Seat> {
        let mut n_open = self.by_address.entry(address).or_default();
        if *n_open >= limit {
            return None;
        }
        *n_open += 1;
        Some(Seat { by_address: Arc::clone(&self.by_address), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(mut n_open) = self.by_address.get_mut(&self.address) {
            *n_open -= 1;
        }
        self.by_address.remove_if(&self.address, |_, n_open| *n_open == 0);
    }
}

/// Who has one IPv6 address has the other 2^64 of its network as well.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_none() => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        other => other.to_canonical(),
    }
}

/// `wanted` places, or as many as this process has descriptors for. Each client may need another one to an upstream;
/// where clients share connections to upstreams (HTTP/2), those need a hundredth, and an eighth is left for them.
pub(super) fn affordable(wanted: usize, is_shared: bool) -> usize {
    let Some(n) = max_open_files() else {
        return wanted;
    };
    let free = n.saturating_sub(RESERVED);
    let places = if is_shared { free.saturating_sub(free / 8) } else { free / 2 };
    wanted.min(places.max(1))
}

/// `RLIMIT_NOFILE`, as Linux shows it; `None` where it does not or where there is no limit.
fn max_open_files() -> Option<usize> {
    soft_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

fn soft_limit(limits: &str) -> Option<usize> {
    limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_has_its_own_limit_and_gets_its_places_back() {
        let capacity = Capacity::new(10);
        let place = async |address: &str| {
            let address = address.parse().expect("an address");
            capacity.place(capacity.permit().await, Some(address), Some(2))
        };

        let (first, second) = (place("192.0.2.1").await, place("::ffff:192.0.2.1").await);
        assert!(first.is_some() && second.is_some());
        assert!(place("192.0.2.1").await.is_none());
        assert!(place("192.0.2.2").await.is_some());
        let of_one_network = [place("2001:db8::1").await, place("2001:db8::2").await];
        assert!(of_one_network.iter().all(Option::is_some));
        assert!(place("2001:db8::3").await.is_none());
        assert!(place("2001:db8:0:1::3").await.is_some());

        drop(first);
        assert!(place("192.0.2.1").await.is_some());
        drop((second, of_one_network));
        assert!(capacity.by_address.is_empty(), "nothing is kept of who left");
    }

    #[test]
    fn the_limit_of_open_files_is_found_where_there_is_one() {
        let line = |soft: &str| format!("Max processes  1  1\nMax open files            {soft}  524288  files \n");
        assert_eq!(soft_limit(&line("1024")), Some(1024));
        assert_eq!(soft_limit(&line("unlimited")), None);
        assert_eq!(soft_limit(""), None);
    }
}
