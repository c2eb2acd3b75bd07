//! How many actions run at once: of all who ask, and of each.

use portcullis_local::Principal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Turns to be had.
pub(crate) struct Turns {
    most: usize,
    all: Arc<Semaphore>,
    /// Of those who have one, or wait for one.
    each: Mutex<HashMap<Principal, Arc<Semaphore>>>,
}

/// A turn, given back when it is dropped.
pub(crate) struct Turn {
    _one: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// How long an action waits for its turn.
const PATIENCE: Duration = Duration::from_secs(30);

impl Turns {
    /// `at_once` of them. One principal has all but an eighth, and one at least: the others are never left without any.
    pub(crate) fn new(at_once: usize) -> Turns {
        let most = (at_once - at_once / 8).max(1);
        Turns { most, all: Arc::new(Semaphore::new(at_once)), each: Mutex::default() }
    }

    /// One of `principal`'s turns, and one of all; `None` when none was free in time. Their own comes first: who waits for
    /// that keeps nobody else waiting.
    pub(crate) async fn turn(&self, principal: &Principal) -> Option<Turn> {
        let own = self.of(principal);
        let turn = async {
            let one = own.acquire_owned().await.ok()?;
            let all = self.all.clone().acquire_owned().await.ok()?;
            Some(Turn { _one: one, _all: all })
        };
        timeout(PATIENCE, turn).await.ok().flatten()
    }

    fn of(&self, principal: &Principal) -> Arc<Semaphore> {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody else holds: no turn is out, and nobody waits.
        each.retain(|_, own| Arc::strong_count(own) > 1);
        Arc::clone(each.entry(principal.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.most))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Principal {
        Principal { issuer: String::new(), subject: format!("user:{name}") }
    }

    /// A turn that is free now.
    fn now(turn: impl Future<Output = Option<Turn>>) -> Option<Turn> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(turn).poll(&mut context) {
            std::task::Poll::Ready(turn) => turn,
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn nobody_takes_all_turns() {
        let turns = Turns::new(16);
        let mut taken = Vec::new();
        for _ in 0..14 {
            taken.push(turns.turn(&user("alice")).await.expect("a turn"));
        }

        assert!(now(turns.turn(&user("alice"))).is_none());
        taken.push(turns.turn(&user("bob")).await.expect("a turn"));
        taken.push(turns.turn(&user("bob")).await.expect("a turn"));
        assert!(now(turns.turn(&user("bob"))).is_none());
        taken.clear();
        assert!(turns.turn(&user("alice")).await.is_some());
        assert_eq!(turns.each.lock().expect("unharmed").len(), 1);
    }

    #[tokio::test]
    async fn one_turn_is_one_for_everybody() {
        let turns = Turns::new(1);
        let taken = turns.turn(&user("alice")).await.expect("a turn");

        assert!(now(turns.turn(&user("bob"))).is_none());
        drop(taken);
        assert!(turns.turn(&user("bob")).await.is_some());
    }
}
