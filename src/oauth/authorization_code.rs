//! From an authorization code to the first tokens (RFC 6749 §4.1.3), with PKCE (RFC 7636 §4.5, S256 only).
//!
//! A code is had once. Who brings the wrong verifier, client or redirect URI gets nothing and uses nothing up, but has
//! only a few tries. Who brings everything right a second time shows that the code is in two hands, and the grant it
//! became is revoked (OAuth 2.1 §4.1.3); a replay that has the verifier wrong could come from anybody who saw the code
//! in a browser's history, and must not be able to log the client out (§7.5.3).

use super::client::Client;
use super::error::{ErrorCode, OAuthError};
use super::post::Post;
use super::token::{self, Tokens};
use super::{Shared, record, refresh_token, resource};
use crate::audit::{Kind, sha256};
use crate::id;
use crate::snapshot::Snapshot;
use crate::store::{self, Code, Grant, LOGIN, NewRefreshToken, Redeemed, Redemption};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use std::time::Duration;

/// Tokens for the code in this request.
///
/// # Errors
/// `invalid_grant` where the code does not hold for this client and verifier, `invalid_target` where another resource is
/// asked for than the person consented to.
pub(super) async fn redeem(shared: &Shared, post: &Post, client: &Client) -> Result<Tokens, OAuthError> {
    if !client.may_use_codes {
        let why = "this client may not use authorization codes";
        return Err(OAuthError::new(ErrorCode::UnauthorizedClient, why));
    }
    let text = post.form.get("code").ok_or(OAuthError::invalid_request("code is missing"))?;
    let verifier = post.form.get("code_verifier").ok_or(OAuthError::invalid_request("code_verifier is missing"))?;
    if !is_verifier(verifier) {
        let form = "code_verifier must be 43 to 128 characters of A-Z a-z 0-9 - . _ ~";
        return Err(OAuthError::invalid_request(form));
    }
    let snapshot = shared.snapshots.load_full();
    let code = shared.store.code(sha256(text.as_bytes())).await?.ok_or(does_not_hold())?;
    let is_of_client = *code.client == *client.id;
    let is_sent_there = post.form.get("redirect_uri").is_none_or(|uri| uri == code.redirect_uri);
    if !has_challenge(verifier, &code.challenge) || !is_of_client || !is_sent_there {
        shared.store.count_wrong_try(code.digest).await?;
        return Err(does_not_hold());
    }
    check_resource(&snapshot, post.form.get("resource"), &code.resource)?;
    if !token::is_subject_current(&snapshot, &code.subject, code.password_mark.as_deref()) {
        return Err(does_not_hold());
    }
    become_grant(shared, &snapshot, post, client, &code).await
}

async fn become_grant(
    shared: &Shared,
    snapshot: &Snapshot,
    post: &Post,
    client: &Client,
    code: &Code,
) -> Result<Tokens, OAuthError> {
    let grant = grant(shared, snapshot, client, code);
    let refresh = client.may_refresh.then(refresh_token::generate);
    let refresh_token = refresh
        .as_ref()
        .map(|token| NewRefreshToken { digest: sha256(token.expose().as_bytes()), expires_at_ms: grant.expires_at_ms });
    let is_open = shared.store.is_code_open(code.digest, grant.created_at_ms).await?;
    if is_open {
        // Before the code is used up: whoever is told to try again must not be taken for a thief when they do.
        record::of_grant(shared, Kind::TokenIssued, &post.caller, &grant).await?;
    }
    let redemption = Redemption { code: code.digest, grant: grant.clone(), refresh_token };
    let redeemed = shared.store.redeem_code(redemption).await.map_err(|error| match error {
        store::Error::TooMany { .. } => {
            OAuthError::invalid_grant("the person has as many tokens as one may have; revoke some")
        }
        error => error.into(),
    })?;
    match redeemed {
        Redeemed::Granted { displaced } => {
            if let Some(id) = displaced {
                record::displaced(shared, snapshot, &post.caller, &Grant { id, ..grant.clone() });
            }
            token::issue(shared, snapshot, &grant, grant.scopes.clone(), refresh)
        }
        Redeemed::Replayed { grant: id } => {
            let replayed = Grant { id, ..grant };
            record::of_grant(shared, Kind::TokenReplayed, &post.caller, &replayed).await?;
            Err(does_not_hold())
        }
        Redeemed::Over => Err(does_not_hold()),
    }
}

