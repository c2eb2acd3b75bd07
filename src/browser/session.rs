//! What a browser keeps for us: a session of a person who is logged in, and before that a mark that says which browser it is.
//!
//! Over HTTPS the cookies have the prefix `__Host-` (RFC 6265bis §4.1.3.2): only this host sets them, for all of it. Plain
//! HTTP is for loopback, where not every browser keeps such a cookie. Cookies ignore ports, so the cookies of two planes
//! have different names, and the value of one means nothing under the name of the other.

use super::{Kind, Plane, Purpose, Signing};
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

/// How long a link for a browser works.
const LINK_MS: i64 = 15 * 60 * 1000;
/// A browser is remembered for this long, in seconds: it is told apart from strangers when a password is tried.
const DEVICE_S: i64 = 365 * 24 * 60 * 60;

/// How long a browser keeps its mark, in seconds: longer than any login form is good for.
const MARK_S: i64 = 24 * 60 * 60;
/// Marks that are looked at.
const MAX_MARKS: usize = 16;

/// A person and the session they are in.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// Who.
    pub person: Person,
    /// Where.
    pub session: BrowserSession,
}

/// A browser, known again by cookies that say nothing about anybody. It has one, or a few where several login pages were
/// opened at the same moment: each has a name of its own, so that the last one does not take the place of the others.
#[derive(Clone, Debug)]
pub struct Browser {
    /// The end of each cookie's name, and its value.
    marks: Vec<(String, String)>,
    /// Whether it has to be set.
    is_new: bool,
}

// === sessions ===

impl Plane {
    /// Who is logged in with this browser. Whoever asks uses the session, which keeps it alive.
    ///
    /// # Errors
    /// The store's: nobody counts as logged in then.
    pub async fn current(&self, snapshot: &Snapshot, headers: &HeaderMap) -> Result<Option<LoggedIn>, store::Error> {
        let found = self.seen(snapshot, headers).await?;
        if let Some(LoggedIn { session, .. }) = &found {
            self.store.browser_session_seen(session, self.clock.unix_ms()).await?;
        }
        Ok(found)
    }

    /// The same without using it: for what a page does while nobody looks at it.
    ///
    /// # Errors
    /// The store's: nobody counts as logged in then.
    pub async fn seen(&self, snapshot: &Snapshot, headers: &HeaderMap) -> Result<Option<LoggedIn>, store::Error> {
        let Some(cookie) = self.cookie(snapshot, headers, self.kind.session) else {
            return Ok(None);
        };
        let Some(session) = self.store.browser_session(self.digest(cookie)).await? else {
            return Ok(None);
        };
        let now_ms = self.clock.unix_ms();
        let is_over = now_ms.saturating_sub(session.seen_at_ms) >= self.kind.idle_ms
            || now_ms.saturating_sub(session.created_at_ms) >= self.kind.longest_ms;
        let person = snapshot.users.get(&session.user).filter(|person| person.password_mark == session.password_mark);
        Ok(person.filter(|_| !is_over).cloned().map(|person| LoggedIn { person, session }))
    }

    /// Logs a person in: a new session, never one that was there before (RFC 9700: fixation). Gives the cookies to set.
    ///
    /// # Errors
    /// The store's: nobody is logged in then.
    pub async fn log_in(
        &self,
        snapshot: &Snapshot,
        person: &Person,
    ) -> Result<(LoggedIn, [HeaderValue; 2]), store::Error> {
        let secret = URL_SAFE_NO_PAD.encode(id::random_bytes::<32>());
        let now_ms = self.clock.unix_ms();
        let session = BrowserSession {
            digest: self.digest(&secret),
            user: Arc::clone(&person.name),
            password_mark: Arc::clone(&person.password_mark),
            created_at_ms: now_ms,
            seen_at_ms: now_ms,
        };
        self.store.insert_browser_session(session.clone()).await?;
        let cookies = [
            self.set_cookie(snapshot, self.kind.session, &secret, None),
            self.set_cookie(snapshot, self.kind.device, &self.device_token(&person.name), Some(DEVICE_S)),
        ];
        Ok((LoggedIn { person: person.clone(), session }, cookies))
    }

    /// A new session, and the one that the browser had before is over. Where it is of the same person it goes on instead:
    /// what waits in it in another tab is still theirs to answer.
    ///
    /// # Errors
    /// The store's: nobody is logged in then.
    pub async fn log_in_again(
        &self,
        snapshot: &Snapshot,
        headers: &HeaderMap,
        person: &Person,
    ) -> Result<(LoggedIn, Vec<HeaderValue>), store::Error> {
        let former = self.current(snapshot, headers).await?;
        if let Some(former) = &former {
            if former.person.name == person.name {
                return Ok((former.clone(), Vec::new()));
            }
            self.store.end_browser_session(former.session.digest).await?;
        }
        let (logged_in, cookies) = self.log_in(snapshot, person).await?;
        Ok((logged_in, cookies.into()))
    }

    /// The cookie that ends a session in the browser.
    pub fn forget(&self, snapshot: &Snapshot) -> HeaderValue {
        self.set_cookie(snapshot, self.kind.session, "", Some(0))
    }

    /// Proves that a form is of this session.
    pub fn csrf(&self, session: &BrowserSession) -> String {
        self.signing.mark(Purpose::Csrf, &session.digest)
    }

    /// Whether it does.
    pub fn is_csrf(&self, session: &BrowserSession, sent: Option<&str>) -> bool {
        sent.is_some_and(|sent| self.signing.is_mark(Purpose::Csrf, &session.digest, sent))
    }

