//! Keys that come, sign, verify and go, with files whose age the test sets.

use super::pair::pem;
use super::*;
use crate::store::files;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, UNIX_EPOCH};
use tempfile::TempDir;

/// Far after any file that a test makes.
const NOW_MS: i64 = 2_000_000_000_000;
const MINUTE: i64 = 60 * 1_000;
const DAY: i64 = 24 * 60 * MINUTE;

impl Keys {
    /// The id of the newest key.
    pub(crate) fn newest_kid(&self) -> String {
        self.in_force.load().keys[0].kid.clone()
    }

    /// The signature of the newest key under anything.
    pub(crate) fn sign_anything(&self, message: &str) -> String {
        self.in_force.load().keys[0].sign(message.as_bytes()).unwrap()
    }

    /// The public key of the newest in forms an attacker could hand to an HMAC: PEM, DER, JWK, bare point.
    pub(crate) fn public_forms(&self) -> Vec<Vec<u8>> {
        let ring = self.in_force.load();
        let key = &ring.keys[0];
        let mut der = vec![
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
            0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        der.extend(&key.point);
        let pem = pem(&der).replace("PRIVATE", "PUBLIC");
        let jwk = key.jwk().to_string();
        vec![
            pem.clone().into_bytes(),
            pem.trim_end().as_bytes().to_vec(),
            format!(" {pem}").into_bytes(),
            der,
            jwk.into_bytes(),
            key.point.clone(),
        ]
    }
}

/// Keys in a directory that is gone already: they are in memory.
pub(crate) fn keys() -> Keys {
    Keys::open(tempfile::tempdir().unwrap().path()).unwrap()
}

fn path(dir: &TempDir, kid: &str) -> PathBuf {
    dir.path().join(format!("keys/{kid}.pem"))
}

/// Makes a key's file this old at `NOW_MS`.
fn age(dir: &TempDir, kid: &str, ago_ms: i64) {
    let made_at = UNIX_EPOCH + Duration::from_millis(u64::try_from(NOW_MS - ago_ms).unwrap());
    fs::File::open(path(dir, kid)).unwrap().set_modified(made_at).unwrap();
}

/// A directory with keys of these ages, and their ids.
fn aged<const N: usize>(ages: [i64; N]) -> (TempDir, [String; N]) {
    let dir = tempfile::tempdir().unwrap();
    let kids = ages.map(|ago_ms| {
        let kid = Keys::rotate(dir.path()).unwrap();
        age(&dir, &kid, ago_ms);
        kid
    });
    (dir, kids)
}

fn signer(keys: &Keys, now_ms: i64) -> String {
    let mut signer = String::new();
    keys.sign(now_ms, |kid| {
        signer = kid.to_owned();
        String::new()
    })
    .unwrap();
    signer
}

#[test]
fn the_first_start_makes_one_private_key_that_signs_at_once_and_later_ones_use_it() {
    let dir = tempfile::tempdir().unwrap();

    let first = Keys::open(dir.path()).unwrap();
    let second = Keys::open(dir.path()).unwrap();

    let kid = first.newest_kid();
    assert_eq!(second.newest_kid(), kid);
    assert_eq!(fs::metadata(path(&dir, &kid)).unwrap().permissions().mode() & 0o777, 0o600);
    let signed = first.sign(0, |kid| format!("{kid}.message")).unwrap();
    let (message, signature) = signed.rsplit_once('.').unwrap();
    assert_eq!(message, format!("{kid}.message"));
    assert!(second.has_signed(&kid, message.as_bytes(), signature));
    assert!(!second.has_signed(&kid, b"other", signature));
    assert!(!second.has_signed("other", message.as_bytes(), signature));
}

#[test]
fn a_key_others_may_read_is_refused_with_the_command_that_mends_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = path(&dir, &Keys::open(dir.path()).unwrap().newest_kid());
    for mode in [0o640, 0o604, 0o620, 0o666] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();

        let refused = Keys::open(dir.path()).unwrap_err();

        assert!(matches!(refused, Error::Exposed { .. }));
        let command = format!("; run: chmod 600 {}", path.display());
        assert!(refused.to_string().ends_with(&command), "{refused}");
    }
}

