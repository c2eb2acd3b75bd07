//! What the log costs can only be measured beside a gateway without it. No build that anybody runs can be one: this asks the
//! environment only where the crate was built with the feature `measure`, which `make bench-audit` does, in a folder of its own.

/// Whether nothing is to be recorded.
#[cfg(feature = "measure")]
pub fn is_left_out() -> bool {
    use std::sync::LazyLock;
    static LEFT_OUT: LazyLock<bool> =
        LazyLock::new(|| std::env::var("PORTCULLIS_MEASURE").is_ok_and(|what| what == "no-audit"));
    *LEFT_OUT
}

/// Never.
#[cfg(not(feature = "measure"))]
#[inline]
pub fn is_left_out() -> bool {
    false
}