/// What the code becomes. A client that may refresh keeps the grant as long as it uses it; for any other it ends with
/// the one access token.
fn grant(shared: &Shared, snapshot: &Snapshot, client: &Client, code: &Code) -> Grant {
    let now_ms = shared.clock.unix_ms();
    let later = |by: Duration| now_ms.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    let oauth = &snapshot.config.oauth;
    let longest_until_ms = client.may_refresh.then(|| later(oauth.lifetime.duration()));
    let expires_at_ms = match longest_until_ms {
        Some(longest_ms) => later(oauth.idle.duration()).min(longest_ms),
        None => later(oauth.access_token.duration()),
    };
    Grant {
        id: id::unguessable("g_").into(),
        issuer: code.issuer.clone(),
        subject: code.subject.clone(),
        client: code.client.clone(),
        resource: code.resource.clone(),
        scopes: code.scopes.clone(),
        created_at_ms: now_ms,
        expires_at_ms,
        made_by: LOGIN.to_owned(),
        password_mark: code.password_mark.clone(),
        longest_until_ms,
        revoked: None,
    }
}

/// The resource of a token request, where there is one, must be that of the grant (RFC 8707 §2.2); and that must still be
/// one of ours: a token for a route that is gone would open whatever takes its name one day.
pub(super) fn check_resource(snapshot: &Snapshot, sent: Option<&str>, granted: &str) -> Result<(), OAuthError> {
    if !snapshot.routes.values().any(|route| *route.resource == *granted) {
        let why = "the server this was granted for is not behind this gateway any more";
        return Err(OAuthError::new(ErrorCode::InvalidTarget, why));
    }
    let Some(sent) = sent else { return Ok(()) };
    // The bare origin names a route here if it did so when the person consented.
    if resource::is_same(sent, granted) || resource::route_for(snapshot, Some(sent))?.resource == granted {
        return Ok(());
    }
    Err(OAuthError::new(ErrorCode::InvalidTarget, "resource is not the one that was granted"))
}

/// One sentence for all that can be wrong: whoever guesses learns nothing from it.
fn does_not_hold() -> OAuthError {
    OAuthError::invalid_grant(
        "the code is unknown, used or expired, or was issued for another client, redirect URI or verifier",
    )
}

/// RFC 7636 §4.1.
fn is_verifier(text: &str) -> bool {
    let is_unreserved = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'~');
    (43..=128).contains(&text.len()) && text.bytes().all(is_unreserved)
}

/// RFC 7636 §4.6, in the same time whichever character differs: marks under a key of the moment are compared, not the
/// texts.
fn has_challenge(verifier: &str, challenge: &str) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &id::random_bytes::<32>());
    let ours = URL_SAFE_NO_PAD.encode(sha256(verifier.as_bytes()));
    hmac::verify(&key, ours.as_bytes(), hmac::sign(&key, challenge.as_bytes()).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, Appendix B.
    #[test]
    fn a_verifier_has_one_challenge() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

        assert!(has_challenge(verifier, challenge));
        for other in ["", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cN", &format!("{challenge}="), verifier] {
            assert!(!has_challenge(verifier, other), "{other}");
        }
        assert!(!has_challenge(&verifier.to_lowercase(), challenge));
    }

    /// O-20: what is no verifier is not even looked at.
    #[test]
    fn a_verifier_has_43_to_128_unreserved_characters() {
        for (n, expected) in [(42, false), (43, true), (128, true), (129, false)] {
            assert_eq!(is_verifier(&"a".repeat(n)), expected, "{n}");
        }
        assert!(is_verifier(&("-._~09AZaz".repeat(5))));
        for wrong in ["+", "/", "=", " ", "é", "%", "\0"] {
            assert!(!is_verifier(&("a".repeat(60) + wrong)), "{wrong}");
        }
    }
}