    /// What the store knows a cookie by. The planes' cookies are different kinds of secrets: one of them, sent as the other,
    /// is none.
    fn digest(&self, cookie: &str) -> [u8; 32] {
        sha256(&[self.kind.session_domain, cookie.as_bytes()].concat())
    }

    // === devices ===

    /// A text that only a browser has with which `name` logged in before.
    fn device_token(&self, name: &str) -> String {
        self.signing.sign(Purpose::Device, format!("{}\n{name}", id::unguessable("")).as_bytes())
    }

    /// The cookie that a link for a browser brings (see [`link`]).
    pub fn cookie_of_link(&self, snapshot: &Snapshot, token: &str) -> Option<HeaderValue> {
        let opened = self.signing.open(Purpose::BrowserLink, token)?;
        let (until_ms, name) = std::str::from_utf8(&opened).ok()?.split_once('\n')?;
        let is_good = self.clock.unix_ms() < until_ms.parse().ok()?;
        is_good.then(|| self.set_cookie(snapshot, self.kind.device, &self.device_token(name), Some(DEVICE_S)))
    }

    /// The mark of this browser, if `name` has logged in with it before. Its failures are counted apart, so that strangers who
    /// try passwords for a name do not keep its owner out.
    pub(super) fn device_of(&self, snapshot: &Snapshot, headers: &HeaderMap, name: &str) -> Option<String> {
        let opened = self.signing.open(Purpose::Device, self.cookie(snapshot, headers, self.kind.device)?)?;
        let (id, owner) = std::str::from_utf8(&opened).ok()?.split_once('\n')?;
        (owner == name).then(|| id.to_owned())
    }

    // === cookies ===

    /// `SameSite=Lax`: a client, or a message about a held call, sends the person here by a link, and their session has to
    /// come along; no other site's form brings it.
    fn set_cookie(&self, snapshot: &Snapshot, base: &str, value: &str, max_age_s: Option<i64>) -> HeaderValue {
        let name = self.kind.cookie_name(snapshot, base);
        let secure = if self.kind.is_secure(snapshot) { "; Secure" } else { "" };
        let age = max_age_s.map(|age| format!("; Max-Age={age}")).unwrap_or_default();
        HeaderValue::try_from(format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}{age}"))
            .expect("base64url is visible ASCII")
    }

    /// The value of a cookie that is there once.
    fn cookie<'a>(&self, snapshot: &Snapshot, headers: &'a HeaderMap, base: &str) -> Option<&'a str> {
        let name = self.kind.cookie_name(snapshot, base);
        let mut values = pairs(headers).filter(|(found, _)| *found == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (Some(value), None) if !value.is_empty() => Some(value),
            _ => None,
        }
    }

    /// The browser that sent these headers; one that has no mark yet gets one.
    pub fn browser(&self, snapshot: &Snapshot, headers: &HeaderMap) -> Browser {
        let prefix = format!("{}-", self.kind.cookie_name(snapshot, self.kind.browser));
        let mark = |(name, value): (&str, &str)| Some((name.strip_prefix(&prefix)?.to_owned(), value.to_owned()));
        let kept: Vec<(String, String)> =
            pairs(headers).filter_map(mark).filter(|(_, value)| value.len() == 22).take(MAX_MARKS).collect();
        let is_new = kept.is_empty();
        let marks = if is_new { vec![(id::unguessable("")[..8].to_owned(), id::unguessable(""))] } else { kept };
        Browser { marks, is_new }
    }

    /// The cookie to set for a browser that has none.
    pub fn to_set(&self, snapshot: &Snapshot, browser: &Browser) -> Option<HeaderValue> {
        let (end, value) = browser.marks.first().filter(|_| browser.is_new)?;
        Some(self.set_cookie(snapshot, &format!("{}-{end}", self.kind.browser), value, Some(MARK_S)))
    }
}

/// A login link for a browser that `name` has not used before, where strangers keep guessing their password: with it, the
/// browser is counted apart. It lets nobody in; whoever makes it has asked for the password. Good for a quarter of an hour.
pub fn link(signing: &Signing, url: &str, name: &str, now_ms: i64) -> Secret<String> {
    let until_ms = now_ms.saturating_add(LINK_MS);
    let token = signing.sign(Purpose::BrowserLink, format!("{until_ms}\n{name}").as_bytes());
    Secret::new(format!("{url}/login?browser={token}"))
}

// === impl Kind ===

impl Kind {
    fn cookie_name(&self, snapshot: &Snapshot, name: &str) -> String {
        if self.is_secure(snapshot) { format!("__Host-{name}") } else { name.to_owned() }
    }

    fn is_secure(&self, snapshot: &Snapshot) -> bool {
        (self.url)(snapshot).starts_with("https://")
    }
}

// === impl Browser ===

impl Browser {
    /// What a signed form says of the browser it was made for.
    pub fn digest(&self) -> String {
        self.marks.first().map(digest_of).expect("a browser has a mark")
    }

    /// Whether a form was made for this browser.
    pub fn is(&self, digest: &str) -> bool {
        self.marks.iter().any(|mark| digest_of(mark) == digest)
    }
}

fn digest_of((end, value): &(String, String)) -> String {
    URL_SAFE_NO_PAD.encode(sha256(format!("{end} {value}").as_bytes()))
}

/// Every cookie that was sent.
fn pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}
