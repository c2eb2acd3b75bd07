//! Access tokens: JWTs as RFC 9068 has them, signed with ES256 and carrying the name of their grant.
//!
//! We read only what we write. Everything a JWT could say beyond that (other algorithms, keys by reference, critical
//! extensions) has been used to get past somebody's check, so it is refused or not looked at.
//! What stands in the store about the grant, and whether the resource fits the route, is `verifier`'s.

use super::{Error, Keys, KeysError, Subject, is_client_id};
use crate::id;
use crate::store::Grant;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned, de::IgnoredAny};
use std::sync::Arc;

/// In bytes. Ours have a few hundred; a longer one is refused before it is looked at.
pub const LONGEST_TOKEN: usize = 8 * 1024;

/// How far in the future `iat` and `nbf` may lie: the clocks of two replicas differ a little. `exp` gets nothing.
const LEEWAY_S: i64 = 5;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `iss`: this gateway.
    pub issuer: Arc<str>,
    /// `sub`: on whose behalf.
    pub subject: Subject,
    /// `aud`: the one resource it opens.
    pub resource: Arc<str>,
    /// `client_id`.
    pub client: Arc<str>,
    /// `scope`.
    pub scopes: Arc<[String]>,
    /// `iat`, seconds since the Unix epoch.
    pub issued_at: i64,
    /// `exp`, seconds since the Unix epoch.
    pub expires_at: i64,
    /// `grant`: the row that can be revoked.
    pub grant: Arc<str>,
}

#[derive(Serialize)]
struct WrittenHeader<'a> {
    typ: &'static str,
    alg: &'static str,
    kid: &'a str,
}

/// What we read of a header. `jwk`, `jku`, `x5u` and `x5c` are not here: a token does not choose the key it is checked with.
#[derive(Deserialize)]
struct Header {
    typ: String,
    alg: String,
    kid: String,
    #[serde(default, deserialize_with = "present")]
    crit: Option<IgnoredAny>,
    #[serde(default, deserialize_with = "present")]
    b64: Option<IgnoredAny>,
}

/// The claims as they stand in the token. Types are exact: a number in quotes is not a number.
#[derive(Serialize, Deserialize)]
struct Payload {
    iss: String,
    sub: String,
    aud: String,
    client_id: String,
    scope: String,
    iat: i64,
    exp: i64,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    nbf: Option<i64>,
    jti: String,
    grant: String,
}

impl Claims {
    /// What a token of this grant says when it is made now and ends at `expires_at`, or with the grant if that is sooner.
    pub fn of(grant: &Grant, issued_at: i64, expires_at: i64) -> Claims {
        Claims {
            issuer: grant.issuer.clone(),
            subject: grant.subject.clone(),
            resource: grant.resource.clone(),
            client: grant.client.clone(),
            scopes: grant.scopes.clone(),
            issued_at,
            expires_at: expires_at.min(grant.expires_at_ms.div_euclid(1000)),
            grant: grant.id.clone(),
        }
    }
}

/// A signed token with these claims.
///
/// # Errors
/// When the key does not sign.
pub fn issue(keys: &Keys, claims: &Claims) -> Result<String, KeysError> {
    let payload = Payload {
        iss: claims.issuer.to_string(),
        sub: claims.subject.to_string(),
        aud: claims.resource.to_string(),
        client_id: claims.client.to_string(),
        scope: claims.scopes.join(" "),
        iat: claims.issued_at,
        exp: claims.expires_at,
        nbf: None,
        jti: id::unguessable("t_"),
        grant: claims.grant.to_string(),
    };
    keys.sign(claims.issued_at.saturating_mul(1000), |kid| {
        let header = WrittenHeader { typ: "at+jwt", alg: "ES256", kid };
        format!("{}.{}", encode(&header), encode(&payload))
    })
}

/// Checks form, signature, issuer and times, and gives the claims. The resource is still to be compared.
pub(super) fn verify(token: &str, keys: &Keys, issuer: &str, now: i64) -> Result<Claims, Error> {
    let payload = signed(token, keys, issuer)?;
    check_times(&payload, now)?;
    claims(payload)
}

/// What a token of ours says, be its time over or still to come, and its grant revoked: for whoever ends a grant, or asks
/// how it stands. Never to let anybody in.
pub fn signed_claims(token: &str, keys: &Keys, issuer: &str) -> Option<Claims> {
    signed(token, keys, issuer).and_then(claims).ok()
}

fn signed(token: &str, keys: &Keys, issuer: &str) -> Result<Payload, Error> {
    let parts = Parts::of(token)?;
    let header: Header = decode(parts.header)?;
    check_header(&header)?;
    check_signature_form(parts.signature)?;
    if !keys.has_signed(&header.kid, parts.message.as_bytes(), parts.signature) {
        return Err(Error::Signature);
    }
    let payload: Payload = decode(parts.payload)?;
    if payload.iss != issuer {
        return Err(Error::WrongIssuer);
    }
    Ok(payload)
}

