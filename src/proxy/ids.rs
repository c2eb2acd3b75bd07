//! Which ids are in flight at an upstream of the older era, so that no two answers can be mistaken for each other.
//!
//! Within one session an upstream tells requests apart by their ids alone, and without sessions all of its clients
//! share one space of ids. Clients must not use an id twice, and some do; two that share an upstream do not even know
//! of each other. So an id that is in flight already is exchanged for one of ours on the way in, and back on the way
//! out; every other passes as it is, byte for byte.

use crate::id::RequestId;
use crate::jsonrpc::{Id, Node, Span};
use dashmap::DashMap;
use http::HeaderValue;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

/// The ids in flight; clones share them.
#[derive(Clone, Default)]
pub struct Ids(Arc<Table>);

#[derive(Default)]
struct Table {
    /// By a keyed hash of upstream, session and id. Two that share a hash by chance are only kept apart once too often.
    in_flight: DashMap<u64, Vec<Option<Id>>>,
    hasher: RandomState,
}

/// An id in flight, until this is dropped.
pub(super) struct Ticket {
    table: Arc<Table>,
    key: u64,
    /// What the upstream knows the call by, where that is not the client's id.
    ours: Option<Id>,
}

impl Ids {
    /// Puts the id of a request into flight.
    pub(super) fn enter(&self, upstream: &str, session: Option<&HeaderValue>, id: &Id, request: &RequestId) -> Ticket {
        let key = self.key(upstream, session, id);
        let mut entry = self.0.in_flight.entry(key).or_default();
        let ours = entry.contains(&None).then(|| ours(request, entry.len()));
        entry.push(ours.clone());
        drop(entry);
        Ticket { table: Arc::clone(&self.0), key, ours }
    }

    /// What the upstream knows the call `id` of a session by, where that is not `id` itself.
    pub(super) fn known_as(&self, upstream: &str, session: &HeaderValue, id: &Id) -> Option<Id> {
        let entry = self.0.in_flight.get(&self.key(upstream, Some(session), id))?;
        if entry.contains(&None) { None } else { entry.last().cloned().flatten() }
    }

    fn key(&self, upstream: &str, session: Option<&HeaderValue>, id: &Id) -> u64 {
        self.0.hasher.hash_one((upstream, session.map(HeaderValue::as_bytes), id))
    }
}

/// Unique, since request ids are.
fn ours(request: &RequestId, n: usize) -> Id {
    let json = format!("\"portcullis-{request}-{n}\"");
    Id::of(Node::of(json.as_bytes(), Span::whole(json.as_bytes()))).expect("a short string is an id")
}

impl Ticket {
    /// What the upstream knows the call by, where that is not the client's id.
    pub(super) fn ours(&self) -> Option<&Id> {
        self.ours.as_ref()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(mut entry) = self.table.in_flight.get_mut(&self.key)
            && let Some(at) = entry.iter().position(|ours| *ours == self.ours)
        {
            entry.swap_remove(at);
        }
        self.table.in_flight.remove_if(&self.key, |_, entry| entry.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_passes_as_it_is_unless_it_is_in_flight() {
        let (ids, session) = (Ids::default(), HeaderValue::from_static("s"));
        let id = Id::from(1);
        let enter = || ids.enter("up", Some(&session), &id, &RequestId::next());

        let first = enter();
        let second = enter();
        let elsewhere = ids.enter("up", None, &id, &RequestId::next());

        assert!(first.ours().is_none() && elsewhere.ours().is_none());
        let ours = second.ours().cloned();
        assert!(ours.is_some());
        assert_eq!(ids.known_as("up", &session, &id), None, "the first is meant as long as it is there");
        drop(first);
        assert_eq!(ids.known_as("up", &session, &id), ours);
        let third = enter();
        assert!(third.ours().is_none());
        drop((second, third, elsewhere));
        assert!(ids.0.in_flight.is_empty());
    }
}
