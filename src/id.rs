//! Names for things we make: requests, grants, keys.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// `n` bytes from the operating system's generator.
///
/// # Panics
/// When the operating system has no randomness to give: nothing safe can go on without it.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// An unguessable name of 128 bits: `prefix` and 22 characters of base64url.
pub fn unguessable(prefix: &str) -> String {
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(random_bytes::<16>()))
}

/// Six letters and digits that tell a few things apart; not secret.
pub fn short() -> String {
    let [a, b, c] = random_bytes();
    format!("{a:02x}{b:02x}{c:02x}")
}

/// A secret of 256 bits: `prefix` and 43 characters of base64url. What is kept of it is its SHA-256.
pub fn secret(prefix: &str) -> String {
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(random_bytes::<32>()))
}

/// The name of one request: unique, not secret, the same in the answer's `X-Request-Id`, the audit log and the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// The next name: random per process, counted within it, so that a request costs no system call.
    pub fn next() -> Self {
        static PROCESS: LazyLock<String> =
            LazyLock::new(|| format!("{:012x}", u64::from_be_bytes(random_bytes()) >> 16));
        static COUNT: AtomicU64 = AtomicU64::new(0);
        RequestId(format!("r_{}_{:x}", *PROCESS, COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_ids_differ_and_name_the_process_alike() {
        let (a, b) = (RequestId::next(), RequestId::next());
        assert_ne!(a, b);
        assert_eq!(a.as_str().rsplit_once('_').map(|p| p.0), b.as_str().rsplit_once('_').map(|p| p.0));
    }
}
