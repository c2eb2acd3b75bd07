//! Issuers that are not ours: whose tokens they are, whether they are good, and what of them counts here.
//!
//! A token is checked in full once and then remembered by its SHA-256 with the key that signed it; every further request
//! checks the time, the audience and that the key still counts. What is remembered belongs to an [`Issuer`], and that to
//! a snapshot: with a changed mapping, or without the issuer, nothing of it is left. The keys stay as long as the place
//! they come from does.
//!
//! Read on in `token` (what a token must be), `keys` (when keys are fetched), `discovery` and `jwk` (where from, and
//! which of them can be used).

mod discovery;
pub(super) mod jwk;
mod keys;
mod token;

pub use keys::Fetching;

use super::cache::{Cache, sha256};
use super::token::{LONGEST_TOKEN, Parts};
use super::{Error, Subject};
use crate::config::{self, Path, Problem};
use crate::fetch::Authorities;
use discovery::Place;
use keys::Keys;
use std::sync::Arc;
use std::time::Duration;
use token::Claims;
use tokio::time::Instant;
use url::Url;

/// How often it is looked whether keys are to be fetched.
const TICK: Duration = Duration::from_millis(200);
/// Remembered tokens that have expired are dropped this often.
const SWEEP: Duration = Duration::from_secs(60);

/// Every external issuer.
#[derive(Debug, Default)]
pub struct Issuers(Vec<Arc<Issuer>>);

/// One external issuer.
#[derive(Debug)]
pub struct Issuer {
    /// Its name: the `iss` of its tokens.
    pub name: Arc<str>,
    settings: config::Issuer,
    /// The certificates of `tls.ca`, as they stood in the file.
    ca: Option<Vec<u8>>,
    keys: Arc<Keys>,
    cache: Cache<Remembered>,
    capacity: usize,
}

/// What a token of an external issuer stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asserted {
    /// Who vouches for it.
    pub issuer: Arc<str>,
    /// On whose behalf, by the issuer's name for them.
    pub subject: Subject,
    /// The OAuth client it was given to, by the issuer's name for it.
    pub client: Arc<str>,
    /// What it may be used for, in our scopes.
    pub scopes: Arc<[String]>,
    /// The subject's groups, in ours.
    pub groups: Arc<[String]>,
    /// When the token ends, seconds since the Unix epoch.
    pub expires_at: i64,
}

#[derive(Debug)]
struct Remembered {
    asserted: Arc<Asserted>,
    audience: Box<[String]>,
    expires_at: i64,
    key: Arc<jwk::Key>,
}

// === impl Issuers ===

impl Issuers {
    /// Compiles what was configured. An issuer whose settings did not change since `previous` is carried over with all it
    /// remembers; one whose keys come from where they came from, with those.
    ///
    /// # Errors
    /// Every file that cannot be used.
    pub fn build(loaded: &config::Loaded, previous: Option<&Issuers>) -> Result<Issuers, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut list = Vec::new();
        let before = previous.map(|issuers| issuers.0.as_slice()).unwrap_or_default();
        let capacity = loaded.config.limits.tokens as usize;
        for (at, settings) in loaded.config.identity.issuers.iter().enumerate() {
            let path = Path::root().key("identity").key("issuers").index(at);
            match Issuer::build(settings, capacity, loaded, &path, before) {
                Ok(issuer) => list.push(issuer),
                Err(more) => problems.extend(more),
            }
        }
        if problems.is_empty() { Ok(Issuers(list)) } else { Err(problems) }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Issuer>> {
        self.0.iter()
    }

    /// The issuer that a token claims to be of; `None` where it is none of these. Nothing is verified.
    pub fn claimed_by(&self, token: &str) -> Option<&Arc<Issuer>> {
        if self.0.is_empty() {
            return None;
        }
        let claimed = token::claimed_issuer(token)?;
        self.0.iter().find(|issuer| *issuer.name == *claimed)
    }

    /// The issuer of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Issuer>> {
        self.0.iter().find(|issuer| *issuer.name == *name)
    }

    /// Drops what has expired. What is remembered is bounded in any case.
    fn sweep(&self, now: i64) {
        for issuer in &self.0 {
            issuer.cache.retain(|remembered| now < remembered.expires_at);
        }
    }
}

/// Keeps the keys of all issuers in force fresh, for as long as it is polled; run as a task that ends with the server.
pub async fn keep_fresh(in_force: impl Fn() -> Arc<Issuers>, with: Fetching) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut swept_at = Instant::now();
    loop {
        tick.tick().await;
        let issuers = in_force();
        for issuer in &issuers.0 {
            issuer.keys.fetch_if_due(&with);
        }
        if swept_at.elapsed() >= SWEEP {
            swept_at = Instant::now();
            issuers.sweep(with.clock.unix_seconds());
        }
    }
}

/// The file of `tls.ca`, as it stands and as it is used.
fn read_ca(settings: &config::Issuer, loaded: &config::Loaded) -> Result<Option<(Vec<u8>, Authorities)>, String> {
    let Some(file) = &settings.tls.ca else {
        return Ok(None);
    };
    let pem = std::fs::read(loaded.resolve(file)).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let authorities = Authorities::of_pem(&pem)?;
    Ok(Some((pem, authorities)))
}

