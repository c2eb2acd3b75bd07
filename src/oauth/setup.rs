//! `/setup`: the first person of a new gateway, by a link that is printed once where the gateway starts.
//!
//! The link works for a quarter of an hour and for one person, and never once there is anybody. It lives in this process
//! only: who restarts the gateway gets another one.

use super::{Shared, error_pages, redirect};
use crate::browser::Form;
use crate::browser::Submitted;
use crate::clock::Clock;
use crate::config;
use crate::id;
use crate::identity::{self, ADMINS, PasswordError, PasswordHash, Person, UsersError, UsersFile};
use crate::pages;
use crate::secret::Secret;
use crate::snapshot::Snapshot;
use crate::web::Caller;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use std::time::Duration;

/// How long the link works.
const VALID_MS: i64 = 15 * 60 * 1000;
/// How long a new person may take to come into force: the file is looked at every second or so.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(10);
/// A shorter password of the one who may do everything is no password.
const SHORTEST_PASSWORD: usize = 12;

/// The link's secret, as far as this process needs to know it.
#[derive(Debug)]
pub(super) struct Setup {
    digest: [u8; 32],
    until_ms: i64,
}

// === impl Setup ===

impl Setup {
    /// A new link, and the secret that goes into it.
    pub(super) fn new(clock: &Clock) -> (Setup, Secret<String>) {
        let secret = URL_SAFE_NO_PAD.encode(id::random_bytes::<32>());
        let setup = Setup { digest: sha256(&secret), until_ms: clock.unix_ms().saturating_add(VALID_MS) };
        (setup, Secret::new(secret))
    }

    fn is_open(&self, snapshot: &Snapshot, clock: &Clock, sent: &str) -> bool {
        snapshot.users.is_empty() && clock.unix_ms() < self.until_ms && sha256(sent) == self.digest
    }
}

fn sha256(text: &str) -> [u8; 32] {
    digest::digest(&digest::SHA256, text.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Why the first person was not made.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("A name has 1 to 64 characters: small letters, digits, and . _ @ -")]
    Name,
    #[error("The two passwords differ.")]
    Again,
    #[error("Take a password of at least 12 characters. A few words you remember are better than signs you do not.")]
    Short,
    #[error("A password has at most {} bytes.", identity::LONGEST_PASSWORD)]
    Long,
    #[error("Somebody else was first.")]
    NotFirst,
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error("The new person is written, but not in force yet. Log in in a moment.")]
    NotInForce,
}

/// `GET /setup?link=…`.
pub(super) async fn get(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Response {
    let snapshot = shared.snapshots.load_full();
    let query = Form::parse(query.unwrap_or_default().as_bytes()).unwrap_or_default();
    let link = query.get("link").unwrap_or_default();
    if !is_open(&shared, &snapshot, link) {
        return closed(&caller);
    }
    let page = pages::Setup { link: link.to_owned(), username: String::new(), problem: None };
    pages::answer(StatusCode::OK, &page, None)
}

fn is_open(shared: &Shared, snapshot: &Snapshot, link: &str) -> bool {
    shared.setup.as_ref().is_some_and(|setup| setup.is_open(snapshot, &shared.clock, link))
}

fn closed(caller: &Caller) -> Response {
    let text = "This link is not, or no longer, valid. It works for 15 minutes after the gateway has started, and only \
                while there is nobody yet. Restart the gateway for a new one, or run: portcullis user add NAME";
    error_pages::error(caller, StatusCode::NOT_FOUND, "No such link", &[text], Vec::new())
}

/// `POST /setup`.
pub(super) async fn post(State(shared): State<Shared>, Submitted { caller, form, .. }: Submitted) -> Response {
    let snapshot = shared.snapshots.load_full();
    let link = form.get("link").unwrap_or_default();
    if !is_open(&shared, &snapshot, link) || !shared.plane.may_try(caller.address) {
        return closed(&caller);
    }
    let name = form.get("username").unwrap_or_default();
    let made = make(&snapshot, name, form.get("password"), form.get("again")).await;
    if made.is_ok() {
        shared.plane.user_added(&snapshot, &caller, name, "the first admin, by the set-up link");
    }
    let person = match made {
        Ok(()) => in_force(&shared, name).await.ok_or(Refused::NotInForce),
        Err(refused) => Err(refused),
    };
    let person = match person {
        Ok(person) => person,
        Err(refused) => {
            let status = match refused {
                Refused::Users(_) | Refused::Password(_) | Refused::NotInForce => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            let (link, username) = (link.to_owned(), name.to_owned());
            return pages::answer(status, &pages::Setup { link, username, problem: Some(refused.to_string()) }, None);
        }
    };
    shared.plane.login_succeeded(&snapshot, &caller, &person.name);
    match shared.plane.log_in(&snapshot, &person).await {
        Ok((_, cookies)) => {
            let mut response = redirect::within("/grants");
            cookies.into_iter().for_each(|cookie| _ = response.headers_mut().append(header::SET_COOKIE, cookie));
            response
        }
        Err(error) => error_pages::unavailable(&caller, &error),
    }
}

/// Writes the first admin into `users.yaml`.
async fn make(snapshot: &Snapshot, name: &str, password: Option<&str>, again: Option<&str>) -> Result<(), Refused> {
    if !identity::is_user_name(name) {
        return Err(Refused::Name);
    }
    let password = password.unwrap_or_default();
    if again != Some(password) && !(again.is_none() && password.is_empty()) {
        return Err(Refused::Again);
    }
    if password.chars().count() < SHORTEST_PASSWORD {
        return Err(Refused::Short);
    }
    if password.len() > identity::LONGEST_PASSWORD {
        return Err(Refused::Long);
    }
    let password = Secret::new(password.to_owned());
    let hash = tokio::task::spawn_blocking(move || PasswordHash::of(&password));
    let hash = hash.await.map_err(|_| Refused::NotFirst)??;
    let user = config::User {
        name: name.to_owned(),
        password_hash: hash.to_phc(),
        groups: vec![ADMINS.to_owned()],
        also: Vec::new(),
    };
    let (data_dir, identity) = (snapshot.data_dir.clone(), snapshot.config.identity.clone());
    let written = tokio::task::spawn_blocking(move || {
        let file = UsersFile::open(&data_dir)?;
        // Asked again now that nobody else can write: two people must not both be the first.
        if !file.everybody(&identity)?.is_empty() {
            return Err(Refused::NotFirst);
        }
        Ok(file.add(user, &identity)?)
    });
    written.await.map_err(|_| Refused::NotFirst)?
}

/// The person, once the configuration in force has them.
async fn in_force(shared: &Shared, name: &str) -> Option<Person> {
    let wait = async {
        loop {
            if let Some(person) = shared.snapshots.load().users.get(name) {
                return person.clone();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(IN_FORCE_WITHIN, wait).await.ok()
}
