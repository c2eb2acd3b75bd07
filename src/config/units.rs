//! Durations (`30s`) and sizes (`4MiB`), as people write them.

use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Period(u64);

impl Period {
    /// That many seconds.
    pub const fn seconds(n: u64) -> Self {
        Period(n)
    }

    /// As the standard library has it.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ByteSize(usize);

impl ByteSize {
    /// That many times 1,048,576 bytes.
    pub const fn mebibytes(n: usize) -> Self {
        ByteSize(n.saturating_mul(1024 * 1024))
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        self.0
    }
}
