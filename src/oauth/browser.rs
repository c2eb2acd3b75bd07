//! What a browser keeps for us: a session of a person who is logged in, and before that a mark that says which browser it is.
//!
//! Over HTTPS the cookies have the prefix `__Host-` (RFC 6265bis §4.1.3.2): only this host sets them, for all of it. Plain
//! HTTP is for loopback, where not every browser keeps such a cookie.

use super::Shared;
use super::signing::{Purpose, Signing};
use crate::id;
use crate::identity::Person;
use crate::secret::Secret;
use crate::snapshot::Snapshot;
use crate::store::{self, BrowserSession};
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use std::sync::Arc;

/// A session that is not used for this long is over.
const IDLE_MS: i64 = 60 * 60 * 1000;
/// A session is over after this long.
const LONGEST_MS: i64 = 12 * 60 * 60 * 1000;
/// How long a link for a browser works.
const LINK_MS: i64 = 15 * 60 * 1000;
/// A browser is remembered for this long, in seconds: it is told apart from strangers when a password is tried.
const DEVICE_S: i64 = 365 * 24 * 60 * 60;

/// How long a browser keeps its mark, in seconds: longer than any login form is good for.
const MARK_S: i64 = 24 * 60 * 60;
/// Marks that are looked at.
const MAX_MARKS: usize = 16;

const SESSION: &str = "portcullis-session";
const BROWSER: &str = "portcullis-browser";
const DEVICE: &str = "portcullis-device";

/// A person and the session they are in.
#[derive(Clone, Debug)]
pub(super) struct LoggedIn {
    /// Who.
    pub(super) person: Person,
    /// Where.
    pub(super) session: BrowserSession,
}

/// A browser, known again by cookies that say nothing about anybody. It has one, or a few where several login pages were
/// opened at the same moment: each has a name of its own, so that the last one does not take the place of the others.
#[derive(Clone, Debug)]
pub(super) struct Browser {
    /// The end of each cookie's name, and its value.
    marks: Vec<(String, String)>,
    /// Whether it has to be set.
    is_new: bool,
}

// === sessions ===

/// Who is logged in with this browser.
///
/// # Errors
/// The store's: nobody counts as logged in then.
pub(super) async fn current(
    shared: &Shared,
    snapshot: &Snapshot,
    headers: &HeaderMap,
) -> Result<Option<LoggedIn>, store::Error> {
    let Some(cookie) = cookie(snapshot, headers, SESSION) else {
        return Ok(None);
    };
    let Some(session) = shared.store.browser_session(sha256(cookie.as_bytes())).await? else {
        return Ok(None);
    };
    let now_ms = shared.clock.unix_ms();
    let is_over = now_ms.saturating_sub(session.seen_at_ms) >= IDLE_MS
        || now_ms.saturating_sub(session.created_at_ms) >= LONGEST_MS;
    let person = snapshot.users.get(&session.user).filter(|person| person.password_mark == session.password_mark);
    let Some(person) = person.filter(|_| !is_over) else {
        return Ok(None);
    };
    shared.store.browser_session_seen(&session, now_ms).await?;
    Ok(Some(LoggedIn { person: person.clone(), session }))
}

/// Logs a person in: a new session, never one that was there before (RFC 9700: fixation). Gives the cookies to set.
///
/// # Errors
/// The store's: nobody is logged in then.
pub(super) async fn log_in(
    shared: &Shared,
    snapshot: &Snapshot,
    person: &Person,
) -> Result<(LoggedIn, [HeaderValue; 2]), store::Error> {
    let secret = URL_SAFE_NO_PAD.encode(id::random_bytes::<32>());
    let now_ms = shared.clock.unix_ms();
    let session = BrowserSession {
        digest: sha256(secret.as_bytes()),
        user: Arc::clone(&person.name),
        password_mark: Arc::clone(&person.password_mark),
        created_at_ms: now_ms,
        seen_at_ms: now_ms,
    };
    shared.store.insert_browser_session(session.clone()).await?;
    let cookies = [
        set_cookie(snapshot, SESSION, &secret, None),
        set_cookie(snapshot, DEVICE, &device_token(shared, &person.name), Some(DEVICE_S)),
    ];
    Ok((LoggedIn { person: person.clone(), session }, cookies))
}

/// The cookie that ends a session in the browser.
pub(super) fn forget(snapshot: &Snapshot) -> HeaderValue {
    set_cookie(snapshot, SESSION, "", Some(0))
}

/// Proves that a form is of this session.
pub(super) fn csrf(shared: &Shared, session: &BrowserSession) -> String {
    shared.signing.mark(Purpose::Csrf, &session.digest)
}

/// Whether it does.
pub(super) fn is_csrf(shared: &Shared, session: &BrowserSession, sent: Option<&str>) -> bool {
    sent.is_some_and(|sent| shared.signing.is_mark(Purpose::Csrf, &session.digest, sent))
}

