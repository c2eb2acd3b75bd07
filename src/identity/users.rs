//! The people of this gateway: those of `identity.users` and those of `data_dir/users.yaml`, which
//! `portcullis user add` writes so that nobody has to edit a file to begin.

use super::password::{PasswordHash, UnfitHash};
use crate::config;
use crate::store::files;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The group that may administer.
pub const ADMINS: &str = "admins";

/// The file in `data_dir`.
const FILE: &str = "users.yaml";
/// More is no file of ours.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;

/// Everybody, by name. Part of a snapshot: made anew when one of the files changes, never changed.
#[derive(Clone, Debug, Default)]
pub struct Users {
    by_name: HashMap<Arc<str>, Person>,
    /// Their names, by issuer and subject there.
    elsewhere: HashMap<(String, String), Arc<str>>,
    /// Checked against for a name that is nobody's, so that it costs what a real one costs.
    decoy: Option<PasswordHash>,
}

/// One person.
#[derive(Clone, Debug)]
pub struct Person {
    /// Their name.
    pub name: Arc<str>,
    /// Their groups.
    pub groups: Arc<[String]>,
    /// Their password, hashed.
    pub password: PasswordHash,
    /// Names that password without telling anything about it: what was made under another one is over.
    pub password_mark: Arc<str>,
}

/// What is wrong with the people as written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name outside `[a-z0-9._@-]{1,64}`.
    #[error("user name `{0}` is not of the form [a-z0-9._@-]{{1,64}}")]
    Name(String),
    /// Two of the same name.
    #[error("user `{0}` is written twice; `gateway.yaml` and `users.yaml` in `data_dir` count together")]
    Duplicate(String),
    /// Two that claim to be the same subject of an external issuer.
    #[error("subject `{subject}` of issuer `{issuer}` is written twice in `also`; a subject is one person")]
    TwoOfOne {
        /// The issuer.
        issuer: String,
        /// The subject there.
        subject: String,
    },
    /// A password hash that cannot be used.
    #[error("password_hash of user `{name}`: {why}")]
    Hash {
        /// Whose.
        name: String,
        /// What is wrong with it.
        why: UnfitHash,
    },
    /// The file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// `users.yaml` or its lock.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file is not what `user add` writes.
    #[error("cannot read {}", path.display())]
    Syntax {
        /// `users.yaml`.
        path: PathBuf,
        /// With line, column and snippet.
        source: Box<serde_saphyr::Error>,
    },
}

/// `users.yaml`, held by this process alone until it is dropped.
#[derive(Debug)]
pub struct UsersFile {
    path: PathBuf,
    users: Vec<config::User>,
    _lock: File,
}

/// The file's form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    users: Vec<config::User>,
}

/// The same, to write.
#[derive(Serialize)]
struct Written<'a> {
    users: Vec<WrittenUser<'a>>,
}

#[derive(Serialize)]
struct WrittenUser<'a> {
    name: &'a str,
    password_hash: &'a str,
    groups: &'a [String],
    #[serde(skip_serializing_if = "<[config::Also]>::is_empty")]
    also: &'a [config::Also],
}

// === impl Users ===

impl Users {
    /// The people of the configuration and of `data_dir/users.yaml`, which may be missing.
    ///
    /// # Errors
    /// The first thing that is wrong with one of them.
    pub fn load(identity: &config::Identity, data_dir: &Path) -> Result<Users, Error> {
        let from_file = read(&data_dir.join(FILE))?;
        Users::of(identity.users.iter().chain(&from_file))
    }

