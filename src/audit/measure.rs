//! What the log costs can only be measured beside a gateway without it. No build that anybody runs can be one: this asks the
//! environment only where the crate was built with the feature `measure`, which `make bench-audit` does, in a folder of its own.

/// Whether nothing is to be recorded.
#[cfg(feature = "measure")]
pub fn is_left_out() -> bool {
    use std::sync::LazyLock;
    static LEFT_OUT: LazyLock<bool> = LazyLock::new(|| asked().starts_with("no-audit"));
    *LEFT_OUT
}

/// Whether calls that are not recorded gather all the same, as they do to be recorded (`queue`): it saves more than the log's
/// own part of it.
#[cfg(feature = "measure")]
pub(super) fn is_gathered() -> bool {
    use std::sync::LazyLock;
    static GATHERED: LazyLock<bool> = LazyLock::new(|| asked() == "no-audit-gathered");
    *GATHERED
}

#[cfg(feature = "measure")]
fn asked() -> String {
    std::env::var("PORTCULLIS_MEASURE").unwrap_or_default()
}

/// Never.
#[cfg(not(feature = "measure"))]
#[inline]
pub fn is_left_out() -> bool {
    false
}

/// Never.
#[cfg(not(feature = "measure"))]
#[inline]
pub(super) fn is_gathered() -> bool {
    false
}
