//! What verified tokens stand for, by their SHA-256: a bounded memory. Only what verified gets in, so strangers cannot
//! fill it.

use dashmap::DashMap;
use ring::digest;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The SHA-256 of a token.
pub(super) type Digest = [u8; digest::SHA256_OUTPUT_LEN];

pub(super) fn sha256(bytes: &[u8]) -> Digest {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Remembers at most so many.
#[derive(Debug)]
pub(super) struct Cache<V> {
    pub(super) tokens: DashMap<Digest, Arc<V>>,
    /// The keys of `tokens` in the order they came; what falls off its end is forgotten. Its length is the bound.
    pub(super) order: Mutex<VecDeque<Digest>>,
    capacity: usize,
}

impl<V> Cache<V> {
    pub(super) fn new(capacity: usize) -> Cache<V> {
        Cache { tokens: DashMap::new(), order: Mutex::new(VecDeque::new()), capacity: capacity.max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn get(&self, key: &Digest) -> Option<Arc<V>> {
        self.tokens.get(key).map(|entry| entry.value().clone())
    }

    pub(super) fn remove(&self, key: &Digest) {
        self.tokens.remove(key);
    }

    pub(super) fn retain(&self, is_kept: impl Fn(&V) -> bool) {
        self.tokens.retain(|_, value| is_kept(value));
    }

    /// Remembers one token and forgets the oldest beyond the capacity. Every key of `tokens` stands in `order`,
    /// so bounding the one bounds the other; a key that stands there twice is only forgotten a little early.
    pub(super) fn insert(&self, key: Digest, value: Arc<V>) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        self.tokens.insert(key, value);
        order.push_back(key);
        while order.len() > self.capacity {
            if let Some(oldest) = order.pop_front() {
                self.tokens.remove(&oldest);
            }
        }
    }
}
