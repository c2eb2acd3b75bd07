//! What a reload may change while the log is open.

use super::checkpoint::Pace;
use crate::config::{self, Sync};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// See the module.
#[derive(Debug)]
pub(super) struct Terms {
    is_strict: AtomicBool,
    file_bytes: AtomicU64,
    /// 0: files are kept.
    keep_ms: AtomicU64,
    /// 0: there is no limit.
    keep_bytes: AtomicU64,
    pub(super) pace: Pace,
}

impl Terms {
    pub(super) fn new(config: &config::Audit) -> Terms {
        let terms = Terms {
            is_strict: AtomicBool::new(true),
            file_bytes: AtomicU64::new(0),
            keep_ms: AtomicU64::new(0),
            keep_bytes: AtomicU64::new(0),
            pace: Pace::default(),
        };
        terms.set(config);
        terms
    }

    pub(super) fn set(&self, config: &config::Audit) {
        self.is_strict.store(config.sync == Sync::Strict, Ordering::Relaxed);
        self.file_bytes.store(bytes(config.file_size), Ordering::Relaxed);
        let keep_ms = config.keep.map_or(0, |keep| u64::try_from(keep.duration().as_millis()).unwrap_or(u64::MAX));
        self.keep_ms.store(keep_ms, Ordering::Relaxed);
        self.keep_bytes.store(config.keep_at_most.map_or(0, bytes), Ordering::Relaxed);
        self.pace.set(config.checkpoints.every.duration(), config.checkpoints.records);
    }

    pub(super) fn is_strict(&self) -> bool {
        self.is_strict.load(Ordering::Relaxed)
    }

    /// A file that would grow beyond this is followed by a new one.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    /// A file whose newest record is older goes.
    pub(super) fn keep(&self) -> Option<Duration> {
        Some(self.keep_ms.load(Ordering::Relaxed)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// All files together take no more.
    pub(super) fn keep_bytes(&self) -> Option<u64> {
        Some(self.keep_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// A file that was begun longer ago is followed by a new one, so that its first records do not stay much longer than
    /// its last ones.
    pub(super) fn file_age(&self) -> Option<Duration> {
        self.keep().map(|keep| keep / 8)
    }
}

fn bytes(size: config::ByteSize) -> u64 {
    u64::try_from(size.bytes()).unwrap_or(u64::MAX)
}
