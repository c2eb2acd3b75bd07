//! The token endpoint (RFC 6749 §3.2): a form in, tokens or an error out. Each grant type has a file of its own.

use super::client::{Client, Origin};
use super::client_authentication::authenticate;
use super::error::{ErrorCode, OAuthError, no_store};
use super::post::Post;
use super::{Shared, authorization_code, client_credentials, document, record, refresh_token};
use crate::identity::{self, Claims};
use crate::secret::Secret;
use crate::snapshot::Snapshot;
use crate::store::{Grant, Subject};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;

/// What a client gets (RFC 6749 §5.1).
#[derive(Debug)]
pub(super) struct Tokens {
    access: Secret<String>,
    expires_in: i64,
    scopes: Arc<[String]>,
    refresh: Option<Secret<String>>,
}

pub(super) async fn post(State(shared): State<Shared>, post: Result<Post, OAuthError>) -> Response {
    let post = match post {
        Ok(post) => post,
        Err(error) => return error.into_response(),
    };
    match tokens(&shared, &post).await {
        Ok(tokens) => tokens.into_response(),
        Err(error) => error.into_response(),
    }
}

async fn tokens(shared: &Shared, post: &Post) -> Result<Tokens, OAuthError> {
    let grant_type = post.form.get("grant_type").ok_or(OAuthError::invalid_request("grant_type is missing"))?;
    if !["authorization_code", "refresh_token", "client_credentials"].contains(&grant_type) {
        let known = "grant_type must be authorization_code, refresh_token or client_credentials";
        return Err(OAuthError::new(ErrorCode::UnsupportedGrantType, known));
    }
    let client = authenticate(shared, &post.headers, &post.form).await?;
    // What cannot be recorded is not done; found out before a code or token is used up.
    if !shared.audit.is_available() {
        return Err(record::unavailable());
    }
    let tokens = match grant_type {
        "authorization_code" => authorization_code::redeem(shared, post, &client).await?,
        "refresh_token" => refresh_token::refresh(shared, post, &client).await?,
        _ => client_credentials::issue(shared, post, &client).await?,
    };
    match client.origin {
        Origin::Registered => keep(shared, &client).await,
        Origin::Document => shared.documents.remember(shared, &client).await,
        Origin::Configured => {}
    }
    Ok(tokens)
}

/// A client that registered itself stays registered while it is used. That this cannot be noted costs it nothing now.
async fn keep(shared: &Shared, client: &Client) {
    if let Err(error) = shared.store.touch_client(&client.id, shared.clock.unix_ms()).await {
        tracing::warn!(%error, "the use of a registered client cannot be noted");
    }
}

/// An access token of this grant with these scopes, and the refresh token that goes with it. The grant is in the store
/// already: the other way round there could be a token that nobody can revoke.
///
/// # Errors
/// When it cannot be signed, or would be too long to be accepted anywhere.
pub(super) fn issue(
    shared: &Shared,
    snapshot: &Snapshot,
    grant: &Grant,
    scopes: Arc<[String]>,
    refresh: Option<Secret<String>>,
) -> Result<Tokens, OAuthError> {
    let now = shared.clock.unix_seconds();
    let life_s = access_token_s(snapshot);
    let claims = Claims { scopes, ..Claims::of(grant, now, now.saturating_add(life_s).saturating_add(ON_THE_WAY_S)) };
    let failed =
        || OAuthError::new(ErrorCode::TemporarilyUnavailable, "this server cannot sign a token now; try again");
    let access = identity::issue(&shared.keys, &claims).map_err(|error| {
        tracing::error!(%error, "an access token was not signed");
        failed()
    })?;
    if access.len() > identity::LONGEST_TOKEN {
        return Err(OAuthError::new(ErrorCode::InvalidScope, "the token would be too long; ask for fewer scopes"));
    }
    Ok(Tokens {
        access: Secret::new(access),
        expires_in: claims.expires_at.saturating_sub(now).min(life_s),
        scopes: claims.scopes,
        refresh,
    })
}

/// A client counts from when the answer reached it, and several of them log in anew where a token is refused a moment before
/// its time. So it lives this much longer than it is said to, in seconds.
const ON_THE_WAY_S: i64 = 3;

/// How long an access token lives, in seconds.
pub(super) fn access_token_s(snapshot: &Snapshot) -> i64 {
    i64::try_from(snapshot.config.oauth.access_token.duration().as_secs()).unwrap_or(i64::MAX)
}

/// Whether a grant's subject is still who they were when it was made: configured, and with the same password.
pub(super) fn is_subject_current(snapshot: &Snapshot, subject: &Subject, password_mark: Option<&str>) -> bool {
    match subject {
        Subject::User(name) => snapshot
            .users
            .get(name)
            .is_some_and(|person| password_mark.is_none_or(|mark| *mark == *person.password_mark)),
        Subject::Client(id) => snapshot.clients.machine(id, &snapshot.users).is_some(),
    }
}

impl IntoResponse for Tokens {
    fn into_response(self) -> Response {
        let mut body = json!({
            "access_token": self.access.expose(),
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "scope": self.scopes.join(" "),
        });
        if let Some(refresh) = &self.refresh {
            body["refresh_token"] = json!(refresh.expose());
        }
        no_store(document(StatusCode::OK, &body))
    }
}