/// The grant a token names, unverified: for commands that look up a grant, never to let anybody in.
pub fn grant_named_in(token: &str) -> Option<String> {
    let parts = Parts::of(token).ok()?;
    decode::<Payload>(parts.payload).ok().map(|payload| payload.grant)
}

// === parts ===

/// A JWS in its compact form (RFC 7515 §7.1).
pub(super) struct Parts<'a> {
    pub(super) header: &'a str,
    pub(super) payload: &'a str,
    pub(super) signature: &'a str,
    /// Header and payload with the dot between: what is signed.
    pub(super) message: &'a str,
}

impl<'a> Parts<'a> {
    pub(super) fn of(token: &'a str) -> Result<Parts<'a>, Error> {
        if token.len() > LONGEST_TOKEN {
            return Err(Error::Malformed("too long"));
        }
        let split = || {
            let (message, signature) = token.rsplit_once('.')?;
            let (header, payload) = message.split_once('.')?;
            let has_all = ![header, payload, signature].contains(&"");
            (has_all && !payload.contains('.')).then_some(Parts { header, payload, signature, message })
        };
        split().ok_or(Error::Malformed("not three parts"))
    }
}

fn check_header(header: &Header) -> Result<(), Error> {
    //= RFC 9068 §4
    //# The resource server MUST verify that the "typ" header value is "at+jwt" or "application/at+jwt"
    let is_typ = |typ| header.typ.eq_ignore_ascii_case(typ);
    if !is_typ("at+jwt") && !is_typ("application/at+jwt") {
        return Err(Error::Malformed("typ is not at+jwt"));
    }
    // Our keys are for ES256 and are used for nothing else; this only gives the honest mistake its name.
    if header.alg != "ES256" {
        return Err(Error::Malformed("alg is not ES256"));
    }
    if header.crit.is_some() || header.b64.is_some() {
        return Err(Error::Malformed("an extension we do not know"));
    }
    Ok(())
}

/// Two numbers of 32 bytes (RFC 7518 §3.4). One signature has one form: else a copy would be another cache entry.
fn check_signature_form(signature: &str) -> Result<(), Error> {
    match URL_SAFE_NO_PAD.decode(signature) {
        Ok(bytes) if bytes.len() == 64 => Ok(()),
        _ => Err(Error::Malformed("not an ES256 signature")),
    }
}

fn check_times(payload: &Payload, now: i64) -> Result<(), Error> {
    if now >= payload.exp {
        return Err(Error::Expired);
    }
    let latest = now.saturating_add(LEEWAY_S);
    if payload.iat > latest || payload.nbf.is_some_and(|nbf| nbf > latest) {
        return Err(Error::NotYetValid);
    }
    Ok(())
}

fn claims(payload: Payload) -> Result<Claims, Error> {
    if !is_client_id(&payload.client_id) {
        return Err(Error::Malformed("client_id"));
    }
    if payload.jti.is_empty() || payload.grant.is_empty() {
        return Err(Error::Malformed("jti or grant is empty"));
    }
    Ok(Claims {
        issuer: payload.iss.into(),
        subject: payload.sub.parse().map_err(|_| Error::Malformed("sub"))?,
        resource: payload.aud.into(),
        client: payload.client_id.into(),
        scopes: scopes(&payload.scope).ok_or(Error::Malformed("scope"))?,
        issued_at: payload.iat,
        expires_at: payload.exp,
        grant: payload.grant.into(),
    })
}

/// RFC 6749 §3.3: names separated by single spaces; at least one.
fn scopes(text: &str) -> Option<Arc<[String]>> {
    text.split(' ').map(|scope| is_scope(scope).then(|| scope.to_owned())).collect()
}

/// RFC 6749 §3.3 `scope-token`: visible ASCII without `"` and `\`.
pub fn is_scope(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_graphic() && c != b'"' && c != b'\\';
    !text.is_empty() && text.bytes().all(allowed)
}

// === JSON in base64url ===

fn encode(part: &impl Serialize) -> String {
    let json = serde_json::to_vec(part).expect("texts and numbers can be written as JSON");
    URL_SAFE_NO_PAD.encode(json)
}

/// One object. Members we read must be there once and of their type; serde refuses the rest.
fn decode<T: DeserializeOwned>(part: &str) -> Result<T, Error> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| Error::Malformed("not base64url"))?;
    // A struct could also be read from an array, by position.
    if json.first() != Some(&b'{') {
        return Err(Error::Malformed("not a JSON object"));
    }
    serde_json::from_slice(&json).map_err(|_| Error::Malformed("a member is missing or wrong"))
}

/// Tells a written `null` from a member that is not there.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
