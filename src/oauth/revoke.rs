//! Revocation (RFC 7009): a client gives back what it does not need any more.
//!
//! Access and refresh token are of one grant, and it ends with either: a client that says "log out" means both, and often
//! has only one of them at hand. `token_type_hint` is not looked at, since the two never look alike.

use super::client::Client;
use super::client_authentication::authenticate;
use super::error::{OAuthError, no_store};
use super::post::Post;
use super::{Shared, record};
use crate::audit::{Kind, sha256};
use crate::identity;
use crate::store::{Grant, REFRESH_TOKEN, Revocation, Subject};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

pub(super) async fn post(State(shared): State<Shared>, post: Result<Post, OAuthError>) -> Response {
    let post = match post {
        Ok(post) => post,
        Err(error) => return error.into_response(),
    };
    match revoke(&shared, &post).await {
        //= RFC 7009 §2.2
        //# The authorization server responds with HTTP status code 200 if the token has been revoked successfully or
        //# if the client submitted an invalid token.
        Ok(()) => no_store(StatusCode::OK.into_response()),
        Err(error) => error.into_response(),
    }
}

async fn revoke(shared: &Shared, post: &Post) -> Result<(), OAuthError> {
    let client = authenticate(shared, &post.headers, &post.form).await?;
    let token = post.form.get("token").ok_or(OAuthError::invalid_request("token is missing"))?;
    // Another client's token stays, and is not told apart from none: who asks learns nothing about it.
    let Some(grant) = grant_of(shared, token).await?.filter(|grant| is_of(grant, &client)) else {
        return Ok(());
    };
    let by = Subject::Client(client.id).to_string();
    if shared.store.revoke_grant(&grant.id, &by, shared.clock.unix_ms()).await? == Revocation::Done {
        record::of_grant(shared, Kind::TokenRevoked, &post.caller, &grant).await?;
    }
    Ok(())
}

fn is_of(grant: &Grant, client: &Client) -> bool {
    *grant.client == *client.id
}

/// The grant of an access or refresh token of ours, be it expired or used up: who has had it may end the grant.
async fn grant_of(shared: &Shared, token: &str) -> Result<Option<Grant>, OAuthError> {
    if token.starts_with(REFRESH_TOKEN) {
        let found = shared.store.refresh_token(sha256(token.as_bytes())).await?;
        return Ok(found.map(|found| found.grant));
    }
    let issuer = shared.snapshots.load().public_url.clone();
    match identity::signed_claims(token, &shared.keys, &issuer) {
        Some(claims) => Ok(shared.store.grant(&claims.grant).await?),
        None => Ok(None),
    }
}
