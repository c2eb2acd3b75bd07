//! Reads an access token of an external issuer: its header before the signature was checked, its claims after.
//!
//! Read once, strictly (no name twice, exact types), and judged by what is configured, never by what the token says of
//! itself: no algorithm, key or URL is taken from a header. Whatever is not an access token is refused: ID tokens,
//! refresh tokens and logout tokens are signed with the same keys.

use super::jwk;
use crate::config::{self, Algorithm, TokenType};
use crate::identity::json::{Object, object, optional_text, text, time};
use crate::identity::token::Parts;
use crate::identity::{Error, Subject, is_client_id, is_scope};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How far in the future `iat` and `nbf` may lie, since the issuer's clock is another one. `exp` gets nothing.
const LEEWAY_S: i64 = 30;
/// In bytes (OpenID Connect Core §2 for `sub`).
const LONGEST_SUBJECT: usize = 255;

/// Which key a token names, and how it was used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) alg: Algorithm,
    pub(super) kid: String,
}

/// What a token says, in our words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: Subject,
    pub(super) client: Arc<str>,
    pub(super) audience: Box<[String]>,
    pub(super) scopes: Arc<[String]>,
    pub(super) groups: Arc<[String]>,
    pub(super) expires_at: i64,
}

/// The `iss` a token claims to be of, not verified: to find out who could verify it, never to let anybody in.
pub(super) fn claimed_issuer(token: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Claimed {
        iss: String,
    }
    let payload = URL_SAFE_NO_PAD.decode(Parts::of(token).ok()?.payload).ok()?;
    serde_json::from_slice::<Claimed>(&payload).ok().map(|claimed| claimed.iss)
}

/// Reads a header, and holds it against what is configured.
pub(super) fn header(part: &str, settings: &config::Issuer) -> Result<Header, Error> {
    let header = object(part)?;
    let typ = optional_text(&header, "typ")?;
    let is_access_token = typ.is_some_and(is_at_jwt);
    let is_fitting = |wanted: &TokenType| match wanted {
        TokenType::AccessToken => is_access_token,
        TokenType::Jwt => typ.is_some_and(|typ| typ.eq_ignore_ascii_case("JWT")),
        TokenType::None => typ.is_none(),
    };
    if !settings.token_types.iter().any(is_fitting) {
        return Err(Error::Malformed("its typ is not in `token_types` of its issuer"));
    }
    // RFC 7515 §4.1.11 and RFC 7797: they change what the rest means.
    if header.contains_key("crit") || header.contains_key("b64") {
        return Err(Error::Malformed("an extension we do not know"));
    }
    let alg = optional_text(&header, "alg")?.and_then(jwk::algorithm);
    let alg = alg.filter(|alg| settings.algorithms.contains(alg));
    let alg = alg.ok_or(Error::Malformed("its alg is not in `algorithms` of its issuer"))?;
    let kid = optional_text(&header, "kid")?.ok_or(Error::Malformed("no kid"))?;
    Ok(Header { alg, kid: kid.to_owned() })
}

/// The signature's bytes, which have one spelling only: else a copy would be another token.
pub(super) fn signature(part: &str) -> Result<Vec<u8>, Error> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Error::Malformed("its signature is not base64url"))
}

/// Reads the claims, and holds them against what is configured and the time.
pub(super) fn claims(part: &str, settings: &config::Issuer, now: i64) -> Result<Claims, Error> {
    let payload = object(part)?;
    if text(&payload, "iss")? != settings.issuer {
        return Err(Error::WrongIssuer);
    }
    let expires_at = check_times(&payload, now)?;
    check_kind(&payload)?;
    text(&payload, "sub")?;
    let client: Arc<str> = client(&payload)?.into();
    if settings.clients.as_ref().is_some_and(|known| !known.iter().any(|it| **it == *client)) {
        return Err(Error::Client(client));
    }
    let subject = subject(&payload, settings, &client)?;
    Ok(Claims {
        subject,
        audience: audience(&payload)?,
        scopes: mapped(&scopes(&payload)?, &settings.scopes),
        groups: mapped(&groups(&payload, &settings.groups_claim)?, &settings.groups),
        client,
        expires_at,
    })
}

/// `exp` must be there and not over; the others must not lie ahead where they are there (RFC 7519 §4.1).
fn check_times(payload: &Object, now: i64) -> Result<i64, Error> {
    let expires_at = time(payload, "exp")?.ok_or(Error::Malformed("no exp"))?;
    if now >= expires_at {
        return Err(Error::Expired);
    }
    let latest = now.saturating_add(LEEWAY_S);
    for name in ["nbf", "iat"] {
        if time(payload, name)?.is_some_and(|at| at > latest) {
            return Err(Error::NotYetValid);
        }
    }
    Ok(expires_at)
}

