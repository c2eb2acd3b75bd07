//! Passwords of people: Argon2id hashes, and checking one at the pace the store allows.
//!
//! A name nobody has costs the same work and gets the same answer as a wrong password.

use super::{Person, Users};
use crate::clock::{self, Clock};
use crate::redact::Redactor;
use crate::secret::Secret;
use crate::store::{self, Attempt, Store};
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, phc};
use argon2::{Algorithm, Argon2, Params, Version};
use std::fmt;
use std::sync::{Arc, LazyLock};
use tokio::sync::Semaphore;

/// In bytes. Nobody types more; a longer one only makes us work.
pub const LONGEST_PASSWORD: usize = 1024;

/// The work of a hash we make: OWASP's first choice for Argon2id with memory to spare for two at a time.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// A hash made elsewhere must cost this much at least (OWASP's floor) and may not cost so much that a login is an attack.
const LEAST_MEMORY_KIB: u32 = 7 * 1024;
const MOST_MEMORY_KIB: u32 = 1024 * 1024;
const MOST_PASSES: u32 = 32;

/// Hashes computed at the same time in this process: each takes its memory and a core.
static AT_ONCE: Semaphore = Semaphore::const_new(2);
/// Who waits beyond those is told to come back: a hundred at once must not keep the hundred-and-first for minutes.
static IN_LINE: Semaphore = Semaphore::const_new(32);
/// The same for those who are counted apart: a flood of strangers must not stand in their way.
static AT_ONCE_APART: Semaphore = Semaphore::const_new(1);
static IN_LINE_APART: Semaphore = Semaphore::const_new(8);

/// A password, hashed. Not a secret like the password itself, but nothing to show around either.
#[derive(Clone)]
pub struct PasswordHash(Arc<phc::PasswordHash>);

/// Why a text cannot be used as a password hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitHash {
    /// No PHC string.
    #[error("not a password hash; make one with `portcullis user hash`")]
    Malformed,
    /// Another algorithm than Argon2id, or an old version of it.
    #[error("not an Argon2id hash (version 19); make one with `portcullis user hash`")]
    Algorithm,
    /// Too cheap to guess against.
    #[error("the hash is too weak: Argon2id needs m of at least 7168 (KiB); make one with `portcullis user hash`")]
    Weak,
    /// Too dear to check.
    #[error("the hash costs too much to check: at most m=1048576 (KiB), t=32")]
    Dear,
}

