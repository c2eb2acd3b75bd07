//! Refreshing (RFC 6749 §6): a refresh token is used once and gives its successor.
//!
//! Clients lose answers, and several processes of one client refresh at once with the same token. Whoever took each
//! second use for a theft would log people out all day; so for a short time, and only while the successor was not used,
//! the same token gives the same successor again. Any other second use ends the grant (RFC 9700 §4.14).

use super::authorization_code::check_resource;
use super::client::Client;
use super::error::{ErrorCode, OAuthError};
use super::post::Post;
use super::token::{self, Tokens};
use super::{Shared, record, scope, successor};
use crate::audit::{Kind, sha256};
use crate::id;
use crate::secret::Secret;
use crate::snapshot::Snapshot;
use crate::store::{Grant, NewRefreshToken, REFRESH_TOKEN, RefreshToken, Rotated, Rotation};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::time::Duration;

/// Who revoked a grant whose person is gone or has another password, for people.
const PERSON_CHANGED: &str = "change of person or password";

/// A new refresh token: the prefix and 256 bits in base64url.
pub(super) fn generate() -> Secret<String> {
    Secret::new(format!("{REFRESH_TOKEN}{}", URL_SAFE_NO_PAD.encode(id::random_bytes::<32>())))
}

/// Tokens for the refresh token in this request.
///
/// # Errors
/// `invalid_grant` where the refresh token does not hold for this client, `invalid_scope` and `invalid_target` where more
/// is asked for than was granted.
pub(super) async fn refresh(shared: &Shared, post: &Post, client: &Client) -> Result<Tokens, OAuthError> {
    if !client.may_refresh {
        let why = "this client may not use refresh tokens";
        return Err(OAuthError::new(ErrorCode::UnauthorizedClient, why));
    }
    let missing = OAuthError::invalid_request("refresh_token is missing");
    let text = post.form.get("refresh_token").ok_or(missing)?;
    let snapshot = shared.snapshots.load_full();
    let found = shared.store.refresh_token(sha256(text.as_bytes())).await?.ok_or(does_not_hold())?;
    let RefreshToken { grant, .. } = &found;
    // A token that another client stole is worth nothing to it, and costs its own client nothing.
    if *grant.client != *client.id || *grant.issuer != *snapshot.public_url {
        return Err(does_not_hold());
    }
    if !token::is_subject_current(&snapshot, &grant.subject, grant.password_mark.as_deref()) {
        return Err(end(shared, post, grant).await?);
    }
    let scopes = scope::narrowed(&grant.scopes, post.form.get("scope"))?;
    check_resource(&snapshot, post.form.get("resource"), &grant.resource)?;
    let now_ms = shared.clock.unix_ms();
    let is_open = found.used_at_ms.is_none() && grant.revoked.is_none() && now_ms < found.expires_at_ms;
    if is_open {
        // Before the token is used up: whoever is told to try again must not be taken for a thief when they do.
        record::of_grant(shared, Kind::TokenRefreshed, &post.caller, grant).await?;
    }
    let refreshed = rotate(shared, &snapshot, post, text, grant).await?;
    // As it is now: its end has moved, and it may have been revoked meanwhile.
    let grant = shared.store.grant(&grant.id).await?.filter(|grant| grant.revoked.is_none()).ok_or(does_not_hold())?;
    if !is_open {
        // The same successor once more; until here it might have been a replay.
        record::of_grant(shared, Kind::TokenRefreshed, &post.caller, &grant).await?;
    }
    token::issue(shared, &snapshot, &grant, scopes.into(), Some(refreshed))
}

/// Uses the token up, and gives its successor.
async fn rotate(
    shared: &Shared,
    snapshot: &Snapshot,
    post: &Post,
    token: &str,
    grant: &Grant,
) -> Result<Secret<String>, OAuthError> {
    let now_ms = shared.clock.unix_ms();
    let idle: Duration = snapshot.config.oauth.idle.duration();
    let expires_at_ms = now_ms.saturating_add(i64::try_from(idle.as_millis()).unwrap_or(i64::MAX));
    let fresh = generate();
    let rotation = Rotation {
        token: sha256(token.as_bytes()),
        at_ms: now_ms,
        successor: NewRefreshToken { digest: sha256(fresh.expose().as_bytes()), expires_at_ms },
        sealed: successor::seal(token, fresh.expose()),
    };
    match shared.store.rotate_refresh_token(rotation).await? {
        Rotated::Fresh => Ok(fresh),
        Rotated::Again(sealed) => successor::open(token, &sealed).ok_or(does_not_hold()),
        Rotated::Over => Err(does_not_hold()),
        Rotated::Replayed => {
            record::of_grant(shared, Kind::TokenReplayed, &post.caller, grant).await?;
            Err(does_not_hold())
        }
    }
}

/// Revokes a grant whose subject is not who they were; gives what the client is told.
async fn end(shared: &Shared, post: &Post, grant: &Grant) -> Result<OAuthError, OAuthError> {
    if grant.revoked.is_none() {
        shared.store.revoke_grant(&grant.id, PERSON_CHANGED, shared.clock.unix_ms()).await?;
        record::of_grant(shared, Kind::TokenRevoked, &post.caller, grant).await?;
    }
    Ok(does_not_hold())
}

/// One sentence for all that can be wrong: whoever guesses learns nothing from it.
fn does_not_hold() -> OAuthError {
    OAuthError::invalid_grant("the refresh token is unknown, used, expired or revoked, or was issued to another client")
}