/// What has the form of an access token and is none. Keycloak says the kind in a claim `typ`; other issuers have to be
/// told by claims that only ID tokens (OpenID Connect Core §2, §3.3.2.11) and logout tokens (Back-Channel Logout §2.4) have.
fn check_kind(payload: &Object) -> Result<(), Error> {
    match payload.get("typ") {
        None => {
            if ["nonce", "at_hash", "c_hash", "s_hash", "events"].iter().any(|name| payload.contains_key(*name)) {
                return Err(Error::Malformed("an ID or logout token, not an access token"));
            }
        }
        Some(Value::String(typ)) if typ.eq_ignore_ascii_case("Bearer") || is_at_jwt(typ) => {}
        Some(_) => return Err(Error::Malformed("its claim typ is not that of an access token")),
    }
    // RFC 7800: only who proves to have a key may use it (RFC 9449 §7.1, RFC 8705 §3). We ask for no proof.
    if payload.contains_key("cnf") {
        return Err(Error::Malformed("bound to a key, so it is no bearer token"));
    }
    Ok(())
}

fn is_at_jwt(typ: &str) -> bool {
    typ.eq_ignore_ascii_case("at+jwt") || typ.eq_ignore_ascii_case("application/at+jwt")
}

/// RFC 9068 §2.2 names it `client_id`; OpenID providers write `azp`, Okta `cid`, Microsoft's older tokens `appid`.
/// ID tokens of a plain login have none of them.
fn client(payload: &Object) -> Result<&str, Error> {
    for name in ["client_id", "azp", "cid", "appid"] {
        if let Some(client) = optional_text(payload, name)? {
            return Some(client).filter(|it| is_client_id(it)).ok_or(Error::Malformed("its client is no client id"));
        }
    }
    Err(Error::Malformed("no client_id, azp, cid or appid"))
}

/// A machine's own token names the client as its subject (RFC 9068 §5); it is not the person of that name.
fn subject(payload: &Object, settings: &config::Issuer, client: &str) -> Result<Subject, Error> {
    let name = found(payload, &settings.subject_claim).and_then(Value::as_str);
    let is_fit = |name: &&str| (1..=LONGEST_SUBJECT).contains(&name.len()) && !name.chars().any(char::is_control);
    let name = name.filter(is_fit).ok_or(Error::Malformed("no usable subject"))?;
    let is_machine = name == client || optional_text(payload, "sub")? == Some(client);
    Ok(if is_machine { Subject::Client(name.into()) } else { Subject::User(name.into()) })
}

/// One text or a list of them (RFC 7519 §4.1.3).
fn audience(payload: &Object) -> Result<Box<[String]>, Error> {
    let audience = payload.get("aud").ok_or(Error::WrongAudience)?;
    texts(audience, false).map(Vec::into_boxed_slice).ok_or(Error::Malformed("aud"))
}

/// `scope` (RFC 9068 §2.2.3), or `scp` as Microsoft and Okta have it: a text with spaces, or a list.
fn scopes(payload: &Object) -> Result<Vec<String>, Error> {
    let Some(value) = payload.get("scope").or_else(|| payload.get("scp")) else {
        return Ok(Vec::new());
    };
    let scopes = texts(value, true).ok_or(Error::Malformed("scope"))?;
    if scopes.iter().all(|scope| is_scope(scope)) { Ok(scopes) } else { Err(Error::Malformed("scope")) }
}

/// A list, or one text. Anything else is refused rather than taken for no groups: rules deny by group as well.
fn groups(payload: &Object, claim: &str) -> Result<Vec<String>, Error> {
    match found(payload, claim) {
        Some(value) => texts(value, false).ok_or(Error::Malformed("its groups are not a list of texts")),
        // Microsoft leaves the list out when it is long, and says where it could be asked for.
        None if payload.contains_key("hasgroups") || is_elsewhere(payload, claim) => {
            Err(Error::Malformed("too many groups for a token, so its issuer left them out"))
        }
        None => Ok(Vec::new()),
    }
}

/// OpenID Connect Core §5.6.2.
fn is_elsewhere(payload: &Object, claim: &str) -> bool {
    payload.get("_claim_names").is_some_and(|names| names.get(claim).is_some())
}

/// A claim by its name, or by a JSON Pointer. Names may hold anything else, dots and colons too.
fn found<'a>(payload: &'a Object, claim: &str) -> Option<&'a Value> {
    let Some(pointer) = claim.strip_prefix('/') else {
        return payload.get(claim);
    };
    let mut tokens = pointer.split('/').map(|token| token.replace("~1", "/").replace("~0", "~"));
    let first = payload.get(&tokens.next()?)?;
    tokens.try_fold(first, |value, token| value.as_object()?.get(&token))
}

/// Only what is written counts, under the name that is written.
fn mapped(theirs: &[String], names: &std::collections::BTreeMap<String, String>) -> Arc<[String]> {
    let ours: BTreeSet<&String> = theirs.iter().filter_map(|name| names.get(name)).collect();
    ours.into_iter().cloned().collect()
}

// === values ===

/// A list of texts or one text, which may be several with spaces between.
fn texts(value: &Value, is_split: bool) -> Option<Vec<String>> {
    match value {
        Value::String(text) if is_split => {
            Some(text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect())
        }
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(list) => list.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