// === impl Issuer ===

impl Issuer {
    fn build(
        settings: &config::Issuer,
        capacity: usize,
        loaded: &config::Loaded,
        path: &Path,
        before: &[Arc<Issuer>],
    ) -> Result<Arc<Issuer>, Vec<Problem>> {
        let ca = read_ca(settings, loaded).map_err(|why| vec![Problem::new(path.key("tls").key("ca"), why)])?;
        let (ca, authorities) = ca.unzip();
        let parsed = settings.jwks_url.as_deref().map(Url::parse).transpose();
        let jwks_url = parsed.map_err(|why| vec![Problem::new(path.key("jwks_url"), format!("not a URL: {why}"))])?;
        let same = |it: &&Arc<Issuer>| *it.name == *settings.issuer && it.ca == ca;
        if let Some(known) = before.iter().find(|it| same(it) && it.settings == *settings && it.capacity == capacity) {
            return Ok(Arc::clone(known));
        }
        let kept = before.iter().find(|it| same(it) && it.settings.jwks_url == settings.jwks_url);
        let keys = match kept {
            Some(kept) => Arc::clone(&kept.keys),
            None => Arc::new(Keys::new(Place { issuer: settings.issuer.clone(), jwks_url, authorities })),
        };
        Ok(Arc::new(Issuer {
            name: settings.issuer.as_str().into(),
            settings: settings.clone(),
            ca,
            keys,
            cache: Cache::new(capacity),
            capacity,
        }))
    }

    /// What `bearer` stands for at the route whose resource URL is `resource`.
    ///
    /// # Errors
    /// Why it is not accepted there now.
    pub async fn verify(&self, bearer: &str, resource: &str, with: &Fetching) -> Result<Arc<Asserted>, Error> {
        if bearer.len() > LONGEST_TOKEN {
            return Err(Error::Malformed("too long"));
        }
        let hash = sha256(bearer.as_bytes());
        let known = self.cache.get(&hash).filter(|known| self.keys.has(&known.key));
        let known = match known {
            Some(known) => known,
            None => {
                let verified = Arc::new(self.verify_anew(bearer, with).await?);
                self.cache.insert(hash, Arc::clone(&verified));
                verified
            }
        };
        // Also for what is remembered: the same token may come to another route, and time passes.
        if with.clock.unix_seconds() >= known.expires_at {
            self.cache.remove(&hash);
            return Err(Error::Expired);
        }
        if !self.is_meant(&known.audience, resource) {
            return Err(Error::WrongAudience);
        }
        Ok(Arc::clone(&known.asserted))
    }

    async fn verify_anew(&self, bearer: &str, with: &Fetching) -> Result<Remembered, Error> {
        let parts = Parts::of(bearer)?;
        let header = token::header(parts.header, &self.settings)?;
        let signature = token::signature(parts.signature)?;
        // Before the key: what is wrong in any case must not make us look for one.
        let claims = token::claims(parts.payload, &self.settings, with.clock.unix_seconds())?;
        let mut keys = self.keys.find(&header.kid);
        if keys.is_empty() && self.keys.ask_for_unknown(with).await {
            keys = self.keys.find(&header.kid);
        }
        if keys.is_empty() && !self.keys.is_known() {
            return Err(Error::NoKeys(Arc::clone(&self.name)));
        }
        if keys.is_empty() {
            return Err(Error::UnknownKey);
        }
        let message = parts.message.as_bytes();
        // A key that is not for this algorithm has signed nothing by it.
        let signer = keys.into_iter().find(|key| key.has_signed(header.alg, message, &signature));
        Ok(self.remembered(claims, signer.ok_or(Error::Signature)?))
    }

    fn remembered(&self, claims: Claims, key: Arc<jwk::Key>) -> Remembered {
        let Claims { subject, client, audience, scopes, groups, expires_at } = claims;
        let asserted =
            Arc::new(Asserted { issuer: Arc::clone(&self.name), subject, client, scopes, groups, expires_at });
        Remembered { asserted, audience, expires_at, key }
    }

    /// Exact, whichever of the two it is: a prefix, or another spelling, is another resource.
    fn is_meant(&self, audience: &[String], resource: &str) -> bool {
        match &self.settings.audience {
            None => audience.iter().any(|it| it == resource),
            Some(wanted) => audience.iter().any(|it| wanted.contains(it)),
        }
    }

    /// The scopes that clients are told to ask it for.
    pub fn scopes_supported(&self) -> Vec<String> {
        match &self.settings.scopes_supported {
            Some(scopes) => scopes.clone(),
            None => self.settings.scopes.keys().cloned().collect(),
        }
    }

    /// What a client asks this issuer for to get one of our scopes; `None` where nothing is mapped to it.
    pub fn name_of_scope(&self, ours: &str) -> Option<String> {
        let theirs = self.settings.scopes.iter().find(|(_, it)| *it == ours)?.0;
        // Microsoft's tokens carry `use`, but it is `api://…/use` that has to be asked for.
        let is_asked_for =
            |it: &&String| it.strip_suffix(theirs.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        let asked_for = self.settings.scopes_supported.iter().flatten().find(is_asked_for);
        Some(asked_for.unwrap_or(theirs).clone())
    }
}
