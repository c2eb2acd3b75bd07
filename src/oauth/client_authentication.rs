//! How a client shows who it is at `/token`, `/revoke` and `/introspect` (RFC 6749 §2.3, RFC 7523 §2.2): not at all, by
//! a secret in the header or in the form, or by an assertion that it signed. By one of them at a time.
//!
//! This comes before anything that could be used up: whoever cannot show who they are burns no code and no token.

use super::Shared;
use super::client::{Authentication, Client, KeySet, NotFound};
use super::error::{ErrorCode, OAuthError};
use super::fetches::Failure;
use crate::audit::sha256;
use crate::browser::Form;
use crate::identity::{PublicKeys, client_named_in_assertion, verify_assertion};
use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

/// RFC 7523 §2.2.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const WRONG: &str = "the client could not show that it is who it says";

/// What a client brought.
enum Shown<'a> {
    Nothing,
    Secret(String),
    Assertion(&'a str),
}

/// The client that sends this request.
///
/// # Errors
/// `invalid_client`; `invalid_request` where it is not clear what it tried; `temporarily_unavailable`.
pub(super) async fn authenticate(shared: &Shared, headers: &HeaderMap, form: &Form) -> Result<Client, OAuthError> {
    let used_basic = headers.contains_key(header::AUTHORIZATION);
    let found = identify(shared, headers, form).await;
    found.map_err(|error| OAuthError { used_basic, ..error })
}

async fn identify(shared: &Shared, headers: &HeaderMap, form: &Form) -> Result<Client, OAuthError> {
    let (id, shown) = shown(headers, form)?;
    let client = Client::find_again(shared, &id).await.map_err(|why| match why {
        // Some clients begin anew when they see this, which is what they should do.
        NotFound::Unknown => OAuthError::invalid_client("this client is not known here; it has to register again"),
        NotFound::Document(_) => OAuthError::invalid_client("the metadata document of this client cannot be used"),
        NotFound::Unavailable => unavailable(),
    })?;
    match (&client.authentication, shown) {
        (Authentication::Public | Authentication::Keys { or_none: true, .. }, Shown::Nothing) => Ok(client),
        (Authentication::Secret(digest), Shown::Secret(secret)) if is_secret(digest, &secret) => Ok(client),
        (Authentication::Keys { set, .. }, Shown::Assertion(assertion)) => {
            check_assertion(shared, &client, set, assertion).await.map(|()| client)
        }
        (Authentication::Public, _) => {
            Err(OAuthError::invalid_client("this client has nothing to show: its method is none"))
        }
        (_, Shown::Nothing) => Err(OAuthError::invalid_client("this client must show who it is")),
        _ => Err(OAuthError::invalid_client(WRONG)),
    }
}

fn unavailable() -> OAuthError {
    OAuthError::new(ErrorCode::TemporarilyUnavailable, "this server cannot look the client up now; try again")
}

/// Who the client says it is, and what it brings to show that.
fn shown<'a>(headers: &HeaderMap, form: &'a Form) -> Result<(String, Shown<'a>), OAuthError> {
    let basic = basic(headers)?;
    let secret = form.get("client_secret");
    let is_asserted = form.has("client_assertion") || form.has("client_assertion_type");
    let n_ways = usize::from(basic.is_some()) + usize::from(secret.is_some()) + usize::from(is_asserted);
    if n_ways > 1 {
        return Err(OAuthError::invalid_request("a client must show who it is in one way, not in several"));
    }
    let named = form.get("client_id");
    if let Some((id, secret)) = basic {
        return same(named, &id).map(|()| (id, Shown::Secret(secret)));
    }
    if is_asserted {
        let assertion = assertion(form)?;
        let claimed = client_named_in_assertion(assertion);
        let id = claimed.ok_or(OAuthError::invalid_client("the client assertion is no signed JWT"))?.client;
        return same(named, &id).map(|()| (id, Shown::Assertion(assertion)));
    }
    let id = named.ok_or(OAuthError::invalid_client("client_id is missing"))?.to_owned();
    Ok((id, secret.map_or(Shown::Nothing, |secret| Shown::Secret(secret.to_owned()))))
}

fn same(named: Option<&str>, id: &str) -> Result<(), OAuthError> {
    if named.is_none_or(|named| named == id) {
        return Ok(());
    }
    Err(OAuthError::invalid_request("client_id is not the client that shows who it is"))
}

fn assertion(form: &Form) -> Result<&str, OAuthError> {
    if form.get("client_assertion_type") != Some(ASSERTION_TYPE) {
        return Err(OAuthError::invalid_request("client_assertion_type must be that of a JWT (RFC 7523)"));
    }
    form.get("client_assertion").ok_or(OAuthError::invalid_request("client_assertion is missing"))
}

/// Id and secret of an `Authorization: Basic` (RFC 7617 §2), each encoded as in a form (RFC 6749 §2.3.1).
fn basic(headers: &HeaderMap) -> Result<Option<(String, String)>, OAuthError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(OAuthError::invalid_request("there are two Authorization headers"));
    }
    let malformed =
        || OAuthError::invalid_client("Authorization must be Basic, with the id and the secret of the client");
    let read = || {
        let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
        let credentials = Some(credentials.trim()).filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
        let pair = String::from_utf8(STANDARD.decode(credentials).ok()?).ok()?;
        let (id, secret) = pair.split_once(':')?;
        Some((form_decoded(id)?, form_decoded(secret)?))
    };
    read().map(Some).ok_or_else(malformed)
}

/// `a+b%3A` is `a b:`. A percent sign that begins no escape is an error, not a percent sign.
fn form_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Compares digests, so the time says nothing of the secret; and compares all of them, so it says nothing of the digest.
fn is_secret(digest: &[u8; 32], secret: &str) -> bool {
    let shown = sha256(secret.as_bytes());
    digest.iter().zip(shown).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

/// The assertion holds, and was not used before.
async fn check_assertion(shared: &Shared, client: &Client, set: &KeySet, assertion: &str) -> Result<(), OAuthError> {
    let snapshot = shared.snapshots.load_full();
    let keys: Arc<PublicKeys> = match set {
        KeySet::Given(keys) => Arc::clone(keys),
        KeySet::At(url) => {
            let kid = client_named_in_assertion(assertion).and_then(|claimed| claimed.kid);
            let keys = shared.documents.keys(shared, &snapshot, &client.id, url, kid.as_deref()).await;
            keys.map_err(|why| match why {
                Failure::Unusable(why) | Failure::Missing(why) => {
                    tracing::info!(client = &*client.id, %why, "the keys of a client cannot be used");
                    OAuthError::invalid_client("the keys at the jwks_uri of this client cannot be used")
                }
                Failure::Unavailable(why) => {
                    tracing::info!(client = &*client.id, %why, "the keys of a client cannot be had");
                    unavailable()
                }
            })?
        }
    };
    let now_ms = shared.clock.unix_ms();
    let verified = verify_assertion(assertion, &keys, &client.id, &snapshot.public_url, now_ms.div_euclid(1000));
    let verified = verified.map_err(OAuthError::invalid_client)?;
    let expires_at_ms = verified.expires_at.saturating_mul(1000);
    if shared.store.use_assertion(verified.digest, expires_at_ms, now_ms).await? {
        return Ok(());
    }
    Err(OAuthError::invalid_client("the client assertion was used before: each needs a jti of its own"))
}
