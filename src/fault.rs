//! Points at which a test ends this process, or a task of it, to see what is left. A release build has none.

/// Ends the process here, at once and without a word, where `PORTCULLIS_FAULT` names this point. As SIGKILL would: nothing
/// is written, closed or answered any more. `panic:` before the name: panics here, the first time only.
///
/// # Panics
/// When told to.
#[cfg(debug_assertions)]
pub fn point(name: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};
    static ARMED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("PORTCULLIS_FAULT").ok());
    static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
    let Some(armed) = ARMED.as_deref() else { return };
    if armed.strip_prefix("panic:") == Some(name) && !HAS_PANICKED.swap(true, Ordering::Relaxed) {
        panic!("told to, at {name}");
    }
    if armed == name {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        // The signal comes before another instruction of any thread may matter; until then, none of this one.
        loop {
            std::thread::park();
        }
    }
}

/// Whether `PORTCULLIS_FAULT` names this: for what a test must be able to take away to see that it can fail.
#[cfg(debug_assertions)]
pub fn is_armed(name: &str) -> bool {
    use std::sync::LazyLock;
    static ARMED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("PORTCULLIS_FAULT").ok());
    ARMED.as_deref() == Some(name)
}

/// Never.
#[cfg(not(debug_assertions))]
#[inline]
pub fn is_armed(_name: &str) -> bool {
    false
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[inline]
pub fn point(_name: &str) {}
