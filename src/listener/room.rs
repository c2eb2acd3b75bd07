//! Room for those who ask: where all places are taken, the connection that has asked for nothing for the longest time
//! goes, instead of the next one waiting for it.
//!
//! It is in line from its beginning until its first request is there, and again between requests. So connections that
//! somebody opens and leaves, however many, keep nobody out for longer than it takes to close one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Those who ask for nothing at the moment, in the order in which they began to.
#[derive(Default)]
pub(super) struct Room(Mutex<Line>);

#[derive(Default)]
struct Line {
    next: u64,
    by_age: BTreeMap<u64, Arc<Notify>>,
}

/// One connection's place in the line. Without a [`Room`] it is in none, and never asked to go.
pub(super) struct Guest {
    room: Option<Arc<Room>>,
    leave: Arc<Notify>,
    number: Option<u64>,
}

// === impl Room ===

impl Room {
    /// Lets the first in line go, if there is one.
    pub(super) fn make(&self) {
        if let Some((_, leave)) = self.line().by_age.pop_first() {
            leave.notify_one();
        }
    }

    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Guest ===

impl Guest {
    /// A connection that has just come.
    pub(super) fn of(room: Option<Arc<Room>>) -> Guest {
        let mut guest = Guest { room, leave: Arc::default(), number: None };
        guest.rests();
        guest
    }

    /// It asks for nothing from now on.
    pub(super) fn rests(&mut self) {
        if let (Some(room), None) = (&self.room, self.number) {
            let mut line = room.line();
            let number = line.next;
            line.next = number.wrapping_add(1);
            line.by_age.insert(number, Arc::clone(&self.leave));
            self.number = Some(number);
        }
    }

    /// It asks for something. `false`: too late, it goes.
    pub(super) fn asks(&mut self) -> bool {
        match (&self.room, self.number.take()) {
            (Some(room), Some(number)) => room.line().by_age.remove(&number).is_some(),
            _ => true,
        }
    }

    /// Resolves when it has to go.
    pub(super) fn leaves(&self) -> impl Future<Output = ()> + use<> {
        let leave = Arc::clone(&self.leave);
        async move { leave.notified().await }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.asks();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;

    async fn has_to_go(guest: &Guest) -> bool {
        let mut leaves = Box::pin(guest.leaves());
        poll_fn(|cx| Poll::Ready(leaves.as_mut().poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn who_has_asked_for_nothing_for_the_longest_time_goes_first_and_who_is_served_stays() {
        let room = Arc::new(Room::default());
        let guest = || Guest::of(Some(Arc::clone(&room)));
        let (mut served, mut first, gone, mut second) = (guest(), guest(), guest(), guest());
        assert!(served.asks());
        drop(gone);

        room.make();
        assert!(!has_to_go(&served).await && has_to_go(&first).await && !has_to_go(&second).await);
        assert!(!first.asks(), "what it asks for comes too late");

        served.rests();
        room.make();
        assert!(has_to_go(&second).await && !second.asks() && !has_to_go(&served).await);
        room.make();
        assert!(has_to_go(&served).await);
        room.make();
        assert!(room.line().by_age.is_empty());
    }
}