#[test]
fn what_is_no_key_of_ours_is_refused() {
    let (dir, [kid]) = aged([0]);
    let other = dir.path().join("keys/other.pem");
    files::replace(&other, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    assert!(matches!(Keys::open(dir.path()), Err(Error::NotAKey { .. })));

    files::replace(&other, &fs::read(path(&dir, &kid)).unwrap()).unwrap();
    let refused = Keys::open(dir.path()).unwrap_err();
    assert!(matches!(&refused, Error::Misnamed { kid: found, .. } if *found == kid));
}

#[test]
fn a_new_key_is_shown_for_a_minute_before_it_signs_and_the_old_one_still_verifies() {
    let (dir, [old, new]) = aged([DAY, 0]);
    let keys = Keys::open(dir.path()).unwrap();

    assert_eq!(keys.jwks()["keys"][0]["kid"], *new);
    assert_eq!(keys.jwks()["keys"].as_array().map(Vec::len), Some(2));
    assert!(keys.jwks()["keys"][0].get("d").is_none());
    assert_eq!((signer(&keys, NOW_MS), signer(&keys, NOW_MS + MINUTE - 1)), (old.clone(), old.clone()));
    assert_eq!(signer(&keys, NOW_MS + MINUTE), new);

    let by = |now_ms: i64| keys.sign(now_ms, |_| "m".to_owned()).unwrap().split_off(2);
    assert!(keys.has_signed(&old, b"m", &by(NOW_MS)) && keys.has_signed(&new, b"m", &by(NOW_MS + MINUTE)));
    assert!(!keys.has_signed(&new, b"m", &by(NOW_MS)));
}

#[test]
fn keys_are_listed_with_what_they_are_for() {
    let (dir, [oldest, old, new]) = aged([40 * DAY, DAY, 0]);
    let keys = Keys::open(dir.path()).unwrap();
    let states = |now_ms: i64| keys.list(now_ms).into_iter().map(|key| (key.kid, key.state)).collect::<Vec<_>>();

    let until = |replaced_ms: i64| State::VerifiesUntil(replaced_ms + 31 * DAY);
    let oldest_until = until(NOW_MS - DAY + MINUTE);
    assert_eq!(
        states(NOW_MS),
        [(new.clone(), State::SignsFrom(NOW_MS + MINUTE)), (old.clone(), State::Signs), (oldest.clone(), oldest_until)]
    );
    assert_eq!(states(NOW_MS + MINUTE), [(new, State::Signs), (old, until(NOW_MS + MINUTE)), (oldest, oldest_until)]);
}

#[test]
fn a_running_gateway_takes_in_what_changes_and_says_so() {
    let (dir, [old]) = aged([DAY]);
    let keys = Keys::open(dir.path()).unwrap();
    assert_eq!(keys.look_again(NOW_MS).unwrap(), []);

    let new = Keys::rotate(dir.path()).unwrap();
    age(&dir, &new, 0);
    assert_eq!(keys.look_again(NOW_MS).unwrap(), [Change::Added(new.clone())]);
    assert_eq!(keys.look_again(NOW_MS + 1).unwrap(), []);
    assert_eq!(keys.look_again(NOW_MS + MINUTE).unwrap(), [Change::Signs(new.clone())]);

    // What nothing signed by it can be good any more is gone, from the directory too.
    let replaced_ms = NOW_MS + MINUTE;
    assert_eq!(keys.look_again(replaced_ms + 31 * DAY - 1).unwrap(), []);
    assert!(path(&dir, &old).exists());
    assert_eq!(keys.look_again(replaced_ms + 31 * DAY).unwrap(), [Change::Removed(old.clone())]);
    assert!(!path(&dir, &old).exists());
    assert_eq!(keys.jwks()["keys"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_key_whose_file_is_deleted_counts_no_more_and_there_is_always_one_that_signs() {
    let (dir, [old, new]) = aged([2 * DAY, DAY]);
    let keys = Keys::open(dir.path()).unwrap();
    keys.look_again(NOW_MS).unwrap();

    fs::remove_file(path(&dir, &new)).unwrap();
    let changes = keys.look_again(NOW_MS).unwrap();
    assert_eq!(changes, [Change::Signs(old.clone()), Change::Removed(new)]);

    fs::remove_file(path(&dir, &old)).unwrap();
    let changes = keys.look_again(NOW_MS).unwrap();
    let made = keys.newest_kid();
    assert_eq!(changes, [Change::Added(made.clone()), Change::Signs(made.clone()), Change::Removed(old)]);
    assert_eq!(signer(&keys, NOW_MS), made);
}

#[test]
fn keys_that_cannot_be_read_again_stay_in_force_until_they_can() {
    let (dir, [old]) = aged([DAY]);
    let keys = Keys::open(dir.path()).unwrap();
    let new = Keys::rotate(dir.path()).unwrap();
    fs::set_permissions(path(&dir, &new), fs::Permissions::from_mode(0o644)).unwrap();

    assert!(matches!(keys.look_again(NOW_MS), Err(Error::Exposed { .. })));
    assert_eq!(signer(&keys, NOW_MS), old);

    fs::set_permissions(path(&dir, &new), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(keys.look_again(NOW_MS).unwrap(), [Change::Added(new)]);

    fs::rename(dir.path().join("keys"), dir.path().join("gone")).unwrap();
    assert!(matches!(keys.look_again(NOW_MS), Err(Error::File { .. })));
    assert_eq!(keys.jwks()["keys"].as_array().map(Vec::len), Some(2));
}

#[test]
fn there_is_an_end_of_keys() {
    let (dir, _) = aged([0; MAX_KEYS]);

    let refused = Keys::rotate(dir.path()).unwrap_err();

    assert!(refused.to_string().starts_with("there are 16 keys in "), "{refused}");
}