    /// These people.
    ///
    /// # Errors
    /// The first thing that is wrong with one of them.
    pub fn of<'a>(written: impl IntoIterator<Item = &'a config::User>) -> Result<Users, Error> {
        let mut users = Users::default();
        for user in written {
            let person = Person::of(user)?;
            users.decoy.get_or_insert_with(|| person.password.clone());
            for config::Also { issuer, subject } in &user.also {
                let (issuer, subject) = (issuer.clone(), subject.clone());
                match users.elsewhere.entry((issuer, subject)) {
                    Entry::Occupied(taken) => {
                        let (issuer, subject) = taken.key().clone();
                        return Err(Error::TwoOfOne { issuer, subject });
                    }
                    Entry::Vacant(free) => free.insert(person.name.clone()),
                };
            }
            match users.by_name.entry(person.name.clone()) {
                Entry::Occupied(_) => return Err(Error::Duplicate(user.name.clone())),
                Entry::Vacant(free) => free.insert(person),
            };
        }
        Ok(users)
    }

    /// The person of this name.
    pub fn get(&self, name: &str) -> Option<&Person> {
        self.by_name.get(name)
    }

    /// The person that this subject of an external issuer is, where somebody's `also` says so.
    pub fn also(&self, issuer: &str, subject: &str) -> Option<&Person> {
        if self.elsewhere.is_empty() {
            return None;
        }
        self.get(self.elsewhere.get(&(issuer.to_owned(), subject.to_owned()))?)
    }

    /// Everybody, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Person> {
        self.by_name.values()
    }

    /// Whether there is nobody: the gateway waits for its first admin.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// A hash to check the password of a name that is nobody's against.
    pub(super) fn decoy(&self) -> Option<PasswordHash> {
        self.decoy.clone()
    }
}

// === impl Person ===

impl Person {
    fn of(user: &config::User) -> Result<Person, Error> {
        if !super::is_user_name(&user.name) {
            return Err(Error::Name(user.name.clone()));
        }
        let password =
            PasswordHash::parse(&user.password_hash).map_err(|why| Error::Hash { name: user.name.clone(), why })?;
        let (name, groups) = (user.name.as_str().into(), user.groups.as_slice().into());
        let password_mark = mark(&user.password_hash);
        Ok(Person { name, groups, password, password_mark })
    }

    /// Whether they are in `group`.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|it| it == group)
    }
}

fn mark(password_hash: &str) -> Arc<str> {
    let digest = ring::digest::digest(&ring::digest::SHA256, password_hash.as_bytes());
    URL_SAFE_NO_PAD.encode(digest.as_ref().first_chunk::<12>().expect("SHA-256 has 32 bytes")).into()
}

// === impl UsersFile ===

impl UsersFile {
    /// Reads the file and keeps other processes from changing it meanwhile.
    ///
    /// # Errors
    /// When it cannot be read, or is not of its form.
    pub fn open(data_dir: &Path) -> Result<UsersFile, Error> {
        let path = data_dir.join(FILE);
        let failed = |source| Error::File { path: path.clone(), source };
        files::make_private_dir(data_dir).map_err(failed)?;
        let lock = files::lock(&data_dir.join("users.yaml.lock")).map_err(failed)?;
        Ok(UsersFile { users: read(&path)?, path, _lock: lock })
    }

    /// Everybody: those of the file and of the configuration.
    ///
    /// # Errors
    /// The first thing that is wrong with one of them.
    pub fn everybody(&self, identity: &config::Identity) -> Result<Users, Error> {
        Users::of(identity.users.iter().chain(&self.users))
    }

    /// Adds one and writes the file. Who may do that is the caller's business.
    ///
    /// # Errors
    /// When that person cannot be beside the others, or the file cannot be written; it is then as it was.
    pub fn add(mut self, user: config::User, identity: &config::Identity) -> Result<(), Error> {
        self.users.push(user);
        self.everybody(identity)?;
        let users = self.users.iter().map(|user| WrittenUser {
            name: &user.name,
            password_hash: &user.password_hash,
            groups: &user.groups,
            also: &user.also,
        });
        let text = serde_saphyr::to_string(&Written { users: users.collect() })
            .expect("texts and lists of texts can be written as YAML");
        files::replace(&self.path, text.as_bytes()).map_err(|source| Error::File { path: self.path.clone(), source })
    }
}

