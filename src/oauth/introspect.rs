//! Introspection (RFC 7662): what a token stands for now, for a service that was handed one.
//!
//! Only clients that show who they are may ask: anybody else could try out tokens here (RFC 7662 §4). A client is told
//! about its own tokens, and one of the configuration about access tokens for the routes that are written with it, too; any
//! other token is not active for it, and neither is one that is expired, revoked, or was never ours. Why is not said.

use super::client::{Authentication, Client};
use super::client_authentication::authenticate;
use super::error::{OAuthError, no_store};
use super::post::Post;
use super::token::is_subject_current;
use super::{Shared, document};
use crate::audit::sha256;
use crate::identity;
use crate::snapshot::Snapshot;
use crate::store::{Grant, REFRESH_TOKEN, Subject};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

pub(super) async fn post(State(shared): State<Shared>, post: Result<Post, OAuthError>) -> Response {
    let post = match post {
        Ok(post) => post,
        Err(error) => return error.into_response(),
    };
    match introspect(&shared, &post).await {
        Ok(answer) => no_store(document(StatusCode::OK, &answer)),
        Err(error) => error.into_response(),
    }
}

async fn introspect(shared: &Shared, post: &Post) -> Result<Value, OAuthError> {
    let client = authenticate(shared, &post.headers, &post.form).await?;
    if !has_shown(&client, post) {
        let why = "only a client that shows who it is may ask";
        return Err(OAuthError::invalid_client(why));
    }
    let token = post.form.get("token").ok_or(OAuthError::invalid_request("token is missing"))?;
    let snapshot = shared.snapshots.load_full();
    let active = if token.starts_with(REFRESH_TOKEN) {
        of_refresh_token(shared, &snapshot, &client, token).await?
    } else {
        of_access_token(shared, &snapshot, &client, token).await?
    };
    //= RFC 7662 §2.2
    //# If the introspection call is properly authorized but the token is not active, […] the authorization server MUST
    //# return an introspection response with the "active" field set to "false".
    Ok(active.unwrap_or_else(|| json!({ "active": false })))
}

/// Whether the client has shown who it is; one whose document lists `none` as well may have come without.
fn has_shown(client: &Client, post: &Post) -> bool {
    match &client.authentication {
        Authentication::Public => false,
        Authentication::Keys { or_none, .. } => !or_none || post.form.has("client_assertion"),
        Authentication::Secret(_) => true,
    }
}

async fn of_access_token(
    shared: &Shared,
    snapshot: &Snapshot,
    client: &Client,
    token: &str,
) -> Result<Option<Value>, OAuthError> {
    let Some(claims) = identity::signed_claims(token, &shared.keys, &snapshot.public_url) else {
        return Ok(None);
    };
    if shared.clock.unix_seconds() >= claims.expires_at {
        return Ok(None);
    }
    let grant = shared.store.grant(&claims.grant).await?;
    let is_entitled = |grant: &Grant| *grant.client == *client.id || is_at_its_routes(snapshot, client, grant);
    let grant = grant.filter(|grant| is_in_force(shared, snapshot, grant) && is_entitled(grant));
    Ok(grant.map(|grant| {
        let mut active = described(&grant, &claims.scopes);
        active["token_type"] = json!("Bearer");
        active["iat"] = json!(claims.issued_at);
        active["exp"] = json!(claims.expires_at);
        active
    }))
}

/// A refresh token is its own client's business only, and one that was used is not active.
async fn of_refresh_token(
    shared: &Shared,
    snapshot: &Snapshot,
    client: &Client,
    token: &str,
) -> Result<Option<Value>, OAuthError> {
    let found = shared.store.refresh_token(sha256(token.as_bytes())).await?;
    let found = found.filter(|found| {
        found.used_at_ms.is_none()
            && shared.clock.unix_ms() < found.expires_at_ms
            && *found.grant.client == *client.id
            && is_in_force(shared, snapshot, &found.grant)
    });
    Ok(found.map(|found| {
        let mut active = described(&found.grant, &found.grant.scopes);
        active["exp"] = json!(found.expires_at_ms.div_euclid(1000));
        active
    }))
}

fn is_in_force(shared: &Shared, snapshot: &Snapshot, grant: &Grant) -> bool {
    grant.revoked.is_none()
        && shared.clock.unix_ms() < grant.expires_at_ms
        && *grant.issuer == *snapshot.public_url
        && is_subject_current(snapshot, &grant.subject, grant.password_mark.as_deref())
}

/// Whether a grant is for one of the routes that the configuration writes with this client.
fn is_at_its_routes(snapshot: &Snapshot, client: &Client, grant: &Grant) -> bool {
    let routes = client.machine.iter().flat_map(|machine| &machine.routes);
    routes.filter_map(|name| snapshot.routes.get(name)).any(|route| *route.resource == *grant.resource)
}

fn described(grant: &Grant, scopes: &[String]) -> Value {
    let mut active = json!({
        "active": true,
        "scope": scopes.join(" "),
        "client_id": &*grant.client,
        "sub": grant.subject.to_string(),
        "aud": &*grant.resource,
        "iss": &*grant.issuer,
    });
    if let Subject::User(name) = &grant.subject {
        active["username"] = json!(&**name);
    }
    active
}
