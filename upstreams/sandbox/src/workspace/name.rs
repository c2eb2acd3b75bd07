//! Which folder is whose: readable for the principals of this gateway, and never the same for two.

use portcullis_local::Principal;
use std::fmt::Write as _;

/// The longest name that stands for itself, in bytes.
const LONGEST: usize = 64;

/// `user-alice`, `client-ci` for principals of this gateway with an ordinary name; `own-…` and `ext-…` with a hash for
/// other ones of this gateway and for those of external issuers.
///
/// No two principals have one name: ordinary ones differ in their own letters, the others in 128 bits of SHA-256.
pub(super) fn of(principal: &Principal) -> String {
    if !principal.issuer.is_empty() {
        return format!("ext-{}", hash(principal));
    }
    let parts = principal.subject.split_once(':');
    let ordinary = parts.filter(|(kind, name)| ["user", "client"].contains(kind) && is_ordinary(name));
    ordinary.map_or_else(|| format!("own-{}", hash(principal)), |(kind, name)| format!("{kind}-{name}"))
}

/// Small letters only: a file system may take `A` and `a` for the same.
fn is_ordinary(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=LONGEST).contains(&name.len())
        && name.bytes().next().is_some_and(is_plain)
        && name.bytes().all(|byte| is_plain(byte) || b"._-".contains(&byte))
}

fn hash(principal: &Principal) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    // The length keeps ("a", "bc") and ("ab", "c") apart.
    context.update(&(principal.issuer.len() as u64).to_be_bytes());
    context.update(principal.issuer.as_bytes());
    context.update(principal.subject.as_bytes());
    let mut hex = String::new();
    for byte in &context.finish().as_ref()[..16] {
        write!(hex, "{byte:02x}").expect("a string takes whatever is written");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(issuer: &str, subject: &str) -> String {
        of(&Principal { issuer: issuer.to_owned(), subject: subject.to_owned() })
    }

    #[test]
    fn folders_of_this_gateways_principals_can_be_read() {
        assert_eq!(name("", "user:alice"), "user-alice");
        assert_eq!(name("", "client:ci-2.build_x"), "client-ci-2.build_x");
    }

    #[test]
    fn no_two_principals_have_one_folder() {
        let long = format!("user:{}", "a".repeat(65));
        let principals = [
            ("", "user:alice"),
            ("", "client:alice"),
            ("", "user:Alice"),
            ("", "user:ALICE"),
            ("", "user:alice "),
            ("", "user:../client-alice"),
            ("", "user:.."),
            ("", "user:"),
            ("", "user"),
            ("", ""),
            ("", "staging"),
            ("", "user:a/b"),
            ("", "user:a\0b"),
            ("", "user:-rf"),
            ("", long.as_str()),
            ("https://idp.test", "user:alice"),
            ("https://idp.test", "alice"),
            ("https://idp.test/", "alice"),
            ("https://idp.test/a", "lice"),
            ("user:", "alice"),
        ];
        let mut names: Vec<String> = principals.iter().map(|(issuer, subject)| name(issuer, subject)).collect();
        assert!(
            names.iter().all(|name| !name.contains('/') && !name.starts_with('.') && name.len() < 100),
            "{names:?}"
        );

        names.sort();
        names.dedup();

        assert_eq!(names.len(), principals.len(), "{names:?}");
        assert!(!names.contains(&"staging".to_owned()));
    }
}
