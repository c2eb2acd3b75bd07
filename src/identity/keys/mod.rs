//! The keys that sign access tokens (ES256), one file each in `data_dir/keys`.
//!
//! Every key there verifies. A new one is shown in the key set for a minute before it signs, so that every process of
//! this gateway, and whoever else checks our tokens, has seen it by then. The one it replaces verifies until the last
//! token it signed must have expired, and then its file is removed. So nobody is logged out by a rotation.
//!
//! The directory is the truth, and each process looks at it twice a second ([`watch`]). Whoever signs or verifies takes
//! no lock: the keys are swapped whole.

mod directory;
mod pair;

use crate::clock::Clock;
use arc_swap::ArcSwap;
use directory::Look;
use pair::Key;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// No token of ours lives longer, in seconds: those that `portcullis token issue` makes, which nobody refreshes.
pub const LONGEST_LIFE_S: i64 = 30 * 24 * 60 * 60;

/// A key signs when it has been in the key set for so long.
const SIGNS_AFTER_MS: i64 = 60 * 1_000;

/// A key that signs no more stays for so long: the longest life of a token, and a day for clocks that differ.
const KEPT_MS: i64 = (LONGEST_LIFE_S + 24 * 60 * 60) * 1_000;

/// More is no rotation, and every stranger who asks for the key set gets all of them.
const MAX_KEYS: usize = 16;

/// How often the directory is looked at.
const POLL: Duration = Duration::from_millis(500);

/// The keys of this gateway; at least one.
#[derive(Debug)]
pub struct Keys {
    dir: PathBuf,
    in_force: ArcSwap<Ring>,
    last: Mutex<Last>,
}

/// Keys that are in force together.
#[derive(Debug)]
struct Ring {
    /// Newest first; never empty.
    keys: Vec<Key>,
}

/// What the last look at the directory found.
#[derive(Debug, Default)]
struct Last {
    look: Option<Look>,
    /// The key that signed then.
    signing: Option<String>,
}

/// What has become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It verifies, and is in the key set.
    Added(String),
    /// It signs from now on.
    Signs(String),
    /// It does neither any more: tokens that it signed are not accepted.
    Removed(String),
}

/// One key, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id, as in tokens and in the key set.
    pub kid: String,
    /// When it was made, milliseconds since the Unix epoch.
    pub made_at_ms: i64,
    /// What it is for now.
    pub state: State,
}

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It will sign from this time on.
    SignsFrom(i64),
    /// It signs.
    Signs,
    /// It signs no more, and verifies until this time.
    VerifiesUntil(i64),
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or the directory cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Others may read a key.
    #[error("others may read the signing key {}; run: chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The key's file.
        path: PathBuf,
    },
    /// The file holds no key for ES256.
    #[error("{} is not a P-256 private key in PKCS#8 PEM", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
    },
    /// The file's name is not the key's thumbprint.
    #[error("{} holds the key `{kid}`; rename it to {kid}.pem", path.display())]
    Misnamed {
        /// The file.
        path: PathBuf,
        /// The thumbprint.
        kid: String,
    },
    /// There are as many keys as there may be.
    #[error("there are {max} keys in {} already; wait until the oldest are over, or delete their files", dir.display())]
    TooMany {
        /// The directory.
        dir: PathBuf,
        /// How many there may be.
        max: usize,
    },
    /// A key could not be made, or did not sign.
    #[error("the cryptographic library refused")]
    Crypto,
}

// === impl Keys ===

impl Keys {
    /// Reads `data_dir/keys`; makes the directory and a first key where there is none.
    ///
    /// # Errors
    /// When a key cannot be read or must not be used.
    pub fn open(data_dir: &Path) -> Result<Keys, Error> {
        let dir = data_dir.join("keys");
        let ring = Ring::of(directory::open(&dir)?);
        Ok(Keys { dir, in_force: ArcSwap::from_pointee(ring), last: Mutex::default() })
    }

    /// Makes a new key in `data_dir/keys`, which signs from a minute later on. Gives its id.
    ///
    /// # Errors
    /// When there are too many already, or it cannot be written.
    pub fn rotate(data_dir: &Path) -> Result<String, Error> {
        directory::add(&data_dir.join("keys"), MAX_KEYS).map(|key| key.kid)
    }

    /// The public keys as a JWK Set (RFC 7517 §5), newest first.
    pub fn jwks(&self) -> serde_json::Value {
        let keys: Vec<_> = self.in_force.load().keys.iter().map(Key::jwk).collect();
        json!({ "keys": keys })
    }

    /// Every key with what it is for, newest first.
    pub fn list(&self, now_ms: i64) -> Vec<Listed> {
        let ring = self.in_force.load();
        let signing = &ring.signing(now_ms).kid;
        let state = |at: usize, key: &Key| match ring.replaced_at_ms(at) {
            _ if key.kid == *signing => State::Signs,
            Some(replaced_ms) if replaced_ms <= now_ms => State::VerifiesUntil(replaced_ms.saturating_add(KEPT_MS)),
            _ => State::SignsFrom(key.signs_from_ms()),
        };
        let listed = |(at, key): (usize, &Key)| {
            let (kid, made_at_ms) = (key.kid.clone(), key.made_at_ms);
            Listed { kid, made_at_ms, state: state(at, key) }
        };
        ring.keys.iter().enumerate().map(listed).collect()
    }

