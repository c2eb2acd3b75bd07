//! Values that must not be shown: no `Display`, no `Serialize`, and a `Debug` that says nothing.

use std::fmt;

/// Holds a value that may be used but not shown. `expose` is the only way in, so that uses can be searched for.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps `value`.
    pub fn new(value: T) -> Self {
        Secret(value)
    }

    /// The value itself. Never hand it to a log, an error or an audit record.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_says_nothing_of_the_value() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "[secret]");
    }
}