// === devices ===

/// A text that only a browser has with which `name` logged in before.
fn device_token(shared: &Shared, name: &str) -> String {
    shared.signing.sign(Purpose::Device, format!("{}\n{name}", id::unguessable("")).as_bytes())
}

/// A login link for a browser that `name` has not used before, where strangers keep guessing their password: with it, the
/// browser is counted apart. It lets nobody in; whoever makes it has asked for the password. Good for a quarter of an hour.
pub fn link(signing: &Signing, public_url: &str, name: &str, now_ms: i64) -> Secret<String> {
    let until_ms = now_ms.saturating_add(LINK_MS);
    let token = signing.sign(Purpose::BrowserLink, format!("{until_ms}\n{name}").as_bytes());
    Secret::new(format!("{public_url}/login?browser={token}"))
}

/// The cookie that such a link brings.
pub(super) fn cookie_of_link(shared: &Shared, snapshot: &Snapshot, token: &str) -> Option<HeaderValue> {
    let opened = shared.signing.open(Purpose::BrowserLink, token)?;
    let (until_ms, name) = std::str::from_utf8(&opened).ok()?.split_once('\n')?;
    let is_good = shared.clock.unix_ms() < until_ms.parse().ok()?;
    is_good.then(|| set_cookie(snapshot, DEVICE, &device_token(shared, name), Some(DEVICE_S)))
}

/// The mark of this browser, if `name` has logged in with it before. Its failures are counted apart, so that strangers who
/// try passwords for a name do not keep its owner out.
pub(super) fn device_of(shared: &Shared, snapshot: &Snapshot, headers: &HeaderMap, name: &str) -> Option<String> {
    let opened = shared.signing.open(Purpose::Device, cookie(snapshot, headers, DEVICE)?)?;
    let (id, owner) = std::str::from_utf8(&opened).ok()?.split_once('\n')?;
    (owner == name).then(|| id.to_owned())
}

// === impl Browser ===

impl Browser {
    /// The browser that sent these headers; one that has no mark yet gets one.
    pub(super) fn of(snapshot: &Snapshot, headers: &HeaderMap) -> Browser {
        let prefix = format!("{}-", name(snapshot, BROWSER));
        let mark = |(name, value): (&str, &str)| Some((name.strip_prefix(&prefix)?.to_owned(), value.to_owned()));
        let kept: Vec<(String, String)> =
            pairs(headers).filter_map(mark).filter(|(_, value)| value.len() == 22).take(MAX_MARKS).collect();
        let is_new = kept.is_empty();
        let marks = if is_new { vec![(id::unguessable("")[..8].to_owned(), id::unguessable(""))] } else { kept };
        Browser { marks, is_new }
    }

    /// What a signed form says of the browser it was made for.
    pub(super) fn digest(&self) -> String {
        self.marks.first().map(digest_of).expect("a browser has a mark")
    }

    /// Whether a form was made for this browser.
    pub(super) fn is(&self, digest: &str) -> bool {
        self.marks.iter().any(|mark| digest_of(mark) == digest)
    }

    /// The cookie to set, where there is none.
    pub(super) fn to_set(&self, snapshot: &Snapshot) -> Option<HeaderValue> {
        let (end, value) = self.marks.first().filter(|_| self.is_new)?;
        Some(set_cookie(snapshot, &format!("{BROWSER}-{end}"), value, Some(MARK_S)))
    }
}

fn digest_of((end, value): &(String, String)) -> String {
    URL_SAFE_NO_PAD.encode(sha256(format!("{end} {value}").as_bytes()))
}

// === cookies ===

fn name(snapshot: &Snapshot, name: &str) -> String {
    if is_secure(snapshot) { format!("__Host-{name}") } else { name.to_owned() }
}

fn is_secure(snapshot: &Snapshot) -> bool {
    snapshot.public_url.starts_with("https://")
}

/// `SameSite=Lax`: a client sends the person here by a link, and their session has to come along; no other site's form
/// brings it.
fn set_cookie(snapshot: &Snapshot, base: &str, value: &str, max_age_s: Option<i64>) -> HeaderValue {
    let name = name(snapshot, base);
    let secure = if is_secure(snapshot) { "; Secure" } else { "" };
    let age = max_age_s.map(|age| format!("; Max-Age={age}")).unwrap_or_default();
    HeaderValue::try_from(format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{age}"))
        .expect("base64url is visible ASCII")
}

/// The value of a cookie that is there once.
fn cookie<'a>(snapshot: &Snapshot, headers: &'a HeaderMap, base: &str) -> Option<&'a str> {
    let name = name(snapshot, base);
    let mut values = pairs(headers).filter(|(found, _)| *found == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Some(value),
        _ => None,
    }
}

/// Every cookie that was sent.
fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}