/// Why a person could not be verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such name, or not its password: which of the two is not said.
    #[error("wrong name or password")]
    Wrong,
    /// Too many failures; the password was not looked at.
    #[error("too many failed attempts; try again after {}", clock::rfc3339(*until_ms))]
    Paused {
        /// Milliseconds since the Unix epoch.
        until_ms: i64,
    },
    /// Too many at once; the password was not looked at.
    #[error("too many attempts at once; try again in a moment")]
    Busy,
    /// A new password that cannot be taken.
    #[error("a password has 1 to {LONGEST_PASSWORD} bytes")]
    Length,
    /// The hash could not be computed.
    #[error("the password cannot be hashed")]
    Argon2(#[from] argon2::password_hash::Error),
    /// The store could not be asked; without it there would be no pause.
    #[error("the failed attempts cannot be looked up")]
    Store(#[from] store::Error),
}

// === impl PasswordHash ===

impl PasswordHash {
    /// Hashes a new password with a fresh salt.
    ///
    /// # Errors
    /// [`Error::Length`], or [`Error::Argon2`] when there is no memory for it.
    pub fn of(password: &Secret<String>) -> Result<Self, Error> {
        let password = password.expose().as_bytes();
        if !(1..=LONGEST_PASSWORD).contains(&password.len()) {
            return Err(Error::Length);
        }
        let params =
            Params::new(MEMORY_KIB, PASSES, LANES, None).expect("the numbers above are within Argon2's ranges");
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        Ok(PasswordHash(Arc::new(argon2.hash_password(password)?)))
    }

    /// Reads a hash as `portcullis user hash` prints it.
    ///
    /// # Errors
    /// When it is none, or not one to rely on.
    pub fn parse(text: &str) -> Result<Self, UnfitHash> {
        let hash = phc::PasswordHash::new(text).map_err(|_| UnfitHash::Malformed)?;
        if hash.algorithm.as_str() != "argon2id" || hash.version != Some(19) {
            return Err(UnfitHash::Algorithm);
        }
        if hash.salt.is_none() || hash.hash.is_none() {
            return Err(UnfitHash::Malformed);
        }
        let params = Params::try_from(&hash).map_err(|_| UnfitHash::Malformed)?;
        if params.m_cost() < LEAST_MEMORY_KIB {
            return Err(UnfitHash::Weak);
        }
        if params.m_cost() > MOST_MEMORY_KIB || params.t_cost() > MOST_PASSES {
            return Err(UnfitHash::Dear);
        }
        Ok(PasswordHash(Arc::new(hash)))
    }

    fn is_of(&self, password: &Secret<String>) -> bool {
        let password = password.expose().as_bytes();
        password.len() <= LONGEST_PASSWORD && Argon2::default().verify_password(password, &*self.0).is_ok()
    }

    /// The hash as it is written in `users.yaml`.
    pub fn to_phc(&self) -> String {
        self.0.to_string()
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[password hash]")
    }
}

// === verifying ===

/// Finds out whether `password` is that of `name`, at the pace the failures so far allow.
///
/// A pause is short of a lock on purpose: somebody who fails again and again can delay a person, not keep them out.
/// With `apart`, failures are counted for that alone (a browser the person has logged in with, the terminal, the admin
/// listener): there, what strangers do to the name elsewhere does not even delay them.
///
/// # Errors
/// [`Error::Wrong`], [`Error::Paused`], [`Error::Busy`], or the reason why it could not be found out.
pub async fn verify_person(
    store: &Store,
    users: &Users,
    name: &str,
    apart: Option<&str>,
    password: Secret<String>,
    clock: &Clock,
) -> Result<Person, Error> {
    // A name that cannot be anybody's is not worth a row.
    if !super::is_user_name(name) {
        return Err(Error::Wrong);
    }
    let (in_line, at_once) = if apart.is_some() { (&IN_LINE_APART, &AT_ONCE_APART) } else { (&IN_LINE, &AT_ONCE) };
    let _place = in_line.try_acquire().map_err(|_| Error::Busy)?;
    // What somebody types for a name may be their password: of a name that nobody has, the store keeps a tag.
    let counted = match users.get(name) {
        Some(_) => name.to_owned(),
        None => Redactor::of_process().tag(name.as_bytes()).as_str().to_owned(),
    };
    // Neither has a space in it.
    let counter = apart.map_or_else(|| counted.clone(), |apart| format!("{counted} {apart}"));
    if let Attempt::Locked { until_ms } = store.login_attempt(&counter, clock.unix_ms()).await? {
        return Err(Error::Paused { until_ms });
    }
    let person = users.get(name);
    let hash = person.map_or_else(|| users.decoy().unwrap_or_else(decoy), |it| it.password.clone());
    let is_right = check(hash, password, at_once).await;
    match person {
        Some(person) if is_right => {
            store.login_success(&counter).await?;
            Ok(person.clone())
        }
        _ => Err(Error::Wrong),
    }
}

async fn check(hash: PasswordHash, password: Secret<String>, at_once: &Semaphore) -> bool {
    let _turn = at_once.acquire().await.expect("it is never closed");
    let work = tokio::task::spawn_blocking(move || hash.is_of(&password));
    work.await.unwrap_or(false)
}

/// What a name is checked against when there is nobody at all.
fn decoy() -> PasswordHash {
    static DECOY: LazyLock<PasswordHash> =
        LazyLock::new(|| PasswordHash::of(&Secret::new("nobody's".to_owned())).expect("it has a fitting length"));
    DECOY.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::users::tests::{PASSWORD, users};

    fn secret(text: &str) -> Secret<String> {
        Secret::new(text.to_owned())
    }

    #[test]
    fn a_hash_reads_back_and_fits_its_password_only() {
        let made = PasswordHash::of(&secret("correct horse")).unwrap();
        let read = PasswordHash::parse(&made.to_phc()).unwrap();

        assert!(made.to_phc().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert!(read.is_of(&secret("correct horse")));
        for wrong in ["", "correct horse ", "Correct horse", "correct hors"] {
            assert!(!read.is_of(&secret(wrong)), "{wrong:?}");
        }
    }

    #[test]
    fn a_password_has_a_length() {
        let of_length = |n: usize| PasswordHash::of(&secret(&"a".repeat(n)));
        assert!(of_length(LONGEST_PASSWORD).is_ok());
        assert!(matches!(of_length(LONGEST_PASSWORD + 1), Err(Error::Length)));
        assert!(matches!(of_length(0), Err(Error::Length)));
    }

    #[test]
    fn a_hash_that_is_no_protection_is_refused() {
        let tail = "$c29tZXNhbHRzb21lc2FsdA$MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI";
        let cases = [
            ("hunter2".to_owned(), UnfitHash::Malformed),
            (String::new(), UnfitHash::Malformed),
            ("$argon2id$v=19$m=19456,t=2,p=1".to_owned(), UnfitHash::Malformed),
            (format!("$argon2i$v=19$m=19456,t=2,p=1{tail}"), UnfitHash::Algorithm),
            (format!("$argon2id$v=16$m=19456,t=2,p=1{tail}"), UnfitHash::Algorithm),
            (format!("$argon2id$m=19456,t=2,p=1{tail}"), UnfitHash::Algorithm),
            (format!("$argon2id$v=19$m=8,t=1,p=1{tail}"), UnfitHash::Weak),
            (format!("$argon2id$v=19$m=4194304,t=1,p=1{tail}"), UnfitHash::Dear),
            (format!("$argon2id$v=19$m=19456,t=1000,p=1{tail}"), UnfitHash::Dear),
        ];
        for (text, why) in cases {
            assert_eq!(PasswordHash::parse(&text).err(), Some(why), "{text}");
        }
        PasswordHash::parse(&format!("$argon2id$v=19$m=7168,t=5,p=1{tail}")).expect("the twin is fine");
    }

    async fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn the_right_password_gives_the_person_with_the_groups() {
        let (_dir, store) = store().await;
        let users = users(&[("alice", &["ops"])]);

        let person = verify_person(&store, &users, "alice", None, secret(PASSWORD), &Clock::manual(0)).await;

        let person = person.unwrap();
        assert_eq!((&*person.name, &*person.groups), ("alice", &["ops".to_owned()][..]));
    }

    #[tokio::test]
    async fn nobody_can_tell_a_wrong_name_from_a_wrong_password() {
        let (_dir, store) = store().await;
        let users = users(&[("alice", &[])]);
        for name in ["alice", "nobody", "", "ALICE", "a b"] {
            let refused = verify_person(&store, &users, name, None, secret("wrong"), &Clock::manual(0)).await;
            assert!(matches!(refused, Err(Error::Wrong)), "{name}: {refused:?}");
        }
        assert_eq!(store.login_state(Redactor::of_process().tag(b"nobody").as_str()).await.unwrap().failures, 1);
    }

    #[tokio::test]
    async fn failures_pause_even_the_right_password_and_then_let_it_in() {
        let (_dir, store) = store().await;
        let (users, clock) = (users(&[("alice", &[])]), Clock::manual(0));
        for _ in 0..5 {
            let refused = verify_person(&store, &users, "alice", None, secret("wrong"), &clock).await;
            assert!(matches!(refused, Err(Error::Wrong)));
        }

        let paused = verify_person(&store, &users, "alice", None, secret(PASSWORD), &clock).await;
        assert!(matches!(paused, Err(Error::Paused { until_ms: 1_000 })), "{paused:?}");

        clock.advance_ms(1_000);
        verify_person(&store, &users, "alice", None, secret(PASSWORD), &clock).await.unwrap();
        assert_eq!(store.login_state("alice").await.unwrap().failures, 0);
    }

    #[tokio::test]
    async fn what_strangers_do_to_a_name_keeps_nobody_out_who_is_counted_apart() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let (users, clock) = (users(&[("alice", &[])]), Clock::manual(0));
        let attempt = async |apart: Option<&str>, password: &str| {
            verify_person(&store, &users, "alice", apart, secret(password), &clock).await
        };
        while !matches!(attempt(None, "wrong").await, Err(Error::Paused { .. })) {}

        assert!(attempt(Some("browser-1"), PASSWORD).await.is_ok());

        assert!(matches!(attempt(None, PASSWORD).await, Err(Error::Paused { .. })), "strangers still wait");
        while !matches!(attempt(Some("browser-2"), "wrong").await, Err(Error::Paused { .. })) {}
        assert!(attempt(Some("browser-1"), PASSWORD).await.is_ok(), "nor does another browser");
    }
}