fn read(path: &Path) -> Result<Vec<config::User>, Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
        Ok(found) if found.len() > LARGEST_FILE => {
            return Err(failed(io::Error::from(io::ErrorKind::FileTooLarge)));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let document: Document = serde_saphyr::from_str(&text)
        .map_err(|error| Error::Syntax { path: path.to_owned(), source: Box::new(error) })?;
    Ok(document.users)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::secret::Secret;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::LazyLock;

    /// The password of everybody made by [`user`].
    pub(crate) const PASSWORD: &str = "correct horse battery staple";

    /// One person as written, with [`PASSWORD`].
    pub(crate) fn user(name: &str, groups: &[&str]) -> config::User {
        static HASH: LazyLock<String> =
            LazyLock::new(|| PasswordHash::of(&Secret::new(PASSWORD.to_owned())).expect("it fits").to_phc());
        config::User {
            name: name.to_owned(),
            password_hash: HASH.clone(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            also: Vec::new(),
        }
    }

    /// People with [`PASSWORD`].
    pub(crate) fn users(of: &[(&str, &[&str])]) -> Users {
        let written: Vec<_> = of.iter().map(|(name, groups)| user(name, groups)).collect();
        Users::of(&written).expect("they are well written")
    }

    #[test]
    fn people_of_both_files_count_together() {
        let dir = tempfile::tempdir().unwrap();
        let identity = config::Identity { users: vec![user("alice", &["admins"])], ..config::Identity::default() };
        assert!(Users::load(&config::Identity::default(), dir.path()).unwrap().is_empty());

        UsersFile::open(dir.path()).unwrap().add(user("bob", &["ops", "a: b"]), &identity).unwrap();
        UsersFile::open(dir.path()).unwrap().add(user("c", &[]), &identity).unwrap();

        let users = Users::load(&identity, dir.path()).unwrap();
        let groups = |name| users.get(name).map(|person| person.groups.to_vec());
        assert_eq!(groups("alice"), Some(vec!["admins".to_owned()]));
        assert_eq!(groups("bob"), Some(vec!["ops".to_owned(), "a: b".to_owned()]));
        assert_eq!(groups("c"), Some(vec![]));
        assert_eq!(groups("d"), None);
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn who_somebody_is_elsewhere_is_kept_when_others_are_added() {
        let dir = tempfile::tempdir().unwrap();
        let none = config::Identity::default();
        let also = |subject: &str| config::Also { issuer: "https://idp.test".into(), subject: subject.into() };
        let alice = config::User { also: vec![also("00u1")], ..user("alice", &[]) };
        UsersFile::open(dir.path()).unwrap().add(alice, &none).unwrap();
        UsersFile::open(dir.path()).unwrap().add(user("bob", &[]), &none).unwrap();

        let users = Users::load(&none, dir.path()).unwrap();

        let of = |issuer: &str, subject: &str| users.also(issuer, subject).map(|person| person.name.to_string());
        assert_eq!(of("https://idp.test", "00u1"), Some("alice".to_owned()));
        assert_eq!(of("https://idp.test/", "00u1"), None);
        assert_eq!(of("https://idp.test", "alice"), None);
        let twin = config::User { also: vec![also("00u1")], ..user("carol", &[]) };
        let refused = UsersFile::open(dir.path()).unwrap().add(twin, &none);
        assert!(matches!(refused, Err(Error::TwoOfOne { .. })), "{refused:?}");
    }

    #[test]
    fn a_name_in_both_files_is_refused_and_the_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let identity = config::Identity { users: vec![user("alice", &[])], ..config::Identity::default() };

        let refused = UsersFile::open(dir.path()).unwrap().add(user("alice", &[]), &identity);

        assert!(matches!(refused, Err(Error::Duplicate(name)) if name == "alice"));
        assert!(!dir.path().join(FILE).exists());
    }

    #[test]
    fn a_file_that_is_not_of_its_form_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            "users: [ { name: a, password_hash: x, group: [b] } ]",
            "users: [ { name: a, name: b, password_hash: x } ]",
            "users: []\nusers: []",
            "people: []",
            "users: 1",
            "",
        ];
        for text in cases {
            fs::write(dir.path().join(FILE), text).unwrap();
            let refused = Users::load(&config::Identity::default(), dir.path());
            assert!(matches!(refused, Err(Error::Syntax { .. })), "{text}: {refused:?}");
        }
    }

    #[test]
    fn a_person_is_written_with_a_fit_name_and_hash() {
        let broken = config::User { password_hash: "hunter2".to_owned(), ..user("alice", &[]) };
        assert!(matches!(Users::of([&broken]), Err(Error::Hash { .. })));
        for name in ["", "Alice", "a b", "a:b", "ä", "a\n"] {
            assert!(matches!(Users::of([&user(name, &[])]), Err(Error::Name(_))), "{name:?}");
        }
    }
}
