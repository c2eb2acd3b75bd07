//! Words and numbers as people and models read them.

pub(crate) use portcullis_local::words::{count, grouped, size};

/// Why nobody may write, whose fault it may be.
pub(crate) const DISK_FULL: &str = "the disk of this host is nearly full";