    /// Signs what `message` makes of the id of the key that signs at this time. Gives both with a dot between, the
    /// signature in JWS form: base64url of r and s.
    pub(super) fn sign(&self, now_ms: i64, message: impl FnOnce(&str) -> String) -> Result<String, Error> {
        let ring = self.in_force.load();
        let key = ring.signing(now_ms);
        let message = message(&key.kid);
        let signature = key.sign(message.as_bytes())?;
        Ok(format!("{message}.{signature}"))
    }

    /// Whether the key `kid` of ours made this signature. The algorithm is the key's, whatever a token claims.
    pub(super) fn has_signed(&self, kid: &str, message: &[u8], signature: &str) -> bool {
        let ring = self.in_force.load();
        ring.keys.iter().filter(|key| key.kid == kid).any(|key| key.has_signed(message, signature))
    }

    /// Looks at the directory, takes in what has changed there, and removes keys whose last token has expired.
    ///
    /// # Errors
    /// When a key cannot be read or must not be used, or the directory is not there. The keys in force stay.
    fn look_again(&self, now_ms: i64) -> Result<Vec<Change>, Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.in_force.load_full();
        for kid in before.spent(now_ms) {
            directory::remove(&self.dir, kid)?;
        }
        let look = directory::look(&self.dir)?;
        if last.look.as_ref() != Some(&look) {
            // Read after the look: what changes in between is looked at again.
            self.in_force.store(Arc::new(Ring::of(directory::open(&self.dir)?)));
            last.look = Some(look);
        }
        let after = self.in_force.load_full();
        let mut changes = after.without(&before).map(Change::Added).collect::<Vec<_>>();
        let signing = &after.signing(now_ms).kid;
        if last.signing.as_ref().is_some_and(|before| before != signing) {
            changes.push(Change::Signs(signing.clone()));
        }
        last.signing = Some(signing.clone());
        changes.extend(before.without(&after).map(Change::Removed));
        Ok(changes)
    }
}

/// Follows the directory for as long as it is polled, and tells what changed; run as a task that ends with the server.
pub async fn watch(keys: Arc<Keys>, clock: Clock, tell: impl Fn(&Change)) {
    let mut tick = tokio::time::interval(POLL);
    let mut said = None;
    loop {
        tick.tick().await;
        let (looking, now_ms) = (Arc::clone(&keys), clock.unix_ms());
        // Files are read: not on a thread that serves calls.
        let looked = tokio::task::spawn_blocking(move || looking.look_again(now_ms)).await;
        let failed = match looked {
            Ok(Ok(changes)) => {
                changes.iter().for_each(&tell);
                None
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(died) => Some(died.to_string()),
        };
        // Once for each fault, not twice a second.
        if let Some(error) = &failed
            && said != failed
        {
            tracing::error!(%error, "the signing keys cannot be read again; those in force stay");
        }
        said = failed;
    }
}

// === impl Ring ===

impl Ring {
    fn of(mut keys: Vec<Key>) -> Ring {
        // Of two of the same age either may sign; the same one in every process.
        keys.sort_by(|a, b| (b.made_at_ms, &b.kid).cmp(&(a.made_at_ms, &a.kid)));
        Ring { keys }
    }

    /// The newest key that was shown for long enough. Where none was, the oldest: whoever has seen any has seen that.
    fn signing(&self, now_ms: i64) -> &Key {
        let is_seen = |key: &&Key| key.signs_from_ms() <= now_ms;
        self.keys.iter().find(is_seen).or(self.keys.last()).expect("`directory::open` leaves at least one key")
    }

    /// When the key at this place stopped to sign, or will; `None` for the newest.
    fn replaced_at_ms(&self, at: usize) -> Option<i64> {
        let newer = at.checked_sub(1).and_then(|newer| self.keys.get(newer))?;
        Some(newer.signs_from_ms())
    }

    /// Keys whose last token has expired.
    fn spent(&self, now_ms: i64) -> impl Iterator<Item = &str> {
        let is_spent = move |at: usize| {
            self.replaced_at_ms(at).is_some_and(|replaced_ms| replaced_ms.saturating_add(KEPT_MS) <= now_ms)
        };
        self.keys.iter().enumerate().filter(move |(at, _)| is_spent(*at)).map(|(_, key)| key.kid.as_str())
    }

    /// The ids of the keys that are here and not there.
    fn without<'a>(&'a self, other: &'a Ring) -> impl Iterator<Item = String> + 'a {
        let ids = self.keys.iter().map(|key| &key.kid);
        ids.filter(|kid| !other.keys.iter().any(|key| key.kid == **kid)).cloned()
    }
}

// === impl Key ===

impl Key {
    fn signs_from_ms(&self) -> i64 {
        self.made_at_ms.saturating_add(SIGNS_AFTER_MS)
    }
}

#[cfg(test)]
pub(super) mod tests;
